/* SPDX-License-Identifier: MIT */
/*
 * The messages between host, ward and worker. Each is one datagram of a SOCK_SEQPACKET socket: a fixed
 * struct that begins with struct wire_header, with descriptors beside it where it says so.
 *
 * Runs in: host, ward, worker. A receiver checks size, magic, type and every length in the message
 * with the functions below before it uses anything, and closes descriptors that it did not ask for.
 * These messages are rare (start, end, fault): tasks never travel this way. Read next: wire.c.
 */
#ifndef GPUWARD_COMMON_WIRE_H
#define GPUWARD_COMMON_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gpuward.h>

#define WIRE_MAGIC	 0x77726477U /* "wdrw" */
#define WIRE_LAYOUT	 3U
#define WIRE_VERSION_MAX 16U
#define WIRE_DEVICES_MAX GW_WORKERS_MAX
#define WIRE_COMMAND_MAX 16384U
#define WIRE_FDS_MAX	 4U

enum wire_type {
	/* host -> ward */
	WIRE_OPEN =
		1, /* fds: input memory, pool page, host pidfd, program (only without a command) */
	WIRE_KICK = 2, /* tasks with deadlines are under way */
	WIRE_KILL = 3, /* kill one worker: its running task was cancelled */
	WIRE_CLOSE = 4,
	/* ward -> host */
	WIRE_UP = 16, /* a worker is ready; fds: channel, event descriptor, the worker's pidfd */
	WIRE_GONE = 17,
	WIRE_FAILED = 18,
	/* worker -> ward */
	WIRE_READY = 32,
	WIRE_FAULT = 33,
	WIRE_START_FAILED = 34,
	WIRE_PRIMED = 35,  /* the driver is initialised; waits for its turn */
	WIRE_CONTEXT = 36, /* the context is up: the next process may make its own */
	WIRE_NO_ROOM = 37, /* no memory for a context: primed again */
	WIRE_PONG = 38,
	/* ward -> worker */
	WIRE_STOP = 48,
	WIRE_WARM = 49,	   /* it is this process's turn: make the context, prepare the functions */
	WIRE_PROMOTE = 50, /* this process is a worker from here on: serve */
	WIRE_PING = 51,
	WIRE_STATE = 52, /* there is news of surviving state: ask for it */
};

struct wire_header {
	uint32_t magic;
	uint32_t type;			/* enum wire_type */
	uint32_t bytes;			/* of the whole message */
	uint32_t layout;		/* WIRE_LAYOUT */
	char version[WIRE_VERSION_MAX]; /* gw_version() of the sender */
};

struct wire_open {
	struct wire_header header;
	uint32_t n_devices; /* 0 = no GPU */
	int32_t devices[WIRE_DEVICES_MAX];
	uint32_t workers; /* in all: slot i serves devices[i % n_devices] */
	uint32_t max_start_failures;
	uint32_t spin_ns;
	uint32_t standby;  /* enum gw_standby */
	uint32_t standbys; /* in all: standby i serves devices[i % n_devices] */
	uint32_t detect;   /* enum gw_detect, the sources to use */
	uint32_t flags;	   /* enum gw_pool_flags */
	uint32_t max_quick_deaths;
	uint32_t connections; /* 0: as the environment has it */
	uint32_t
		command_count; /* strings in `command`; 0 = run the program that the descriptor names */
	uint32_t command_bytes;
	uint64_t output_bytes; /* output room of each channel */
	uint64_t start_deadline_ns;
	uint64_t stop_deadline_ns;
	uint64_t restart_min_ns;
	uint64_t restart_max_ns;
	uint64_t heartbeat_ns;		/* 0: none */
	uint64_t max_state_bytes;	/* 0: what the device has */
	char state_name[GW_NAME_MAX];	/* "": state ends with the pool */
	char command[WIRE_COMMAND_MAX]; /* strings, each ended by a zero byte */
};

struct wire_kick {
	struct wire_header header;
};

struct wire_kill {
	struct wire_header header;
	uint32_t slot;
	uint32_t incarnation;
	uint32_t
		reason; /* the enum gw_end to report: GW_END_STOPPED, GW_END_PROTOCOL or GW_END_START */
	int32_t error; /* GW_END_START: the errno for which the host cannot use a worker that is ready */
};

struct wire_close {
	struct wire_header header;
};

struct wire_up {
	struct wire_header header;
	uint32_t slot;
	uint32_t incarnation;
	int32_t pid;
	int32_t device;
	uint64_t output_bytes;
	uint64_t started_ns;
	uint64_t ready_ns;
	uint32_t n_functions;
	uint32_t reserved;
	char functions[GW_FUNCTIONS_MAX][GW_NAME_MAX];
};

