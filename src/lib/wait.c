/* SPDX-License-Identifier: MIT */
/*
 * How threads of the host wait for workers without a thread of the library's own.
 *
 * Runs in: host. Of all threads that wait, one is the leader: it sleeps in the kernel on a word of
 * each channel and on one of the ward at once, takes in the news when it wakes, and tells the others, the
 * followers, which sleep on a condition variable. A leader that has what it waited for leaves, and a
 * follower takes its place.
 *
 *	thread A (leader)                  thread B
 *	gives up the lock, marks that it
 *	sleeps, looks once more, sleeps    submits to a worker that A does not watch: kicks A
 *	                                   or takes in news itself: kicks A
 *	wakes, takes the lock, looks again
 *
 * Without the kick (pool_page.h draws it) A would sleep on a word that nobody moves any more. The leader keeps a reference on
 * each link that it watches, since thread B may let go of one meanwhile. Read next: collect.c, news.c.
 */
#include "lib/pool.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "common/fd.h"
#include "common/futex.h"

/* When something is tried again that failed for want of memory. */
#define AGAIN_NS UINT64_C(10000000)

/* What the leader waits for: what it saw under the lock, to compare with while it has not got it. */
struct watch {
	struct gw_pool *pool;
	uint32_t kick;
	uint32_t ward_events;
	bool ward_lost;
	bool announced; /* that it is about to sleep */
	struct link *links[GW_WORKERS_MAX];
	uint32_t taken[GW_WORKERS_MAX]; /* of each link's channel */
	size_t n_links;
	/* What it sleeps on: the mark in each link's channel, and the ward's word of life. */
	struct futex_wait_word words[GW_WORKERS_MAX + 1];
};

_Static_assert(GW_WORKERS_MAX + 1 <= FUTEX_WORDS_MAX, "one sleep covers all workers");

uint64_t wait_deadline(uint64_t timeout_ns)
{
	uint64_t now;

	if (timeout_ns == GW_FOREVER)
		return GW_FOREVER;
	now = now_ns();
	return timeout_ns > GW_FOREVER - 1 - now ? GW_FOREVER : now + timeout_ns;
}

/* Until the ward has tied its life to the word, only the end of its socket tells of its death. */
static bool ward_is_starting(const struct gw_pool *pool)
{
	return !pool->ward_lost && !(atomic_load(&pool->page->ward_life) & FUTEX_TID_MASK);
}

static bool ward_has_news(const struct gw_pool *pool)
{
	if (pool->ward_lost)
		return false;
	return ward_is_starting(pool) ||
	       atomic_load(&pool->page->ward_events) != pool->seen_events ||
	       (atomic_load(&pool->page->ward_life) & FUTEX_OWNER_DIED);
}

void wait_look_again(struct gw_pool *pool)
{
	uint64_t one = 1;

	/* A full counter means that the descriptor is readable already. */
	if (write(pool->news_fd, &one, sizeof(one)) < 0)
		return;
}

/* Another thread took something in: whoever sleeps looks again. */
static void tell_sleepers(struct gw_pool *pool)
{
	(void)pthread_cond_broadcast(&pool->changed);
	if (pool->leader)
		wait_kick_leader(pool);
	if (pool->polled && !pool->dispatching)
		wait_look_again(pool);
}

void wait_kick_leader(struct gw_pool *pool)
{
	(void)atomic_fetch_add(&pool->kick, 1);
	pool_page_wake_host(pool->page);
	if (pool->leader_polls)
		wait_look_again(pool);
}

void wait_step(struct gw_pool *pool)
{
	bool news = ward_has_news(pool);

	if (pool->kick_unsent)
		orders_kick(pool);
	if (pool->starved)
		dispatch_all(pool);
	if (news)
		news_take(pool);
	if (collect_all(pool) || news) {
		dispatch_all(pool);
		tell_sleepers(pool);
	}
}

static void watch_workers(struct gw_pool *pool, struct watch *watch)
{
	for (uint32_t i = 0; i < pool->n_slots; i++) {
		struct slot *slot = &pool->slots[i];

		slot->watched = slot->link && !slot->distrusted && slot->in_flight > 0;
		if (!slot->watched)
			continue;
		slot->link->references++;
		watch->links[watch->n_links] = slot->link;
		watch->taken[watch->n_links++] = slot->taken;
	}
}

static void watch_all(struct gw_pool *pool, struct watch *watch)
{
	watch->pool = pool;
	watch->kick = atomic_load(&pool->kick);
	watch->ward_events = pool->seen_events;
	watch->ward_lost = pool->ward_lost;
	watch->announced = false;
	watch->n_links = 0;
	watch_workers(pool, watch);
}

static void unwatch(struct gw_pool *pool, struct watch *watch)
{
	for (size_t i = 0; i < watch->n_links; i++) {
		struct channel *channel = watch->links[i]->map.shared;

		if (watch->announced)
			(void)atomic_fetch_and(&channel->host_waiting,
					       ~(uint32_t)CHANNEL_HOST_SLEEPS);
		link_release(watch->links[i]);
	}
	for (uint32_t i = 0; i < pool->n_slots; i++)
		pool->slots[i].watched = false;
}

/* Without the lock: has anything moved since watch_all()? */
static bool has_moved(const struct watch *watch)
{
	const struct pool_page *page = watch->pool->page;

	for (size_t i = 0; i < watch->n_links; i++) {
		if (atomic_load(&watch->links[i]->map.shared->completed) != watch->taken[i])
			return true;
	}
	if (atomic_load(&watch->pool->kick) != watch->kick)
		return true;
	return !watch->ward_lost && (atomic_load(&page->ward_events) != watch->ward_events ||
				     (atomic_load(&page->ward_life) & FUTEX_OWNER_DIED));
}

