/* SPDX-License-Identifier: MIT */
/*
 * Makes, maps and checks sealed state in a worker of the fail-over benchmark.
 *
 * Runs in: worker. Piece N is filled with seed N. Read next: failover_state.h.
 */
#include <stdio.h>
#include <string.h>

#include "failover_gpu.h"
#include "failover_state.h"

#define BLOCKS	    1056U /* 8 for each multiprocessor of an H200 */
#define FIRST_WORDS 256U

static void name_piece(char name[GW_NAME_MAX], uint32_t number)
{
	(void)snprintf(name, GW_NAME_MAX, "piece.%u", number);
}

/* What a function returns of a gw_state_* call that failed. */
static int failed(int code, const struct gw_error *error)
{
	return error->domain == GW_DOMAIN_CUDA ? (int)error->native : code;
}

static int make_piece(uint32_t number, uint64_t bytes, struct gw_error *error)
{
	uint64_t address, words = bytes / 4;
	void *fill[] = {&address, &words, &number};
	char name[GW_NAME_MAX];
	int result;

	name_piece(name, number);
	result = gw_state_create(name, bytes, GW_STATE_SEALED, &address, error);
	if (result < 0)
		return failed(result, error);
	result = gpu_launch(KERNEL_FILL, BLOCKS, fill);
	if (result != 0)
		return result;
	result = gw_state_seal(name, error);
	return result < 0 ? failed(result, error) : 0;
}

int run_make(struct gw_call *call)
{
	const struct make_job *job = call->input;
	struct gw_error error = {0};
	int result = 0;

	for (uint32_t i = 0; i < job->pieces && result == 0; i++)
		result = make_piece(i, job->bytes, &error);
	(void)snprintf(call->message, sizeof(call->message), "%.127s", error.msg);
	return result;
}

static int map_piece(uint32_t number, struct gw_state_info *info)
{
	struct gw_error error = {0};
	char name[GW_NAME_MAX];
	int result;

	*info = (struct gw_state_info){.size = sizeof(*info)};
	name_piece(name, number);
	result = gw_state_map(name, GW_STATE_READ, info, &error);
	return result < 0 ? failed(result, &error) : 0;
}

static int check_words(uint64_t address, uint64_t words, uint32_t seed, uint64_t *ret_bad)
{
	static uint64_t counter;
	void *check[] = {&address, &words, &seed, &counter};
	int result = counter ? 0 : gpu_door.cuMemAlloc_v2(&counter, 8);

	if (result == 0)
		result = gpu_door.cuMemsetD8_v2(counter, 0, 8);
	if (result == 0)
		result = gpu_launch(KERNEL_CHECK, words > FIRST_WORDS ? BLOCKS : 1, check);
	/* Waits for the kernel. */
	return result ? result : gpu_door.cuMemcpyDtoH_v2(ret_bad, counter, 8);
}

int run_check(struct gw_call *call)
{
	uint32_t pieces = *(const uint32_t *)call->input;
	struct gw_state_info info;
	uint64_t all = 0;
	int result = 0;

	for (uint32_t i = 0; i < pieces && result == 0; i++) {
		uint64_t bad = 0;

		result = map_piece(i, &info);
		if (result == 0)
			result = check_words(info.address, info.bytes / 4, i, &bad);
		all += bad;
	}
	memcpy(call->output, &all, sizeof(all));
	call->output_bytes = sizeof(all);
	return result;
}

int state_attach(uint32_t pieces, uint64_t *ret_attach_ns, uint64_t *ret_done_ns)
{
	uint64_t began_ns = bench_now_ns();
	struct gw_state_info info = {0};
	uint64_t bad = 0;
	int result = 0;

	for (uint32_t i = 0; i < pieces && result == 0; i++)
		result = map_piece(i, &info);
	*ret_attach_ns = bench_now_ns() - began_ns;
	if (result == 0)
		result = check_words(info.address, FIRST_WORDS, pieces - 1, &bad);
	*ret_done_ns = bench_now_ns();
	if (result == 0 && bad != 0)
		return GW_EPROTOCOL;
	return result;
}
