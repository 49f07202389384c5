/* SPDX-License-Identifier: MIT */
/*
 * Opening and closing a pool, and what a host can ask about it.
 *
 * Runs in: host. A pool is: a ward (a process), memory for inputs that only the host can write, a page
 * that host and ward share, and a slot per worker. Invariant: closing works from any half-built state,
 * and in a forked child it lets go of the child's copies without a word to the ward.
 * Read next: pool.h for the parts, ward_start.c for the start.
 */
#include "lib/pool.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/err.h"
#include "common/fd.h"
#include "linux/procref.h"

#define MS UINT64_C(1000000)

/* How long the ward may take beyond stop_deadline_ns: it waits that long for a process that SIGKILL
 * does not end, since its driver hangs. */
#define CLOSE_SLACK_NS (15000 * MS)

int pool_check_owner(const struct gw_pool *pool, struct gw_error *ret_error)
{
	if (pool && *(const volatile uint8_t *)pool->owner)
		return 0;
	return err_own(ret_error, pool ? GW_EFORKED : -EINVAL,
		       pool ? "this pool belongs to the parent of this forked process: only "
			      "gw_pool_close() works here"
			    : "no pool");
}

int pool_check_alive(const struct gw_pool *pool, struct gw_error *ret_error)
{
	if (pool->failure.code != 0) {
		if (ret_error)
			*ret_error = pool->failure;
		return pool->failure.code == GW_EVERSION ? GW_EVERSION : GW_EPOOLFAILED;
	}
	if (pool->ward_lost)
		return err_own(ret_error, GW_EWARDLOST,
			       "the ward (pid %d) died: close this pool and open a new one",
			       pool->ward_pid);
	return 0;
}

/* A page that reads 1 in this process and 0 in a forked child. */
static int map_owner(struct gw_pool *pool)
{
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (page == MAP_FAILED)
		return -errno;
	if (madvise(page, 4096, MADV_WIPEONFORK) < 0) {
		int error = errno;

		(void)munmap(page, 4096);
		return -error;
	}
	pool->owner = page;
	*pool->owner = 1;
	return 0;
}

