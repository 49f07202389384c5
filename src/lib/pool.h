/* SPDX-License-Identifier: MIT */
/*
 * The host's side of a pool: the structures that the files of this folder share.
 *
 * Runs in: the host, in whatever threads call the library; everything here is under `lock`, except
 * where a comment says otherwise. The path of a task through the files:
 *
 *	task.c      made, filled, submitted               NEW -> PENDING
 *	dispatch.c  handed to a worker's channel          PENDING -> IN_FLIGHT
 *	collect.c   its result taken in                   IN_FLIGHT -> ENDED
 *	wait.c      whoever waits for it wakes up
 *	news.c      a worker came or went, by the ward's word; its tasks go back to PENDING or end
 *	pool.c      opening and closing; ward_start.c starts the ward
 *	orders.c    what the host tells the ward
 *
 * Ownership: a task belongs to the host until gw_task_free(); one that is freed while a worker still
 * has it stays as an orphan (`freed`) until its entry is done. A link (the channel of one incarnation)
 * lives as long as its slot uses it or a task's output lies in it.
 */
#ifndef GPUWARD_LIB_POOL_H
#define GPUWARD_LIB_POOL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <gpuward.h>

#include "common/channel.h"
#include "common/pool_page.h"
#include "common/wire.h"
#include "lib/arena.h"
#include "lib/list.h"
#include "linux/spawn.h"

/* Names that workers of a pool have announced, at the most. */
#define POOL_NAMES_MAX (2 * GW_FUNCTIONS_MAX)

/* Workers that were fenced and may not be gone. */
#define POOL_LEAVING_MAX 16U

enum task_state {
	TASK_NEW,
	TASK_PENDING,
	TASK_IN_FLIGHT,
	TASK_ENDED,
};

/* The channel of one incarnation of a worker. */
struct link {
	uint32_t references;
	struct channel_map map;
	struct arena outputs;
	int event_fd;
	int16_t function_of_name[POOL_NAMES_MAX]; /* the worker's index of each name, or -1 */
};

struct gw_task {
	struct list_node live;	/* in pool->live */
	struct list_node queue; /* in a pending list, or in pool->ended */
	struct gw_pool *pool;
	uint64_t number;
	enum task_state state;
	bool freed;	       /* an orphan: nobody will ask for its outcome */
	bool cancelled;	       /* its worker is being killed for it */
	uint32_t name;	       /* index in pool->names */
	int32_t device;	       /* GW_ANY_DEVICE, or the only one that may run it */
	uint32_t device_index; /* in pool->devices, with a device */
	uint64_t deadline_ns;
	uint32_t max_attempts;
	uint64_t input_offset;
	uint64_t input_bytes;
	uint64_t output_capacity_bytes;
	uint32_t slot;	   /* IN_FLIGHT: whose channel */
	uint32_t entry;	   /* IN_FLIGHT: its number there */
	struct link *link; /* IN_FLIGHT or ENDED with an output: where it lies */
	uint64_t output_offset;
	struct gw_outcome outcome;
	struct gw_exit *attempts; /* outcome.attempts of them; NULL: there was no memory */
	void *user;
};

/* One worker, as the host sees it. */
struct slot {
	struct link *link; /* NULL while no process is ready */
	uint32_t incarnation;
	int32_t pid;
	int pidfd; /* to wait for its end when the ward can no longer tell of it */
	int32_t device;
	uint32_t submitted;	 /* entries handed over, running number */
	uint32_t taken;		 /* entries whose end was taken in */
	uint32_t in_flight;	 /* entries between the two that still hold a task */
	bool failed;		 /* given up by the ward */
	struct gw_error failure; /* failed: why */
	bool distrusted;	 /* broke the rules: its channel is not read any more */
	bool watched;		 /* the leader sleeps on its channel */
	struct gw_task *tasks[CHANNEL_DEPTH];
};

struct gw_pool {
	pthread_mutex_t lock;
	pthread_cond_t changed; /* followers in wait.c sleep here */
	bool leader;		/* a thread sleeps for all, in wait.c */
	bool leader_polls;	/* it sleeps in poll(): there is no futex_waitv here */
	uint32_t followers;	/* threads that sleep on `changed` */
	_Atomic uint32_t kick;	/* moved when the leader has to look again */
	struct spin spin;	/* the leader's */
	bool polled;		/* the host uses gw_pool_fd() */
	bool dispatching;	/* the thread that polls takes in news itself */
	uint8_t *owner;		/* a page that reads 1 here and 0 in a forked child */

	struct gw_pool_options options; /* defaults filled in */
	int32_t *devices;		/* options.devices, copied */
	uint32_t n_slots;
	struct slot *slots;

	int ward_socket;
	int ward_pid;
	int ward_pidfd;
	struct spawned ward_program; /* until the pool is open: whether the ward's program ran */
	bool ward_lost;
	int leaving_pidfds[POOL_LEAVING_MAX]; /* of workers that were fenced last; -1: none */
	uint64_t n_left;
	bool kick_unsent; /* the ward does not know yet how soon a deadline is */
	bool starved;	  /* a task was not handed over for want of memory: tried again soon */
	bool crowded;	  /* one was not for want of room for its output: tried again at a free */
	uint32_t seen_events; /* of page->ward_events */
	struct pool_page *page;
	struct gw_error failure; /* code != 0: why no worker can be had any more */

