/* SPDX-License-Identifier: MIT */
/*
 * Description: causes that are about a GPU, about shared memory or about what cannot be seen are told from made-up scenes,
 * and a leak is blamed on the driver only when everything else was looked at.
 */
#include <string.h>

#include "scene.h"

static void an_exported_descriptor_is_told_with_its_doubt(void **state)
{
	const struct verdict *verdict;

	(void)state;
	(void)scene_process(100, 1, 100, 100, "keeper");
	scene_holds(SCAN_FD, SCAN_CONTROL);
	scene_unattributed(8192);
	verdict = scene_only(CAUSE_EXPORTED);
	assert_int_equal(verdict->certainty, CAUSE_LIKELY);
	assert_int_equal(verdict->policy, CAUSE_ASK);
	assert_null(scene_only(CAUSE_DRIVER_LEAK));
	/* Nothing to gain: it may as well only ask NVML. */
	scene_unattributed(0);
	verdict = scene_only(CAUSE_EXPORTED);
	assert_int_equal(verdict->certainty, CAUSE_ONE_OF);
	assert_int_equal(verdict->other, CAUSE_LIVE_OWNER);
	scene_listed(100, 5);
	assert_null(scene_only(CAUSE_EXPORTED));
}

static void an_importer_grows_when_another_one_goes(void **state)
{
	const struct verdict *verdict;

	(void)state;
	(void)scene_process(100, 1, 100, 100, "cache");
	scene_client(ALONE);
	scene_listed(100, 4706);
	assert_null(scene_only(CAUSE_IPC_IMPORTER));
	scene.input.before = &scene.before;
	scene.listed_before[0] =
		(struct amounts_process){.pid = 70, .used_bytes = 4706 * SCENE_MIB};
	scene.listed_before[1] =
		(struct amounts_process){.pid = 100, .used_bytes = 610 * SCENE_MIB};
	scene.gpu_before.process_count = 2;
	verdict = scene_only(CAUSE_IPC_IMPORTER);
	assert_int_equal(verdict->pid, 100);
	assert_int_equal(verdict->bytes, 4096 * SCENE_MIB);
	assert_true(scene_says(verdict, "gone", "70"));
	/* It did not grow, or the other one lives. */
	scene.listed_before[1].used_bytes = 4706 * SCENE_MIB;
	assert_null(scene_only(CAUSE_IPC_IMPORTER));
}

static void a_remote_importer_needs_a_fabric(void **state)
{
	(void)state;
	scene_unattributed(8192);
	assert_null(scene_only(CAUSE_REMOTE_IMPORTER));
	scene.facts.fabric = AMOUNTS_YES;
	assert_int_equal(scene_only(CAUSE_REMOTE_IMPORTER)->certainty, CAUSE_ONE_OF);
	scene.facts.fabric = AMOUNTS_UNKNOWN;
	(void)scene_process(100, 1, 100, 100, "a");
	scene_holds(SCAN_FD, SCAN_IMEX_CHANNEL);
	assert_true(scene_says(scene_only(CAUSE_REMOTE_IMPORTER), "IMEX channel", "open"));
	/* Somebody here may hold it. */
	(void)scene_process(101, 1, 101, 101, "b");
	scene_client(ALONE);
	assert_null(scene_only(CAUSE_REMOTE_IMPORTER));
}

static void registered_memory_is_told_with_its_size(void **state)
{
	const struct verdict *verdict;

	(void)state;
	(void)scene_process(100, 1, 100, 100, "rdma");
	scene_holds(SCAN_FD, SCAN_DMABUF)->bytes = 64 * SCENE_MIB;
	scene_holds(SCAN_FD, SCAN_DMABUF)->bytes = 36 * SCENE_MIB;
	scene_holds(SCAN_FD, SCAN_GDRDRV);
	scene_unattributed(8192);
	scene_judge();
	verdict = scene_verdict(CAUSE_REGISTERED);
	assert_int_equal(verdict->bytes, 100 * SCENE_MIB);
	assert_true(scene_says(verdict, "dma-bufs of nvidia", "2"));
	assert_true(scene_says(verdict, "gdrdrv", "open"));
	assert_null(scene_verdict(CAUSE_DRIVER_LEAK));
}

