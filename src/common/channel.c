/* SPDX-License-Identifier: MIT */
#include "common/channel.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/fd.h"
#include "common/futex.h"

/* Outputs start on a page of their own, so that they can be pinned and given back to the system. */
#define OUTPUT_OFFSET 65536U

_Static_assert(sizeof(struct channel) <= OUTPUT_OFFSET, "the output room begins behind the ring");

static void write_header(struct channel *channel, uint64_t output_bytes)
{
	channel->magic = CHANNEL_MAGIC;
	channel->layout = CHANNEL_LAYOUT;
	channel->bytes = OUTPUT_OFFSET + output_bytes;
	channel->output_offset = OUTPUT_OFFSET;
	channel->output_bytes = output_bytes;
}

int channel_new(uint64_t output_bytes)
{
	cleanup_fd int fd = -1;
	struct channel *channel;

	if (output_bytes > INT64_MAX - OUTPUT_OFFSET)
		return -EFBIG;
	fd = fd_new_memory("gpuward-channel", OUTPUT_OFFSET + output_bytes);
	if (fd < 0)
		return fd;
	channel = mmap(NULL, OUTPUT_OFFSET, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (channel == MAP_FAILED)
		return -errno;
	write_header(channel, output_bytes);
	(void)munmap(channel, OUTPUT_OFFSET);
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		return -errno;
	return fd_steal(&fd);
}

/* Reads the header once: the other side may change it while it is looked at. */
static int header_output_bytes(const struct channel *channel, uint64_t bytes, uint64_t *ret_output)
{
	const volatile struct channel *shared = channel;
	uint64_t output = shared->output_bytes;

	if (shared->magic != CHANNEL_MAGIC || shared->layout != CHANNEL_LAYOUT)
		return GW_EPROTOCOL;
	if (shared->output_offset != OUTPUT_OFFSET || output != bytes - OUTPUT_OFFSET)
		return GW_EPROTOCOL;
	*ret_output = output;
	return 0;
}

int channel_map(struct channel_map *ret_map, int fd, uint64_t output_bytes)
{
	uint64_t output = output_bytes;
	struct stat status;
	uint64_t bytes;
	void *address;

	if (fstat(fd, &status) < 0)
		return -errno;
	bytes = (uint64_t)status.st_size;
	if (bytes < OUTPUT_OFFSET || (output != 0 && bytes != OUTPUT_OFFSET + output))
		return GW_EPROTOCOL;
	address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (address == MAP_FAILED)
		return -errno;
	if (output == 0 && header_output_bytes(address, bytes, &output) < 0) {
		(void)munmap(address, bytes);
		return GW_EPROTOCOL;
	}
	*ret_map = (struct channel_map){.shared = address,
					.output = (uint8_t *)address + OUTPUT_OFFSET,
					.output_bytes = bytes - OUTPUT_OFFSET,
					.bytes = bytes};
	return 0;
}

void channel_unmap(struct channel_map *map)
{
	if (map->shared)
		(void)munmap(map->shared, map->bytes);
	*map = (struct channel_map){0};
}

static void copy_entry(struct channel_entry *to, const struct channel_entry *from)
{
	to->function = from->function;
	to->task = from->task;
	to->input_offset = from->input_offset;
	to->input_bytes = from->input_bytes;
	to->output_offset = from->output_offset;
	to->output_capacity_bytes = from->output_capacity_bytes;
	to->attempt = from->attempt;
}

void channel_push(struct channel *channel, uint32_t number, const struct channel_entry *entry)
{
	struct channel_entry *place = &channel->entries[number % CHANNEL_DEPTH];

	copy_entry(place, entry);
	atomic_store_explicit(&place->state, CHANNEL_QUEUED, memory_order_relaxed);
	/* Sequentially consistent: see the drawing in channel.h. */
	atomic_store(&channel->submitted, number + 1);
	channel_wake_worker(channel);
}

static bool move_state(struct channel_entry *entry, uint32_t from, uint32_t to)
{
	return atomic_compare_exchange_strong(&entry->state, &from, to);
}

bool channel_withdraw(struct channel *channel, uint32_t number)
{
	return move_state(&channel->entries[number % CHANNEL_DEPTH], CHANNEL_QUEUED,
			  CHANNEL_WITHDRAWN);
}

bool channel_claim(struct channel *channel, uint32_t number, struct channel_entry *ret_entry)
{
	struct channel_entry *entry = &channel->entries[number % CHANNEL_DEPTH];

	if (!move_state(entry, CHANNEL_QUEUED, CHANNEL_CLAIMED))
		return false;
	copy_entry(ret_entry, entry);
	return true;
}

void channel_complete(struct channel *channel, uint32_t number, int event_fd)
{
	uint32_t waiting;

	/* Before `completed`: a start that the ward sees beside a new head is that head's own. */
	atomic_store_explicit(&channel->running_since_ns, 0, memory_order_relaxed);
	atomic_store(&channel->completed, number + 1);
	if (!atomic_load(&channel->host_waiting))
		return;
	waiting = atomic_exchange(&channel->host_waiting, 0);
	if (waiting & CHANNEL_HOST_SLEEPS)
		futex_wake_all(&channel->host_waiting);
	if (waiting & CHANNEL_HOST_POLLS) {
		uint64_t one = 1;

		/* It can only fail when the counter is full, and then the host is awake anyway. */
		if (write(event_fd, &one, sizeof(one)) < 0)
			return;
	}
}

uint32_t channel_announce_host(struct channel *channel)
{
	return atomic_fetch_or(&channel->host_waiting, CHANNEL_HOST_SLEEPS) | CHANNEL_HOST_SLEEPS;
}

void channel_wake_worker(struct channel *channel)
{
	/* The load first: an exchange would take the cache line away from a worker that is busy. */
	if (atomic_load(&channel->worker_waiting) && atomic_exchange(&channel->worker_waiting, 0))
		futex_wake_all(&channel->worker_waiting);
}

static bool entry_or_stop(struct channel *channel, uint32_t number, const atomic_bool *stop)
{
	return atomic_load(&channel->submitted) != number || atomic_load(stop);
}

static bool spin_for_entry(struct channel *channel, uint32_t number, const atomic_bool *stop,
			   uint64_t spin_ns)
{
	uint64_t end;

	if (entry_or_stop(channel, number, stop))
		return true;
	if (spin_ns == 0)
		return false;
	end = now_ns() + spin_ns;
	do {
		for (int i = 0; i < 64; i++) {
			if (entry_or_stop(channel, number, stop))
				return true;
			cpu_pause();
		}
	} while (now_ns() < end);
	return false;
}

void channel_wait_entry(struct channel *channel, uint32_t number, const atomic_bool *stop,
			struct spin *spin)
{
	bool paid = spin_for_entry(channel, number, stop, spin_budget(spin));

	spin_learn(spin, paid);
	if (paid)
		return;
	for (;;) {
		/* Again each time: who wakes takes the mark away. */
		atomic_store(&channel->worker_waiting, 1);
		if (entry_or_stop(channel, number, stop))
			break;
		(void)futex_wait(&channel->worker_waiting, 1, GW_FOREVER);
	}
	atomic_store_explicit(&channel->worker_waiting, 0, memory_order_relaxed);
}
