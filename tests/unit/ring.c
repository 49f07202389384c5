/* SPDX-License-Identifier: MIT */
/*
 * Description: two threads play host and worker over one channel. Every entry is run exactly once or
 * withdrawn exactly once, what is run is what was pushed, its result is what the worker wrote, and no
 * wake-up is lost, however often either side sleeps.
 *
 * Runs in: one process with two threads; under the thread sanitizer too (suite 'ring'). It uses nothing
 * but common/channel.h, in the order in which src/lib and src/worker do. A lost wake-up shows as a sleep
 * that only its deadline ends, and fails the test. Read next: src/common/channel.h, which draws the race.
 */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>
#include <poll.h>

#include "../seed.h"
#include "common/channel.h"
#include "common/fd.h"
#include "common/futex.h"

/* A wait that takes so long was not ended by the other side. */
#define LOST_NS UINT64_C(20000000000)

struct ring {
	struct channel_map map;
	int event_fd;
	uint32_t count;	    /* entries in all */
	uint32_t depth;	    /* of the queue */
	uint32_t withdraw;  /* one of so many is withdrawn; 0 = none */
	bool by_descriptor; /* the host sleeps in poll() and not on the word */
	struct spin spin;   /* of the worker */
	atomic_bool stop;   /* ends the worker */
	struct seed seed;   /* the host's */
	uint8_t *withdrawn; /* per entry, by the host */
	uint8_t *runs;	    /* per entry, by the worker */
	uint32_t submitted; /* the host's own truth */
	uint32_t taken;
	uint32_t n_withdrawn;
	uint32_t sleeps;
};

/* What belongs to entry NUMBER, so that a mix-up shows. */
static uint64_t mark(uint32_t number)
{
	struct seed seed = {number};

	return seed_next(&seed);
}

/* ---- the worker ---- */

static void run_entry(struct ring *ring, uint32_t number, const struct channel_entry *entry)
{
	struct channel_result *result = &ring->map.shared->results[number % CHANNEL_DEPTH];
	uint64_t expected = mark(number);

	/* Each run counts; the host adds up in the end. */
	ring->runs[number]++;
	if (entry->task != number || entry->input_offset != expected ||
	    entry->attempt != (uint32_t)expected)
		ring->runs[number] = 100;
	result->value = (int32_t)number;
	result->output_bytes = ~expected;
}

static void *worker(void *argument)
{
	struct ring *ring = argument;
	struct channel *channel = ring->map.shared;

	for (uint32_t number = 0;; number++) {
		struct channel_entry entry;

		channel_wait_entry(channel, number, &ring->stop, &ring->spin);
		if (atomic_load(&ring->stop))
			return NULL;
		if (channel_claim(channel, number, &entry))
			run_entry(ring, number, &entry);
		channel_complete(channel, number, ring->event_fd);
	}
}

/* ---- the host ---- */

static void push(struct ring *ring)
{
	uint32_t number = ring->submitted++;
	struct channel_entry entry = {
		.task = number, .input_offset = mark(number), .attempt = (uint32_t)mark(number)};

	channel_push(ring->map.shared, number, &entry);
}

/* Tries to take back one of the entries that are under way. */
static void withdraw_one(struct ring *ring)
{
	uint32_t under_way = ring->submitted - ring->taken;
	uint32_t number = ring->taken + (uint32_t)seed_below(&ring->seed, under_way);

	if (ring->withdrawn[number] || !channel_withdraw(ring->map.shared, number))
		return;
	ring->withdrawn[number] = 1;
	ring->n_withdrawn++;
}

static void check_result(const struct ring *ring, uint32_t number)
{
	const struct channel_result *result = &ring->map.shared->results[number % CHANNEL_DEPTH];

	if (ring->withdrawn[number])
		return;
	assert_int_equal(result->value, (int32_t)number);
	assert_int_equal(result->output_bytes, ~mark(number));
}

static void take(struct ring *ring)
{
	uint32_t completed =
		atomic_load_explicit(&ring->map.shared->completed, memory_order_acquire);

	assert_true(completed - ring->taken <= ring->submitted - ring->taken);
	for (; ring->taken != completed; ring->taken++)
		check_result(ring, ring->taken);
}

static void sleep_on_word(struct ring *ring)
{
	struct channel *channel = ring->map.shared;
	uint64_t deadline = now_ns() + LOST_NS;

	for (;;) {
		uint32_t mark = channel_announce_host(channel);

		if (atomic_load(&channel->completed) != ring->taken)
			break;
		ring->sleeps++;
		(void)futex_wait(&channel->host_waiting, mark, deadline);
		if (now_ns() >= deadline)
			fail_msg("a wake-up for the host was lost at %u", ring->taken);
	}
	(void)atomic_fetch_and(&channel->host_waiting, ~(uint32_t)CHANNEL_HOST_SLEEPS);
}

static void sleep_on_descriptor(struct ring *ring)
{
	struct channel *channel = ring->map.shared;
	struct pollfd fd = {.fd = ring->event_fd, .events = POLLIN};
	uint64_t count;

	(void)!read(ring->event_fd, &count, sizeof(count));
	(void)atomic_fetch_or(&channel->host_waiting, CHANNEL_HOST_POLLS);
	while (atomic_load(&channel->completed) == ring->taken) {
		ring->sleeps++;
		if (poll(&fd, 1, (int)(LOST_NS / 1000000)) != 1)
			fail_msg("the descriptor stayed silent at %u", ring->taken);
		(void)!read(ring->event_fd, &count, sizeof(count));
		(void)atomic_fetch_or(&channel->host_waiting, CHANNEL_HOST_POLLS);
	}
}

