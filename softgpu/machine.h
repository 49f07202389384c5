/* SPDX-License-Identifier: MIT */
/*
 * The directory that is the emulated machine, named by the environment variable GPUWARD_SOFT_DIR.
 *
 *	settings	the switches (settings.h); optional
 *	state		the shared table (table.h)
 *	kmsg		the kernel log: records as /dev/kmsg gives them
 *	events		NVML's events
 *	dev/		nvidiactl, nvidia-uvm, nvidia0, nvidia1 ...
 *
 * Runs in: every process that loads the emulated driver. Never ends the process, and says every
 * trouble once on standard error.
 * Invariant: an empty directory becomes a machine at the first use, by however many processes at once.
 * Read next: table.h.
 */
#ifndef SOFTGPU_MACHINE_H
#define SOFTGPU_MACHINE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "settings.h"

#define SOFT_PATH_MAX 512

enum machine_state {
	MACHINE_ABSENT = 0, /* no GPUWARD_SOFT_DIR: a machine without a GPU */
	MACHINE_OK = 1,
	MACHINE_BROKEN = 2, /* the directory or a file in it cannot be used; was said */
};

struct machine {
	int state; /* enum machine_state */
	char dir[SOFT_PATH_MAX];
	struct settings settings;
	struct stat stamp; /* of the settings file as it was read; all zero where there is none */
	uint64_t id;	   /* of the table's header: tells a directory from its replacement */
	bool told;	   /* the present trouble was said */
};

/* Finds the directory, reads the settings, makes what is missing. Returns an enum machine_state. */
int machine_open(struct machine *machine);

/* Looks again: the settings are read anew if the file changed. Returns an enum machine_state. */
int machine_refresh(struct machine *machine);

/* Opens NAME in the directory with open() FLAGS; O_CLOEXEC is added. Returns a descriptor or -errno. */
int machine_file(const struct machine *machine, const char *name, int flags);

/* The device file of DEVICE, or of `nvidiactl` (-1) or `nvidia-uvm` (-2). */
int machine_device_file(const struct machine *machine, int device, int flags);

/* Says TEXT on standard error unless the present trouble was said. Returns MACHINE_BROKEN. */
int machine_trouble(struct machine *machine, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Says one line on standard error: "softgpu: ...". */
void machine_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
