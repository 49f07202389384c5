/* SPDX-License-Identifier: MIT */
/*
 * How long a pool without a standby takes from a fault to the next good kernel, for each kind of fault,
 * beside the least that a program by itself can do.
 *
 *	cold [--repeat N] [--device N]
 *
 * The least is the sum of two times, both measured in bare processes in the same run, alone on the GPU:
 *
 *	reported   from the launch of the bad kernel until CUDA itself returns the error
 *	fresh      from fork() until the first kernel of the new process is done
 *
 * The pool's time is from the launch of the bad kernel in one worker until a good kernel is done in the next:
 * the same task, run again by the pool. Each repetition measures all kinds in turn.
 *
 * Runs in: the host, which never loads CUDA; bare processes are forked from it; workers are this program
 * again. What they saw lies in one shared page, whose descriptor workers open by the host's pid: a fault
 * takes the task's own output away. Read next: ../src/gpu/kernels_ptx.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"
#include "gpu/cuda.h"
#include "gpu/kernels_ptx.h"

#define PAGE_ENV   "GPUWARD_BENCH_COLD_PAGE"
#define PAGE_BYTES 4096U
#define GOAL	   1.05

/* The kinds of faults, in the order of the table. */
static const struct kind {
	const char *name;
	const char *kernel;
	int result; /* what CUDA reports */
} kinds[] = {
	{"null write", "fault_null", CUDA_ERROR_ILLEGAL_ADDRESS},
	{"misaligned write", "fault_misaligned", CUDA_ERROR_MISALIGNED_ADDRESS},
	{"shared out of range", "fault_shared", CUDA_ERROR_ILLEGAL_INSTRUCTION},
	{"assert", "fault_assert", CUDA_ERROR_ASSERT},
	{"trap", "fault_trap", CUDA_ERROR_LAUNCH_FAILED},
};

#define N_KINDS (sizeof(kinds) / sizeof(kinds[0]))

/* What the processes that use the GPU saw, on the clock that all of them share. */
struct seen {
	_Atomic uint64_t launched_ns; /* the bad kernel */
	_Atomic uint64_t reported_ns; /* by CUDA */
	_Atomic uint64_t good_ns;     /* a good kernel was done */
	_Atomic int32_t failure;      /* a result that nobody expected, or 0 */
};

static struct seen *seen;

/* ---- in a process that uses the GPU ---- */

static struct cuda_door door;
static struct cuda_module *module;
static uint64_t scratch; /* device memory: a kernel's target that is not good for it */

static int launch(const char *name, void **parameters)
{
	struct cuda_function *function;
	int result = door.cuModuleGetFunction(&function, module, name);

	if (result == CUDA_SUCCESS)
		result = door.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
	return result;
}

static int launch_bad(const struct kind *kind)
{
	uint32_t one = 1;
	void *parameters[1] = {&one};

	if (strcmp(kind->kernel, "fault_misaligned") == 0)
		parameters[0] = &scratch;
	return launch(kind->kernel, parameters);
}

static int load_kernels(void)
{
	int result = door.cuModuleLoadData(&module, gpu_kernels_ptx);

	return result == CUDA_SUCCESS ? door.cuMemAlloc_v2(&scratch, 256) : result;
}

static int run_good_kernel(void)
{
	int result = launch("nop", NULL);

	if (result == CUDA_SUCCESS)
		result = door.cuCtxSynchronize();
	if (result == CUDA_SUCCESS)
		atomic_store(&seen->good_ns, bench_now_ns());
	return result;
}

static int run_bad_kernel(const struct kind *kind)
{
	int result;

	atomic_store(&seen->launched_ns, bench_now_ns());
	result = launch_bad(kind);
	if (result == CUDA_SUCCESS)
		result = door.cuCtxSynchronize();
	atomic_store(&seen->reported_ns, bench_now_ns());
	if (result != kind->result)
		atomic_store(&seen->failure, result ? result : -1);
	return result;
}

/* ---- bare processes ---- */

/* Everything that a program needs for its first kernel, the driver's library included. */
static int start_bare(int device)
{
	struct cuda_context *context;
	struct gw_error error;
	int result;

	if (cuda_open(&door, &error) < 0 ||
	    cuda_start_device(&door, device, &context, &error) < 0) {
		(void)fprintf(stderr, "bench: %s\n", error.msg);
		return CUDA_ERROR_UNKNOWN;
	}
	result = load_kernels();
	return result == CUDA_SUCCESS ? run_good_kernel() : result;
}

/* Runs one bare process to its end: with a fault, or without where KIND is NULL. */
static void run_bare(const struct kind *kind, int device)
{
	pid_t child = bench_os(fork(), "fork");
	int status;

	if (child == 0) {
		int result = start_bare(device);

		if (result != CUDA_SUCCESS)
			atomic_store(&seen->failure, result);
		else if (kind)
			(void)run_bad_kernel(kind);
		_exit(0);
	}
	if (waitpid(child, &status, 0) != child || status != 0)
		bench_die("a bare process ended with status %d", status);
	if (atomic_load(&seen->failure))
		bench_die("a bare process got CUDA result %d", atomic_load(&seen->failure));
}

static double measure_report_ms(const struct kind *kind, int device)
{
	run_bare(kind, device);
	return (double)(atomic_load(&seen->reported_ns) - atomic_load(&seen->launched_ns)) / 1e6;
}

