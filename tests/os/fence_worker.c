/* SPDX-License-Identifier: MIT */
#include "fence_worker.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <gpuward.h>

#include "../gate.h"
#include "common/channel.h"
#include "common/fd.h"
#include "common/packet.h"
#include "common/state_wire.h"
#include "common/wire.h"
#include "gpu/cuda.h"

static struct cuda_door door;
static struct channel *channel; /* once it was seen */
static bool is_first;
static uint32_t n_completed; /* by the worker */
static bool is_ghost;
static char gate[200];

static int open_in_machine(const char *name, int flags)
{
	char path[300];

	(void)snprintf(path, sizeof(path), "%s/%s", getenv("GPUWARD_SOFT_DIR"), name);
	return open(path, flags | O_CLOEXEC, 0600);
}

/* Whether this process is to be held at STEP. */
static bool is_wanted(enum fence_step step)
{
	char text[300] = "";
	unsigned int wanted;
	int fd = open_in_machine(FENCE_FILE, O_RDONLY);

	if (fd < 0)
		return false;
	(void)!read(fd, text, sizeof(text) - 1);
	(void)close(fd);
	return sscanf(text, "%u %199s", &wanted, gate) == 2 && wanted == step;
}

/* The copy leaves no trace with the C library, and its parent is ended by the ward. */
static void come_to(enum fence_step step)
{
	if (is_ghost || !is_first || !is_wanted(step))
		return;
	if (syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL) == 0) {
		is_ghost = true;
		/* Nobody else ends it where its test fails. */
		(void)alarm(60);
		gate_wait(gate);
		return;
	}
	for (;;)
		(void)kill(getpid(), SIGSTOP);
}

/* ---- what a ghost does when it has done the worker's work ---- */

