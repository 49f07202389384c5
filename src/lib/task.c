/* SPDX-License-Identifier: MIT */
/*
 * The life of a task, as the host sees it: made, filled, submitted, waited for, freed.
 *
 * Runs in: host, in any thread. Room for input and output is reserved when the task is made, so that
 * nothing can fail for want of room later. Read next: dispatch.c.
 */
#include "lib/pool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/err.h"
#include "common/fd.h"

static int find_name(const struct gw_pool *pool, const char *function)
{
	for (uint32_t i = 0; i < pool->n_names; i++) {
		if (strcmp(pool->names[i], function) == 0)
			return (int)i;
	}
	return -1;
}

static int no_such_function(const struct gw_pool *pool, const char *function,
			    struct gw_error *ret_error)
{
	char list[160] = "";
	size_t used = 0;

	for (uint32_t i = 0; i < pool->n_names && used < sizeof(list) - 1; i++) {
		int more = snprintf(list + used, sizeof(list) - used, "%s%s", i ? ", " : "",
				    pool->names[i]);

		used += more > 0 ? (size_t)more : 0;
	}
	return err_own(ret_error, GW_ENOFUNCTION, "the worker has no function '%.40s'; it has: %s",
		       function, list);
}

/* Index in pool->devices, or -1. */
static int find_device(const struct gw_pool *pool, int32_t device)
{
	for (uint32_t i = 0; i < pool->options.n_devices; i++) {
		if (pool->devices[i] == device)
			return (int)i;
	}
	return -1;
}

static int check_sizes(const struct gw_pool *pool, const struct gw_task_options *options,
		       struct gw_error *ret_error)
{
	const struct gw_pool_options *limits = &pool->options;

	if (options->input_bytes > limits->max_input_bytes)
		return err_own(ret_error, -EMSGSIZE,
			       "input of %llu bytes is over the pool's max_input_bytes, %llu",
			       (unsigned long long)options->input_bytes,
			       (unsigned long long)limits->max_input_bytes);
	if (options->output_bytes > limits->max_output_bytes)
		return err_own(ret_error, -EMSGSIZE,
			       "output of %llu bytes is over the pool's max_output_bytes, %llu",
			       (unsigned long long)options->output_bytes,
			       (unsigned long long)limits->max_output_bytes);
	return 0;
}

/* Takes room for input and output, or says which limit is in the way. */
/* The counters of this file, for whoever looks at the pool. */
static void show_bytes(struct gw_pool *pool)
{
	pool_page_show(&pool->page->host.input_bytes, pool->input_bytes);
	pool_page_show(&pool->page->host.output_bytes, pool->output_bytes);
}

static void show_tasks(struct gw_pool *pool)
{
	pool_page_show(&pool->page->host.tasks_pending, pool->tasks_under_way);
	pool_page_show(&pool->page->host.tasks_done, pool->tasks_done);
}

static int reserve_room(struct gw_pool *pool, struct gw_task *task, struct gw_error *ret_error)
{
	const struct gw_pool_options *limits = &pool->options;
	int result;

	if (task->output_capacity_bytes > limits->total_output_bytes - pool->output_bytes)
		return err_own(ret_error, GW_ELIMIT,
			       "live tasks hold %llu of total_output_bytes, %llu: free some first",
			       (unsigned long long)pool->output_bytes,
			       (unsigned long long)limits->total_output_bytes);
	if (task->input_bytes > limits->total_input_bytes - pool->input_bytes)
		return err_own(ret_error, GW_ELIMIT,
			       "live tasks hold %llu of total_input_bytes, %llu: free some first",
			       (unsigned long long)pool->input_bytes,
			       (unsigned long long)limits->total_input_bytes);
	if (task->input_bytes > 0) {
		result = arena_alloc(&pool->inputs, task->input_bytes, &task->input_offset);
		if (result == -ENOMEM)
			return err_os(ret_error, ENOMEM, "no memory for a task");
		if (result < 0)
			return err_own(ret_error, GW_ELIMIT,
				       "no piece of %llu bytes is free among the inputs of live "
				       "tasks: free some first",
				       (unsigned long long)task->input_bytes);
	}
	pool->input_bytes += task->input_bytes;
	pool->output_bytes += task->output_capacity_bytes;
	show_bytes(pool);
	return 0;
}

