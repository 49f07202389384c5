/* SPDX-License-Identifier: MIT */
/*
 * Description: causes that are about a holder are told from made-up scenes, each with what it must not be confused with,
 * and never without evidence.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "scene.h"

#define SIGNAL_BIT(number) (1ULL << ((number)-1))

static void a_listed_holder_is_a_live_owner(void **state)
{
	const struct verdict *verdict;

	(void)state;
	(void)scene_process(70, 1, 70, 70, "train");
	scene_client(ALONE);
	scene_listed(70, 512);
	verdict = scene_only(CAUSE_LIVE_OWNER);
	assert_non_null(verdict);
	assert_int_equal(verdict->certainty, CAUSE_CERTAIN);
	assert_int_equal(verdict->policy, CAUSE_LEAVE);
	assert_int_equal(verdict->bytes, 512 * SCENE_MIB);
	assert_int_equal(verdict->gpu, 0);
	assert_true(scene_says(verdict, "references", "3 fd"));
	scene.input.amounts = NULL;
	verdict = scene_only(CAUSE_LIVE_OWNER);
	assert_int_equal(verdict->certainty, CAUSE_LIKELY);
	assert_int_equal(verdict->bytes, GW_UNKNOWN);
	assert_non_null(verdict->decide);
}

static void a_child_that_shares_a_live_owners_files_is_no_orphan(void **state)
{
	const struct verdict *verdict;

	(void)state;
	(void)scene_process(70, 1, 70, 70, "train");
	scene_client(0);
	(void)scene_process(71, 70, 71, 71, "loader");
	scene_client(0);
	scene_listed(70, 512);
	scene_judge();
	assert_null(scene_verdict(CAUSE_INHERITED));
	assert_null(scene_verdict(CAUSE_ORPHAN));
	verdict = causes_main(&scene.verdicts, 1);
	assert_int_equal(verdict->cause, CAUSE_LIVE_OWNER);
	assert_true(scene_says(verdict, "shares the files of", "70"));
}

/* One finding, not 24. */
static void heirs_of_one_dead_creator_are_one_finding(void **state)
{
	const struct verdict *verdict;

	(void)state;
	for (int32_t i = 0; i < 24; i++) {
		(void)scene_process(100 + i, 1, 70, 60, "loader");
		scene_client(0);
	}
	scene_relative(60, "bash", 'S');
	scene_listed(70, 39 * 1024);
	(void)scene_label(70, AMOUNTS_NO, '?');
	scene_judge();
	verdict = scene_verdict(CAUSE_INHERITED);
	assert_non_null(verdict);
	assert_int_equal(verdict->certainty, CAUSE_CERTAIN);
	assert_int_equal(verdict->member_count, 24);
	assert_int_equal(verdict->policy, CAUSE_AUTO);
	assert_int_equal(verdict->bytes, 39 * 1024 * SCENE_MIB);
	assert_true(scene_says(verdict, "creator", "no such process"));
	assert_null(scene_verdict(CAUSE_DRIVER_LEAK));
	assert_null(scene_verdict(CAUSE_LIVE_OWNER));
	for (uint32_t i = 0; i < 24; i++)
		assert_ptr_equal(causes_main(&scene.verdicts, i), verdict);
}

static void an_open_file_in_common_tells_whose_heir_it_is(void **state)
{
	const struct verdict *verdict;

	(void)state;
	(void)scene_process(100, 1, 70, 70, "first");
	scene_client(0);
	(void)scene_process(101, 1, 101, 101, "left its group");
	scene_client(0);
	(void)scene_process(102, 1, 80, 80, "of another");
	scene_client(ALONE);
	scene_listed(70, 100);
	scene_listed(80, 100);
	scene_judge();
	verdict = scene_verdict(CAUSE_INHERITED);
	assert_int_equal(verdict->member_count, 2);
	assert_int_equal(verdict[1].cause, CAUSE_INHERITED);
	assert_int_equal(verdict[1].member_count, 1);
	assert_int_equal(verdict[1].pid, 102);
}

static void a_guess_about_the_creator_is_told_as_one(void **state)
{
	(void)state;
	(void)scene_process(100, 1, 100, 100, "a");
	scene_client(ALONE);
	scene_listed(70, 100);
	assert_int_equal(scene_only(CAUSE_INHERITED)->certainty, CAUSE_LIKELY);
	/* With two dead creators nothing says whose it is. */
	scene_listed(80, 100);
	assert_null(scene_only(CAUSE_INHERITED));
}

