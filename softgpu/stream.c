/* SPDX-License-Identifier: MIT */
#include "stream.h"

#include <stdbool.h>
#include <stdlib.h>

#include "common/fd.h"
#include "context.h"
#include "engine.h"
#include "export.h"
#include "process.h"

struct cuda_stream {
	struct cuda_stream *next;
	struct cuda_context *context;
	struct engine *engine;
	bool shares_engine; /* with the default stream */
	uint64_t newest;    /* ticket */
};

struct cuda_event {
	struct cuda_event *next;
	const struct engine *engine;
	uint64_t ticket; /* of the newest record; 0: never recorded */
	bool reached;
	unsigned int flags;
	uint64_t reached_ns;
};

/* Guarded by the process's lock. */
static struct cuda_event *events;

static bool is_default(const struct cuda_stream *stream)
{
	return (uintptr_t)stream <= 2;
}

static bool stream_exists(const struct cuda_stream *stream)
{
	for (const struct cuda_context *context = process.contexts; context;
	     context = context->next) {
		for (const struct cuda_stream *one = context->streams; one; one = one->next) {
			if (one == stream)
				return !context->destroyed;
		}
	}
	return false;
}

int stream_engine(struct cuda_stream *stream, struct engine **ret_engine)
{
	if (is_default(stream)) {
		*ret_engine = context_current()->engines;
		return CUDA_SUCCESS;
	}
	if (!stream_exists(stream))
		return CUDA_ERROR_INVALID_HANDLE;
	*ret_engine = stream->engine;
	return CUDA_SUCCESS;
}

void stream_note(struct cuda_stream *stream, uint64_t ticket)
{
	if (!is_default(stream))
		stream->newest = ticket;
}

static uint64_t newest(const struct cuda_stream *stream, const struct engine *engine)
{
	return is_default(stream) ? engine->queued : stream->newest;
}

/* The default stream's engine stays the first of the list. */
static int new_engine(struct cuda_context *context, struct engine **ret_engine)
{
	int result = engine_new(context, ret_engine);

	if (result)
		return result;
	(*ret_engine)->next = context->engines->next;
	context->engines->next = *ret_engine;
	return CUDA_SUCCESS;
}

static int create(struct cuda_stream **ret_stream, unsigned int flags)
{
	struct cuda_context *context = context_current();
	struct cuda_stream *stream;
	int result = CUDA_SUCCESS;

	if (!ret_stream || flags > CUDA_STREAM_NON_BLOCKING)
		return CUDA_ERROR_INVALID_VALUE;
	stream = calloc(1, sizeof(*stream));
	if (!stream)
		return CUDA_ERROR_OUT_OF_MEMORY;
	stream->context = context;
	stream->shares_engine = !(flags & CUDA_STREAM_NON_BLOCKING);
	stream->engine = context->engines;
	if (!stream->shares_engine)
		result = new_engine(context, &stream->engine);
	if (result) {
		free(stream);
		return result;
	}
	stream->next = context->streams;
	context->streams = stream;
	*ret_stream = stream;
	return CUDA_SUCCESS;
}

SOFT_EXPORT int cuStreamCreate(struct cuda_stream **stream, unsigned int flags)
{
	int result = process_enter(NEED_CONTEXT);

	if (!result)
		result = create(stream, flags);
	return process_leave("cuStreamCreate", result);
}

/* An engine with work left is not waited for: it ends by itself, and is freed with the context. */
static void release_engine(struct cuda_context *context, struct engine *engine)
{
	struct engine **link = &context->engines;

	engine->stop = true;
	(void)pthread_cond_broadcast(&process.changed);
	if (engine->done < engine->queued)
		return;
	while (*link && *link != engine)
		link = &(*link)->next;
	if (*link)
		*link = engine->next;
	engine_free(engine);
}

SOFT_EXPORT int cuStreamDestroy_v2(struct cuda_stream *stream)
{
	int result = process_enter(NEED_CONTEXT);
	struct cuda_stream **link;

	if (!result && (is_default(stream) || !stream_exists(stream)))
		result = CUDA_ERROR_INVALID_HANDLE;
	if (!result) {
		link = &stream->context->streams;
		while (*link != stream)
			link = &(*link)->next;
		*link = stream->next;
		if (!stream->shares_engine)
			release_engine(stream->context, stream->engine);
		free(stream);
	}
	return process_leave("cuStreamDestroy_v2", result);
}

SOFT_EXPORT int cuStreamSynchronize(struct cuda_stream *stream)
{
	int result = process_enter(NEED_CONTEXT);
	struct engine *engine;

	if (!result)
		result = stream_engine(stream, &engine);
	if (!result)
		result = engine_wait(engine, newest(stream, engine));
	return process_leave("cuStreamSynchronize", result);
}

