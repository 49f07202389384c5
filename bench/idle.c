/* SPDX-License-Identifier: MIT */
/*
 * What a pool costs that has nothing to do: wake-ups of host, ward and workers, and the ward's memory.
 *
 *	idle [--ms N] [--workers N]
 *
 * Runs in: the host. Two pools at once: one is quite idle, and a thread of the host sleeps in poll() on
 * gw_pool_fd(); in the other a task sleeps for ever and a thread of the host waits for it. What is counted
 * are the context switches, voluntary and not, of each thread of each of these processes between two
 * looks at /proc: a thread that never runs has none. The main thread, which looks, is not counted.
 */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"

#define GOAL_WARD_KIB 2048U

static int run_sleep(struct gw_call *call)
{
	(void)call;
	for (;;)
		(void)pause();
	return 0;
}

static const struct gw_function functions[] = {
	{.name = "sleep", .run = run_sleep},
	{.name = NULL},
};

/* A thread of the host that has a pool to watch. */
struct watcher {
	pthread_t thread;
	_Atomic int tid;
	struct gw_pool *pool;
	struct gw_task *task; /* to wait for; NULL: poll instead */
	int stop_fd;	      /* ends the poll */
};

static void *watch(void *argument)
{
	struct watcher *watcher = argument;
	struct pollfd fds[] = {{.fd = gw_pool_fd(watcher->pool), .events = POLLIN},
			       {.fd = watcher->stop_fd, .events = POLLIN}};
	struct gw_error error;

	if (watcher->task) {
		atomic_store(&watcher->tid, (int)syscall(SYS_gettid));
		(void)gw_task_wait(watcher->task, GW_FOREVER, NULL, &error);
		return NULL;
	}
	/* What lies there from the start is taken in before the watch begins. */
	while (poll(fds, 1, 100) > 0)
		(void)gw_pool_dispatch(watcher->pool, &error);
	atomic_store(&watcher->tid, (int)syscall(SYS_gettid));
	while (poll(fds, 2, -1) >= 0 && !fds[1].revents)
		(void)gw_pool_dispatch(watcher->pool, &error);
	return NULL;
}

/* The sum of the two lines of context switches in the file PATH. */
static uint64_t switches_in(const char *path)
{
	FILE *file = fopen(path, "re");
	uint64_t sum = 0;
	char line[256];

	if (!file)
		bench_die("%s: %s", path, strerror(errno));
	while (fgets(line, sizeof(line), file)) {
		if (strstr(line, "ctxt_switches:"))
			sum += strtoull(strchr(line, ':') + 1, NULL, 10);
	}
	(void)fclose(file);
	return sum;
}

static uint64_t switches_of_thread(int pid, int tid)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "/proc/%d/task/%d/status", pid, tid);
	return switches_in(path);
}

static uint64_t switches_of_process(int pid)
{
	struct dirent *entry;
	uint64_t sum = 0;
	char path[64];
	DIR *folder;

	(void)snprintf(path, sizeof(path), "/proc/%d/task", pid);
	folder = opendir(path);
	if (!folder)
		bench_die("%s: %s", path, strerror(errno));
	while ((entry = readdir(folder))) {
		if (entry->d_name[0] != '.')
			sum += switches_of_thread(pid, atoi(entry->d_name));
	}
	(void)closedir(folder);
	return sum;
}

static uint64_t private_kib(int pid)
{
	char line[256], path[64];
	uint64_t kib = 0;
	FILE *file;

	(void)snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", pid);
	file = fopen(path, "re");
	if (!file)
		bench_die("%s: %s", path, strerror(errno));
	while (fgets(line, sizeof(line), file)) {
		if (strncmp(line, "Private_", 8) == 0)
			kib += strtoull(strchr(line, ':') + 1, NULL, 10);
	}
	(void)fclose(file);
	return kib;
}

/* Context switches so far, of everybody. */
struct counts {
	uint64_t host;
	uint64_t wards;
	uint64_t workers;
};

static int ward_of(struct gw_pool *pool)
{
	struct gw_pool_stat stat;

	if (gw_pool_stat(pool, &stat) < 0)
		bench_die("a pool does not tell its ward");
	return stat.ward_pid;
}