static void an_orphan_is_told_by_its_session(void **state)
{
	const struct verdict *verdict;
	struct scan_process *process;

	(void)state;
	process = scene_process(100, 1, 90, 80, "engine");
	scene_client(ALONE);
	scene_listed(100, 512);
	verdict = scene_only(CAUSE_ORPHAN);
	assert_int_equal(verdict->certainty, CAUSE_LIKELY);
	assert_int_equal(verdict->policy, CAUSE_AUTO);
	assert_true(scene_says(verdict, "session leader", "80"));
	assert_null(scene_only(CAUSE_LIVE_OWNER));
	/* nohup is meant to outlive its session. */
	process->signals.ignored = SIGNAL_BIT(SIGHUP);
	verdict = scene_only(CAUSE_ORPHAN);
	assert_int_equal(verdict->certainty, CAUSE_ONE_OF);
	assert_int_equal(verdict->other, CAUSE_LIVE_OWNER);
	assert_int_equal(verdict->policy, CAUSE_ASK);
	process->signals.ignored = 0;
	/* A daemon leads its own session. */
	process->sid = process->pgid = 100;
	assert_null(scene_only(CAUSE_ORPHAN));
}

static void a_dead_group_leader_alone_is_no_proof(void **state)
{
	const struct verdict *verdict;

	(void)state;
	(void)scene_process(100, 80, 90, 80, "worker");
	scene_client(ALONE);
	scene_relative(80, "bash", 'S');
	scene_listed(100, 512);
	verdict = scene_only(CAUSE_ORPHAN);
	assert_int_equal(verdict->certainty, CAUSE_ONE_OF);
	assert_int_equal(verdict->policy, CAUSE_ASK);
	assert_non_null(verdict->decide);
	assert_non_null(scene_only(CAUSE_LIVE_OWNER));
	/* Where others' processes are hidden, a leader that is not seen may be there. */
	scene.scan.unseen.hidepid = 2;
	assert_null(scene_only(CAUSE_ORPHAN));
}

static void a_job_that_ended_makes_an_orphan_certain(void **state)
{
	static const struct fact_job jobs[] = {{4711, AMOUNTS_NO}, {4712, AMOUNTS_YES}};
	const struct verdict *verdict;
	struct scan_process *process;

	(void)state;
	process = scene_process(100, 1, 100, 100, "rank");
	process->slurm_job_id = "4711";
	scene_client(ALONE);
	process = scene_process(101, 1, 101, 101, "of another job");
	process->slurm_job_id = "4712";
	scene_client(ALONE);
	process = scene_process(102, 1, 102, 102, "of no job");
	process->slurm_job_id = "4711x";
	scene_client(ALONE);
	assert_null(scene_only(CAUSE_ORPHAN));
	scene.facts.jobs = jobs;
	scene.facts.job_count = 2;
	verdict = scene_only(CAUSE_ORPHAN);
	assert_int_equal(scene.verdicts.count, 1);
	assert_int_equal(verdict->certainty, CAUSE_CERTAIN);
	assert_int_equal(verdict->pid, 100);
	assert_true(scene_says(verdict, "batch job", "4711"));
}

static void a_container_survivor_is_told_by_its_removed_group(void **state)
{
	static const struct fact_container gone = {"abc", AMOUNTS_NO};
	struct scan_process *process;

	(void)state;
	process = scene_process(100, 1, 100, 100, "a");
	process->place.runtime = CGROUP_DOCKER;
	(void)strcpy(process->place.container_id, "abc");
	scene_client(ALONE);
	assert_null(scene_only(CAUSE_CONTAINER));
	process->place.deleted = true;
	assert_int_equal(scene_only(CAUSE_CONTAINER)->certainty, CAUSE_CERTAIN);
	assert_true(scene_says(scene_verdict(CAUSE_CONTAINER), "container", "docker abc"));
	process->place.deleted = false;
	scene.facts.containers = &gone;
	scene.facts.container_count = 1;
	assert_non_null(scene_only(CAUSE_CONTAINER));
	process->place.runtime = CGROUP_NO_CONTAINER;
	assert_null(scene_only(CAUSE_CONTAINER));
}

