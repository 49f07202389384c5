/* SPDX-License-Identifier: MIT */
/*
 * Signs of a fault from outside of the worker: from the kernel log, and from NVML.
 *
 * Runs in: ward. A sign that names a process of the pool is an event of that process's slot. One that names
 * none counts only where no other process can have caused it (attribution.h). What is said of a process that is
 * leaving already is for the record alone. NVML is asked only where the kernel log cannot be used, since the
 * log is earlier and names the process. Read next: kernel_log.h, gpu_events.h, recovery.h.
 */
#ifndef GPUWARD_WARD_SIGNS_H
#define GPUWARD_WARD_SIGNS_H

#include "common/wire.h"
#include "ward/gpu_events.h"
#include "ward/kernel_log.h"
#include "ward/process.h"

/* Processes of the pool that ended a short time ago: a late sign may mean them. */
#define SIGNS_ENDED_MAX 32U

struct signs_ended {
	int32_t pid;
	uint64_t work_from_ns;
	uint64_t gone_ns;
	char pci[sizeof(((struct process *)0)->pci)];
};

struct signs {
	struct kernel_log kernel_log;
	struct gpu_events gpu_events;
	bool watches_nvml;
	bool sees_all; /* this is the initial pid namespace: NVML lists everybody */
	struct signs_ended ended[SIGNS_ENDED_MAX];
	uint32_t n_ended;
};

/* Starts the sources that the pool wants. One that cannot be used is said in the pool's statistics. */
void signs_begin(struct ward *ward);

/* PROCESS is gone. */
void signs_gone(const struct process *process);

/* What PROCESS says of its driver's error log: 0 or a negative code. */
void signs_error_log(struct ward *ward, int32_t code);

/* Ends the sources; the loop still runs. */
void signs_stop(struct ward *ward);

/* After the loop. */
void signs_done(struct ward *ward);

#endif