static void fill_task(struct gw_task *task, const struct gw_task_options *options)
{
	const struct gw_pool_options *defaults = &task->pool->options;

	task->device = options->set_device ? options->device : GW_ANY_DEVICE;
	task->deadline_ns =
		options->deadline_ns ? options->deadline_ns : defaults->task_deadline_ns;
	task->max_attempts = options->max_attempts ? options->max_attempts : defaults->max_attempts;
	task->input_bytes = options->input_bytes;
	task->output_capacity_bytes = options->output_bytes;
	task->user = options->user;
	task->outcome.device = -1;
	task->outcome.started_ns = GW_UNKNOWN;
	task->outcome.ended_ns = GW_UNKNOWN;
}

static int task_new_locked(struct gw_pool *pool, const char *function,
			   const struct gw_task_options *options, struct gw_task *task,
			   struct gw_error *ret_error)
{
	int result = pool_check_alive(pool, ret_error);
	int name = find_name(pool, function);

	if (result < 0)
		return result;
	if (name < 0)
		return no_such_function(pool, function, ret_error);
	result = check_sizes(pool, options, ret_error);
	if (result < 0)
		return result;
	task->name = (uint32_t)name;
	fill_task(task, options);
	if (task->device != GW_ANY_DEVICE) {
		int index = find_device(pool, task->device);

		if (index < 0)
			return err_own(ret_error, -ENODEV, "device %d is not one of the pool's",
				       task->device);
		task->device_index = (uint32_t)index;
	}
	result = dispatch_check(task, ret_error);
	if (result < 0)
		return result;
	result = reserve_room(pool, task, ret_error);
	if (result < 0)
		return result;
	task->number = ++pool->next_number;
	list_push_back(&pool->live, &task->live);
	return 0;
}

int gw_task_new(struct gw_pool *pool, const char *function, const struct gw_task_options *options,
		struct gw_task **ret_task, struct gw_error *ret_error)
{
	struct gw_task_options chosen = {.size = sizeof(chosen)};
	struct gw_task *task;
	int result;

	if (!pool || !function || !ret_task || (options && options->size == 0))
		return err_own(ret_error, -EINVAL,
			       "gw_task_new: a parameter is NULL, or options were not set by "
			       "GW_OPTIONS()");
	if (options)
		memcpy(&chosen, options,
		       options->size < sizeof(chosen) ? options->size : sizeof(chosen));
	result = pool_check_owner(pool, ret_error);
	if (result < 0)
		return result;
	task = calloc(1, sizeof(*task));
	if (!task)
		return err_os(ret_error, ENOMEM, "no memory for a task");
	task->pool = pool;
	(void)pthread_mutex_lock(&pool->lock);
	result = task_new_locked(pool, function, &chosen, task, ret_error);
	(void)pthread_mutex_unlock(&pool->lock);
	if (result < 0) {
		free(task);
		return result;
	}
	*ret_task = task;
	return 0;
}

void *gw_task_input(struct gw_task *task)
{
	if (!task || task->input_bytes == 0)
		return NULL;
	return task->pool->input + task->input_offset;
}

void *gw_task_user(const struct gw_task *task)
{
	return task ? task->user : NULL;
}

static int submit_locked(struct gw_task *task, struct gw_error *ret_error)
{
	struct gw_pool *pool = task->pool;
	int result = pool_check_alive(pool, ret_error);

	if (result < 0)
		return result;
	if (task->state != TASK_NEW)
		return err_own(ret_error, -EALREADY, "the task was submitted before");
	result = dispatch_check(task, ret_error);
	if (result < 0)
		return result;
	pool->tasks_under_way++;
	show_tasks(pool);
	dispatch_enqueue(task);
	dispatch_all(pool);
	return 0;
}

int gw_task_submit(struct gw_task *task, struct gw_error *ret_error)
{
	int result;

	if (!task)
		return err_own(ret_error, -EINVAL, "gw_task_submit: no task");
	result = pool_check_owner(task->pool, ret_error);
	if (result < 0)
		return result;
	(void)pthread_mutex_lock(&task->pool->lock);
	result = submit_locked(task, ret_error);
	(void)pthread_mutex_unlock(&task->pool->lock);
	return result;
}