static void a_zombie_leader_is_not_a_zombie(void **state)
{
	struct scan_process *process;
	const struct verdict *verdict;
	struct fact_label *label;

	(void)state;
	process = scene_process(100, 1, 100, 100, "a");
	process->state = 'Z';
	process->flags = SCAN_ZOMBIE_LEADER | SCAN_PF_EXITING;
	process->threads = 2;
	process->wchan_tid = 101;
	scene_holds(SCAN_FD_OF_THREAD, SCAN_GPU)->tid = 101;
	scene_listed(100, 512);
	label = scene_label(100, AMOUNTS_YES, 'Z');
	label->threads = 2;
	scene_judge();
	verdict = scene_verdict(CAUSE_ZOMBIE_LEADER);
	assert_int_equal(verdict->tid, 101);
	assert_int_equal(verdict->policy, CAUSE_AUTO);
	assert_ptr_equal(causes_main(&scene.verdicts, 0), verdict);
	assert_null(scene_verdict(CAUSE_ZOMBIE));
	assert_null(scene_verdict(CAUSE_EXITING));
	assert_null(scene_verdict(CAUSE_THREAD_TABLE));
}

static void a_pure_zombie_holds_nothing(void **state)
{
	const struct verdict *verdict;

	(void)state;
	scene_label(100, AMOUNTS_YES, 'Z')->ppid = 50;
	scene_listed(100, 512);
	scene_judge();
	verdict = scene_verdict(CAUSE_ZOMBIE);
	assert_int_equal(verdict->bytes, 0);
	assert_int_equal(verdict->policy, CAUSE_LEAVE);
	assert_true(scene_says(verdict, "parent", "50"));
	assert_null(scene_verdict(CAUSE_RECYCLED));
	/* Its memory is somebody's all the same. */
	assert_non_null(scene_verdict(CAUSE_DRIVER_LEAK));
}

static void slow_and_stuck_are_told_apart_by_watching(void **state)
{
	struct scan_process *process;
	const struct verdict *verdict;

	(void)state;
	process = scene_process(100, 1, 100, 100, "a");
	process->state = 'D';
	process->flags = SCAN_PF_EXITING;
	scene_holds(SCAN_EXITING, SCAN_DEVICE_UNKNOWN);
	verdict = scene_only(CAUSE_EXITING);
	assert_int_equal(verdict->certainty, CAUSE_ONE_OF);
	assert_int_equal(verdict->other, CAUSE_UNKILLABLE);
	assert_int_equal(verdict->policy, CAUSE_WAIT);
	assert_null(scene_only(CAUSE_UNKILLABLE));
	scene_watched(process, SCENE_HUGE, AMOUNTS_YES);
	assert_int_equal(scene_only(CAUSE_EXITING)->certainty, CAUSE_CERTAIN);
	scene_watched(process, SCENE_HUGE, AMOUNTS_NO);
	assert_null(scene_only(CAUSE_EXITING));
	assert_int_equal(scene_only(CAUSE_UNKILLABLE)->certainty, CAUSE_CERTAIN);
	/* 243 GiB of pinned memory take half a minute. */
	process->pinned_bytes = 243ULL << 30;
	assert_null(scene_only(CAUSE_UNKILLABLE));
	/* What was watched was another process with this number. */
	process->pinned_bytes = 0;
	scene.watch.start_ticks++;
	assert_null(scene_only(CAUSE_UNKILLABLE));
}

static void a_killed_one_that_does_not_end_is_stuck(void **state)
{
	struct scan_process *process;

	(void)state;
	process = scene_process(100, 1, 100, 100, "a");
	process->state = 'D';
	process->signals.pending = SIGNAL_BIT(SIGKILL);
	(void)strcpy(process->wchan, "percpu_rwsem_wait");
	scene_client(ALONE);
	scene_watched(process, SCENE_HUGE, AMOUNTS_NO);
	assert_non_null(scene_only(CAUSE_UNKILLABLE));
	assert_true(scene_says(scene_verdict(CAUSE_UNKILLABLE), "sleeps in", "percpu_rwsem"));
	assert_true(scene_says(scene_verdict(CAUSE_UNKILLABLE), "SIGKILL", "pending"));
	/* In a v1 freezer SIGKILL only waits for the thaw. */
	process->flags = SCAN_FROZEN_V1;
	assert_null(scene_only(CAUSE_UNKILLABLE));
	assert_non_null(scene_only(CAUSE_FROZEN));
	assert_non_null(strstr(scene_verdict(CAUSE_FROZEN)->remedy, "thaw"));
}

