/* SPDX-License-Identifier: MIT */
/*
 * Description: the loop runs what is ready and what is due, in order; a source that another one's callback
 * took out is not called any more; and nothing due means no wake-up.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/fd.h"
#include "linux/loop.h"

#define MILLISECOND 1000000ULL

static struct loop loop;
static char order[16];

static void note(const char *name)
{
	(void)strncat(order, name, sizeof(order) - strlen(order) - 1);
}

static void end_at_timer(struct loop_timer *timer)
{
	note(timer->owner);
	loop_end(&loop);
}

static void note_timer(struct loop_timer *timer)
{
	note(timer->owner);
}

static void begin(void)
{
	order[0] = '\0';
	assert_int_equal(loop_init(&loop), 0);
}

static void timers_run_when_due_and_once(void **state)
{
	struct loop_timer late = {.due = end_at_timer, .owner = (char[]){"l"}};
	struct loop_timer early = {.due = note_timer, .owner = (char[]){"e"}};
	struct loop_timer past = {.due = note_timer, .owner = (char[]){"p"}};
	struct loop_timer off = {.due = note_timer, .owner = (char[]){"o"}};
	uint64_t began = now_ns();

	(void)state;
	begin();
	loop_add_timer(&loop, &late);
	loop_add_timer(&loop, &early);
	loop_add_timer(&loop, &past);
	loop_add_timer(&loop, &off);
	loop_set_timer(&late, began + 30 * MILLISECOND);
	loop_set_timer(&early, began + 10 * MILLISECOND);
	loop_set_timer(&past, 0);
	loop_set_timer(&off, began + MILLISECOND);
	loop_set_timer(&off, GW_FOREVER);
	assert_int_equal(loop_run(&loop), 0);
	assert_string_equal(order, "pel");
	assert_true(now_ns() - began >= 30 * MILLISECOND);
	loop_done(&loop);
}

static struct loop_source first, second;

static void take_out_the_other(struct loop_source *source, uint32_t events)
{
	assert_true(events & EPOLLIN);
	note(source->owner);
	loop_remove(&loop, source == &first ? &second : &first);
	loop_remove(&loop, source);
}

static void a_source_that_was_taken_out_is_not_called(void **state)
{
	struct loop_timer end = {.due = end_at_timer, .owner = (char[]){"."}};
	int one = eventfd(1, EFD_CLOEXEC), two = eventfd(1, EFD_CLOEXEC);

	(void)state;
	begin();
	first = (struct loop_source){.fd = -1, .ready = take_out_the_other, .owner = (char[]){"a"}};
	second =
		(struct loop_source){.fd = -1, .ready = take_out_the_other, .owner = (char[]){"a"}};
	loop_add_timer(&loop, &end);
	loop_set_timer(&end, now_ns() + 10 * MILLISECOND);
	assert_int_equal(loop_add(&loop, &first, one, EPOLLIN), 0);
	assert_int_equal(loop_add(&loop, &second, two, EPOLLIN), 0);
	assert_int_equal(loop_run(&loop), 0);
	assert_string_equal(order, "a.");
	loop_remove(&loop, &first); /* taken out twice is fine */
	loop_done(&loop);
	(void)close(one);
	(void)close(two);
}

static void a_source_can_wait_for_more(void **state)
{
	struct loop_timer end = {.due = end_at_timer, .owner = (char[]){"."}};
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	(void)state;
	begin();
	first = (struct loop_source){.fd = -1, .ready = take_out_the_other, .owner = (char[]){"b"}};
	second = (struct loop_source){.fd = -1};
	loop_add_timer(&loop, &end);
	loop_set_timer(&end, now_ns() + 10 * MILLISECOND);
	assert_int_equal(loop_add(&loop, &first, fd, EPOLLOUT), 0);
	assert_int_equal(loop_change(&loop, &first, EPOLLIN), 0);
	assert_int_equal(loop_run(&loop), 0);
	assert_string_equal(order, "."); /* writable all the time, and nobody asked */
	loop_remove(&loop, &first);
	assert_int_equal(loop_add(&loop, &first, -1, EPOLLIN), -EBADF);
	loop_done(&loop);
	(void)close(fd);
}

static void nothing_due_means_no_wakeup(void **state)
{
	struct loop_timer end = {.due = end_at_timer, .owner = (char[]){"."}};
	struct rusage before, after;

	(void)state;
	begin();
	loop_add_timer(&loop, &end);
	loop_set_timer(&end, now_ns() + 100 * MILLISECOND);
	(void)getrusage(RUSAGE_SELF, &before);
	assert_int_equal(loop_run(&loop), 0);
	(void)getrusage(RUSAGE_SELF, &after);
	assert_in_range(after.ru_nvcsw - before.ru_nvcsw, 1, 2);
	loop_done(&loop);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(timers_run_when_due_and_once),
		cmocka_unit_test(a_source_that_was_taken_out_is_not_called),
		cmocka_unit_test(a_source_can_wait_for_more),
		cmocka_unit_test(nothing_due_means_no_wakeup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
