/* SPDX-License-Identifier: MIT */
/*
 * The one place where a process of gpuward's own blocks: an epoll loop with descriptors and timers.
 *
 * Runs in: ward. One thread. Callbacks are short and never wait. Everything is level-triggered, so a
 * callback need not take all there is. When no descriptor is ready and no timer is due, the process
 * does not wake up at all: one timerfd stands for the earliest timer, and is off without one.
 *
 * Invariant: sources and timers belong to their owner, who takes them out before they vanish; the loop
 * allocates nothing. Events are taken one at a time:
 *
 *	a batch of events                     one at a time
 *	[A readable] [B readable]             A readable
 *	A's callback frees B                  A's callback frees B
 *	B's callback runs on freed memory     epoll has forgotten B with its descriptor
 */
#ifndef GPUWARD_LINUX_LOOP_H
#define GPUWARD_LINUX_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#include <gpuward.h>

struct loop_source {
	int fd; /* borrowed; -1: not in a loop */
	void (*ready)(struct loop_source *source, uint32_t events);
	void *owner;
};

struct loop_timer {
	uint64_t due_ns; /* GW_FOREVER: off */
	void (*due)(struct loop_timer *timer);
	void *owner;
	struct loop_timer *next;
};

struct loop {
	int epoll_fd;
	int timer_fd;
	uint64_t armed_ns; /* what the timerfd is set to */
	struct loop_timer *timers;
	struct loop_timer *next_timer; /* while timers run */
	bool ended;
};

/* Returns 0 or -errno. */
int loop_init(struct loop *loop);
void loop_done(struct loop *loop);

/* Watches FD for EVENTS (EPOLLIN, EPOLLOUT). READY and owner of SOURCE are set already. Returns 0 or
 * -errno. */
int loop_add(struct loop *loop, struct loop_source *source, int fd, uint32_t events);
int loop_change(struct loop *loop, struct loop_source *source, uint32_t events);

/* Watches the descriptor of FROM for TO instead. Cannot fail: it only changes what is there. */
void loop_move(struct loop *loop, struct loop_source *from, struct loop_source *to,
	       uint32_t events);

/* Takes SOURCE out, before its descriptor is closed. A source that is in no loop is fine. */
void loop_remove(struct loop *loop, struct loop_source *source);

/* Makes TIMER known, switched off. It stays known until loop_remove_timer() or loop_done(). */
void loop_add_timer(struct loop *loop, struct loop_timer *timer);

/* Forgets TIMER, before it vanishes. One that is not known is fine. */
void loop_remove_timer(struct loop *loop, struct loop_timer *timer);

/* Sets when TIMER is due (GW_FOREVER: off). It goes off once. */
void loop_set_timer(struct loop_timer *timer, uint64_t due_ns);

/* Runs callbacks until one calls loop_end(). Returns 0 or -errno. */
int loop_run(struct loop *loop);
void loop_end(struct loop *loop);

#endif
