/* SPDX-License-Identifier: MIT */
/*
 * What the limits of a context cost, what they wait for, and which kernels need more stack than there is.
 * Runs in: see suite.h.
 */
#include <stdio.h>

#include "suite.h"

/*
 * Kernels that need a stack; softgpu has C functions of the same names. The compiler cannot keep either
 * frame in registers, as the places in it depend on n.
 *
 *	recurse(u32 n, u32 *out)	*out = 1 + 2 + ... + n, by n + 1 calls with 256 bytes each
 *	static_frame(u32 n, u32 *out)	*out = n, by way of one of 4096 words
 */
/* clang-format off */
static const char stack_ptx[] =
".version 6.0\n"
".target sm_50\n"
".address_size 64\n"
"\n"
".func (.param .b32 sum) nested(.param .b32 n)\n"
"{\n"
"\t.local .align 4 .b8 frame[256];\n"
"\t.reg .pred %last;\n"
"\t.reg .b32 %n, %less, %at, %sum, %mine;\n"
"\tld.param.u32 %n, [n];\n"
"\tand.b32 %at, %n, 63;\n"
"\tshl.b32 %at, %at, 2;\n"
"\tmov.u32 %sum, frame;\n"
"\tadd.u32 %at, %at, %sum;\n"
"\tst.local.u32 [%at], %n;\n"
"\tmov.u32 %sum, 0;\n"
"\tsetp.eq.u32 %last, %n, 0;\n"
"\t@%last bra DONE;\n"
"\tsub.u32 %less, %n, 1;\n"
"\t{\n"
"\t.param .b32 next;\n"
"\t.param .b32 result;\n"
"\tst.param.b32 [next], %less;\n"
"\tcall.uni (result), nested, (next);\n"
"\tld.param.b32 %sum, [result];\n"
"\t}\n"
"\tld.local.u32 %mine, [%at];\n"
"\tadd.u32 %sum, %sum, %mine;\n"
"DONE:\n"
"\tst.param.b32 [sum], %sum;\n"
"\tret;\n"
"}\n"
"\n"
".visible .entry recurse(.param .u32 n, .param .u64 out)\n"
"{\n"
"\t.reg .b32 %n, %sum;\n"
"\t.reg .b64 %out;\n"
"\tld.param.u32 %n, [n];\n"
"\tld.param.u64 %out, [out];\n"
"\tcvta.to.global.u64 %out, %out;\n"
"\t{\n"
"\t.param .b32 first;\n"
"\t.param .b32 result;\n"
"\tst.param.b32 [first], %n;\n"
"\tcall.uni (result), nested, (first);\n"
"\tld.param.b32 %sum, [result];\n"
"\t}\n"
"\tst.global.u32 [%out], %sum;\n"
"\tret;\n"
"}\n"
"\n"
".visible .entry static_frame(.param .u32 n, .param .u64 out)\n"
"{\n"
"\t.local .align 4 .b8 frame[16384];\n"
"\t.reg .b32 %n, %base, %at, %other, %value;\n"
"\t.reg .b64 %out;\n"
"\tld.param.u32 %n, [n];\n"
"\tld.param.u64 %out, [out];\n"
"\tcvta.to.global.u64 %out, %out;\n"
"\tmov.u32 %base, frame;\n"
"\tmul.lo.u32 %at, %n, 77;\n"
"\tand.b32 %at, %at, 4095;\n"
"\tshl.b32 %at, %at, 2;\n"
"\tadd.u32 %at, %at, %base;\n"
"\tand.b32 %other, %n, 4095;\n"
"\tshl.b32 %other, %other, 2;\n"
"\tadd.u32 %other, %other, %base;\n"
"\tst.local.u32 [%at], %n;\n"
"\tst.local.u32 [%other], %other;\n"
"\tld.local.u32 %value, [%at];\n"
"\tst.global.u32 [%out], %value;\n"
"\tret;\n"
"}\n";
/* clang-format on */

static int set_limit(int limit, size_t bytes)
{
	return CU(cuCtxSetLimit, limit, bytes);
}

static long long get_limit(int limit)
{
	size_t bytes = 0;
	int result = CU(cuCtxGetLimit, &bytes, limit);

	return result ? -result : (long long)bytes;
}

static long long free_mib(void)
{
	size_t free_bytes = 0;
	size_t total_bytes = 0;

	(void)CU(cuMemGetInfo_v2, &free_bytes, &total_bytes);
	return (long long)(free_bytes / MIB);
}

static void cost(const void *argument)
{
	struct session session;
	long long before;

	(void)argument;
	session_begin(&session);
	before = free_mib();
	fact("heap", set_limit(CUDA_LIMIT_MALLOC_HEAP_SIZE, MIB));
	fact("heap_gives_mib", free_mib() - before);
	fact("printf", set_limit(CUDA_LIMIT_PRINTF_FIFO_SIZE, 65536));
	fact("printf_gives_mib", free_mib() - before);
	fact("stack_256", set_limit(CUDA_LIMIT_STACK_SIZE, 256));
	fact("stack_256_gives_mib", free_mib() - before);
	before = free_mib();
	fact("stack_1024", set_limit(CUDA_LIMIT_STACK_SIZE, 1024));
	fact("stack_1024_takes_mib", before - free_mib());
	fact("stack_8192", set_limit(CUDA_LIMIT_STACK_SIZE, 8192));
	fact("stack_8192_takes_mib", before - free_mib());
}

