/* SPDX-License-Identifier: MIT */
/*
 * Hears of GPU faults from NVML, through the probe process, in the ward's event loop.
 *
 * Runs in: ward. NVML can hang with the driver, so nothing here waits for it: questions are sent, replies
 * are taken when they come, and a probe that is late is killed and given up. A source that does not work is
 * said, and tried again after a pause that doubles up to a minute; at most one process at a time, so that a
 * driver that hangs collects none.
 *
 *	NVML's event names a GPU and no process. So the probe is asked who is on that GPU, and the event is
 *	handed on with the answer, or without one: attribution.h decides what it is worth.
 *
 * Invariant: every event is handed on once, in order; those for which there was no room are counted.
 * Read next: probe/client.h, attribution.h.
 */
#ifndef GPUWARD_WARD_GPU_EVENTS_H
#define GPUWARD_WARD_GPU_EVENTS_H

#include <gpuward.h>
#include <stdbool.h>
#include <stdint.h>

#include "linux/loop.h"
#include "probe/client.h"

/* For NVML's start, which initialises the GPUs where nobody else holds them. */
#define GPU_EVENTS_START_NS	30000000000ULL
#define GPU_EVENTS_PAUSE_MIN_NS 1000000000ULL
#define GPU_EVENTS_PAUSE_MAX_NS 64000000000ULL

/* One Xid. */
struct gpu_event {
	uint64_t at_ns; /* NVML gave it to the probe; CLOCK_MONOTONIC */
	int32_t xid;
	bool ends_process; /* whoever caused it can do no CUDA work any more */
	const struct probe_processes *processes; /* on this GPU, soon after; NULL: not known */
	const struct probe_memory *memory;	 /* the same; only where needs_memory is set */
	char pci[32];				 /* as NVML writes it, or "" */
};

enum gpu_events_state {
	GPU_EVENTS_OFF = 0,
	GPU_EVENTS_PAUSE, /* there is no probe, or one that was given up and is not gone yet */
	GPU_EVENTS_START, /* the probe was asked to watch */
	GPU_EVENTS_IDLE,
	GPU_EVENTS_PROCESSES, /* it was asked who is on the GPU of the first event */
	GPU_EVENTS_MEMORY,    /* and for that GPU's memory */
};

/* All zero is its beginning, but for what the owner sets. */
struct gpu_events {
	/* Set by the owner. Both callbacks may call gpu_events_stop(). */
	void (*event)(struct gpu_events *events, const struct gpu_event *event);
	/* Whether events are heard: code 0, or why not. Called when that changes. */
	void (*changed)(struct gpu_events *events, const struct gw_error *error);
	void *owner;
	bool needs_memory;
	/* For tests; 0: as above, PROBE_DEADLINE_NS, and the program that is installed. */
	uint64_t start_ns;
	uint64_t deadline_ns;
	uint64_t pause_min_ns;
	uint64_t pause_max_ns;
	const char *program;

	struct loop *loop;
	struct probe probe;
	struct loop_source socket_source; /* both watch copies, which nobody else closes */
	struct loop_source exit_source;
	struct loop_timer timer; /* when the answer, or the next attempt, is due */
	enum gpu_events_state state;
	uint64_t pause_ns;	 /* the next one */
	uint64_t heard_since_ns; /* GW_FOREVER: this probe has not begun */
	struct gw_error said;
	bool has_said;
	struct probe_xid queue[PROBE_EVENTS_MAX];
	uint32_t first;
	uint32_t count;
	uint64_t dropped; /* for want of room, here or in the probe */
	struct probe_processes processes;
	bool has_processes;
};

/*
 * Starts the probe. Call it once for each EVENTS, which stays where it is until the loop is done with.
 * Returns 0, and `changed` says whether it works; or -errno when the program cannot be started at all.
 */
int gpu_events_open(struct gpu_events *events, struct loop *loop, struct gw_error *ret_error);

/* No more callbacks: kills the probe, and lets the loop reap it. Never blocks. */
void gpu_events_stop(struct gpu_events *events);

/* For when the loop has ended. The probe is gone on return, which takes half a second at most; one that hangs
 * in the driver is left behind, killed. Works on one that was never opened, if it is all zero. */
void gpu_events_close(struct gpu_events *events);

#endif
