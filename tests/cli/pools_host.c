/* SPDX-License-Identifier: MIT */
/*
 * Pools for the test of `gpuward pools`: a real one, and processes that call themselves wards.
 *
 *	pools_host pool		opens a pool of two workers, runs three tasks of which one kills its worker
 *	pools_host fake HOW	is called like a ward, and shows a page that is wrong in the way HOW
 *
 * Runs in: host, worker, or a process that plays a ward. It prints the pid of the ward when all is done, and ends
 * when its standard input does.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <gpuward.h>

#include "common/fd.h"
#include "common/pool_page.h"

static int run_die(struct gw_call *call)
{
	if (call->attempt == 0)
		(void)raise(SIGKILL);
	return 0;
}

static int run_good(struct gw_call *call)
{
	(void)call;
	return 0;
}

static void wait_for_end(void)
{
	char c;

	while (read(STDIN_FILENO, &c, 1) > 0)
		continue;
}

static int run_task(struct gw_pool *pool, const char *function)
{
	struct gw_task_options options = GW_OPTIONS(struct gw_task_options);
	struct gw_task *task = NULL;
	struct gw_outcome outcome = {0};

	options.input_bytes = 1024;
	if (gw_task_new(pool, function, &options, &task, NULL) < 0 ||
	    gw_task_submit(task, NULL) < 0 || gw_task_wait(task, GW_FOREVER, &outcome, NULL) != 1)
		return -1;
	/* The last one stays: its input counts. */
	if (strcmp(function, "die") != 0)
		gw_task_free(task);
	return outcome.kind == GW_DONE ? 0 : -1;
}

/* Until the recovery is complete: what is shown does not change any more then. */
static int wait_recovered(struct gw_pool *pool)
{
	struct gw_recovery recovery = {0};
	struct gw_pool_stat stat = {0};

	while (gw_pool_recovery(pool, 0, &recovery) < 0 || !recovery.complete ||
	       stat.workers_ready < 2) {
		if (gw_pool_dispatch(pool, NULL) < 0 || gw_pool_stat(pool, &stat) < 0)
			return -1;
	}
	(void)printf("%d\n", stat.ward_pid);
	(void)fflush(stdout);
	return 0;
}

static int play_pool(void)
{
	struct gw_pool_options options = GW_OPTIONS(struct gw_pool_options);
	struct gw_error error = {0};
	struct gw_pool *pool = NULL;

	options.workers_per_device = 2;
	options.restart_min_ns = 1;
	if (gw_pool_open(&pool, &options, &error) < 0) {
		(void)fprintf(stderr, "%s\n", error.msg);
		return 1;
	}
	if (run_task(pool, "good") < 0 || run_task(pool, "good") < 0 || run_task(pool, "die") < 0 ||
	    wait_recovered(pool) < 0)
		return 1;
	wait_for_end();
	gw_pool_close(pool);
	return 0;
}

static struct pool_page *page;

static void *write_for_ever(void *argument)
{
	(void)argument;
	for (;;)
		(void)atomic_fetch_add(&page->report_number, 1);
	return NULL;
}

static void spoil(const char *how)
{
	pthread_t thread;

	if (strcmp(how, "layout") == 0) {
		page->layout++;
		memset(page->version, 0x1b, sizeof(page->version));
	} else if (strcmp(how, "magic") == 0) {
		page->magic = 1;
	} else if (strcmp(how, "counts") == 0) {
		page->host.n_devices = GW_WORKERS_MAX + 1;
	} else if (strcmp(how, "torn") == 0) {
		page->host.last_exit.end = GW_END_SIGNAL;
		page->host.exit_sequence = 1;
	} else if (strcmp(how, "moving") == 0) {
		(void)pthread_create(&thread, NULL, write_for_ever, NULL);
	} else if (strcmp(how, "text") == 0) {
		page->host.last_exit.end = 77;
		page->host.last_exit.source = 99;
		page->host.pid = getppid();
		page->reports[0].n_recoveries = UINT64_MAX;
		memset(page->host.last_exit.text, 0x1b, sizeof(page->host.last_exit.text));
		memset(page->host.state_name, 0xff, sizeof(page->host.state_name));
		page->states.pieces = UINT32_MAX;
		page->states.bytes = UINT64_MAX;
		page->reports[0].noticed_by[GW_SOURCE_NVML] = UINT64_MAX;
		page->reports[0].source_error[GW_SOURCE_NVML] = INT32_MIN;
	}
}

static int play_ward(const char *how)
{
	uint64_t bytes = strcmp(how, "short") == 0 ? 100 : sizeof(*page);
	int fd = fd_new_memory(POOL_PAGE_NAME, bytes);

	if (fd < 0 || prctl(PR_SET_NAME, "gpuward-ward") < 0)
		return 1;
	page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED)
		return 1;
	pool_page_init(page);
	spoil(how);
	if (strcmp(how, "unsealed") != 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0)
		return 1;
	(void)printf("%d\n", getpid());
	(void)fflush(stdout);
	wait_for_end();
	return 0;
}

int main(int argc, char **argv)
{
	const struct gw_function functions[] = {
		{.name = "die", .run = run_die}, {.name = "good", .run = run_good}, {0}};

	if (gw_is_worker())
		return gw_worker_run(functions);
	if (argc == 3 && strcmp(argv[1], "fake") == 0)
		return play_ward(argv[2]);
	return play_pool();
}
