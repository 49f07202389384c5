/* SPDX-License-Identifier: MIT */
/*
 * The processes of the fail-over benchmark that use the GPU: what a worker does, the bystander, and a bare process
 * without gpuward.
 *
 * Runs in: worker, bystander, bare process. Read next: failover_gpu.h, ../src/gpu/kernels_ptx.h.
 */
#include "failover_gpu.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/visible.h"
#include "gpu/kernels_ptx.h"

struct cuda_door gpu_door;

static struct cuda_module *module;
static struct cuda_function *kernels[KERNELS];
static struct cuda_function *faults[KINDS_OF_GPU];
static uint64_t scratch; /* device memory: a target that is not good for a word */

static const char *const kernel_names[KERNELS] = {"nop", "fill", "add1", "check"};

static const struct {
	const char *kernel;
	int result; /* what CUDA reports */
} fault_kernels[KINDS_OF_GPU] = {
	[KIND_NULL] = {"fault_null", CUDA_ERROR_ILLEGAL_ADDRESS},
	[KIND_MISALIGNED] = {"fault_misaligned", CUDA_ERROR_MISALIGNED_ADDRESS},
	[KIND_SHARED] = {"fault_shared", CUDA_ERROR_ILLEGAL_INSTRUCTION},
	[KIND_TRAP] = {"fault_trap", CUDA_ERROR_LAUNCH_FAILED},
	[KIND_ASSERT] = {"fault_assert", CUDA_ERROR_ASSERT},
};

int gpu_launch(enum kernel kernel, uint32_t blocks, void **parameters)
{
	return gpu_door.cuLaunchKernel(kernels[kernel], blocks ? blocks : 1, 1, 1, blocks ? 256 : 1,
				       1, 1, 0, NULL, parameters, NULL);
}

int gpu_good(uint64_t *ret_done_ns)
{
	int result = gpu_launch(KERNEL_NOP, 0, NULL);

	if (result == CUDA_SUCCESS)
		result = gpu_door.cuCtxSynchronize();
	*ret_done_ns = bench_now_ns();
	return result;
}

int gpu_load(void)
{
	uint64_t done_ns;
	int result = gpu_door.cuModuleLoadData(&module, gpu_kernels_ptx);

	for (uint32_t i = 0; i < KERNELS && result == CUDA_SUCCESS; i++)
		result = gpu_door.cuModuleGetFunction(&kernels[i], module, kernel_names[i]);
	for (uint32_t i = 0; i < KINDS_OF_GPU && result == CUDA_SUCCESS; i++)
		result = gpu_door.cuModuleGetFunction(&faults[i], module, fault_kernels[i].kernel);
	if (result == CUDA_SUCCESS)
		result = gpu_door.cuMemAlloc_v2(&scratch, 256);
	return result == CUDA_SUCCESS ? gpu_good(&done_ns) : result;
}

int gpu_prepare(int device)
{
	struct gw_error error;

	(void)device;
	if (!page_map() || cuda_open(&gpu_door, &error) < 0)
		return CUDA_ERROR_UNKNOWN;
	return gpu_load();
}

/* The driver tells of a failed assert on standard error. */
static void hush(void)
{
	int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);

	if (nothing >= 0) {
		(void)dup2(nothing, STDERR_FILENO);
		(void)close(nothing);
	}
}

static int launch_bad_kernel(enum kind kind, _Atomic uint64_t *launched_ns)
{
	uint32_t one = 1;
	void *parameters[1] = {kind == KIND_MISALIGNED ? (void *)&scratch : (void *)&one};

	if (kind == KIND_ASSERT)
		hush();
	atomic_store(launched_ns, bench_now_ns());
	return gpu_door.cuLaunchKernel(faults[kind], 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
}

static int run_bad_kernel(enum kind kind, _Atomic uint64_t *launched_ns)
{
	int result = launch_bad_kernel(kind, launched_ns);

	if (result == CUDA_SUCCESS)
		result = gpu_door.cuCtxSynchronize();
	if (result != fault_kernels[kind].result)
		atomic_store(&page->failure, result ? result : CUDA_ERROR_UNKNOWN);
	return result;
}

int gpu_fault(enum kind kind, _Atomic uint64_t *launched_ns)
{
	if (kind < KINDS_OF_GPU)
		return run_bad_kernel(kind, launched_ns);
	atomic_store(launched_ns, bench_now_ns());
	if (kind == KIND_KILL)
		(void)kill(getpid(), SIGKILL);
	_exit(3);
}

int gpu_fault_later(enum kind kind, _Atomic uint64_t *launched_ns)
{
	return kind < KINDS_OF_GPU ? launch_bad_kernel(kind, launched_ns)
				   : gpu_fault(kind, launched_ns);
}

/* ---- without gpuward ---- */

/* Everything that a program needs for its first kernel, the driver's library included. */
static int start(int device)
{
	struct cuda_context *context;
	struct gw_error error;

	/* As a pool numbers them. */
	(void)setenv(VISIBLE_ORDER_ENV, "PCI_BUS_ID", 1);
	if (cuda_open(&gpu_door, &error) < 0 ||
	    cuda_start_device(&gpu_door, device, &context, &error) < 0) {
		(void)fprintf(stderr, "failover: %s\n", error.msg);
		return CUDA_ERROR_UNKNOWN;
	}
	return gpu_load();
}

_Noreturn static void give_up(int result)
{
	atomic_store(&page->failure, result);
	_exit(1);
}

_Noreturn void bystander_main(int device, uint32_t connections)
{
	uint64_t last;
	uint64_t now;
	char text[16];
	int result;

	(void)snprintf(text, sizeof(text), "%u", connections);
	if (connections > 0)
		(void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", text, 1);
	result = start(device);
	if (result == CUDA_SUCCESS)
		result = gpu_good(&last);
	while (result == CUDA_SUCCESS) {
		result = gpu_good(&now);
		if (now - last >= GAP_MIN_NS) {
			uint64_t n = atomic_load(&page->n_gaps);

			page->gaps[n % GAPS_MAX] = (struct gap){.from_ns = last, .to_ns = now};
			atomic_store(&page->n_gaps, n + 1);
		}
		last = now;
		atomic_fetch_add(&page->loops, 1);
	}
	give_up(result);
}

/* Says when it is up, with a byte; faults as the next byte says; and ends as a program does that checks what its
 * calls return. */
_Noreturn void bare_main(int device, int socket)
{
	uint64_t done_ns = 0;
	uint8_t kind = 0;
	int result = page_map() ? start(device) : CUDA_ERROR_UNKNOWN;

	if (result == CUDA_SUCCESS)
		result = gpu_good(&done_ns);
	if (result != CUDA_SUCCESS)
		give_up(result);
	atomic_store(&page->good_ns, done_ns);
	if (write(socket, &kind, 1) != 1 || read(socket, &kind, 1) != 1 || kind >= KINDS)
		_exit(0);
	(void)gpu_fault((enum kind)kind, &page->launched_ns);
	atomic_store(&page->reported_ns, bench_now_ns());
	_exit(1);
}
