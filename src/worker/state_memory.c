/* SPDX-License-Identifier: MIT */
#include "worker/state_memory.h"

#include <errno.h>
#include <string.h>

#include "common/err.h"
#include "common/fd.h"

/* The ward shows a worker one device. */
#define DEVICE 0

static const struct cuda_allocation exportable = {
	.type = CUDA_MEMORY_PINNED,
	.handle_types = CUDA_HANDLE_POSIX_FD,
	.location = {.type = CUDA_LOCATION_DEVICE, .id = DEVICE},
};

/* Returns 0 for success, or the code of cuda_error(). */
static int check(int result, const char *call, struct gw_error *ret_error)
{
	return result == CUDA_SUCCESS ? 0 : cuda_error(ret_error, call, result);
}

int state_memory_round(struct state_memory *memory, const char *name, uint64_t bytes,
		       uint64_t *ret_bytes, struct gw_error *ret_error)
{
	size_t granularity = 0;
	int result = check(memory->door->cuMemGetAllocationGranularity(&granularity, &exportable,
								       CUDA_GRANULARITY_MINIMUM),
			   "cuMemGetAllocationGranularity", ret_error);

	if (result < 0)
		return result;
	if (granularity == 0 || STATE_GRANULE % granularity != 0)
		return err_own(ret_error, GW_EDRIVER,
			       "the driver gives device memory in units of %zu bytes, and "
			       "surviving state needs a divisor of 2 MiB",
			       granularity);
	if (bytes == 0 || bytes > STATE_SPACE_BYTES / 2)
		return err_own(ret_error, -EINVAL,
			       "state '%s' can have 1 byte to 512 GiB, not %llu bytes", name,
			       (unsigned long long)bytes);
	*ret_bytes = (bytes + STATE_GRANULE - 1) / STATE_GRANULE * STATE_GRANULE;
	return 0;
}

bool state_memory_has_mps(const struct state_memory *memory)
{
	int value = 0;

	/* A driver that does not know the attribute (before 12.4) has no word for it. */
	return memory->door->cuDeviceGetAttribute(&value, CUDA_ATTRIBUTE_MPS_ENABLED, DEVICE) ==
		       CUDA_SUCCESS &&
	       value != 0;
}

/* ---- addresses ---- */

/*
 * The wish for an address is only a wish: the driver gives another one where that is taken. Where it has not
 * as much, less will do, as long as pieces lie in it. Returns the CUresult of the last try.
 */
static int reserve_at_base(struct state_memory *memory)
{
	const struct cuda_door *door = memory->door;
	int result = CUDA_SUCCESS;

	for (uint64_t bytes = STATE_SPACE_BYTES; bytes >= STATE_SPACE_LEAST; bytes /= 2) {
		uint64_t address = 0;

		result = door->cuMemAddressReserve(&address, bytes, STATE_GRANULE, STATE_BASE, 0);
		if (result != CUDA_SUCCESS)
			continue;
		if (address == STATE_BASE) {
			memory->bytes = bytes;
			break;
		}
		(void)door->cuMemAddressFree(address, bytes);
	}
	return result;
}

/* Makes sure that LOCAL's address is in this process's gift. */
static int reserve(struct state_memory *memory, const struct state_local *local,
		   struct gw_error *ret_error)
{
	uint64_t end = local->entry.address - STATE_BASE + local->entry.copy_bytes;
	int result = memory->bytes > 0 ? CUDA_SUCCESS : reserve_at_base(memory);

	if (result != CUDA_SUCCESS)
		return check(result, "cuMemAddressReserve", ret_error);
	if (end <= memory->bytes)
		return 0;
	return err_own(ret_error, -EADDRINUSE,
		       "state '%.20s' lies at 0x%llx to 0x%llx in every worker, and something else "
		       "has a part of that in this one, or its driver gives no range so large: map "
		       "state before anything else",
		       local->entry.name, (unsigned long long)local->entry.address,
		       (unsigned long long)(STATE_BASE + end));
}

