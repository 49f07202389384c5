/* SPDX-License-Identifier: MIT */
/* Device memory by handle: cuMemCreate, export, import, reserve, map, access. Runs in: see suite.h. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "suite.h"

#define PIECE (2 * MIB)

/* The address that gpuward gives its surviving memory. */
#define FIXED 0x700000000000ULL

static struct cuda_access_range access_of(int flags)
{
	return (struct cuda_access_range){
		.location = {.type = CUDA_LOCATION_DEVICE, .id = 0},
		.flags = (uint32_t)flags,
	};
}

static void create(const void *argument)
{
	struct cuda_allocation allocation = suite_exportable();
	struct cuda_allocation other = suite_exportable();
	uint64_t handle = 0;
	size_t bytes = 0;

	(void)argument;
	(void)CU(cuInit, 0);
	fact("granularity", CU(cuMemGetAllocationGranularity, &bytes, &allocation, 0));
	fact("minimum", (long long)bytes);
	fact("recommended_result", CU(cuMemGetAllocationGranularity, &bytes, &allocation, 1));
	fact("recommended", (long long)bytes);
	fact("bad_option", CU(cuMemGetAllocationGranularity, &bytes, &allocation, 9));
	fact("granularity_null", CU(cuMemGetAllocationGranularity, NULL, &allocation, 0));
	fact("without_context", CU(cuMemCreate, &handle, PIECE, &allocation, 0));
	fact("release", CU(cuMemRelease, handle));
	fact("release_twice", CU(cuMemRelease, handle));
	fact("nothing", CU(cuMemCreate, &handle, 0, &allocation, 0));
	fact("odd_size", CU(cuMemCreate, &handle, 4096, &allocation, 0));
	fact("flags", CU(cuMemCreate, &handle, PIECE, &allocation, 7));
	fact("null", CU(cuMemCreate, NULL, PIECE, &allocation, 0));
	fact("null_properties", CU(cuMemCreate, &handle, PIECE, NULL, 0));
	other.type = 0;
	fact("bad_type", CU(cuMemCreate, &handle, PIECE, &other, 0));
	other = allocation;
	other.location.id = 77;
	fact("no_such_device", CU(cuMemCreate, &handle, PIECE, &other, 0));
	other = allocation;
	other.handle_types = 0x4000;
	fact("bad_handle_type", CU(cuMemCreate, &handle, PIECE, &other, 0));
}

static void link_of(const char *name, int fd)
{
	char path[64];
	char target[256] = "";
	const char *slash;

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (readlink(path, target, sizeof(target) - 1) < 0)
		return;
	slash = strrchr(target, '/');
	fact_text(name, "%s", slash ? slash + 1 : target);
}