/* The FIFO keeps its size once a kernel could have written to it. */
static void fifo(const void *argument)
{
	struct session session;
	struct cuda_function *function;
	uint32_t zero = 0;
	void *parameters[] = {&zero};

	(void)argument;
	session_begin(&session);
	(void)session_launch(&session, "nop", NULL, NULL);
	function = session_function(&session, "fault_assert");
	fact("before", set_limit(CUDA_LIMIT_PRINTF_FIFO_SIZE, MIB));
	fact("before_bytes", get_limit(CUDA_LIMIT_PRINTF_FIFO_SIZE));
	fact("launch", CU(cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
	fact("sync", CU(cuCtxSynchronize));
	fact("after", set_limit(CUDA_LIMIT_PRINTF_FIFO_SIZE, 2 * MIB));
	fact("after_bytes", get_limit(CUDA_LIMIT_PRINTF_FIFO_SIZE));
	fact("heap_after", set_limit(CUDA_LIMIT_MALLOC_HEAP_SIZE, 16 * MIB));
	fact("heap_after_bytes", get_limit(CUDA_LIMIT_MALLOC_HEAP_SIZE));
	fact("sync_after", CU(cuCtxSynchronize));
}

/* Which of them waits for the work of the context. */
static void waits(const void *argument)
{
	struct session session;
	struct cuda_function *busy;
	uint64_t ns = 300000000;
	void *parameters[] = {&ns};

	(void)argument;
	session_begin(&session);
	busy = session_function(&session, "busy");
	(void)CU(cuLaunchKernel, busy, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
	fact("heap", set_limit(CUDA_LIMIT_MALLOC_HEAP_SIZE, 16 * MIB));
	fact("printf", set_limit(CUDA_LIMIT_PRINTF_FIFO_SIZE, MIB));
	fact("query_after_both", CU(cuStreamQuery, NULL));
	fact("stack", set_limit(CUDA_LIMIT_STACK_SIZE, 2048));
	fact("query_after_stack", CU(cuStreamQuery, NULL));
}

static struct cuda_function *stack_kernel(const char *entry)
{
	struct cuda_module *module = NULL;
	struct cuda_function *function = NULL;

	fact("load", CU(cuModuleLoadData, &module, stack_ptx));
	fact("function", CU(cuModuleGetFunction, &function, module, entry));
	return function;
}

/* A frame that the compiler knows of raises the limit at the first launch. */
static void frame(const void *argument)
{
	struct session session;
	struct cuda_function *function;
	long long before;
	uint64_t out = 0;
	uint32_t n = 5;
	uint32_t word = 0;
	void *parameters[] = {&n, &out};

	(void)argument;
	session_begin(&session);
	(void)CU(cuMemAlloc_v2, &out, MIB);
	fact("limit", set_limit(CUDA_LIMIT_STACK_SIZE, 256));
	function = stack_kernel("static_frame");
	before = free_mib();
	fact("launch", CU(cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
	fact("sync", CU(cuCtxSynchronize));
	(void)CU(cuMemcpyDtoH_v2, &word, out, 4);
	fact("value", word);
	fact("limit_after", get_limit(CUDA_LIMIT_STACK_SIZE));
	fact("takes_mib", before - free_mib());
	fact("launch_again",
	     CU(cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
	fact("sync_again", CU(cuCtxSynchronize));
	fact("takes_mib_again", before - free_mib());
}

struct depth {
	size_t stack_bytes;
	uint32_t n;
};

/* One process for each: a fault would poison the next. */
static void recurse(int socket, const void *argument)
{
	const struct depth *depth = argument;
	struct session session;
	struct cuda_module *module = NULL;
	struct cuda_function *function = NULL;
	uint64_t out = 0;
	uint32_t n = depth->n;
	uint32_t word = 0;
	void *parameters[] = {&n, &out};
	char name[64];
	int result;

	(void)socket;
	session_begin(&session);
	(void)CU(cuMemAlloc_v2, &out, MIB);
	(void)CU(cuModuleLoadData, &module, stack_ptx);
	(void)CU(cuModuleGetFunction, &function, module, "recurse");
	(void)set_limit(CUDA_LIMIT_STACK_SIZE, depth->stack_bytes);
	(void)CU(cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
	result = CU(cuCtxSynchronize);
	(void)snprintf(name, sizeof(name), "stack_%zu_depth_%u", depth->stack_bytes, n);
	fact(name, result);
	if (result != 0)
		return;
	(void)CU(cuMemcpyDtoH_v2, &word, out, 4);
	(void)snprintf(name, sizeof(name), "stack_%zu_depth_%u_value", depth->stack_bytes, n);
	fact(name, word);
}

/* Far enough from the first depth that faults: that one depends on the compiler. */
static void recursion(const void *argument)
{
	static const struct depth table[] = {{256, 0}, {1024, 2}, {1024, 8}, {8192, 20}};

	(void)argument;
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		struct role role;

		role_start(&role, recurse, &table[i]);
		role_end(&role, NULL);
	}
}

const struct suite_case cases_limit[] = {
	{"limit_cost", cost, NULL},	      {"limit_fifo", fifo, NULL},
	{"limit_waits", waits, NULL},	      {"limit_frame", frame, NULL},
	{"limit_recursion", recursion, NULL}, {NULL, NULL, NULL},
};