static void stopped_traced_and_frozen_are_told(void **state)
{
	struct scan_process *process;

	(void)state;
	process = scene_process(100, 1, 100, 100, "a");
	scene_client(ALONE);
	scene_listed(100, 1);
	assert_null(scene_only(CAUSE_STOPPED));
	assert_null(scene_only(CAUSE_TRACED));
	assert_null(scene_only(CAUSE_FROZEN));
	process->state = 'T';
	assert_int_equal(scene_only(CAUSE_STOPPED)->policy, CAUSE_ASK);
	process->sid = 90;
	assert_int_equal(scene_only(CAUSE_STOPPED)->policy, CAUSE_AUTO);
	process->state = 't';
	process->tracer_pid = 55;
	scene_relative(55, "gdb", 'S');
	assert_true(scene_says(scene_only(CAUSE_TRACED), "tracer", "55 gdb"));
	process->flags = SCAN_FROZEN;
	process->place.unified = "/job\033[2J";
	assert_true(scene_says(scene_only(CAUSE_FROZEN), "frozen", "/job?[2J"));
}

static void hidden_references_are_told(void **state)
{
	static const struct {
		enum scan_held held;
		enum cause cause;
	} cases[] = {
		{SCAN_FD_OF_THREAD, CAUSE_THREAD_TABLE},
		{SCAN_IN_FLIGHT, CAUSE_IN_FLIGHT},
		{SCAN_IO_URING, CAUSE_IO_URING},
		{SCAN_MAPPING, CAUSE_MAPPING},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		scene_end(NULL);
		scene_begin(NULL);
		(void)scene_process(100, 1, 100, 100, "a");
		scene_holds(cases[i].held, SCAN_GPU)->tid = 101;
		for (size_t other = 0; other < sizeof(cases) / sizeof(cases[0]); other++)
			assert_true(!scene_only(cases[other].cause) == (other != i));
		assert_int_equal(scene_only(cases[i].cause)->process, 0);
		if (cases[i].cause == CAUSE_THREAD_TABLE)
			assert_int_equal(scene_verdict(CAUSE_THREAD_TABLE)->tid, 101);
	}
}

static void an_mps_client_goes_through_its_server(void **state)
{
	struct scan_process *process;
	const struct verdict *verdict;

	(void)state;
	process = scene_process(100, 1, 100, 100, "a");
	process->mps_pipe_directory = "/run/mps";
	scene_client(ALONE);
	assert_null(scene_only(CAUSE_MPS));
	(void)scene_process(200, 1, 200, 200, "nvidia-cuda-mps-server");
	scene_client(ALONE);
	verdict = scene_only(CAUSE_MPS);
	assert_int_equal(scene.verdicts.count, 2);
	assert_int_equal(verdict->certainty, CAUSE_LIKELY);
	assert_non_null(strstr(verdict->remedy, "terminate_client"));
	assert_int_equal(verdict[1].certainty, CAUSE_CERTAIN);
	scene_listed(100, 5);
	scene.listed[0].list = AMOUNTS_MPS;
	assert_int_equal(scene_only(CAUSE_MPS)->certainty, CAUSE_CERTAIN);
}

static void services_are_left_alone(void **state)
{
	struct scan_process *process;

	(void)state;
	process = scene_process(100, 1, 100, 90, "x");
	process->exe = "/usr/bin/nvidia-persistenced";
	(void)strcpy(process->place.unit, "nvidia-persistenced.service");
	scene_client(ALONE);
	process = scene_process(101, 1, 101, 90, "Xorg");
	scene_holds(SCAN_FD, SCAN_MODESET);
	scene_holds(SCAN_FD, SCAN_CONTROL);
	scene_judge();
	for (uint32_t i = 0; i < 2; i++) {
		const struct verdict *verdict = causes_main(&scene.verdicts, i);

		assert_int_equal(verdict->cause, i ? CAUSE_DISPLAY : CAUSE_DAEMON);
		assert_int_equal(verdict->certainty, CAUSE_CERTAIN);
		assert_int_equal(verdict->policy, CAUSE_LEAVE);
	}
	assert_null(scene_verdict(CAUSE_ORPHAN));
	assert_null(scene_verdict(CAUSE_LIVE_OWNER));
	/* A name without a unit may be chosen. */
	scene.processes[0].place.unit[0] = '\0';
	assert_int_equal(scene_only(CAUSE_DAEMON)->certainty, CAUSE_LIKELY);
}

