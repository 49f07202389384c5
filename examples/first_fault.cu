/* SPDX-License-Identifier: MIT */
/*
 * first_fault.c with the CUDA runtime API: a kernel writes to address 0, gw_isolate() reports it, and the
 * second process computes the result. Built where nvcc is.
 *
 * The runtime loads the driver at its first call, so the parent makes none: no CUDA object may be global
 * with a constructor that calls CUDA. cudaError_t has the numbers of CUresult for all that poisons.
 */
#include <cstdio>

#include <cuda_runtime.h>
#include <gpuward.h>

static const int words = 1024;

static __global__ void write_to_null()
{
	*(volatile int *)nullptr = 1;
}

static __global__ void vector_add(const float *a, const float *b, float *c, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		c[i] = a[i] + b[i];
}

static cudaError_t add_vectors(double *sum)
{
	static float values[3][words];
	float *memory[3];
	cudaError_t error = cudaSuccess;

	for (int i = 0; i < words; i++) {
		values[0][i] = (float)i;
		values[1][i] = 2.0F * (float)i;
	}
	for (int i = 0; i < 3 && !error; i++)
		error = cudaMalloc(&memory[i], sizeof(values[i]));
	for (int i = 0; i < 2 && !error; i++)
		error = cudaMemcpy(memory[i], values[i], sizeof(values[i]), cudaMemcpyHostToDevice);
	if (!error) {
		vector_add<<<words / 256, 256>>>(memory[0], memory[1], memory[2], words);
		error = cudaMemcpy(values[2], memory[2], sizeof(values[2]), cudaMemcpyDeviceToHost);
	}
	for (int i = 0; i < words && !error; i++)
		*sum += values[2][i];
	return error;
}

/* Runs in a child of its own: may fault. */
static int work(const struct gw_isolated *run)
{
	cudaError_t error = cudaSuccess;

	if (run->attempt == 0) {
		write_to_null<<<1, 1>>>();
		error = cudaDeviceSynchronize();
	}
	return error ? error : add_vectors(static_cast<double *>(run->shared));
}

static unsigned int failed;

static void report(const struct gw_exit *exit, uint32_t attempt, void *)
{
	failed = attempt + 1;
	std::printf("attempt %u: %s\nstarting a fresh process\n", attempt + 1, exit->text);
}

int main()
{
	struct gw_isolate_options options = GW_OPTIONS(struct gw_isolate_options);
	struct gw_error error;
	struct gw_exit end;
	void *shared;

	options.shared_bytes = sizeof(double);
	options.on_attempt = report;
	int status = gw_isolate(work, &options, &shared, &end, &error);
	if (status < 0) {
		std::fprintf(stderr, "first_fault: %s\n", error.msg);
		return 125;
	}
	double sum = *static_cast<double *>(shared);
	gw_isolate_free_shared(shared, sizeof(double));
	if (status != 0) {
		std::printf("given up: %s (%s)\n", end.text,
			    cudaGetErrorString((cudaError_t)end.value));
		return 1;
	}
	std::printf("attempt %u: ok, sum = %.0f\n", failed + 1, sum);
	return sum == 3.0 * (words - 1) * words / 2 ? 0 : 1;
}