static int reserve_shadow(struct state_memory *memory, struct gw_error *ret_error)
{
	if (memory->shadow != 0)
		return 0;
	return check(memory->door->cuMemAddressReserve(&memory->shadow, memory->bytes,
						       STATE_GRANULE, 0, 0),
		     "cuMemAddressReserve", ret_error);
}

static uint64_t shadow_of(const struct state_memory *memory, const struct state_local *local)
{
	return memory->shadow + (local->entry.address - STATE_BASE);
}

/* ---- mapping ---- */

static int set_access(struct state_memory *memory, uint64_t address, uint64_t bytes,
		      uint32_t access, struct gw_error *ret_error)
{
	const struct cuda_access_range range = {.location = exportable.location, .flags = access};

	return check(memory->door->cuMemSetAccess(address, bytes, &range, 1), "cuMemSetAccess",
		     ret_error);
}

static int map(struct state_memory *memory, uint64_t address, uint64_t bytes, uint64_t handle,
	       uint32_t access, struct gw_error *ret_error)
{
	int result =
		check(memory->door->cuMemMap(address, bytes, 0, handle, 0), "cuMemMap", ret_error);

	if (result < 0)
		return result;
	result = set_access(memory, address, bytes, access, ret_error);
	if (result < 0)
		(void)memory->door->cuMemUnmap(address, bytes);
	return result;
}

static void release_handle(struct state_memory *memory, uint64_t *handle)
{
	if (*handle != 0)
		(void)memory->door->cuMemRelease(*handle);
	*handle = 0;
}

int state_memory_shadow(struct state_memory *memory, struct state_local *local,
			struct gw_error *ret_error)
{
	int result = 0;

	/* It still is where the driver did not unmap it. */
	if (local->shadowed)
		return 0;
	result = reserve_shadow(memory, ret_error);
	if (result == 0)
		result = map(memory, shadow_of(memory, local), local->entry.copy_bytes,
			     local->committed, CUDA_ACCESS_READWRITE, ret_error);
	local->shadowed = result == 0;
	return result;
}

void state_memory_unshadow(struct state_memory *memory, struct state_local *local)
{
	if (local->shadowed)
		local->shadowed = memory->door->cuMemUnmap(shadow_of(memory, local),
							   local->entry.copy_bytes) != CUDA_SUCCESS;
}

int state_memory_detach(struct state_memory *memory, struct state_local *local,
			struct gw_error *ret_error)
{
	int result = check(memory->door->cuMemUnmap(local->entry.address, local->entry.copy_bytes),
			   "cuMemUnmap", ret_error);

	if (result < 0)
		return result;
	state_memory_unshadow(memory, local);
	release_handle(memory, &local->committed);
	return 0;
}

int state_memory_protect(struct state_memory *memory, const struct state_local *local,
			 struct gw_error *ret_error)
{
	return set_access(memory, local->entry.address, local->entry.copy_bytes, CUDA_ACCESS_READ,
			  ret_error);
}

/* ---- making ---- */

static int new_copy(struct state_memory *memory, uint64_t bytes, uint64_t *ret_handle, int *ret_fd,
		    struct gw_error *ret_error)
{
	int result = check(memory->door->cuMemCreate(ret_handle, bytes, &exportable, 0),
			   "cuMemCreate", ret_error);

	if (result < 0)
		return result;
	return check(memory->door->cuMemExportToShareableHandle(ret_fd, *ret_handle,
								CUDA_HANDLE_POSIX_FD, 0),
		     "cuMemExportToShareableHandle", ret_error);
}

