/* SPDX-License-Identifier: MIT */
/*
 * Runs tasks, one after the other, as they come through the channel.
 *
 * Runs in: worker, main thread. A result that poisons the process is not published: it goes to the ward
 * as a fault, and the process leaves at once with _exit. No CUDA call and no destructor runs after it,
 * since both can hang in a poisoned process. The task then runs again in the next worker.
 */
#include "worker/worker.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/fd.h"
#include "common/wire.h"
#include "gpu/faults.h"
#include "worker/state.h"

/* Set in a child that a function forked. */
static bool is_copy;

static void note_fork(void)
{
	is_copy = true;
}

static bool is_fault(const struct worker *worker, int value)
{
	return worker->device >= 0 && cuda_ends_process(value);
}

void leave_after_fault(int value, uint64_t task)
{
	struct wire_fault fault = {
		.cuda = value, .source = GW_SOURCE_RESULT, .task = task, .noticed_ns = now_ns()};

	wire_header_init(&fault.header, WIRE_FAULT, sizeof(fault));
	(void)wire_send(WIRE_WORKER_SOCKET, &fault, NULL, 0);
	_exit(WORKER_EXIT_FAULT);
}

/* Everything that the host said was checked by the host; this keeps a slip from becoming a wild pointer. */
static bool entry_is_good(const struct worker *worker, const struct channel_entry *entry)
{
	return entry->function < worker->n_functions && entry->input_bytes <= worker->input_bytes &&
	       entry->input_offset <= worker->input_bytes - entry->input_bytes &&
	       entry->output_capacity_bytes <= worker->channel.output_bytes &&
	       entry->output_offset <= worker->channel.output_bytes - entry->output_capacity_bytes;
}

static struct gw_call make_call(const struct worker *worker, const struct channel_entry *entry)
{
	struct gw_call call = {
		.input_bytes = entry->input_bytes,
		.output_capacity_bytes = entry->output_capacity_bytes,
		.task = entry->task,
		.attempt = entry->attempt,
		.device = worker->device,
		.flags = worker->pinned,
	};

	if (entry->input_bytes > 0)
		call.input = worker->input + entry->input_offset;
	if (entry->output_capacity_bytes > 0)
		call.output = worker->channel.output + entry->output_offset;
	return call;
}

/* The value of the task: the function's, or the device's if that is worse. */
static int run_function(const struct worker *worker, const struct gw_function *function,
			struct gw_call *call)
{
	int value = function->run(call);
	int device;

	/* Two processes cannot serve one channel, and nobody would ever end the copy. */
	if (is_copy)
		_exit(WORKER_EXIT_ALONE);
	if (is_fault(worker, value))
		leave_after_fault(value, call->task);
	if (function->flags & GW_FUNCTION_SYNCED)
		return value;
	device = device_synchronize(worker);
	if (is_fault(worker, device))
		leave_after_fault(device, call->task);
	return value != 0 ? value : device;
}

/* The function may have filled all of it, without a zero byte. */
static void write_message(struct channel_result *result, const struct gw_call *call)
{
	result->message_bytes = (uint32_t)strnlen(call->message, sizeof(call->message) - 1);
	if (result->message_bytes > 0)
		memcpy(result->message, call->message, result->message_bytes);
}

static void run_entry(struct worker *worker, const struct channel_entry *entry,
		      struct channel_result *result)
{
	struct gw_call call = make_call(worker, entry);

	atomic_store_explicit(&worker->running_task, entry->task, memory_order_relaxed);
	result->started_ns = now_ns();
	atomic_store_explicit(&worker->channel.shared->running_since_ns, result->started_ns,
			      memory_order_relaxed);
	result->value = run_function(worker, &worker->functions[entry->function], &call);
	if (call.output_bytes > call.output_capacity_bytes) {
		result->value = GW_EPROTOCOL;
		call.output_bytes = 0;
		(void)snprintf(call.message, sizeof(call.message),
			       "the function says that its result is larger than its room");
	}
	result->output_bytes = call.output_bytes;
	write_message(result, &call);
	atomic_store_explicit(&worker->running_task, 0, memory_order_relaxed);
	result->ended_ns = now_ns();
}

/*
 * Waits for the next entry; false: for a stop. Between two tasks no kernel runs: then what is new about
 * surviving memory is taken in. The control thread sets what it wants before `attention`, here it is looked
 * at after that was cleared, so nothing is missed.
 */
static bool wait_entry(struct worker *worker, uint32_t number)
{
	for (;;) {
		channel_wait_entry(worker->channel.shared, number, &worker->attention,
				   &worker->spin);
		if (!atomic_exchange(&worker->attention, false))
			return true;
		if (atomic_load(&worker->stop))
			return false;
		if (orders_take(worker, ORDER_STATE))
			(void)state_take_news(worker, NULL);
	}
}

void serve(struct worker *worker)
{
	struct channel *channel = worker->channel.shared;

	(void)pthread_atfork(NULL, NULL, note_fork);
	for (uint32_t number = 0;; number++) {
		struct channel_entry entry;

		if (!wait_entry(worker, number))
			return;
		if (channel_claim(channel, number, &entry)) {
			if (!entry_is_good(worker, &entry))
				_exit(WORKER_EXIT_ALONE);
			run_entry(worker, &entry, &channel->results[number % CHANNEL_DEPTH]);
		}
		channel_complete(channel, number, WIRE_WORKER_EVENT);
	}
}