/*
 * Gives pages of a large, free piece of an output room back to the system. Not those that a worker has
 * pinned: the GPU goes on with them, and nobody else sees them any more.
 *
 *	worker                                   host
 *	registers the room: pages P are pinned
 *	                                         punches a hole: the file lets go of P
 *	copies the next result: into P
 *	                                         reads it: new pages, all zero
 */
static void give_pages_back(uint8_t *start, uint64_t bytes)
{
	const uintptr_t page = 4096;
	uintptr_t from = ((uintptr_t)start + page - 1) & ~(page - 1);
	uintptr_t to = ((uintptr_t)start + bytes) & ~(page - 1);

	if (to > from)
		(void)madvise(start + (from - (uintptr_t)start), to - from, MADV_REMOVE);
}

void task_release_output(struct gw_task *task)
{
	struct link *link = task->link;

	if (!link)
		return;
	if (arena_release(&link->outputs, task->output_offset, task->output_capacity_bytes) &&
	    !(task->pool->options.flags & GW_POOL_PINNED))
		give_pages_back(link->map.output + task->output_offset,
				task->output_capacity_bytes);
	task->link = NULL;
	task->outcome.output = NULL;
	link_release(link);
}

void task_destroy(struct gw_task *task)
{
	struct gw_pool *pool = task->pool;

	task_release_output(task);
	if (task->input_bytes > 0)
		(void)arena_release(&pool->inputs, task->input_offset, task->input_bytes);
	pool->input_bytes -= task->input_bytes;
	pool->output_bytes -= task->output_capacity_bytes;
	show_bytes(pool);
	list_remove(&task->live);
	free(task->attempts);
	free(task);
}

void task_end(struct gw_task *task, enum gw_outcome_kind kind)
{
	struct gw_pool *pool = task->pool;

	task->state = TASK_ENDED;
	task->outcome.kind = kind;
	pool->tasks_done++;
	pool->tasks_under_way -= !task->freed;
	show_tasks(pool);
	if (task->freed) {
		task_destroy(task);
		return;
	}
	pool->n_ended++;
	list_push_back(&pool->ended, &task->queue);
}

/* The host has seen the end: gw_pool_next() does not give it out any more. */
static void take_from_ended(struct gw_task *task)
{
	if (task->state == TASK_ENDED && list_has(&task->queue)) {
		list_remove(&task->queue);
		task->pool->n_ended--;
	}
}

static int look(struct gw_task *task, struct gw_outcome *ret_outcome)
{
	if (task->state != TASK_ENDED)
		return 0;
	take_from_ended(task);
	if (ret_outcome)
		*ret_outcome = task->outcome;
	return 1;
}

int gw_task_wait(struct gw_task *task, uint64_t timeout_ns, struct gw_outcome *ret_outcome,
		 struct gw_error *ret_error)
{
	struct gw_pool *pool;
	uint64_t deadline;
	int result;

	if (!task)
		return err_own(ret_error, -EINVAL, "gw_task_wait: no task");
	pool = task->pool;
	result = pool_check_owner(pool, ret_error);
	if (result < 0)
		return result;
	deadline = timeout_ns == 0 ? 0 : wait_deadline(timeout_ns);
	(void)pthread_mutex_lock(&pool->lock);
	if (task->state == TASK_NEW)
		result = err_own(ret_error, -EINVAL, "the task was never submitted");
	while (result == 0) {
		wait_step(pool);
		result = look(task, ret_outcome);
		if (result != 0 || (deadline != GW_FOREVER && now_ns() >= deadline))
			break;
		wait_change(pool, deadline);
	}
	(void)pthread_mutex_unlock(&pool->lock);
	return result;
}

int gw_task_poll(struct gw_task *task, struct gw_outcome *ret_outcome, struct gw_error *ret_error)
{
	return gw_task_wait(task, 0, ret_outcome, ret_error);
}

