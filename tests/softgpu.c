/* SPDX-License-Identifier: MIT */
#include "softgpu.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "../softgpu/table.h"
#include "common/fd.h"

static char dir[256];
static struct machine machine;
static struct table table;

void soft_setting(const char *settings)
{
	char path[300];
	char next[300];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/settings", dir);
	(void)snprintf(next, sizeof(next), "%s/settings.next", dir);
	fd = open(next, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, settings, strlen(settings)), strlen(settings));
	assert_int_equal(close(fd), 0);
	assert_int_equal(rename(next, path), 0);
}

void soft_dir_new(const char *settings)
{
	const char *base = getenv("TMPDIR");

	assert_string_equal(dir, "");
	(void)snprintf(dir, sizeof(dir), "%s/softgpu-XXXXXX", base && *base ? base : "/tmp");
	assert_non_null(mkdtemp(dir));
	assert_int_equal(setenv("GPUWARD_SOFT_DIR", dir, 1), 0);
	if (settings)
		soft_setting(settings);
}

const char *soft_dir(void)
{
	return dir;
}

/* Returns false where no process ever used the machine. */
static bool look(void)
{
	char path[300];

	(void)snprintf(path, sizeof(path), "%s/state", dir);
	if (access(path, F_OK) < 0)
		return false;
	if (strcmp(machine.dir, dir) != 0) {
		machine = (struct machine){.state = MACHINE_OK};
		settings_init(&machine.settings);
		(void)snprintf(machine.dir, sizeof(machine.dir), "%s", dir);
	}
	assert_int_equal(table_open(&table, &machine), 0);
	table_close(&table);
	return true;
}

uint64_t soft_used_bytes(int device)
{
	return look() ? table_used_bytes(&table, (uint32_t)device, TABLE_NONE) : 0;
}

uint64_t soft_pinned_bytes(void)
{
	return look() ? table_pinned_bytes(&table) : 0;
}

int soft_clients(void)
{
	int count = 0;

	if (!look())
		return 0;
	for (uint32_t i = 0; i < table.header.clients; i++)
		count += table.clients[i].used == 1;
	return count;
}

char *soft_text(const char *name)
{
	char path[300];
	char *text = calloc(1, 65536);
	int fd;

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_non_null(text);
	assert_true(fd >= 0);
	assert_true(read(fd, text, 65535) >= 0);
	assert_int_equal(close(fd), 0);
	return text;
}

/* Removes the files of the directory PATH and then itself. */
static void remove_folder(const char *path)
{
	DIR *folder = opendir(path);
	struct dirent *entry;

	if (!folder)
		return;
	while ((entry = readdir(folder))) {
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			(void)unlinkat(dirfd(folder), entry->d_name, 0);
	}
	(void)closedir(folder);
	(void)rmdir(path);
}

void soft_reset(void)
{
	static const char *const files[] = {"state", "kmsg", "events"};
	char path[300];

	(void)snprintf(path, sizeof(path), "%s/dev", dir);
	remove_folder(path);
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		(void)snprintf(path, sizeof(path), "%s/%s", dir, files[i]);
		(void)unlink(path);
	}
	machine.dir[0] = '\0';
}

void soft_dir_remove(void)
{
	char path[300];

	(void)snprintf(path, sizeof(path), "%s/dev", dir);
	remove_folder(path);
	remove_folder(dir);
	assert_int_equal(access(dir, F_OK), -1);
	dir[0] = '\0';
	machine.dir[0] = '\0';
	assert_int_equal(unsetenv("GPUWARD_SOFT_DIR"), 0);
}

void soft_wait_unused(void)
{
	struct timespec pause = {.tv_nsec = 10000000};
	uint64_t deadline = now_ns() + 10000000000U;
	uint64_t used = 1;

	while (used && now_ns() < deadline) {
		used = 0;
		for (int i = 0; i < SOFT_DEVICES_MAX; i++)
			used += soft_used_bytes(i);
		if (used)
			(void)nanosleep(&pause, NULL);
	}
	assert_int_equal(used, 0);
}

void soft_dir_free(void)
{
	soft_wait_unused();
	soft_dir_remove();
}