struct wire_gone {
	struct wire_header header;
	uint32_t slot;
	uint32_t incarnation;
	uint32_t was_ready; /* 1: a WIRE_UP for this incarnation was sent before */
	uint32_t reserved;
	struct gw_exit exit;
};

/* A slot is given up: it is not started again. */
struct wire_failed {
	struct wire_header header;
	uint32_t slot;
	uint32_t whole_pool; /* 1: all slots are, and the ward ends */
	struct gw_error error;
};

struct wire_ready {
	struct wire_header header;
	uint32_t n_functions;
	uint32_t reserved;
	char functions[GW_FUNCTIONS_MAX][GW_NAME_MAX];
};

/* The worker saw a CUDA result that poisons it. If a function returned it, it leaves with _exit right after
 * this; if the driver's log named it, the function may not know yet. */
struct wire_fault {
	struct wire_header header;
	int32_t cuda;
	uint32_t source; /* GW_SOURCE_RESULT or GW_SOURCE_ERROR_LOG */
	uint64_t task;
	uint64_t noticed_ns;
};

struct wire_start_failed {
	struct wire_header header;
	struct gw_error error;
};

/* A message that says all by its type. */
struct wire_word {
	struct wire_header header;
};

/* Where the device is, for Xids that name it. */
struct wire_context {
	struct wire_header header;
	char pci[32];	   /* as cuDeviceGetPCIBusId writes it; "" without a device */
	char uuid[48];	   /* as nvidia-smi writes it; "" where the driver tells none */
	int32_t error_log; /* 0: the driver's error log is heard, or not wanted; else why not */
	uint32_t reserved;
};

/* Room for any message. */
union wire_any {
	struct wire_header header;
	struct wire_open open;
	struct wire_kick kick;
	struct wire_kill kill;
	struct wire_close close;
	struct wire_up up;
	struct wire_gone gone;
	struct wire_failed failed;
	struct wire_ready ready;
	struct wire_fault fault;
	struct wire_start_failed start_failed;
	struct wire_word word;
	struct wire_context context;
};

/* What is known of a worker when it is started: the value of GPUWARD_WORKER and the descriptors. */
/* "LAYOUT:SLOT:INCARNATION:DEVICE:SPIN_NS:STOP_NS:STANDBY:DETECT:FLAGS"; STANDBY is 1 for a process that
 * waits for WIRE_PROMOTE once it is ready */
#define WIRE_WORKER_ENV "GPUWARD_WORKER"
enum wire_worker_fd {
	WIRE_WORKER_SOCKET = 3,
	WIRE_WORKER_CHANNEL = 4,
	WIRE_WORKER_INPUT = 5,
	WIRE_WORKER_EVENT = 6, /* the host's event descriptor for this channel */
	WIRE_WORKER_HOST =
		7, /* pidfd of the host: a worker ends with it even if the ward is stopped */
	WIRE_WORKER_STATE =
		8, /* surviving memory: its own protocol, apart from the control messages */
};

/* The ward's only inherited descriptor. */
#define WIRE_WARD_SOCKET 3

/* Fills in the header of a message of TYPE with BYTES bytes. */
void wire_header_init(struct wire_header *header, enum wire_type type, uint32_t bytes);

/*
 * Sends MESSAGE with N_FDS descriptors (which stay the caller's). Never blocks on a non-blocking
 * socket. Returns 0 or -errno (-EAGAIN: full, -EPIPE: the peer is gone).
 */
int wire_send(int socket, const void *message, const int *fds, size_t n_fds);

/*
 * Receives one message. Descriptors are close-on-exec; RET_FDS has room for WIRE_FDS_MAX, unused ones
 * are -1. Returns the number of bytes, 0 at the end of the stream, or -errno; GW_EPROTOCOL for a
 * message that is malformed, GW_EVERSION for one of another version (the header's version text is
 * then valid and ends with a zero byte). -EMFILE: the message is good, but this process has no room for
 * its descriptors. -ENOMEM or -ENOBUFS: nothing was taken, and it can be tried again.
 * Descriptors of a message that is not returned as good are closed.
 */
int wire_receive(int socket, union wire_any *ret_message, int ret_fds[WIRE_FDS_MAX]);

/*
 * Checks that BYTES bytes at MESSAGE are one whole message with all its lengths in range, its strings
 * ended and its enums known. Returns 0, GW_EPROTOCOL or GW_EVERSION. Pure: this is what the fuzzer
 * runs.
 */
int wire_check(const union wire_any *message, size_t bytes);

#endif
