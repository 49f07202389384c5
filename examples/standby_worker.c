/* SPDX-License-Identifier: MIT */
/*
 * What the service of standby.c runs in its workers: it loads the table, answers, and computes the checksum.
 *
 * Runs in: worker, with the device's context current. What a function returns is a CUresult; one that poisons the
 * process gets a new one, in which the function runs again. Read next: standby_gpu.h for the kernels.
 */
#include <stdio.h>

#include "standby.h"
#include "standby_gpu.h"

#define BLOCKS 1024U /* for a kernel that goes through the whole table */

static uint64_t sum_at; /* device memory: where kernels leave a sum */

/* Once per process, before it serves; in a standby: before it is needed. */
static int prepare(int device)
{
	int error = cuda_open();

	(void)device;
	if (!error)
		error = cuda_load_kernels();
	return error ? error : cuda.alloc(&sum_at, 256);
}

/* What a function returns after a call of gpuward that failed: where CUDA failed in it, what CUDA said. */
static int failed(const struct gw_error *error)
{
	return error->domain == GW_DOMAIN_CUDA ? (int)error->native : error->code;
}

/* Where the table lies: the same address in every worker. A standby has it mapped in advance. */
static int find_table(uint64_t *ret_address)
{
	struct gw_state_info info = {.size = sizeof(info)};
	struct gw_error error;

	if (gw_state_map("table", GW_STATE_READ, &info, &error) < 0)
		return failed(&error);
	*ret_address = info.address;
	return 0;
}

static int sum(struct gw_call *call, uint64_t address, uint64_t words, unsigned int blocks)
{
	void *parameters[] = {&address, &words, &sum_at};
	int error = cuda.clear(sum_at, 0, sizeof(uint64_t));

	if (!error)
		error = cuda_run(CHECKSUM, blocks, parameters);
	call->output_bytes = sizeof(uint64_t);
	return error ? error : cuda.copy_out(call->output, sum_at, sizeof(uint64_t));
}

static int run_answer(struct gw_call *call)
{
	const struct request *request = call->input;
	void *bad_address[] = {&sum_at};
	uint64_t table;
	int result;

	if (request->fault && call->attempt == 0)
		return cuda_run((enum kernel)(FAULT_NULL + (request->fault - 1) % FAULTS), 1,
				bad_address);
	result = find_table(&table);
	return result ? result : sum(call, table + request->page * PAGE_WORDS * 4, PAGE_WORDS, 1);
}

static int run_checksum(struct gw_call *call)
{
	const struct request *request = call->input;
	uint64_t table;
	int result = find_table(&table);

	return result ? result : sum(call, table, request->page_count * PAGE_WORDS, BLOCKS);
}

/* The only one that ever writes to the table. */
static int run_load(struct gw_call *call)
{
	const struct request *request = call->input;
	uint64_t table, words = request->page_count * PAGE_WORDS;
	uint32_t seed = SEED;
	void *parameters[] = {&table, &words, &seed};
	struct gw_error error = {0};
	int result = 0;

	if (gw_state_create("table", words * 4, GW_STATE_SEALED, &table, &error) < 0)
		result = failed(&error);
	if (result == 0)
		result = cuda_run(FILL, BLOCKS, parameters);
	if (result == 0 && gw_state_seal("table", &error) < 0)
		result = failed(&error);
	(void)snprintf(call->message, sizeof(call->message), "%.120s", error.msg);
	return result;
}

const struct gw_function standby_functions[] = {
	{.name = "load", .run = run_load, .prepare = prepare},
	{.name = "answer", .run = run_answer},
	{.name = "checksum", .run = run_checksum},
	{.name = NULL},
};
