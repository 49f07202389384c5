/* SPDX-License-Identifier: MIT */
/*
 * What the kernel says about NVIDIA devices, without any driver library: numbers, files, permissions.
 *
 * Runs in: ward, host and command line. Reads /proc and looks at /dev; never opens a device file, since
 * an open one is a reference to the GPU. A root path stands before every path, so that tests can stage
 * a tree; the running system's is "".
 *
 * Emulated GPUs: where GPUWARD_SOFT_DIR is set, the files are those in its folder dev/, which are
 * regular files; the device numbers are then unknown.
 *
 * Invariant: what is not known is -1 or an empty text, never 0. Read next: nodes.c.
 */
#ifndef GPUWARD_GPU_NODES_H
#define GPUWARD_GPU_NODES_H

#include <gpuward.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NODES_GPU_MAX 32

enum node_state {
	NODE_MISSING = 0,
	NODE_USABLE,
	NODE_DENIED, /* it is there, but this process may not read and write it */
	NODE_WRONG,  /* it is there, but it is no such device: another kind of file or number */
};

/* One device file. */
struct node {
	char path[128];
	enum node_state state;
	int32_t major; /* -1 where it is no device file */
	int32_t minor;
	uint32_t mode; /* permission bits, and whose it is; only where it is not missing */
	uint32_t uid;
	uint32_t gid;
};

/* One GPU as /proc/driver/nvidia/gpus/ID/information describes it. */
struct node_gpu {
	char pci[20]; /* "0000:00:06.0" */
	char model[64];
	char uuid[48];
	int32_t minor; /* N of /dev/nvidiaN; -1 unknown */
};

struct nodes {
	bool emulated;
	bool driver_loaded;  /* the kernel module is there */
	bool made_on_demand; /* files that are missing are made at first use */
	char driver_version[32];
	int32_t major_gpu; /* of /dev/nvidiaN and nvidiactl */
	int32_t major_uvm;
	int32_t major_caps;
	int32_t major_imex; /* of nvidia-caps-imex-channels/channelN */
	int32_t major_nvlink;
	int32_t major_nvswitch;
	int32_t major_gdrdrv; /* GPUDirect copies: a module of its own */
	struct node control;
	struct node uvm;
	size_t file_count; /* /dev/nvidiaN that exist */
	struct node files[NODES_GPU_MAX];
	size_t gpu_count; /* GPUs that the kernel module knows */
	struct node_gpu gpus[NODES_GPU_MAX];
};

/*
 * Reads everything under ROOT ("" for the running system). What is missing is no failure: it is left
 * unknown. Returns 0, or -ENAMETOOLONG.
 */
int nodes_read(const char *root, struct nodes *ret_nodes, struct gw_error *ret_error);

/*
 * Says whether a GPU can be used with what was read, and if not, why and what to do.
 * Returns 0; -ENODEV no driver, no GPU or no files; -EACCES no permission.
 */
int nodes_check(const struct nodes *nodes, struct gw_error *ret_error);

/* Is this process put on emulated GPUs? */
bool nodes_emulated(void);

/* Is there a GPU, real or emulated, that this process may use? Permissions count. */
bool nodes_have_gpu(void);

#endif
