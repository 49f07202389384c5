/* SPDX-License-Identifier: MIT */
/* What a snapshot is called in words. Read next: scan.h. */
#include <stdio.h>

#include "holders/scan.h"

const char *scan_held_name(enum scan_held held)
{
	static const char *const names[SCAN_HELD_KINDS] = {
		[SCAN_FD] = "fd",
		[SCAN_FD_OF_THREAD] = "thread fd",
		[SCAN_MAPPING] = "mapping",
		[SCAN_IN_FLIGHT] = "in flight",
		[SCAN_IO_URING] = "io_uring",
		[SCAN_EXITING] = "exiting",
	};

	return held < SCAN_HELD_KINDS ? names[held] : "?";
}

/* From a DRM minor to the name of its file: 0 to 63 are cards, 128 to 191 render nodes. */
static void drm_name(int32_t number, char *text, size_t bytes)
{
	if (number >= 128)
		(void)snprintf(text, bytes, "dri/renderD%d", number);
	else
		(void)snprintf(text, bytes, "dri/card%d", number);
}

void scan_device_name(const struct scan_device *device, char *text, size_t bytes)
{
	static const char *const names[] = {
		[SCAN_DEVICE_UNKNOWN] = "unknown",
		[SCAN_CONTROL] = "nvidiactl",
		[SCAN_GPU] = "nvidia",
		[SCAN_UVM] = "nvidia-uvm",
		[SCAN_UVM_TOOLS] = "nvidia-uvm-tools",
		[SCAN_CAPS] = "nvidia-cap",
		[SCAN_MODESET] = "nvidia-modeset",
		[SCAN_NVLINK] = "nvidia-nvlink",
		[SCAN_NVSWITCH] = "nvidia-nvswitch",
		[SCAN_IMEX_CHANNEL] = "imex channel",
		[SCAN_GDRDRV] = "gdrdrv",
		[SCAN_DRM] = "dri",
		[SCAN_DMABUF] = "dma-buf",
		[SCAN_DXG] = "dxg",
	};

	if (device->kind >= sizeof(names) / sizeof(names[0]))
		(void)snprintf(text, bytes, "?");
	else if (device->kind == SCAN_DRM && device->minor >= 0)
		drm_name(device->minor, text, bytes);
	else if (device->minor < 0)
		(void)snprintf(text, bytes, "%s", names[device->kind]);
	else
		(void)snprintf(text, bytes, "%s%d", names[device->kind], device->minor);
}
