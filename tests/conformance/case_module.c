/* SPDX-License-Identifier: MIT */
/* Modules, functions and launches that are refused. Runs in: see suite.h. */
#include <stdio.h>
#include <string.h>

#include "suite.h"

#define HEAD(version, target) ".version " version "\n.target " target "\n.address_size 64\n"

static void load(const char *name, const char *text)
{
	struct cuda_module *module = NULL;

	fact(name, CU(cuModuleLoadData, &module, text));
}

static void modules(const void *argument)
{
	struct session session;
	struct cuda_module *module = NULL;
	struct cuda_function *function = NULL;

	(void)argument;
	session_begin(&session);
	load("text", "this is no program");
	load("empty", "");
	load("broken_line", HEAD("6.0", "sm_50") ".visible .entry x()\n{\n\tnonsense;\n}\n");
	load("unended", HEAD("6.0", "sm_50") ".visible .entry x()\n{\n\tret;\n");
	load("version_99", HEAD("99.0", "sm_50") ".visible .entry x()\n{\n\tret;\n}\n");
	load("target_999", HEAD("6.0", "sm_999") ".visible .entry x()\n{\n\tret;\n}\n");
	load("elf", "\177ELF but no more");
	fact("null_image", CU(cuModuleLoadData, &module, NULL));
	fact("null_module", CU(cuModuleLoadData, NULL, suite_ptx()));
	fact("good", CU(cuModuleLoadData, &module, suite_ptx()));
	fact_yes("is_another", module != session.module);
	fact("function", CU(cuModuleGetFunction, &function, module, "nop"));
	fact("unknown_entry", CU(cuModuleGetFunction, &function, module, "no_such_entry"));
	fact("empty_entry", CU(cuModuleGetFunction, &function, module, ""));
	fact("null_entry", CU(cuModuleGetFunction, &function, module, NULL));
	fact("null_function", CU(cuModuleGetFunction, NULL, module, "nop"));
	fact("of_null_module", CU(cuModuleGetFunction, &function, NULL, "nop"));
	fact("unload", CU(cuModuleUnload, module));
	fact("unload_null", CU(cuModuleUnload, NULL));
	fact("still_good", CU(cuCtxSynchronize));
}

static int launch(struct cuda_function *function, unsigned int grid, unsigned int block_x,
		  unsigned int block_y, unsigned int shared)
{
	return CU(cuLaunchKernel, function, grid, 1, 1, block_x, block_y, 1, shared, NULL, NULL,
		  NULL);
}

static void launches(const void *argument)
{
	struct session session;
	struct cuda_function *nop;

	(void)argument;
	session_begin(&session);
	nop = session_function(&session, "nop");
	fact("good", launch(nop, 1, 1, 1, 0));
	fact("good_large", launch(nop, 65535, 1024, 1, 0));
	fact("null_function", launch(NULL, 1, 1, 1, 0));
	fact("grid_0", launch(nop, 0, 1, 1, 0));
	fact("block_0", launch(nop, 1, 0, 1, 0));
	fact("block_1025", launch(nop, 1, 1025, 1, 0));
	fact("block_1024_by_2", launch(nop, 1, 1024, 2, 0));
	fact("grid_y_65536", CU(cuLaunchKernel, nop, 1, 65536, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	fact("shared_48_kib", launch(nop, 1, 1, 1, 49152));
	fact("shared_1_mib", launch(nop, 1, 1, 1, 1048576));
	fact("sync", CU(cuCtxSynchronize));
}

static void computes(const void *argument)
{
	struct session session;
	uint64_t address = 0;
	uint64_t bad_words = 0;
	uint64_t bad = 0;
	uint64_t n = 1000;
	uint32_t seed = 7;
	uint32_t word = 0;
	void *fill[] = {&address, &n, &seed};
	void *add[] = {&address, &n};
	void *check[] = {&address, &n, &seed, &bad};

	(void)argument;
	session_begin(&session);
	(void)CU(cuMemAlloc_v2, &address, 4096);
	(void)CU(cuMemAlloc_v2, &bad, 8);
	(void)CU(cuMemsetD8_v2, bad, 0, 8);
	fact("fill", session_launch(&session, "fill", NULL, fill));
	fact("read", CU(cuMemcpyDtoH_v2, &word, address + 4 * 999, 4));
	fact_yes("as_documented", word == ((uint32_t)(999 * 2654435761U) ^ 7));
	fact("check", session_launch(&session, "check", NULL, check));
	(void)CU(cuMemcpyDtoH_v2, &bad_words, bad, 8);
	fact("bad_words", (long long)bad_words);
	fact("add1", session_launch(&session, "add1", NULL, add));
	(void)session_launch(&session, "check", NULL, check);
	(void)CU(cuMemcpyDtoH_v2, &bad_words, bad, 8);
	fact("bad_words_after_add1", (long long)bad_words);
}

static void vectors(const void *argument)
{
	struct session session;
	float values[3][256];
	uint64_t address[3] = {0};
	uint64_t n = 256;
	float factor = 0.5F;
	void *add[] = {&address[0], &address[1], &address[2], &n};
	void *scale[] = {&factor, &address[0], &address[2], &n};

	(void)argument;
	session_begin(&session);
	for (int i = 0; i < 256; i++) {
		values[0][i] = (float)i;
		values[1][i] = 1000.0F;
	}
	for (int i = 0; i < 3; i++)
		(void)CU(cuMemAlloc_v2, &address[i], sizeof(values[0]));
	for (int i = 0; i < 2; i++)
		(void)CU(cuMemcpyHtoD_v2, address[i], values[i], sizeof(values[0]));
	fact("vector_add", session_launch(&session, "vector_add", NULL, add));
	(void)CU(cuMemcpyDtoH_v2, values[2], address[2], sizeof(values[0]));
	fact_text("sum", "%.1f", (double)values[2][255]);
	fact("saxpy", session_launch(&session, "saxpy", NULL, scale));
	(void)CU(cuMemcpyDtoH_v2, values[2], address[2], sizeof(values[0]));
	fact_text("saxpy_sum", "%.1f", (double)values[2][255]);
}

/* A function of an unloaded module: the handle is stale. */
static void stale_function(const void *argument)
{
	struct session session;
	struct cuda_function *nop;

	(void)argument;
	session_begin(&session);
	nop = session_function(&session, "nop");
	fact("unload", CU(cuModuleUnload, session.module));
	fact("launch", launch(nop, 1, 1, 1, 0));
	fact("sync", CU(cuCtxSynchronize));
}

const struct suite_case cases_module[] = {
	{"module", modules, NULL}, {"launch", launches, NULL},	    {"compute", computes, NULL},
	{"vector", vectors, NULL}, {"stale", stale_function, NULL}, {NULL, NULL, NULL},
};