static void a_mig_handle_is_no_ordinary_client(void **state)
{
	(void)state;
	(void)scene_process(100, 1, 100, 100, "a");
	scene_client(ALONE);
	scene_holds(SCAN_FD, SCAN_CAPS);
	assert_null(scene_only(CAUSE_MIG));
	scene.gpu.mig = AMOUNTS_YES;
	assert_int_equal(scene_only(CAUSE_MIG)->certainty, CAUSE_CERTAIN);
	scene.gpu.mig = AMOUNTS_UNKNOWN;
	(void)scene_process(101, 1, 101, 101, "monitor");
	scene_holds(SCAN_FD, SCAN_CAPS);
	assert_int_equal(scene_only(CAUSE_MIG)->pid, 101);
}

static void a_creators_number_in_session_and_parent_counts(void **state)
{
	(void)state;
	(void)scene_process(100, 70, 100, 70, "session");
	scene_client(ALONE);
	(void)scene_process(101, 90, 101, 101, "parent");
	scene_client(ALONE);
	scene_listed(70, 100);
	assert_int_equal(scene_only(CAUSE_INHERITED)->certainty, CAUSE_CERTAIN);
	assert_int_equal(scene.verdicts.count, 1);
	assert_int_equal(scene_verdict(CAUSE_INHERITED)->member_count, 1);
	assert_int_equal(scene_verdict(CAUSE_INHERITED)->creator, 70);
	assert_true(
		scene_says(scene_verdict(CAUSE_INHERITED), "belongs to the creator by", "session"));
}

static void the_child_of_a_living_client_is_not_the_heir_of_another(void **state)
{
	(void)state;
	(void)scene_process(90, 1, 90, 90, "client");
	scene_client(ALONE);
	(void)scene_process(101, 90, 101, 101, "its child");
	scene_client(ALONE);
	scene_listed(70, 100);
	scene_listed(90, 100);
	scene_judge();
	assert_null(scene_verdict(CAUSE_INHERITED));
	assert_true(scene_says(causes_main(&scene.verdicts, 1), "shares the files of", "90"));
}

/* Whoever only asks NVML, or ends already, is no heir by elimination. */
static void only_who_can_keep_memory_is_an_heir(void **state)
{
	(void)state;
	(void)scene_process(100, 1, 100, 100, "monitor");
	scene_holds(SCAN_FD, SCAN_CONTROL);
	scene_holds(SCAN_FD, SCAN_GPU);
	scene_process(101, 1, 101, 101, "ends")->flags = SCAN_PF_EXITING;
	scene_client(ALONE);
	(void)scene_process(102, 1, 102, 102, "nvidia-smi");
	scene_client(ALONE);
	scene_listed(70, 100);
	assert_null(scene_only(CAUSE_INHERITED));
}

static void a_list_that_is_not_whole_proves_nothing(void **state)
{
	(void)state;
	(void)scene_process(100, 1, 100, 100, "a");
	scene_holds(SCAN_FD, SCAN_CONTROL);
	assert_null(scene_only(CAUSE_LIVE_OWNER));
	scene.gpu.listed = AMOUNTS_FAILED;
	assert_int_equal(scene_only(CAUSE_LIVE_OWNER)->certainty, CAUSE_LIKELY);
	scene.gpu.listed = AMOUNTS_ANSWERED;
	scene.gpu.processes_left_out = 1;
	assert_non_null(scene_only(CAUSE_LIVE_OWNER));
	scene.gpu.processes_left_out = 0;
	scene.amounts.answer = AMOUNTS_HUNG;
	assert_non_null(scene_only(CAUSE_LIVE_OWNER));
	scene.amounts.answer = AMOUNTS_ANSWERED;
	scene.scan.unseen.foreign_proc = true;
	assert_non_null(scene_only(CAUSE_LIVE_OWNER));
}

static void a_tracer_counts_while_its_target_runs(void **state)
{
	(void)state;
	scene_process(100, 1, 100, 100, "a")->tracer_pid = 7;
	scene_client(ALONE);
	assert_true(scene_says(scene_only(CAUSE_TRACED), "tracer", "7"));
}

