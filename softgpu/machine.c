/* SPDX-License-Identifier: MIT */
#include "machine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/fd.h"

#define SETTINGS_MAX 65536

__attribute__((format(printf, 1, 0))) static void say(const char *format, va_list arguments)
{
	char line[1024];
	int start = snprintf(line, sizeof(line), "softgpu: ");
	int length = vsnprintf(line + start, sizeof(line) - (size_t)start - 1, format, arguments);
	size_t end = strlen(line);

	if (length < 0)
		return;
	line[end] = '\n';
	/* One write, so that lines of many processes do not mix. */
	(void)!write(STDERR_FILENO, line, end + 1);
}

void machine_say(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	say(format, arguments);
	va_end(arguments);
}

int machine_trouble(struct machine *machine, const char *format, ...)
{
	va_list arguments;

	if (!machine->told) {
		va_start(arguments, format);
		say(format, arguments);
		va_end(arguments);
	}
	machine->told = true;
	return MACHINE_BROKEN;
}

int machine_file(const struct machine *machine, const char *name, int flags)
{
	char path[SOFT_PATH_MAX + 64];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/%s", machine->dir, name);
	do {
		fd = open(path, flags | O_CLOEXEC, 0666);
	} while (fd < 0 && errno == EINTR);
	return fd < 0 ? -errno : fd;
}

int machine_device_file(const struct machine *machine, int device, int flags)
{
	char name[32];

	if (device == -1)
		return machine_file(machine, "dev/nvidiactl", flags);
	if (device == -2)
		return machine_file(machine, "dev/nvidia-uvm", flags);
	(void)snprintf(name, sizeof(name), "dev/nvidia%d", device);
	return machine_file(machine, name, flags);
}

static bool same_stamp(const struct stat *a, const struct stat *b)
{
	return a->st_ino == b->st_ino && a->st_dev == b->st_dev && a->st_size == b->st_size &&
	       a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* Reads all of FD, which must be short. Returns the number of bytes or -errno. */
static int read_all(int fd, char *text, size_t bytes)
{
	size_t length = 0;

	while (length < bytes) {
		ssize_t got = read(fd, text + length, bytes - length);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (got == 0)
			return (int)length;
		length += (size_t)got;
	}
	return -EFBIG;
}

static int read_settings(struct machine *machine)
{
	cleanup_fd int fd = machine_file(machine, "settings", O_RDONLY);
	cleanup_free char *text = NULL;
	char why[200];
	int length;

	machine->told = false;
	if (fd == -ENOENT) {
		settings_init(&machine->settings);
		machine->stamp = (struct stat){0};
		return MACHINE_OK;
	}
	if (fd < 0 || fstat(fd, &machine->stamp) < 0)
		return machine_trouble(machine, "cannot open %s/settings: %s", machine->dir,
				       strerror(fd < 0 ? -fd : errno));
	text = malloc(SETTINGS_MAX + 1);
	if (!text)
		return machine_trouble(machine, "no memory to read %s/settings", machine->dir);
	length = read_all(fd, text, SETTINGS_MAX);
	if (length < 0)
		return machine_trouble(machine, "cannot read %s/settings: %s", machine->dir,
				       strerror(-length));
	text[length] = '\0';
	if (settings_parse(&machine->settings, text, why, sizeof(why)) < 0)
		return machine_trouble(machine, "%s/%s; correct or remove it", machine->dir, why);
	return MACHINE_OK;
}

static int make_files(struct machine *machine)
{
	static const char *const files[] = {"dev/nvidiactl", "dev/nvidia-uvm", "kmsg", "events",
					    "state"};
	char path[SOFT_PATH_MAX + 64];

	(void)snprintf(path, sizeof(path), "%s/dev", machine->dir);
	if (mkdir(path, 0777) < 0 && errno != EEXIST)
		return machine_trouble(machine, "cannot make %s: %s", path, strerror(errno));
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		int fd = machine_file(machine, files[i], O_RDWR | O_CREAT);

		if (fd < 0)
			return machine_trouble(machine, "cannot make %s/%s: %s", machine->dir,
					       files[i], strerror(-fd));
		fd_close(fd);
	}
	for (int i = 0; i < (int)machine->settings.devices; i++) {
		int fd = machine_device_file(machine, i, O_RDWR | O_CREAT);

		if (fd < 0)
			return machine_trouble(machine, "cannot make %s/dev/nvidia%d: %s",
					       machine->dir, i, strerror(-fd));
		fd_close(fd);
	}
	return MACHINE_OK;
}

static int open_directory(struct machine *machine, const char *dir)
{
	struct stat status;
	int state;

	if (strlen(dir) >= sizeof(machine->dir))
		return machine_trouble(machine, "GPUWARD_SOFT_DIR is longer than %zu bytes",
				       sizeof(machine->dir) - 1);
	(void)snprintf(machine->dir, sizeof(machine->dir), "%s", dir);
	if (stat(dir, &status) < 0)
		return machine_trouble(machine, "GPUWARD_SOFT_DIR %s: %s", dir, strerror(errno));
	if (!S_ISDIR(status.st_mode))
		return machine_trouble(machine, "GPUWARD_SOFT_DIR %s is not a directory", dir);
	state = read_settings(machine);
	return state == MACHINE_OK ? make_files(machine) : state;
}

int machine_open(struct machine *machine)
{
	const char *dir = getenv("GPUWARD_SOFT_DIR");

	*machine = (struct machine){.state = MACHINE_ABSENT};
	settings_init(&machine->settings);
	if (dir && *dir)
		machine->state = open_directory(machine, dir);
	return machine->state;
}

int machine_refresh(struct machine *machine)
{
	char path[SOFT_PATH_MAX + 64];
	struct stat status = {0};

	if (machine->state == MACHINE_ABSENT)
		return MACHINE_ABSENT;
	(void)snprintf(path, sizeof(path), "%s/state", machine->dir);
	if (stat(path, &status) < 0) {
		machine->state = machine_trouble(machine, "the emulated machine %s is gone: %s",
						 machine->dir, strerror(errno));
		return machine->state;
	}
	(void)snprintf(path, sizeof(path), "%s/settings", machine->dir);
	if (stat(path, &status) < 0)
		status = (struct stat){0};
	if (!same_stamp(&status, &machine->stamp))
		machine->state = read_settings(machine);
	return machine->state;
}
