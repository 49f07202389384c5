/* SPDX-License-Identifier: MIT */
/*
 * Starts a worker process, with everything that belongs to it: channel, event descriptor, sockets,
 * environment.
 *
 * Runs in: ward; never waits for the new process, not even for its exec. Any limit of the system that is
 * met here is a failed start with a text, and leaves nothing behind. Read next: slot.c.
 */
#include "ward/process.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/err.h"
#include "common/fd.h"
#include "ward/env.h"
#include "ward/slot.h"
#include "ward/ward.h"
#include "ward/worker_link.h"

static int make_channel(struct process *process, struct gw_error *ret_error)
{
	const struct wire_open *open = &process->ward->open;
	void *header;
	int fd = channel_new(open->output_bytes);

	if (fd < 0)
		return err_os(ret_error, -fd,
			      "cannot make %llu bytes of shared memory for worker %u",
			      (unsigned long long)open->output_bytes, process->slot->number);
	process->channel_fd = fd;
	/* The ward only ever reads two words of it. */
	header = mmap(NULL, sizeof(struct channel), PROT_READ, MAP_SHARED, fd, 0);
	if (header == MAP_FAILED)
		return err_os(ret_error, errno, "cannot map the channel of worker %u",
			      process->slot->number);
	process->channel = header;
	process->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (process->event_fd < 0)
		return err_os(ret_error, errno, "cannot make an event descriptor for worker %u",
			      process->slot->number);
	return 0;
}

/* SOCKETS: the worker's ends, for control and for state. */
static int run_program(struct process *process, const int sockets[2], struct gw_error *ret_error)
{
	const struct ward *ward = process->ward;
	const struct env_worker worker = {.slot = process->slot->number,
					  .incarnation = process->incarnation,
					  .device = process->device,
					  .spin_ns = ward->open.spin_ns,
					  .stop_deadline_ns = ward->open.stop_deadline_ns,
					  .standby = process->standby,
					  .detect = ward->open.detect,
					  .flags = ward->open.flags,
					  .connections = ward->open.connections};
	const int fds[] = {sockets[0],	      process->channel_fd, ward->input_fd,
			   process->event_fd, ward->host_pidfd,	   sockets[1]};
	cleanup_free const char **environment = NULL;
	struct spawn spec = {.program = ward->program_fd < 0 ? ward->argv[0] : NULL,
			     .program_fd = ward->program_fd,
			     .argv = ward->argv,
			     .fds = fds,
			     .n_fds = sizeof(fds) / sizeof(fds[0]),
			     .nofile = &ward->nofile,
			     .flags = SPAWN_PDEATHSIG | SPAWN_SEARCH_PATH};
	int result = env_new((const char *const *)environ, &worker, &environment, ret_error);

	if (result < 0)
		return result;
	spec.envp = environment;
	return spawn(&spec, &process->spawned, ret_error);
}

static int make_socket(const struct process *process, int *ret_own, int *ret_worker,
		       struct gw_error *ret_error)
{
	int sockets[2];
	int result;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0)
		return err_os(ret_error, errno, "cannot make a socket for worker %u",
			      process->slot->number);
	*ret_own = sockets[0];
	*ret_worker = sockets[1];
	result = fd_set_nonblocking(sockets[0]);
	if (result < 0)
		return err_os(ret_error, -result, "cannot set up the socket of worker %u",
			      process->slot->number);
	return 0;
}

static void on_state_broken(void *owner)
{
	static const struct cause garbage = {
		.end = GW_END_PROTOCOL,
		.source = GW_SOURCE_PROTOCOL,
		.what = "it sent a message about state that breaks the rules"};
	struct process *process = owner;

	slot_happens(process->slot, EVENT_PROTOCOL_ERROR, &garbage);
}

static int on_state_news(void *owner)
{
	const struct process *process = owner;
	struct wire_word word;

	wire_header_init(&word.header, WIRE_STATE, sizeof(word));
	return wire_send(process->socket, &word, NULL, 0);
}

