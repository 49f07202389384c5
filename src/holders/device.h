/* SPDX-License-Identifier: MIT */
/*
 * Which files are GPU devices: by the number of the device file, or, for emulated GPUs, by their inode.
 *
 * Runs in: command line. The table is made once per scan and only read afterwards, by all of its threads. Opens
 * no device file. Read next: scan.h for the kinds.
 */
#ifndef GPUWARD_HOLDERS_DEVICE_H
#define GPUWARD_HOLDERS_DEVICE_H

#include <gpuward.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "gpu/nodes.h"
#include "holders/scan.h"

#define DEVICE_DRM_MAX	128
#define DEVICE_NODE_MAX 1024

/* A file system's number and an inode: one file. */
struct device_inode {
	uint32_t major;
	uint32_t minor;
	uint64_t inode;
};

/* A device file of this system. */
struct device_node {
	struct device_inode file;
	uint32_t major; /* of the device; unused for emulated ones */
	uint32_t minor;
	struct scan_device device;
};

struct device_table {
	bool emulated;
	int32_t major_gpu;
	int32_t major_uvm;
	int32_t major_caps;
	int32_t major_imex;
	int32_t major_nvlink;
	int32_t major_nvswitch;
	int32_t major_gdrdrv;
	int32_t minor_dxg; /* of the major 10; -1 not WSL */
	size_t drm_count;
	struct {
		int32_t minor;
		int32_t gpu_minor;
	} drm[DEVICE_DRM_MAX]; /* those of nvidia's driver */
	size_t node_count;
	struct device_node nodes[DEVICE_NODE_MAX];
};

/* Reads the numbers under ROOT. Returns 0, or as nodes_read(). */
int device_table_read(const char *root, struct device_table *ret_table, struct gw_error *ret_error);

/*
 * Is the file that STATX describes a GPU device? It needs stx_mode, stx_ino and the two device numbers.
 * Returns true, *RET_DEVICE, and *RET_OTHER_NODE: not the file that this system has for the device.
 */
bool device_find(const struct device_table *table, const struct statx *file,
		 struct scan_device *ret_device, bool *ret_other_node);

/* The same for the inode that /proc/PID/maps shows, which says only for emulated GPUs what it is. */
bool device_find_inode(const struct device_table *table, const struct device_inode *file,
		       struct scan_device *ret_device);

/*
 * Which device a path's last component names ("nvidiactl", "nvidia3", "nvidia-uvm" ...): the weakest evidence,
 * for texts of the kernel that have nothing else. Returns false where it names none.
 */
bool device_find_name(const char *name, size_t length, struct scan_device *ret_device);

#endif
