/* SPDX-License-Identifier: MIT */
/*
 * Description: amounts add up and never below zero, and what is not known stays so; what a dead pid has left goes to
 * the processes of which it can be shown that they hold it, and to nobody else.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "holders/accounting.h"

#define MIB (UINT64_C(1) << 20)

/* ---- sums ---- */

static struct amounts_gpu gpu_of(struct amounts_process *processes, uint32_t count, uint64_t used)
{
	struct amounts_gpu gpu = AMOUNTS_GPU_NONE;

	gpu.memory = gpu.listed = AMOUNTS_ANSWERED;
	gpu.used_bytes = used;
	gpu.processes = processes;
	gpu.process_count = count;
	accounting_sum(&gpu);
	return gpu;
}

static void used_is_attributed_and_unattributed(void **state)
{
	struct amounts_process processes[] = {{20, AMOUNTS_COMPUTE, 3 * MIB},
					      {10, AMOUNTS_COMPUTE, 4 * MIB}};
	struct amounts_gpu gpu = gpu_of(processes, 2, 9 * MIB);

	(void)state;
	assert_int_equal(gpu.attributed_bytes, 7 * MIB);
	assert_int_equal(gpu.unattributed_bytes, 2 * MIB);
	assert_int_equal(gpu.processes[0].pid, 10);
}

static void nobody_listed_is_all_unattributed(void **state)
{
	struct amounts_gpu gpu = gpu_of(NULL, 0, 9 * MIB);

	(void)state;
	assert_int_equal(gpu.attributed_bytes, 0);
	assert_int_equal(gpu.unattributed_bytes, 9 * MIB);
}

static void more_attributed_than_used_is_not_negative(void **state)
{
	struct amounts_process processes[] = {{20, AMOUNTS_COMPUTE, 3 * MIB},
					      {10, AMOUNTS_COMPUTE, UINT64_MAX - 1}};
	struct amounts_gpu gpu = gpu_of(processes, 2, 9 * MIB);

	(void)state;
	assert_int_equal(gpu.attributed_bytes, UINT64_MAX - 1);
	assert_int_equal(gpu.unattributed_bytes, 0);
}

static void an_unknown_amount_makes_the_rest_unknown(void **state)
{
	struct amounts_process processes[] = {{20, AMOUNTS_COMPUTE, 3 * MIB},
					      {10, AMOUNTS_COMPUTE, GW_UNKNOWN}};
	struct amounts_gpu gpu = gpu_of(processes, 2, 9 * MIB);

	(void)state;
	assert_int_equal(gpu.attributed_bytes, 3 * MIB);
	assert_true(gpu.unattributed_bytes == GW_UNKNOWN);
	gpu = gpu_of(processes, 0, GW_UNKNOWN);
	assert_true(gpu.unattributed_bytes == GW_UNKNOWN);
	gpu.listed = AMOUNTS_UNSUPPORTED;
	accounting_sum(&gpu);
	assert_true(gpu.attributed_bytes == GW_UNKNOWN);
	gpu = AMOUNTS_GPU_NONE;
	gpu.listed = AMOUNTS_ANSWERED;
	gpu.used_bytes = 5;
	gpu.processes_left_out = 1;
	accounting_sum(&gpu);
	assert_true(gpu.unattributed_bytes == GW_UNKNOWN);
}

static void a_pid_that_is_listed_twice_counts_once(void **state)
{
	struct amounts_process processes[] = {{10, AMOUNTS_COMPUTE, 3 * MIB},
					      {20, AMOUNTS_COMPUTE, GW_UNKNOWN},
					      {10, AMOUNTS_GRAPHICS, 4 * MIB},
					      {20, AMOUNTS_COMPUTE, MIB}};
	struct amounts_gpu gpu = gpu_of(processes, 4, 9 * MIB);

	(void)state;
	assert_int_equal(gpu.process_count, 2);
	assert_int_equal(gpu.processes[0].used_bytes, 4 * MIB);
	assert_int_equal(gpu.processes[0].list, AMOUNTS_SOME_LIST);
	assert_int_equal(gpu.processes[1].used_bytes, MIB);
	assert_int_equal(gpu.unattributed_bytes, 4 * MIB);
}

/* ---- what the dead have left: a scene of up to eight processes ---- */

static struct scene {
	struct scan scan;
	struct scan_process processes[8];
	struct scan_reference references[32];
	uint32_t groups[8];
	struct amounts_gpu gpus[2];
	struct amounts amounts;
	struct account_line lines[4];
	struct accounting accounting;
} scene;

