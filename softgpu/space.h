/* SPDX-License-Identifier: MIT */
/*
 * The GPU's view of memory in one process: which device addresses are mapped, to what, and how.
 *
 * Runs in: a process that uses CUDA; space_span() and what follows it in a stream's thread without the
 * lock, the rest with it. Device addresses are numbers of their own, not addresses of the process: only
 * here are they turned into pointers, after a check, so a bad address is found and never a SIGSEGV.
 * Invariant: ranges do not overlap and are sorted. A range of cuMemMap can be removed while work is under
 * way, which then faults; its host memory stays until that work has ended. Other ranges wait for it.
 * Read next: memory.h, fault.h.
 */
#ifndef SOFTGPU_SPACE_H
#define SOFTGPU_SPACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fault.h"

struct cuda_context;

enum range_kind {
	RANGE_PLAIN = 1,  /* cuMemAlloc */
	RANGE_IPC = 2,	  /* cuIpcOpenMemHandle */
	RANGE_HANDLE = 3, /* cuMemMap */
	RANGE_HOST = 4,	  /* cuMemHostRegister, cuMemAllocHost: address and pointer are the same */
};

struct range {
	uint64_t address;
	uint64_t bytes;
	uint8_t *host;
	uint64_t offset; /* of the data in dev/nvidiactl */
	enum range_kind kind;
	unsigned int access; /* enum cuda_access */
	uint32_t memory;     /* RANGE_PLAIN, RANGE_IPC: in the table */
	uint64_t memory_id;
	uint64_t handle;    /* RANGE_HANDLE */
	unsigned int opens; /* RANGE_IPC: opened once more than this */
	bool owned;	    /* RANGE_HOST: from cuMemAllocHost */
	struct cuda_context *context;
};

/* Where space_new_address() takes its addresses from. */
#define SPACE_FIRST 0x200000000000ULL
#define SPACE_END   0x400000000000ULL

/* Addresses nobody has used yet, aligned to 2 MiB, or to ALIGNMENT (a power of two) if that is more. */
uint64_t space_new_address(uint64_t bytes, uint64_t alignment);

/* Whether anything is mapped between ADDRESS and ADDRESS + BYTES. */
bool space_is_free(uint64_t address, uint64_t bytes);

/* Whether all of it is mapped with at least ACCESS (enum cuda_access). */
bool space_covers(uint64_t address, uint64_t bytes, unsigned int access);

/* Adds a copy of RANGE, which must be free. Returns a CUresult. */
int space_add(const struct range *range);

/* The range that begins at or contains ADDRESS, or NULL. Valid until the next space_add/remove. */
struct range *space_at(uint64_t address);

/* The range of number I, from the lowest address; NULL behind the last. */
struct range *space_number(size_t i);

/* Forgets the range that begins at ADDRESS. */
void space_remove(uint64_t address);

/*
 * The host's view of device memory from ADDRESS on: RET_HOST and how many bytes of it in RET_BYTES, at
 * most BYTES. Returns FAULT_NONE, FAULT_ADDRESS or FAULT_READ_ONLY.
 */
enum fault space_span(uint64_t address, uint64_t bytes, bool write, uint8_t **ret_host,
		      uint64_t *ret_bytes);

enum fault space_write(uint64_t to, const void *from, uint64_t bytes);
enum fault space_read(void *to, uint64_t from, uint64_t bytes);
enum fault space_copy(uint64_t to, uint64_t from, uint64_t bytes);
enum fault space_set(uint64_t to, uint32_t pattern, uint32_t pattern_bytes, uint64_t bytes);

#endif