static void wait_for_worker(struct ring *ring)
{
	if (ring->by_descriptor)
		sleep_on_descriptor(ring);
	else
		sleep_on_word(ring);
}

static void host(struct ring *ring)
{
	while (ring->taken != ring->count) {
		while (ring->submitted != ring->count &&
		       ring->submitted - ring->taken < ring->depth) {
			push(ring);
			if (ring->withdraw && seed_below(&ring->seed, ring->withdraw) == 0)
				withdraw_one(ring);
		}
		if (atomic_load(&ring->map.shared->completed) == ring->taken)
			wait_for_worker(ring);
		take(ring);
	}
}

/* ---- the whole ---- */

static void ring_init(struct ring *ring, const char *what)
{
	int fd = channel_new(4096);

	assert_true(fd >= 0);
	assert_int_equal(channel_map(&ring->map, fd, 4096), 0);
	fd_close(fd);
	ring->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	assert_true(ring->event_fd >= 0);
	ring->seed = seed_new(what);
	ring->withdrawn = calloc(ring->count, 1);
	ring->runs = calloc(ring->count, 1);
	assert_non_null(ring->withdrawn);
	assert_non_null(ring->runs);
}

static void ring_done(struct ring *ring)
{
	channel_unmap(&ring->map);
	fd_close(ring->event_fd);
	free(ring->withdrawn);
	free(ring->runs);
}

static void stop_worker(struct ring *ring, pthread_t thread)
{
	atomic_store(&ring->stop, true);
	channel_wake_worker(ring->map.shared);
	assert_int_equal(pthread_join(thread, NULL), 0);
}

static void run_ring(struct ring *ring, const char *what)
{
	pthread_t thread;

	ring_init(ring, what);
	assert_int_equal(pthread_create(&thread, NULL, worker, ring), 0);
	host(ring);
	stop_worker(ring, thread);
	for (uint32_t i = 0; i < ring->count; i++) {
		if (ring->runs[i] + ring->withdrawn[i] != 1)
			fail_msg("entry %u: run %u times, withdrawn %u times", i, ring->runs[i],
				 ring->withdrawn[i]);
	}
	(void)fprintf(stderr, "%s: %u entries, %u withdrawn, %u sleeps of the host\n", what,
		      ring->count, ring->n_withdrawn, ring->sleeps);
	ring_done(ring);
}

static void a_million_entries_run_once_each(void **state)
{
	struct ring ring = {.count = 1000000, .depth = CHANNEL_DEPTH};

	(void)state;
	run_ring(&ring, "a million");
}

static void an_entry_is_run_or_withdrawn(void **state)
{
	struct ring ring = {.count = 500000, .depth = CHANNEL_DEPTH, .withdraw = 2};

	(void)state;
	run_ring(&ring, "withdrawals");
	/* Otherwise one of the two sides always won, and nothing was tested. */
	assert_true(ring.n_withdrawn > 0 && ring.n_withdrawn < ring.count);
}

/* One entry under way: both sides fall asleep after nearly every step. */
static void no_wakeup_is_lost(void **state)
{
	struct ring ring = {.count = 30000, .depth = 1};

	(void)state;
	run_ring(&ring, "one at a time");
	assert_true(ring.sleeps > 100);
}

static void a_spinning_worker_loses_no_wakeup(void **state)
{
	struct ring ring = {.count = 15000, .depth = 1, .spin = {.limit_ns = 3000}};

	(void)state;
	run_ring(&ring, "one at a time, spinning");
}

static void the_descriptor_loses_no_wakeup(void **state)
{
	struct ring ring = {.count = 15000, .depth = 2, .by_descriptor = true};

	(void)state;
	run_ring(&ring, "by descriptor");
	assert_true(ring.sleeps > 100);
}

/* The control thread's way of ending a sleep. */
static void a_stop_reaches_a_sleeping_worker(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 1000; i++) {
		struct ring ring = {.count = 1, .depth = 1};
		pthread_t thread;
		int fd = channel_new(4096);

		assert_true(fd >= 0);
		assert_int_equal(channel_map(&ring.map, fd, 4096), 0);
		fd_close(fd);
		assert_int_equal(pthread_create(&thread, NULL, worker, &ring), 0);
		/* Sometimes before it sleeps, sometimes after. */
		while (i % 2 && !atomic_load(&ring.map.shared->worker_waiting))
			(void)sched_yield();
		stop_worker(&ring, thread);
		channel_unmap(&ring.map);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_million_entries_run_once_each),
		cmocka_unit_test(an_entry_is_run_or_withdrawn),
		cmocka_unit_test(no_wakeup_is_lost),
		cmocka_unit_test(a_spinning_worker_loses_no_wakeup),
		cmocka_unit_test(the_descriptor_loses_no_wakeup),
		cmocka_unit_test(a_stop_reaches_a_sleeping_worker),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
