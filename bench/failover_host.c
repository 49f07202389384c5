/* SPDX-License-Identifier: MIT */
/*
 * What every section of the fail-over benchmark does as a host: the page, pools, one fault, the bystander.
 *
 * Runs in: the host (and page_map() in its workers). Every wait has an end: bench_die() says what was late.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "failover.h"

#define PAGE_ENV "GPUWARD_BENCH_FAILOVER_PAGE"

const char *const kind_names[KINDS + 1] = {
	"null", "misaligned", "shared", "trap", "assert", "exit", "SIGKILL", "none",
};

struct failover_page *page;

/* ---- the page ---- */

bool page_map(void)
{
	const char *path = getenv(PAGE_ENV);
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	void *memory = MAP_FAILED;

	if (page)
		return true;
	if (fd >= 0) {
		memory = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		(void)close(fd);
	}
	if (memory == MAP_FAILED)
		return false;
	page = memory;
	return true;
}

void page_make(void)
{
	int fd = bench_os(memfd_create("gpuward-bench", MFD_CLOEXEC), "memfd_create");
	char path[64];

	(void)bench_os(ftruncate(fd, sizeof(*page)), "ftruncate");
	(void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)getpid(), fd);
	(void)bench_os(setenv(PAGE_ENV, path, 1), "setenv");
	if (!page_map())
		bench_die("%s: %s", path, strerror(errno));
}

/* ---- times ---- */

bool is_known(uint64_t time_ns)
{
	return time_ns != GW_UNKNOWN && time_ns != 0;
}

double ms_since(uint64_t start_ns, uint64_t time_ns)
{
	return ((double)time_ns - (double)start_ns) / 1e6;
}

void say(const char *format, ...)
{
	static uint64_t began_ns;
	va_list arguments;

	if (began_ns == 0)
		began_ns = bench_now_ns();
	(void)fprintf(stderr, "[%6.1f s] ", ms_since(began_ns, bench_now_ns()) / 1e3);
	va_start(arguments, format);
	(void)vfprintf(stderr, format, arguments);
	va_end(arguments);
	(void)fputc('\n', stderr);
}

/* ---- pools ---- */

struct gw_pool *open_failover_pool(uint32_t standby, uint32_t connections, uint32_t detect)
{
	struct gw_pool_options options = GW_OPTIONS(struct gw_pool_options);
	struct gw_error error = {0};
	struct gw_pool *pool;
	int device = (int)failover.device;

	options.devices = &device;
	options.n_devices = 1;
	options.max_input_bytes = options.max_output_bytes = MIB;
	options.total_input_bytes = options.total_output_bytes = 64 * MIB;
	options.standby = standby;
	options.connections = connections;
	options.detect = detect;
	if (gw_pool_open(&pool, &options, &error) < 0)
		bench_die("%s", error.msg);
	return pool;
}

struct gw_pool_stat stat_of(struct gw_pool *pool)
{
	struct gw_pool_stat stat = {0};

	(void)gw_pool_dispatch(pool, NULL);
	if (gw_pool_stat(pool, &stat) < 0)
		bench_die("gw_pool_stat fails");
	return stat;
}

/* A standby says nothing to the host when it is up: it is looked at, every millisecond at least. */
static void wait_a_little(struct gw_pool *pool, uint64_t late_ns, const char *what)
{
	struct pollfd fd = {.fd = gw_pool_fd(pool), .events = POLLIN};

	if (bench_now_ns() > late_ns)
		bench_die("late: %s", what);
	(void)poll(&fd, 1, 1);
}

void wait_settled(struct gw_pool *pool, uint32_t standby)
{
	uint64_t late_ns = bench_now_ns() + WAIT_NS;

	for (;;) {
		struct gw_pool_stat stat = stat_of(pool);
		uint32_t up = standby == GW_STANDBY_HOT ? stat.standbys_hot : stat.standbys_primed;

		if (stat.workers_failed > 0 || stat.standbys_failed > 0)
			bench_die("a worker or its standby is given up: %s", stat.last_exit.text);
		if (stat.workers_ready == 1 && (standby == GW_STANDBY_COLD || up == 1))
			return;
		wait_a_little(pool, late_ns, "a worker and its standby are to be up");
	}
}

