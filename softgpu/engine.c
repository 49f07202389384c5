/* SPDX-License-Identifier: MIT */
#include "engine.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "common/fd.h"
#include "fault.h"
#include "kernels.h"
#include "memory.h"
#include "process.h"
#include "space.h"
#include "stream.h"

/* Of the work that this engine's thread runs. */
static _Thread_local size_t running_stack_bytes;

int engine_new(struct cuda_context *context, struct engine **ret_engine)
{
	struct engine *engine = calloc(1, sizeof(*engine));

	if (!engine)
		return CUDA_ERROR_OUT_OF_MEMORY;
	engine->context = context;
	engine->last = &engine->first;
	*ret_engine = engine;
	return CUDA_SUCCESS;
}

bool engine_is_cut_off(void)
{
	bool cut;

	(void)pthread_mutex_lock(&process.lock);
	cut = process.stopping;
	(void)pthread_mutex_unlock(&process.lock);
	return cut;
}

size_t engine_stack_bytes(void)
{
	return running_stack_bytes;
}

static enum fault copy(const struct work *work)
{
	switch (work->kind) {
	case WORK_COPY_IN:
		return space_write(work->to, work->staged ? work->staged : (const void *)work->from,
				   work->bytes);
	case WORK_COPY_OUT:
		return space_read((void *)work->to, work->from, work->bytes);
	case WORK_COPY:
		return space_copy(work->to, work->from, work->bytes);
	case WORK_SET:
		return space_set(work->to, work->pattern, work->pattern_bytes, work->bytes);
	case WORK_KERNEL:
	case WORK_MARK:
		break;
	}
	return FAULT_NONE;
}

/* Without the lock. */
static void run(struct engine *engine, struct work *work)
{
	enum fault fault;

	running_stack_bytes = work->stack_bytes;
	fault_await_stall(engine->context->machine_device);
	fault = work->kind == WORK_KERNEL ? work->kernel->run(work->arguments) : copy(work);
	if (fault != FAULT_NONE)
		fault_raise(fault, engine->context->machine_device, work->queued_ns);
}

/* Whether ENGINE has work up to ORDER that is not done. */
static bool is_behind(const struct engine *engine, uint64_t order)
{
	if (engine->running)
		return engine->running <= order;
	return engine->first && engine->first->order <= order;
}

/* With the lock: waits until all that WORK must come after is done, or will never be. */
static void await_others(const struct engine *engine, const struct work *work)
{
	const struct engine *one = engine->context->engines;

	while (one && !process.stopping) {
		if (one == engine || !is_behind(one, work->after)) {
			one = one->next;
			continue;
		}
		(void)pthread_cond_wait(&process.changed, &process.lock);
		one = engine->context->engines;
	}
}

static struct work *take(struct engine *engine)
{
	struct work *work = engine->first;

	engine->running = work->order;

	engine->first = work->next;
	if (!engine->first)
		engine->last = &engine->first;
	return work;
}

/* Work that a fault cut off is not done before the fault is known: nobody may take it for a success. */
static void finish(struct engine *engine, struct work *work)
{
	while (process.stopping && !process.sticky)
		(void)pthread_cond_wait(&process.changed, &process.lock);
	if (work->event && !process.sticky)
		event_reached(work->event, work->ticket, engine);
	engine->done = work->ticket;
	engine->running = 0;
	free(work->staged);
	free(work);
	handle_settle();
	(void)pthread_cond_broadcast(&process.changed);
}

static void *engine_thread(void *argument)
{
	struct engine *engine = argument;

	(void)pthread_mutex_lock(&process.lock);
	for (;;) {
		struct work *work;

		while (!engine->first && !engine->stop)
			(void)pthread_cond_wait(&process.changed, &process.lock);
		if (!engine->first)
			break;
		work = take(engine);
		await_others(engine, work);
		if (!process.stopping) {
			(void)pthread_mutex_unlock(&process.lock);
			run(engine, work);
			(void)pthread_mutex_lock(&process.lock);
		}
		finish(engine, work);
	}
	(void)pthread_mutex_unlock(&process.lock);
	return NULL;
}

/* The program's signals are the business of its own threads. */
static int start(struct engine *engine)
{
	sigset_t all;
	sigset_t before;
	int error;

	if (engine->started)
		return CUDA_SUCCESS;
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&engine->thread, NULL, engine_thread, engine);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	engine->started = error == 0;
	if (error)
		machine_say("cannot start a stream's thread: %s", strerror(error));
	return error ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}

int engine_add(struct engine *engine, const struct work *work, uint64_t *ret_ticket)
{
	static uint64_t newest; /* guarded by the process's lock */
	struct work *queued;
	int result = start(engine);

	if (result)
		return result;
	queued = malloc(sizeof(*queued));
	if (!queued)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*queued = *work;
	queued->next = NULL;
	queued->ticket = ++engine->queued;
	queued->order = ++newest;
	queued->queued_ns = now_ns();
	*engine->last = queued;
	engine->last = &queued->next;
	(void)pthread_cond_broadcast(&process.changed);
	if (ret_ticket)
		*ret_ticket = queued->ticket;
	return CUDA_SUCCESS;
}

int engine_wait(struct engine *engine, uint64_t ticket)
{
	while (engine->done < ticket)
		(void)pthread_cond_wait(&process.changed, &process.lock);
	return process.sticky;
}

static bool context_is_idle(const struct cuda_context *context)
{
	for (const struct engine *one = context->engines; one; one = one->next) {
		if (one->done < one->queued)
			return false;
	}
	return true;
}

int engine_wait_all(struct cuda_context *context)
{
	while (!context_is_idle(context))
		(void)pthread_cond_wait(&process.changed, &process.lock);
	return process.sticky;
}

bool engine_is_idle(void)
{
	for (const struct cuda_context *one = process.contexts; one; one = one->next) {
		if (!context_is_idle(one))
			return false;
	}
	return true;
}

/* Queues are short, and this is asked once for each function of a module. */
uint64_t engine_newest(const struct cuda_context *context)
{
	uint64_t newest = 0;

	for (const struct engine *one = context->engines; one; one = one->next) {
		if (one->running > newest)
			newest = one->running;
		for (const struct work *work = one->first; work; work = work->next)
			newest = work->order > newest ? work->order : newest;
	}
	return newest;
}

int engine_wait_process(void)
{
	for (struct cuda_context *one = process.contexts; one; one = one->next) {
		int result = engine_wait_all(one);

		if (result)
			return result;
	}
	return process.sticky;
}

/* Gives the lock up while it waits for the thread, which needs it to see `stop`. */
void engine_free(struct engine *engine)
{
	engine->stop = true;
	(void)pthread_cond_broadcast(&process.changed);
	if (engine->started) {
		(void)pthread_mutex_unlock(&process.lock);
		(void)pthread_join(engine->thread, NULL);
		(void)pthread_mutex_lock(&process.lock);
	}
	free(engine);
}

void engine_free_all(struct cuda_context *context)
{
	while (context->engines) {
		struct engine *first = context->engines;

		context->engines = first->next;
		engine_free(first);
	}
}
