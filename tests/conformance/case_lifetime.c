/* SPDX-License-Identifier: MIT */
/*
 * What keeps device memory, and when it comes back: the ghosts, each staged and measured by a third
 * party. The stage never loads CUDA, so it holds nothing by itself. Runs in: see suite.h.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "suite.h"

#define BYTES (1024 * MIB)

/* As much of it is written and checked. */
#define FILLED_WORDS (64 * MIB / 4)

/* More than a context, less than a context and BYTES: what may remain while another process lives. */
#define ONE_CONTEXT (700 * MIB)

static void state(const char *name, const struct suite_gpu *before)
{
	fact_text(name, "%s", suite_memory_state(before->used_bytes, BYTES));
}

static void listed(const char *name, pid_t pid)
{
	struct suite_gpu gpu;

	suite_ask(&gpu);
	fact_yes(name, suite_lists(&gpu, pid));
}

/* SIGKILL and reap, with the socket left open for the role's own children. */
static void kill_and_reap(const struct role *role)
{
	(void)kill(role->pid, SIGKILL);
	while (waitpid(role->pid, NULL, 0) < 0 && errno == EINTR)
		;
}

/* A process with a context and BYTES of plain memory, until its order comes. */
static void hold_plain(int socket, const void *argument)
{
	struct session session;
	uint64_t address = 0;

	(void)argument;
	session_begin(&session);
	if (CU(cuMemAlloc_v2, &address, BYTES) != 0)
		fact_text("alloc", "failed");
	suite_send(socket, 1, -1);
	(void)suite_receive(socket, NULL);
}

static void start_holder(struct role *role, struct suite_gpu *before)
{
	suite_ask(before);
	role_start(role, hold_plain, NULL);
	(void)suite_receive(role->socket, NULL);
}

static void plain_ends(const void *argument)
{
	struct suite_gpu before;
	struct suite_gpu gpu;
	struct role role;

	(void)argument;
	start_holder(&role, &before);
	fact("nvml", before.result);
	state("alive", &before);
	suite_ask(&gpu);
	fact_yes("nvml_lists_owner", suite_lists(&gpu, role.pid));
	fact_yes("nvml_charges_owner", suite_bytes_of(&gpu, role.pid) > BYTES);
	suite_send(role.socket, 1, -1);
	role_end(&role, "exit");
	state("after_exit", &before);
	start_holder(&role, &before);
	role_kill(&role);
	state("after_kill", &before);
	listed("nvml_lists_killed", role.pid);
}

static void zombie(const void *argument)
{
	struct suite_gpu before;
	struct role role;
	siginfo_t info;

	(void)argument;
	start_holder(&role, &before);
	(void)kill(role.pid, SIGKILL);
	(void)waitid(P_PID, (id_t)role.pid, &info, WEXITED | WNOWAIT);
	state("memory", &before);
	listed("nvml_lists", role.pid);
	role_end(&role, NULL);
}

static void stopped(const void *argument)
{
	struct suite_gpu before;
	struct role role;

	(void)argument;
	start_holder(&role, &before);
	(void)kill(role.pid, SIGSTOP);
	state("memory", &before);
	listed("nvml_lists", role.pid);
	role_kill(&role);
	state("memory_after_kill", &before);
}

struct survivor {
	int socket;
	pthread_t leader;
};

static void *outlive(void *argument)
{
	const struct survivor *survivor = argument;

	(void)pthread_join(survivor->leader, NULL);
	suite_send(survivor->socket, 2, -1);
	(void)suite_receive(survivor->socket, NULL);
	return NULL;
}

static void leave_a_thread(int socket, const void *argument)
{
	static struct survivor survivor;
	struct session session;
	pthread_t thread;
	uint64_t address = 0;

	(void)argument;
	survivor.socket = socket;
	survivor.leader = pthread_self();
	session_begin(&session);
	(void)CU(cuMemAlloc_v2, &address, BYTES);
	if (pthread_create(&thread, NULL, outlive, &survivor) == 0)
		pthread_exit(NULL);
}

static void zombie_leader(const void *argument)
{
	struct suite_gpu before;
	struct role role;

	(void)argument;
	suite_ask(&before);
	role_start(&role, leave_a_thread, NULL);
	(void)suite_receive(role.socket, NULL);
	state("memory", &before);
	listed("nvml_lists", role.pid);
	role_kill(&role);
	state("memory_after_kill", &before);
}

/* ---- descriptors that a fork passes on ---- */

/* Closes the descriptors of device files, except those of KEPT (NULL: none). Returns how many. */
static int close_devices(const char *kept)
{
	DIR *folder = opendir("/proc/self/fd");
	const struct dirent *entry;
	int closed = 0;

	while (folder && (entry = readdir(folder))) {
		char path[300];
		char target[256] = "";
		const char *name;

		(void)snprintf(path, sizeof(path), "/proc/self/fd/%s", entry->d_name);
		if (readlink(path, target, sizeof(target) - 1) < 0)
			continue;
		name = strrchr(target, '/');
		if (!name || !strstr(name, "nvidia") || (kept && strcmp(name + 1, kept) == 0))
			continue;
		(void)close(atoi(entry->d_name));
		closed++;
	}
	if (folder)
		(void)closedir(folder);
	return closed;
}

