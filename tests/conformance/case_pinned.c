/* SPDX-License-Identifier: MIT */
/* Host memory that the process may only read, registered and not. Runs in: see suite.h. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "suite.h"

/* A shared memory file with a mapping for reading beside one for writing, as the workers of a pool have. */
static char *map_sealed(size_t bytes, int fd, char **ret_writable)
{
	char *memory = MAP_FAILED;

	*ret_writable = MAP_FAILED;
	if (fd >= 0 && ftruncate(fd, (off_t)bytes) == 0)
		*ret_writable = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	fact("seal", fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK));
	if (*ret_writable != MAP_FAILED)
		memory = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
	fact_yes("mapped", memory != MAP_FAILED);
	return memory;
}

static int new_file(void)
{
	return memfd_create("read-only", MFD_CLOEXEC | MFD_ALLOW_SEALING);
}

static void registered_for_reading(const void *argument)
{
	unsigned int flags = CUDA_HOST_REGISTER_READ_ONLY | CUDA_HOST_REGISTER_PORTABLE;
	char *writable;
	char *memory = map_sealed(4 * MIB, new_file(), &writable);
	struct session session;
	uint64_t device = 0;
	uint64_t address = 0;
	int value = -1;
	char back = 0;

	(void)argument;
	session_begin(&session);
	(void)CU(cuDeviceGetAttribute, &value, CUDA_ATTRIBUTE_READ_ONLY_HOST_REGISTER, 0);
	fact("is_supported", value);
	(void)CU(cuDeviceGetAttribute, &value, CUDA_ATTRIBUTE_HOST_PAGE_TABLES, 0);
	fact("has_host_page_tables", value);
	(void)CU(cuMemAlloc_v2, &device, 4 * MIB);
	fact("without_the_flag", CU(cuMemHostRegister_v2, memory, 2 * MIB, 0));
	fact("register", CU(cuMemHostRegister_v2, memory, 2 * MIB, flags));
	fact("again", CU(cuMemHostRegister_v2, memory, 2 * MIB, flags));
	fact("again_without_the_flag", CU(cuMemHostRegister_v2, memory, 2 * MIB, 0));
	/* Written after the registration, through the other mapping. */
	memset(writable, 7, 4 * MIB);
	fact("copy_in", CU(cuMemcpyHtoD_v2, device, memory, 2 * MIB));
	(void)CU(cuMemcpyDtoH_v2, &back, device + 2 * MIB - 1, 1);
	fact("value", back);
	fact("copy_in_of_unregistered", CU(cuMemcpyHtoD_v2, device, memory + 3 * MIB, MIB));
	fact("device_pointer", CU(cuMemHostGetDevicePointer_v2, &address, memory, 0));
	fact("copy_between", CU(cuMemcpyDtoD_v2, device, address, MIB));
	fact("set_by_device", CU(cuMemsetD8_v2, address, 9, 16));
	fact("unregister", CU(cuMemHostUnregister, memory));
	fact("register_again", CU(cuMemHostRegister_v2, memory, 4 * MIB, flags));
	fact("writable_with_the_flag", CU(cuMemHostRegister_v2, writable, 4 * MIB, flags));
	fact("sync", CU(cuCtxSynchronize));
}

static long long taken_mib(int fd)
{
	struct stat status = {0};

	(void)fstat(fd, &status);
	return (long long)((uint64_t)status.st_blocks * 512 / MIB);
}

/* No page of the file was ever touched. */
static void sparse(const void *argument)
{
	static const unsigned int flags[] = {0, CUDA_HOST_REGISTER_PORTABLE,
					     CUDA_HOST_REGISTER_DEVICEMAP};
	int fd = new_file();
	char *writable;
	char *memory = map_sealed(16 * MIB, fd, &writable);
	struct session session;
	char name[64];

	(void)argument;
	session_begin(&session);
	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		(void)snprintf(name, sizeof(name), "flags_%u", flags[i]);
		fact(name, CU(cuMemHostRegister_v2, memory, 16 * MIB, flags[i]));
	}
	fact("taken_mib_before", taken_mib(fd));
	fact("flags_8", CU(cuMemHostRegister_v2, memory, 16 * MIB, CUDA_HOST_REGISTER_READ_ONLY));
	fact("taken_mib", taken_mib(fd));
	fact("unregister", CU(cuMemHostUnregister, memory));
	fact("taken_mib_after", taken_mib(fd));
}

/* The GPU writes to what it may only read: by a copy, and by a kernel. */
static void written(const void *argument)
{
	char *writable;
	char *memory = map_sealed(MIB, new_file(), &writable);
	struct session session;
	uint64_t device = 0;
	uint64_t address = 0;
	uint64_t n = 64;
	void *add[] = {&address, &n};

	(void)argument;
	memset(writable, 3, MIB);
	session_begin(&session);
	(void)CU(cuMemAlloc_v2, &device, MIB);
	(void)CU(cuMemsetD8_v2, device, 5, MIB);
	fact("register", CU(cuMemHostRegister_v2, memory, MIB, CUDA_HOST_REGISTER_READ_ONLY));
	fact("copy_out", CU(cuMemcpyDtoHAsync_v2, memory, device, 4096, NULL));
	fact("sync", CU(cuCtxSynchronize));
	fact("value", writable[0]);
	fact("device_pointer", CU(cuMemHostGetDevicePointer_v2, &address, memory, 0));
	fact("launch", session_launch(&session, "add1", NULL, add));
	fact("sync_kernel", CU(cuCtxSynchronize));
	fact("value_after_kernel", writable[0]);
}

/* The driver's own thread or the GPU's copy: the process ends by SIGSEGV, and no call returns a failure. */
static void written_unregistered(const void *argument)
{
	char *writable;
	char *memory = map_sealed(MIB, new_file(), &writable);
	struct session session;
	uint64_t device = 0;

	(void)argument;
	/* A sanitizer's handler would end the process in another way. */
	(void)signal(SIGSEGV, SIG_DFL);
	session_begin(&session);
	(void)CU(cuMemAlloc_v2, &device, MIB);
	(void)CU(cuMemsetD8_v2, device, 5, MIB);
	fact("copy_out", CU(cuMemcpyDtoHAsync_v2, memory, device, 4096, NULL));
	fact("sync", CU(cuCtxSynchronize));
}

const struct suite_case cases_pinned[] = {
	{"read_only", registered_for_reading, NULL},
	{"read_only_sparse", sparse, NULL},
	{"read_only_written", written, NULL},
	{"read_only_unpinned", written_unregistered, NULL},
	{NULL, NULL, NULL},
};