static void managed_memory_may_be_a_live_owners(void **state)
{
	(void)state;
	(void)scene_process(100, 1, 100, 100, "a");
	scene_client(ALONE);
	scene_listed(100, 500);
	assert_null(scene_only(CAUSE_MANAGED));
	scene_unattributed(8192);
	assert_int_equal(scene_only(CAUSE_MANAGED)->certainty, CAUSE_ONE_OF);
	assert_int_equal(scene_verdict(CAUSE_MANAGED)->bytes, 8192 * SCENE_MIB);
	/* A process that is on no list explains it as well. */
	(void)scene_process(101, 1, 101, 101, "b");
	scene_holds(SCAN_FD, SCAN_CONTROL);
	assert_null(scene_only(CAUSE_MANAGED));
}

static void a_module_is_told_when_nobody_else_holds(void **state)
{
	static const struct fact_module modules[] = {{"nvidia_drm", 1}, {"nvidia", 5}, {"ext4", 2}};

	(void)state;
	scene.facts.modules = modules;
	scene.facts.module_count = 3;
	assert_int_equal(scene_only(CAUSE_MODULE)->certainty, CAUSE_CERTAIN);
	assert_int_equal(scene.verdicts.count, 1);
	scene.scan.unseen.denied = 1;
	assert_int_equal(scene_only(CAUSE_MODULE)->certainty, CAUSE_LIKELY);
	(void)scene_process(100, 1, 100, 100, "a");
	scene_client(ALONE);
	assert_null(scene_only(CAUSE_MODULE));
}

static void a_learnt_baseline_is_normal(void **state)
{
	(void)state;
	scene_unattributed(615);
	scene.gpu.baseline_bytes = 610 * SCENE_MIB;
	assert_int_equal(scene_only(CAUSE_BASELINE)->certainty, CAUSE_CERTAIN);
	assert_null(scene_only(CAUSE_DRIVER_LEAK));
	/* Not learnt: reserved memory is in it, where NVML does not tell it apart. */
	scene.gpu.baseline_bytes = GW_UNKNOWN;
	assert_null(scene_only(CAUSE_BASELINE));
	scene.gpu.reserved_bytes = GW_UNKNOWN;
	assert_int_equal(scene_only(CAUSE_BASELINE)->certainty, CAUSE_LIKELY);
	scene.gpu.baseline_bytes = 500 * SCENE_MIB;
	assert_null(scene_only(CAUSE_BASELINE));
	scene.gpu.unattributed_bytes = GW_UNKNOWN;
	assert_null(scene_only(CAUSE_BASELINE));
}

static void memory_of_a_numa_node_is_no_leak(void **state)
{
	(void)state;
	scene_unattributed(8192);
	assert_null(scene_only(CAUSE_NUMA));
	scene.facts.memory_is_numa = AMOUNTS_YES;
	assert_non_null(scene_only(CAUSE_NUMA));
	assert_null(scene_only(CAUSE_DRIVER_LEAK));
}

static void an_idle_owner_is_only_told(void **state)
{
	(void)state;
	(void)scene_process(100, 1, 100, 100, "notebook");
	scene_client(ALONE);
	scene_listed(100, 8192);
	assert_null(scene_only(CAUSE_IDLE_CACHE));
	scene.gpu.utilization_highest_percent = 0;
	scene.gpu.watched_ns = 3600000000000ULL;
	assert_int_equal(scene_only(CAUSE_IDLE_CACHE)->policy, CAUSE_ASK);
	scene.gpu.utilization_highest_percent = 1;
	assert_null(scene_only(CAUSE_IDLE_CACHE));
}