static void add_pool(struct counts *counts, const struct watcher *watcher)
{
	struct gw_worker_info info;

	counts->host += switches_of_thread(getpid(), atomic_load(&watcher->tid));
	counts->wards += switches_of_process(ward_of(watcher->pool));
	for (uint32_t i = 0; gw_pool_worker(watcher->pool, i, &info) == 0; i++)
		counts->workers += switches_of_process(info.pid);
}

static struct counts count(const struct watcher watchers[2])
{
	struct counts counts = {0};

	for (int i = 0; i < 2; i++)
		add_pool(&counts, &watchers[i]);
	return counts;
}

static void sleep_ms(uint64_t ms)
{
	struct timespec time = {.tv_sec = (time_t)(ms / 1000),
				.tv_nsec = (long)(ms % 1000) * 1000000};

	while (nanosleep(&time, &time) < 0 && errno == EINTR)
		continue;
}

/* Every worker is ready: opening a pool waits for the first only. */
static void wait_ready(struct gw_pool *pool, uint64_t workers)
{
	struct gw_pool_stat stat = {0};
	struct gw_error error;

	while (stat.workers_ready < workers) {
		struct pollfd fd = {.fd = gw_pool_fd(pool), .events = POLLIN};

		(void)gw_pool_dispatch(pool, &error);
		if (gw_pool_stat(pool, &stat) < 0 || stat.workers_failed > 0)
			bench_die("a worker does not become ready");
		if (stat.workers_ready < workers)
			(void)poll(&fd, 1, 1000);
	}
}

static void start(struct watcher *watcher, uint64_t workers, bool with_task, int stop_fd)
{
	struct gw_task_options options = GW_OPTIONS(struct gw_task_options);
	struct gw_error error;

	watcher->pool = bench_pool((uint32_t)workers, 0, 0);
	watcher->stop_fd = stop_fd;
	wait_ready(watcher->pool, workers);
	if (with_task &&
	    gw_task_start(watcher->pool, "sleep", NULL, &options, &watcher->task, &error) < 0)
		bench_die("%s", error.msg);
	if (pthread_create(&watcher->thread, NULL, watch, watcher) != 0)
		bench_die("cannot start a thread");
	while (atomic_load(&watcher->tid) == 0)
		sleep_ms(10);
}

static void stop(struct watcher *watcher)
{
	struct gw_error error;

	if (watcher->task && gw_task_cancel(watcher->task, true, &error) < 0)
		bench_die("%s", error.msg);
	(void)pthread_join(watcher->thread, NULL);
	gw_task_free(watcher->task);
	gw_pool_close(watcher->pool);
}

static void print(const struct counts *before, const struct counts *after, uint64_t ms)
{
	(void)printf("idle, two pools, %llu ms\n%-34s %8s\n", (unsigned long long)ms, "",
		     "switches");
	(void)printf("%-34s %8llu\n", "host, in poll() and in a wait",
		     (unsigned long long)(after->host - before->host));
	(void)printf("%-34s %8llu\n", "wards", (unsigned long long)(after->wards - before->wards));
	(void)printf("%-34s %8llu\n", "workers",
		     (unsigned long long)(after->workers - before->workers));
}

int main(int argc, char **argv)
{
	uint64_t ms = 10000;
	uint64_t workers = 2;
	const struct bench_option options[] = {
		{"--ms", &ms, NULL}, {"--workers", &workers, NULL}, {NULL, NULL, NULL}};
	struct watcher watchers[2] = {0};
	struct counts before, after;
	int stop_fds[2];

	if (gw_is_worker())
		return gw_worker_run(functions);
	bench_options(argc, argv, options);
	(void)bench_os(pipe(stop_fds), "pipe");
	for (int i = 0; i < 2; i++)
		start(&watchers[i], workers, i == 1, stop_fds[0]);
	/* The workers and the waiting thread get to their sleep. */
	sleep_ms(300);
	before = count(watchers);
	sleep_ms(ms);
	after = count(watchers);
	print(&before, &after, ms);
	for (int i = 0; i < 2; i++)
		(void)printf("%-34s %8llu KiB (goal: at most %u)\n", "private memory of a ward",
			     (unsigned long long)private_kib(ward_of(watchers[i].pool)),
			     GOAL_WARD_KIB);
	(void)close(stop_fds[1]);
	for (int i = 0; i < 2; i++)
		stop(&watchers[i]);
	return 0;
}
