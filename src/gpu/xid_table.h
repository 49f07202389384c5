/* SPDX-License-Identifier: MIT */
/*
 * What an Xid means and what to do about it: the other half of faults.h, which includes this.
 *
 * Runs in: every process. Pure lookups in a constant table: no driver, no allocation, no I/O.
 * Invariant: the table is sorted by number and holds each number once (tests/unit/faults.c).
 * Read next: xid.h, which turns lines of the kernel log into Xid numbers.
 */
#ifndef GPUWARD_GPU_XID_TABLE_H
#define GPUWARD_GPU_XID_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What to do about an Xid. */
enum xid_action {
	XID_UNKNOWN = 0, /* the number is in no table */
	XID_RESTART,	 /* restart the application that is named */
	XID_IGNORE,	 /* no action of its own: follow the other Xid */
	XID_RESET,	 /* reset the GPU */
	XID_REBOOT,	 /* reboot the node or the VM */
	XID_NVLINK,	 /* NVLink: follow the operator's NVLink work-flow */
	XID_NOTE,	 /* it depends: see the text, and `alone` for what it means by itself */
	XID_SUPPORT, /* nothing that software can do: contact support, or a number without use */
};

struct xid_info {
	uint16_t number;
	uint8_t action;	   /* enum xid_action */
	uint8_t alone;	   /* enum xid_action where no other Xid is near; never XID_NOTE */
	bool ends_process; /* the process that the line names can do no CUDA work any more */
	const char *text;  /* what it means, in words for people; static */
};

/* The whole table, for tests and listings. */
const struct xid_info *xid_table(size_t *ret_count);

/* The row of NUMBER, or NULL for one that is not known. */
const struct xid_info *xid_find(uint32_t number);

/*
 * What to do about Xid NUMBER when SEEN earlier ones of the same number were seen on this device. An
 * unknown number asks for a restart once and for a reset of the GPU after that. Never XID_NOTE or
 * XID_UNKNOWN.
 */
enum xid_action xid_advise(uint32_t number, unsigned int seen);

/* One letter of the catalogue (A, I, R, B, N, W, S; ? for unknown) and a few words for people. Static. */
char xid_action_letter(enum xid_action action);
const char *xid_action_text(enum xid_action action);

/* One of FAULT_EXIT_... of faults.h: what `gpuward run` ends with once all attempts are used up. */
int xid_exit_code(enum xid_action action);

#endif
