/* SPDX-License-Identifier: MIT */
/*
 * Who uses how much device memory for surviving state, in one line for people.
 *
 * Runs in: ward; pure. Read next: state_piece.h.
 */
#ifndef GPUWARD_WARD_STATE_TEXT_H
#define GPUWARD_WARD_STATE_TEXT_H

#include <stdint.h>

struct state_pieces;

#define STATE_TEXT_BYTES 144U
#define STATE_BYTES_TEXT 24U

/* BYTES in GiB or MiB, as exact as it is short. */
void state_text_bytes(uint64_t bytes, char text[STATE_BYTES_TEXT]);

/* "5 pieces, 12.5 GiB: weights 8 GiB, cache 4 GiB, table 512 MiB, 2 more". */
void state_text_usage(const struct state_pieces *pieces, uint32_t device,
		      char text[STATE_TEXT_BYTES]);

#endif
