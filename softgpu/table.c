/* SPDX-License-Identifier: MIT */
#include "table.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/fd.h"

#define MAGIC	0x31557047746f5347ULL
#define VERSION 3U

#define CLIENTS_AT  4096ULL
#define MEMORIES_AT (CLIENTS_AT + sizeof(struct table_client) * TABLE_CLIENTS)
#define HOLDS_AT    (MEMORIES_AT + sizeof(struct table_memory) * TABLE_MEMORIES)
#define TABLE_BYTES (HOLDS_AT + sizeof(struct table_hold) * TABLE_HOLDS)

_Static_assert(sizeof(struct table_header) <= CLIENTS_AT, "the header has one page");

static int corrupt(struct table *table, const char *what)
{
	(void)machine_trouble(table->machine,
			      "%s/state is damaged (%s): end its users and remove it",
			      table->machine->dir, what);
	return -EIO;
}

static int put(struct table *table, const void *data, size_t bytes, uint64_t at)
{
	ssize_t written = pwrite(table->fd, data, bytes, (off_t)at);

	if (written == (ssize_t)bytes)
		return 0;
	(void)machine_trouble(table->machine, "cannot write %s/state: %s", table->machine->dir,
			      written < 0 ? strerror(errno) : "no space");
	return -EIO;
}

static int get(struct table *table, void *data, size_t bytes, uint64_t at)
{
	ssize_t got = pread(table->fd, data, bytes, (off_t)at);

	return got == (ssize_t)bytes ? 0 : corrupt(table, "it is too short");
}

int table_put_header(struct table *table)
{
	return put(table, &table->header, sizeof(table->header), 0);
}

int table_put_client(struct table *table, uint32_t index)
{
	return put(table, &table->clients[index], sizeof(table->clients[index]),
		   CLIENTS_AT + sizeof(table->clients[index]) * index);
}

int table_put_memory(struct table *table, uint32_t index)
{
	return put(table, &table->memories[index], sizeof(table->memories[index]),
		   MEMORIES_AT + sizeof(table->memories[index]) * index);
}

int table_put_hold(struct table *table, uint32_t index)
{
	return put(table, &table->holds[index], sizeof(table->holds[index]),
		   HOLDS_AT + sizeof(table->holds[index]) * index);
}

bool table_range_is_locked(int fd, uint64_t start, uint64_t bytes)
{
	struct flock query = {
		.l_type = F_WRLCK,
		.l_whence = SEEK_SET,
		.l_start = (off_t)start,
		.l_len = (off_t)bytes,
	};

	return fcntl(fd, F_OFD_GETLK, &query) == 0 && query.l_type != F_UNLCK;
}

/* The file is empty: this is the first use of the machine. */
static int create(struct table *table)
{
	table->header = (struct table_header){.magic = MAGIC, .version = VERSION, .next_id = 1};
	if (getrandom(&table->header.id, sizeof(table->header.id), 0) < 0)
		table->header.id = now_ns();
	if (ftruncate(table->fd, (off_t)TABLE_BYTES) < 0) {
		(void)machine_trouble(table->machine, "cannot make %s/state: %s",
				      table->machine->dir, strerror(errno));
		return -EIO;
	}
	return table_put_header(table);
}

static int read_header(struct table *table)
{
	struct table_header *header = &table->header;

	if (get(table, header, sizeof(*header), 0) < 0)
		return -EIO;
	/* All zero: the maker was killed between setting the size and writing the header. */
	if (header->magic == 0 && header->version == 0 && header->next_id == 0 &&
	    header->clients == 0 && header->memories == 0 && header->holds == 0)
		return create(table);
	if (header->magic != MAGIC)
		return corrupt(table, "its magic number is wrong");
	if (header->version != VERSION)
		return corrupt(table, "it is of another version");
	if (header->clients > TABLE_CLIENTS || header->memories > TABLE_MEMORIES ||
	    header->holds > TABLE_HOLDS)
		return corrupt(table, "its counts are too high");
	return 0;
}

static int check_entries(struct table *table)
{
	for (uint32_t i = 0; i < table->header.clients; i++) {
		const struct table_client *client = &table->clients[i];

		if (client->used > 1 || client->devices > SOFT_DEVICES_MAX)
			return corrupt(table, "a client is not possible");
	}
	for (uint32_t i = 0; i < table->header.memories; i++) {
		const struct table_memory *memory = &table->memories[i];

		if (memory->used > 1 || memory->device >= SOFT_DEVICES_MAX ||
		    memory->bytes > TABLE_DATA_END || memory->offset > TABLE_DATA_END ||
		    (memory->offset && memory->offset < TABLE_DATA_START))
			return corrupt(table, "a memory is not possible");
	}
	for (uint32_t i = 0; i < table->header.holds; i++) {
		const struct table_hold *hold = &table->holds[i];

		if (hold->used > 1 || hold->client >= TABLE_CLIENTS ||
		    hold->memory >= TABLE_MEMORIES)
			return corrupt(table, "a hold is not possible");
	}
	return 0;
}

static int read_entries(struct table *table)
{
	const struct table_header *header = &table->header;

	if (get(table, table->clients, sizeof(table->clients[0]) * header->clients, CLIENTS_AT) ||
	    get(table, table->memories, sizeof(table->memories[0]) * header->memories,
		MEMORIES_AT) ||
	    get(table, table->holds, sizeof(table->holds[0]) * header->holds, HOLDS_AT))
		return -EIO;
	return check_entries(table);
}