static void kill_worker_of(struct gw_task *task)
{
	struct gw_pool *pool = task->pool;
	const struct wire_kill kill = {.slot = task->slot,
				       .incarnation = pool->slots[task->slot].incarnation,
				       .reason = GW_END_STOPPED};

	task->cancelled = true;
	orders_kill(pool, kill, pool->slots[task->slot].pidfd);
}

/* Ends a task that no worker has begun. */
static bool cancel_quietly(struct gw_task *task)
{
	if (task->state == TASK_NEW)
		task->pool->tasks_under_way++;
	else if (task->state == TASK_PENDING)
		list_remove(&task->queue);
	else if (task->state != TASK_IN_FLIGHT || !dispatch_withdraw(task))
		return false;
	task_end(task, GW_CANCELLED);
	return true;
}

/* Ends a task whose worker has begun it, if KILL is true. Returns 1 when it is cancelled. */
static int cancel_running(struct gw_task *task, bool kill)
{
	struct gw_pool *pool = task->pool;

	if (task->state == TASK_IN_FLIGHT && kill)
		kill_worker_of(task);
	while (kill && task->state != TASK_ENDED)
		wait_change(pool, GW_FOREVER);
	return task->state == TASK_ENDED && task->outcome.kind == GW_CANCELLED;
}

int gw_task_cancel(struct gw_task *task, bool kill, struct gw_error *ret_error)
{
	struct gw_pool *pool;
	int result;

	if (!task)
		return err_own(ret_error, -EINVAL, "gw_task_cancel: no task");
	pool = task->pool;
	result = pool_check_owner(pool, ret_error);
	if (result < 0)
		return result;
	(void)pthread_mutex_lock(&pool->lock);
	wait_step(pool);
	if (task->state != TASK_ENDED && cancel_quietly(task))
		result = 1;
	else
		result = cancel_running(task, kill);
	dispatch_all(pool);
	(void)pthread_mutex_unlock(&pool->lock);
	return result;
}

int gw_task_attempt(struct gw_task *task, uint32_t number, struct gw_exit *ret_exit)
{
	int result = -ENOENT;

	if (!task || !ret_exit)
		return -EINVAL;
	if (pool_check_owner(task->pool, NULL) < 0)
		return GW_EFORKED;
	(void)pthread_mutex_lock(&task->pool->lock);
	if (task->attempts && number < task->outcome.attempts) {
		*ret_exit = task->attempts[number];
		result = 0;
	}
	(void)pthread_mutex_unlock(&task->pool->lock);
	return result;
}

/* The host lets go of it: what a worker still has becomes an orphan. */
static void free_locked(struct gw_task *task)
{
	struct gw_pool *pool = task->pool;

	take_from_ended(task);
	if (task->state == TASK_PENDING || task->state == TASK_IN_FLIGHT) {
		pool->tasks_under_way--;
		show_tasks(pool);
		task->freed = true;
		if (task->state == TASK_PENDING)
			list_remove(&task->queue);
		else if (!dispatch_withdraw(task))
			return;
	}
	task_destroy(task);
}

static void let_go(struct gw_task *task)
{
	struct gw_pool *pool = task->pool;

	(void)pthread_mutex_lock(&pool->lock);
	free_locked(task);
	if (pool->crowded)
		dispatch_all(pool);
	(void)pthread_mutex_unlock(&pool->lock);
}

void gw_task_free(struct gw_task *task)
{
	/* In a forked child gw_pool_close() frees everything. */
	if (task && pool_check_owner(task->pool, NULL) == 0)
		let_go(task);
}

int gw_task_start(struct gw_pool *pool, const char *function, const void *input,
		  const struct gw_task_options *options, struct gw_task **ret_task,
		  struct gw_error *ret_error)
{
	struct gw_task *task = NULL;
	uint64_t bytes = options ? options->input_bytes : 0;
	int result;

	if (!ret_task || (bytes > 0 && !input))
		return err_own(ret_error, -EINVAL, "gw_task_start: a parameter is NULL");
	result = gw_task_new(pool, function, options, &task, ret_error);
	if (!task)
		return result;
	if (bytes > 0)
		memcpy(task->pool->input + task->input_offset, input, bytes);
	result = gw_task_submit(task, ret_error);
	if (result < 0) {
		let_go(task);
		return result;
	}
	*ret_task = task;
	return 0;
}
