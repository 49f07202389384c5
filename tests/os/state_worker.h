/* SPDX-License-Identifier: MIT */
/*
 * A worker for tests of surviving state: its one function, "state", does what its input lists, op by op, and
 * says of each how it went. A job can end or hold its process at any step of gw_state_*.
 *
 * Runs in: worker. A step is each call that gw_state_* make of the ward or of the driver: the test's program is
 * linked so that they pass through state_worker.c (--wrap). Read next: state_host.h.
 */
#ifndef TESTS_OS_STATE_WORKER_H
#define TESTS_OS_STATE_WORKER_H

#include <stdint.h>

#include <gpuward.h>

#define STATE_OPS 12

/* For `expect`: whatever it returns. */
#define STATE_ANY INT32_MIN

enum state_op_kind {
	OP_NONE = 0,
	OP_CREATE,     /* name, bytes, kind */
	OP_MAP,	       /* name, access; later ops on this name use its address */
	OP_SEAL,       /* name */
	OP_COMMIT,     /* name; "" = all */
	OP_ROLL_BACK,  /* name; "" = all */
	OP_UNMAP,      /* name */
	OP_DROP,       /* name */
	OP_LIST,       /* value: how many there are */
	OP_FILL,       /* name, seed */
	OP_CHECK,      /* name, seed; value: wrong words */
	OP_FILL_NEXT,  /* name: with its epoch + 1 as the seed */
	OP_CHECK_LAST, /* name: with its epoch as the seed, zeros at epoch 0; value: wrong words */
	OP_FAULT,      /* launches a kernel that faults */
	OP_WRITE,      /* name: a kernel writes to it, whether it may or not */
	OP_THREAD,     /* OP_LIST in another thread */
	OP_FORK,       /* a child that lives until the gate is opened */
	OP_GATE,       /* comes to the gate */
	OP_TAKE,       /* reserves `bytes` of addresses where state lies */
	OP_MPS,	       /* from here on the driver says that this is a client of MPS */
	OP_MANY,       /* creates and seals `seed` pieces NAME.0, NAME.1 and so on */
	OP_MAP_MANY,   /* maps them */
	OP_COUNT, /* name: adds 1 to its first word and commits, once in a task; value: the word */
};

struct state_op {
	uint32_t kind; /* enum state_op_kind */
	uint32_t what; /* enum gw_state_kind or gw_state_access */
	uint32_t seed;
	int32_t expect; /* the job ends where an op returns anything else */
	uint64_t bytes;
	char name[GW_NAME_MAX];
};

enum state_stop {
	STOP_NEVER = 0,
	STOP_KILL,   /* the process kills itself at step `stop_at` */
	STOP_HOLD,   /* it comes to the gate there */
	STOP_FAIL,   /* what is called there fails: the driver, the socket or the allocator */
	STOP_HALF,   /* it does half of a copy there, where that is one, and kills itself */
	STOP_SIGNAL, /* a signal handler commits and lists there */
};

struct state_job {
	struct state_op ops[STATE_OPS];
	uint32_t stop; /* enum state_stop */
	uint32_t stop_at;
	uint32_t
		after; /* the steps are counted from the answer to this request; 0: from the beginning */
	char gate[200];
};

struct state_done {
	int32_t result; /* of the call */
	uint32_t reserved;
	uint64_t value;
	uint64_t ns; /* that it took */
	struct gw_state_info info;
	struct gw_error error;
};

struct state_report {
	uint32_t done;	/* ops that ran */
	uint32_t steps; /* that were passed */
	int32_t pid;
	int32_t cuda;	       /* of the test's own calls of the driver */
	int32_t in_handler[2]; /* what commit and list returned in the signal handler */
	struct state_done ops[STATE_OPS];
};

/* In the environment: `prepare` maps the sealed piece of this name, or makes it (2 MiB, seed 3). */
#define STATE_PREPARE_ENV "GPUWARD_TEST_STATE_PREPARE"

/* main() of such a worker. */
int state_worker_run(void);

#endif
