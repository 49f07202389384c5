/* SPDX-License-Identifier: MIT */
/*
 * NVML's events: a set remembers a place in the file `events`, and waits for the file to grow.
 *
 * Runs in: a process that asks NVML. nvmlEventSetWait_v2 blocks for as long as it was told, without the
 * lock, so the other calls go on.
 * Invariant: events from before the registration are not delivered, those after it are, in order.
 * Read next: xid.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "common/fd.h"
#include "export.h"
#include "nvml.h"
#include "xid.h"

/* Where inotify has no watch left, the file is looked at this often. */
#define LOOK_EVERY_MS 5

struct nvml_event_set {
	int file_fd;
	int watch_fd; /* inotify, or -1 */
	uint64_t types[SOFT_DEVICES_MAX];
};

static int new_watch(void)
{
	char path[SOFT_PATH_MAX + 64];
	int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);

	(void)snprintf(path, sizeof(path), "%s/events", nvml.machine.dir);
	if (fd >= 0 && inotify_add_watch(fd, path, IN_MODIFY) < 0)
		fd_closep(&fd);
	return fd;
}

static int new_set(struct nvml_event_set **ret_set)
{
	struct nvml_event_set *set = calloc(1, sizeof(*set));

	if (!set)
		return NVML_ERROR_MEMORY;
	set->file_fd = machine_file(&nvml.machine, "events", O_RDONLY);
	if (set->file_fd < 0 || lseek(set->file_fd, 0, SEEK_END) < 0) {
		fd_close(set->file_fd);
		free(set);
		return NVML_ERROR_OPERATING_SYSTEM;
	}
	set->watch_fd = new_watch();
	*ret_set = set;
	return NVML_SUCCESS;
}

SOFT_EXPORT int nvmlEventSetCreate(struct nvml_event_set **set)
{
	int result = nvml_enter();

	if (!result)
		result = set ? new_set(set) : NVML_ERROR_INVALID_ARGUMENT;
	return nvml_leave(result);
}

SOFT_EXPORT int nvmlEventSetFree(struct nvml_event_set *set)
{
	int result = nvml_enter();

	if (!set)
		return nvml_leave(result ? result : NVML_ERROR_INVALID_ARGUMENT);
	fd_close(set->file_fd);
	fd_close(set->watch_fd);
	free(set);
	return nvml_leave(result);
}

SOFT_EXPORT int nvmlDeviceGetSupportedEventTypes(struct nvml_device *device, uint64_t *types)
{
	int result = nvml_enter_device(device);

	if (!result && !types)
		result = NVML_ERROR_INVALID_ARGUMENT;
	if (!result)
		*types = NVML_EVENT_XID;
	return nvml_leave(result);
}

SOFT_EXPORT int nvmlDeviceRegisterEvents(struct nvml_device *device, uint64_t types,
					 struct nvml_event_set *set)
{
	int result = nvml_enter_device(device);

	if (!result && !set)
		result = NVML_ERROR_INVALID_ARGUMENT;
	if (!result && types & ~(uint64_t)NVML_EVENT_XID)
		result = NVML_ERROR_NOT_SUPPORTED;
	if (!result)
		set->types[device->index] |= types;
	return nvml_leave(result);
}

/* The next event that SET wants, if there is one. Half a record means that it is still being written. */
static bool next_event(struct nvml_event_set *set, struct nvml_event *event)
{
	struct xid_event record;
	off_t at = lseek(set->file_fd, 0, SEEK_CUR);

	while (pread(set->file_fd, &record, sizeof(record), at) == (ssize_t)sizeof(record)) {
		at = lseek(set->file_fd, (off_t)sizeof(record), SEEK_CUR);
		if (record.device >= SOFT_DEVICES_MAX || !(set->types[record.device] & record.type))
			continue;
		*event = (struct nvml_event){
			.device = &nvml.devices[record.device],
			.type = record.type,
			.data = record.data,
			.gpu_instance = UINT32_MAX,
			.compute_instance = UINT32_MAX,
		};
		return true;
	}
	return false;
}

/* Waits for the file to change, at most until DEADLINE_NS. */
static void wait_change(const struct nvml_event_set *set, uint64_t deadline_ns)
{
	struct pollfd watch = {.fd = set->watch_fd, .events = POLLIN};
	uint64_t now = now_ns();
	uint64_t left_ms = deadline_ns > now ? (deadline_ns - now + 999999) / 1000000 : 0;
	char buffer[4096];

	/* Not for ever: a switch may be flipped, or the machine be gone. */
	if (left_ms > 200)
		left_ms = 200;
	if (set->watch_fd < 0 && left_ms > LOOK_EVERY_MS)
		left_ms = LOOK_EVERY_MS;
	(void)poll(&watch, 1, (int)left_ms);
	if (watch.revents & POLLIN)
		(void)!read(set->watch_fd, buffer, sizeof(buffer));
}

SOFT_EXPORT int nvmlEventSetWait_v2(struct nvml_event_set *set, struct nvml_event *event,
				    unsigned int timeout_ms)
{
	uint64_t deadline_ns = now_ns() + timeout_ms * 1000000ULL;
	int result = nvml_enter();

	if (!result && (!set || !event))
		result = NVML_ERROR_INVALID_ARGUMENT;
	while (!result && !next_event(set, event)) {
		if (now_ns() >= deadline_ns)
			return nvml_leave(NVML_ERROR_TIMEOUT);
		(void)nvml_leave(0);
		wait_change(set, deadline_ns);
		result = nvml_enter();
	}
	return nvml_leave(result);
}