static int join_state(struct process *process, int *socket, struct gw_error *ret_error)
{
	const struct state_who who = {.device = process->device,
				      .pid = process->spawned.process.pid,
				      .process = &process->spawned.process,
				      .broken = on_state_broken,
				      .news = on_state_news,
				      .owner = process};
	int result = state_client_new(process->ward->state, &who, socket, &process->state);

	return result < 0 ? err_os(ret_error, -result, "cannot serve the state of worker %u",
				   process->slot->number)
			  : 0;
}

/* The worker's ends of the sockets are closed here, so that its death is an end of file. */
static int connect_and_run(struct process *process, struct gw_error *ret_error)
{
	int sockets[2] = {-1, -1};
	int state_socket = -1;
	int result = make_socket(process, &process->socket, &sockets[0], ret_error);

	if (result == 0)
		result = make_socket(process, &state_socket, &sockets[1], ret_error);
	if (result == 0)
		result = run_program(process, sockets, ret_error);
	if (result == 0)
		result = join_state(process, &state_socket, ret_error);
	fd_close(state_socket);
	fd_close(sockets[0]);
	fd_close(sockets[1]);
	return result;
}

static int watch(struct process *process, struct gw_error *ret_error)
{
	struct loop *loop = &process->ward->loop;
	int result = loop_add(loop, &process->exit_source, process->spawned.process.pidfd, EPOLLIN);

	if (result == 0)
		result = loop_add(loop, &process->socket_source, process->socket, EPOLLIN);
	if (result < 0)
		return err_os(ret_error, -result, "cannot watch worker %u", process->slot->number);
	return 0;
}

/* A process that cannot be watched must not be left. It has not run for long, and waiting is bounded
 * by the kernel's own work. */
static void undo_process(struct process *process)
{
	struct procref_end end;

	if (process->spawned.process.pidfd < 0)
		return;
	(void)procref_signal(&process->spawned.process, SIGKILL);
	(void)procref_wait(&process->spawned.process, now_ns() + SLOT_GRACE_NS, &end);
}

/*
 * The process has ended. What it said before lies in the socket, and tells why:
 *
 *	epoll: pidfd readable, and the socket too, in any order
 *	settled at once:      "exited with code 1"
 *	socket read first:    "died of CUDA error 700"
 */
static void on_exit_ready(struct loop_source *source, uint32_t events)
{
	struct process *process = source->owner;

	(void)events;
	worker_link_drain(process);
	/* What it said may have put its successor in the slot; it is leaving then, and ends there. */
	if (!process->is_leaving)
		slot_happens(process->slot, EVENT_EXITED, NULL);
}

static void on_socket_ready(struct loop_source *source, uint32_t events)
{
	(void)events;
	(void)worker_link_read(source->owner);
}

static struct process *process_new(struct slot *slot)
{
	struct process *process = calloc(1, sizeof(*process));

	if (!process)
		return NULL;
	*process = (struct process){.ward = slot->ward,
				    .slot = slot,
				    .incarnation = slot->n_started,
				    .device = slot->device,
				    .standby = slot->is_standby,
				    .recovery = GW_UNKNOWN,
				    .spawned = SPAWNED_NONE,
				    .socket = -1,
				    .channel_fd = -1,
				    .event_fd = -1};
	process->socket_source =
		(struct loop_source){.fd = -1, .ready = on_socket_ready, .owner = process};
	process->exit_source =
		(struct loop_source){.fd = -1, .ready = on_exit_ready, .owner = process};
	return process;
}

int process_start(struct slot *slot, struct process **ret_process, struct gw_error *ret_error)
{
	struct process *process = process_new(slot);
	int result;

	if (!process)
		return err_os(ret_error, ENOMEM, "no memory for worker %u", slot->number);
	result = make_channel(process, ret_error);
	if (result == 0)
		result = connect_and_run(process, ret_error);
	if (result == 0)
		result = watch(process, ret_error);
	if (result < 0) {
		undo_process(process);
		process_free(process);
		return result;
	}
	*ret_process = process;
	return 0;
}
