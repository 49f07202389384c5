/* SPDX-License-Identifier: MIT */
/*
 * The CUDA result that the process named by an Xid will get, where the report tells.
 *
 * Runs in: ward and command line. Pure. Only what was measured on hardware is here: a report that fits
 * several results (43 alone is an assertion or a trap) implies none.
 * Read next: xid.h, faults.h.
 */
#ifndef GPUWARD_GPU_XID_RESULT_H
#define GPUWARD_GPU_XID_RESULT_H

#include <stdint.h>

/* The CUresult that Xid NUMBER with the text REST (xid_line.rest) implies, or -1 where none is known. */
int xid_result(uint32_t number, const char *rest);

#endif
