/* SPDX-License-Identifier: MIT */
#include "failover_host.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "../softgpu.h"
#include "../world.h"
#include "common/fd.h"

#define PATIENCE_NS (20000 * MS)

void failover_wait_a_bit(uint64_t start_ns, const char *what)
{
	if (now_ns() - start_ns > PATIENCE_NS)
		fail_msg("%s does not come", what);
	(void)poll(NULL, 0, 1);
}

struct gw_pool_options failover_options(uint32_t workers, enum gw_standby standby,
					uint32_t standbys)
{
	static const int device[] = {0};
	struct gw_pool_options options = GW_OPTIONS(struct gw_pool_options);

	options.devices = device;
	options.n_devices = 1;
	options.workers_per_device = workers;
	options.total_input_bytes = options.total_output_bytes = 16 * MIB;
	options.max_input_bytes = options.max_output_bytes = MIB;
	options.standby = standby;
	options.standbys_per_device = standbys;
	options.detect = GW_DETECT_RESULT_ONLY;
	options.stop_deadline_ns = 2000 * MS;
	options.restart_min_ns = options.restart_max_ns = MS;
	return options;
}

struct gw_pool *failover_open(const struct gw_pool_options *options)
{
	uint32_t workers = options->workers_per_device ? options->workers_per_device : 1;
	struct gw_error error = {0};
	struct gw_pool *pool = NULL;

	if (gw_pool_open(&pool, options, &error) != 0)
		fail_msg("gw_pool_open: %s", error.msg);
	failover_wait_ready(pool, options->n_devices ? workers * options->n_devices : workers);
	return pool;
}

