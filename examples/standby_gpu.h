/* SPDX-License-Identifier: MIT */
/*
 * What standby_worker.c has on the GPU: the part of the driver's interface that it uses, and its kernels. A program that
 * is built with the CUDA toolkit includes <cuda.h> and links its own kernels instead.
 *
 * Runs in: worker. A CUresult is an int here. Every function returns one.
 */
#ifndef EXAMPLES_STANDBY_GPU_H
#define EXAMPLES_STANDBY_GPU_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static struct {
	int (*load)(void **module, const void *image);
	int (*function)(void **function, void *module, const char *name);
	int (*launch)(void *function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
		      unsigned int block_x, unsigned int block_y, unsigned int block_z,
		      unsigned int shared_bytes, void *stream, void **parameters, void **extra);
	int (*synchronize)(void);
	int (*alloc)(uint64_t *address, size_t bytes);
	int (*clear)(uint64_t address, unsigned char value, size_t bytes);
	int (*copy_out)(void *to, uint64_t from, size_t bytes);
} cuda;

/* p[i] = i * 2654435761 ^ seed; the sum of all words; and three ways to poison a process. */
enum kernel {
	FILL,
	CHECKSUM,
	FAULT_NULL,
	FAULT_MISALIGNED,
	FAULT_TRAP,
	KERNELS
};

static const char *const kernel_names[KERNELS] = {"fill", "checksum", "fault_null",
						  "fault_misaligned", "fault_trap"};
static void *kernels[KERNELS];

/* What both loops begin with: %i is this thread's first word, %step the number of threads. */
#define EACH_WORD                                                                                  \
	"	.reg .pred %end;\n"                                                                      \
	"	.reg .b32 %a, %b, %c, %v, %seed;\n"                                                      \
	"	.reg .b64 %p, %n, %i, %step, %at, %sum, %part, %before;\n"                               \
	"	ld.param.u64 %p, [p];\n"                                                                 \
	"	cvta.to.global.u64 %p, %p;\n"                                                            \
	"	ld.param.u64 %n, [n];\n"                                                                 \
	"	mov.u32 %a, %ctaid.x;\n"                                                                 \
	"	mov.u32 %b, %ntid.x;\n"                                                                  \
	"	mov.u32 %c, %nctaid.x;\n"                                                                \
	"	mul.wide.u32 %step, %b, %c;\n"                                                           \
	"	mul.wide.u32 %i, %a, %b;\n"                                                              \
	"	mov.u32 %c, %tid.x;\n"                                                                   \
	"	cvt.u64.u32 %at, %c;\n"                                                                  \
	"	add.u64 %i, %i, %at;\n"                                                                  \
	"	mov.u64 %part, 0;\n"

static const char ptx[] =
	".version 6.0\n"
	".target sm_50\n"
	".address_size 64\n"
	".visible .entry fill(.param .u64 p, .param .u64 n, .param .u32 seed)\n"
	"{\n" EACH_WORD "	ld.param.u32 %seed, [seed];\n"
	"NEXT:\n"
	"	setp.ge.u64 %end, %i, %n;\n"
	"	@%end bra DONE;\n"
	"	cvt.u32.u64 %v, %i;\n"
	"	mul.lo.u32 %v, %v, 2654435761;\n"
	"	xor.b32 %v, %v, %seed;\n"
	"	shl.b64 %at, %i, 2;\n"
	"	add.u64 %at, %at, %p;\n"
	"	st.global.u32 [%at], %v;\n"
	"	add.u64 %i, %i, %step;\n"
	"	bra NEXT;\n"
	"DONE:\n"
	"	ret;\n"
	"}\n"
	".visible .entry checksum(.param .u64 p, .param .u64 n, .param .u64 sum)\n"
	"{\n" EACH_WORD "	ld.param.u64 %sum, [sum];\n"
	"	cvta.to.global.u64 %sum, %sum;\n"
	"NEXT:\n"
	"	setp.ge.u64 %end, %i, %n;\n"
	"	@%end bra DONE;\n"
	"	shl.b64 %at, %i, 2;\n"
	"	add.u64 %at, %at, %p;\n"
	"	ld.global.u32 %v, [%at];\n"
	"	cvt.u64.u32 %at, %v;\n"
	"	add.u64 %part, %part, %at;\n"
	"	add.u64 %i, %i, %step;\n"
	"	bra NEXT;\n"
	"DONE:\n"
	"	atom.global.add.u64 %before, [%sum], %part;\n"
	"	ret;\n"
	"}\n"
	".visible .entry fault_null()\n"
	"{\n"
	"	.reg .b64 %p;\n"
	"	mov.u64 %p, 0;\n"
	"	st.volatile.global.u32 [%p], 1;\n"
	"	ret;\n"
	"}\n"
	".visible .entry fault_misaligned(.param .u64 p)\n"
	"{\n"
	"	.reg .b64 %p;\n"
	"	ld.param.u64 %p, [p];\n"
	"	cvta.to.global.u64 %p, %p;\n"
	"	st.volatile.global.u32 [%p+1], 1;\n"
	"	ret;\n"
	"}\n"
	".visible .entry fault_trap()\n"
	"{\n"
	"	trap;\n"
	"	ret;\n"
	"}\n";

static int cuda_open(void)
{
	static const struct {
		const char *name;
		void *slot;
	} symbols[] = {
		{"cuModuleLoadData", &cuda.load},    {"cuModuleGetFunction", &cuda.function},
		{"cuLaunchKernel", &cuda.launch},    {"cuCtxSynchronize", &cuda.synchronize},
		{"cuMemAlloc_v2", &cuda.alloc},	     {"cuMemsetD8_v2", &cuda.clear},
		{"cuMemcpyDtoH_v2", &cuda.copy_out},
	};
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		void *symbol = library ? dlsym(library, symbols[i].name) : NULL;

		if (!symbol)
			return 36; /* CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER */
		memcpy(symbols[i].slot, &symbol, sizeof(symbol));
	}
	return 0;
}

/* Loads the kernels into the context that gpuward has made current. */
static int cuda_load_kernels(void)
{
	void *module;
	int error = cuda.load(&module, ptx);

	for (int i = 0; i < KERNELS && !error; i++)
		error = cuda.function(&kernels[i], module, kernel_names[i]);
	return error;
}

static int cuda_run(enum kernel kernel, unsigned int blocks, void **parameters)
{
	int error =
		cuda.launch(kernels[kernel], blocks, 1, 1, 256, 1, 1, 0, NULL, parameters, NULL);

	return error ? error : cuda.synchronize();
}

#endif
