/* SPDX-License-Identifier: MIT */
/*
 * Processes of a case, and what a third party sees of them: NVML and the kernel log.
 *
 * Runs in: the stage of a case; suite_send() and suite_receive() in the roles too. Every process of a
 * case is in its process group, which the runner ends as a whole. Read next: suite.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/fd.h"
#include "gpu/xid.h"
#include "suite.h"

/* How long the memory of a case takes at the most to come back: three times what 100 GiB took. */
#define RELEASE_MS 700U
#define LOOK_MS	   40U

/* The same for the first line of a fault. */
#define FIRST_LINE_MS 3000U

/* Of an Xid, at the most, that are stated one by one. */
#define LINES 8

void role_start(struct role *role, void (*run)(int socket, const void *argument),
		const void *argument)
{
	int sockets[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0)
		abort();
	role->pid = fork();
	if (role->pid < 0)
		abort();
	if (role->pid == 0) {
		(void)close(sockets[0]);
		run(sockets[1], argument);
		exit(0);
	}
	(void)close(sockets[1]);
	role->socket = sockets[0];
}

void role_end(struct role *role, const char *name)
{
	int status = 0;

	(void)close(role->socket);
	while (waitpid(role->pid, &status, 0) < 0 && errno == EINTR)
		;
	if (name && WIFEXITED(status))
		fact_text(name, "exit %d", WEXITSTATUS(status));
	else if (name)
		fact_text(name, "signal %d", WTERMSIG(status));
}

void role_kill(struct role *role)
{
	(void)kill(role->pid, SIGKILL); /* not reaped yet, so it is still this process */
	role_end(role, NULL);
}

void suite_send(int socket, uint64_t word, int fd)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec data = {&word, sizeof(word)};
	struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};

	if (fd >= 0) {
		message.msg_control = &control;
		message.msg_controllen = sizeof(control);
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
	}
	if (sendmsg(socket, &message, MSG_NOSIGNAL) < 0)
		_exit(4);
}

static bool receive(int socket, uint64_t *ret_word, int *ret_fd)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec data = {ret_word, sizeof(*ret_word)};
	struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
	ssize_t got;

	message.msg_control = &control;
	message.msg_controllen = sizeof(control);
	do
		got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
	while (got < 0 && errno == EINTR);
	if (got != sizeof(*ret_word))
		return false;
	if (ret_fd)
		*ret_fd = -1;
	if (ret_fd && message.msg_controllen >= CMSG_LEN(sizeof(int)))
		memcpy(ret_fd, CMSG_DATA(&control.header), sizeof(*ret_fd));
	return true;
}

uint64_t suite_receive(int socket, int *ret_fd)
{
	uint64_t word = 0;

	if (!receive(socket, &word, ret_fd))
		_exit(4);
	return word;
}

bool suite_try_receive(int socket, uint64_t *ret_word)
{
	return receive(socket, ret_word, NULL);
}

/* ---- NVML ---- */

static int ask(struct suite_gpu *gpu)
{
	struct nvml_device *device = NULL;
	struct nvml_memory memory = {0};
	unsigned int count = sizeof(gpu->processes) / sizeof(gpu->processes[0]);
	int result = NVML(nvmlInit_v2);

	if (result == 0)
		result = NVML(nvmlDeviceGetHandleByIndex_v2, 0, &device);
	if (result == 0)
		result = NVML(nvmlDeviceGetMemoryInfo, device, &memory);
	if (result == 0)
		result = NVML(nvmlDeviceGetComputeRunningProcesses_v3, device, &count,
			      gpu->processes);
	gpu->used_bytes = memory.used;
	gpu->count = result == 0 ? count : 0;
	return result;
}

void suite_ask(struct suite_gpu *ret_gpu)
{
	struct suite_gpu *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
					MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pid;

	if (shared == MAP_FAILED)
		abort();
	shared->result = -1;
	pid = fork();
	if (pid == 0) {
		shared->result = ask(shared);
		_exit(0);
	}
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	*ret_gpu = *shared;
	(void)munmap(shared, sizeof(*shared));
}

static const struct nvml_process *find(const struct suite_gpu *gpu, pid_t pid)
{
	for (uint32_t i = 0; i < gpu->count; i++)
		if (gpu->processes[i].pid == (uint32_t)pid)
			return &gpu->processes[i];
	return NULL;
}

uint64_t suite_bytes_of(const struct suite_gpu *gpu, pid_t pid)
{
	const struct nvml_process *process = find(gpu, pid);

	return process ? process->used_bytes : 0;
}

bool suite_lists(const struct suite_gpu *gpu, pid_t pid)
{
	return find(gpu, pid) != NULL;
}