static int set_up(void **state)
{
	(void)state;
	memset(&scene, 0, sizeof(scene));
	scene.scan.processes = scene.processes;
	scene.scan.references = scene.references;
	scene.scan.pid_namespace_initial = true;
	scene.gpus[0].minor = 0;
	scene.gpus[1].minor = 1;
	scene.amounts.gpus = scene.gpus;
	scene.amounts.gpu_count = 2;
	scene.accounting.share.group = scene.groups;
	scene.accounting.lines = scene.lines;
	return 0;
}

static void add_reference(enum scan_device_kind kind, int32_t minor, enum scan_held held)
{
	uint32_t process = scene.scan.process_count - 1;

	scene.references[scene.scan.reference_count++] = (struct scan_reference){
		.process = process, .held = held, .device = {kind, minor, minor}, .count = 1};
	scene.processes[process].reference_count++;
}

/* A process of a GROUP that holds what CUDA opens, on the GPU with this MINOR. */
static struct scan_process *add_process(int32_t pid, uint32_t group, int32_t minor)
{
	struct scan_process *process = &scene.processes[scene.scan.process_count];

	*process = (struct scan_process){
		.pid = pid, .pgid = pid, .sid = 1, .first_reference = scene.scan.reference_count};
	scene.groups[scene.scan.process_count++] = group;
	if (group >= scene.accounting.share.group_count)
		scene.accounting.share.group_count = group + 1;
	add_reference(SCAN_CONTROL, -1, SCAN_FD);
	add_reference(SCAN_GPU, minor, SCAN_FD);
	add_reference(SCAN_UVM, -1, SCAN_FD);
	return process;
}

static struct account_line *add_line(uint32_t gpu, int32_t pid, enum account_owner owner)
{
	struct account_line *line = &scene.lines[scene.accounting.line_count++];

	*line = (struct account_line){.gpu = gpu,
				      .pid = pid,
				      .used_bytes = 100 * MIB,
				      .owner = owner,
				      .process = ACCOUNT_NONE,
				      .group = ACCOUNT_NONE};
	return line;
}

static void settle(void)
{
	accounting_settle(&scene.scan, &scene.amounts, &scene.accounting);
}

static void the_group_of_a_dead_leader_has_its_bytes(void **state)
{
	struct account_line *line;

	(void)state;
	add_process(50, 0, 0);
	add_process(51, 1, 0)->pgid = 40;
	add_process(52, 1, 0);
	scene.scan.unseen.denied = 3; /* lineage is proof all the same */
	line = add_line(0, 40, ACCOUNT_DEAD);
	settle();
	assert_int_equal(line->owner, ACCOUNT_SHARED);
	assert_int_equal(line->group, 1);
	assert_int_equal(line->proof, ACCOUNT_LINEAGE);
}

static void a_number_that_was_given_away_is_no_lineage(void **state)
{
	struct account_line *line;

	(void)state;
	add_process(50, 0, 0);
	add_process(51, 1, 0)->sid = 40;
	line = add_line(0, 40, ACCOUNT_STRANGER);
	line->number_taken = true;
	settle();
	assert_int_equal(line->owner, ACCOUNT_STRANGER);
	assert_int_equal(line->group, ACCOUNT_NONE);
}

static void the_only_one_who_can_hold_it_has_it(void **state)
{
	struct account_line *line;

	(void)state;
	add_process(50, 0, 0);
	add_process(51, 0, 0);
	add_process(60, 1, 0); /* a client of its own */
	add_process(70, 2, 1); /* of another GPU */
	add_line(0, 60, ACCOUNT_HOLDER)->process = 2;
	line = add_line(0, 40, ACCOUNT_DEAD);
	settle();
	assert_int_equal(line->owner, ACCOUNT_SHARED);
	assert_int_equal(line->group, 0);
	assert_int_equal(line->proof, ACCOUNT_ONLY_ONE);
}

static void who_only_asks_nvml_is_not_taken_for_a_holder(void **state)
{
	struct account_line *line;

	(void)state;
	add_process(50, 0, 0);
	scene.scan.reference_count--; /* no nvidia-uvm */
	scene.processes[0].reference_count--;
	line = add_line(0, 40, ACCOUNT_DEAD);
	settle();
	assert_int_equal(line->owner, ACCOUNT_DEAD);
	add_process(51, 1, 0);
	settle();
	assert_int_equal(line->owner, ACCOUNT_SHARED);
	assert_int_equal(line->group, 1);
}

static void where_two_can_hold_it_nobody_has_it(void **state)
{
	struct account_line *line;

	(void)state;
	add_process(50, 0, 0);
	add_process(51, 1, 0);
	line = add_line(0, 40, ACCOUNT_DEAD);
	settle();
	assert_int_equal(line->owner, ACCOUNT_DEAD);
	assert_int_equal(line->proof, ACCOUNT_NO_PROOF);
}

