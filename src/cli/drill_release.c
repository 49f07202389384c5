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

#include "cli/drill_child.h"
#include "cli/out.h"
#include "common/err.h"
#include "common/fd.h"
#include "gpu/nodes.h"

#define END_DEADLINE_NS 30000000000ULL

/* A running holder. */
struct holder {
	struct drill_child child;
	uint64_t before_bytes; /* in use on the device before it started */
	uint64_t used_bytes;   /* while it holds; of a ghost: when the process was gone */
};

#define HOLDER_NONE ((struct holder){.child = DRILL_CHILD_NONE})

static int start_holder(struct drill *drill, enum drill_way way, struct holder *holder,
			struct gw_error *ret_error)
{
	char way_text[16], bytes_text[32], device_text[16];
	const char *const argv[] = {"gpuward",	DRILL_HOLDER, way_text,
				    bytes_text, device_text,  NULL};
	struct drill_hello hello = {0};
	int result;

	(void)snprintf(way_text, sizeof(way_text), "%d", (int)way);
	(void)snprintf(bytes_text, sizeof(bytes_text), "%llu",
		       (unsigned long long)drill->options.memory_bytes);
	(void)snprintf(device_text, sizeof(device_text), "%d", drill->options.device);
	holder->before_bytes = drill_used(drill);
	result = drill_child_start(argv, NULL, &holder->child, &hello, ret_error);
	if (result < 0)
		return result;
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
		(void)procref_signal(&holder->child.process.process, SIGKILL);
		break;
	case WAY_SIGTERM:
		(void)procref_signal(&holder->child.process.process, SIGTERM);
		break;
	case WAY_EXIT:
	case WAY_FAULT:
	case WAY_EXPORTED:
		(void)!send(holder->child.socket, "e", 1, MSG_NOSIGNAL);
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
		    procref_reap(&holder->child.process.process, &end) != 0)
			release->gone_ns = now_ns() - told;
		if (release->back_ns == GW_UNKNOWN && !ghost &&
		    is_back(holder, drill_used(drill), release->bytes))
			release->back_ns = now_ns() - told;
		if (release->gone_ns != GW_UNKNOWN &&
		    (ghost || release->back_ns != GW_UNKNOWN || holder->used_bytes == GW_UNKNOWN))
			return;
		if (ghost)
			(void)procref_wait(&holder->child.process.process, now_ns() + 1000000U,
					   &end);
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
	read_listed(drill, holder->child.process.process.pid, release);
	told = now_ns();
	fd_closep(&holder->child.passed_fd);
	fd_closep(&holder->child.socket);
	while (used != GW_UNKNOWN && now_ns() < told + END_DEADLINE_NS) {
		if (is_back(holder, drill_used(drill), release->bytes)) {
			release->back_ns = now_ns() - told;
			return;
		}
	}
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
	drill_child_stop(&holder.child);
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
	uint64_t free_bytes = drill_free(drill);
	uint64_t usual = nodes_emulated() ? UINT64_C(256) << 20 : UINT64_C(8) << 30;
	uint64_t wanted = drill->options.memory_bytes ? drill->options.memory_bytes : usual;

	if (!drill->options.memory_bytes && free_bytes != GW_UNKNOWN && wanted > free_bytes / 2)
		wanted = free_bytes / 2;
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
