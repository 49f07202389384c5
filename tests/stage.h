/* SPDX-License-Identifier: MIT */
/*
 * Processes that hold a GPU's device file, staged for a test without a GPU, and a scan that looks for them.
 *
 * The devices are those of emulated GPUs (files of a folder of the test), or, where the test is root, real device
 * files: nvidia7 has the number of /dev/full then, by a list of device numbers of the test's own.
 *
 *	stage_begin(STAGE_NUMBERS)		devices
 *	child = stage_child(hold, NULL)		a child that holds something, and says when it does
 *	stage_scan()				stage.scan
 *	stage_end(child)			the child has ended and is reaped
 *	stage_finish()
 *
 * Runs in: a test's process; every failure fails the test (cmocka).
 */
#ifndef TESTS_STAGE_H
#define TESTS_STAGE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <cmocka.h>

#include "holders/scan.h"

enum stage_kind {
	STAGE_EMULATED,
	STAGE_NUMBERS,
};

struct stage {
	enum stage_kind kind;
	char folder[64];
	char device[96];   /* nvidia7's file */
	char control[96];  /* nvidiactl's; only emulated */
	char mappable[96]; /* the device, or another one that can be mapped: /dev/zero is nvidia5 */
	const char *foreign; /* another file for the same device; NULL none */
	struct scan_options options;
	struct scan scan;
};

extern struct stage stage;

/* A process of the test: it lives until `life` is closed. */
struct stage_child {
	pid_t pid;
	int life;
	int32_t value; /* what it said when it was ready */
};

/* Makes the devices; skips the test where that is not possible. */
void stage_begin(enum stage_kind kind);
void stage_finish(void);

/*
 * Starts a child that calls HOLD with ARGUMENT, reports what it returned, then waits for its life to end. Returns when
 * it has reported. Where HOLD returns less than 0 the test fails. HOLD may use stage_ready() itself, and stay.
 */
struct stage_child stage_child(int32_t (*hold)(void *argument), void *argument);

/* In HOLD: reports VALUE; then blocks until the test ends this child's life. */
void stage_ready(int32_t value);
void stage_wait_end(void);

/* Ends a child by closing its life, and reaps it. */
void stage_end(struct stage_child *child);
/* Ends it by SIGKILL. */
void stage_kill(struct stage_child *child);

/* Scans into stage.scan; the last one is freed. */
void stage_scan(void);

/* How many references of the kind HELD process PID has to the staged device; TID -1 for any thread. */
unsigned int stage_count(pid_t pid, enum scan_held held);
/* How many references of any kind to it. The list of numbers makes /dev/null a device too: those do not count. */
unsigned int stage_count_all(pid_t pid);
const struct scan_reference *stage_reference(pid_t pid, enum scan_held held);

/* Opens the staged device; in a child. */
int stage_open(void);

#endif
