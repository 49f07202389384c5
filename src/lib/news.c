/* SPDX-License-Identifier: MIT */
/*
 * What the ward says: a worker is ready, a worker is gone, a slot is given up, or (by silence) the
 * ward itself is dead.
 *
 * Runs in: host, under the pool's lock; never blocks. The order at a worker's end matters: before the ward
 * speaks it has set the worker's fence in the pool page, so what counts of its channel is final, though the
 * process may still run. Results up to the fence are taken in first, then its channel is let go, then what
 * it still had goes back to the front of the queue. Nothing is therefore lost, and nothing is taken twice.
 * Read next: dispatch.c.
 */
#include "lib/pool.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "common/err.h"
#include "common/fd.h"

static int watch_event_fd(struct gw_pool *pool, int fd)
{
	struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.fd = fd};

	return epoll_ctl(pool->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

/* Gives a worker back that cannot be used here, and lets the ward try again. */
static void give_back(struct gw_pool *pool, const struct wire_up *up, int pidfd, int result)
{
	const struct wire_kill kill = {
		.slot = up->slot,
		.incarnation = up->incarnation,
		.reason = GW_END_START,
		/* A channel of another shape is the one code that is no errno. */
		.error = result == GW_EPROTOCOL ? EPROTO : -result};

	orders_kill(pool, kill, pidfd);
}

/* Takes the channel's descriptors out of FDS. */
static int connect_worker(struct gw_pool *pool, const struct wire_up *up, int fds[WIRE_FDS_MAX],
			  struct link **ret_link)
{
	struct link *link;
	int result = link_new_take(pool, fds[0], fds[1], up, &link);

	if (result < 0)
		return result;
	fds[1] = -1;
	result = watch_event_fd(pool, link->event_fd);
	if (result < 0) {
		link_release(link);
		return result;
	}
	*ret_link = link;
	return 0;
}

/* Consumes FDS. */
static void worker_is_up(struct gw_pool *pool, const struct wire_up *up, int fds[WIRE_FDS_MAX])
{
	struct slot *slot = &pool->slots[up->slot];
	struct link *link = NULL;
	int result = connect_worker(pool, up, fds, &link);

	if (!link) {
		give_back(pool, up, fds[2], result);
		return;
	}
	slot->link = link;
	slot->incarnation = up->incarnation;
	slot->pid = up->pid;
	slot->pidfd = fd_steal(&fds[2]);
	slot->device = up->device;
	slot->submitted = 0;
	slot->taken = 0;
	slot->in_flight = 0;
	slot->distrusted = false;
	atomic_store(&pool->page->slots[up->slot].submitted, 0);
	atomic_store(&pool->page->slots[up->slot].incarnation, up->incarnation);
}

/* Makes room for one more story: room doubles, since max_attempts can be any number. */
static bool grow_attempts(struct gw_task *task)
{
	uint32_t told = task->outcome.attempts;
	struct gw_exit *attempts;

	if (told > 0 && (!task->attempts || (told & (told - 1)) != 0))
		return task->attempts != NULL;
	attempts = reallocarray(task->attempts, told ? (size_t)told * 2 : 1, sizeof(*attempts));
	if (!attempts) {
		free(task->attempts);
		task->attempts = NULL;
		return false;
	}
	task->attempts = attempts;
	return true;
}

/* Keeps the story of an attempt. Without memory only the count is kept, from here on and for before. */
static void add_attempt(struct gw_task *task, const struct gw_exit *exit)
{
	if (grow_attempts(task))
		task->attempts[task->outcome.attempts] = *exit;
	task->outcome.attempts++;
}

/* The task that the dead worker had begun, or was about to begin. */
static void settle_first(struct gw_task *task, const struct gw_exit *exit)
{
	if (task->cancelled || task->freed) {
		task_end(task, GW_CANCELLED);
		return;
	}
	if (exit->end != GW_END_STOPPED) {
		add_attempt(task, exit);
		task->pool->attempts_failed++;
		pool_page_show(&task->pool->page->host.attempts_failed,
			       task->pool->attempts_failed);
		task->outcome.device = exit->device;
		if (task->outcome.attempts >= task->max_attempts) {
			(void)snprintf(task->outcome.message, sizeof(task->outcome.message), "%.*s",
				       (int)sizeof(task->outcome.message) - 1, exit->text);
			task->pool->tasks_poisoned++;
			pool_page_show(&task->pool->page->host.tasks_poisoned,
				       task->pool->tasks_poisoned);
			task_end(task, GW_POISON);
			return;
		}
	}
	dispatch_enqueue_front(task);
}

/* Gives back what a dead worker had, in the old order, and blames the first for its death. */
static void settle_tasks(struct slot *slot, const struct gw_exit *exit)
{
	for (uint32_t n = slot->submitted; n != slot->taken; n--) {
		struct gw_task *task = slot->tasks[(n - 1) % CHANNEL_DEPTH];

		if (!task)
			continue;
		slot->tasks[(n - 1) % CHANNEL_DEPTH] = NULL;
		task_release_output(task);
		if (slot->in_flight == 1)
			settle_first(task, exit);
		else if (task->cancelled || task->freed)
			task_end(task, GW_CANCELLED);
		else
			dispatch_enqueue_front(task);
		slot->in_flight--;
	}
}

/* Lets go of a slot's process; what it publishes from here on nobody reads. */
static void let_go(struct gw_pool *pool, struct slot *slot, const struct gw_exit *exit)
{
	settle_tasks(slot, exit);
	slot->taken = slot->submitted;
	(void)epoll_ctl(pool->epoll_fd, EPOLL_CTL_DEL, slot->link->event_fd, NULL);
	link_release(slot->link);
	slot->link = NULL;
	slot->pid = -1;
}

/* A worker that is fenced may still be there when the ward dies: closing the pool waits for it too. Of many
 * the oldest is forgotten. */
static void keep_pidfd(struct gw_pool *pool, int pidfd)
{
	int *place = &pool->leaving_pidfds[pool->n_left++ % POOL_LEAVING_MAX];

	fd_close(*place);
	*place = pidfd;
}

static void worker_is_gone(struct gw_pool *pool, const struct wire_gone *gone)
{
	struct slot *slot = &pool->slots[gone->slot];

	pool->last_exit = gone->exit;
	pool_page_put_exit(pool->page, &pool->last_exit);
	if (!slot->link || slot->incarnation != gone->incarnation)
		return;
	(void)collect_all(pool);
	let_go(pool, slot, &gone->exit);
	if (gone->exit.gone_ns == GW_UNKNOWN)
		keep_pidfd(pool, fd_steal(&slot->pidfd));
	else
		fd_closep(&slot->pidfd);
}

static void lose_list(struct list *list, const char *why)
{
	struct list_node *node;

	while ((node = list_first(list))) {
		struct gw_task *task = list_item(node, struct gw_task, queue);

		list_remove(node);
		(void)snprintf(task->outcome.message, sizeof(task->outcome.message), "%.*s",
			       (int)sizeof(task->outcome.message) - 1, why);
		task_end(task, GW_LOST);
	}
}

/* A process that SIGKILL does not end is given up before it is gone: its tasks need not wait for it. */
static void give_up(struct gw_pool *pool, struct slot *slot, const struct gw_error *error)
{
	struct gw_exit exit = {.end = GW_END_UNKNOWN,
			       .source = GW_SOURCE_DEADLINE,
			       .cuda = -1,
			       .xid = -1,
			       .pid = slot->pid,
			       .device = slot->device,
			       .slot = (uint32_t)(slot - pool->slots),
			       .started_ns = GW_UNKNOWN,
			       .noticed_ns = now_ns(),
			       .gone_ns = GW_UNKNOWN};

	slot->failed = true;
	slot->failure = *error;
	if (!slot->link)
		return;
	(void)snprintf(exit.text, sizeof(exit.text), "%.*s", (int)sizeof(exit.text) - 1,
		       error->msg);
	let_go(pool, slot, &exit);
}

static void slot_is_given_up(struct gw_pool *pool, const struct wire_failed *failed)
{
	(void)collect_all(pool);
	for (uint32_t i = 0; i < pool->n_slots; i++) {
		if (i == failed->slot || failed->whole_pool)
			give_up(pool, &pool->slots[i], &failed->error);
	}
	for (uint32_t i = 0; i < pool->n_pending_lists; i++) {
		if (dispatch_hopeless(pool, i))
			lose_list(&pool->pending[i], failed->error.msg);
	}
	if (dispatch_hopeless(pool, pool->n_pending_lists - 1))
		pool->failure = failed->error;
}

void news_lose_all(struct gw_pool *pool)
{
	(void)collect_all(pool);
	for (uint32_t i = 0; i < pool->n_slots; i++) {
		struct slot *slot = &pool->slots[i];
		const struct gw_exit stopped = {.end = GW_END_STOPPED};

		if (slot->link)
			let_go(pool, slot, &stopped);
	}
	for (uint32_t i = 0; i < pool->n_pending_lists; i++)
		lose_list(&pool->pending[i], "the ward died");
}

static void handle(struct gw_pool *pool, const union wire_any *message, int fds[WIRE_FDS_MAX])
{
	switch (message->header.type) {
	case WIRE_UP:
		if (message->up.slot < pool->n_slots && fds[0] >= 0 && fds[1] >= 0)
			worker_is_up(pool, &message->up, fds);
		break;
	case WIRE_GONE:
		if (message->gone.slot < pool->n_slots)
			worker_is_gone(pool, &message->gone);
		break;
	case WIRE_FAILED:
		if (message->failed.slot < pool->n_slots)
			slot_is_given_up(pool, &message->failed);
		break;
	default:
		break;
	}
}

/* The socket is closed, so that a ward that lives, and was given up for what it said, ends too. */
static void ward_is_lost(struct gw_pool *pool)
{
	pool->ward_lost = true;
	(void)epoll_ctl(pool->epoll_fd, EPOLL_CTL_DEL, pool->ward_socket, NULL);
	fd_closep(&pool->ward_socket);
	news_lose_all(pool);
}

/*
 * The kernel marks the ward's word before it closes the ward's descriptors, so at a death the socket
 * can be empty and not yet at its end. What the ward had sent is there all the same.
 */
static bool ward_has_died(const struct gw_pool *pool)
{
	return atomic_load(&pool->page->ward_life) & FUTEX_OWNER_DIED;
}

void news_take(struct gw_pool *pool)
{
	bool died = ward_has_died(pool);
	union wire_any *message;
	uint32_t seen;

	if (pool->ward_lost)
		return;
	message = malloc(sizeof(*message));
	if (!message)
		return; /* seen_events is not moved: the next look tries again */
	seen = pool->seen_events;
	pool->seen_events = atomic_load(&pool->page->ward_events);
	for (;;) {
		int fds[WIRE_FDS_MAX];
		int result = wire_receive(pool->ward_socket, message, fds);

		if (result == -EAGAIN && !died)
			break;
		if (result == -ENOMEM || result == -ENOBUFS) {
			pool->seen_events = seen;
			break;
		}
		if (result == -EMFILE && message->header.type == WIRE_UP) {
			give_back(pool, &message->up, -1, result);
			continue;
		}
		if (result == GW_EVERSION)
			(void)err_own(&pool->failure, GW_EVERSION,
				      "the ward is version %s, this library is %s: install both "
				      "from the same build",
				      message->header.version, GW_VERSION_TEXT);
		if (result <= 0) {
			ward_is_lost(pool);
			break;
		}
		handle(pool, message, fds);
		for (size_t i = 0; i < WIRE_FDS_MAX; i++)
			fd_close(fds[i]);
	}
	free(message);
}