void failover_situation(const char *text)
{
	char path[300], next[300];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/" SITUATION_FILE, soft_dir());
	(void)snprintf(next, sizeof(next), "%s/next", soft_dir());
	fd = open(next, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	if (text)
		assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	assert_int_equal(close(fd), 0);
	assert_int_equal(rename(next, path), 0);
}

void failover_hold(const char *who, const char *point, const struct gate *gate)
{
	char text[300];

	(void)snprintf(text, sizeof(text), "%s %s gate %s", who, point, gate->path);
	failover_situation(text);
}

struct gw_task *failover_start(struct gw_pool *pool, const char *function,
			       const struct failover_job *job, int device, uint64_t deadline_ns)
{
	struct gw_task_options options = GW_OPTIONS(struct gw_task_options);
	struct gw_error error = {0};
	struct gw_task *task = NULL;

	options.input_bytes = sizeof(*job);
	options.output_bytes = sizeof(struct failover_answer);
	options.device = device;
	options.set_device = device >= 0;
	options.deadline_ns = deadline_ns;
	if (gw_task_start(pool, function, job, &options, &task, &error) != 0)
		fail_msg("gw_task_start: %s", error.msg);
	return task;
}

struct failover_answer failover_end(struct gw_task *task, uint32_t seed)
{
	struct failover_answer answer = {0};
	struct gw_outcome outcome = {0};

	if (gw_task_wait(task, PATIENCE_NS, &outcome, NULL) != 1)
		fail_msg("a task does not end");
	if (outcome.kind != GW_DONE)
		fail_msg("outcome %u, value %d: %s", outcome.kind, outcome.value, outcome.message);
	if (outcome.output_bytes == sizeof(answer)) {
		memcpy(&answer, outcome.output, sizeof(answer));
		assert_int_equal(answer.number, failover_number(seed));
		assert_int_equal(answer.wrong_words, 0);
	}
	gw_task_free(task);
	return answer;
}

struct failover_answer failover_work(struct gw_pool *pool, int device)
{
	static uint32_t seed;
	struct failover_job job = {.seed = ++seed};

	return failover_end(failover_start(pool, "work", &job, device, 0), job.seed);
}

struct gw_pool_stat failover_stat(struct gw_pool *pool)
{
	struct gw_pool_stat stat = {0};

	assert_int_equal(gw_pool_stat(pool, &stat), 0);
	return stat;
}

int32_t failover_pid(struct gw_pool *pool, uint32_t slot)
{
	struct gw_worker_info info = {0};

	assert_int_equal(gw_pool_worker(pool, slot, &info), 0);
	return info.pid;
}

static bool is_worker(struct gw_pool *pool, int32_t pid)
{
	struct gw_worker_info info;

	for (uint32_t slot = 0; gw_pool_worker(pool, slot, &info) == 0; slot++) {
		if (info.pid == pid)
			return true;
	}
	return false;
}

static bool is_probe(int32_t pid)
{
	char path[64], name[32] = "";
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return true; /* gone already */
	(void)!read(fd, name, sizeof(name) - 1);
	(void)close(fd);
	return strncmp(name, "gpuward-probe", 13) == 0;
}

/* A child of the ward that is the probe, or (not) a worker or the probe; -1 where there is none. */
static int32_t find_child(struct gw_pool *pool, bool probe)
{
	int32_t ward = failover_stat(pool).ward_pid;
	char path[64], text[4096] = "";
	char *next = text;
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%d/task/%d/children", ward, ward);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	(void)!read(fd, text, sizeof(text) - 1);
	(void)close(fd);
	for (;;) {
		char *end;
		int32_t pid = (int32_t)strtol(next, &end, 10);

		if (end == next)
			return -1;
		if (is_probe(pid) == probe && !is_worker(pool, pid))
			return pid;
		next = end;
	}
}

int32_t failover_standby_pid(struct gw_pool *pool)
{
	return find_child(pool, false);
}

/* It has the file of the events open. */
static bool hears_events(int32_t pid)
{
	char path[64], events[300], target[300];

	(void)snprintf(events, sizeof(events), "%s/events", soft_dir());
	for (int fd = 0; fd < 64; fd++) {
		ssize_t bytes;

		(void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
		bytes = readlink(path, target, sizeof(target) - 1);
		target[bytes > 0 ? bytes : 0] = '\0';
		if (strcmp(target, events) == 0)
			return true;
	}
	return false;
}

void failover_wait_probe(struct gw_pool *pool)
{
	uint64_t start_ns = now_ns();

	while (!hears_events(find_child(pool, true)))
		failover_wait_a_bit(start_ns, "the probe");
}

static uint64_t switches_of(int32_t pid)
{
	char path[64], text[4096] = "";
	const char *line;
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%d/status", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	(void)!read(fd, text, sizeof(text) - 1);
	(void)close(fd);
	line = strstr(text, "\nvoluntary_ctxt_switches:");
	assert_non_null(line);
	return strtoull(line + 26, NULL, 10);
}

uint64_t failover_switches(struct gw_pool *pool)
{
	return switches_of(failover_stat(pool).ward_pid);
}

void failover_wait_switches(struct gw_pool *pool, uint64_t count)
{
	int32_t ward = failover_stat(pool).ward_pid;
	uint64_t start_ns = now_ns();
	uint64_t before = switches_of(ward);

	while (switches_of(ward) < before + count)
		failover_wait_a_bit(start_ns, "the ward's next turn");
}

struct gw_pool_stat failover_wait_standbys(struct gw_pool *pool, uint32_t hot, uint32_t primed)
{
	uint64_t start_ns = now_ns();
	char what[200];

	for (;;) {
		struct gw_pool_stat stat = failover_stat(pool);

		if (stat.standbys_hot == hot && stat.standbys_primed == primed)
			return stat;
		(void)snprintf(what, sizeof(what),
			       "%u hot and %u primed (%u, %u, %u starting, %u failed)", hot, primed,
			       stat.standbys_hot, stat.standbys_primed, stat.standbys_starting,
			       stat.standbys_failed);
		failover_wait_a_bit(start_ns, what);
	}
}

void failover_wait_ready(struct gw_pool *pool, uint32_t workers)
{
	uint64_t start_ns = now_ns();

	while (failover_stat(pool).workers_ready < workers)
		failover_wait_a_bit(start_ns, "a worker");
}

struct gw_recovery failover_wait_begun(struct gw_pool *pool, uint64_t number)
{
	uint64_t start_ns = now_ns();
	struct gw_recovery recovery = {0};

	while (gw_pool_recovery(pool, number, &recovery) != 0)
		failover_wait_a_bit(start_ns, "a recovery");
	return recovery;
}

struct gw_recovery failover_wait_successor(struct gw_pool *pool, uint64_t number)
{
	uint64_t start_ns = now_ns();
	struct gw_recovery recovery = failover_wait_begun(pool, number);

	while (recovery.new_pid < 0) {
		failover_wait_a_bit(start_ns, "a successor");
		recovery = failover_wait_begun(pool, number);
	}
	return recovery;
}

struct gw_recovery failover_wait_complete(struct gw_pool *pool, uint64_t number)
{
	uint64_t start_ns = now_ns();
	struct gw_recovery recovery = {0};

	while (gw_pool_recovery(pool, number, &recovery) != 0 || !recovery.complete) {
		/* What the host does not take in, the ward waits for. */
		(void)failover_stat(pool);
		failover_wait_a_bit(start_ns, "the end of a recovery");
	}
	return recovery;
}

void failover_close(struct gw_pool *pool)
{
	gw_pool_close(pool);
	assert_int_equal(soft_used_bytes(0), 0);
	soft_dir_free();
}
