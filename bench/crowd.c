/* SPDX-License-Identifier: MIT */
#include "crowd.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Enough for many; a child that is not one of the crowd has none of it. */
#define STACK_BYTES 65536

/* What a child says when it is in place. Small enough to be written at once. */
struct report {
	uint32_t index;
	int32_t error;
	struct crowd_holder holder;
};

/* One process of the crowd, in its own memory. */
struct part {
	const struct crowd_options *options;
	struct report report;
	int report_fd;
	int life_fd;
	uint64_t random;
	bool holds; /* or is the look-alike of its kind */
};

/* In a child, which is one part only. */
static struct part part;

static uint64_t next_random(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15ULL);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

static _Noreturn void stay(void)
{
	char byte;

	if (part.report_fd >= 0 &&
	    write(part.report_fd, &part.report, sizeof(part.report)) != sizeof(part.report))
		_exit(1);
	(void)close(part.report_fd);
	while (read(part.life_fd, &byte, 1) < 0 && errno == EINTR)
		;
	_exit(0);
}

static _Noreturn void give_up(int error)
{
	part.report.error = error ? error : EIO;
	stay();
}

/* The device, or for a look-alike something else. */
static int open_one(const char *device)
{
	int fd = open(part.holds ? device : "/dev/null", O_RDWR | O_CLOEXEC);

	if (fd < 0)
		give_up(errno);
	return fd;
}

static void open_plain(uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		int pair[2];

		switch (next_random(&part.random) % 6) {
		case 0:
			(void)open("/etc/passwd", O_RDONLY | O_CLOEXEC);
			break;
		case 1:
			(void)eventfd(0, EFD_CLOEXEC);
			break;
		case 2:
			if (pipe2(pair, O_CLOEXEC) < 0)
				give_up(errno);
			i++;
			break;
		case 3:
			(void)socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair);
			i++;
			break;
		case 4:
			(void)open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
			break;
		default:
			(void)open("/dev/null", O_RDWR | O_CLOEXEC);
			break;
		}
	}
}

static void start_thread(void *(*run)(void *argument))
{
	pthread_attr_t attributes;
	pthread_t thread;

	(void)pthread_attr_init(&attributes);
	(void)pthread_attr_setstacksize(&attributes, STACK_BYTES);
	if (pthread_create(&thread, &attributes, run, NULL))
		give_up(EAGAIN);
}

/* Whether the first thread has ended, as everybody can see. */
static bool is_leader_dead(void)
{
	char path[32], text[512];
	ssize_t got;
	char *end;
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", getpid());
	fd = open(path, O_RDONLY | O_CLOEXEC);
	got = read(fd, text, sizeof(text) - 1);
	(void)close(fd);
	if (got <= 0)
		give_up(EIO);
	text[got] = '\0';
	end = strrchr(text, ')');
	return end && end[2] == 'Z';
}

static void *run_zombie_leader(void *argument)
{
	(void)argument;
	while (!is_leader_dead())
		(void)sched_yield();
	part.report.holder.tid = (int32_t)syscall(SYS_gettid);
	stay();
}

static void *run_own_table(void *argument)
{
	(void)argument;
	if (unshare(CLONE_FILES) < 0)
		give_up(errno);
	part.report.holder.tid = (int32_t)syscall(SYS_gettid);
	part.report.holder.fd = open_one(part.options->device);
	stay();
}

static void hold_in_flight(void)
{
	int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};
	int type = types[next_random(&part.random) % 3];
	int count = 1 + (int)(next_random(&part.random) % 4);
	int fd = open_one(part.options->device);
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(4 * sizeof(int))];
	} control = {0};
	char byte = 'x';
	struct iovec data = {.iov_base = &byte, .iov_len = 1};
	struct msghdr message = {.msg_iov = &data,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = CMSG_SPACE((size_t)count * sizeof(int))};
	int pair[2];

	if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, pair) < 0)
		give_up(errno);
	control.header = (struct cmsghdr){.cmsg_level = SOL_SOCKET,
					  .cmsg_type = SCM_RIGHTS,
					  .cmsg_len = CMSG_LEN((size_t)count * sizeof(int))};
	for (int i = 0; i < count; i++)
		memcpy(CMSG_DATA(&control.header) + (size_t)i * sizeof(int), &fd, sizeof(int));
	if (sendmsg(pair[0], &message, 0) != 1)
		give_up(errno);
	(void)close(fd);
	if (next_random(&part.random) % 2)
		(void)close(pair[0]);
	part.report.holder.fd = pair[1];
	part.report.holder.count = count;
}