	uint8_t *input; /* writable here, read-only in every worker */
	uint64_t input_map_bytes;
	struct arena inputs;
	int input_fd;
	int page_fd;

	int epoll_fd;
	int news_fd; /* in epoll_fd: a thread of the host took in ends that another one polls for */

	char names[POOL_NAMES_MAX][GW_NAME_MAX];
	uint32_t n_names;

	struct list live;     /* every task that is not destroyed */
	struct list *pending; /* one per device, then one for any device */
	uint32_t n_pending_lists;
	struct list ended; /* not yet given out by gw_pool_next() or gw_task_wait() */
	uint32_t n_ended;

	uint64_t next_number;
	uint64_t tasks_under_way; /* PENDING or IN_FLIGHT */
	uint64_t tasks_done;
	uint64_t attempts_failed;
	uint64_t tasks_poisoned;
	uint64_t input_bytes;
	uint64_t output_bytes;
	struct gw_exit last_exit;
};

/* 0, or GW_EFORKED in a forked child. Needs no lock: it may be held by a thread that the child lacks. */
int pool_check_owner(const struct gw_pool *pool, struct gw_error *ret_error);

/* 0, GW_EWARDLOST or GW_EPOOLFAILED with the reason. */
int pool_check_alive(const struct gw_pool *pool, struct gw_error *ret_error);

/* options.c: puts the defaults in. */
void options_fill(struct gw_pool_options *options);
/* options.c: 0, or -EINVAL, or what pinned_check() says. */
int options_check(const struct gw_pool_options *options, struct gw_error *ret_error);

/* ward_start.c: finds, starts and greets the ward. */
int ward_start(struct gw_pool *pool, struct gw_error *ret_error);
/* ward_start.c: says why the pool could not be opened, if that is because the ward has ended, and returns
 * that code. Otherwise CODE, and *RET_ERROR stays. */
int ward_explain(struct gw_pool *pool, int code, struct gw_error *ret_error);

/* orders.c: ends a worker; PIDFD is its own or -1. The reason, the slot and so on are set in KILL. */
void orders_kill(struct gw_pool *pool, struct wire_kill kill, int pidfd);
/* Workers are to end in order, then the ward. */
void orders_close(struct gw_pool *pool);
/* A deadline is due before the ward's next look. */
void orders_kick(struct gw_pool *pool);

/* news.c: takes in what the ward has said. */
void news_take(struct gw_pool *pool);

/* news.c: ends everything that is under way as GW_LOST. */
void news_lose_all(struct gw_pool *pool);

/* state.c: fills in what surviving state takes. */
void state_stat(const struct gw_pool *pool, struct gw_pool_stat *stat);

/* link.c */
/* Takes EVENT_FD. Returns 0 or a negative code. */
int link_new_take(struct gw_pool *pool, int channel_fd, int event_fd, const struct wire_up *up,
		  struct link **ret_link);
void link_release(struct link *link);

/* dispatch.c: hands pending tasks to workers with room, and evens out their queues. */
void dispatch_all(struct gw_pool *pool);
void dispatch_enqueue(struct gw_task *task);
void dispatch_enqueue_front(struct gw_task *task);
/* 0, or GW_EPOOLFAILED with the reason: every worker that could run the task was given up. */
int dispatch_check(const struct gw_task *task, struct gw_error *ret_error);
/* The same for all tasks of pending list NUMBER. Returns the last such worker, or NULL: there is hope. */
const struct slot *dispatch_hopeless(const struct gw_pool *pool, uint32_t number);
/* Takes a task that is IN_FLIGHT back, if its worker has not begun it. */
bool dispatch_withdraw(struct gw_task *task);

/* collect.c: takes in every result that workers have published. Returns whether there was any. */
bool collect_all(struct gw_pool *pool);
/* What a thread that is about to sleep compares with: true when a worker has published more. */
bool collect_has_news(const struct gw_pool *pool);

/* task.c: ends a task for the host, or destroys it if it is an orphan. */
void task_end(struct gw_task *task, enum gw_outcome_kind kind);
void task_release_output(struct gw_task *task);
void task_destroy(struct gw_task *task);

/* wait.c: takes in all news without blocking: ward, results, dispatch. */
void wait_step(struct gw_pool *pool);
/* Sleeps until something changed or DEADLINE_NS. The lock is given up meanwhile. */
void wait_change(struct gw_pool *pool, uint64_t deadline_ns);
/* Makes gw_pool_fd()'s descriptor speak: there is something to do. */
void wait_look_again(struct gw_pool *pool);
/* Gets the leader out of its sleep, if there is one. */
void wait_kick_leader(struct gw_pool *pool);
/* The deadline of a wait of TIMEOUT_NS from now. */
uint64_t wait_deadline(uint64_t timeout_ns);
/* Makes gw_pool_fd()'s descriptor speak again after news were taken in. */
void wait_arm_polling(struct gw_pool *pool);

#endif
