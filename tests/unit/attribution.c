/* SPDX-License-Identifier: MIT */
/*
 * Description: an Xid without a pid is given to a process only if no other one can have caused it: not with
 * two candidates, a stranger, an unknown or cut list, hidden processes, or a predecessor that has just
 * ended.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ward/attribution.h"

#define SECOND 1000000000ULL
#define AT     (100 * SECOND)
#define NEVER  GW_FOREVER
#define LIVES  GW_FOREVER
#define MIB    (1ULL << 20)
#define WORKER                                                                                     \
	{                                                                                          \
		10, 1, LIVES                                                                       \
	}
#define STANDBY                                                                                    \
	{                                                                                          \
		11, NEVER, LIVES                                                                   \
	}

static const struct {
	const char *what;
	struct attribution_process ours[4];
	uint32_t pids[4]; /* NVML's list, up to the first 0 */
	int wanted;
} rows[] = {
	{"one worker", {WORKER}, {10}, 0},
	{"a standby beside it", {STANDBY, WORKER}, {11, 10}, 1},
	{"a standby that is not up yet", {STANDBY, WORKER}, {10}, 1},
	{"two workers", {WORKER, {12, 1, LIVES}}, {10, 12}, ATTRIBUTION_SEVERAL},
	{"two workers, one of them listed", {WORKER, {12, 1, LIVES}}, {10}, ATTRIBUTION_SEVERAL},
	{"only standbys", {STANDBY}, {11}, ATTRIBUTION_NOBODY},
	{"nobody at all", {{0}}, {0}, ATTRIBUTION_NOBODY},
	{"a stranger", {WORKER}, {10, 99}, ATTRIBUTION_FOREIGN},
	{"a stranger alone", {WORKER}, {99}, ATTRIBUTION_FOREIGN},
	{"a pid that is none", {WORKER}, {10, 0xffffffff}, ATTRIBUTION_FOREIGN},
	{"a worker that is not listed", {WORKER}, {0}, ATTRIBUTION_NOBODY},
	{"promoted after the event", {{10, AT + 1, LIVES}}, {10}, ATTRIBUTION_NOBODY},
	{"promoted at the event", {{10, AT, LIVES}}, {10}, 0},
	{"the predecessor has just ended",
	 {{10, 1, AT - SECOND / 5}, {12, AT - SECOND / 5, LIVES}},
	 {12},
	 ATTRIBUTION_SEVERAL},
	{"the predecessor ended after the event",
	 {{10, 1, AT + SECOND}, {12, AT + 1, LIVES}},
	 {12},
	 0},
	{"the predecessor ended long before", {{10, 1, AT - 2 * SECOND}, {12, 1, LIVES}}, {12}, 1},
	{"it ended, and is still listed", {{10, 1, AT + 1}}, {10}, 0},
	{"it ended, and is listed no more", {{10, 1, AT + 1}}, {0}, 0},
	{"listed twice", {WORKER}, {10, 10}, 0},
};

static struct probe_processes list;

static void fill_list(const uint32_t *pids)
{
	memset(&list, 0, sizeof(list));
	while (list.count < 4 && pids[list.count] != 0) {
		list.list[list.count].pid = pids[list.count];
		list.list[list.count].used_bytes = 500 * MIB;
		list.count++;
	}
	list.total = list.count;
}

static size_t count_of(const struct attribution_process *ours)
{
	size_t count = 0;

	while (count < 4 && ours[count].pid != 0)
		count++;
	return count;
}

static void only_the_one_who_can_have_is_named(void **state)
{
	const struct attribution_view view = {.processes = &list, .sees_all = true};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		int found;

		fill_list(rows[i].pids);
		found = attribution_find(rows[i].ours, count_of(rows[i].ours), &view, AT);
		if (found != rows[i].wanted)
			fail_msg("%s: %d, not %d", rows[i].what, found, rows[i].wanted);
	}
}

static const struct attribution_process worker[] = {WORKER};
static const uint32_t its_pid[] = {10, 0};

static void a_list_that_is_not_whole_names_nobody(void **state)
{
	struct attribution_view view = {.sees_all = true};

	(void)state;
	assert_int_equal(attribution_find(worker, 1, &view, AT), ATTRIBUTION_UNKNOWN);
	fill_list(its_pid);
	view.processes = &list;
	assert_int_equal(attribution_find(worker, 1, &view, AT), 0);
	list.total = 2;
	assert_int_equal(attribution_find(worker, 1, &view, AT), ATTRIBUTION_UNKNOWN);
	/* As NVML says it when its room is too small. */
	list.count = 0;
	assert_int_equal(attribution_find(worker, 1, &view, AT), ATTRIBUTION_UNKNOWN);
	list.total = list.count = PROBE_PROCESSES_MAX + 1;
	assert_int_equal(attribution_find(worker, 1, &view, AT), ATTRIBUTION_UNKNOWN);
}

static void memory_of_nobody_is_somebody_hidden(void **state)
{
	struct probe_memory memory = {.used_bytes = 500 * MIB, .reserved_bytes = MIB};
	struct attribution_view view = {.processes = &list};

	(void)state;
	fill_list(its_pid);
	assert_int_equal(attribution_find(worker, 1, &view, AT), ATTRIBUTION_FOREIGN);
	view.memory = &memory;
	assert_int_equal(attribution_find(worker, 1, &view, AT), 0);
	memory.used_bytes = 829 * MIB;
	assert_int_equal(attribution_find(worker, 1, &view, AT), ATTRIBUTION_FOREIGN);
	view.kept_bytes = 300 * MIB;
	assert_int_equal(attribution_find(worker, 1, &view, AT), 0);
	view.kept_bytes = UINT64_MAX;
	assert_int_equal(attribution_find(worker, 1, &view, AT), 0);
	view.kept_bytes = 300 * MIB;
	/* Without its own line, reserved memory hides in what is used. */
	memory.reserved_bytes = GW_UNKNOWN;
	assert_int_equal(attribution_find(worker, 1, &view, AT), ATTRIBUTION_FOREIGN);
	memory.reserved_bytes = MIB;
	memory.used_bytes = GW_UNKNOWN;
	assert_int_equal(attribution_find(worker, 1, &view, AT), ATTRIBUTION_FOREIGN);
	memory.used_bytes = 500 * MIB;
	list.list[0].used_bytes = GW_UNKNOWN;
	assert_int_equal(attribution_find(worker, 1, &view, AT), ATTRIBUTION_FOREIGN);
}

static void every_doubt_has_its_words(void **state)
{
	(void)state;
	for (int doubt = ATTRIBUTION_SEVERAL; doubt <= 0; doubt++) {
		for (int other = ATTRIBUTION_SEVERAL; other < doubt; other++)
			assert_string_not_equal(attribution_text(doubt), attribution_text(other));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_the_one_who_can_have_is_named),
		cmocka_unit_test(a_list_that_is_not_whole_names_nobody),
		cmocka_unit_test(memory_of_nobody_is_somebody_hidden),
		cmocka_unit_test(every_doubt_has_its_words),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