static void where_two_are_dead_nobody_has_it(void **state)
{
	(void)state;
	add_process(50, 0, 0);
	add_line(0, 40, ACCOUNT_DEAD);
	add_line(0, 41, ACCOUNT_DEAD);
	settle();
	assert_int_equal(scene.lines[0].owner, ACCOUNT_DEAD);
	assert_int_equal(scene.lines[1].owner, ACCOUNT_DEAD);
}

/* Each alone could hide another holder. */
static void where_not_all_was_seen_being_the_only_one_proves_nothing(void **state)
{
	uint32_t *const counts[] = {&scene.scan.unseen.denied,
				    &scene.scan.unseen.late,
				    &scene.scan.unseen.failed,
				    &scene.scan.unseen.sockets_denied,
				    &scene.scan.unseen.in_flight_hidden,
				    &scene.scan.unseen.rings_busy,
				    &scene.scan.unseen.rings_unreachable,
				    &scene.scan.unseen.exiting_unknown,
				    &scene.scan.unseen.references_dropped};
	struct account_line *line;

	(void)state;
	add_process(50, 0, 0);
	line = add_line(0, 40, ACCOUNT_DEAD);
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		*counts[i] = 1;
		settle();
		assert_int_equal(line->owner, ACCOUNT_DEAD);
		*counts[i] = 0;
	}
	scene.scan.pid_namespace_initial = false;
	settle();
	assert_int_equal(line->owner, ACCOUNT_DEAD);
	scene.scan.pid_namespace_initial = true;
	scene.accounting.share.incomplete = true;
	settle();
	assert_int_equal(line->owner, ACCOUNT_DEAD);
	scene.accounting.share.incomplete = false;
	settle();
	assert_int_equal(line->owner, ACCOUNT_SHARED);
}

static void a_mapping_alone_holds_nothing(void **state)
{
	struct account_line *line;

	(void)state;
	add_process(50, 0, 0)->pgid = 40;
	for (uint32_t i = 0; i < 3; i++)
		scene.references[i].held = SCAN_MAPPING;
	line = add_line(0, 40, ACCOUNT_DEAD);
	settle();
	assert_int_equal(line->owner, ACCOUNT_DEAD);
}

static void bytes_are_added_up_for_a_process(void **state)
{
	(void)state;
	add_process(50, 0, 0);
	add_line(0, 50, ACCOUNT_HOLDER)->process = 0;
	add_line(1, 50, ACCOUNT_HOLDER)->process = 0;
	assert_int_equal(accounting_process_bytes(&scene.accounting, 0, 0), 100 * MIB);
	assert_int_equal(accounting_process_bytes(&scene.accounting, ACCOUNT_NONE, 0), 200 * MIB);
	assert_true(accounting_process_bytes(&scene.accounting, 0, 1) == GW_UNKNOWN);
	scene.lines[0].used_bytes = GW_UNKNOWN;
	assert_true(accounting_process_bytes(&scene.accounting, 0, 0) == GW_UNKNOWN);
	assert_int_equal(accounting_find_gpu(&scene.amounts, 1), 1);
	assert_int_equal(accounting_find_gpu(&scene.amounts, -1), ACCOUNT_NONE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(used_is_attributed_and_unattributed),
		cmocka_unit_test(nobody_listed_is_all_unattributed),
		cmocka_unit_test(more_attributed_than_used_is_not_negative),
		cmocka_unit_test(an_unknown_amount_makes_the_rest_unknown),
		cmocka_unit_test(a_pid_that_is_listed_twice_counts_once),
		cmocka_unit_test_setup(the_group_of_a_dead_leader_has_its_bytes, set_up),
		cmocka_unit_test_setup(a_number_that_was_given_away_is_no_lineage, set_up),
		cmocka_unit_test_setup(the_only_one_who_can_hold_it_has_it, set_up),
		cmocka_unit_test_setup(who_only_asks_nvml_is_not_taken_for_a_holder, set_up),
		cmocka_unit_test_setup(where_two_can_hold_it_nobody_has_it, set_up),
		cmocka_unit_test_setup(where_two_are_dead_nobody_has_it, set_up),
		cmocka_unit_test_setup(where_not_all_was_seen_being_the_only_one_proves_nothing,
				       set_up),
		cmocka_unit_test_setup(a_mapping_alone_holds_nothing, set_up),
		cmocka_unit_test_setup(bytes_are_added_up_for_a_process, set_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