static double measure_fresh_ms(int device)
{
	uint64_t start = bench_now_ns();

	run_bare(NULL, device);
	return (double)(atomic_load(&seen->good_ns) - start) / 1e6;
}

/* ---- the pool's workers ---- */

static void map_page(const char *path)
{
	int fd = bench_os(open(path, O_RDWR | O_CLOEXEC), path);
	void *page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (page == MAP_FAILED)
		bench_die("%s: %s", path, strerror(errno));
	(void)close(fd);
	seen = page;
}

static int prepare_fault(int device)
{
	const char *path = getenv(PAGE_ENV);
	struct gw_error error;

	(void)device;
	if (!path || cuda_open(&door, &error) < 0)
		return CUDA_ERROR_UNKNOWN;
	map_page(path);
	return load_kernels();
}

/* Faults in the first attempt and does something good in the second. */
static int run_fault(struct gw_call *call)
{
	uint32_t number = *(const uint32_t *)call->input;

	if (number >= N_KINDS)
		return CUDA_ERROR_INVALID_VALUE;
	return call->attempt == 0 ? run_bad_kernel(&kinds[number]) : run_good_kernel();
}

static const struct gw_function functions[] = {
	{.name = "fault", .run = run_fault, .prepare = prepare_fault, .flags = GW_FUNCTION_SYNCED},
	{.name = NULL},
};

/* ---- the host ---- */

static void make_page(void)
{
	int fd = bench_os(memfd_create("gpuward-bench", MFD_CLOEXEC), "memfd_create");
	char path[64];

	(void)bench_os(ftruncate(fd, PAGE_BYTES), "ftruncate");
	(void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)getpid(), fd);
	(void)bench_os(setenv(PAGE_ENV, path, 1), "setenv");
	map_page(path);
}

static struct gw_pool *open_pool(int device)
{
	struct gw_pool_options options = GW_OPTIONS(struct gw_pool_options);
	struct gw_error error;
	struct gw_pool *pool;

	options.devices = &device;
	options.n_devices = 1;
	if (gw_pool_open(&pool, &options, &error) < 0)
		bench_die("%s", error.msg);
	return pool;
}

/* A pool of its own for each fault: none profits or suffers from the one before. */
static double measure_pool_ms(uint32_t number, int device)
{
	struct gw_task_options options = GW_OPTIONS(struct gw_task_options);
	struct gw_pool *pool = open_pool(device);
	struct gw_outcome outcome;
	struct gw_error error;
	struct gw_task *task;

	options.input_bytes = sizeof(number);
	if (gw_task_start(pool, "fault", &number, &options, &task, &error) < 0 ||
	    gw_task_wait(task, GW_FOREVER, &outcome, &error) < 0)
		bench_die("%s", error.msg);
	if (outcome.kind != GW_DONE || outcome.attempts != 1 || atomic_load(&seen->failure))
		bench_die("%s: kind %u after %u attempts, CUDA result %d: %s", kinds[number].name,
			  outcome.kind, outcome.attempts, atomic_load(&seen->failure),
			  outcome.message);
	gw_task_free(task);
	gw_pool_close(pool);
	return (double)(atomic_load(&seen->good_ns) - atomic_load(&seen->launched_ns)) / 1e6;
}

/* All times in milliseconds. */
struct results {
	struct series reported[N_KINDS];
	struct series pool[N_KINDS];
	struct series fresh;
};

static void measure_all(struct results *results, uint64_t repeat, int device)
{
	/* The first process compiles the kernels; the driver keeps them. */
	(void)measure_fresh_ms(device);
	for (uint64_t r = 0; r < repeat; r++) {
		for (uint32_t n = 0; n < N_KINDS; n++) {
			uint32_t k = (uint32_t)((n + r) % N_KINDS);

			series_add(&results->reported[k], measure_report_ms(&kinds[k], device));
			series_add(&results->fresh, measure_fresh_ms(device));
			series_add(&results->pool[k], measure_pool_ms(k, device));
		}
	}
}

static void print_table(struct results *results)
{
	double fresh = series_median(&results->fresh);

	(void)printf("fresh process to first kernel: %.1f ms (%.1f to %.1f)\n", fresh,
		     series_min(&results->fresh), series_max(&results->fresh));
	(void)printf("%-20s %10s %12s %10s %18s %8s  %s\n", "fault", "reported", "sum with it",
		     "pool", "least to most", "ratio", "goal 1.05");
	for (size_t k = 0; k < N_KINDS; k++) {
		double reported = series_median(&results->reported[k]);
		double pool = series_median(&results->pool[k]);
		double ratio = pool / (reported + fresh);

		(void)printf("%-20s %10.1f %12.1f %10.1f %8.1f %9.1f %8.3f  %s\n", kinds[k].name,
			     reported, reported + fresh, pool, series_min(&results->pool[k]),
			     series_max(&results->pool[k]), ratio,
			     ratio <= GOAL ? "met" : "missed");
	}
}

int main(int argc, char **argv)
{
	static struct results results;
	uint64_t repeat = 10;
	uint64_t device = 0;
	const struct bench_option options[] = {
		{"--repeat", &repeat, NULL}, {"--device", &device, NULL}, {NULL, NULL, NULL}};

	if (gw_is_worker())
		return gw_worker_run(functions);
	bench_options(argc, argv, options);
	make_page();
	measure_all(&results, repeat, (int)device);
	(void)printf("cold recovery, medians of %" PRIu64 ", milliseconds\n", repeat);
	print_table(&results);
	return 0;
}
