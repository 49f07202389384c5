/* SPDX-License-Identifier: MIT */
/*
 * Description: the emulated driver pins host memory as the real one does: for what the mapping allows, up to
 * what the machine has, and until the process ends.
 *
 * Runs in: the test's process, and children that use CUDA. Read next: softgpu/host.c.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "../softgpu.h"
#include "../softgpu_calls.h"

#define MIB 1048576U

static void *map(int protection, int flags, int fd, size_t bytes)
{
	void *memory = mmap(NULL, bytes, protection, flags, fd, 0);

	NEED(memory != MAP_FAILED, 1);
	return memory;
}

static void *map_new(size_t bytes)
{
	return map(PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, bytes);
}

static int new_file(size_t bytes)
{
	int fd = memfd_create("pinned", MFD_CLOEXEC);

	NEED(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0, 1);
	return fd;
}

static uint64_t taken_bytes(int fd)
{
	struct stat status = {0};

	NEED(fstat(fd, &status), 0);
	return (uint64_t)status.st_blocks * 512;
}

static int count(void *argument)
{
	void *memory;
	void *own;

	(void)argument;
	child_context(0);
	memory = map_new(4 * MIB);
	OK(cuMemHostRegister_v2(memory, 3 * MIB, CUDA_HOST_REGISTER_PORTABLE));
	OK(cuMemAllocHost_v2(&own, MIB));
	NEED(cuMemHostRegister_v2(memory, 4 * MIB, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	NEED((long)soft_pinned_bytes(), 4 * MIB);
	OK(cuMemFreeHost(own));
	NEED((long)soft_pinned_bytes(), 3 * MIB);
	OK(cuMemHostUnregister(memory));
	NEED((long)soft_pinned_bytes(), 0);
	OK(cuMemHostRegister_v2(memory, 4 * MIB, 0));
	OK(cuDevicePrimaryCtxReset_v2(0));
	NEED((long)soft_pinned_bytes(), 0);
	return 0;
}

static void what_is_pinned_is_counted(void **state)
{
	(void)state;
	soft_dir_new(NULL);
	assert_int_equal(child_run(count, NULL), 0);
	soft_dir_free();
}

static int pin_and_wait(void *argument)
{
	child_context(0);
	OK(cuMemHostRegister_v2(map_new(2 * MIB), 2 * MIB, 0));
	pipe_send(argument);
	(void)pause();
	return 0;
}

static void a_killed_process_pins_nothing(void **state)
{
	struct signal_pipe ready;
	pid_t child;

	(void)state;
	soft_dir_new(NULL);
	pipe_open(&ready);
	child = child_start(pin_and_wait, &ready);
	assert_int_equal(pipe_wait(&ready), 1);
	assert_int_equal(soft_pinned_bytes(), 2 * MIB);
	assert_int_equal(kill(child, SIGKILL), 0);
	assert_int_equal(child_end(child), -SIGKILL);
	assert_int_equal(soft_pinned_bytes(), 0);
	pipe_close(&ready);
	soft_dir_free();
}

/* All pages are taken when they are registered, for reading too, and they are those of the file. */
static int take_pages(void *argument)
{
	int fds[2] = {new_file(2 * MIB), new_file(2 * MIB)};

	(void)argument;
	child_context(0);
	OK(cuMemHostRegister_v2(map(PROT_READ, MAP_SHARED, fds[0], 2 * MIB), 2 * MIB,
				CUDA_HOST_REGISTER_READ_ONLY));
	OK(cuMemHostRegister_v2(map(PROT_READ | PROT_WRITE, MAP_SHARED, fds[1], 2 * MIB), 2 * MIB,
				0));
	NEED((long)taken_bytes(fds[0]), 2 * MIB);
	NEED((long)taken_bytes(fds[1]), 2 * MIB);
	return 0;
}

/* Linux 5.14 and newer can take pages without writing to them. */
static void skip_on_old_kernel(void)
{
	void *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int result = madvise(page, 4096, 22 /* MADV_POPULATE_READ */);

	(void)munmap(page, 4096);
	if (result < 0) {
		print_message("skipped: this kernel has no MADV_POPULATE_READ\n");
		skip();
	}
}

static void pinning_takes_the_pages(void **state)
{
	(void)state;
	skip_on_old_kernel();
	soft_dir_new(NULL);
	assert_int_equal(child_run(take_pages, NULL), 0);
	soft_dir_free();
}

static int pin_too_much(void *argument)
{
	int fd = new_file(8 * MIB);
	void *memory;

	(void)argument;
	child_context(0);
	memory = map(PROT_READ | PROT_WRITE, MAP_SHARED, fd, 8 * MIB);
	NEED(cuMemHostRegister_v2(memory, 8 * MIB, 0), CUDA_ERROR_OUT_OF_MEMORY);
	NEED((long)soft_pinned_bytes(), 0);
	NEED((long)taken_bytes(fd), 0);
	OK(cuMemHostRegister_v2(memory, 3 * MIB, 0));
	NEED(cuMemHostRegister_v2((char *)memory + 4 * MIB, 2 * MIB, 0), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemHostRegister_v2((char *)memory + 4 * MIB, MIB, 0));
	return 0;
}

static void more_than_the_machine_has_cannot_be_pinned(void **state)
{
	(void)state;
	soft_dir_new("pinnable_mib=4\n");
	assert_int_equal(child_run(pin_too_much, NULL), 0);
	soft_dir_free();
}

static int register_nothing(void *argument)
{
	unsigned int flags = CUDA_HOST_REGISTER_READ_ONLY;
	void *memory = map_new(MIB);
	int value = -1;

	(void)argument;
	child_context(0);
	OK(cuDeviceGetAttribute(&value, CUDA_ATTRIBUTE_HOST_REGISTER, 0));
	NEED(value, 0);
	OK(cuDeviceGetAttribute(&value, CUDA_ATTRIBUTE_READ_ONLY_HOST_REGISTER, 0));
	NEED(value, 0);
	NEED(cuMemHostRegister_v2(memory, MIB, 0), CUDA_ERROR_NOT_SUPPORTED);
	NEED(cuMemHostRegister_v2(memory, MIB, flags), CUDA_ERROR_NOT_SUPPORTED);
	return 0;
}

static int register_for_writing(void *argument)
{
	unsigned int flags = CUDA_HOST_REGISTER_READ_ONLY;
	void *memory = map_new(MIB);
	int value = -1;

	(void)argument;
	child_context(0);
	OK(cuDeviceGetAttribute(&value, CUDA_ATTRIBUTE_READ_ONLY_HOST_REGISTER, 0));
	NEED(value, 0);
	NEED(cuMemHostRegister_v2(memory, MIB, flags), CUDA_ERROR_NOT_SUPPORTED);
	OK(cuMemHostRegister_v2(memory, MIB, 0));
	return 0;
}

static void a_driver_that_registers_less_says_so(void **state)
{
	(void)state;
	soft_dir_new("host_register=0\n");
	assert_int_equal(child_run(register_nothing, NULL), 0);
	soft_setting("read_only_register=0\n");
	assert_int_equal(child_run(register_for_writing, NULL), 0);
	soft_dir_free();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_pinned_is_counted),
		cmocka_unit_test(a_killed_process_pins_nothing),
		cmocka_unit_test(pinning_takes_the_pages),
		cmocka_unit_test(more_than_the_machine_has_cannot_be_pinned),
		cmocka_unit_test(a_driver_that_registers_less_says_so),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
