/* SPDX-License-Identifier: MIT */
/*
 * One worker process with all that belongs to it, from its start until it is reaped.
 *
 * Runs in: ward. It is in a slot of a worker, or of a standby, or (fenced) in the list of those that are
 * leaving; it moves between them and never comes back. Channel, event descriptor and sockets are its own,
 * and nothing of it is used again for the next one.
 *
 *	standby's slot ── adopted ──> worker's slot ── fenced ──> leaving ── reaped ──> freed
 *	start.c            standby.c                    slot.c      leaving.c
 *
 * Invariant: a process that is not in a slot can complete no task and commit no state.
 * Read next: slot.h.
 */
#ifndef GPUWARD_WARD_PROCESS_H
#define GPUWARD_WARD_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

#include <gpuward.h>

#include "common/channel.h"
#include "common/wire.h"
#include "linux/loop.h"
#include "linux/spawn.h"
#include "ward/report.h"

struct slot;
struct state_client;
struct ward;

/* What the deadline knows of the entry that the worker is at. */
struct watch {
	bool running;	    /* an entry was in flight at the last look */
	uint32_t head;	    /* its number */
	uint64_t since_ns;  /* when it began, as far as can be told */
	uint64_t looked_ns; /* the last look */
};

struct process {
	struct ward *ward;
	struct slot *slot; /* that it is in; of one that is leaving, that it was in */
	bool is_leaving;
	uint32_t incarnation;
	int32_t device; /* the pool's number, or -1 */
	struct spawned spawned;
	int socket;
	struct state_client *state; /* surviving memory */
	int channel_fd;
	int event_fd;
	const struct channel *channel; /* its header alone; NULL once it is fenced */
	struct loop_source socket_source;
	struct loop_source exit_source;

	/* Its start. */
	bool standby;	    /* it was started to wait for WIRE_PROMOTE */
	bool beside;	    /* another one of its slot was leaving then */
	bool has_context;   /* as it says */
	char pci[32];	    /* of its device; "" while it is not known */
	struct wire_up *up; /* what the host is to know of it once it is a worker; NULL: told */
	uint64_t primed_ns; /* since when it waits for its turn, or rests; 0: it does not */
	uint64_t ready_ns;  /* 0: not yet */
	uint32_t unsent;    /* what it must be told and was not yet; worker_link.c */
	struct gw_error start_error; /* why it is not ready; code 0: not known */

	/* Its work. */
	uint64_t promoted_ns; /* a standby became a worker; 0: it did not */
	struct watch watch;
	uint64_t pinged_ns; /* 0: no ping is out */

	/* Its end. */
	uint64_t noticed_ns; /* the first sign; 0: none */
	struct cause cause;
	bool died; /* `end` is known, although it is not gone yet */
	struct procref_end end;
	uint64_t spoke_ns[GW_SOURCES]; /* 0: it did not */
	uint64_t recovery;	       /* its number, or GW_UNKNOWN */

	/* While it is leaving. */
	struct process *next;
	struct loop_timer timer; /* SIGKILL should have worked by then */
	bool stuck;		 /* SIGKILL does not end it */
	bool reaped;		 /* nothing of it is left */
	uint64_t reap_until_ns;
};

/*
 * start.c: starts a process for SLOT. Never waits for it, not even for its exec. Returns 0 and
 * *RET_PROCESS, or a negative code; then nothing is left.
 */
int process_start(struct slot *slot, struct process **ret_process, struct gw_error *ret_error);

/* Takes note of a sign of its end from SOURCE. The first cause counts; WHY can be NULL. */
void process_note(struct process *process, uint32_t source, const struct cause *why);

/* From here on nothing that the process says counts; its control socket is still heard. */
void process_fence(struct process *process);

/* Reaps it and says how it ended. Its pidfd is readable; where somebody traces it, it cannot be reaped yet, and
 * process->reaped says so. */
void process_end(struct process *process, struct gw_exit *ret_exit);

/* What is known of its end before it is reaped. */
void process_tell(const struct process *process, struct gw_exit *ret_exit);

/* Lets go of everything. */
void process_free(struct process *process);

#endif
