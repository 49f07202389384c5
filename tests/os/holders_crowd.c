/* SPDX-License-Identifier: MIT */
/*
 * Description: in random crowds of processes that hold a device in every way, and others that only look like it,
 * with processes that start and end all the while, a scan finds every holder, says how it holds, and names nobody
 * else.
 *
 *	test-holders_crowd [--scenes N] [--seed S]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "../bench/crowd.h"
#include "stage.h"

static uint64_t scenes = 12;
static uint64_t seed = 1;

static enum scan_held held_as(const struct crowd_holder *holder)
{
	switch (holder->kind) {
	case CROWD_ZOMBIE_LEADER:
	case CROWD_OWN_TABLE:
		return SCAN_FD_OF_THREAD;
	case CROWD_IN_FLIGHT:
		return SCAN_IN_FLIGHT;
	case CROWD_IO_URING:
		return SCAN_IO_URING;
	case CROWD_MAPPING:
		return SCAN_MAPPING;
	case CROWD_NOT:
	case CROWD_FD:
	case CROWD_OTHER_NODE:
	case CROWD_KINDS:
		break;
	}
	return SCAN_FD;
}

static void check_holder(const struct crowd_holder *holder, uint64_t scene)
{
	const struct scan_reference *reference = stage_reference(holder->pid, held_as(holder));

	if (!reference || stage_count_all(holder->pid) != 1)
		fail_msg("seed %llu: %s of %d: %u references", (unsigned long long)scene,
			 crowd_kind_name(holder->kind), holder->pid, stage_count_all(holder->pid));
	if (reference->fd != holder->fd || reference->tid != holder->tid ||
	    reference->count != (uint32_t)holder->count ||
	    (stage.kind == STAGE_NUMBERS && holder->kind != CROWD_MAPPING &&
	     reference->other_node != (holder->kind == CROWD_OTHER_NODE)))
		fail_msg("seed %llu: %s of %d: fd %d not %d, tid %d not %d, count %u not %d",
			 (unsigned long long)scene, crowd_kind_name(holder->kind), holder->pid,
			 reference->fd, holder->fd, reference->tid, holder->tid, reference->count,
			 holder->count);
}

/* By device numbers other tests that run now are holders too, and true ones. */
static bool is_ours(const struct crowd *crowd, const struct scan_process *process)
{
	if (stage.kind == STAGE_EMULATED || process->ppid == getpid())
		return true;
	for (uint32_t i = 0; i < crowd->pid_count; i++) {
		if (crowd->pids[i] == process->ppid)
			return true;
	}
	return false;
}

static void check_scene(const struct crowd *crowd, uint64_t scene)
{
	stage_scan();
	for (uint32_t i = 0; i < crowd->holder_count; i++)
		check_holder(&crowd->holders[i], scene);
	for (uint32_t i = 0; i < stage.scan.process_count; i++) {
		pid_t pid = stage.scan.processes[i].pid;

		if (stage_count_all(pid) > 0 && !crowd_find(crowd, pid) &&
		    is_ours(crowd, &stage.scan.processes[i]))
			fail_msg("seed %llu: %d (%s) holds nothing", (unsigned long long)scene, pid,
				 stage.scan.processes[i].comm);
	}
	assert_int_equal(stage.scan.unseen.late, 0);
	assert_int_equal(stage.scan.unseen.failed, 0);
}

static void run_scenes(void)
{
	char other[96];
	struct crowd_options options = {
		.processes = 24,
		.descriptors = 8,
		.churners = 2,
		.device = stage.device,
		.mappable = stage.mappable,
	};

	(void)snprintf(other, sizeof(other), "%s/other", stage.folder);
	if (stage.kind == STAGE_NUMBERS) {
		assert_int_equal(mknod(other, S_IFCHR | 0600, makedev(1, 7)), 0);
		options.other_node = other;
	}
	for (uint64_t i = 0; i < scenes; i++) {
		struct crowd crowd;
		int code;

		options.seed = seed + i;
		options.holders = (uint32_t)(options.seed * 7 % 13);
		code = crowd_open(&options, &crowd);
		if (code < 0)
			fail_msg("no crowd: %s", strerror(-code));
		check_scene(&crowd, options.seed);
		crowd_close(&crowd);
	}
}

static void crowds_are_seen_as_they_are(void **state)
{
	(void)state;
	stage_begin(STAGE_EMULATED);
	run_scenes();
	stage_finish();
}

static void crowds_are_seen_as_they_are_by_device_numbers(void **state)
{
	(void)state;
	stage_begin(STAGE_NUMBERS);
	run_scenes();
	stage_finish();
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(crowds_are_seen_as_they_are),
		cmocka_unit_test(crowds_are_seen_as_they_are_by_device_numbers),
	};

	for (int i = 1; i + 1 < argc; i += 2) {
		uint64_t *number = strcmp(argv[i], "--scenes") == 0 ? &scenes : &seed;

		*number = strtoull(argv[i + 1], NULL, 10);
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
