/* SPDX-License-Identifier: MIT */
/*
 * A libcuda.so.1 for tests of the door: it has every symbol, does nothing, and answers what the
 * environment says. FAKE_VERSION, FAKE_INIT, FAKE_DEVICE, FAKE_RETAIN, FAKE_CURRENT are the CUresults of
 * the calls that they are named after. Built with FAKE_OLD it is a driver for CUDA 10.2 that has few
 * symbols. The rest of the
 * symbols stands in cuda_rest.c. It is no emulated GPU: that one is softgpu.
 */
#include <stdlib.h>

#include "gpu/cuda.h"

#define EXPORT __attribute__((visibility("default")))

static int answer(const char *variable)
{
	const char *text = getenv(variable);

	return text ? atoi(text) : CUDA_SUCCESS;
}

EXPORT int cuDriverGetVersion(int *version)
{
#ifdef FAKE_OLD
	*version = 10020;
#else
	*version = 13000;
#endif
	return answer("FAKE_VERSION");
}

EXPORT int cuInit(unsigned int flags)
{
	(void)flags;
	return answer("FAKE_INIT");
}

#ifndef FAKE_OLD
EXPORT int cuDeviceGet(int *device, int ordinal)
{
	*device = ordinal;
	return answer("FAKE_DEVICE");
}

EXPORT int cuDevicePrimaryCtxRetain(struct cuda_context **context, int device)
{
	static char anything;

	(void)device;
	if (answer("FAKE_RETAIN") == CUDA_SUCCESS)
		*context = (struct cuda_context *)&anything;
	return answer("FAKE_RETAIN");
}

EXPORT int cuCtxSetCurrent(struct cuda_context *context)
{
	return context ? answer("FAKE_CURRENT") : CUDA_ERROR_INVALID_CONTEXT;
}
#endif