static void memory_outside_a_pid_namespace_is_no_leak(void **state)
{
	const struct verdict *verdict;

	(void)state;
	scene_unattributed(7168);
	assert_null(scene_only(CAUSE_OTHER_NAMESPACE));
	scene.scan.pid_namespace_initial = false;
	scene_judge();
	assert_int_equal(scene_verdict(CAUSE_OTHER_NAMESPACE)->bytes, 7168 * SCENE_MIB);
	verdict = scene_verdict(CAUSE_DRIVER_LEAK);
	assert_int_equal(verdict->certainty, CAUSE_ONE_OF);
	assert_int_equal(verdict->other, CAUSE_OTHER_NAMESPACE);
}

static void what_may_not_be_looked_at_is_told(void **state)
{
	(void)state;
	assert_null(scene_only(CAUSE_DENIED));
	scene.scan.unseen.denied = 12;
	scene.scan.unseen.needs_ptrace = true;
	assert_true(scene_says(scene_only(CAUSE_DENIED), "processes not readable", "12"));
	assert_non_null(strstr(scene_verdict(CAUSE_DENIED)->remedy, "CAP_SYS_PTRACE"));
	scene_unattributed(8192);
	assert_int_equal(scene_only(CAUSE_DRIVER_LEAK)->other, CAUSE_DENIED);
}

static void a_recycled_pid_is_never_a_target(void **state)
{
	const struct verdict *verdict;
	struct fact_label *label;

	(void)state;
	scene_listed(4711, 512);
	label = scene_label(4711, AMOUNTS_YES, 'S');
	(void)strcpy(label->comm, "bash");
	verdict = scene_only(CAUSE_RECYCLED);
	assert_int_equal(verdict->certainty, CAUSE_ONE_OF);
	assert_int_equal(verdict->other, CAUSE_INHERITED);
	assert_int_equal(verdict->policy, CAUSE_LEAVE);
	assert_int_equal(verdict->process, CAUSE_NOBODY);
	assert_int_equal(verdict->member_count, 0);
	assert_true(scene_says(verdict, "process of that number", "bash"));
	label->client_start_ticks = 10;
	assert_int_equal(scene_only(CAUSE_RECYCLED)->certainty, CAUSE_CERTAIN);
	/* Where its descriptors could not be read, nothing is known of it. */
	scene.denied[0] = 4711;
	scene.scan.unseen.denied = 1;
	assert_null(scene_only(CAUSE_RECYCLED));
}

static void the_holder_behind_a_recycled_pid_is_found(void **state)
{
	const struct verdict *verdict;

	(void)state;
	(void)scene_process(5000, 1, 4711, 4711, "loader");
	scene_client(ALONE);
	scene_listed(4711, 512);
	(void)scene_label(4711, AMOUNTS_YES, 'S');
	scene_judge();
	verdict = scene_verdict(CAUSE_INHERITED);
	assert_int_equal(verdict->pid, 5000);
	assert_non_null(scene_verdict(CAUSE_RECYCLED));
	assert_null(strstr(verdict->remedy, "4711"));
}

static void a_hidden_process_is_told(void **state)
{
	(void)state;
	assert_null(scene_only(CAUSE_HIDDEN));
	scene_label(100, AMOUNTS_YES, 'S')->listed = AMOUNTS_NO;
	assert_non_null(strstr(scene_only(CAUSE_HIDDEN)->remedy, "intruder"));
	scene.scan.unseen.hidepid = 2;
	assert_non_null(strstr(scene_only(CAUSE_HIDDEN)->remedy, "hidepid"));
	assert_int_equal(scene.verdicts.count, 2);
}

static void unknown_amounts_are_not_zero(void **state)
{
	(void)state;
	assert_null(scene_only(CAUSE_NOT_MEASURABLE));
	scene_listed(100, 1);
	scene.listed[0].used_bytes = GW_UNKNOWN;
	assert_true(scene_says(scene_only(CAUSE_NOT_MEASURABLE), "processes without an amount",
			       "1 of 1"));
	scene.gpu.process_count = 0;
	scene.facts.virtual_gpu = AMOUNTS_YES;
	assert_non_null(scene_only(CAUSE_NOT_MEASURABLE));
	scene.facts.virtual_gpu = AMOUNTS_NO;
	(void)scene_process(100, 1, 100, 100, "a");
	scene_holds(SCAN_FD, SCAN_DXG);
	assert_non_null(strstr(scene_only(CAUSE_NOT_MEASURABLE)->remedy, "wsl"));
}