/* The driver does not promise that new memory holds nothing of its last owner's. */
static int clear(struct state_memory *memory, struct state_local *local, struct gw_error *ret_error)
{
	uint64_t bytes = local->entry.copy_bytes;
	int result = check(memory->door->cuMemsetD8_v2(local->entry.address, 0, bytes),
			   "cuMemsetD8", ret_error);

	if (result == 0 && local->entry.kind == GW_STATE_MUTABLE)
		result = state_memory_shadow(memory, local, ret_error);
	if (result == 0 && local->shadowed)
		result = check(memory->door->cuMemsetD8_v2(shadow_of(memory, local), 0, bytes),
			       "cuMemsetD8", ret_error);
	if (result == 0)
		result = state_memory_wait(memory, ret_error);
	/* What was queued before the failure would fault on what is unmapped. */
	if (result < 0)
		(void)state_memory_wait(memory, NULL);
	state_memory_unshadow(memory, local);
	return result;
}

int state_memory_make(struct state_memory *memory, struct state_local *local, int fds[2],
		      struct gw_error *ret_error)
{
	uint64_t bytes = local->entry.copy_bytes;
	uint64_t working = 0;
	bool mapped = false;
	int result = reserve(memory, local, ret_error);

	if (result == 0)
		result = new_copy(memory, bytes, &working, &fds[0], ret_error);
	if (result == 0 && local->entry.kind == GW_STATE_MUTABLE)
		result = new_copy(memory, bytes, &local->committed, &fds[1], ret_error);
	if (result == 0) {
		result = map(memory, local->entry.address, bytes, working, CUDA_ACCESS_READWRITE,
			     ret_error);
		mapped = result == 0;
	}
	if (result == 0)
		result = clear(memory, local, ret_error);
	if (result < 0) {
		if (mapped)
			(void)memory->door->cuMemUnmap(local->entry.address, bytes);
		release_handle(memory, &local->committed);
		fd_closep(&fds[0]);
		fd_closep(&fds[1]);
	}
	/* The mapping keeps the memory from here on. */
	release_handle(memory, &working);
	return result;
}

/* ---- attaching ---- */

static int import(struct state_memory *memory, const struct state_local *local, int fd,
		  uint64_t *ret_handle, struct gw_error *ret_error)
{
	int result = memory->door->cuMemImportFromShareableHandle(ret_handle, (void *)(intptr_t)fd,
								  CUDA_HANDLE_POSIX_FD);
	const char *name = gw_cuda_name(result);

	if (result == CUDA_SUCCESS)
		return 0;
	return err_set(ret_error, GW_EDRIVER, GW_DOMAIN_CUDA, result,
		       "what the ward holds as state '%s' cannot be imported: %s (%d)",
		       local->entry.name, name ? name : "unknown result", result);
}

int state_memory_attach(struct state_memory *memory, struct state_local *local, const int *fds,
			struct gw_error *ret_error)
{
	bool sealed = local->entry.kind == GW_STATE_SEALED;
	uint64_t working = 0;
	int result = reserve(memory, local, ret_error);

	if (result == 0)
		result = import(memory, local, fds[0], &working, ret_error);
	if (result == 0 && !sealed)
		result = import(memory, local, fds[1], &local->committed, ret_error);
	if (result == 0)
		result = map(memory, local->entry.address, local->entry.copy_bytes, working,
			     sealed ? CUDA_ACCESS_READ : CUDA_ACCESS_READWRITE, ret_error);
	if (result < 0)
		release_handle(memory, &local->committed);
	release_handle(memory, &working);
	return result;
}

/* ---- copying ---- */

int state_memory_copy(struct state_memory *memory, const struct state_local *local, bool back,
		      struct gw_error *ret_error)
{
	uint64_t working = local->entry.address;
	uint64_t committed = shadow_of(memory, local);

	return check(memory->door->cuMemcpyDtoD_v2(back ? working : committed,
						   back ? committed : working,
						   local->entry.copy_bytes),
		     "cuMemcpyDtoD", ret_error);
}

int state_memory_wait(struct state_memory *memory, struct gw_error *ret_error)
{
	return check(memory->door->cuCtxSynchronize(), "cuCtxSynchronize", ret_error);
}
