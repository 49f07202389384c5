/* SPDX-License-Identifier: MIT */
/*
 * Opening libcuda and bringing a device up, with one clear message for each way it can fail.
 *
 * Runs in: worker and the drill's own workers. Never goes on after a failed call: an
 * uninitialised context that is passed on after a failed retain crashes inside the driver.
 * Read next: cuda.h, dl.c.
 */
#include "gpu/cuda.h"

#include <errno.h>

#include "common/err.h"
#include "gpu/dl.h"

#define CUDA_SONAME "libcuda.so.1"

DL_NOTE(cuda_note, "[{\"feature\":\"cuda\",\"description\":\"GPU work in worker processes\","
		   "\"priority\":\"recommended\",\"soname\":[\"" CUDA_SONAME "\"]}]");

#define CUDA_ROW(name, required, since) {#name, offsetof(struct cuda_door, name), required, since},
static const struct dl_symbol symbols[] = {CUDA_SYMBOLS(CUDA_ROW)};
#undef CUDA_ROW

/* cuDriverGetVersion works before cuInit; a stub has it too, and answers that it is one. */
static int check_version(struct cuda_door *door, struct gw_error *ret_error)
{
	int result;

	if (!door->cuDriverGetVersion)
		return err_own(ret_error, GW_EDRIVER,
			       "%s is no CUDA driver: it has no cuDriverGetVersion", CUDA_SONAME);
	result = door->cuDriverGetVersion(&door->version);
	return result == CUDA_SUCCESS ? 0 : cuda_error(ret_error, "cuDriverGetVersion", result);
}

static int fill(struct cuda_door *door, struct gw_error *ret_error)
{
	const struct dl_symbol *missing =
		dl_resolve(door->library, symbols, sizeof(symbols) / sizeof(symbols[0]), door);
	int code = check_version(door, ret_error);

	if (code < 0 || !missing)
		return code;
	return err_own(
		ret_error, GW_EDRIVER,
		"the GPU driver is too old: it has no %s, which needs a driver for CUDA %s or "
		"later, and this one is for CUDA %d.%d: install a newer driver",
		missing->name, missing->since, door->version / 1000, door->version % 1000 / 10);
}

int cuda_open(struct cuda_door *ret_door, struct gw_error *ret_error)
{
	struct cuda_door door = {0};
	int code = dl_open(CUDA_SONAME,
			   "install the NVIDIA driver's libraries; in a container, pass the host's "
			   "driver in (NVIDIA container toolkit)",
			   &door.library, ret_error);

	if (code < 0)
		return code;
	code = fill(&door, ret_error);
	if (code < 0) {
		dl_close(door.library);
		return code;
	}
	*ret_door = door;
	return 0;
}

void cuda_close(struct cuda_door *door)
{
	dl_close(door->library);
	*door = (struct cuda_door){0};
}

static int error_code(int result)
{
	switch (result) {
	case CUDA_ERROR_NO_DEVICE:
	case CUDA_ERROR_INVALID_DEVICE:
		return -ENODEV;
	case CUDA_ERROR_OUT_OF_MEMORY:
		return -ENOMEM;
	default:
		return GW_EDRIVER;
	}
}

int cuda_error(struct gw_error *ret_error, const char *call, int result)
{
	const char *name = gw_cuda_name(result);

	return err_set(ret_error, error_code(result), GW_DOMAIN_CUDA, result, "%s: %s (%d): %s",
		       call, name ? name : "unknown result", result, gw_cuda_text(result));
}

int cuda_init(const struct cuda_door *door, struct gw_error *ret_error)
{
	int result = door->cuInit(0);

	return result == CUDA_SUCCESS ? 0 : cuda_error(ret_error, "cuInit", result);
}

static int retain(const struct cuda_door *door, int device, struct cuda_context **ret_context,
		  struct gw_error *ret_error)
{
	struct cuda_context *context = NULL;
	int result = door->cuDevicePrimaryCtxRetain(&context, device);

	if (result != CUDA_SUCCESS)
		return cuda_error(ret_error, "cuDevicePrimaryCtxRetain", result);
	result = door->cuCtxSetCurrent(context);
	if (result != CUDA_SUCCESS) {
		(void)door->cuDevicePrimaryCtxRelease_v2(device);
		return cuda_error(ret_error, "cuCtxSetCurrent", result);
	}
	*ret_context = context;
	return 0;
}

int cuda_start_device(const struct cuda_door *door, int ordinal, struct cuda_context **ret_context,
		      struct gw_error *ret_error)
{
	int device = -1;
	int result;
	int code = cuda_init(door, ret_error);

	if (code < 0)
		return code;
	result = door->cuDeviceGet(&device, ordinal);
	if (result != CUDA_SUCCESS)
		return cuda_error(ret_error, "cuDeviceGet", result);
	return retain(door, device, ret_context, ret_error);
}