static void say(enum wire_type type, uint32_t bytes)
{
	static union wire_any message;

	memset(&message, 0, sizeof(message));
	wire_header_init(&message.header, type, bytes);
	if (type == WIRE_READY) {
		message.ready.n_functions = 1;
		(void)snprintf(message.ready.functions[0], GW_NAME_MAX, "ghost");
	} else if (type == WIRE_FAULT) {
		message.fault.cuda = 719;
		message.fault.source = GW_SOURCE_ERROR_LOG;
	} else if (type == WIRE_START_FAILED) {
		message.start_failed.error.code = -EINVAL;
	}
	(void)send(WIRE_WORKER_SOCKET, &message, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void say_all(void)
{
	say(WIRE_FAULT, sizeof(struct wire_fault));
	say(WIRE_READY, sizeof(struct wire_ready));
	say(WIRE_PRIMED, sizeof(struct wire_word));
	say(WIRE_CONTEXT, sizeof(struct wire_context));
	say(WIRE_NO_ROOM, sizeof(struct wire_word));
	say(WIRE_PONG, sizeof(struct wire_word));
	say(WIRE_START_FAILED, sizeof(struct wire_start_failed));
	say(WIRE_CLOSE, sizeof(struct wire_close));
	(void)send(WIRE_WORKER_SOCKET, "garbage", 7, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* The code of the ward's answer to REQUEST, or 0 if there is none. */
static int ask(struct state_request *request)
{
	struct pollfd fd = {.fd = WIRE_WORKER_STATE, .events = POLLIN};
	union state_any message;
	struct packet packet;
	int fds[STATE_FDS_MAX];

	request->number = 1000;
	if (packet_send(WIRE_WORKER_STATE, request, sizeof(*request), NULL, 0) < 0 ||
	    poll(&fd, 1, 2000) != 1 ||
	    packet_receive(WIRE_WORKER_STATE, &message, sizeof(message), fds, STATE_FDS_MAX,
			   &packet) <= 0)
		return 0;
	packet_close_fds(fds, STATE_FDS_MAX);
	return message.answer.error.code != 0 ? message.answer.error.code : 1;
}

static void ask_for_state(void)
{
	struct state_request commit = {.task = 99};
	struct state_request reserve = {.bytes = 4096,
					.copy_bytes = STATE_GRANULE,
					.kind = GW_STATE_MUTABLE,
					.name = "ghost"};
	int fd = open_in_machine(FENCE_ANSWERS, O_WRONLY | O_CREAT | O_TRUNC);
	int answers[2];

	state_wire_header(&commit.header, STATE_COMMIT, sizeof(commit));
	state_wire_header(&reserve.header, STATE_RESERVE, sizeof(reserve));
	answers[0] = ask(&commit);
	answers[1] = ask(&reserve);
	(void)dprintf(fd, "%d %d\n", answers[0], answers[1]);
	(void)close(fd);
	(void)send(WIRE_WORKER_STATE, "garbage", 7, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Everything that the host could take for a result; but for those of before the fence, which are the worker's. */
static void spoil_channel(void)
{
	uint64_t offset = channel->output_offset;

	for (uint32_t i = n_completed; i < CHANNEL_DEPTH; i++) {
		channel->results[i] = (struct channel_result){.output_bytes = 24};
		atomic_store(&channel->entries[i].state, (uint32_t)CHANNEL_CLAIMED);
	}
	if (n_completed > 0)
		offset += channel->entries[n_completed].output_offset;
	memset((uint8_t *)channel + offset, 0xee, 4096);
	channel_complete(channel, atomic_load(&channel->submitted) - 1, WIRE_WORKER_EVENT);
	channel_complete(channel, atomic_load(&channel->submitted), WIRE_WORKER_EVENT);
}

static _Noreturn void haunt(void)
{
	spoil_channel();
	say_all();
	ask_for_state();
	gate_wait(gate);
	_exit(0);
}

/* ---- the way of a task ---- */

void __real_channel_wait_entry(struct channel *shared, uint32_t number, const atomic_bool *stop,
			       struct spin *spin);
void __wrap_channel_wait_entry(struct channel *shared, uint32_t number, const atomic_bool *stop,
			       struct spin *spin);
bool __real_channel_claim(struct channel *shared, uint32_t number, struct channel_entry *ret_entry);
bool __wrap_channel_claim(struct channel *shared, uint32_t number, struct channel_entry *ret_entry);
void __real_channel_complete(struct channel *shared, uint32_t number, int event_fd);
void __wrap_channel_complete(struct channel *shared, uint32_t number, int event_fd);

/* A ghost serves what is there, and then does the rest. */
void __wrap_channel_wait_entry(struct channel *shared, uint32_t number, const atomic_bool *stop,
			       struct spin *spin)
{
	channel = shared;
	if (is_ghost && atomic_load(&shared->submitted) == number)
		haunt();
	__real_channel_wait_entry(shared, number, stop, spin);
}

bool __wrap_channel_claim(struct channel *shared, uint32_t number, struct channel_entry *ret_entry)
{
	come_to(FENCE_BEFORE_CLAIM);
	return __real_channel_claim(shared, number, ret_entry);
}

void __wrap_channel_complete(struct channel *shared, uint32_t number, int event_fd)
{
	come_to(FENCE_AFTER_RESULT);
	__real_channel_complete(shared, number, event_fd);
	n_completed += !is_ghost;
	come_to(FENCE_AFTER_COMPLETED);
}

/* Counts in surviving state. A ghost can do no more with the device than its parent's memory lets it. */
static int count(struct gw_call *call, uint64_t *ret_count)
{
	struct gw_state_info info = {.size = sizeof(info)};
	struct gw_error error = {0};
	uint64_t address = 0;
	int result = gw_state_map("counter", GW_STATE_WRITE, &info, &error);

	address = info.address;
	if (result == -ENOENT)
		result = gw_state_create("counter", 4096, GW_STATE_MUTABLE, &address, &error);
	if (result == 0)
		result = door.cuMemcpyDtoH_v2(ret_count, address, sizeof(*ret_count));
	++*ret_count;
	if (result == 0)
		result = door.cuMemcpyHtoD_v2(address, ret_count, sizeof(*ret_count));
	come_to(FENCE_BEFORE_COMMIT);
	if (result == 0)
		result = gw_state_commit("counter", &error);
	come_to(FENCE_AFTER_COMMIT);
	if (result != 0)
		(void)snprintf(call->message, sizeof(call->message), "%.100s", error.msg);
	/* The ghost's own calls are refused; it goes on as if they were not. */
	return is_ghost ? 0 : result;
}

static int run_count(struct gw_call *call)
{
	const struct fence_job *job = call->input;
	struct fence_answer *answer = call->output;
	int result = 0;

	come_to(FENCE_AFTER_CLAIM);
	*answer = (struct fence_answer){.number = fence_number(job->seed), .pid = getpid()};
	call->output_bytes = sizeof(*answer);
	come_to(FENCE_AFTER_OUTPUT);
	if (job->state)
		result = count(call, &answer->count);
	return result;
}

static int prepare(int device)
{
	struct gw_error error;

	(void)device;
	return cuda_open(&door, &error) < 0 ? 999 : 0;
}

int fence_worker_run(void)
{
	/* The emulated driver's threads are not there in a ghost, which must not wait for the device. */
	static const struct gw_function functions[] = {
		{.name = "count",
		 .run = run_count,
		 .prepare = prepare,
		 .flags = GW_FUNCTION_SYNCED},
		{.name = NULL},
	};
	const char *text = getenv(WIRE_WORKER_ENV);
	unsigned int incarnation = 1, standby = 1;

	/* The first process of the worker, and no standby. */
	is_first = text && sscanf(text, "%*u:%*u:%u:%*d:%*u:%*u:%u", &incarnation, &standby) == 2 &&
		   incarnation == 0 && standby == 0;
	return gw_worker_run(functions);
}
