/* SPDX-License-Identifier: MIT */
#include "linux/loop.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "common/fd.h"

int loop_init(struct loop *loop)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
	int error;

	*loop = (struct loop){.epoll_fd = -1, .timer_fd = -1, .armed_ns = GW_FOREVER};
	loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (loop->epoll_fd < 0)
		goto fail;
	loop->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (loop->timer_fd < 0)
		goto fail;
	/* A NULL pointer marks the timerfd among the events. */
	if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, loop->timer_fd, &event) < 0)
		goto fail;
	return 0;
fail:
	error = errno;
	loop_done(loop);
	return -error;
}

void loop_done(struct loop *loop)
{
	fd_closep(&loop->timer_fd);
	fd_closep(&loop->epoll_fd);
	loop->timers = NULL;
}

int loop_add(struct loop *loop, struct loop_source *source, int fd, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.ptr = source};

	if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0)
		return -errno;
	source->fd = fd;
	return 0;
}

int loop_change(struct loop *loop, struct loop_source *source, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.ptr = source};

	if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_MOD, source->fd, &event) < 0)
		return -errno;
	return 0;
}

void loop_move(struct loop *loop, struct loop_source *from, struct loop_source *to, uint32_t events)
{
	to->fd = from->fd;
	from->fd = -1;
	(void)loop_change(loop, to, events);
}

void loop_remove(struct loop *loop, struct loop_source *source)
{
	if (source->fd < 0)
		return;
	/* By name, not by close(): a copy of the descriptor in another process would keep it watched. */
	(void)epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, source->fd, NULL);
	source->fd = -1;
}

void loop_add_timer(struct loop *loop, struct loop_timer *timer)
{
	timer->due_ns = GW_FOREVER;
	timer->next = loop->timers;
	loop->timers = timer;
}

void loop_remove_timer(struct loop *loop, struct loop_timer *timer)
{
	struct loop_timer **place = &loop->timers;

	while (*place && *place != timer)
		place = &(*place)->next;
	if (!*place)
		return;
	*place = timer->next;
	/* The walk of run_timers() may stand at it. */
	if (loop->next_timer == timer)
		loop->next_timer = timer->next;
}

void loop_set_timer(struct loop_timer *timer, uint64_t due_ns)
{
	timer->due_ns = due_ns;
}

/* Sets the timerfd to the earliest timer, if that is not what it is set to. */
static int arm(struct loop *loop)
{
	struct itimerspec when = {0};
	uint64_t earliest = GW_FOREVER;

	for (struct loop_timer *timer = loop->timers; timer; timer = timer->next) {
		if (timer->due_ns < earliest)
			earliest = timer->due_ns;
	}
	if (earliest == loop->armed_ns)
		return 0;
	if (earliest != GW_FOREVER) {
		/* All zero would switch it off. */
		uint64_t at = earliest > 0 ? earliest : 1;

		when.it_value.tv_sec = (time_t)(at / 1000000000U);
		when.it_value.tv_nsec = (long)(at % 1000000000U);
	}
	if (timerfd_settime(loop->timer_fd, TFD_TIMER_ABSTIME, &when, NULL) < 0)
		return -errno;
	loop->armed_ns = earliest;
	return 0;
}

static void run_timers(struct loop *loop)
{
	uint64_t expirations;
	uint64_t now = now_ns();

	(void)!read(loop->timer_fd, &expirations, sizeof(expirations));
	loop->armed_ns = GW_FOREVER;
	for (struct loop_timer *timer = loop->timers; timer && !loop->ended;
	     timer = loop->next_timer) {
		/* Kept in the loop: a callback may remove any timer, its own too. */
		loop->next_timer = timer->next;
		if (timer->due_ns > now)
			continue;
		timer->due_ns = GW_FOREVER;
		timer->due(timer);
	}
	loop->next_timer = NULL;
}

int loop_run(struct loop *loop)
{
	while (!loop->ended) {
		struct epoll_event event;
		int count;
		int result = arm(loop);

		if (result < 0)
			return result;
		count = epoll_wait(loop->epoll_fd, &event, 1, -1);
		if (count < 0 && errno != EINTR)
			return -errno;
		if (count <= 0)
			continue;
		if (event.data.ptr) {
			struct loop_source *source = event.data.ptr;

			source->ready(source, event.events);
		} else {
			run_timers(loop);
		}
	}
	return 0;
}

void loop_end(struct loop *loop)
{
	loop->ended = true;
}
