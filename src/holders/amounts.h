/* SPDX-License-Identifier: MIT */
/*
 * How much memory is used on each GPU, and by whom as NVML says it: plain numbers, beside the scan's references.
 *
 * Runs in: command line and ward's helpers. Plain data: whoever fills it asks the probe and owns the arrays; causes
 * only read it. Tests fill it with made-up scenes.
 *
 * A pid here is NVML's label for whoever created the memory. It can be dead, or somebody else's by now: it is never
 * the target of a signal, and whether it holds anything is the scan's to say.
 *
 * Invariant: what is not known is GW_UNKNOWN, -1 or AMOUNTS_UNKNOWN, never 0. Where used, reserved and all
 * processes' bytes are known, used = attributed + unattributed, and reserved is beside them.
 * Read next: scan.h, cause.h.
 */
#ifndef GPUWARD_HOLDERS_AMOUNTS_H
#define GPUWARD_HOLDERS_AMOUNTS_H

#include <gpuward.h>
#include <stdbool.h>
#include <stdint.h>

/* How the question went, for all GPUs or for one. */
enum amounts_answer {
	AMOUNTS_NOT_ASKED = 0,
	AMOUNTS_ANSWERED,
	AMOUNTS_ABSENT,	     /* no NVML here, or no driver loaded */
	AMOUNTS_HUNG,	     /* no answer before the deadline: the driver may hang */
	AMOUNTS_UNSUPPORTED, /* this GPU or this driver does not tell */
	AMOUNTS_LOST,	     /* NVML says that the GPU is lost, or must be reset */
	AMOUNTS_FAILED,	     /* any other error: `error` */
};

enum amounts_truth {
	AMOUNTS_UNKNOWN = 0,
	AMOUNTS_NO,
	AMOUNTS_YES,
};

/* In which of NVML's lists a process was. */
enum amounts_list {
	AMOUNTS_SOME_LIST = 0, /* not known in which */
	AMOUNTS_COMPUTE,
	AMOUNTS_GRAPHICS,
	AMOUNTS_MPS,
};

struct amounts_process {
	int32_t pid; /* label, in the pid namespace of the probe; one entry for each pid of a GPU */
	enum amounts_list list;
	uint64_t used_bytes; /* GW_UNKNOWN: NVML does not say */
};

struct amounts_gpu {
	uint32_t index; /* in NVML's order, which is not that of minors */
	int32_t minor;	/* N of /dev/nvidiaN; -1 */
	char uuid[96];	/* "" unknown */
	char name[96];
	char pci[32];
	enum amounts_answer memory; /* how asking for its memory went */
	enum amounts_answer listed; /* how asking for its processes went */
	struct gw_error error;	    /* of the first that did not go well; else code 0 */

	uint64_t total_bytes;
	uint64_t free_bytes;
	uint64_t used_bytes;	     /* without reserved memory where that is known */
	uint64_t reserved_bytes;     /* by the driver; GW_UNKNOWN: it is inside `used` then */
	uint64_t attributed_bytes;   /* sum over `processes` of what is known */
	uint64_t unattributed_bytes; /* used - attributed; 0 where processes overlap; GW_UNKNOWN
					where a process's bytes, or used, are not known */
	struct amounts_process *processes; /* ascending pid */
	uint32_t process_count;
	uint32_t processes_left_out; /* NVML has more than could be told */

	/* Not everybody asks for these. */
	uint64_t baseline_bytes;  /* unattributed as learnt when nothing ran; GW_UNKNOWN */
	uint64_t bar1_used_bytes; /* GW_UNKNOWN */
	uint64_t bar1_total_bytes;
	/* Over the time that was watched; -1 where nobody watched. */
	int32_t utilization_lowest_percent;
	int32_t utilization_highest_percent;
	uint64_t watched_ns; /* for how long utilization and memory stood as they are; GW_UNKNOWN */
	enum amounts_truth persistence;
	enum amounts_truth mig;
	uint32_t recovery_action; /* enum probe_action; UINT32_MAX unknown */
};

/* For a new one: all that is unknown, said so. */
#define AMOUNTS_GPU_NONE                                                                           \
	((struct amounts_gpu){.minor = -1,                                                         \
			      .total_bytes = GW_UNKNOWN,                                           \
			      .free_bytes = GW_UNKNOWN,                                            \
			      .used_bytes = GW_UNKNOWN,                                            \
			      .reserved_bytes = GW_UNKNOWN,                                        \
			      .attributed_bytes = GW_UNKNOWN,                                      \
			      .unattributed_bytes = GW_UNKNOWN,                                    \
			      .baseline_bytes = GW_UNKNOWN,                                        \
			      .bar1_used_bytes = GW_UNKNOWN,                                       \
			      .bar1_total_bytes = GW_UNKNOWN,                                      \
			      .utilization_lowest_percent = -1,                                    \
			      .utilization_highest_percent = -1,                                   \
			      .watched_ns = GW_UNKNOWN,                                            \
			      .recovery_action = UINT32_MAX})

struct amounts {
	enum amounts_answer answer; /* of NVML as a whole */
	struct gw_error error;	    /* where it is not AMOUNTS_ANSWERED */
	char driver[80];	    /* "580.159.04"; "" unknown */
	uint64_t taken_ns;	    /* CLOCK_MONOTONIC */
	struct amounts_gpu *gpus;   /* ascending index */
	uint32_t gpu_count;
};

#endif
