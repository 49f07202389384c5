/* SPDX-License-Identifier: MIT */
/*
 * The switches of the emulated machine: the text file `settings` in its directory, one `key=value` a
 * line, `#` begins a comment. README.md lists the keys.
 *
 * Runs in: every process that loads the emulated driver. Never writes the file.
 * Invariant: a file that cannot be understood as a whole changes nothing and is reported with its line.
 * Read next: machine.h, which reads the file again when it changed.
 */
#ifndef SOFTGPU_SETTINGS_H
#define SOFTGPU_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SOFT_DEVICES_MAX 64

struct settings {
	uint64_t devices;
	uint64_t memory_bytes[SOFT_DEVICES_MAX];
	uint64_t reserved_bytes;      /* of each device, never available */
	uint64_t context_bytes;	      /* what a context costs */
	uint64_t context_small_bytes; /* the same with the smallest stack */
	uint64_t primed_bytes;	      /* what cuInit alone costs, on device 0 */
	uint64_t delays;	      /* 0 none, 1 as measured */
	uint64_t nvml_hang;
	uint64_t cuda_hang;
	uint64_t nvml_error;	     /* every NVML call returns this, unless 0 */
	uint64_t mismatch;	     /* library and kernel driver differ */
	uint64_t lost;		     /* this device fell off the bus; SOFT_DEVICES_MAX: none */
	uint64_t recovery_action;    /* enum nvml_recovery_action */
	uint64_t xid_lines;	     /* faults are written to the kernel log */
	uint64_t xid_early_pid;	     /* the second line of an Xid 13 has the pid already */
	uint64_t xid_events;	     /* faults are announced by NVML */
	uint64_t pinnable_bytes;     /* host memory that all processes can pin */
	uint64_t host_register;	     /* cuMemHostRegister works */
	uint64_t read_only_register; /* and for memory that is mapped for reading */
	uint64_t cuda_version;
	char driver_version[32];
};

void settings_init(struct settings *settings);

/* What CUDA calls the total: the memory of DEVICE without what is reserved. */
uint64_t settings_usable_bytes(const struct settings *settings, uint32_t device);

/*
 * Changes SETTINGS by TEXT (which ends with a zero byte and is used up). Returns 0, or -EINVAL with a
 * reason in WHY; SETTINGS is then untouched.
 */
int settings_parse(struct settings *settings, char *text, char *why, size_t why_bytes);

#endif