/* Workers get the same file, and the seal keeps them from ever mapping it writable. */
static int map_input(struct gw_pool *pool)
{
	uint64_t bytes = pool->options.total_input_bytes * ARENA_FACTOR;
	void *input;

	pool->input_fd = fd_new_memory("gpuward-input", bytes);
	if (pool->input_fd < 0)
		return pool->input_fd;
	input = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
		     pool->input_fd, 0);
	if (input == MAP_FAILED)
		return -errno;
	pool->input = input;
	pool->input_map_bytes = bytes;
	(void)madvise(input, bytes, MADV_DONTDUMP);
	arena_init(&pool->inputs, bytes);
	if (fcntl(pool->input_fd, F_ADD_SEALS,
		  F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		return -errno;
	return 0;
}

/* What the pool is, for whoever looks. */
static void show_options(struct gw_pool *pool)
{
	const struct gw_pool_options *o = &pool->options;
	struct pool_page_host *host = &pool->page->host;

	host->pid = getpid();
	host->workers = pool->n_slots;
	host->standby = o->standby;
	if (o->standby != GW_STANDBY_COLD)
		host->standbys = o->standbys_per_device * (o->n_devices ? o->n_devices : 1);
	host->n_devices = o->n_devices;
	for (uint32_t i = 0; i < o->n_devices; i++)
		host->devices[i] = o->devices[i];
	host->opened_ns = now_ns();
	if (o->state_name)
		memcpy(host->state_name, o->state_name, strlen(o->state_name));
}

static int map_page(struct gw_pool *pool)
{
	void *page;

	pool->page_fd = fd_new_memory(POOL_PAGE_NAME, sizeof(*pool->page));
	if (pool->page_fd < 0)
		return pool->page_fd;
	page = mmap(NULL, sizeof(*pool->page), PROT_READ | PROT_WRITE, MAP_SHARED, pool->page_fd,
		    0);
	if (page == MAP_FAILED)
		return -errno;
	pool->page = page;
	pool_page_init(pool->page);
	show_options(pool);
	/* Whoever looks at it is not to meet a hole: the ward, and others of this user. */
	if (fcntl(pool->page_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		return -errno;
	return 0;
}

static int open_descriptors(struct gw_pool *pool)
{
	struct epoll_event event = {.events = EPOLLIN};

	pool->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (pool->epoll_fd < 0)
		return -errno;
	pool->news_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (pool->news_fd < 0)
		return -errno;
	if (epoll_ctl(pool->epoll_fd, EPOLL_CTL_ADD, pool->news_fd, &event) < 0)
		return -errno;
	return 0;
}

static int init_lock(struct gw_pool *pool)
{
	pthread_condattr_t attributes;

	if (pthread_mutex_init(&pool->lock, NULL) != 0 || pthread_condattr_init(&attributes) != 0)
		return -ENOMEM;
	(void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	if (pthread_cond_init(&pool->changed, &attributes) != 0)
		return -ENOMEM;
	(void)pthread_condattr_destroy(&attributes);
	return 0;
}

static int init_lists(struct gw_pool *pool)
{
	const struct gw_pool_options *o = &pool->options;

	list_init(&pool->live);
	list_init(&pool->ended);
	pool->n_slots = (o->n_devices ? o->n_devices : 1) * o->workers_per_device;
	pool->n_pending_lists = o->n_devices + 1;
	pool->slots = calloc(pool->n_slots, sizeof(*pool->slots));
	pool->pending = calloc(pool->n_pending_lists, sizeof(*pool->pending));
	pool->devices = calloc(o->n_devices + 1, sizeof(*pool->devices));
	if (!pool->slots || !pool->pending || !pool->devices)
		return -ENOMEM;
	for (uint32_t i = 0; i < o->n_devices; i++)
		pool->devices[i] = o->devices[i];
	for (uint32_t i = 0; i < pool->n_pending_lists; i++)
		list_init(&pool->pending[i]);
	for (uint32_t i = 0; i < pool->n_slots; i++) {
		pool->slots[i].pid = -1;
		pool->slots[i].pidfd = -1;
		pool->slots[i].device = o->n_devices ? o->devices[i % o->n_devices] : -1;
	}
	return 0;
}

static int build(struct gw_pool *pool, struct gw_error *ret_error)
{
	static int (*const steps[])(struct gw_pool *) = {
		init_lock, map_owner, init_lists, map_input, map_page, open_descriptors,
	};

	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		int result = steps[i](pool);

		if (result == -EFBIG)
			return err_os(ret_error, EFBIG,
				      "RLIMIT_FSIZE is too small for total_input_bytes");
		if (result == -ENOSYS)
			return err_os(ret_error, ENOSYS,
				      "memfd_create is missing: gpuward needs Linux 5.4, and a "
				      "container must not filter the call");
		if (result < 0)
			return err_os(ret_error, -result, "cannot set up a pool");
	}
	return 0;
}

/* Waits until a worker is ready, or until it is clear that none will be. */
static int wait_first_worker(struct gw_pool *pool, struct gw_error *ret_error)
{
	int result = 0;

	(void)pthread_mutex_lock(&pool->lock);
	for (;;) {
		bool ready = false;

		wait_step(pool);
		for (uint32_t i = 0; i < pool->n_slots; i++)
			ready |= pool->slots[i].link != NULL;
		if (ready)
			break;
		result = pool_check_alive(pool, ret_error);
		if (result < 0)
			break;
		wait_change(pool, GW_FOREVER);
	}
	(void)pthread_mutex_unlock(&pool->lock);
	/* Of several reasons the ward's own words are the best: give their code too. */
	return result == GW_EPOOLFAILED ? pool->failure.code : result;
}

/* A main() that does not begin with gw_is_worker() opens a pool in each worker, whose worker opens the
 * next one, without end. The ward is told, so that the first host hears the reason. */
static int refuse_in_worker(struct gw_error *ret_error)
{
	struct wire_start_failed failed = {0};

	(void)err_own(&failed.error, -EINVAL,
		      "the worker opened a pool of its own: main() must begin with "
		      "if (gw_is_worker()) return gw_worker_run(functions);");
	wire_header_init(&failed.header, WIRE_START_FAILED, sizeof(failed));
	(void)wire_send(WIRE_WORKER_SOCKET, &failed, NULL, 0);
	if (ret_error)
		*ret_error = failed.error;
	return -EINVAL;
}

int gw_pool_open(struct gw_pool **ret_pool, const struct gw_pool_options *options,
		 struct gw_error *ret_error)
{
	struct gw_pool *pool;
	int result;

	if (!ret_pool || (options && options->size == 0))
		return err_own(ret_error, -EINVAL,
			       "gw_pool_open: ret_pool is NULL, or options were not set by "
			       "GW_OPTIONS()");
	if (gw_is_worker())
		return refuse_in_worker(ret_error);
	pool = calloc(1, sizeof(*pool));
	if (!pool)
		return err_os(ret_error, ENOMEM, "no memory for a pool");
	pool->ward_socket = pool->ward_pidfd = pool->input_fd = pool->page_fd = -1;
	pool->epoll_fd = pool->news_fd = -1;
	for (uint32_t i = 0; i < POOL_LEAVING_MAX; i++)
		pool->leaving_pidfds[i] = -1;
	pool->ward_pid = -1;
	pool->ward_program = SPAWNED_NONE;
	pool->options.size = sizeof(pool->options);
	if (options)
		memcpy(&pool->options, options,
		       options->size < sizeof(*options) ? options->size : sizeof(*options));
	options_fill(&pool->options);
	pool->spin.limit_ns = pool->options.spin_ns;
	result = options_check(&pool->options, ret_error);
	if (result == 0)
		result = build(pool, ret_error);
	if (result == 0)
		result = ward_start(pool, ret_error);
	if (result == 0)
		result = wait_first_worker(pool, ret_error);
	if (result < 0) {
		result = ward_explain(pool, result, ret_error);
		gw_pool_close(pool);
		return result;
	}
	spawn_done(&pool->ward_program);
	*ret_pool = pool;
	return 0;
}

/* A worker that had said nothing yet has no pidfd here: -1. */
static void wait_end(int pidfd, uint64_t deadline_ns)
{
	struct pollfd fd = {.fd = pidfd, .events = POLLIN};
	uint64_t now = now_ns();

	if (pidfd >= 0 && now < deadline_ns)
		(void)poll(&fd, 1, (int)((deadline_ns - now) / MS));
}

/* Waits for workers that outlived their ward: the kernel has killed them, and the driver may take its
 * time. */
static void wait_workers(struct gw_pool *pool)
{
	uint64_t deadline = wait_deadline(CLOSE_SLACK_NS);

	for (uint32_t i = 0; i < pool->n_slots; i++)
		wait_end(pool->slots[i].pidfd, deadline);
	for (uint32_t i = 0; i < POOL_LEAVING_MAX; i++)
		wait_end(pool->leaving_pidfds[i], deadline);
}

/* Waits for the ward's end, and ends it if it is late: its workers die with it. */
static void end_ward(struct gw_pool *pool)
{
	struct procref ward = {.pid = pool->ward_pid, .pidfd = pool->ward_pidfd};
	uint64_t late = pool->options.stop_deadline_ns;
	struct procref_end end;

	if (pool->ward_pidfd < 0)
		return;
	if (!pool->ward_lost)
		orders_close(pool);
	late = late > GW_FOREVER - CLOSE_SLACK_NS ? GW_FOREVER : late + CLOSE_SLACK_NS;
	if (procref_wait(&ward, after_ns(late), &end) == 0) {
		(void)procref_signal(&ward, SIGKILL);
		(void)procref_wait(&ward, GW_FOREVER, &end);
	}
	wait_workers(pool);
}

static void free_tasks(struct gw_pool *pool)
{
	struct list_node *node;

	while (pool->live.head.next && (node = list_first(&pool->live)))
		task_destroy(list_item(node, struct gw_task, live));
}

static void unmap(void *address, uint64_t bytes)
{
	if (address)
		(void)munmap(address, bytes);
}

static void free_pool(struct gw_pool *pool)
{
	free_tasks(pool);
	for (uint32_t i = 0; pool->slots && i < pool->n_slots; i++) {
		link_release(pool->slots[i].link);
		fd_close(pool->slots[i].pidfd);
	}
	for (uint32_t i = 0; i < POOL_LEAVING_MAX; i++)
		fd_close(pool->leaving_pidfds[i]);
	arena_done(&pool->inputs);
	unmap(pool->input, pool->input_map_bytes);
	unmap(pool->page, sizeof(*pool->page));
	unmap(pool->owner, 4096);
	fd_close(pool->ward_socket);
	fd_close(pool->ward_pidfd);
	spawn_done(&pool->ward_program);
	fd_close(pool->input_fd);
	fd_close(pool->page_fd);
	fd_close(pool->epoll_fd);
	fd_close(pool->news_fd);
	free(pool->slots);
	free(pool->pending);
	free(pool->devices);
	free(pool);
}

void gw_pool_close(struct gw_pool *pool)
{
	if (!pool)
		return;
	if (pool->owner && *(volatile uint8_t *)pool->owner) {
		end_ward(pool);
		(void)pthread_cond_destroy(&pool->changed);
		(void)pthread_mutex_destroy(&pool->lock);
	}
	free_pool(pool);
}

int gw_pool_fd(struct gw_pool *pool)
{
	int result = pool_check_owner(pool, NULL);

	if (result < 0)
		return result;
	(void)pthread_mutex_lock(&pool->lock);
	pool->polled = true;
	wait_arm_polling(pool);
	(void)pthread_mutex_unlock(&pool->lock);
	return pool->epoll_fd;
}

int gw_pool_dispatch(struct gw_pool *pool, struct gw_error *ret_error)
{
	int result = pool_check_owner(pool, ret_error);

	if (result < 0)
		return result;
	(void)pthread_mutex_lock(&pool->lock);
	pool->dispatching = true;
	if (pool->polled)
		wait_arm_polling(pool);
	wait_step(pool);
	pool->dispatching = false;
	result = (int)pool->n_ended;
	if (result == 0)
		result = pool_check_alive(pool, ret_error);
	(void)pthread_mutex_unlock(&pool->lock);
	return result;
}

int gw_pool_next(struct gw_pool *pool, uint64_t timeout_ns, struct gw_task **ret_task,
		 struct gw_error *ret_error)
{
	int result = pool_check_owner(pool, ret_error);
	uint64_t deadline;

	if (result < 0 || !ret_task)
		return result < 0 ? result : err_own(ret_error, -EINVAL, "ret_task is NULL");
	deadline = timeout_ns == 0 ? 0 : wait_deadline(timeout_ns);
	(void)pthread_mutex_lock(&pool->lock);
	for (;;) {
		struct list_node *node;

		wait_step(pool);
		node = list_first(&pool->ended);
		if (node) {
			list_remove(node);
			pool->n_ended--;
			*ret_task = list_item(node, struct gw_task, queue);
			result = 1;
			break;
		}
		if (pool->tasks_under_way == 0 || (deadline != GW_FOREVER && now_ns() >= deadline))
			break;
		wait_change(pool, deadline);
	}
	(void)pthread_mutex_unlock(&pool->lock);
	return result;
}

/* What the ward knows better. */
static void copy_report(const struct gw_pool *pool, struct gw_pool_stat *stat)
{
	struct pool_page_report report;

	pool_page_report(pool->page, &report);
	stat->recoveries = report.n_recoveries;
	stat->standbys_hot = report.standbys.hot;
	stat->standbys_primed = report.standbys.primed;
	stat->standbys_starting = report.standbys.starting;
	stat->standbys_failed = report.standbys.failed;
	stat->standbys_no_room = report.standbys.no_room;
	stat->kernel_log_lost = report.kernel_log_lost;
	memcpy(stat->noticed_by, report.noticed_by, sizeof(stat->noticed_by));
	memcpy(stat->source_error, report.source_error, sizeof(stat->source_error));
}

int gw_pool_stat(struct gw_pool *pool, struct gw_pool_stat *ret_stat)
{
	int result = pool_check_owner(pool, NULL);

	if (result < 0 || !ret_stat)
		return result < 0 ? result : -EINVAL;
	memset(ret_stat, 0, sizeof(*ret_stat));
	(void)pthread_mutex_lock(&pool->lock);
	wait_step(pool);
	for (uint32_t i = 0; i < pool->n_slots; i++) {
		const struct slot *slot = &pool->slots[i];

		ret_stat->workers_ready += slot->link != NULL;
		ret_stat->workers_failed += slot->failed;
		ret_stat->workers_starting += !slot->link && !slot->failed;
	}
	ret_stat->ward_pid = pool->ward_pid;
	ret_stat->tasks_pending = pool->tasks_under_way;
	ret_stat->tasks_done = pool->tasks_done;
	ret_stat->input_bytes = pool->input_bytes;
	ret_stat->output_bytes = pool->output_bytes;
	state_stat(pool, ret_stat);
	ret_stat->last_exit = pool->last_exit;
	ret_stat->last_device = pool->last_exit.end == GW_END_UNKNOWN ? -1 : pool->last_exit.device;
	ret_stat->attempts_failed = pool->attempts_failed;
	ret_stat->tasks_poisoned = pool->tasks_poisoned;
	copy_report(pool, ret_stat);
	(void)pthread_mutex_unlock(&pool->lock);
	return 0;
}

int gw_pool_recovery(struct gw_pool *pool, uint64_t number, struct gw_recovery *ret_recovery)
{
	int result = pool_check_owner(pool, NULL);
	struct pool_page_report report;

	if (result < 0 || !ret_recovery)
		return result < 0 ? result : -EINVAL;
	pool_page_report(pool->page, &report);
	if (number >= report.n_recoveries || report.n_recoveries - number > GW_RECOVERIES_KEPT)
		return -ENOENT;
	*ret_recovery = report.recoveries[number % GW_RECOVERIES_KEPT];
	return 0;
}

int gw_pool_worker(struct gw_pool *pool, uint32_t slot, struct gw_worker_info *ret_info)
{
	int result = pool_check_owner(pool, NULL);

	if (result < 0 || !ret_info)
		return result < 0 ? result : -EINVAL;
	if (slot >= pool->n_slots)
		return -ENOENT;
	(void)pthread_mutex_lock(&pool->lock);
	wait_step(pool);
	ret_info->pid = pool->slots[slot].pid;
	ret_info->device = pool->slots[slot].device;
	ret_info->incarnation = pool->slots[slot].incarnation;
	ret_info->in_flight = pool->slots[slot].in_flight;
	(void)pthread_mutex_unlock(&pool->lock);
	return 0;
}
