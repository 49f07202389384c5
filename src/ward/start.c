/* SPDX-License-Identifier: MIT */
/*
 * Starts a worker process, with everything that belongs to one incarnation: channel, event descriptor,
 * socket, environment.
 *
 * Runs in: ward; never waits for the new process, not even for its exec. Any limit of the system that is
 * met here is a failed start with a text, and leaves nothing behind. Read next: slot.c.
 */
#include "ward/slot.h"

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
#include "ward/ward.h"

static int make_channel(struct slot *slot, struct gw_error *ret_error)
{
	const struct wire_open *open = &slot->ward->open;
	void *header;
	int fd = channel_new(open->output_bytes);

	if (fd < 0)
		return err_os(ret_error, -fd,
			      "cannot make %llu bytes of shared memory for worker %u",
			      (unsigned long long)open->output_bytes, slot->number);
	slot->channel_fd = fd;
	/* The ward only ever reads two words of it. */
	header = mmap(NULL, sizeof(struct channel), PROT_READ, MAP_SHARED, fd, 0);
	if (header == MAP_FAILED)
		return err_os(ret_error, errno, "cannot map the channel of worker %u",
			      slot->number);
	slot->channel = header;
	slot->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (slot->event_fd < 0)
		return err_os(ret_error, errno, "cannot make an event descriptor for worker %u",
			      slot->number);
	return 0;
}

/* SOCKETS: the worker's ends, for control and for state. */
static int run_program(struct slot *slot, const int sockets[2], struct gw_error *ret_error)
{
	const struct ward *ward = slot->ward;
	const struct env_worker worker = {.slot = slot->number,
					  .incarnation = slot->incarnation,
					  .device = slot->device,
					  .spin_ns = ward->open.spin_ns,
					  .stop_deadline_ns = ward->open.stop_deadline_ns,
					  .detect = ward->open.detect,
					  .flags = ward->open.flags};
	const int fds[] = {sockets[0],	   slot->channel_fd, ward->input_fd,
			   slot->event_fd, ward->host_pidfd, sockets[1]};
	cleanup_free const char **environment = NULL;
	struct spawn spec = {.program = ward->program_fd < 0 ? ward->argv[0] : NULL,
			     .program_fd = ward->program_fd,
			     .argv = ward->argv,
			     .fds = fds,
			     .n_fds = sizeof(fds) / sizeof(fds[0]),
			     .flags = SPAWN_PDEATHSIG | SPAWN_SEARCH_PATH};
	int result = env_new((const char *const *)environ, &worker, &environment, ret_error);

	if (result < 0)
		return result;
	spec.envp = environment;
	return spawn(&spec, &slot->spawned, ret_error);
}

static int make_socket(const struct slot *slot, int *ret_own, int *ret_worker,
		       struct gw_error *ret_error)
{
	int sockets[2];
	int result;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0)
		return err_os(ret_error, errno, "cannot make a socket for worker %u", slot->number);
	*ret_own = sockets[0];
	*ret_worker = sockets[1];
	result = fd_set_nonblocking(sockets[0]);
	if (result < 0)
		return err_os(ret_error, -result, "cannot set up the socket of worker %u",
			      slot->number);
	return 0;
}

/* The worker's ends of the sockets are closed here, so that its death is an end of file. */
static int connect_and_run(struct slot *slot, struct gw_error *ret_error)
{
	int sockets[2] = {-1, -1};
	int result = make_socket(slot, &slot->socket, &sockets[0], ret_error);

	if (result == 0)
		result = make_socket(slot, &slot->state_socket, &sockets[1], ret_error);
	if (result == 0)
		result = run_program(slot, sockets, ret_error);
	fd_close(sockets[0]);
	fd_close(sockets[1]);
	return result;
}

static int watch(struct slot *slot, struct gw_error *ret_error)
{
	struct loop *loop = &slot->ward->loop;
	int result = loop_add(loop, &slot->exit_source, slot->spawned.process.pidfd, EPOLLIN);

	if (result == 0)
		result = loop_add(loop, &slot->socket_source, slot->socket, EPOLLIN);
	if (result < 0)
		return err_os(ret_error, -result, "cannot watch worker %u", slot->number);
	return 0;
}

/* A process that cannot be watched must not be left. It has not run for long, and waiting is bounded
 * by the kernel's own work. */
static void undo_process(struct slot *slot)
{
	struct procref_end end;

	if (slot->spawned.process.pidfd < 0)
		return;
	(void)procref_signal(&slot->spawned.process, SIGKILL);
	(void)procref_wait(&slot->spawned.process, now_ns() + SLOT_GRACE_NS, &end);
}

int slot_start_process(struct slot *slot, struct gw_error *ret_error)
{
	int result;

	slot->incarnation = slot->n_started;
	slot->beside = leaving_is_untold(slot);
	slot->ready_ns = 0;
	slot->noticed_ns = 0;
	slot->cause = (struct cause){0};
	slot->start_error = (struct gw_error){0};
	slot->watch = (struct slot_watch){0};
	result = make_channel(slot, ret_error);
	if (result == 0)
		result = connect_and_run(slot, ret_error);
	if (result == 0)
		result = watch(slot, ret_error);
	if (result < 0) {
		undo_process(slot);
		slot_end_process(slot);
		fd_closep(&slot->channel_fd);
		fd_closep(&slot->event_fd);
		return result;
	}
	slot->n_started++;
	return 0;
}

void slot_end_process(struct slot *slot)
{
	struct loop *loop = &slot->ward->loop;

	loop_remove(loop, &slot->socket_source);
	loop_remove(loop, &slot->exit_source);
	fd_closep(&slot->socket);
	fd_closep(&slot->state_socket);
	if (slot->channel)
		(void)munmap((void *)(uintptr_t)slot->channel, sizeof(struct channel));
	slot->channel = NULL;
	spawn_done(&slot->spawned);
}
