/* SPDX-License-Identifier: MIT */
/*
 * The options of a pool: what a 0 stands for, and what cannot be.
 *
 * Runs in: host, in gw_pool_open(), before anything is made. Pure, but for one look at how many processors
 * this thread may use. Read next: pool.c.
 */
#include "lib/pool.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

#include "common/err.h"
#include "lib/pinned.h"

#define GIB UINT64_C(1073741824)
#define MS  UINT64_C(1000000)

/* A wake-up of an idle processor costs this much and more; spinning that long at most doubles a wait. */
#define DEFAULT_SPIN_NS 20000U

#define DETECT_ALL	 (GW_DETECT_KERNEL_LOG | GW_DETECT_NVML | GW_DETECT_ERROR_LOG)
#define HEARTBEAT_MIN_NS (10 * MS)

/* More hardware queues the driver does not make. */
#define CONNECTIONS_MAX 32U

/* Two sides that spin on one processor keep it from each other. */
static uint32_t default_spin_ns(void)
{
	cpu_set_t processors;

	if (sched_getaffinity(0, sizeof(processors), &processors) < 0)
		return 0;
	return CPU_COUNT(&processors) > 1 ? DEFAULT_SPIN_NS : 0;
}

/* Sparse memory costs nothing; pinned memory is for one largest task, or as many smaller ones. */
static uint64_t default_total(const struct gw_pool_options *o, uint64_t max_bytes)
{
	return o->flags & GW_POOL_PINNED ? max_bytes : 4 * GIB;
}

void options_fill(struct gw_pool_options *options)
{
	struct gw_pool_options *o = options;

	o->workers_per_device = o->workers_per_device ? o->workers_per_device : 1;
	o->max_input_bytes = o->max_input_bytes ? o->max_input_bytes : GIB;
	o->max_output_bytes = o->max_output_bytes ? o->max_output_bytes : GIB;
	if (o->total_input_bytes == 0)
		o->total_input_bytes = default_total(o, o->max_input_bytes);
	if (o->total_output_bytes == 0)
		o->total_output_bytes = default_total(o, o->max_output_bytes);
	o->queue_depth = o->queue_depth ? o->queue_depth : 64;
	o->max_attempts = o->max_attempts ? o->max_attempts : 3;
	o->start_deadline_ns = o->start_deadline_ns ? o->start_deadline_ns : 60000 * MS;
	o->stop_deadline_ns = o->stop_deadline_ns ? o->stop_deadline_ns : 5000 * MS;
	o->restart_min_ns = o->restart_min_ns ? o->restart_min_ns : 10 * MS;
	o->restart_max_ns = o->restart_max_ns ? o->restart_max_ns : 5000 * MS;
	o->max_start_failures = o->max_start_failures ? o->max_start_failures : 5;
	o->standbys_per_device = o->standbys_per_device ? o->standbys_per_device : 1;
	o->detect = o->detect ? o->detect : DETECT_ALL;
	o->max_quick_deaths = o->max_quick_deaths ? o->max_quick_deaths : 32;
	if (o->spin_ns == 0)
		o->spin_ns = default_spin_ns();
	else if (o->spin_ns == GW_NO_SPIN)
		o->spin_ns = 0;
}

static int check_devices(const struct gw_pool_options *o, struct gw_error *ret_error)
{
	if (o->n_devices > 0 && !o->devices)
		return err_own(ret_error, -EINVAL, "n_devices is %u but devices is NULL",
			       o->n_devices);
	for (uint32_t i = 0; i < o->n_devices; i++) {
		if (o->devices[i] < 0)
			return err_own(ret_error, -EINVAL, "device number %d is negative",
				       o->devices[i]);
		for (uint32_t j = 0; j < i; j++) {
			if (o->devices[j] == o->devices[i])
				return err_own(ret_error, -EINVAL,
					       "device %d is named twice; use workers_per_device",
					       o->devices[i]);
		}
	}
	return 0;
}

/* A name becomes a part of a path, and is shown to people. */
static int check_state_name(const char *name, struct gw_error *ret_error)
{
	size_t bytes = name ? strnlen(name, GW_NAME_MAX) : 1;

	if (bytes == 0 || bytes == GW_NAME_MAX)
		return err_own(ret_error, -EINVAL, "state_name has %s characters",
			       bytes ? "more than 63" : "no");
	for (size_t i = 0; name && i < bytes; i++) {
		if (name[i] <= ' ' || name[i] > '~' || name[i] == '/')
			return err_own(ret_error, -EINVAL,
				       "character %zu of state_name is a space, a '/' or no "
				       "printable ASCII",
				       i + 1);
	}
	return 0;
}

static int check_standbys(const struct gw_pool_options *o, struct gw_error *ret_error)
{
	uint64_t standbys = (uint64_t)(o->n_devices ? o->n_devices : 1) * o->standbys_per_device;

	if (o->standby > GW_STANDBY_HOT)
		return err_own(ret_error, -EINVAL, "standby %u is none of enum gw_standby",
			       o->standby);
	if (o->standby != GW_STANDBY_COLD && standbys > GW_WORKERS_MAX)
		return err_own(ret_error, -EINVAL, "%llu standbys are more than GW_WORKERS_MAX, %d",
			       (unsigned long long)standbys, GW_WORKERS_MAX);
	if (o->detect > (DETECT_ALL | GW_DETECT_RESULT_ONLY))
		return err_own(ret_error, -EINVAL, "detect 0x%x has bits of no enum gw_detect",
			       o->detect);
	if (o->flags > (GW_POOL_PINNED | GW_POOL_SLIM_STANDBYS))
		return err_own(ret_error, -EINVAL, "flags 0x%x has bits of no enum gw_pool_flags",
			       o->flags);
	if (o->connections > CONNECTIONS_MAX)
		return err_own(ret_error, -EINVAL, "connections %u is over %u", o->connections,
			       CONNECTIONS_MAX);
	if (o->heartbeat_ns > 0 && o->heartbeat_ns < HEARTBEAT_MIN_NS)
		return err_own(ret_error, -EINVAL, "heartbeat_ns %llu is under 10 ms",
			       (unsigned long long)o->heartbeat_ns);
	return check_state_name(o->state_name, ret_error);
}

int options_check(const struct gw_pool_options *o, struct gw_error *ret_error)
{
	uint64_t workers = (uint64_t)(o->n_devices ? o->n_devices : 1) * o->workers_per_device;

	if (o->n_devices > GW_WORKERS_MAX || workers > GW_WORKERS_MAX)
		return err_own(ret_error, -EINVAL, "%llu workers are more than GW_WORKERS_MAX, %d",
			       (unsigned long long)workers, GW_WORKERS_MAX);
	if (o->queue_depth > CHANNEL_DEPTH)
		return err_own(ret_error, -EINVAL, "queue_depth %u is over %u", o->queue_depth,
			       CHANNEL_DEPTH);
	if (o->total_input_bytes > INT64_MAX / 4 || o->total_output_bytes > INT64_MAX / 4)
		return err_own(ret_error, -EINVAL,
			       "total_input_bytes or total_output_bytes is "
			       "larger than any memory");
	if (o->command && !o->command[0])
		return err_own(ret_error, -EINVAL, "command has no program");
	if (check_standbys(o, ret_error) < 0 || check_devices(o, ret_error) < 0)
		return -EINVAL;
	return pinned_check(o, ret_error);
}
