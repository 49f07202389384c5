/* SPDX-License-Identifier: MIT */
/*
 * The kernels that the emulated GPU can run: C functions, known by their entry names.
 *
 * Runs in: a stream's thread, without any lock. A kernel reaches memory only through space_span(), and
 * ends soon after engine_is_cut_off().
 * Invariant: each does what the entry of the same name in src/gpu/kernels_ptx.h does on a real GPU, or the
 * one in tests/conformance/case_limit.c.
 * Read next: module.c, which finds the names in PTX text.
 */
#ifndef SOFTGPU_KERNELS_H
#define SOFTGPU_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fault.h"

#define KERNEL_PARAMETERS 8

struct kernel {
	const char *name;
	/* Sizes of the parameters in bytes: 4 or 8, and 0 behind the last. */
	uint8_t parameters[KERNEL_PARAMETERS];
	enum fault (*run)(const uint64_t *arguments);
	uint32_t frame_bytes; /* of the stack, that the compiler knows of */
	bool prints;	      /* it can print or assert */
};

/* The kernel of this name, or NULL. */
const struct kernel *kernel_find(const char *name, size_t length);

#endif
