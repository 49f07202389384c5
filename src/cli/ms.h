/* SPDX-License-Identifier: MIT */
/*
 * Nanoseconds as milliseconds in text. Runs in: command line. By whole numbers: the locale has no say in the decimal
 * point, and nothing is rounded that need not be.
 */
#ifndef GPUWARD_CLI_MS_H
#define GPUWARD_CLI_MS_H

#include <stddef.h>
#include <stdint.h>

#define MS_TEXT_MAX 32

/* As people say it, with three digits that count and at most three decimals: "0.012 ms", "6.83 ms", "146 ms". */
void ms_format(uint64_t ns, char text[MS_TEXT_MAX]);

/* All digits, without the unit and without zeros at the end: "0.000001", "2.5", "100". Returns the length. */
size_t ms_format_exact(uint64_t ns, char text[MS_TEXT_MAX]);

#endif