struct gw_recovery wait_recovery(struct gw_pool *pool, uint64_t number)
{
	uint64_t late_ns = bench_now_ns() + WAIT_NS;
	struct gw_recovery recovery = {0};

	while (gw_pool_recovery(pool, number, &recovery) != 0 || !recovery.complete) {
		wait_a_little(pool, late_ns, "a recovery is to be complete");
		(void)gw_pool_dispatch(pool, NULL);
	}
	return recovery;
}

/* ---- tasks ---- */

struct gw_task *start_task(struct gw_pool *pool, const char *name, const void *input,
			   uint64_t input_bytes, uint64_t output_bytes)
{
	struct gw_task_options options = GW_OPTIONS(struct gw_task_options);
	struct gw_error error = {0};
	struct gw_task *task;

	options.input_bytes = input_bytes;
	options.output_bytes = output_bytes;
	if (gw_task_start(pool, name, input, &options, &task, &error) < 0)
		bench_die("%s: %s", name, error.msg);
	return task;
}

void end_task(struct gw_task *task, const char *what, void *output, uint64_t output_bytes)
{
	struct gw_outcome outcome = {0};
	struct gw_error error = {0};

	if (gw_task_wait(task, WAIT_NS, &outcome, &error) != 1)
		bench_die("%s: the task does not end: %s", what, error.msg);
	if (outcome.kind != GW_DONE || atomic_load(&page->failure))
		bench_die("%s: outcome %u, result %d after %u attempts, unexpected result %d: %s",
			  what, outcome.kind, outcome.value, outcome.attempts,
			  atomic_load(&page->failure), outcome.message);
	if (output && outcome.output_bytes != output_bytes)
		bench_die("%s: %" PRIu64 " bytes came and not %" PRIu64, what, outcome.output_bytes,
			  output_bytes);
	if (output)
		memcpy(output, outcome.output, output_bytes);
	gw_task_free(task);
}

struct gw_recovery fault_once(struct gw_pool *pool, const struct fault_job *job)
{
	uint64_t number = stat_of(pool).recoveries;

	atomic_store(&page->good_ns, 0);
	end_task(start_task(pool, "fault", job, sizeof(*job), 0), kind_names[job->kind], NULL, 0);
	return wait_recovery(pool, number);
}

/* ---- the bystander ---- */

/* Its next kernel, begun after now, is done. */
static void wait_for_loops(const struct bystander *bystander, uint64_t more)
{
	uint64_t late_ns = bench_now_ns() + WAIT_NS;
	uint64_t wanted = atomic_load(&page->loops) + more;

	while (atomic_load(&page->loops) < wanted) {
		if (bench_now_ns() > late_ns || atomic_load(&page->failure))
			bench_die("the bystander (pid %d) does not run: result %d",
				  (int)bystander->pid, atomic_load(&page->failure));
		(void)poll(NULL, 0, 1);
	}
}

void bystander_start(struct bystander *bystander, uint32_t connections)
{
	if (bench_fork_peer(&bystander->pid))
		bystander_main((int)failover.device, connections);
	wait_for_loops(bystander, 100);
}

void bystander_end(struct bystander *bystander)
{
	bench_end_peer(bystander->pid);
	bystander->pid = 0;
}

struct gap bystander_longest_gap(struct bystander *bystander, uint64_t from_ns, uint64_t to_ns)
{
	struct gap longest = {0};
	uint64_t n;

	wait_for_loops(bystander, 2);
	n = atomic_load(&page->n_gaps);
	if (n - bystander->seen > GAPS_MAX)
		bystander->seen = n - GAPS_MAX;
	for (; bystander->seen < n; bystander->seen++) {
		struct gap gap = page->gaps[bystander->seen % GAPS_MAX];

		if (gap.to_ns > from_ns && gap.from_ns < to_ns &&
		    gap.to_ns - gap.from_ns > longest.to_ns - longest.from_ns)
			longest = gap;
	}
	return longest;
}
