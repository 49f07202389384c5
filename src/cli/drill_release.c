/* SPDX-License-Identifier: MIT */
/*
 * `gpuward drill release`: a process with device memory ends in each way that there is, and two ghosts: memory
 * that stays although its process is gone.
 *
 * Runs in: command line. The holder is this program again, in its own process; it is watched by its
 * pidfd, and the memory by NVML. A ghost is held by something that no tool for GPUs lists: a descriptor
 * in this very process, or a child that never called CUDA. Its end is part of the show: whatever way a
 * run takes, nothing is left.
 */
#include "cli/drill.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cli/out.h"
#include "common/err.h"
#include "common/fd.h"
#include "gpu/nodes.h"

#define HELLO_DEADLINE_MS 30000
#define END_DEADLINE_NS	  30000000000ULL

/* A running holder. */
struct holder {
	struct spawned process;
	int socket;
	int exported_fd;
	uint64_t before_bytes; /* in use on the device before it started */
	uint64_t used_bytes;   /* while it holds; of a ghost: when the process was gone */
};

#define HOLDER_NONE ((struct holder){.process = SPAWNED_NONE, .socket = -1, .exported_fd = -1})

static int spawn_holder(const struct drill *drill, enum drill_way way, struct holder *holder,
			struct gw_error *ret_error)
{
	extern char **environ;
	char way_text[16], bytes_text[32], device_text[16];
	const char *const argv[] = {"gpuward",	DRILL_HOLDER, way_text,
				    bytes_text, device_text,  NULL};
	int sockets[2];
	struct spawn spec = {.program = "/proc/self/exe",
			     .program_fd = -1,
			     .argv = argv,
			     .envp = (const char *const *)environ,
			     .fds = &sockets[1],
			     .n_fds = 1,
			     .flags = SPAWN_PDEATHSIG | SPAWN_NEW_GROUP};
	int result;

	(void)snprintf(way_text, sizeof(way_text), "%d", (int)way);
	(void)snprintf(bytes_text, sizeof(bytes_text), "%llu",
		       (unsigned long long)drill->options.memory_bytes);
	(void)snprintf(device_text, sizeof(device_text), "%d", drill->options.device);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0)
		return err_os(ret_error, errno, "cannot make a socket");
	holder->socket = sockets[0];
	result = spawn(&spec, &holder->process, ret_error);
	fd_close(sockets[1]);
	return result;
}

static int receive_hello(struct holder *holder, struct drill_hello *ret_hello)
{
	struct iovec part = {ret_hello, sizeof(*ret_hello)};
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = control.bytes,
				 .msg_controllen = sizeof(control.bytes)};
	struct pollfd fd = {.fd = holder->socket, .events = POLLIN};
	struct cmsghdr *rights;

	if (poll(&fd, 1, HELLO_DEADLINE_MS) == 0)
		return -ETIMEDOUT;
	if (recvmsg(holder->socket, &message, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof(*ret_hello))
		return -EIO;
	rights = CMSG_FIRSTHDR(&message);
	if (rights && rights->cmsg_type == SCM_RIGHTS)
		memcpy(&holder->exported_fd, CMSG_DATA(rights), sizeof(int));
	ret_hello->message[sizeof(ret_hello->message) - 1] = '\0';
	return 0;
}

static int start_holder(struct drill *drill, enum drill_way way, struct holder *holder,
			struct gw_error *ret_error)
{
	struct drill_hello hello;
	int result;

