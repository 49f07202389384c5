/* SPDX-License-Identifier: MIT */
/*
 * The sources that tell of a fault, in words.
 *
 * Runs in: command line. Pure; static storage, but for source_error().
 */
#ifndef GPUWARD_CLI_SOURCE_H
#define GPUWARD_CLI_SOURCE_H

#include <stdint.h>

#define SOURCE_TEXT_MAX 96

/* For people: "the kernel log". "unknown" for a number that is no enum gw_source. */
const char *source_name(uint32_t source);

/* For JSON: "kernel_log". */
const char *source_id(uint32_t source);

/* Whether CODE, from gw_pool_stat.source_error, says that SOURCE is listened to, or why not. */
void source_error(uint32_t source, int32_t code, char text[SOURCE_TEXT_MAX]);

#endif
