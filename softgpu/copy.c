/* SPDX-License-Identifier: MIT */
/*
 * Copies and fills. The synchronous ones are the asynchronous ones on the default stream, with a wait.
 *
 * Runs in: a process that uses CUDA. A copy that waits behind an endless kernel waits for ever.
 * Invariant: the program's memory is never touched after a call that promised to be done with it: host
 * memory that is not registered is copied when the call is made, or the call waits.
 * Read next: engine.h, stream.h.
 */
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "export.h"
#include "process.h"
#include "space.h"
#include "stream.h"

/* Host memory that is registered for reading alone. A copy to it is refused too, and is no fault. */
static bool host_is_read_only(uint64_t host)
{
	const struct range *range = space_at(host);

	return range && range->kind == RANGE_HOST && range->access != CUDA_ACCESS_READWRITE;
}

/* A copy to what is mapped for reading is refused here, and is no fault: so it was on the hardware. */
static int check(const struct work *work)
{
	bool to_device = work->kind != WORK_COPY_OUT;
	bool from_device = work->kind == WORK_COPY_OUT || work->kind == WORK_COPY;

	/* Measured: a fill beyond the end of all addresses is not refused, and faults. */
	if (work->kind == WORK_SET && work->to + work->bytes < work->to)
		return space_at(work->to) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	if (to_device && !space_covers(work->to, work->bytes, CUDA_ACCESS_READWRITE))
		return CUDA_ERROR_INVALID_VALUE;
	if (from_device && !space_covers(work->from, work->bytes, CUDA_ACCESS_READ))
		return CUDA_ERROR_INVALID_VALUE;
	if (!to_device && work->bytes && (!work->to || host_is_read_only(work->to)))
		return CUDA_ERROR_INVALID_VALUE;
	if (!from_device && work->kind == WORK_COPY_IN && !work->from && work->bytes)
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static bool is_registered(uint64_t host)
{
	const struct range *range = space_at(host);

	return range && range->kind == RANGE_HOST;
}

static int stage(struct work *work)
{
	work->staged = malloc(work->bytes);
	if (!work->staged)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(work->staged, (const void *)work->from, work->bytes);
	return CUDA_SUCCESS;
}

/* With the lock held; WAIT says that the call is to be done when it returns. */
static int submit(struct work *work, struct cuda_stream *stream, bool wait)
{
	struct engine *engine;
	uint64_t ticket;
	int result = check(work);

	if (!result)
		result = stream_engine(stream, &engine);
	if (result || work->bytes == 0)
		return result;
	if (work->kind == WORK_COPY_OUT && !is_registered(work->to))
		wait = true;
	if (work->kind == WORK_COPY_IN && !wait && !is_registered(work->from))
		result = stage(work);
	if (!result)
		result = engine_add(engine, work, &ticket);
	if (result) {
		free(work->staged);
		return result;
	}
	stream_note(stream, ticket);
	return wait ? engine_wait(engine, ticket) : CUDA_SUCCESS;
}

static int enter_and_submit(const char *function, struct work *work, struct cuda_stream *stream,
			    bool wait)
{
	int result = process_enter(NEED_CONTEXT);

	if (!result)
		result = submit(work, stream, wait);
	return process_leave(function, result);
}

SOFT_EXPORT int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes)
{
	struct work work = {
		.kind = WORK_COPY_IN, .to = to, .from = (uintptr_t)from, .bytes = bytes};

	return enter_and_submit("cuMemcpyHtoD_v2", &work, NULL, true);
}

SOFT_EXPORT int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes)
{
	struct work work = {
		.kind = WORK_COPY_OUT, .to = (uintptr_t)to, .from = from, .bytes = bytes};

	return enter_and_submit("cuMemcpyDtoH_v2", &work, NULL, true);
}

SOFT_EXPORT int cuMemcpyDtoD_v2(uint64_t to, uint64_t from, size_t bytes)
{
	struct work work = {.kind = WORK_COPY, .to = to, .from = from, .bytes = bytes};

	return enter_and_submit("cuMemcpyDtoD_v2", &work, NULL, false);
}

SOFT_EXPORT int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes,
				     struct cuda_stream *stream)
{
	struct work work = {
		.kind = WORK_COPY_IN, .to = to, .from = (uintptr_t)from, .bytes = bytes};

	return enter_and_submit("cuMemcpyHtoDAsync_v2", &work, stream, false);
}

SOFT_EXPORT int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes,
				     struct cuda_stream *stream)
{
	struct work work = {
		.kind = WORK_COPY_OUT, .to = (uintptr_t)to, .from = from, .bytes = bytes};

	return enter_and_submit("cuMemcpyDtoHAsync_v2", &work, stream, false);
}

SOFT_EXPORT int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes,
				     struct cuda_stream *stream)
{
	struct work work = {.kind = WORK_COPY, .to = to, .from = from, .bytes = bytes};

	return enter_and_submit("cuMemcpyDtoDAsync_v2", &work, stream, false);
}

static int set(const char *function, struct work *work, struct cuda_stream *stream)
{
	work->kind = WORK_SET;
	if (work->to % work->pattern_bytes ||
	    (work->pattern_bytes > 1 && work->bytes / work->pattern_bytes > TABLE_DATA_END))
		work->to = 0; /* no such address: refused by check() */
	return enter_and_submit(function, work, stream, false);
}

SOFT_EXPORT int cuMemsetD8_v2(uint64_t to, unsigned char value, size_t count)
{
	struct work work = {.to = to, .pattern = value, .pattern_bytes = 1, .bytes = count};

	return set("cuMemsetD8_v2", &work, NULL);
}

SOFT_EXPORT int cuMemsetD32_v2(uint64_t to, unsigned int value, size_t count)
{
	struct work work = {.to = to, .pattern = value, .pattern_bytes = 4, .bytes = count * 4};

	return set("cuMemsetD32_v2", &work, NULL);
}

SOFT_EXPORT int cuMemsetD32Async(uint64_t to, unsigned int value, size_t count,
				 struct cuda_stream *stream)
{
	struct work work = {.to = to, .pattern = value, .pattern_bytes = 4, .bytes = count * 4};

	return set("cuMemsetD32Async", &work, stream);
}
