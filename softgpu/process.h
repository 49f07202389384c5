/* SPDX-License-Identifier: MIT */
/*
 * All that the emulated libcuda.so.1 knows in one process, and the door of every call.
 *
 * Runs in: a process that uses CUDA, in any of its threads and in the stream threads (engine.h).
 * Invariant: everything here is guarded by `lock`, which is held between process_enter() and
 * process_leave() and given up only while waiting for `changed`. No call holds it while it hangs on
 * purpose, and a fork waits for it, so that a child never inherits a transaction that is open.
 * Once `sticky` is set it stays, for all contexts: only a new process helps.
 * Read next: context.h, engine.h, memory.h.
 */
#ifndef SOFTGPU_PROCESS_H
#define SOFTGPU_PROCESS_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

#include "client.h"
#include "gpu/cuda_abi.h"

struct cuda_context;

/* What a call needs. */
enum process_need {
	NEED_NOTHING = 0,
	NEED_INIT = 1,
	NEED_CONTEXT = 2,   /* a current context, on a device that is there */
	NEED_EVEN_DEAD = 4, /* works after a fault too */
};

struct process {
	pthread_mutex_t lock;
	pthread_cond_t changed; /* a stream made progress, or a fault */
	pid_t pid;		/* that called cuInit; 0 before */
	int sticky;		/* CUresult of the fault, or 0 */
	bool sticky_is_known;	/* a call has returned it */
	bool stopping;		/* a fault happened: no more work runs, `sticky` follows */
	struct machine machine;
	struct table table;
	struct client client;
	int devices; /* that CUDA_VISIBLE_DEVICES leaves */
	uint32_t device_index[SOFT_DEVICES_MAX];
	struct cuda_context *contexts;
};

extern struct process process;

/* Takes the lock and checks NEED. Returns CUDA_SUCCESS, or the result that the call must give. */
int process_enter(int need);

/* Gives the lock back and tells the log callbacks when RESULT is a failure. Returns RESULT. */
int process_leave(const char *function, int result);

/* A transaction of the table. After 0 call table_close(). Returns a CUresult. */
int process_open_table(void);
int process_open_table_as_is(void);

/* A CUresult for a negative code of the table. */
int process_result(int code);

/* The machine's number of a device of this process. The device must exist. */
uint32_t process_device(int device);

/* Waits MILLISECONDS with the lock given up, if delays are to be as measured. */
void process_delay(unsigned int milliseconds);

/* The same for what one process of the machine does at a time: making a context. */
void process_delay_in_turn(unsigned int milliseconds);

/* With measured delays: whether another process has CUDA up, which makes cuInit quicker. */
bool process_others_live(void);

/* Ends the process as the real driver's SIGSEGV does. WHAT says what the program did wrong. */
_Noreturn void process_crash(const char *what);

/* Tells all registered log callbacks (errors.c). The lock is not held. */
void process_log(int level, const char *text);

#endif
