/* SPDX-License-Identifier: MIT */
#include "cli/drill_pool.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <string.h>

#include "common/err.h"
#include "common/fd.h"

/* A CUDA that takes longer to start does not answer; it gets a second chance. */
#define START_DEADLINE_NS 15000000000ULL
#define START_TRIES	  2U

/* A standby's start, or the end of an old process. */
#define AWAIT_NS      30000000000ULL
#define TASK_NS	      60000000000ULL
#define LOOK_AGAIN_MS 1
#define ARENA_BYTES   (1U << 20)

static const struct {
	enum gw_standby standby;
	uint32_t connections;
} levels[DRILL_LEVELS] = {
	[LEVEL_BY_HAND] = {GW_STANDBY_COLD, 0},	 [LEVEL_COLD] = {GW_STANDBY_COLD, 0},
	[LEVEL_PRIMED] = {GW_STANDBY_PRIMED, 0}, [LEVEL_HOT] = {GW_STANDBY_HOT, 0},
	[LEVEL_HOT_1] = {GW_STANDBY_HOT, 1},
};

/* Runs FUNCTION once, and waits for it. */
static int run_task(struct gw_pool *pool, const char *function, uint64_t state_bytes,
		    struct gw_error *ret_error)
{
	struct gw_task_options options = GW_OPTIONS(struct gw_task_options);
	const struct drill_state_order order = {.bytes = state_bytes};
	struct gw_outcome outcome = {0};
	struct gw_task *task = NULL;
	int result;

	options.input_bytes = sizeof(order);
	options.output_bytes = sizeof(struct drill_good);
	result = gw_task_start(pool, function, &order, &options, &task, ret_error);
	if (result == 0)
		result = gw_task_wait(task, TASK_NS, &outcome, ret_error);
	if (result == 0)
		result = err_own(ret_error, -ETIMEDOUT, "'%s' does not end", function);
	else if (result == 1 && outcome.kind == GW_DONE)
		result = 0;
	else if (result == 1)
		result = err_own(ret_error, outcome.value < 0 ? outcome.value : -EIO,
				 "'%s' failed with %d%s%s", function, outcome.value,
				 outcome.message[0] ? ": " : "", outcome.message);
	gw_task_free(task);
	return result;
}

int drill_pool_open(struct drill *drill, enum drill_level level, struct gw_pool **ret_pool,
		    struct gw_error *ret_error)
{
	struct gw_pool_options options = GW_OPTIONS(struct gw_pool_options);
	int device = drill->options.device;
	int result;

	options.devices = &device;
	options.n_devices = 1;
	options.total_input_bytes = options.total_output_bytes = ARENA_BYTES;
	options.max_input_bytes = options.max_output_bytes = ARENA_BYTES;
	options.start_deadline_ns = START_DEADLINE_NS;
	options.max_start_failures = START_TRIES;
	options.standby = (uint32_t)levels[level].standby;
	options.connections = levels[level].connections;
	result = gw_pool_open(ret_pool, &options, ret_error);
	if (result == -ETIMEDOUT)
		return err_set(ret_error, GW_EDRIVER, GW_DOMAIN_OS, ETIMEDOUT,
			       "CUDA does not answer (%llu s, %u times)",
			       START_DEADLINE_NS / 1000000000U, START_TRIES);
	if (result < 0)
		return result;
	/* Else the first worker would die before it did anything, and the ward would hold back the next. */
	result = run_task(*ret_pool, "good", 0, ret_error);
	if (result < 0)
		gw_pool_close(*ret_pool);
	return result;
}

/* Takes in news, and sleeps a little where there is none: not all that a standby does is news. */
static int take_news(struct gw_pool *pool, struct gw_pool_stat *ret_stat,
		     struct gw_error *ret_error)
{
	struct pollfd fd = {.fd = gw_pool_fd(pool), .events = POLLIN};
	int result;

	(void)poll(&fd, 1, LOOK_AGAIN_MS);
	result = gw_pool_dispatch(pool, ret_error);
	if (result >= 0)
		(void)gw_pool_stat(pool, ret_stat);
	return result < 0 ? result : 0;
}

static void note_no_room(struct drill *drill, enum drill_level level)
{
	uint64_t free_bytes = drill_free(drill);

	if (free_bytes == GW_UNKNOWN)
		drill_note(drill,
			   "%s: the standby stayed primed, since the device has no room for a "
			   "second context",
			   drill_level_name(level));
	else
		drill_note(drill,
			   "%s: the standby stayed primed, since the device has no room for its "
			   "context (%" PRIu64 " MiB are free)",
			   drill_level_name(level), free_bytes >> 20);
}

int drill_pool_await_standby(struct drill *drill, struct gw_pool *pool, enum drill_level level,
			     enum gw_standby *ret_standby, struct gw_error *ret_error)
{
	enum gw_standby wanted = levels[level].standby;
	uint64_t deadline = now_ns() + AWAIT_NS;
	struct gw_pool_stat stat = {0};

	for (;;) {
		int result = take_news(pool, &stat, ret_error);

		if (result < 0)
			return result;
		*ret_standby = wanted;
		if (stat.workers_ready > 0 &&
		    (wanted == GW_STANDBY_COLD ||
		     (wanted == GW_STANDBY_PRIMED && stat.standbys_primed > 0) ||
		     (wanted == GW_STANDBY_HOT && stat.standbys_hot > 0)))
			return 0;
		*ret_standby = GW_STANDBY_PRIMED;
		if (stat.workers_ready > 0 && stat.standbys_no_room > 0) {
			note_no_room(drill, level);
			return 0;
		}
		if (stat.workers_failed > 0 || stat.standbys_failed > 0)
			return err_own(ret_error, GW_EPOOLFAILED,
				       "%s: no standby or no worker can be had: %s",
				       drill_level_name(level), stat.last_exit.text);
		if (now_ns() > deadline)
			return err_own(ret_error, -ETIMEDOUT, "%s: no standby after %llu s",
				       drill_level_name(level), AWAIT_NS / 1000000000U);
	}
}

bool drill_pool_await_recovery(struct gw_pool *pool, uint64_t first, int32_t pid,
			       struct gw_recovery *ret_recovery)
{
	uint64_t deadline = now_ns() + AWAIT_NS;
	struct gw_pool_stat stat;

	for (;;) {
		/* Another one can come before it: a standby's, say. */
		while (gw_pool_recovery(pool, first, ret_recovery) == 0 &&
		       ret_recovery->exit.pid != pid)
			first++;
		if (gw_pool_recovery(pool, first, ret_recovery) == 0 && ret_recovery->complete)
			return true;
		if (take_news(pool, &stat, NULL) < 0 || now_ns() > deadline)
			return false;
	}
}

int drill_pool_make_state(struct gw_pool *pool, uint64_t bytes, struct gw_error *ret_error)
{
	struct gw_error error;
	int result = run_task(pool, "make", bytes, &error);

	if (result < 0)
		(void)err_own(ret_error, result, "no state of %" PRIu64 " MiB (--state): %.180s",
			      bytes >> 20, error.msg);
	return result;
}
