/* SPDX-License-Identifier: MIT */
/*
 * The drill: stages GPU faults and memory releases on this machine's GPU, and takes the times.
 *
 * Runs in: command line. The path through the files:
 *
 *	drill.c          options, the order of things, the exit code
 *	drill_crash.c    each kind of fault through a real pool, and what people do without one
 *	drill_release.c  each way in which a process with device memory ends, and two ghosts
 *	drill_print.c    tables and the chart; drill_json.c the same as JSON
 *	drill_worker.c   what runs in workers and forked children: the only part that calls CUDA
 *
 * All times are CLOCK_MONOTONIC, which all processes share; one that is not known is GW_UNKNOWN.
 */
#ifndef GPUWARD_CLI_DRILL_H
#define GPUWARD_CLI_DRILL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gpuward.h>

#include "cli/drill_worker.h"
#include "probe/client.h"

#define DRILL_REPEAT_MAX 100

struct drill_options {
	bool crash;
	bool release;
	bool json;
	int32_t device;
	uint32_t repeat;
	bool kinds[DRILL_KINDS];
	uint64_t memory_bytes;
};

/* The moments of one recovery. */
enum drill_mark {
	MARK_LAUNCHED, /* the bad kernel was launched */
	MARK_NOTICED,  /* the ward knew */
	MARK_GONE,     /* the old process was reaped */
	MARK_BACK,     /* NVML no longer charges memory to it */
	MARK_GOOD,     /* the next good kernel was done, in a new process */
	DRILL_MARKS,
};

/* One kind of fault. Times are medians after the launch. */
struct drill_crash {
	int kind;
	bool ok;	 /* the right code, and a recovery, each time */
	int32_t cuda;	 /* what CUDA said */
	uint32_t source; /* enum gw_source of the last run */
	uint64_t after_ns[DRILL_MARKS];
	int32_t reset_result;  /* of cuDevicePrimaryCtxReset after the fault, in the same process */
	int32_t reset_next;    /* of the first call after it */
	uint64_t cold_ns;      /* by hand: fault, exit, wait, fork, first good kernel */
	struct gw_error error; /* code 0: none */
};

enum drill_way {
	WAY_SIGKILL,
	WAY_SIGTERM,
	WAY_EXIT,
	WAY_FAULT,
	WAY_EXPORTED,
	WAY_FORKED,
	DRILL_WAYS,
};

/* One way to end. Times are medians after the process was told to end. */
struct drill_release {
	enum drill_way way;
	bool ok;
	uint64_t bytes;
	uint64_t gone_ns; /* the process was reaped */
	uint64_t back_ns; /* the memory was back; for a ghost: after the last holder let go */
	uint64_t
		held_bytes; /* a ghost's: still in use when the process was gone; GW_UNKNOWN: no ghost */
	int32_t listed_pid; /* a ghost's: whom NVML names; -1 nobody, -2 not known */
	bool listed_is_dead;
	struct gw_error error;
};

struct drill {
	struct drill_options options;
	struct probe probe;
	uint32_t nvml_index; /* PROBE_DEVICE_UNKNOWN: nothing can be asked of NVML */
	struct probe_driver driver;
	struct probe_device device;
	uint64_t used_before_bytes;
	uint64_t used_after_bytes;
	struct drill_crash crash[DRILL_KINDS];
	size_t n_crash;
	struct drill_release release[DRILL_WAYS];
	size_t n_release;
};

/* Fill drill->crash and drill->release. Return 0, or the code of what made going on useless. */
int drill_crash_run(struct drill *drill, struct gw_error *ret_error);
int drill_release_run(struct drill *drill, struct gw_error *ret_error);

void drill_print(const struct drill *drill);
/* Whether this build has jansson; without it drill_json() returns -ENOSYS. */
bool drill_has_json(void);
/* Returns 0 or -errno. */
int drill_json(const struct drill *drill);

/* Bytes in use on the device, or GW_UNKNOWN. A hung driver ends the drill: the probe's error tells. */
uint64_t drill_used(struct drill *drill);

/* The middle one of COUNT values, which it sorts; GW_UNKNOWN where one is unknown. */
uint64_t drill_median(uint64_t *values, size_t count);

const char *drill_way_name(enum drill_way way);
const char *drill_source_name(uint32_t source);

/* drill_chart.c: a bar for each fault, and for the same by hand, on one scale of time. */
void drill_chart(const struct drill *drill);

#endif
