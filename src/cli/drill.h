/* SPDX-License-Identifier: MIT */
/*
 * The drill: stages GPU faults and memory releases on this machine's GPU, and takes the times.
 *
 * Runs in: command line. The path through the files:
 *
 *	drill.c            the order of things, the exit code; drill_options.c what was asked for
 *	drill_crash.c      each kind of fault, at each level of standbys, with and without state
 *	drill_run.c        one fault in a pool, followed to its end; drill_pool.c the pool
 *	drill_by_hand.c    the same without a pool, as people do it
 *	drill_bystander.c  another process on the GPU, and how long it stands still
 *	drill_release.c    each way in which a process with device memory ends, and two ghosts
 *	drill_child.c      a process of the drill's own, for those two
 *	drill_print.c      tables; drill_chart.c bars; drill_svg.c pictures; drill_json.c all of it as JSON
 *	drill_*_worker.c   what runs in workers and children: the only part that calls CUDA
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
#define DRILL_NOTES_MAX	 8
#define DRILL_NOTE_MAX	 360

/* What takes the place of a worker. */
enum drill_level {
	LEVEL_BY_HAND, /* no gpuward: the program ends, and somebody starts it again */
	LEVEL_COLD,
	LEVEL_PRIMED,
	LEVEL_HOT,
	LEVEL_HOT_1, /* hot, and CUDA_DEVICE_MAX_CONNECTIONS=1 in all processes */
	DRILL_LEVELS,
};

struct drill_options {
	bool crash;
	bool release;
	bool json;
	int32_t device;
	uint32_t repeat;
	bool kinds[DRILL_KINDS];
	bool levels[DRILL_LEVELS];
	uint64_t memory_bytes;
	uint64_t state_bytes; /* 0: no state; GW_UNKNOWN: the drill chooses */
	const char *svg_path; /* NULL: no picture */
};

/* The moments of one recovery. */
enum drill_mark {
	MARK_LAUNCHED, /* the bad kernel was launched */
	MARK_SIGN,     /* the first source spoke; by hand: CUDA told the program */
	MARK_FENCED,   /* nothing of the old process counts any more */
	MARK_READY,    /* the successor could take tasks */
	MARK_GOOD,     /* the next good kernel was done, in a new process */
	MARK_GONE,     /* the old process was reaped */
	MARK_BACK, /* NVML no longer charges memory to it: looked for where there is no standby */
	MARK_CHECKED, /* all of the state was looked at */
	DRILL_MARKS,
};

/* One kind of fault at one level, with or without state. Times are medians after the launch. */
struct drill_row {
	bool ran;
	bool ok;	  /* the right error, a recovery, the state as it was: each time */
	bool intact;	  /* with state: no word of it had changed */
	int32_t cuda;	  /* what is known of CUDA's error, or -1 */
	uint32_t source;  /* enum gw_source of the last run */
	uint32_t standby; /* enum gw_standby: the least that there was */
	uint64_t after_ns[DRILL_MARKS];
	uint64_t stall_from_ns; /* the bystander's longest round trip of the last run */
	uint64_t stall_ns;	/* its length */
};

struct drill_crash {
	int kind;
	struct drill_row rows[DRILL_LEVELS][2]; /* without and with state */
	/* Of cuDevicePrimaryCtxReset after the fault, in the same process, and of the first call after it; -1
	 * where it was not tried. */
	int32_t reset_result;
	int32_t reset_next;
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
	/* What was not as it was asked for, and why: one line each. */
	char notes[DRILL_NOTES_MAX][DRILL_NOTE_MAX];
	size_t n_notes;
};

/* Returns 0 (CLI_OK), another exit code after one line on standard error, or -1 after --help. */
int drill_parse(struct drill_options *options, int argc, char **argv);

/* A whole number in range, or -1. */
int64_t drill_number(const char *text, int64_t from, int64_t to);

/* Fill drill->crash and drill->release. Return 0, or the code of what made going on useless. */
int drill_crash_run(struct drill *drill, struct gw_error *ret_error);
int drill_release_run(struct drill *drill, struct gw_error *ret_error);

void drill_print(const struct drill *drill);
/* Whether this build has jansson; without it drill_json() returns -ENOSYS. */
bool drill_has_json(void);
/* Returns 0 or -errno. */
int drill_json(const struct drill *drill);
/* Draws the timelines into options.svg_path. Returns 0 or a code, with a message that names the path. */
int drill_svg(const struct drill *drill, struct gw_error *ret_error);

/* A bar for each level of CRASH, on one scale of time. */
void drill_chart(const struct drill_crash *crash);

/* Bytes in use on the device, or GW_UNKNOWN. A hung driver ends the drill: the probe's error tells. */
uint64_t drill_used(struct drill *drill);

/* Bytes that are free on the device, or GW_UNKNOWN. */
uint64_t drill_free(struct drill *drill);

/* The middle one of COUNT values, which it sorts; GW_UNKNOWN where one is unknown. */
uint64_t drill_median(uint64_t *values, size_t count);

/* Notes something once. */
void drill_note(struct drill *drill, const char *format, ...) __attribute__((format(printf, 2, 3)));

const char *drill_way_name(enum drill_way way);

/* As in --levels, and as people say it. */
const char *drill_level_id(enum drill_level level);
const char *drill_level_name(enum drill_level level);

#endif
