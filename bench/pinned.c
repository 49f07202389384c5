/* SPDX-License-Identifier: MIT */
/*
 * How fast a function copies straight from its input and to its output, in a pool without GW_POOL_PINNED and in
 * one with it, beside memory that the driver itself has pinned (cuMemAllocHost).
 *
 *	pinned [--rounds N] [--mib N] [--starts N] [--device N]
 *
 * Runs in: the host, which never loads CUDA; workers are this program again. Both pools are open all the time and
 * take turns; a task carries MIB (256) MiB in and as many out, and the worker takes the times of its two copies,
 * which are synchronous. The host fills each input anew, and compares each output with it. Last, pools of both
 * kinds are opened and closed in turn: what the flag costs there.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "gpu/cuda.h"

#define MIB UINT64_C(1048576)

/* Behind the data in an output. */
struct times {
	uint64_t in_ns;
	uint64_t out_ns;
	uint64_t flags; /* of the call */
};

/* ---- in a worker ---- */

static struct cuda_door door;
static uint64_t device_memory;
static void *own; /* pinned by the driver, in the size of the first task */
static uint64_t own_bytes;

static int prepare(int device)
{
	struct gw_error error;

	(void)device;
	return cuda_open(&door, &error) < 0 ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

static int allocate(uint64_t bytes)
{
	int result = CUDA_SUCCESS;

	if (own_bytes == bytes)
		return CUDA_SUCCESS;
	if (own_bytes != 0)
		return CUDA_ERROR_INVALID_VALUE;
	result = door.cuMemAlloc_v2(&device_memory, bytes);
	if (result == CUDA_SUCCESS)
		result = door.cuMemAllocHost_v2(&own, bytes);
	if (result == CUDA_SUCCESS)
		own_bytes = bytes;
	return result;
}

static int copy(void *to, const void *from, uint64_t bytes, struct times *times)
{
	uint64_t start = bench_now_ns();
	int result = door.cuMemcpyHtoD_v2(device_memory, from, bytes);
	uint64_t half = bench_now_ns();

	if (result == CUDA_SUCCESS)
		result = door.cuMemcpyDtoH_v2(to, device_memory, bytes);
	times->in_ns = half - start;
	times->out_ns = bench_now_ns() - half;
	return result;
}

static int run_copy(struct gw_call *call)
{
	struct times times = {.flags = call->flags};
	uint8_t *output = call->output;
	int result = allocate(call->input_bytes);

	if (result == CUDA_SUCCESS)
		result = copy(output, call->input, call->input_bytes, &times);
	memcpy(output + call->input_bytes, &times, sizeof(times));
	call->output_bytes = call->input_bytes + sizeof(times);
	return result;
}

/* The same by way of the driver's own memory, and then to the output, which takes no part in the times. */
static int run_own(struct gw_call *call)
{
	struct times times = {0};
	uint8_t *output = call->output;
	int result = allocate(call->input_bytes);

	if (result == CUDA_SUCCESS) {
		memcpy(own, call->input, call->input_bytes);
		result = copy(own, own, call->input_bytes, &times);
		memcpy(output, own, call->input_bytes);
	}
	memcpy(output + call->input_bytes, &times, sizeof(times));
	call->output_bytes = call->input_bytes + sizeof(times);
	return result;
}

static const struct gw_function functions[] = {
	{.name = "copy", .run = run_copy, .prepare = prepare},
	{.name = "own", .run = run_own},
	{.name = NULL},
};

/* ---- in the host ---- */

enum row {
	ROW_PLAIN,
	ROW_PINNED,
	ROW_OWN,
	ROWS,
};

static const struct {
	const char *name;
	const char *function;
	uint32_t pool; /* enum row of the pool that it runs in */
} rows[ROWS] = {
	{"without the flag", "copy", ROW_PLAIN},
	{"GW_POOL_PINNED", "copy", ROW_PINNED},
	{"cuMemAllocHost", "own", ROW_PLAIN},
};

static struct series in_gbs[ROWS], out_gbs[ROWS];
static struct series open_ms[ROWS], close_ms[ROWS];
static uint64_t pinned_flags = GW_CALL_INPUT_PINNED | GW_CALL_OUTPUT_PINNED;

static struct gw_pool *open_pool(uint64_t bytes, int device, bool pinned)
{
	struct gw_pool_options options = GW_OPTIONS(struct gw_pool_options);
	struct gw_error error;
	struct gw_pool *pool;

	options.devices = &device;
	options.n_devices = 1;
	options.max_input_bytes = bytes;
	options.max_output_bytes = bytes + sizeof(struct times);
	options.total_input_bytes = options.max_input_bytes;
	options.total_output_bytes = options.max_output_bytes;
	options.flags = pinned ? GW_POOL_PINNED : 0;
	if (gw_pool_open(&pool, &options, &error) < 0)
		bench_die("%s", error.msg);
	return pool;
}

static struct times run_task(struct gw_pool *pool, const char *function, uint64_t bytes,
			     uint64_t seed)
{
	struct gw_task_options options = GW_OPTIONS(struct gw_task_options);
	struct gw_outcome outcome;
	struct gw_error error;
	struct gw_task *task;
	struct times times;

	options.input_bytes = bytes;
	options.output_bytes = bytes + sizeof(times);
	if (gw_task_new(pool, function, &options, &task, &error) < 0)
		bench_die("%s", error.msg);
	payload_fill(gw_task_input(task), bytes, seed);
	if (gw_task_submit(task, &error) < 0 ||
	    gw_task_wait(task, GW_FOREVER, &outcome, &error) < 0)
		bench_die("%s", error.msg);
	if (outcome.kind != GW_DONE)
		bench_die("%s: kind %u, CUDA result %d: %s", function, outcome.kind, outcome.value,
			  outcome.message);
	if (outcome.output_bytes != bytes + sizeof(times) ||
	    memcmp(outcome.output, gw_task_input(task), bytes) != 0)
		bench_die("%s: what came back is not what was sent", function);
	memcpy(&times, (const uint8_t *)outcome.output + bytes, sizeof(times));
	gw_task_free(task);
	return times;
}

/* The first round of each is not counted: pages are touched for the first time, memory is allocated. */
static void measure_copies(uint64_t rounds, uint64_t bytes, int device)
{
	struct gw_pool *pools[] = {open_pool(bytes, device, false), open_pool(bytes, device, true)};

	for (uint64_t round = 0; round <= rounds; round++) {
		for (uint64_t n = 0; n < ROWS; n++) {
			uint64_t r = (n + round) % ROWS;
			struct times times = run_task(pools[rows[r].pool], rows[r].function, bytes,
						      round * ROWS + r);

			if (r == ROW_PINNED)
				pinned_flags &= times.flags;
			if (round == 0)
				continue;
			series_add(&in_gbs[r], (double)bytes / (double)times.in_ns);
			series_add(&out_gbs[r], (double)bytes / (double)times.out_ns);
		}
	}
	gw_pool_close(pools[ROW_PLAIN]);
	gw_pool_close(pools[ROW_PINNED]);
}

static void measure_starts(uint64_t starts, uint64_t bytes, int device)
{
	for (uint64_t i = 0; i < 2 * starts; i++) {
		uint64_t r = i % 2 ? ROW_PINNED : ROW_PLAIN;
		uint64_t start = bench_now_ns();
		struct gw_pool *pool = open_pool(bytes, device, r == ROW_PINNED);
		uint64_t opened = bench_now_ns();

		gw_pool_close(pool);
		series_add(&open_ms[r], (double)(opened - start) / 1e6);
		series_add(&close_ms[r], (double)(bench_now_ns() - opened) / 1e6);
	}
}

static void print_table(const char *title, const char *unit, uint64_t n, struct series first[],
			struct series second[], const char *first_name, const char *second_name)
{
	(void)printf("\n%s, %s\n%-20s %10s %18s   %10s %18s\n", title, unit, "", first_name,
		     "least to most", second_name, "least to most");
	for (uint64_t r = 0; r < n; r++)
		(void)printf("%-20s %10.2f %8.2f %9.2f   %10.2f %8.2f %9.2f\n", rows[r].name,
			     series_median(&first[r]), series_min(&first[r]), series_max(&first[r]),
			     series_median(&second[r]), series_min(&second[r]),
			     series_max(&second[r]));
}

int main(int argc, char **argv)
{
	uint64_t rounds = 20;
	uint64_t mib = 256;
	uint64_t starts = 5;
	uint64_t device = 0;
	const struct bench_option options[] = {{"--rounds", &rounds, NULL},
					       {"--mib", &mib, NULL},
					       {"--starts", &starts, NULL},
					       {"--device", &device, NULL},
					       {NULL, NULL, NULL}};

	if (gw_is_worker())
		return gw_worker_run(functions);
	bench_options(argc, argv, options);
	if (mib == 0 || mib > UINT64_C(1) << 20)
		bench_die("--mib is 1 to 1048576");
	measure_copies(rounds, mib * MIB, (int)device);
	measure_starts(starts, mib * MIB, (int)device);
	(void)printf("copies of %" PRIu64 " MiB in a worker, medians of %" PRIu64 "; pinned with "
		     "the flag: input %s, output %s\n",
		     mib, rounds, pinned_flags & GW_CALL_INPUT_PINNED ? "yes" : "no",
		     pinned_flags & GW_CALL_OUTPUT_PINNED ? "yes" : "no");
	print_table("copy", "GB/s", ROWS, in_gbs, out_gbs, "from input", "to output");
	print_table("a pool of one worker", "milliseconds", 2, open_ms, close_ms, "open", "close");
	return 0;
}
