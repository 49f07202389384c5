/* SPDX-License-Identifier: MIT */
/*
 * A made-up scene for the causes: processes that hold devices, what NVML says, what else is known.
 *
 *	scene_begin()			one GPU of 100 GiB, nothing unseen, nobody there
 *	scene_process(7, 1, 7, 7, "a")	with ascending pids; then what it holds
 *	scene_client(ALONE)
 *	scene_listed(7, 512)
 *	verdict = scene_only(CAUSE_X)	NULL where it does not apply
 *	scene_end()
 *
 * Runs in: a test's process; every failure fails the test (cmocka).
 */
#ifndef TESTS_SCENE_H
#define TESTS_SCENE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "holders/cause.h"

#define SCENE_MAX  64
#define SCENE_MIB  (1ULL << 20)
#define SCENE_HUGE 5000000000ULL /* longer than any teardown without pinned memory */

struct scene {
	struct scan scan;
	struct scan_process processes[SCENE_MAX];
	struct scan_reference references[SCENE_MAX * 4];
	uint32_t groups[SCENE_MAX];
	struct scan_relative relatives[SCENE_MAX];
	int32_t denied[SCENE_MAX];
	struct amounts amounts;
	struct amounts_gpu gpu;
	struct amounts_process listed[SCENE_MAX];
	struct amounts before;
	struct amounts_gpu gpu_before;
	struct amounts_process listed_before[SCENE_MAX];
	struct causes_facts facts;
	struct fact_label labels[SCENE_MAX];
	struct fact_watch watch;
	struct causes_input input;
	struct verdicts verdicts;
};

extern struct scene scene;

int scene_begin(void **state); /* fit for cmocka's set-up */
int scene_end(void **state);

/* A process in state S. Its number must be above those before. */
struct scan_process *scene_process(int32_t pid, int32_t ppid, int32_t pgid, int32_t sid,
				   const char *comm);
/* What the last process holds. */
struct scan_reference *scene_holds(enum scan_held held, enum scan_device_kind kind);
/* nvidiactl, nvidia0 and nvidia-uvm; in common with process number FIRST of the scene, or ALONE. */
#define ALONE UINT32_MAX
void scene_client(uint32_t first);
void scene_relative(int32_t pid, const char *comm, char state);
/* NVML's entry, ascending; and used memory that is in none. */
void scene_listed(int32_t pid, uint64_t mib);
void scene_unattributed(uint64_t mib);
/* What a direct look at an entry's pid says. */
struct fact_label *scene_label(int32_t pid, enum amounts_truth exists, char state);
/* The same process was seen for TIME_NS. */
void scene_watched(const struct scan_process *process, uint64_t time_ns, enum amounts_truth moved);

/* All of them, into scene.verdicts; and the first verdict of CAUSE, or NULL. */
void scene_judge(void);
const struct verdict *scene_verdict(enum cause cause);
/* The first verdict of CAUSE when it alone is asked for. */
const struct verdict *scene_only(enum cause cause);
/* Does a piece of evidence WHAT have VALUE in it? */
bool scene_says(const struct verdict *verdict, const char *what, const char *value);

#endif
