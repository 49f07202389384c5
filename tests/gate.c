/* SPDX-License-Identifier: MIT */
#include "gate.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static void pipe_path(char *to, size_t bytes, const char *path, const char *which)
{
	(void)snprintf(to, bytes, "%s/%s", path, which);
}

/* Both ways: an end of its own keeps opening from blocking, and the pipe from ending. */
static int pipe_new(const char *path, const char *which)
{
	char name[256];
	int fd;

	pipe_path(name, sizeof(name), path, which);
	assert_int_equal(mkfifo(name, 0600), 0);
	fd = open(name, O_RDWR | O_CLOEXEC | O_NONBLOCK);
	assert_true(fd >= 0);
	return fd;
}

void gate_new(struct gate *gate, const char *name)
{
	const char *base = getenv("TMPDIR");

	(void)snprintf(gate->path, sizeof(gate->path), "%.100s/gate-%.40s-XXXXXX",
		       base && *base ? base : "/tmp", name);
	assert_non_null(mkdtemp(gate->path));
	gate->arrived_fd = pipe_new(gate->path, "arrived");
	gate->open_fd = pipe_new(gate->path, "open");
}

void gate_done(struct gate *gate)
{
	char name[256];

	(void)close(gate->arrived_fd);
	(void)close(gate->open_fd);
	pipe_path(name, sizeof(name), gate->path, "arrived");
	assert_int_equal(unlink(name), 0);
	pipe_path(name, sizeof(name), gate->path, "open");
	assert_int_equal(unlink(name), 0);
	assert_int_equal(rmdir(gate->path), 0);
}

struct gate_visit gate_expect(const struct gate *gate)
{
	struct pollfd fd = {.fd = gate->arrived_fd, .events = POLLIN};
	struct gate_visit visit = {-1, -1};

	if (poll(&fd, 1, 10000) != 1 ||
	    read(gate->arrived_fd, &visit, sizeof(visit)) != sizeof(visit))
		fail_msg("nobody came to %s", gate->path);
	assert_true(visit.pid > 1 && visit.parent > 0);
	return visit;
}

void gate_open(const struct gate *gate)
{
	assert_int_equal(write(gate->open_fd, "x", 1), 1);
}

void gate_wait(const char *path)
{
	gate_wait_as(path, (struct gate_visit){getpid(), getppid()});
}

void gate_wait_as(const char *path, struct gate_visit visit)
{
	char name[256];
	char byte;
	int fd;

	pipe_path(name, sizeof(name), path, "arrived");
	fd = open(name, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, &visit, sizeof(visit)) != sizeof(visit))
		_exit(80);
	(void)close(fd);
	pipe_path(name, sizeof(name), path, "open");
	fd = open(name, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || read(fd, &byte, 1) < 0)
		_exit(81);
	(void)close(fd);
}