struct inherit {
	const char *kept;
	bool closes;
	bool execs;
};

/* The child: no CUDA call, only what it inherited, until the stage lets go of the socket. */
static void be_inheritor(int socket, const struct inherit *how)
{
	uint64_t order;

	if (how->execs) {
		(void)dup2(socket, 0);
		(void)execl("/bin/cat", "cat", (char *)NULL);
		_exit(1);
	}
	if (how->closes)
		(void)close_devices(how->kept);
	suite_send(socket, 1, -1);
	(void)suite_try_receive(socket, &order);
	_exit(0);
}

static void fork_a_holder(int socket, const void *argument)
{
	const struct inherit *how = argument;
	struct session session;
	uint64_t address = 0;
	int pipes[2] = {-1, -1};
	char byte;

	session_begin(&session);
	(void)CU(cuMemAlloc_v2, &address, BYTES);
	(void)!pipe2(pipes, O_CLOEXEC);
	if (fork() == 0)
		be_inheritor(socket, how);
	(void)close(pipes[1]);
	if (how->execs) {
		/* Its end comes when the child has become another program. */
		(void)!read(pipes[0], &byte, 1);
		suite_send(socket, 1, -1);
	}
	for (;;)
		(void)pause();
}

static void inherit(const void *argument)
{
	struct suite_gpu before;
	struct suite_gpu gpu;
	struct role role;

	suite_ask(&before);
	role_start(&role, fork_a_holder, argument);
	(void)suite_receive(role.socket, NULL);
	kill_and_reap(&role);
	state("used_after_creator_exit_with_inherited_child", &before);
	suite_ask(&gpu);
	fact_yes("nvml_lists_dead_creator", suite_lists(&gpu, role.pid));
	fact_yes("nvml_charges_dead_creator", suite_bytes_of(&gpu, role.pid) > BYTES);
	(void)close(role.socket);
	state("after_child", &before);
	listed("nvml_lists_dead_creator_at_last", role.pid);
}

/* ---- exported memory ---- */

static void export_memory(int socket, const void *argument)
{
	struct cuda_allocation allocation = suite_exportable();
	const bool *faults = argument;
	struct session session;
	uint64_t handle = 0;
	uint64_t address = 0;
	uint64_t n = FILLED_WORDS;
	uint32_t seed = 99;
	void *fill[] = {&address, &n, &seed};
	int fd = -1;

	session_begin(&session);
	(void)CU(cuMemCreate, &handle, BYTES, &allocation, 0);
	(void)CU(cuMemExportToShareableHandle, &fd, handle, CUDA_HANDLE_POSIX_FD, 0);
	(void)suite_map(handle, BYTES, CUDA_ACCESS_READWRITE, &address);
	(void)CU(cuLaunchKernel, session_function(&session, "fill"), 1024, 1, 1, 256, 1, 1, 0, NULL,
		 fill, NULL);
	fact("filled", CU(cuCtxSynchronize));
	if (faults && *faults) {
		(void)session_launch(&session, "fault_trap", NULL, NULL);
		fact("creator_faults", CU(cuCtxSynchronize));
	}
	suite_send(socket, 1, fd);
	(void)suite_receive(socket, NULL);
}

/* The creator has ended by a kill; its memory is left in the descriptor that is returned. */
static int make_orphan(struct suite_gpu *before, const bool *faults, pid_t *ret_creator)
{
	struct role role;
	int fd = -1;

	suite_ask(before);
	role_start(&role, export_memory, faults);
	(void)suite_receive(role.socket, &fd);
	role_kill(&role);
	*ret_creator = role.pid;
	return fd;
}

static void exported(const void *argument)
{
	struct suite_gpu before;
	struct suite_gpu gpu;
	pid_t creator;
	int fd = make_orphan(&before, NULL, &creator);

	(void)argument;
	state("fd_in_plain_process", &before);
	suite_ask(&gpu);
	fact_yes("nvml_lists_creator", suite_lists(&gpu, creator));
	fact_yes("nvml_lists_holder", suite_lists(&gpu, getpid()));
	(void)close(fd);
	state("fd_closed", &before);
}

static void in_flight(const void *argument)
{
	struct suite_gpu before;
	pid_t creator;
	int fd = make_orphan(&before, NULL, &creator);
	int sockets[2];

	(void)argument;
	(void)socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets);
	suite_send(sockets[0], 1, fd);
	(void)close(fd);
	state("fd_in_flight", &before);
	listed("nvml_lists_creator", creator);
	(void)close(sockets[0]);
	state("fd_in_flight_sender_closed", &before);
	(void)close(sockets[1]);
	state("fd_in_flight_socket_closed", &before);
}

