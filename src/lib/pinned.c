/* SPDX-License-Identifier: MIT */
#include "lib/pinned.h"

#include <errno.h>

#include "common/err.h"
#include "lib/arena.h"
#include "linux/meminfo.h"

#define MIB UINT64_C(1048576)

/* Pinning takes 43 ms per GiB on an H200's host; the kernel takes up to 2 s before it has found and cleared
 * that many pages on a machine that is busy. */
#define START_NS_PER_MIB UINT64_C(2000000)

/* Output rooms at a time: one more than there are processes, since a worker starts beside the end of the one
 * before it. */
static uint64_t count_rooms(const struct gw_pool_options *o)
{
	uint64_t per_device = o->workers_per_device;

	if (o->standby == GW_STANDBY_HOT)
		per_device += o->standbys_per_device;
	return o->n_devices * per_device + 1;
}

static uint64_t add(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t multiply(uint64_t a, uint64_t b)
{
	return b != 0 && a > UINT64_MAX / b ? UINT64_MAX : a * b;
}

int pinned_check(const struct gw_pool_options *options, struct gw_error *ret_error)
{
	uint64_t input = multiply(options->total_input_bytes, ARENA_FACTOR);
	uint64_t output = multiply(options->total_output_bytes, ARENA_FACTOR);
	uint64_t rooms = count_rooms(options);
	uint64_t wanted = add(input, multiply(output, rooms));
	uint64_t available;

	if (!(options->flags & GW_POOL_PINNED))
		return 0;
	if (options->n_devices == 0)
		return err_own(ret_error, -EINVAL,
			       "GW_POOL_PINNED is for copies to a device, and the pool has none: "
			       "leave the flag out, or name devices");
	if (meminfo_available("", &available) < 0 || wanted <= available)
		return 0;
	return err_own(ret_error, -ENOMEM,
		       "GW_POOL_PINNED would take %llu MiB at once (%llu for inputs, %llu rooms of "
		       "%llu for outputs) and %llu can be had: lower total_input_bytes and "
		       "total_output_bytes, of which it takes twice as much",
		       (unsigned long long)(wanted / MIB), (unsigned long long)(input / MIB),
		       (unsigned long long)rooms, (unsigned long long)(output / MIB),
		       (unsigned long long)(available / MIB));
}

uint64_t pinned_start_deadline_ns(const struct gw_pool_options *options)
{
	uint64_t mib = (options->total_input_bytes + options->total_output_bytes) / MIB + 1;

	if (!(options->flags & GW_POOL_PINNED))
		return options->start_deadline_ns;
	return add(options->start_deadline_ns, multiply(mib * ARENA_FACTOR, START_NS_PER_MIB));
}