static bool file_has_lock(struct table *table, int device, uint32_t client)
{
	cleanup_fd int fd = machine_device_file(table->machine, device, O_RDONLY);

	return fd >= 0 && table_range_is_locked(fd, client, 1);
}

/* Any one kind of descriptor keeps a client alive, as with the real driver. */
static bool client_lives(struct table *table, int control_fd, uint32_t index)
{
	if (table_range_is_locked(control_fd, index, 1))
		return true;
	for (int device = 0; device < (int)table->clients[index].devices; device++) {
		if (file_has_lock(table, device, index))
			return true;
	}
	return file_has_lock(table, -2, index);
}

static int remove_dead_clients(struct table *table, int control_fd)
{
	for (uint32_t i = 0; i < table->header.clients; i++) {
		if (!table->clients[i].used || client_lives(table, control_fd, i))
			continue;
		table->clients[i].used = 0;
		if (table_put_client(table, i) < 0)
			return -EIO;
	}
	return 0;
}

static bool hold_lives(const struct table *table, const struct table_hold *hold)
{
	const struct table_memory *memory = &table->memories[hold->memory];

	return hold->client < table->header.clients && table->clients[hold->client].used &&
	       hold->memory < table->header.memories && memory->used &&
	       memory->id == hold->memory_id;
}

/* Removes holds of the dead, and finds the oldest living hold on each memory. */
static int remove_dead_holds(struct table *table)
{
	for (uint32_t i = 0; i < table->header.memories; i++)
		table->charged[i] = TABLE_NONE;
	for (uint32_t i = 0; i < table->header.holds; i++) {
		struct table_hold *hold = &table->holds[i];

		if (!hold->used)
			continue;
		if (!hold_lives(table, hold)) {
			hold->used = 0;
			if (table_put_hold(table, i) < 0)
				return -EIO;
			continue;
		}
		if (table->charged[hold->memory] == TABLE_NONE ||
		    hold->order < table->oldest[hold->memory]) {
			table->charged[hold->memory] = hold->client;
			table->oldest[hold->memory] = hold->order;
		}
	}
	return 0;
}

static int remove_memory(struct table *table, int control_fd, uint32_t index)
{
	struct table_memory *memory = &table->memories[index];

	/* Where holes are not supported, the next user finds old data, as on a GPU. */
	if (memory->offset)
		(void)fallocate(control_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				(off_t)memory->offset, (off_t)memory->bytes);
	memory->used = 0;
	return table_put_memory(table, index);
}

static int remove_dead_memories(struct table *table, int control_fd)
{
	for (uint32_t i = 0; i < table->header.memories; i++) {
		const struct table_memory *memory = &table->memories[i];

		if (!memory->used || table->charged[i] != TABLE_NONE)
			continue;
		if (memory->offset &&
		    table_range_is_locked(control_fd, memory->offset, memory->bytes))
			continue;
		if (remove_memory(table, control_fd, i) < 0)
			return -EIO;
	}
	return 0;
}

/* Lowers the counts to the last entry that is used, so that later reads are short. */
static int shrink(struct table *table)
{
	struct table_header *header = &table->header;
	uint32_t before = header->clients + header->memories + header->holds;

	while (header->clients && !table->clients[header->clients - 1].used)
		header->clients--;
	while (header->memories && !table->memories[header->memories - 1].used)
		header->memories--;
	while (header->holds && !table->holds[header->holds - 1].used)
		header->holds--;
	if (header->clients + header->memories + header->holds == before)
		return 0;
	return table_put_header(table);
}

static int remove_dead(struct table *table, bool memories)
{
	cleanup_fd int control_fd = machine_device_file(table->machine, -1, O_RDWR);

	if (control_fd < 0)
		return corrupt(table, "dev/nvidiactl is missing");
	if (remove_dead_clients(table, control_fd) || remove_dead_holds(table) ||
	    (memories && remove_dead_memories(table, control_fd)))
		return -EIO;
	return shrink(table);
}

static int lock(struct table *table)
{
	struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

	table->fd = machine_file(table->machine, "state", O_RDWR);
	if (table->fd < 0) {
		(void)machine_trouble(table->machine, "cannot open %s/state: %s",
				      table->machine->dir, strerror(-table->fd));
		return -EIO;
	}
	while (fcntl(table->fd, F_OFD_SETLKW, &whole) < 0) {
		if (errno == EINTR)
			continue;
		(void)machine_trouble(table->machine, "cannot lock %s/state: %s",
				      table->machine->dir, strerror(errno));
		return -EIO;
	}
	return 0;
}

static int read_table(struct table *table)
{
	struct machine *machine = table->machine;
	off_t size = lseek(table->fd, 0, SEEK_END);

	if ((size == 0 ? create(table) : read_header(table)) < 0)
		return -EIO;
	if (machine->id && machine->id != table->header.id)
		return corrupt(table, "it was replaced while in use");
	machine->id = table->header.id;
	return read_entries(table);
}

static int open_table(struct table *table, struct machine *machine, bool memories)
{
	table->machine = machine;
	if (lock(table) < 0 || read_table(table) < 0 || remove_dead(table, memories) < 0) {
		fd_closep(&table->fd);
		return -EIO;
	}
	return 0;
}

int table_open(struct table *table, struct machine *machine)
{
	return open_table(table, machine, true);
}

int table_open_as_is(struct table *table, struct machine *machine)
{
	return open_table(table, machine, false);
}

/* The lock belongs to this open file description alone, so closing it unlocks. */
void table_close(struct table *table)
{
	fd_closep(&table->fd);
}