static void a_driver_with_wrong_lists_is_told(void **state)
{
	static const struct {
		const char *driver;
		bool wrong;
	} cases[] = {{"535.43.02", true},   {"535.54", true}, {"535.86.05", false},
		     {"580.159.04", false}, {"", false},      {"nonsense", false}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		(void)strcpy(scene.amounts.driver, cases[i].driver);
		assert_true(!scene_only(CAUSE_UNSUPPORTED) != cases[i].wrong);
	}
	scene.gpu.listed = AMOUNTS_UNSUPPORTED;
	assert_int_equal(scene_only(CAUSE_UNSUPPORTED)->gpu, 0);
}

static void a_busy_gpu_without_anybody_is_told(void **state)
{
	static const struct fact_xid xid = {0, 13, GW_UNKNOWN};

	(void)state;
	scene.gpu.utilization_lowest_percent = 100;
	scene.gpu.utilization_highest_percent = 100;
	assert_null(scene_only(CAUSE_GHOST_UTILIZATION));
	scene.gpu.watched_ns = 10000000000ULL;
	assert_non_null(scene_only(CAUSE_GHOST_UTILIZATION));
	scene.facts.xids = &xid;
	scene.facts.xid_count = 1;
	assert_null(scene_only(CAUSE_GHOST_UTILIZATION));
	scene.facts.xid_count = 0;
	scene.scan.unseen.denied = 1;
	assert_null(scene_only(CAUSE_GHOST_UTILIZATION));
}

static void a_lost_gpu_is_told_with_its_recovery(void **state)
{
	static const struct fact_xid xid = {0, 79, GW_UNKNOWN};

	(void)state;
	assert_null(scene_only(CAUSE_GPU_LOST));
	scene.facts.xids = &xid;
	scene.facts.xid_count = 1;
	assert_int_equal(scene_only(CAUSE_GPU_LOST)->certainty, CAUSE_LIKELY);
	scene.gpu.memory = AMOUNTS_LOST;
	scene.gpu.recovery_action = 2;
	assert_int_equal(scene_only(CAUSE_GPU_LOST)->certainty, CAUSE_CERTAIN);
	assert_true(scene_says(scene_verdict(CAUSE_GPU_LOST), "recovery action", "reboot"));
	assert_true(scene_says(scene_verdict(CAUSE_GPU_LOST), "Xid", "79"));
}

static void a_hanging_nvml_is_told(void **state)
{
	(void)state;
	assert_null(scene_only(CAUSE_NVML_HUNG));
	scene.amounts.answer = AMOUNTS_HUNG;
	scene.facts.probe_pid = 99;
	scene.facts.probe_wchan = "rwsem_down_read";
	assert_true(scene_says(scene_only(CAUSE_NVML_HUNG), "it sleeps in", "rwsem"));
	scene.amounts.answer = AMOUNTS_ANSWERED;
	scene.gpu.memory = AMOUNTS_HUNG;
	assert_int_equal(scene_only(CAUSE_NVML_HUNG)->gpu, 0);
}

static void a_leak_is_told_only_when_all_else_was_looked_at(void **state)
{
	const struct verdict *verdict;

	(void)state;
	assert_null(scene_only(CAUSE_DRIVER_LEAK));
	scene_unattributed(8192);
	verdict = scene_only(CAUSE_DRIVER_LEAK);
	assert_int_equal(verdict->certainty, CAUSE_ONE_OF);
	assert_int_equal(verdict->other, CAUSE_EXITING);
	scene.gpu.watched_ns = 31000000000ULL;
	verdict = scene_only(CAUSE_DRIVER_LEAK);
	assert_int_equal(verdict->certainty, CAUSE_LIKELY);
	assert_int_equal(verdict->bytes, 8192 * SCENE_MIB);
	assert_true(scene_says(verdict, "in flight", "none"));
	assert_true(scene_says(verdict, "not looked at", "nothing"));
	/* Even the emptiest holder of a device comes first. */
	(void)scene_process(100, 1, 100, 100, "a");
	scene_holds(SCAN_MAPPING, SCAN_GPU);
	assert_null(scene_only(CAUSE_DRIVER_LEAK));
	scene.scan.process_count = 0;
	scene.gpu.unattributed_bytes = GW_UNKNOWN;
	assert_null(scene_only(CAUSE_DRIVER_LEAK));
}

