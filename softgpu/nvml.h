/* SPDX-License-Identifier: MIT */
/*
 * All that the emulated libnvidia-ml.so.1 knows in one process, and the door of every call.
 *
 * Runs in: a process that asks NVML, in any of its threads.
 * Invariant: nothing here changes the machine, except that reading the table removes what is dead. As
 * with the real library, what was opened does not work in a forked child, and the device files are held
 * open but keep no memory alive.
 * Read next: table.h, nvml_device.c, nvml_events.c.
 */
#ifndef SOFTGPU_NVML_H
#define SOFTGPU_NVML_H

#include <pthread.h>
#include <sys/types.h>

#include "gpu/nvml_abi.h"
#include "table.h"

struct nvml_device {
	uint32_t index;
};

struct nvml {
	pthread_mutex_t lock;
	unsigned int uses; /* nvmlInit_v2 less nvmlShutdown */
	pid_t pid;	   /* of the first nvmlInit_v2 */
	struct machine machine;
	struct table table;
	int fds[SOFT_DEVICES_MAX + 1];
	struct nvml_device handles[2][SOFT_DEVICES_MAX];
	/* One of the two arrays: handles of the parent are none in a forked child. */
	struct nvml_device *devices;
};

extern struct nvml nvml;

/* Takes the lock, and waits or fails as the settings want. Returns what the call must give. */
int nvml_enter(void);

/* The same for a call on DEVICE. */
int nvml_enter_device(const struct nvml_device *device);

/* Gives the lock back. Returns RESULT. */
int nvml_leave(int result);

/* Copies TEXT into a caller's array of SIZE bytes. */
int nvml_text(char *out, unsigned int size, const char *text);

#endif