static void export(const void *argument)
{
	struct cuda_allocation allocation = suite_exportable();
	uint64_t handle = 0;
	uint64_t plain = 0;
	uint64_t again = 0;
	int fd = -1;
	int other = -1;

	(void)argument;
	(void)CU(cuInit, 0);
	(void)CU(cuMemCreate, &handle, PIECE, &allocation, 0);
	fact("result", CU(cuMemExportToShareableHandle, &fd, handle, CUDA_HANDLE_POSIX_FD, 0));
	link_of("descriptor_is", fd);
	fact_yes("close_on_exec", (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
	fact("twice", CU(cuMemExportToShareableHandle, &other, handle, CUDA_HANDLE_POSIX_FD, 0));
	fact_yes("twice_is_another", other != fd);
	fact("flags", CU(cuMemExportToShareableHandle, &other, handle, CUDA_HANDLE_POSIX_FD, 7));
	fact("bad_type", CU(cuMemExportToShareableHandle, &other, handle, 0x40, 0));
	fact("null", CU(cuMemExportToShareableHandle, NULL, handle, CUDA_HANDLE_POSIX_FD, 0));
	fact("bad_handle", CU(cuMemExportToShareableHandle, &other, 0, CUDA_HANDLE_POSIX_FD, 0));
	allocation.handle_types = CUDA_HANDLE_NONE;
	(void)CU(cuMemCreate, &plain, PIECE, &allocation, 0);
	fact("of_unexportable",
	     CU(cuMemExportToShareableHandle, &other, plain, CUDA_HANDLE_POSIX_FD, 0));
	fact("import_own", CU(cuMemImportFromShareableHandle, &again, (void *)(intptr_t)fd,
			      CUDA_HANDLE_POSIX_FD));
	fact_yes("import_own_is_same", again == handle);
	fact("release", CU(cuMemRelease, handle));
	fact("import_after_release", CU(cuMemImportFromShareableHandle, &again,
					(void *)(intptr_t)fd, CUDA_HANDLE_POSIX_FD));
}

static int import(int fd, int type)
{
	uint64_t handle = 0;

	return CU(cuMemImportFromShareableHandle, &handle, (void *)(intptr_t)fd, type);
}

static void import_garbage(const void *argument)
{
	int file = open("/dev/null", O_RDWR | O_CLOEXEC);
	int memory = memfd_create("conformance", MFD_CLOEXEC);
	int pipes[2] = {-1, -1};

	(void)argument;
	(void)CU(cuInit, 0);
	(void)!pipe2(pipes, O_CLOEXEC);
	fact("dev_null", import(file, CUDA_HANDLE_POSIX_FD));
	fact("memfd", import(memory, CUDA_HANDLE_POSIX_FD));
	fact("pipe", import(pipes[0], CUDA_HANDLE_POSIX_FD));
	fact("not_open", import(999, CUDA_HANDLE_POSIX_FD));
	fact("minus_one", import(-1, CUDA_HANDLE_POSIX_FD));
	fact("bad_type", import(file, 0x40));
	fact("null", CU(cuMemImportFromShareableHandle, NULL, (void *)(intptr_t)file,
			CUDA_HANDLE_POSIX_FD));
}

static void reserve(const void *argument)
{
	struct session session;
	uint64_t address = 0;
	uint64_t other = 0;

	(void)argument;
	session_begin(&session);
	fact("result", CU(cuMemAddressReserve, &address, PIECE, 0, 0, 0));
	fact("aligned_2_mib", (long long)(address % PIECE));
	fact("nothing", CU(cuMemAddressReserve, &other, 0, 0, 0, 0));
	fact("odd_size", CU(cuMemAddressReserve, &other, 4096, 0, 0, 0));
	fact("odd_alignment", CU(cuMemAddressReserve, &other, PIECE, 3, 0, 0));
	fact("wide_alignment", CU(cuMemAddressReserve, &other, PIECE, 64 * MIB, 0, 0));
	fact("wide_alignment_kept", (long long)(other % (64 * MIB)));
	fact("flags", CU(cuMemAddressReserve, &other, PIECE, 0, 0, 7));
	fact("null", CU(cuMemAddressReserve, NULL, PIECE, 0, 0, 0));
	fact("fixed", CU(cuMemAddressReserve, &address, PIECE, 0, FIXED, 0));
	fact_yes("fixed_is_kept", address == FIXED);
	fact("fixed_again", CU(cuMemAddressReserve, &other, PIECE, 0, FIXED, 0));
	fact_yes("fixed_again_is_elsewhere", other != FIXED);
	fact("free", CU(cuMemAddressFree, FIXED, PIECE));
	fact("free_twice", CU(cuMemAddressFree, FIXED, PIECE));
	fact("free_bad", CU(cuMemAddressFree, 0x123400000, PIECE));
	fact("free_wrong_size", CU(cuMemAddressFree, other, 2 * PIECE));
	fact("fixed_after_free", CU(cuMemAddressReserve, &address, PIECE, 0, FIXED, 0));
	fact_yes("fixed_after_free_is_kept", address == FIXED);
}

static void map_misuse(uint64_t address, uint64_t handle)
{
	fact("null_handle", CU(cuMemMap, address, PIECE, 0, 0, 0));
	fact("with_offset", CU(cuMemMap, address, PIECE, PIECE, handle, 0));
	fact("larger", CU(cuMemMap, address, 2 * PIECE, 0, handle, 0));
	fact("half", CU(cuMemMap, address, MIB, 0, handle, 0));
	fact("flags", CU(cuMemMap, address, PIECE, 0, handle, 7));
	fact("unreserved", CU(cuMemMap, 0x123400000, PIECE, 0, handle, 0));
	fact("odd_address", CU(cuMemMap, address + 4096, PIECE, 0, handle, 0));
	fact("unmap_unmapped", CU(cuMemUnmap, address, PIECE));
}

static void map(const void *argument)
{
	struct cuda_allocation allocation = suite_exportable();
	struct cuda_access_range range = access_of(CUDA_ACCESS_READWRITE);
	struct cuda_access_range bad = access_of(2);
	struct session session;
	uint64_t handle = 0;
	uint64_t address = 0;

	(void)argument;
	session_begin(&session);
	(void)CU(cuMemCreate, &handle, PIECE, &allocation, 0);
	(void)CU(cuMemAddressReserve, &address, 2 * PIECE, 0, 0, 0);
	map_misuse(address, handle);
	fact("access_unmapped", CU(cuMemSetAccess, address, PIECE, &range, 1));
	fact("result", CU(cuMemMap, address, PIECE, 0, handle, 0));
	fact("twice", CU(cuMemMap, address, PIECE, 0, handle, 0));
	fact("memset_without_access", CU(cuMemsetD8_v2, address, 1, 16));
	fact("bad_access", CU(cuMemSetAccess, address, PIECE, &bad, 1));
	fact("access_none", CU(cuMemSetAccess, address, PIECE, &range, 0));
	fact("access_null", CU(cuMemSetAccess, address, PIECE, NULL, 1));
	fact("access_half", CU(cuMemSetAccess, address, MIB, &range, 1));
	range.location.id = 77;
	fact("access_no_such_device", CU(cuMemSetAccess, address, PIECE, &range, 1));
	range.location.id = 0;
	fact("access", CU(cuMemSetAccess, address, PIECE, &range, 1));
	fact("memset", CU(cuMemsetD8_v2, address, 1, PIECE));
	fact("memset_beyond", CU(cuMemsetD8_v2, address, 1, PIECE + 4096));
	fact("free", CU(cuMemFree_v2, address));
	fact("address_free_mapped", CU(cuMemAddressFree, address, 2 * PIECE));
	fact("unmap_half", CU(cuMemUnmap, address, MIB));
	fact("release_mapped", CU(cuMemRelease, handle));
	fact("memset_released", CU(cuMemsetD8_v2, address, 2, PIECE));
	/* cuMemUnmap does not wait, and emulation is slower. */
	(void)CU(cuCtxSynchronize);
	fact("unmap", CU(cuMemUnmap, address, PIECE));
	fact("unmap_twice", CU(cuMemUnmap, address, PIECE));
	fact("memset_unmapped", CU(cuMemsetD8_v2, address, 2, 16));
	fact("address_free", CU(cuMemAddressFree, address, 2 * PIECE));
	fact("sync", CU(cuCtxSynchronize));
}

static void two_views(const void *argument)
{
	struct cuda_allocation allocation = suite_exportable();
	struct session session;
	uint64_t handle = 0;
	uint64_t first = 0;
	uint64_t second = 0;
	uint32_t word = 0;

	(void)argument;
	session_begin(&session);
	(void)CU(cuMemCreate, &handle, PIECE, &allocation, 0);
	fact("map_first", suite_map(handle, PIECE, CUDA_ACCESS_READWRITE, &first));
	fact("map_second", suite_map(handle, PIECE, CUDA_ACCESS_READ, &second));
	(void)CU(cuMemsetD32_v2, first, 0x55aa, 4);
	fact("read_second", CU(cuMemcpyDtoH_v2, &word, second, 4));
	fact("value", word);
}

static void map_read_only(struct session *session, uint64_t *ret_address)
{
	struct cuda_allocation allocation = suite_exportable();
	struct cuda_access_range range = access_of(CUDA_ACCESS_READ);
	uint64_t handle = 0;

	session_begin(session);
	(void)CU(cuMemCreate, &handle, PIECE, &allocation, 0);
	fact("map", suite_map(handle, PIECE, CUDA_ACCESS_READWRITE, ret_address));
	(void)CU(cuMemsetD32_v2, *ret_address, 77, PIECE / 4);
	fact("sync_before", CU(cuCtxSynchronize));
	fact("seal", CU(cuMemSetAccess, *ret_address, PIECE, &range, 1));
}

static void read_only(const void *argument)
{
	struct session session;
	uint64_t address = 0;
	uint64_t target = 0;
	uint64_t n = 16;
	uint32_t word = 0;
	void *add[] = {&address, &n};

	(void)argument;
	map_read_only(&session, &address);
	(void)CU(cuMemAlloc_v2, &target, MIB);
	fact("read", CU(cuMemcpyDtoH_v2, &word, address, 4));
	fact("value", word);
	fact("copy_from", CU(cuMemcpyDtoD_v2, target, address, 4096));
	fact("launch", session_launch(&session, "add1", NULL, add));
	fact("write", CU(cuCtxSynchronize));
	fact("read_after", CU(cuMemcpyDtoH_v2, &word, address, 4));
}

static void read_only_copy(const void *argument)
{
	struct session session;
	uint64_t address = 0;
	uint32_t word = 5;

	(void)argument;
	map_read_only(&session, &address);
	fact("copy_in", CU(cuMemcpyHtoD_v2, address, &word, 4));
	fact("sync_copy", CU(cuCtxSynchronize));
	(void)CU(cuMemcpyDtoH_v2, &word, address, 4);
	fact("value", word);
}

static void read_only_memset(const void *argument)
{
	struct session session;
	uint64_t address = 0;

	(void)argument;
	map_read_only(&session, &address);
	fact("memset", CU(cuMemsetD8_v2, address, 1, 16));
	fact("sync", CU(cuCtxSynchronize));
}

/* Access is taken away while a write is still queued. */
static void sealed_too_early(const void *argument)
{
	struct cuda_allocation allocation = suite_exportable();
	struct cuda_access_range range = access_of(CUDA_ACCESS_READ);
	struct session session;
	uint64_t handle = 0;
	uint64_t address = 0;
	uint64_t ns = 200000000;
	void *busy[] = {&ns};

	(void)argument;
	session_begin(&session);
	(void)CU(cuMemCreate, &handle, PIECE, &allocation, 0);
	(void)suite_map(handle, PIECE, CUDA_ACCESS_READWRITE, &address);
	(void)session_launch(&session, "busy", NULL, busy);
	fact("memset", CU(cuMemsetD32Async, address, 77, PIECE / 4, NULL));
	fact("seal", CU(cuMemSetAccess, address, PIECE, &range, 1));
	fact("query", CU(cuStreamQuery, NULL));
	fact("sync", CU(cuCtxSynchronize));
}

/* The mapping is taken away while a write is still queued. */
static void unmapped_too_early(const void *argument)
{
	struct cuda_allocation allocation = suite_exportable();
	struct session session;
	uint64_t handle = 0;
	uint64_t address = 0;
	uint64_t ns = 200000000;
	void *busy[] = {&ns};

	(void)argument;
	session_begin(&session);
	(void)CU(cuMemCreate, &handle, PIECE, &allocation, 0);
	(void)suite_map(handle, PIECE, CUDA_ACCESS_READWRITE, &address);
	(void)session_launch(&session, "busy", NULL, busy);
	fact("memset", CU(cuMemsetD32Async, address, 77, PIECE / 4, NULL));
	fact("unmap", CU(cuMemUnmap, address, PIECE));
	fact("query", CU(cuStreamQuery, NULL));
	fact("sync", CU(cuCtxSynchronize));
}

const struct suite_case cases_handle[] = {
	{"handle", create, NULL},
	{"export", export, NULL},
	{"import", import_garbage, NULL},
	{"reserve", reserve, NULL},
	{"map", map, NULL},
	{"views", two_views, NULL},
	{"readonly", read_only, NULL},
	{"readonly_copy", read_only_copy, NULL},
	{"readonly_set", read_only_memset, NULL},
	{"seal_early", sealed_too_early, NULL},
	{"unmap_early", unmapped_too_early, NULL},
	{NULL, NULL, NULL},
};
