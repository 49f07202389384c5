/* SPDX-License-Identifier: MIT */
/*
 * Starts the ward of a pool and tells it what to run.
 *
 * Runs in: host, in gw_pool_open(). The host may have threads and CUDA: the ward is another program,
 * started by fork and exec, and inherits nothing but one socket. It gets the host's own program as an
 * open file, so that workers are the very same build even if the file on disk was replaced since.
 * Read next: ../ward/ward.c.
 */
#include "lib/pool.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/err.h"
#include "common/fd.h"
#include "common/self.h"
#include "lib/pinned.h"
#include "linux/spawn.h"

/* Copies the command's strings behind each other. */
static int pack_command(struct wire_open *open, const char *const *command,
			struct gw_error *ret_error)
{
	for (size_t i = 0; command && command[i]; i++) {
		size_t bytes = strlen(command[i]) + 1;

		if (bytes > WIRE_COMMAND_MAX - open->command_bytes)
			return err_own(ret_error, -E2BIG,
				       "the worker's command is longer than %u bytes",
				       WIRE_COMMAND_MAX);
		memcpy(open->command + open->command_bytes, command[i], bytes);
		open->command_bytes += (uint32_t)bytes;
		open->command_count++;
	}
	return 0;
}

static int fill_open(const struct gw_pool *pool, struct wire_open *open, struct gw_error *ret_error)
{
	const struct gw_pool_options *o = &pool->options;

	wire_header_init(&open->header, WIRE_OPEN, sizeof(*open));
	open->n_devices = o->n_devices;
	for (uint32_t i = 0; i < o->n_devices; i++)
		open->devices[i] = o->devices[i];
	open->workers = pool->n_slots;
	open->max_start_failures = o->max_start_failures;
	open->spin_ns = o->spin_ns;
	open->standby = o->standby;
	if (o->standby != GW_STANDBY_COLD)
		open->standbys = o->standbys_per_device * (o->n_devices ? o->n_devices : 1);
	open->detect = o->detect;
	open->flags = o->flags;
	open->connections = o->connections;
	open->max_quick_deaths = o->max_quick_deaths;
	open->heartbeat_ns = o->heartbeat_ns;
	open->max_state_bytes = o->max_state_bytes;
	/* Its length was checked. */
	if (o->state_name)
		memcpy(open->state_name, o->state_name, strlen(o->state_name));
	open->output_bytes = o->total_output_bytes * ARENA_FACTOR;
	open->start_deadline_ns = pinned_start_deadline_ns(o);
	open->stop_deadline_ns = o->stop_deadline_ns;
	open->restart_min_ns = o->restart_min_ns;
	open->restart_max_ns = o->restart_max_ns;
	return pack_command(open, o->command, ret_error);
}

static int send_open(struct gw_pool *pool, struct gw_error *ret_error)
{
	cleanup_free struct wire_open *open_message = calloc(1, sizeof(*open_message));
	cleanup_fd int host = -1;
	cleanup_fd int program = -1;
	struct procref self;
	int fds[4] = {pool->input_fd, pool->page_fd, -1, -1};
	int result;

	if (!open_message)
		return err_os(ret_error, ENOMEM, "no memory for a pool");
	result = fill_open(pool, open_message, ret_error);
	if (result < 0)
		return result;
	result = procref_open(&self, getpid(), ret_error);
	if (result < 0)
		return result;
	host = self.pidfd;
	fds[2] = host;
	if (!pool->options.command) {
		program = open("/proc/self/exe", O_PATH | O_CLOEXEC);
		if (program < 0)
			return err_os(ret_error, errno, "cannot open /proc/self/exe");
		fds[3] = program;
	}
	result = wire_send(pool->ward_socket, open_message, fds, program >= 0 ? 4 : 3);
	/* It has ended already: what it said before lies in the socket. */
	if (result == -EPIPE || result == -ECONNRESET)
		return 0;
	return result < 0 ? err_os(ret_error, -result, "the ward does not take its orders") : 0;
}

static int spawn_ward(struct gw_pool *pool, int socket, struct gw_error *ret_error)
{
	extern char **environ;
	char path[PATH_MAX];
	const char *const argv[] = {"gpuward-ward", NULL};
	struct spawn spec = {.program = path,
			     .program_fd = -1,
			     .argv = argv,
			     .envp = (const char *const *)environ,
			     .fds = &socket,
			     .n_fds = 1,
			     .flags = SPAWN_NEW_GROUP};
	struct spawned ward = SPAWNED_NONE;
	int result = self_find_helper("gpuward-ward", path, sizeof(path), ret_error);

	if (result < 0)
		return result;
	result = spawn(&spec, &ward, ret_error);
	if (result < 0)
		return result;
	pool->ward_pid = ward.process.pid;
	pool->ward_pidfd = fd_steal(&ward.process.pidfd);
	pool->ward_program = ward;
	return 0;
}

int ward_start(struct gw_pool *pool, struct gw_error *ret_error)
{
	struct epoll_event event = {.events = EPOLLIN};
	int sockets[2];
	int result;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0)
		return err_os(ret_error, errno, "cannot make a socket for the ward");
	pool->ward_socket = sockets[0];
	result = fd_set_nonblocking(pool->ward_socket);
	if (result < 0 || epoll_ctl(pool->epoll_fd, EPOLL_CTL_ADD, pool->ward_socket, &event) < 0)
		result = err_os(ret_error, result < 0 ? -result : errno, "cannot watch the ward");
	/*
	 * The orders first, then the ward:
	 *
	 *	ward, then orders                     orders, then ward
	 *	ward is spawned                       orders wait in the socket
	 *	host is killed; a fork of it holds    host is killed
	 *	the socket: the ward has no host's    ward is spawned or not; if it is, the
	 *	pidfd yet, and sees no end            pidfd in its orders tells
	 */
	if (result == 0)
		result = send_open(pool, ret_error);
	if (result == 0)
		result = spawn_ward(pool, sockets[1], ret_error);
	fd_close(sockets[1]);
	return result;
}

/* It has let go of its socket, so that its end is near if it has not come. */
#define WARD_END_NS UINT64_C(1000000000)

int ward_explain(struct gw_pool *pool, int code, struct gw_error *ret_error)
{
	const struct procref ward = {.pid = pool->ward_pid, .pidfd = pool->ward_pidfd};
	char path[PATH_MAX] = "gpuward-ward";
	struct procref_end end;
	int result;

	if (code != GW_EWARDLOST || procref_wait(&ward, now_ns() + WARD_END_NS, &end) != 1)
		return code;
	(void)self_find_helper("gpuward-ward", path, sizeof(path), NULL);
	result = spawn_failure(&pool->ward_program, path, ret_error);
	if (result < 0)
		return result;
	return err_own(ret_error, GW_EWARDLOST,
		       "the ward (%s, pid %d) %s %d before it had a worker; what it or the dynamic "
		       "linker said is on standard error",
		       path, pool->ward_pid,
		       end.by_signal ? "was killed by signal" : "exited with code", end.value);
}