/*
 * Asks for a wake-up. Not before there is need for one: a side that spins costs the others no system call.
 * True when it is too late to sleep: something moved before the others could see the marks.
 */
static bool announce(struct watch *watch)
{
	struct pool_page *page = watch->pool->page;

	for (size_t i = 0; i < watch->n_links; i++) {
		struct channel *channel = watch->links[i]->map.shared;

		watch->words[i] = (struct futex_wait_word){&channel->host_waiting,
							   channel_announce_host(channel)};
	}
	watch->words[watch->n_links] =
		(struct futex_wait_word){&page->ward_life, pool_page_announce_sleeper(page)};
	watch->announced = true;
	return has_moved(watch);
}

static bool spin(const struct watch *watch, uint64_t spin_ns, uint64_t deadline_ns)
{
	uint64_t end;

	/* announce() looks. */
	if (spin_ns == 0)
		return false;
	end = now_ns() + spin_ns;
	if (end > deadline_ns)
		end = deadline_ns;
	do {
		for (int i = 0; i < 64; i++) {
			if (has_moved(watch))
				return true;
			cpu_pause();
		}
	} while (now_ns() < end);
	return false;
}

/* Where there is no futex_waitv: through descriptors, which is slower. */
static void sleep_by_poll(struct gw_pool *pool, uint64_t deadline_ns)
{
	struct pollfd fd = {.fd = pool->epoll_fd, .events = POLLIN};
	struct timespec timeout = {0};
	uint64_t now = now_ns();

	if (deadline_ns > now) {
		timeout.tv_sec = (time_t)((deadline_ns - now) / 1000000000U);
		timeout.tv_nsec = (long)((deadline_ns - now) % 1000000000U);
	}
	(void)ppoll(&fd, 1, deadline_ns == GW_FOREVER ? NULL : &timeout, NULL);
}

/* Sleeps. False where the call is missing, or does not work: a filter may say EPERM. */
static bool can_wait_any(const struct watch *watch, uint64_t deadline_ns)
{
	int result = futex_wait_any(watch->words, watch->n_links + 1, deadline_ns);

	return result == 0 || result == -ETIMEDOUT || result == -EINTR;
}

/*
 * Some kernels and filters lack the call that sleeps on several words. Whether this one does is the
 * same for all threads, so a late answer only costs one call.
 */
static void lead(struct gw_pool *pool, uint64_t deadline_ns)
{
	struct watch watch;
	bool poll_instead = pool->leader_polls || ward_is_starting(pool);
	bool no_waitv = pool->leader_polls;
	uint64_t budget_ns = spin_budget(&pool->spin);
	bool paid;

	pool->leader = true;
	watch_all(pool, &watch);
	if (poll_instead)
		wait_arm_polling(pool);
	(void)pthread_mutex_unlock(&pool->lock);
	paid = spin(&watch, budget_ns, deadline_ns);
	if (!paid && !announce(&watch)) {
		if (poll_instead)
			sleep_by_poll(pool, deadline_ns);
		else
			no_waitv = !can_wait_any(&watch, deadline_ns);
	}
	(void)pthread_mutex_lock(&pool->lock);
	spin_learn(&pool->spin, paid);
	pool->leader = false;
	pool->leader_polls = no_waitv;
	unwatch(pool, &watch);
}

static void follow(struct gw_pool *pool, uint64_t deadline_ns)
{
	struct timespec deadline = {.tv_sec = (time_t)(deadline_ns / 1000000000U),
				    .tv_nsec = (long)(deadline_ns % 1000000000U)};

	pool->followers++;
	if (deadline_ns == GW_FOREVER)
		(void)pthread_cond_wait(&pool->changed, &pool->lock);
	else
		(void)pthread_cond_timedwait(&pool->changed, &pool->lock, &deadline);
	pool->followers--;
}

void wait_change(struct gw_pool *pool, uint64_t deadline_ns)
{
	if (pool->leader) {
		follow(pool, deadline_ns);
		return;
	}
	if ((pool->kick_unsent || pool->starved) && now_ns() + AGAIN_NS < deadline_ns)
		deadline_ns = now_ns() + AGAIN_NS;
	lead(pool, deadline_ns);
	wait_step(pool);
	/* This thread may have what it waited for: somebody else must lead then. */
	if (pool->followers > 0)
		(void)pthread_cond_broadcast(&pool->changed);
}

/*
 * Makes the descriptor silent. The event descriptors are never read: their flags belong to the worker too,
 * and one that takes O_NONBLOCK away would block this thread in read(), with the lock held. They are
 * watched for edges, and asking epoll is what uses an edge up.
 */
static void silence(struct gw_pool *pool)
{
	struct epoll_event events[GW_WORKERS_MAX + 2];
	uint64_t count;

	while (read(pool->news_fd, &count, sizeof(count)) < 0 && errno == EINTR)
		;
	while (epoll_wait(pool->epoll_fd, events, GW_WORKERS_MAX + 2, 0) < 0 && errno == EINTR)
		;
}

void wait_arm_polling(struct gw_pool *pool)
{
	silence(pool);
	for (uint32_t i = 0; i < pool->n_slots; i++) {
		struct link *link = pool->slots[i].link;

		if (link && !pool->slots[i].distrusted)
			(void)atomic_fetch_or(&link->map.shared->host_waiting, CHANNEL_HOST_POLLS);
	}
	/* A worker may have published between the last look and its bit: then it has not written. */
	if (collect_has_news(pool))
		wait_look_again(pool);
}
