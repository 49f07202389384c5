/* SPDX-License-Identifier: MIT */
#include "ward_host.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/fd.h"

#define PATIENCE_MS 15000

static int count_fds(void)
{
	DIR *folder = opendir("/proc/self/fd");
	int count = 0;

	while (readdir(folder))
		count++;
	(void)closedir(folder);
	return count;
}

int host_remember_world(void **state)
{
	static int count;

	/* Whatever a dead ward leaves comes to this process, where it is seen. */
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1);
	count = count_fds();
	*state = &count;
	return 0;
}

int host_check_world(void **state)
{
	const int *before = *state;

	if (waitpid(-1, NULL, WNOHANG) != -1 || errno != ECHILD) {
		(void)fprintf(stderr, "a process is left\n");
		return -1;
	}
	if (count_fds() != *before) {
		(void)fprintf(stderr, "%d descriptors before, %d after\n", *before, count_fds());
		return -1;
	}
	return 0;
}

void host_init(struct host *host, const char *behaviour)
{
	memset(host, 0, sizeof(*host));
	host->socket = -1;
	host->program_fd = -1;
	host->ward = SPAWNED_NONE;
	for (size_t i = 0; i < WIRE_FDS_MAX; i++)
		host->fds[i] = -1;
	wire_header_init(&host->open.header, WIRE_OPEN, sizeof(host->open));
	host->open.workers = 1;
	host->open.max_start_failures = 3;
	host->open.max_quick_deaths = UINT32_MAX;
	host->open.output_bytes = 4096;
	host->open.start_deadline_ns = 10 * SECOND;
	host->open.stop_deadline_ns = SECOND / 2;
	host->open.restart_min_ns = 1 * MILLISECOND;
	host->open.restart_max_ns = 4 * MILLISECOND;
	host_set_command(host, TEST_WORKER, behaviour);
}

void host_set_command(struct host *host, const char *program, const char *argument)
{
	size_t bytes = strlen(program) + 1;

	memcpy(host->open.command, program, bytes);
	memcpy(host->open.command + bytes, argument, strlen(argument) + 1);
	host->open.command_bytes = (uint32_t)(bytes + strlen(argument) + 1);
	host->open.command_count = 2;
}

static int make_page(struct host *host)
{
	int fd = fd_new_memory("page", sizeof(struct pool_page));

	host->page = mmap(NULL, sizeof(*host->page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	pool_page_init(host->page);
	return fd;
}

int host_start(struct host *host)
{
	const char *const arguments[] = {"gpuward-ward", NULL};
	struct procref self = PROCREF_NONE;
	struct spawn spec = {.program = TEST_WARD,
			     .argv = arguments,
			     .envp = (const char *const *)environ,
			     .n_fds = 1,
			     .flags = SPAWN_NEW_GROUP | SPAWN_SEARCH_PATH};
	int fds[WIRE_FDS_MAX];
	int sockets[2];
	int result;

	if (host->ward_argv) {
		spec.program = host->ward_argv[0];
		spec.argv = host->ward_argv;
	}
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0)
		return -errno;
	host->socket = sockets[0];
	fds[0] = fd_new_memory("input", 4096);
	fds[1] = make_page(host);
	result = procref_open(&self, getpid(), NULL);
	fds[2] = self.pidfd;
	fds[3] = host->program_fd;
	if (result == 0)
		result = wire_send(host->socket, &host->open, fds, host->program_fd < 0 ? 3 : 4);
	spec.fds = &sockets[1];
	if (result == 0)
		result = spawn(&spec, &host->ward, NULL);
	fd_close(sockets[1]);
	fd_close(fds[0]);
	fd_close(fds[1]);
	procref_done(&self);
	return result;
}

int host_receive(struct host *host)
{
	struct pollfd readable = {.fd = host->socket, .events = POLLIN};
	int result;

	host_drop_fds(host);
	if (poll(&readable, 1, PATIENCE_MS) != 1)
		return -ETIMEDOUT;
	result = wire_receive(host->socket, &host->message, host->fds);
	if (result == -ECONNRESET)
		return 0;
	return result > 0 ? (int)host->message.header.type : result;
}

void host_send(struct host *host, enum wire_type type)
{
	struct wire_header header;

	wire_header_init(&header, type, sizeof(header));
	(void)wire_send(host->socket, &header, NULL, 0);
}

void host_drop_fds(struct host *host)
{
	for (size_t i = 0; i < WIRE_FDS_MAX; i++)
		fd_closep(&host->fds[i]);
}

int host_wait_ward(struct host *host)
{
	struct procref_end end;

	if (procref_wait(&host->ward.process, now_ns() + PATIENCE_MS * MILLISECOND, &end) != 1)
		return -1000;
	return end.by_signal ? -end.value : end.value;
}

void host_done(struct host *host)
{
	host_drop_fds(host);
	fd_closep(&host->socket);
	fd_closep(&host->program_fd);
	spawn_done(&host->ward);
	if (host->page)
		(void)munmap(host->page, sizeof(*host->page));
	host->page = NULL;
}