static void import_memory(int socket, const void *argument)
{
	struct session session;
	uint64_t handle = 0;
	uint64_t address = 0;
	uint64_t bad = 0;
	uint64_t bad_words = 0;
	uint64_t n = FILLED_WORDS;
	uint32_t seed = 99;
	void *check[] = {&address, &n, &seed, &bad};
	int fd = -1;

	(void)argument;
	(void)suite_receive(socket, &fd);
	session_begin(&session);
	fact("import", CU(cuMemImportFromShareableHandle, &handle, (void *)(intptr_t)fd,
			  CUDA_HANDLE_POSIX_FD));
	(void)close(fd);
	fact("map", suite_map(handle, BYTES, CUDA_ACCESS_READWRITE, &address));
	(void)CU(cuMemAlloc_v2, &bad, 8);
	(void)CU(cuMemsetD8_v2, bad, 0, 8);
	(void)CU(cuLaunchKernel, session_function(&session, "check"), 1024, 1, 1, 256, 1, 1, 0,
		 NULL, check, NULL);
	fact("check", CU(cuMemcpyDtoH_v2, &bad_words, bad, 8));
	fact("bad_words", (long long)bad_words);
	suite_send(socket, 1, -1);
	(void)suite_receive(socket, NULL);
	fact("release", CU(cuMemRelease, handle));
	suite_send(socket, 1, -1);
	(void)suite_receive(socket, NULL);
	fact("unmap", CU(cuMemUnmap, address, BYTES));
	suite_send(socket, 1, -1);
	(void)suite_receive(socket, NULL);
}

static void step_of(const struct role *role)
{
	suite_send(role->socket, 1, -1);
	(void)suite_receive(role->socket, NULL);
}

static void imported(const void *argument)
{
	struct suite_gpu before;
	struct suite_gpu beside;
	struct suite_gpu gpu;
	struct role role;
	pid_t creator;
	int fd;

	/* First, so that it does not inherit the descriptor: it would keep the memory. */
	role_start(&role, import_memory, NULL);
	fd = make_orphan(&before, argument, &creator);
	suite_send(role.socket, 1, fd);
	(void)close(fd);
	(void)suite_receive(role.socket, NULL);
	beside = before;
	beside.used_bytes += ONE_CONTEXT;
	state("imported", &beside);
	suite_ask(&gpu);
	fact_yes("nvml_charges_importer", suite_bytes_of(&gpu, role.pid) > BYTES);
	step_of(&role);
	state("released_but_mapped", &beside);
	step_of(&role);
	state("unmapped", &beside);
	suite_send(role.socket, 1, -1);
	role_end(&role, "importer_ended");
	state("at_last", &before);
}

/* ---- memory without a context ---- */

static void create_without_context(int socket, const void *argument)
{
	struct cuda_allocation allocation = suite_exportable();
	uint64_t handle = 0;

	(void)argument;
	fact("init", CU(cuInit, 0));
	suite_send(socket, 1, -1);
	(void)suite_receive(socket, NULL);
	fact("create", CU(cuMemCreate, &handle, BYTES, &allocation, 0));
	suite_send(socket, 1, -1);
	(void)suite_receive(socket, NULL);
	fact("release", CU(cuMemRelease, handle));
	suite_send(socket, 1, -1);
	(void)suite_receive(socket, NULL);
}

static void primed(const void *argument)
{
	struct suite_gpu before;
	struct suite_gpu gpu;
	struct role role;

	(void)argument;
	suite_ask(&before);
	role_start(&role, create_without_context, NULL);
	(void)suite_receive(role.socket, NULL);
	suite_ask(&gpu);
	fact_yes("nvml_lists_primed", suite_lists(&gpu, role.pid));
	fact_yes("primed_uses_memory", gpu.used_bytes > before.used_bytes);
	step_of(&role);
	state("created", &before);
	listed("nvml_lists_creator", role.pid);
	step_of(&role);
	state("released", &before);
	role_kill(&role);
}

static const struct inherit inherits_all = {NULL, false, false};
static const struct inherit inherits_none = {NULL, true, false};
static const struct inherit inherits_ctl = {"nvidiactl", true, false};
static const struct inherit inherits_device = {"nvidia0", true, false};
static const struct inherit inherits_uvm = {"nvidia-uvm", true, false};
static const struct inherit inherits_over_exec = {NULL, false, true};
static const bool creator_faults = true;

const struct suite_case cases_lifetime[] = {
	{"plain", plain_ends, NULL},
	{"zombie", zombie, NULL},
	{"stopped", stopped, NULL},
	{"zombie_leader", zombie_leader, NULL},
	{"lifetime", inherit, &inherits_all},
	{"lifetime_no_descriptor", inherit, &inherits_none},
	{"lifetime_only_ctl", inherit, &inherits_ctl},
	{"lifetime_only_device", inherit, &inherits_device},
	{"lifetime_only_uvm", inherit, &inherits_uvm},
	{"lifetime_exec", inherit, &inherits_over_exec},
	{"exported", exported, NULL},
	{"in_flight", in_flight, NULL},
	{"imported", imported, NULL},
	{"imported_of_faulted", imported, &creator_faults},
	{"primed", primed, NULL},
	{NULL, NULL, NULL},
};
