/* SPDX-License-Identifier: MIT */
/*
 * A host as the tests of the ward need it: it starts a ward with one behaviour of tests/os/ward_worker.c and
 * reads what the ward says.
 *
 * Runs in: the test, or a child of it that is to be killed. Waits are bounded and fail the test.
 * Invariant: host_check_world() proves that no process and no descriptor is left. Read next: ward.c.
 */
#ifndef GPUWARD_TESTS_WARD_HOST_H
#define GPUWARD_TESTS_WARD_HOST_H

#include <stdbool.h>
#include <stdint.h>

#include "common/channel.h"
#include "common/pool_page.h"
#include "common/wire.h"
#include "linux/spawn.h"

#define MILLISECOND 1000000ULL
#define SECOND	    1000000000ULL

struct host {
	int socket;
	struct spawned ward;
	struct pool_page *page;
	struct wire_open open;	/* may be changed between host_init() and host_start() */
	const char **ward_argv; /* NULL: the ward itself; else a program that runs it */
	int program_fd;		/* for a pool that runs the host's own program */
	union wire_any message; /* the last one */
	int fds[WIRE_FDS_MAX];
};

/* Fills in what a pool of one worker of this behaviour needs. */
void host_init(struct host *host, const char *behaviour);

/* A command of another kind. */
void host_set_command(struct host *host, const char *program, const char *argument);

/* Starts the ward and greets it. Returns 0 or a negative code. */
int host_start(struct host *host);

/* The next message into host->message, its descriptors into host->fds. Returns its type; 0 at the end of
 * the stream; or a negative code, -ETIMEDOUT after 15 s. */
int host_receive(struct host *host);

/* Sends a message that consists of a header alone. */
void host_send(struct host *host, enum wire_type type);

/* Closes the descriptors of the last message. */
void host_drop_fds(struct host *host);

/* Waits for the ward's end: its exit code, or minus its signal, or -1000. */
int host_wait_ward(struct host *host);

/* Lets go of everything. */
void host_done(struct host *host);

/* Before and after each test, for cmocka. */
int host_remember_world(void **state);
int host_check_world(void **state);

#endif
