/* SPDX-License-Identifier: MIT */
/*
 * The shared table: which processes use the emulated GPUs, and which device memory they hold.
 *
 *	client	a process that called cuInit. Alive while any open file description holds the lock on
 *		byte `index` of dev/nvidiactl, dev/nvidia-uvm or a dev/nvidiaN
 *	memory	a piece of device memory. Alive while a living client has a hold on it, or while any
 *		open file description holds a lock on its byte range of dev/nvidiactl (an exported one)
 *	hold	client X uses memory Y. The oldest living one is charged for it by NVML
 *
 * Runs in: every process that loads the emulated driver, between table_open() and table_close(), which
 * hold the lock of the file `state`. Nothing here waits for anything else.
 *
 * Invariant: locks are the truth and the table is only their legend. An entry whose locks are gone is
 * dead and is removed by whoever looks next, so a process may be killed between any two writes:
 *
 *	writer			killed		reader
 *	lock byte 7
 *	write client 7		here		the lock went with the process: client 7 is removed
 *	write memory 3		here		no hold by a living client: memory 3 is removed
 *	write hold 9
 *
 * The file is read and written with pread() and pwrite(), never mapped: a file that is cut short by
 * somebody is an error then, and not a SIGBUS. Read next: machine.h, client.h.
 */
#ifndef SOFTGPU_TABLE_H
#define SOFTGPU_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "machine.h"

#define TABLE_CLIENTS  1024
#define TABLE_MEMORIES 8192
#define TABLE_HOLDS    16384

/* Device memory lives in dev/nvidiactl from this offset on; below it are the bytes for client locks. */
#define TABLE_DATA_START (1ULL << 30)
#define TABLE_DATA_END	 (1ULL << 43)
#define TABLE_DATA_ALIGN (1ULL << 16)

#define TABLE_NONE UINT32_MAX

struct table_header {
	uint64_t magic;
	uint32_t version;
	uint32_t clients; /* entries from here on were never used */
	uint32_t memories;
	uint32_t holds;
	uint64_t id; /* of the machine */
	uint64_t next_id;
	uint64_t kmsg_sequence;
	uint64_t lost_mask; /* devices whose loss was logged */
	uint64_t stall_until_ns[SOFT_DEVICES_MAX];
};

struct table_client {
	uint32_t used;
	int32_t pid;	   /* in the outermost pid namespace that the process could see */
	int32_t inner_pid; /* in its own */
	uint32_t devices;  /* whose files it holds */
	uint64_t pid_namespace;
	char name[16];
	uint64_t contexts;     /* bit N: it had a context on device N */
	uint64_t pinned_bytes; /* host memory that it has registered or allocated through CUDA */
	uint64_t connections;  /* CUDA_DEVICE_MAX_CONNECTIONS when it called cuInit */
};

enum table_kind {
	TABLE_OVERHEAD = 1, /* of a context, or of cuInit: no data */
	TABLE_PLAIN = 2,    /* cuMemAlloc */
	TABLE_HANDLE = 3,   /* cuMemCreate */
};

struct table_memory {
	uint32_t used;
	uint32_t device;
	uint32_t kind; /* enum table_kind */
	uint32_t reserved;
	uint64_t bytes;
	uint64_t offset; /* in dev/nvidiactl; 0: no data */
	uint64_t id;	 /* never used twice */
};

struct table_hold {
	uint32_t used;
	uint32_t client;
	uint64_t memory_id;
	uint32_t memory;
	uint32_t reserved;
	uint64_t order; /* older ones are charged first */
};

struct table {
	struct machine *machine;
	int fd;
	struct table_header header;
	struct table_client clients[TABLE_CLIENTS];
	struct table_memory memories[TABLE_MEMORIES];
	struct table_hold holds[TABLE_HOLDS];
	/* Found out by table_open(): who is charged for each memory, or TABLE_NONE. */
	uint32_t charged[TABLE_MEMORIES];
	/* Room to work in: the stack belongs to the program's threads, and may be small. */
	uint64_t oldest[TABLE_MEMORIES];
	const struct table_memory *sorted[TABLE_MEMORIES];
};

/*
 * Locks the table, reads it and removes what is dead. May wait for another process's transaction.
 * Returns 0, or -EIO after the trouble was said; only after 0 call table_close().
 */
int table_open(struct table *table, struct machine *machine);
/*
 * The same for a transaction that needs no room: memory that nobody holds any more can still be there. To find
 * it, each piece that only a descriptor keeps is looked up among the locks of all of them, which with thousands
 * of pieces takes milliseconds.
 */
int table_open_as_is(struct table *table, struct machine *machine);
void table_close(struct table *table);

/* Writes one changed entry, or the header, to the file. Return 0 or -EIO (said). */
int table_put_header(struct table *table);
int table_put_client(struct table *table, uint32_t index);
int table_put_memory(struct table *table, uint32_t index);
int table_put_hold(struct table *table, uint32_t index);

/* Bytes in use on DEVICE, the reserved ones not counted; of CLIENT alone unless TABLE_NONE. */
uint64_t table_used_bytes(const struct table *table, uint32_t device, uint32_t client);

/* Whether any open file description holds a lock in FD's file from START on. */
bool table_range_is_locked(int fd, uint64_t start, uint64_t bytes);

/* Host memory that all living processes have pinned. */
uint64_t table_pinned_bytes(const struct table *table);

/* A free entry, counted into the header. Returns its index or TABLE_NONE when the table is full. */
uint32_t table_new_client(struct table *table);

/*
 * Makes memory that CLIENT holds. KIND says whether it has data. Returns 0, -ENOMEM when the device or
 * the table is full, -EIO.
 */
int table_new_memory(struct table *table, uint32_t client, uint32_t device, enum table_kind kind,
		     uint64_t bytes, uint32_t *ret_memory);

/* CLIENT holds MEMORY too. Returns 0, -ENOMEM, -EIO. */
int table_add_hold(struct table *table, uint32_t client, uint32_t memory);

/* CLIENT drops one hold on the memory of this index and id. Its data goes with the last hold. */
int table_drop_hold(struct table *table, uint32_t client, uint32_t memory, uint64_t id);

#endif