const char *suite_memory_state(uint64_t before_bytes, uint64_t bytes)
{
	struct suite_gpu gpu;

	for (unsigned int waited = 0; waited < RELEASE_MS; waited += LOOK_MS) {
		suite_ask(&gpu);
		if (gpu.result != 0)
			return "unknown";
		if (gpu.used_bytes < before_bytes + bytes / 2)
			return "released";
		suite_sleep_ms(LOOK_MS);
	}
	return "held";
}

/* ---- the kernel log ---- */

void suite_log_open(struct suite_log *log)
{
	const char *soft = getenv("GPUWARD_SOFT_DIR");
	char path[512] = "/dev/kmsg";

	if (soft)
		(void)snprintf(path, sizeof(path), "%s/kmsg", soft);
	log->records = !soft;
	log->fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (log->fd >= 0)
		(void)lseek(log->fd, 0, SEEK_END);
}

struct xids {
	uint32_t numbers[8];
	size_t count;
	bool named;
	size_t lines;
	struct {
		uint32_t number;
		bool named;
	} of_line[LINES]; /* of the first ones */
};

static void note_record(struct xids *xids, const char *text, size_t bytes, pid_t pid)
{
	struct kmsg_record record;
	struct xid_line line;
	size_t offset = 0;
	bool named;
	size_t i;

	if (kmsg_parse(text, bytes, &record) != 0)
		return;
	while (xid_parse_record(&record, &offset, &line)) {
		if (!(line.have & XID_HAVE_NUMBER))
			continue;
		for (i = 0; i < xids->count && xids->numbers[i] != line.number; i++)
			;
		if (i == xids->count && i < 8)
			xids->numbers[xids->count++] = line.number;
		named = (line.have & XID_HAVE_PID) && line.pid == pid;
		xids->named = xids->named || named;
		if (xids->lines < LINES) {
			xids->of_line[xids->lines].number = line.number;
			xids->of_line[xids->lines].named = named;
		}
		xids->lines++;
	}
}

/* softgpu's file: record by record, each ends with a line feed. */
static void note_file(struct xids *xids, char *text, size_t bytes, pid_t pid)
{
	char *end = text + bytes;

	while (text < end) {
		char *feed = memchr(text, '\n', (size_t)(end - text));

		if (!feed)
			return;
		note_record(xids, text, (size_t)(feed - text) + 1, pid);
		text = feed + 1;
	}
}

static void read_log(struct suite_log *log, struct xids *xids, char *text, size_t bytes, pid_t pid)
{
	ssize_t got;

	while ((got = read(log->fd, text, bytes)) > 0 || (got < 0 && errno == EPIPE)) {
		if (got > 0 && log->records)
			note_record(xids, text, (size_t)got, pid);
		else if (got > 0)
			note_file(xids, text, (size_t)got, pid);
	}
}

void suite_log_await(struct suite_log *log)
{
	static char text[65536];
	struct xids xids = {0};

	for (unsigned int waited = 0; log->fd >= 0 && waited < FIRST_LINE_MS; waited++) {
		struct pollfd more = {.fd = log->fd, .events = POLLIN};

		read_log(log, &xids, text, sizeof(text), 0);
		if (xids.lines > 0)
			break;
		/* A regular file is always ready. */
		if (log->records)
			(void)poll(&more, 1, 1);
		else
			suite_sleep_ms(1);
	}
	fd_closep(&log->fd);
}

void suite_log_facts(struct suite_log *log, pid_t pid)
{
	struct xids xids = {0};
	static char text[65536];
	char list[128] = "";

	if (log->fd < 0) {
		fact_text("xids", "unreadable");
		return;
	}
	read_log(log, &xids, text, sizeof(text), pid);
	for (size_t i = 0; i < xids.count; i++)
		(void)snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%u",
			       i ? " " : "", xids.numbers[i]);
	fact_text("xids", "%s", xids.count ? list : "none");
	fact_yes("xid_names_pid", xids.named);
	fd_closep(&log->fd);
}

void suite_log_line_facts(struct suite_log *log, pid_t pid)
{
	struct xids xids = {0};
	static char text[65536];
	char name[32];

	if (log->fd < 0) {
		fact_text("lines", "unreadable");
		return;
	}
	read_log(log, &xids, text, sizeof(text), pid);
	fact("lines", (long long)xids.lines);
	for (size_t i = 0; i < xids.lines && i < LINES; i++) {
		(void)snprintf(name, sizeof(name), "line_%zu", i + 1);
		fact_text(name, "%u %s", xids.of_line[i].number,
			  xids.of_line[i].named ? "with its pid" : "without a pid");
	}
	fd_closep(&log->fd);
}