static void hold_in_ring(void)
{
	struct io_uring_params parameters = {0};
	int ring = (int)syscall(SYS_io_uring_setup, 4, &parameters);
	int fds[4] = {-1, -1, -1, -1};
	int fd = open_one(part.options->device);
	int count = 1 + (int)(next_random(&part.random) % 3);

	for (int i = 0; i < count; i++)
		fds[i + 1] = fd;
	if (ring < 0 || syscall(SYS_io_uring_register, ring, IORING_REGISTER_FILES, fds, 4) < 0)
		give_up(errno);
	(void)close(fd);
	part.report.holder.fd = ring;
	part.report.holder.count = count;
}

static void hold_mapping(void)
{
	const char *path = part.holds ? part.options->mappable : "/etc/passwd";
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int count = 1 + (int)(next_random(&part.random) % 3);

	for (int i = 0; i < count; i++) {
		/* Not next to each other with equal rights: the kernel would join them. */
		int rights = i % 2 ? PROT_NONE : PROT_READ;

		if (mmap(NULL, 4096, rights, MAP_PRIVATE, fd, 0) == MAP_FAILED)
			give_up(errno);
	}
	(void)close(fd);
	part.report.holder.fd = -1;
	part.report.holder.count = count;
}

static _Noreturn void take_part(void)
{
	struct crowd_holder *holder = &part.report.holder;

	holder->pid = getpid();
	holder->count = 1;
	open_plain(part.options->descriptors);
	switch (holder->kind) {
	case CROWD_FD:
		holder->fd = open_one(part.options->device);
		break;
	case CROWD_OTHER_NODE:
		holder->fd = open_one(part.options->other_node);
		break;
	case CROWD_ZOMBIE_LEADER:
		holder->fd = open_one(part.options->device);
		start_thread(run_zombie_leader);
		syscall(SYS_exit, 0);
		break;
	case CROWD_OWN_TABLE:
		start_thread(run_own_table);
		for (;;)
			(void)pause();
	case CROWD_IN_FLIGHT:
		hold_in_flight();
		break;
	case CROWD_IO_URING:
		hold_in_ring();
		break;
	case CROWD_MAPPING:
		hold_mapping();
		break;
	case CROWD_NOT:
	case CROWD_KINDS:
		break;
	}
	stay();
}

/* Starts and reaps processes that end at once, some with a device-like name, until its life ends. */
static _Noreturn void churn(void)
{
	unsigned int started = 0;

	if (write(part.report_fd, &part.report, sizeof(part.report)) != sizeof(part.report))
		_exit(1);
	for (;;) {
		struct pollfd life = {.fd = part.life_fd};
		pid_t pid;

		if (poll(&life, 1, 0) > 0)
			_exit(0);
		pid = fork();
		if (pid == 0) {
			open_plain(started % 32);
			_exit(0);
		}
		if (pid > 0)
			(void)waitpid(pid, NULL, 0);
		started++;
	}
}

static bool is_possible(const struct crowd_options *options, enum crowd_kind kind)
{
	if (kind == CROWD_OTHER_NODE)
		return options->other_node != NULL;
	if (kind == CROWD_MAPPING)
		return options->mappable != NULL;
	return true;
}

static enum crowd_kind random_kind(const struct crowd_options *options, uint64_t *random)
{
	enum crowd_kind kind;

	do {
		kind = (enum crowd_kind)(1 + next_random(random) % (CROWD_KINDS - 1));
	} while (!is_possible(options, kind));
	return kind;
}

/* What process INDEX is. One in four of those that do not hold is the look-alike of a holder. */
static void choose(const struct crowd_options *options, uint32_t index, uint64_t *random)
{
	uint32_t left = options->processes - index;
	static uint32_t holders_left;

	if (index == 0)
		holders_left = options->holders;
	part.holds = holders_left > 0 && next_random(random) % left < holders_left;
	holders_left -= part.holds;
	part.report.holder.kind = random_kind(options, random);
	if (!part.holds && next_random(random) % 4)
		part.report.holder.kind = CROWD_NOT;
}

