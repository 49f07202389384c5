/* SPDX-License-Identifier: MIT */
/*
 * The ward: the process that starts a pool's workers, watches them, and says how each one ended.
 *
 * Runs in: ward. One thread, one loop; no callback waits. It never loads a GPU driver and holds no task
 * data: tasks go between host and worker alone. The path through the files:
 *
 *	ward.c        opening, the host's messages, signals, closing
 *	slot_table.c  what happens to a worker when (the table)
 *	slot.c        doing it; start.c starts a process; tally.c says when again; report.c how it ended
 *	standby.c     processes that wait to take a worker's place; turn.c: contexts one after the other
 *	leaving.c     processes that are fenced and not gone yet; recovery.c: what is told of it
 *	signs.c       the sources that tell of a fault; deadline.c, heartbeat.c: what takes too long
 *	outbox.c      messages to the host
 *	state.c       device memory that survives its worker
 *	life.c        the word that tells the host of the ward's own death
 *
 * Trust: the host is the same user's and gave the ward its life; a worker is an adversary.
 * Invariant: the ward ends only after every worker is gone, or was reported as one that cannot be ended.
 */
#ifndef GPUWARD_WARD_WARD_H
#define GPUWARD_WARD_WARD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>

#include <gpuward.h>

#include "common/pool_page.h"
#include "common/wire.h"
#include "linux/loop.h"
#include "ward/life.h"
#include "ward/signs.h"
#include "ward/slot.h"
#include "ward/state.h"

/* How long the host may take from starting the ward to its first message. */
#define WARD_OPEN_DEADLINE_NS 30000000000ULL

struct ward {
	struct loop loop;
	struct loop_source host_source;	     /* its socket */
	struct loop_source host_exit_source; /* its pidfd */
	struct loop_source signal_source;
	struct loop_timer open_timer;
	struct loop_timer look_timer;  /* deadline.c */
	struct loop_timer retry_timer; /* outbox.c */
	struct loop_timer heartbeat_timer;
	uint64_t heartbeat_due_ns; /* when it was to look next */
	struct signs signs;
	int host_socket;
	int host_pidfd;
	int signal_fd;
	int input_fd;
	uint64_t input_bytes; /* of the memory behind it */
	int page_fd;	      /* kept, so that others find the page: `gpuward pools` */
	int program_fd;	      /* -1: a command */
	struct pool_page *page;
	struct life life;
	struct wire_open open;
	struct state *state;  /* surviving memory */
	struct rlimit nofile; /* what the workers get; the ward itself takes all it may */
	const char **argv;    /* of the workers; points into open.command */
	char program[256];    /* for texts */
	struct slot *slots;   /* open.workers of them */
	uint32_t n_slots;     /* 0: not opened yet */
	struct slot *standbys;
	uint32_t n_standbys;
	struct process *leaving; /* a list */
	struct pool_page_report report;
	uint32_t depth; /* slot_happens() in slot_happens() */
	bool closing;
	bool host_gone;
	bool host_is_full; /* its socket takes no more: EPOLLOUT is watched */
	int exit_code;
};

/* Serves the host at the other end of HOST_SOCKET (which is consumed) until the pool ends. Returns the
 * exit code of the process. */
int ward_run(int host_socket);

/* Ends all workers, then the ward. */
void ward_close(struct ward *ward);

/* The host is dead or has let go: ends all workers at once, then the ward. */
void ward_lose_host(struct ward *ward);

/* After anything has happened to a slot: gives turns, and starts the standbys that are missing. */
void ward_settle(struct ward *ward);

/* To be called when a slot has come to rest: ends the loop if it was the last of a closing ward. */
void ward_check_end(struct ward *ward);

#endif
