/* SPDX-License-Identifier: MIT */
/*
 * What host and worker of the example say to each other. Read next: standby.c.
 */
#ifndef EXAMPLES_STANDBY_H
#define EXAMPLES_STANDBY_H

#include <stdint.h>

#include <gpuward.h>

#define PAGE_WORDS 1024U /* of 4 bytes */
#define SEED	   12345U
#define FAULTS	   3U /* kinds of them */

/* The input of all functions. The output of "answer" and "checksum" is a sum. */
struct request {
	uint64_t page;	     /* which one */
	uint64_t page_count; /* of the table */
	uint64_t asked_ns;
	uint32_t fault;	   /* 0, or the kind that poisons the worker in the first attempt */
	uint32_t is_check; /* it asks for the sum of the whole table */
};

/* "load", "answer" and "checksum": standby_worker.c. */
extern const struct gw_function standby_functions[];

#endif
