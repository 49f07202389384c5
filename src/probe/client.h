/* SPDX-License-Identifier: MIT */
/*
 * Asks the probe, with a deadline for every question.
 *
 * Runs in: ward and command line, one thread per probe. Knows nothing of NVML. A question blocks until
 * its reply or the deadline, never longer: a probe that is late is killed and given up, and the caller
 * goes on. A program with an event loop, which may not block, asks with probe_send() and takes replies
 * with probe_take(): the deadline is then its own timer. A process that hangs in the driver may stay for as long as the driver hangs; nobody waits
 * for it. To go on asking, open another one.
 *
 * Invariant: a struct probe whose socket is -1 answers every question with the error that ended it.
 * Read next: probe_wire.h for the answers, client.c.
 */
#ifndef GPUWARD_PROBE_CLIENT_H
#define GPUWARD_PROBE_CLIENT_H

#include <gpuward.h>
#include <stdbool.h>

#include "linux/spawn.h"
#include "probe/probe_wire.h"

#define PROBE_DEADLINE_NS 5000000000ULL
#define PROBE_EVENTS_MAX  32U

/* An Xid event, or the end of events: then error.code is not 0. */
struct probe_event {
	struct gw_error error;
	struct probe_xid xid;
};

struct probe {
	struct spawned
		child; /* its pidfd is readable when it has ended, and -1 when it was reaped */
	int socket;    /* -1 when it was given up */
	uint64_t deadline_ns;
	uint64_t ticket; /* of the last question */
	bool hung_up;	 /* probe_take() met the end of the socket before that of the process */
	struct gw_error ended; /* why it was given up */
	/* Events that came while an answer was awaited. */
	struct probe_event events[PROBE_EVENTS_MAX];
	uint32_t event_first;
	uint32_t event_count;
	uint64_t events_dropped; /* by the probe or here: for want of room */
};

#define PROBE_NONE ((struct probe){.child = SPAWNED_NONE, .socket = -1})

/*
 * Starts a probe. PATH is the program, or NULL for where it is installed. DEADLINE_NS is for each
 * question; 0 = 5 s. Loads no driver yet, and does not wait for the process.
 * Returns 0, or -errno: the program is missing or cannot be started. An exec that fails all the same
 * shows at the first question. End it with probe_close().
 */
int probe_open(const char *path, uint64_t deadline_ns, struct probe *ret_probe,
	       struct gw_error *ret_error);

/*
 * Ends the probe. One that is healthy is gone and reaped on return, after at most 1 s; one that hangs in
 * the driver is left behind, killed. A struct that is all zero but for pidfd and socket of -1 is fine.
 */
void probe_close(struct probe *probe);

/* Reaps a probe that was given up, if it has ended meanwhile: for when its pidfd is readable. Returns
 * true when nothing is left of it. Never blocks. */
bool probe_reap(struct probe *probe);

/*
 * The questions. Each returns 0, or: GW_EDRIVER "driver does not answer (5 s)" with native
 * ETIMEDOUT, or the probe died (no more questions then); GW_EPROTOCOL, GW_EVERSION (the same); or what NVML says, with domain NVML:
 * -ENODEV, -EACCES, GW_EDRIVER and so on.
 */
int probe_ask_driver(struct probe *probe, struct probe_driver *ret, struct gw_error *ret_error);
int probe_ask_device(struct probe *probe, uint32_t device, struct probe_device *ret,
		     struct gw_error *ret_error);
int probe_ask_memory(struct probe *probe, uint32_t device, struct probe_memory *ret,
		     struct gw_error *ret_error);
int probe_ask_processes(struct probe *probe, uint32_t device, struct probe_processes *ret,
			struct gw_error *ret_error);
int probe_ask_recovery(struct probe *probe, uint32_t device, enum probe_action *ret,
		       struct gw_error *ret_error);

/* Asks for Xid events. They arrive on probe->socket: watch it, then call probe_next_event(). */
int probe_watch(struct probe *probe, struct gw_error *ret_error);

/*
 * Takes the next event without blocking. Returns 1 and *RET_EVENT, 0 when there is none now, or a
 * negative code when the probe has died. Call it until it returns 0, and also after a question: events
 * that came meanwhile wait in the struct, not in the socket.
 */
int probe_next_event(struct probe *probe, struct probe_event *ret_event,
		     struct gw_error *ret_error);

/*
 * The way that never blocks; not to be mixed with the questions above.
 *
 * probe_send() asks: KIND and DEVICE as in struct probe_request. Returns 0; its reply has the number
 * probe->ticket. Or a code when the probe was given up before, or its socket takes no more.
 *
 * probe_take() takes the next message: a reply (the ticket says to what; error.code is NVML's answer) or an
 * event (kind PROBE_XID). Returns 1 and *RET_REPLY; 0 when there is none now; or the code of giving up,
 * once all messages are taken: the probe died or broke the rules. If it returns 0 with hung_up set, the
 * socket has ended but the process is not gone yet: watch its pidfd instead, then call again.
 *
 * probe_give_up() kills the probe and closes the socket, with REASON as what later questions get.
 * probe_late() is that for a probe that has not answered in DEADLINE_NS. It returns its code.
 */
int probe_send(struct probe *probe, enum probe_kind kind, uint32_t device,
	       struct gw_error *ret_error);
int probe_take(struct probe *probe, struct probe_reply *ret_reply, struct gw_error *ret_error);
void probe_give_up(struct probe *probe, const struct gw_error *reason);
int probe_late(struct probe *probe, uint64_t deadline_ns, struct gw_error *ret_error);

#endif