	holder->before_bytes = drill_used(drill);
	result = spawn_holder(drill, way, holder, ret_error);
	if (result < 0)
		return result;
	result = receive_hello(holder, &hello);
	if (result == -ETIMEDOUT)
		return err_set(ret_error, GW_EDRIVER, GW_DOMAIN_OS, ETIMEDOUT,
			       "CUDA does not answer (%d s)", HELLO_DEADLINE_MS / 1000);
	if (result < 0)
		return err_own(ret_error, -EIO, "the process that holds memory ended too early");
	if (hello.code != 0)
		return err_own(ret_error, hello.code, "%s", hello.message);
	if (hello.result != 0)
		return err_set(ret_error, hello.result == 2 ? -ENOMEM : GW_EDRIVER, GW_DOMAIN_CUDA,
			       hello.result, "cannot take %llu MiB of device memory: %s",
			       (unsigned long long)(drill->options.memory_bytes >> 20),
			       gw_cuda_text(hello.result));
	holder->used_bytes = drill_used(drill);
	return 0;
}

static void tell_holder(struct holder *holder, enum drill_way way)
{
	switch (way) {
	case WAY_SIGKILL:
	case WAY_FORKED:
		(void)procref_signal(&holder->process.process, SIGKILL);
		break;
	case WAY_SIGTERM:
		(void)procref_signal(&holder->process.process, SIGTERM);
		break;
	case WAY_EXIT:
	case WAY_FAULT:
	case WAY_EXPORTED:
		(void)!send(holder->socket, "e", 1, MSG_NOSIGNAL);
		break;
	case DRILL_WAYS:
		break;
	}
}

static bool is_back(const struct holder *holder, uint64_t used, uint64_t bytes)
{
	return used != GW_UNKNOWN && holder->used_bytes != GW_UNKNOWN &&
	       used + bytes <= holder->used_bytes;
}

/* Watches process and memory until both are gone, or only the process where it leaves a ghost. Each look
 * at the memory is a question to NVML, so nothing else sets the pace. */
static void watch_end(struct drill *drill, struct holder *holder, struct drill_release *release,
		      uint64_t told, bool ghost)
{
	uint64_t deadline = told + END_DEADLINE_NS;
	struct procref_end end;

	release->gone_ns = release->back_ns = GW_UNKNOWN;
	while (now_ns() < deadline) {
		if (release->gone_ns == GW_UNKNOWN &&
		    procref_reap(&holder->process.process, &end) != 0)
			release->gone_ns = now_ns() - told;
		if (release->back_ns == GW_UNKNOWN && !ghost &&
		    is_back(holder, drill_used(drill), release->bytes))
			release->back_ns = now_ns() - told;
		if (release->gone_ns != GW_UNKNOWN &&
		    (ghost || release->back_ns != GW_UNKNOWN || holder->used_bytes == GW_UNKNOWN))
			return;
		if (ghost)
			(void)procref_wait(&holder->process.process, now_ns() + 1000000U, &end);
	}
}

/* Whom NVML names for the ghost's memory. */
static void read_listed(struct drill *drill, int32_t pid, struct drill_release *release)
{
	struct probe_processes list;

	release->listed_pid = -2;
	if (drill->nvml_index == PROBE_DEVICE_UNKNOWN ||
	    probe_ask_processes(&drill->probe, drill->nvml_index, &list, NULL) < 0)
		return;
	release->listed_pid = -1;
	for (uint32_t i = 0; i < list.count; i++) {
		if (list.list[i].pid == (uint32_t)pid)
			release->listed_pid = pid;
	}
	release->listed_is_dead = kill(pid, 0) < 0 && errno == ESRCH;
}

/* The process is gone, its memory is not. Lets go of it, and takes the time. */
static void end_ghost(struct drill *drill, struct holder *holder, struct drill_release *release)
{
	uint64_t used = drill_used(drill);
	uint64_t told;

	holder->used_bytes = used;
	if (used != GW_UNKNOWN && holder->before_bytes != GW_UNKNOWN)
		release->held_bytes = used > holder->before_bytes ? used - holder->before_bytes : 0;
	read_listed(drill, holder->process.process.pid, release);
	told = now_ns();
	fd_closep(&holder->exported_fd);
	fd_closep(&holder->socket);
	while (used != GW_UNKNOWN && now_ns() < told + END_DEADLINE_NS) {
		if (is_back(holder, drill_used(drill), release->bytes)) {
			release->back_ns = now_ns() - told;
			return;
		}
	}
}

