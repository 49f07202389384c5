/* SPDX-License-Identifier: MIT */
/* Amounts of memory in text, for people: as exact as it is short. Runs in: command line; pure. */
#ifndef GPUWARD_CLI_BYTES_H
#define GPUWARD_CLI_BYTES_H

#include <stdint.h>

#define BYTES_TEXT_MAX 32

/* "0 B", "512 B", "1.5 KiB", "100 GiB"; "-" for GW_UNKNOWN. */
void bytes_format(uint64_t bytes, char text[BYTES_TEXT_MAX]);

#endif