static void a_suspend_is_told(void **state)
{
	(void)state;
	assert_null(scene_only(CAUSE_SUSPEND));
	scene.facts.suspending = AMOUNTS_YES;
	assert_int_equal(scene_only(CAUSE_SUSPEND)->policy, CAUSE_WAIT);
	scene.facts.suspending = AMOUNTS_NO;
	scene.facts.uvm_queue_busy = AMOUNTS_YES;
	assert_non_null(scene_only(CAUSE_SUSPEND));
}

static void a_full_bar1_with_normal_memory_is_told(void **state)
{
	(void)state;
	scene.gpu.bar1_total_bytes = 100 * SCENE_MIB;
	assert_null(scene_only(CAUSE_BAR1));
	scene.gpu.bar1_used_bytes = 90 * SCENE_MIB;
	assert_non_null(scene_only(CAUSE_BAR1));
	scene_unattributed(8192);
	assert_null(scene_only(CAUSE_BAR1));
}

/* A scene in which all of these apply, and then the one number that they need is not known. */
static void an_unknown_amount_is_blamed_on_nobody(void **state)
{
	static const enum cause causes[] = {CAUSE_REMOTE_IMPORTER, CAUSE_NUMA,
					    CAUSE_OTHER_NAMESPACE, CAUSE_MANAGED};

	(void)state;
	(void)scene_process(100, 1, 100, 100, "a");
	scene_client(ALONE);
	scene_listed(100, 1);
	scene.facts.fabric = AMOUNTS_YES;
	scene.facts.memory_is_numa = AMOUNTS_YES;
	scene.scan.pid_namespace_initial = false;
	scene_unattributed(8192);
	for (size_t i = 0; i < sizeof(causes) / sizeof(causes[0]); i++)
		assert_non_null(scene_only(causes[i]));
	scene.gpu.unattributed_bytes = GW_UNKNOWN;
	for (size_t i = 0; i < sizeof(causes) / sizeof(causes[0]); i++)
		assert_null(scene_only(causes[i]));
	scene.gpu.unattributed_bytes = 0;
	for (size_t i = 0; i < sizeof(causes) / sizeof(causes[0]); i++)
		assert_null(scene_only(causes[i]));
}

static void what_is_normal_depends_on_what_is_told_apart(void **state)
{
	(void)state;
	scene_unattributed(64);
	assert_null(scene_only(CAUSE_DRIVER_LEAK));
	scene_unattributed(65);
	assert_non_null(scene_only(CAUSE_DRIVER_LEAK));
	/* With reserved memory in it: 640 MiB, or a fiftieth of the GPU. */
	scene.gpu.reserved_bytes = GW_UNKNOWN;
	scene_unattributed(2040);
	assert_null(scene_only(CAUSE_DRIVER_LEAK));
	scene_unattributed(2060);
	assert_non_null(scene_only(CAUSE_DRIVER_LEAK));
	scene.gpu.total_bytes = 8192 * SCENE_MIB;
	scene_unattributed(640);
	assert_null(scene_only(CAUSE_DRIVER_LEAK));
	scene_unattributed(641);
	assert_non_null(scene_only(CAUSE_DRIVER_LEAK));
}