static void a_program_whose_file_is_gone_keeps_its_name(void **state)
{
	(void)state;
	scene_process(100, 1, 100, 100, "x")->exe = "/opt/nv-hostengine (deleted)";
	scene_client(ALONE);
	assert_non_null(scene_only(CAUSE_DAEMON));
	scene.processes[0].exe = "/opt/x";
	assert_null(scene_only(CAUSE_DAEMON));
}

/* The rest of it scene.c checks for all scenes. */
static void every_text_is_fit_for_a_terminal(void **state)
{
	struct scan_process *process;

	(void)state;
	process = scene_process(100, 1, 90, 80, "\033]0;evil\a\n");
	process->exe = "/tmp/\033[31m\n";
	process->state = 'T';
	(void)strcpy(process->wchan, "a\tb");
	process->stack = "[<0>] f+0x1\n[<0>] g+0x2\n";
	scene_client(ALONE);
	scene_holds(SCAN_IN_FLIGHT, SCAN_GPU);
	scene_holds(SCAN_IO_URING, SCAN_GPU);
	scene_holds(SCAN_FD, SCAN_GDRDRV);
	scene_listed(100, 3);
	scene_judge();
	assert_true(scene.verdicts.count >= 5);
	for (uint32_t i = 0; i < scene.verdicts.count; i++) {
		const struct verdict *verdict = &scene.verdicts.list[i];

		assert_true(verdict->evidence_count > 0);
		assert_true(verdict->remedy[0] != '\0');
		assert_true((verdict->certainty == CAUSE_ONE_OF) == (verdict->other != CAUSE_NONE));
		assert_true((verdict->certainty == CAUSE_CERTAIN) == !verdict->decide);
		assert_true(!i || verdict[-1].cause <= verdict->cause);
		for (uint32_t j = 0; j < verdict->evidence_count; j++) {
			for (const char *c = verdict->evidence[j].value; *c; c++)
				assert_true((unsigned char)*c >= ' ' && *c != 127);
		}
	}
}

static void names_lead_to_causes_and_back(void **state)
{
	(void)state;
	for (int i = 1; i < CAUSE_COUNT; i++) {
		assert_int_equal(cause_by_name(cause_id((enum cause)i)), i);
		assert_int_equal(cause_by_name(cause_name((enum cause)i)), i);
		assert_true(cause_title((enum cause)i)[0] != '\0');
	}
	assert_int_equal(cause_by_name("C41"), CAUSE_NONE);
	assert_string_equal(cause_id(CAUSE_COUNT), "?");
	assert_int_equal(causes_find_one(&scene.input, CAUSE_COUNT, &scene.verdicts, NULL),
			 -EINVAL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_begin, scene_end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_listed_holder_is_a_live_owner),
		TEST(a_child_that_shares_a_live_owners_files_is_no_orphan),
		TEST(heirs_of_one_dead_creator_are_one_finding),
		TEST(an_open_file_in_common_tells_whose_heir_it_is),
		TEST(a_guess_about_the_creator_is_told_as_one),
		TEST(an_orphan_is_told_by_its_session),
		TEST(a_dead_group_leader_alone_is_no_proof),
		TEST(a_job_that_ended_makes_an_orphan_certain),
		TEST(a_container_survivor_is_told_by_its_removed_group),
		TEST(a_zombie_leader_is_not_a_zombie),
		TEST(a_pure_zombie_holds_nothing),
		TEST(slow_and_stuck_are_told_apart_by_watching),
		TEST(a_killed_one_that_does_not_end_is_stuck),
		TEST(stopped_traced_and_frozen_are_told),
		TEST(hidden_references_are_told),
		TEST(an_mps_client_goes_through_its_server),
		TEST(services_are_left_alone),
		TEST(a_mig_handle_is_no_ordinary_client),
		TEST(a_creators_number_in_session_and_parent_counts),
		TEST(the_child_of_a_living_client_is_not_the_heir_of_another),
		TEST(only_who_can_keep_memory_is_an_heir),
		TEST(a_list_that_is_not_whole_proves_nothing),
		TEST(a_tracer_counts_while_its_target_runs),
		TEST(a_program_whose_file_is_gone_keeps_its_name),
		TEST(every_text_is_fit_for_a_terminal),
		TEST(names_lead_to_causes_and_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