SOFT_EXPORT int cuStreamQuery(struct cuda_stream *stream)
{
	int result = process_enter(NEED_CONTEXT);
	struct engine *engine;

	if (!result)
		result = stream_engine(stream, &engine);
	if (!result && engine->done < newest(stream, engine))
		result = CUDA_ERROR_NOT_READY;
	return process_leave("cuStreamQuery", result);
}

static struct cuda_event **find_event(const struct cuda_event *event)
{
	struct cuda_event **link = &events;

	while (*link && *link != event)
		link = &(*link)->next;
	return link;
}

void event_reached(struct cuda_event *event, uint64_t ticket, const struct engine *engine)
{
	if (!*find_event(event) || event->ticket != ticket || event->engine != engine)
		return;
	event->reached = true;
	event->reached_ns = now_ns();
}

SOFT_EXPORT int cuEventCreate(struct cuda_event **event, unsigned int flags)
{
	int result = process_enter(NEED_CONTEXT);
	struct cuda_event *made = NULL;

	if (!result && (!event || flags > 7 ||
			(flags & CUDA_EVENT_INTERPROCESS && !(flags & CUDA_EVENT_DISABLE_TIMING))))
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result) {
		made = calloc(1, sizeof(*made));
		result = made ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (!result) {
		made->flags = flags;
		made->next = events;
		events = made;
		*event = made;
	}
	return process_leave("cuEventCreate", result);
}

SOFT_EXPORT int cuEventDestroy_v2(struct cuda_event *event)
{
	int result = process_enter(NEED_CONTEXT);
	struct cuda_event **link;

	if (!result) {
		link = find_event(event);
		if (*link) {
			*link = event->next;
			free(event);
		} else {
			result = CUDA_ERROR_INVALID_HANDLE;
		}
	}
	return process_leave("cuEventDestroy_v2", result);
}

static int record(struct cuda_event *event, struct cuda_stream *stream)
{
	struct work work = {.kind = WORK_MARK, .event = event};
	struct engine *engine;
	uint64_t ticket;
	int result = stream_engine(stream, &engine);

	if (!result && !*find_event(event))
		result = CUDA_ERROR_INVALID_HANDLE;
	if (!result)
		result = engine_add(engine, &work, &ticket);
	if (result)
		return result;
	event->engine = engine;
	event->ticket = ticket;
	event->reached = false;
	stream_note(stream, ticket);
	return CUDA_SUCCESS;
}

SOFT_EXPORT int cuEventRecord(struct cuda_event *event, struct cuda_stream *stream)
{
	int result = process_enter(NEED_CONTEXT);

	if (!result)
		result = record(event, stream);
	return process_leave("cuEventRecord", result);
}

SOFT_EXPORT int cuEventQuery(struct cuda_event *event)
{
	int result = process_enter(NEED_CONTEXT);

	if (!result && !*find_event(event))
		result = CUDA_ERROR_INVALID_HANDLE;
	if (!result && event->ticket && !event->reached)
		result = CUDA_ERROR_NOT_READY;
	return process_leave("cuEventQuery", result);
}

SOFT_EXPORT int cuEventSynchronize(struct cuda_event *event)
{
	int result = process_enter(NEED_CONTEXT);

	if (!result && !*find_event(event))
		result = CUDA_ERROR_INVALID_HANDLE;
	if (!result) {
		while (*find_event(event) && event->ticket && !event->reached && !process.sticky)
			(void)pthread_cond_wait(&process.changed, &process.lock);
		result = process.sticky;
	}
	return process_leave("cuEventSynchronize", result);
}

static int elapsed(float *milliseconds, const struct cuda_event *start,
		   const struct cuda_event *end)
{
	if (!milliseconds || !*find_event(start) || !*find_event(end) || !start->ticket ||
	    !end->ticket || (start->flags | end->flags) & CUDA_EVENT_DISABLE_TIMING)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!start->reached || !end->reached)
		return CUDA_ERROR_NOT_READY;
	*milliseconds = (float)((double)(int64_t)(end->reached_ns - start->reached_ns) / 1e6);
	return CUDA_SUCCESS;
}

SOFT_EXPORT int cuEventElapsedTime(float *milliseconds, struct cuda_event *start,
				   struct cuda_event *end)
{
	int result = process_enter(NEED_CONTEXT);

	if (!result)
		result = elapsed(milliseconds, start, end);
	return process_leave("cuEventElapsedTime", result);
}
