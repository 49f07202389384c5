/* SPDX-License-Identifier: MIT */
/*
 * Opening NVML, with one clear message for each way it can fail.
 *
 * Runs in: probe only. Never asks the driver anything but its version.
 * Read next: nvml.h, dl.c.
 */
#include "gpu/nvml.h"

#include <errno.h>

#include "common/err.h"
#include "gpu/dl.h"

#define NVML_SONAME "libnvidia-ml.so.1"

DL_NOTE(nvml_note, "[{\"feature\":\"nvml\",\"description\":\"GPU memory amounts and events\","
		   "\"priority\":\"recommended\",\"soname\":[\"" NVML_SONAME "\"]}]");

#define NVML_ROW(name, required, since) {#name, offsetof(struct nvml_door, name), required, since},
static const struct dl_symbol symbols[] = {NVML_SYMBOLS(NVML_ROW)};
#undef NVML_ROW

static const struct {
	int number;
	int code;
	const char *name;
	const char *text;
} results[] = {
	{0, 0, "NVML_SUCCESS", "no error"},
	{1, GW_EDRIVER, "NVML_ERROR_UNINITIALIZED", "NVML is not initialised"},
	{2, -EINVAL, "NVML_ERROR_INVALID_ARGUMENT", "an argument is not valid"},
	{3, -EOPNOTSUPP, "NVML_ERROR_NOT_SUPPORTED", "this device cannot say that"},
	{4, -EACCES, "NVML_ERROR_NO_PERMISSION",
	 "no permission: check the owner and mode of /dev/nvidia*, or run as root"},
	{6, -ENODEV, "NVML_ERROR_NOT_FOUND", "there is no such device"},
	{7, GW_EDRIVER, "NVML_ERROR_INSUFFICIENT_SIZE", "the answer is larger than its room"},
	{8, GW_EDRIVER, "NVML_ERROR_INSUFFICIENT_POWER",
	 "a power cable of the GPU is not connected: check it"},
	{9, GW_EDRIVER, "NVML_ERROR_DRIVER_NOT_LOADED",
	 "the NVIDIA kernel module is not loaded: load it (modprobe nvidia) and check the kernel log"},
	{10, GW_EDRIVER, "NVML_ERROR_TIMEOUT", "the driver took too long"},
	{11, GW_EDRIVER, "NVML_ERROR_IRQ_ISSUE",
	 "the kernel found a fault of the GPU's interrupt: check the kernel log"},
	{12, GW_EDRIVER, "NVML_ERROR_LIBRARY_NOT_FOUND",
	 "a library of the driver is missing: install the driver's libraries anew"},
	{13, GW_EDRIVER, "NVML_ERROR_FUNCTION_NOT_FOUND",
	 "the driver is too old for this call: install a newer driver"},
	{14, GW_EDRIVER, "NVML_ERROR_CORRUPTED_INFOROM", "the GPU's InfoROM is corrupted"},
	{15, -ENODEV, "NVML_ERROR_GPU_IS_LOST",
	 "the GPU has fallen off the bus or cannot be reached: reboot the node"},
	{16, GW_EDRIVER, "NVML_ERROR_RESET_REQUIRED",
	 "the GPU must be reset before it can be used"},
	{17, GW_EDRIVER, "NVML_ERROR_OPERATING_SYSTEM",
	 "the operating system refused: check limits and a container's devices"},
	{18, GW_EDRIVER, "NVML_ERROR_LIB_RM_VERSION_MISMATCH",
	 "the driver's libraries and its loaded kernel module are of different versions: reboot, or "
	 "reload the module"},
	{19, -EBUSY, "NVML_ERROR_IN_USE", "the GPU is in use"},
	{20, -ENOMEM, "NVML_ERROR_MEMORY", "out of memory"},
	{21, -ENODATA, "NVML_ERROR_NO_DATA", "there is no data"},
	{23, GW_EDRIVER, "NVML_ERROR_INSUFFICIENT_RESOURCES", "the device has no room for this"},
	{25, GW_EDRIVER, "NVML_ERROR_ARGUMENT_VERSION_MISMATCH",
	 "the driver does not know this version of a structure"},
	{999, GW_EDRIVER, "NVML_ERROR_UNKNOWN",
	 "the driver failed and does not say why: check the kernel log"},
};

#define RESULTS (sizeof(results) / sizeof(results[0]))

static size_t find(int result)
{
	size_t i = 0;

	while (i < RESULTS && results[i].number != result)
		i++;
	return i;
}

const char *nvml_name(int result)
{
	size_t i = find(result);

	return i < RESULTS ? results[i].name : NULL;
}

int nvml_error(struct gw_error *ret_error, const char *call, int result)
{
	size_t i = find(result);

	if (i == RESULTS)
		return err_set(ret_error, GW_EDRIVER, GW_DOMAIN_NVML, result,
			       "%s: unknown result %d: see the driver's documentation", call,
			       result);
	return err_set(ret_error, results[i].code, GW_DOMAIN_NVML, result, "%s: %s (%d): %s", call,
		       results[i].name, result, results[i].text);
}

/* The version of the library needs no initialisation and no driver. */
static int too_old(const struct nvml_door *door, const struct dl_symbol *missing,
		   struct gw_error *ret_error)
{
	char version[NVML_VERSION_SIZE] = "";

	if (!door->nvmlSystemGetNVMLVersion ||
	    door->nvmlSystemGetNVMLVersion(version, sizeof(version)) != NVML_SUCCESS)
		version[0] = '\0';
	version[sizeof(version) - 1] = '\0';
	return err_own(ret_error, GW_EDRIVER,
		       "the GPU driver is too old: its NVML has no %s, which needs driver %s or "
		       "later, and this NVML is %s: install a newer driver",
		       missing->name, missing->since, version[0] ? version : "of no known version");
}

int nvml_open(struct nvml_door *ret_door, struct gw_error *ret_error)
{
	struct nvml_door door = {0};
	const struct dl_symbol *missing;
	int code = dl_open(NVML_SONAME,
			   "install the NVIDIA driver's libraries; in a container, pass the host's "
			   "driver in with the capability \"utility\"",
			   &door.library, ret_error);

	if (code < 0)
		return code;
	missing = dl_resolve(door.library, symbols, sizeof(symbols) / sizeof(symbols[0]), &door);
	if (missing) {
		code = too_old(&door, missing, ret_error);
		dl_close(door.library);
		return code;
	}
	*ret_door = door;
	return 0;
}

void nvml_close(struct nvml_door *door)
{
	dl_close(door->library);
	*door = (struct nvml_door){0};
}

int nvml_init(const struct nvml_door *door, struct gw_error *ret_error)
{
	int result = door->nvmlInit_v2();

	return result == NVML_SUCCESS ? 0 : nvml_error(ret_error, "nvmlInit_v2", result);
}