static pid_t start(uint32_t index, int report[2], int life[2], bool churner)
{
	pid_t parent = getpid();
	pid_t pid;

	part.report.index = index;
	part.report_fd = report[1];
	part.life_fd = life[0];
	pid = fork();
	if (pid != 0)
		return pid;
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	(void)close(report[0]);
	(void)close(life[1]);
	if (churner)
		churn();
	take_part();
}

static int by_pid(const void *a, const void *b)
{
	const struct crowd_holder *left = a, *right = b;

	return (left->pid > right->pid) - (left->pid < right->pid);
}

/* Waits for the reports. HOLDS has who is a holder. */
static int gather(int report_fd, const bool *holds, struct crowd *crowd)
{
	for (uint32_t i = 0; i < crowd->pid_count; i++) {
		struct report report;

		if (read(report_fd, &report, sizeof(report)) != sizeof(report))
			return -EIO;
		if (report.error)
			return -report.error;
		if (holds[report.index])
			crowd->holders[crowd->holder_count++] = report.holder;
	}
	qsort(crowd->holders, crowd->holder_count, sizeof(*crowd->holders), by_pid);
	return 0;
}

static int start_all(const struct crowd_options *options, bool *holds, int report[2],
		     struct crowd *crowd)
{
	uint32_t all = options->processes + options->churners;
	int life[2];

	if (pipe2(life, O_CLOEXEC) < 0)
		return -errno;
	crowd->life = life[1];
	for (uint32_t i = 0; i < all; i++) {
		uint64_t random = options->seed * 1000003 + i;
		pid_t pid;

		memset(&part, 0, sizeof(part));
		part.options = options;
		if (i < options->processes)
			choose(options, i, &random);
		part.random = random;
		holds[i] = part.holds;
		pid = start(i, report, life, i >= options->processes);
		if (pid < 0) {
			(void)close(life[0]);
			return -errno;
		}
		crowd->pids[crowd->pid_count++] = pid;
	}
	(void)close(life[0]);
	return 0;
}

int crowd_open(const struct crowd_options *options, struct crowd *ret_crowd)
{
	size_t all = (size_t)options->processes + options->churners;
	struct crowd crowd = {.life = -1};
	bool *holds = calloc(all + 1, sizeof(*holds));
	int report[2];
	int code = -ENOMEM;

	crowd.holders = calloc(all + 1, sizeof(*crowd.holders));
	crowd.pids = calloc(all + 1, sizeof(*crowd.pids));
	if (holds && crowd.holders && crowd.pids) {
		code = pipe2(report, O_CLOEXEC) < 0 ? -errno : 0;
		if (code == 0) {
			code = start_all(options, holds, report, &crowd);
			(void)close(report[1]);
			if (code == 0)
				code = gather(report[0], holds, &crowd);
			(void)close(report[0]);
		}
	}
	free(holds);
	if (code < 0)
		crowd_close(&crowd);
	else
		*ret_crowd = crowd;
	return code;
}

void crowd_close(struct crowd *crowd)
{
	if (crowd->life >= 0)
		(void)close(crowd->life);
	for (uint32_t i = 0; i < crowd->pid_count; i++) {
		while (waitpid(crowd->pids[i], NULL, 0) < 0 && errno == EINTR)
			;
	}
	free(crowd->holders);
	free(crowd->pids);
	*crowd = (struct crowd){.life = -1};
}

const struct crowd_holder *crowd_find(const struct crowd *crowd, pid_t pid)
{
	struct crowd_holder key = {.pid = pid};

	return crowd->holder_count
		       ? bsearch(&key, crowd->holders, crowd->holder_count, sizeof(key), by_pid)
		       : NULL;
}

const char *crowd_kind_name(enum crowd_kind kind)
{
	static const char *const names[CROWD_KINDS] = {
		[CROWD_NOT] = "none",
		[CROWD_FD] = "fd",
		[CROWD_ZOMBIE_LEADER] = "zombie leader",
		[CROWD_OWN_TABLE] = "thread's own table",
		[CROWD_IN_FLIGHT] = "in flight",
		[CROWD_IO_URING] = "io_uring",
		[CROWD_OTHER_NODE] = "other node",
		[CROWD_MAPPING] = "mapping",
	};

	return kind < CROWD_KINDS ? names[kind] : "?";
}
