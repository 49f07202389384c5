/* SPDX-License-Identifier: MIT */
/*
 * The one reading of CUDA_VISIBLE_DEVICES: which entry a device number means.
 *
 * Runs in: ward, command line and the drill's children. Where a scheduler has set the list, number N is its
 * N-th entry, so that nobody leaves the share that was given to them; a number past its end names no
 * device, and never another one outside. Pure: the caller reads the environment.
 */
#ifndef GPUWARD_COMMON_VISIBLE_H
#define GPUWARD_COMMON_VISIBLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VISIBLE_ENV	  "CUDA_VISIBLE_DEVICES"
#define VISIBLE_ORDER_ENV "CUDA_DEVICE_ORDER"

/*
 * Finds entry NUMBER of LIST, as the driver reads it: an entry like -1 ends the list. *RET_ENTRY points into
 * LIST and has *RET_BYTES bytes; *RET_COUNT is set in any case. False where there is no such entry.
 */
bool visible_entry(const char *list, uint32_t number, const char **ret_entry, size_t *ret_bytes,
		   uint32_t *ret_count);

#endif