static void stop_holder(struct holder *holder)
{
	struct procref_end end;

	fd_closep(&holder->exported_fd);
	fd_closep(&holder->socket);
	if (holder->process.process.pidfd >= 0) {
		(void)procref_signal(&holder->process.process, SIGKILL);
		(void)procref_wait(&holder->process.process, now_ns() + END_DEADLINE_NS, &end);
	}
	spawn_done(&holder->process);
}

static int run_once(struct drill *drill, struct drill_release *release)
{
	bool ghost = release->way == WAY_EXPORTED || release->way == WAY_FORKED;
	struct holder holder = HOLDER_NONE;
	int result = start_holder(drill, release->way, &holder, &release->error);

	if (result == 0) {
		/* Before the order: the process can be gone before this one runs again. */
		uint64_t told = now_ns();

		tell_holder(&holder, release->way);
		watch_end(drill, &holder, release, told, ghost);
		if (ghost)
			end_ghost(drill, &holder, release);
		release->ok = release->gone_ns != GW_UNKNOWN &&
			      (release->back_ns != GW_UNKNOWN || holder.used_bytes == GW_UNKNOWN) &&
			      (!ghost || release->held_bytes >= release->bytes);
	}
	stop_holder(&holder);
	return result;
}

static int run_way(struct drill *drill, enum drill_way way)
{
	uint64_t gone[DRILL_REPEAT_MAX], back[DRILL_REPEAT_MAX];
	struct drill_release *release = &drill->release[drill->n_release++];
	bool ok = true;

	*release = (struct drill_release){.way = way,
					  .bytes = drill->options.memory_bytes,
					  .held_bytes = GW_UNKNOWN,
					  .listed_pid = -2};
	for (uint32_t i = 0; i < drill->options.repeat; i++) {
		int result;

		out_progress(drill_way_name(way));
		result = run_once(drill, release);
		if (result < 0)
			return result;
		gone[i] = release->gone_ns;
		back[i] = release->back_ns;
		ok = ok && release->ok;
	}
	release->ok = ok;
	release->gone_ns = drill_median(gone, drill->options.repeat);
	release->back_ns = drill_median(back, drill->options.repeat);
	return 0;
}

/* 8 GiB, or half of what is free. Emulated device memory is the machine's own: a little is enough. */
static int choose_amount(struct drill *drill, struct gw_error *ret_error)
{
	struct probe_memory memory = {.free_bytes = GW_UNKNOWN};
	uint64_t usual = nodes_emulated() ? UINT64_C(256) << 20 : UINT64_C(8) << 30;
	uint64_t wanted = drill->options.memory_bytes ? drill->options.memory_bytes : usual;

	if (drill->nvml_index != PROBE_DEVICE_UNKNOWN)
		(void)probe_ask_memory(&drill->probe, drill->nvml_index, &memory, NULL);
	if (!drill->options.memory_bytes && memory.free_bytes != GW_UNKNOWN &&
	    wanted > memory.free_bytes / 2)
		wanted = memory.free_bytes / 2;
	wanted &= ~((UINT64_C(2) << 20) - 1);
	if (wanted == 0)
		return err_own(ret_error, -ENOMEM, "no device memory is free on device %d",
			       drill->options.device);
	drill->options.memory_bytes = wanted;
	return 0;
}

int drill_release_run(struct drill *drill, struct gw_error *ret_error)
{
	int result = choose_amount(drill, ret_error);

	for (int way = 0; result == 0 && way < DRILL_WAYS; way++) {
		result = run_way(drill, (enum drill_way)way);
		if (result < 0 && ret_error)
			*ret_error = drill->release[drill->n_release - 1].error;
	}
	out_progress(NULL);
	return result;
}
