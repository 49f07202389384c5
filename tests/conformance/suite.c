/* SPDX-License-Identifier: MIT */
#include "suite.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "gpu/kernels_ptx.h"

static const char *current_case = "none";
static int facts = -1;

void suite_begin(const char *case_name, int facts_fd)
{
	current_case = case_name;
	facts = facts_fd;
}

void fact_text(const char *name, const char *format, ...)
{
	char line[512];
	va_list arguments;
	int used = snprintf(line, sizeof(line), "%s.%s = ", current_case, name);

	va_start(arguments, format);
	used += vsnprintf(line + used, sizeof(line) - (size_t)used, format, arguments);
	va_end(arguments);
	if (used > (int)sizeof(line) - 2)
		used = (int)sizeof(line) - 2;
	for (int i = 0; i < used; i++)
		if (line[i] == '\n')
			line[i] = ' ';
	line[used] = '\n';
	if (write(facts, line, (size_t)used + 1) < 0)
		_exit(3);
}

void fact(const char *name, long long value)
{
	fact_text(name, "%lld", value);
}

void fact_yes(const char *name, bool value)
{
	fact_text(name, "%s", value ? "yes" : "no");
}

void *suite_symbol(enum suite_library library, const char *name)
{
	static const char *const names[] = {"libcuda.so.1", "libnvidia-ml.so.1"};
	static void *libraries[2];
	void *symbol;

	if (!libraries[library])
		libraries[library] = dlopen(names[library], RTLD_NOW | RTLD_LOCAL);
	if (!libraries[library]) {
		fact_text("missing_library", "%s", names[library]);
		_exit(2);
	}
	symbol = dlsym(libraries[library], name);
	if (!symbol) {
		fact_text("missing_symbol", "%s", name);
		_exit(2);
	}
	return symbol;
}

static void step(const char *name, int result)
{
	char text[64];

	if (result == 0)
		return;
	(void)snprintf(text, sizeof(text), "stopped_at_%s", name);
	fact(text, result);
	_exit(2);
}

void session_begin(struct session *session)
{
	*session = (struct session){0};
	step("cuInit", CU(cuInit, 0));
	step("cuDeviceGet", CU(cuDeviceGet, &session->device, 0));
	step("cuDevicePrimaryCtxRetain",
	     CU(cuDevicePrimaryCtxRetain, &session->context, session->device));
	step("cuCtxSetCurrent", CU(cuCtxSetCurrent, session->context));
	step("cuModuleLoadData", CU(cuModuleLoadData, &session->module, gpu_kernels_ptx));
}

struct cuda_function *session_function(const struct session *session, const char *entry)
{
	struct cuda_function *function = NULL;

	step(entry, CU(cuModuleGetFunction, &function, session->module, entry));
	return function;
}

int session_launch(const struct session *session, const char *entry, struct cuda_stream *stream,
		   void **parameters)
{
	return CU(cuLaunchKernel, session_function(session, entry), 1, 1, 1, 1, 1, 1, 0, stream,
		  parameters, NULL);
}

const char *suite_ptx(void)
{
	return gpu_kernels_ptx;
}

struct cuda_allocation suite_exportable(void)
{
	return (struct cuda_allocation){
		.type = CUDA_MEMORY_PINNED,
		.handle_types = CUDA_HANDLE_POSIX_FD,
		.location = {.type = CUDA_LOCATION_DEVICE, .id = 0},
	};
}

int suite_map(uint64_t handle, size_t bytes, int access, uint64_t *ret_address)
{
	const struct cuda_access_range range = {
		.location = {.type = CUDA_LOCATION_DEVICE, .id = 0},
		.flags = (uint32_t)access,
	};
	int result = CU(cuMemAddressReserve, ret_address, bytes, 0, 0, 0);

	if (result == 0)
		result = CU(cuMemMap, *ret_address, bytes, 0, handle, 0);
	if (result == 0)
		result = CU(cuMemSetAccess, *ret_address, bytes, &range, 1);
	return result;
}

void suite_sleep_ms(unsigned int milliseconds)
{
	const struct timespec wait = {milliseconds / 1000, (long)(milliseconds % 1000) * 1000000};

	(void)nanosleep(&wait, NULL);
}
