/* SPDX-License-Identifier: MIT */
#include "freezer.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define FREEZER "/sys/fs/cgroup/freezer"

bool freezer_is_there(void)
{
	return access(FREEZER, W_OK) == 0;
}

static void write_text(const struct freezer *freezer, const char *name, const char *text)
{
	char path[192];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/%s", freezer->path, name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	(void)close(fd);
}

void freezer_freeze(struct freezer *freezer, uint32_t number, int32_t pid)
{
	char text[32];

	(void)snprintf(freezer->path, sizeof(freezer->path), FREEZER "/gpuward-test-%d-%u",
		       getpid(), number);
	assert_int_equal(mkdir(freezer->path, 0700), 0);
	(void)snprintf(text, sizeof(text), "%d", pid);
	write_text(freezer, "cgroup.procs", text);
	write_text(freezer, "freezer.state", "FROZEN");
}

void freezer_thaw(const struct freezer *freezer)
{
	write_text(freezer, "freezer.state", "THAWED");
}

void freezer_done(const struct freezer *freezer)
{
	assert_int_equal(rmdir(freezer->path), 0);
}
