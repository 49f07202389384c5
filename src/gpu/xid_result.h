/* SPDX-License-Identifier: MIT */
/*
 * What an Xid means for the process that caused it: the CUDA result that it will get, where the report
 * tells, and whether it can go on.
 *
 * Runs in: ward and command line. Pure. Only what was measured on hardware is here: a report that fits
 * several results (43 alone is an assertion or a trap) implies none.
 * Read next: xid.h, faults.h.
 */
#ifndef GPUWARD_GPU_XID_RESULT_H
#define GPUWARD_GPU_XID_RESULT_H

#include <stdbool.h>
#include <stdint.h>

/* The CUresult that Xid NUMBER with the text REST (xid_line.rest) implies, or -1 where none is known. */
int xid_result(uint32_t number, const char *rest);

/* Whether the process that caused Xid NUMBER can do no CUDA work any more. An unknown number asks for a
 * restart of the application, as xid_advise() does. */
bool xid_ends_process(uint32_t number);

#endif
