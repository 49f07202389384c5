/* SPDX-License-Identifier: MIT */
/*
 * A process that SIGKILL does not end until the test wants it, as one that is blocked in a driver: frozen by a
 * control group of version 1.
 *
 * Runs in: a test's process, as root. Each fails the test where it cannot.
 */
#ifndef TESTS_FREEZER_H
#define TESTS_FREEZER_H

#include <stdbool.h>
#include <stdint.h>

struct freezer {
	char path[128];
};

/* Whether this machine has what it takes. */
bool freezer_is_there(void);

/* Freezes PID, in a group with this NUMBER of the test. */
void freezer_freeze(struct freezer *freezer, uint32_t number, int32_t pid);
void freezer_thaw(const struct freezer *freezer);
/* Its process is gone. */
void freezer_done(const struct freezer *freezer);

#endif