static void while_somebody_ends_nothing_is_a_leak(void **state)
{
	(void)state;
	scene_unattributed(8192);
	scene.gpu.watched_ns = 31000000000ULL;
	scene_process(100, 1, 100, 100, "nvidia-smi")->flags = SCAN_PF_EXITING;
	scene_holds(SCAN_FD, SCAN_CONTROL);
	assert_int_equal(scene_only(CAUSE_DRIVER_LEAK)->other, CAUSE_EXITING);
	scene.processes[0].flags = 0;
	assert_int_equal(scene_only(CAUSE_DRIVER_LEAK)->certainty, CAUSE_LIKELY);
	scene.references[0].held = SCAN_EXITING;
	assert_int_equal(scene_only(CAUSE_DRIVER_LEAK)->other, CAUSE_EXITING);
}

static void the_texts_of_a_gpu_say_what_was_seen(void **state)
{
	(void)state;
	scene.gpu.persistence = AMOUNTS_YES;
	assert_true(scene_says(scene_only(CAUSE_BASELINE), "persistence", "on"));
	scene.gpu.persistence = AMOUNTS_UNKNOWN;
	assert_false(scene_says(scene_only(CAUSE_BASELINE), "persistence", "o"));
	scene.facts.suspending = AMOUNTS_YES;
	assert_true(scene_says(scene_only(CAUSE_SUSPEND), "suspend", "in progress"));
	assert_false(scene_says(scene_only(CAUSE_SUSPEND), "UVM deferred release queue", "busy"));
	scene.gpu.memory = AMOUNTS_LOST;
	scene.gpu.recovery_action = 1;
	assert_non_null(strstr(scene_only(CAUSE_GPU_LOST)->remedy, "reset the GPU"));
	scene.gpu.recovery_action = 0;
	assert_non_null(strstr(scene_only(CAUSE_GPU_LOST)->remedy, "drain the machine"));
}

static void without_nvml_and_facts_nothing_is_invented(void **state)
{
	(void)state;
	scene.input = (struct causes_input){.scan = &scene.scan};
	scene_judge();
	assert_int_equal(scene.verdicts.count, 0);
	(void)scene_process(100, 1, 100, 100, "a");
	scene_client(ALONE);
	scene_judge();
	assert_int_equal(scene.verdicts.count, 1);
	assert_int_equal(scene.verdicts.list[0].cause, CAUSE_LIVE_OWNER);
	assert_int_equal(scene.verdicts.list[0].certainty, CAUSE_LIKELY);
	assert_int_equal(scene.verdicts.list[0].gpu, CAUSE_NOBODY);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_begin, scene_end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(an_exported_descriptor_is_told_with_its_doubt),
		TEST(an_importer_grows_when_another_one_goes),
		TEST(a_remote_importer_needs_a_fabric),
		TEST(registered_memory_is_told_with_its_size),
		TEST(managed_memory_may_be_a_live_owners),
		TEST(a_module_is_told_when_nobody_else_holds),
		TEST(a_learnt_baseline_is_normal),
		TEST(memory_of_a_numa_node_is_no_leak),
		TEST(an_idle_owner_is_only_told),
		TEST(memory_outside_a_pid_namespace_is_no_leak),
		TEST(what_may_not_be_looked_at_is_told),
		TEST(a_recycled_pid_is_never_a_target),
		TEST(the_holder_behind_a_recycled_pid_is_found),
		TEST(a_hidden_process_is_told),
		TEST(unknown_amounts_are_not_zero),
		TEST(a_driver_with_wrong_lists_is_told),
		TEST(a_busy_gpu_without_anybody_is_told),
		TEST(a_lost_gpu_is_told_with_its_recovery),
		TEST(a_hanging_nvml_is_told),
		TEST(a_leak_is_told_only_when_all_else_was_looked_at),
		TEST(a_suspend_is_told),
		TEST(a_full_bar1_with_normal_memory_is_told),
		TEST(an_unknown_amount_is_blamed_on_nobody),
		TEST(what_is_normal_depends_on_what_is_told_apart),
		TEST(while_somebody_ends_nothing_is_a_leak),
		TEST(the_texts_of_a_gpu_say_what_was_seen),
		TEST(without_nvml_and_facts_nothing_is_invented),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
