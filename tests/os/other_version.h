/* SPDX-License-Identifier: MIT */
/*
 * Included before everything else: a build of the sources with this is another version of gpuward.
 *
 * Runs in: the ward and the worker that the test of bad input starts in place of the right ones. Nothing
 * else of them differs, so what is refused is the version alone. Read next: bad_input.c.
 */
#ifndef TESTS_OTHER_VERSION_H
#define TESTS_OTHER_VERSION_H

#include <gpuward.h>

#undef GW_VERSION_TEXT
#define GW_VERSION_TEXT "0.0.9"

#endif
