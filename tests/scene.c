/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <string.h>

#include "scene.h"

struct scene scene;

int scene_begin(void **state)
{
	(void)state;
	memset(&scene, 0, sizeof(scene));
	scene.scan = (struct scan){.ticks_per_second = 100,
				   .pid_namespace = 1,
				   .pid_namespace_initial = true,
				   .processes = scene.processes,
				   .references = scene.references,
				   .relatives = scene.relatives,
				   .denied_pids = scene.denied};
	scene.gpu = AMOUNTS_GPU_NONE;
	scene.gpu.minor = 0;
	scene.gpu.memory = AMOUNTS_ANSWERED;
	scene.gpu.listed = AMOUNTS_ANSWERED;
	scene.gpu.total_bytes = 102400 * SCENE_MIB;
	scene.gpu.reserved_bytes = 600 * SCENE_MIB;
	scene.gpu.unattributed_bytes = 0;
	scene.gpu.processes = scene.listed;
	scene.gpu_before = scene.gpu;
	scene.gpu_before.processes = scene.listed_before;
	scene.amounts =
		(struct amounts){.answer = AMOUNTS_ANSWERED, .gpus = &scene.gpu, .gpu_count = 1};
	scene.before = (struct amounts){
		.answer = AMOUNTS_ANSWERED, .gpus = &scene.gpu_before, .gpu_count = 1};
	scene.facts.labels = scene.labels;
	scene.facts.groups = scene.groups;
	scene.input = (struct causes_input){
		.scan = &scene.scan, .amounts = &scene.amounts, .facts = &scene.facts};
	return 0;
}

int scene_end(void **state)
{
	(void)state;
	causes_free(&scene.verdicts);
	return 0;
}

struct scan_process *scene_process(int32_t pid, int32_t ppid, int32_t pgid, int32_t sid,
				   const char *comm)
{
	struct scan_process *process = &scene.processes[scene.scan.process_count];

	assert_true(scene.scan.process_count < SCENE_MAX);
	assert_true(!scene.scan.process_count || process[-1].pid < pid);
	scene.scan.process_count++;
	scene.groups[scene.scan.process_count - 1] = scene.scan.process_count - 1;
	*process = (struct scan_process){
		.pid = pid,
		.ppid = ppid,
		.pgid = pgid,
		.sid = sid,
		.start_ticks = 1000 + (uint64_t)pid,
		.uid = 1000,
		.effective_uid = 1000,
		.state = 'S',
		.threads = 1,
		.signals = {GW_UNKNOWN, 0, 0, 0, 0},
		.rss_bytes = GW_UNKNOWN,
		.pinned_bytes = GW_UNKNOWN,
		.locked_bytes = GW_UNKNOWN,
		.place = CGROUP_PLACE_NONE,
		.first_reference = scene.scan.reference_count,
	};
	(void)snprintf(process->comm, sizeof(process->comm), "%s", comm);
	return process;
}

struct scan_reference *scene_holds(enum scan_held held, enum scan_device_kind kind)
{
	struct scan_process *process = &scene.processes[scene.scan.process_count - 1];
	struct scan_reference *reference = &scene.references[scene.scan.reference_count++];
	int32_t minor = kind == SCAN_GPU ? 0 : -1;

	assert_true(scene.scan.reference_count < SCENE_MAX * 4);
	*reference = (struct scan_reference){
		.process = scene.scan.process_count - 1,
		.held = held,
		.fd = 3 + (int32_t)process->reference_count,
		.device = {kind, minor, minor},
		.count = 1,
		.bytes = GW_UNKNOWN,
	};
	process->reference_count++;
	return reference;
}

void scene_client(uint32_t first)
{
	static const enum scan_device_kind kinds[] = {SCAN_CONTROL, SCAN_GPU, SCAN_UVM};

	if (first != ALONE)
		scene.groups[scene.scan.process_count - 1] = scene.groups[first];
	for (uint32_t i = 0; i < 3; i++)
		(void)scene_holds(SCAN_FD, kinds[i]);
}

void scene_relative(int32_t pid, const char *comm, char state)
{
	struct scan_relative *relative = &scene.relatives[scene.scan.relative_count++];

	*relative = (struct scan_relative){.pid = pid, .state = state};
	(void)snprintf(relative->comm, sizeof(relative->comm), "%s", comm);
}

void scene_listed(int32_t pid, uint64_t mib)
{
	scene.listed[scene.gpu.process_count++] =
		(struct amounts_process){.pid = pid, .used_bytes = mib * SCENE_MIB};
}

void scene_unattributed(uint64_t mib)
{
	scene.gpu.unattributed_bytes = mib * SCENE_MIB;
}

struct fact_label *scene_label(int32_t pid, enum amounts_truth exists, char state)
{
	struct fact_label *label = &scene.labels[scene.facts.label_count++];

	*label = (struct fact_label){.pid = pid,
				     .exists = exists,
				     .listed = exists,
				     .state = state,
				     .ppid = 1,
				     .threads = 1,
				     .start_ticks = 5000,
				     .client_start_ticks = GW_UNKNOWN,
				     .comm = "label"};
	return label;
}

void scene_watched(const struct scan_process *process, uint64_t time_ns, enum amounts_truth moved)
{
	scene.watch = (struct fact_watch){process->pid, process->start_ticks, time_ns, moved};
	scene.facts.watches = &scene.watch;
	scene.facts.watch_count = 1;
}

/* What holds for every verdict of every scene. */
static void check_verdicts(void)
{
	for (uint32_t i = 0; i < scene.verdicts.count; i++) {
		const struct verdict *verdict = &scene.verdicts.list[i];

		assert_true(verdict->evidence_count > 0);
		assert_true(verdict->remedy[0] != '\0');
		assert_true((verdict->certainty == CAUSE_ONE_OF) == (verdict->other != CAUSE_NONE));
		assert_true((verdict->certainty == CAUSE_CERTAIN) == !verdict->decide);
		assert_true((verdict->process == CAUSE_NOBODY) == (verdict->member_count == 0));
		assert_true(!i || verdict[-1].cause <= verdict->cause);
	}
}

void scene_judge(void)
{
	causes_free(&scene.verdicts);
	assert_int_equal(causes_find(&scene.input, &scene.verdicts, NULL), 0);
	check_verdicts();
}

const struct verdict *scene_verdict(enum cause cause)
{
	for (uint32_t i = 0; i < scene.verdicts.count; i++) {
		if (scene.verdicts.list[i].cause == cause)
			return &scene.verdicts.list[i];
	}
	return NULL;
}

const struct verdict *scene_only(enum cause cause)
{
	causes_free(&scene.verdicts);
	assert_int_equal(causes_find_one(&scene.input, cause, &scene.verdicts, NULL), 0);
	check_verdicts();
	for (uint32_t i = 0; i < scene.verdicts.count; i++)
		assert_int_equal(scene.verdicts.list[i].cause, cause);
	return scene_verdict(cause);
}

bool scene_says(const struct verdict *verdict, const char *what, const char *value)
{
	for (uint32_t i = 0; i < verdict->evidence_count; i++) {
		if (!strcmp(verdict->evidence[i].what, what) &&
		    strstr(verdict->evidence[i].value, value))
			return true;
	}
	return false;
}
