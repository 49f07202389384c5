/* SPDX-License-Identifier: MIT */
/*
 * Device numbers: 195 is nvidia's own for ever; the others are given out when a module is loaded and stand in
 * /proc/devices. DRM's are 226 for every driver, so there the driver's link in /sys decides.
 *
 * Read next: device.h, gpu/nodes.h.
 */
#include "holders/device.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/fd.h"
#include "holders/folder.h"

#define MAJOR_NVIDIA  195
#define MAJOR_MISC    10
#define MAJOR_DRM     226
#define MINOR_MODESET 254
#define MINOR_CONTROL 255

static struct scan_device make(enum scan_device_kind kind, int32_t number, int32_t gpu)
{
	return (struct scan_device){.kind = kind, .minor = number, .gpu_minor = gpu};
}

static struct scan_device of_main_major(uint32_t number)
{
	if (number == MINOR_CONTROL)
		return make(SCAN_CONTROL, -1, -1);
	if (number == MINOR_MODESET)
		return make(SCAN_MODESET, -1, -1);
	return make(SCAN_GPU, (int32_t)number, (int32_t)number);
}

static bool of_drm(const struct device_table *table, uint32_t number,
		   struct scan_device *ret_device)
{
	for (size_t i = 0; i < table->drm_count; i++) {
		if (table->drm[i].minor != (int32_t)number)
			continue;
		*ret_device = make(SCAN_DRM, (int32_t)number, table->drm[i].gpu_minor);
		return true;
	}
	return false;
}

static bool is_major(int32_t known, uint32_t major_number)
{
	return known >= 0 && (uint32_t)known == major_number;
}

static bool of_number(const struct device_table *table, uint32_t major_number, uint32_t number,
		      struct scan_device *ret_device)
{
	int32_t own = (int32_t)number;

	if (is_major(table->major_gpu, major_number))
		*ret_device = of_main_major(number);
	else if (is_major(table->major_uvm, major_number))
		*ret_device = make(number ? SCAN_UVM_TOOLS : SCAN_UVM, -1, -1);
	else if (is_major(table->major_caps, major_number))
		*ret_device = make(SCAN_CAPS, own, -1);
	else if (is_major(table->major_imex, major_number))
		*ret_device = make(SCAN_IMEX_CHANNEL, own, -1);
	else if (is_major(table->major_nvlink, major_number))
		*ret_device = make(SCAN_NVLINK, -1, -1);
	else if (is_major(table->major_nvswitch, major_number))
		*ret_device = make(SCAN_NVSWITCH, own, -1);
	else if (is_major(table->major_gdrdrv, major_number))
		*ret_device = make(SCAN_GDRDRV, -1, -1);
	else if (major_number == MAJOR_DRM)
		return of_drm(table, number, ret_device);
	else if (major_number == MAJOR_MISC && own == table->minor_dxg)
		*ret_device = make(SCAN_DXG, -1, -1);
	else
		return false;
	return true;
}

static struct device_inode inode_of(const struct statx *file)
{
	return (struct device_inode){
		.major = file->stx_dev_major, .minor = file->stx_dev_minor, .inode = file->stx_ino};
}

static bool same_inode(const struct device_inode *a, const struct device_inode *b)
{
	return a->inode == b->inode && a->major == b->major && a->minor == b->minor;
}

/* A device has no node of this system, or one with another inode. Where there are too many, nothing is said. */
static bool is_other_node(const struct device_table *table, const struct statx *file)
{
	struct device_inode inode = inode_of(file);

	if (table->node_count == DEVICE_NODE_MAX)
		return false;
	for (size_t i = 0; i < table->node_count; i++) {
		if (same_inode(&table->nodes[i].file, &inode))
			return false;
	}
	return true;
}

bool device_find_inode(const struct device_table *table, const struct device_inode *file,
		       struct scan_device *ret_device)
{
	if (!table->emulated)
		return false;
	for (size_t i = 0; i < table->node_count; i++) {
		if (!same_inode(&table->nodes[i].file, file))
			continue;
		*ret_device = table->nodes[i].device;
		return true;
	}
	return false;
}

bool device_find(const struct device_table *table, const struct statx *file,
		 struct scan_device *ret_device, bool *ret_other_node)
{
	if (table->emulated) {
		struct device_inode inode = inode_of(file);

		*ret_other_node = false;
		return S_ISREG(file->stx_mode) && device_find_inode(table, &inode, ret_device);
	}
	if (!S_ISCHR(file->stx_mode) ||
	    !of_number(table, file->stx_rdev_major, file->stx_rdev_minor, ret_device))
		return false;
	*ret_other_node = is_other_node(table, file);
	return true;
}

static void add_node(struct device_table *table, int folder, const char *name,
		     const struct scan_device *emulated)
{
	struct device_node node = {0};
	struct statx file;

	if (table->node_count == DEVICE_NODE_MAX ||
	    statx(folder, name, AT_SYMLINK_NOFOLLOW, STATX_TYPE | STATX_INO, &file) < 0)
		return;
	if (emulated)
		node.device = *emulated;
	else if (!S_ISCHR(file.stx_mode) ||
		 !of_number(table, file.stx_rdev_major, file.stx_rdev_minor, &node.device))
		return;
	node.file = inode_of(&file);
	node.major = file.stx_rdev_major;
	node.minor = file.stx_rdev_minor;
	table->nodes[table->node_count++] = node;
}

/* Every device file in one folder of /dev. */
static void read_folder(const char *root, const char *name, struct device_table *table)
{
	char path[PATH_MAX];
	const struct dirent *entry;
	DIR *folder;

	(void)snprintf(path, sizeof(path), "%s/dev/%s", root, name);
	folder = opendir(path);
	if (!folder)
		return;
	while ((entry = readdir(folder)))
		add_node(table, dirfd(folder), entry->d_name, NULL);
	(void)closedir(folder);
}

static void read_emulated(const struct nodes *nodes, struct device_table *table)
{
	struct scan_device control = make(SCAN_CONTROL, -1, -1);
	struct scan_device uvm = make(SCAN_UVM, -1, -1);

	add_node(table, AT_FDCWD, nodes->control.path, &control);
	add_node(table, AT_FDCWD, nodes->uvm.path, &uvm);
	for (size_t i = 0; i < nodes->file_count; i++) {
		const char *name = strrchr(nodes->files[i].path, '/') + strlen("/nvidia");
		int32_t number = (int32_t)strtol(name, NULL, 10);
		struct scan_device gpu = make(SCAN_GPU, number, number);

		add_node(table, AT_FDCWD, nodes->files[i].path, &gpu);
	}
}

/* The nvidiaN of the GPU that the device link of DRM's NUMBER points to; -1 where it is not known. */
static int32_t drm_gpu(int folder, const char *number, const struct nodes *nodes)
{
	char name[300], link[PATH_MAX];
	const char *pci;

	(void)snprintf(name, sizeof(name), "%s/device", number);
	if (folder_read_link(folder, name, link, sizeof(link)) < 0)
		return -1;
	pci = strrchr(link, '/');
	for (size_t i = 0; pci && i < nodes->gpu_count; i++) {
		if (strcmp(nodes->gpus[i].pci, pci + 1) == 0)
			return nodes->gpus[i].minor;
	}
	return -1;
}

static bool is_nvidia_driver(int folder, const char *number)
{
	char name[300], link[PATH_MAX];
	const char *driver;

	(void)snprintf(name, sizeof(name), "%s/device/driver", number);
	if (folder_read_link(folder, name, link, sizeof(link)) < 0)
		return false;
	driver = strrchr(link, '/');
	return driver && strncmp(driver + 1, "nvidia", strlen("nvidia")) == 0;
}

/* /sys/dev/char/226:N/device/driver */
static void read_drm(const char *root, const struct nodes *nodes, struct device_table *table)
{
	char path[PATH_MAX];
	const struct dirent *entry;
	DIR *folder;

	(void)snprintf(path, sizeof(path), "%s/sys/dev/char", root);
	folder = opendir(path);
	if (!folder)
		return;
	while ((entry = readdir(folder)) && table->drm_count < DEVICE_DRM_MAX) {
		if (strncmp(entry->d_name, "226:", 4) != 0 ||
		    !is_nvidia_driver(dirfd(folder), entry->d_name))
			continue;
		table->drm[table->drm_count].minor = (int32_t)strtol(entry->d_name + 4, NULL, 10);
		table->drm[table->drm_count++].gpu_minor =
			drm_gpu(dirfd(folder), entry->d_name, nodes);
	}
	(void)closedir(folder);
}

/* "10:125" */
static void read_dxg(const char *root, struct device_table *table)
{
	char path[PATH_MAX], text[32];

	(void)snprintf(path, sizeof(path), "%s/sys/class/misc/dxg/dev", root);
	if (folder_read_file(AT_FDCWD, path, text, sizeof(text)) > 3 &&
	    strncmp(text, "10:", 3) == 0)
		table->minor_dxg = (int32_t)strtol(text + 3, NULL, 10);
}

int device_table_read(const char *root, struct device_table *ret_table, struct gw_error *ret_error)
{
	struct nodes nodes;
	int code = nodes_read(root, &nodes, ret_error);

	if (code < 0)
		return code;
	memset(ret_table, 0, sizeof(*ret_table));
	ret_table->emulated = nodes.emulated;
	ret_table->major_gpu = nodes.major_gpu >= 0 ? nodes.major_gpu : MAJOR_NVIDIA;
	ret_table->major_uvm = nodes.major_uvm;
	ret_table->major_caps = nodes.major_caps;
	ret_table->major_imex = nodes.major_imex;
	ret_table->major_nvlink = nodes.major_nvlink;
	ret_table->major_nvswitch = nodes.major_nvswitch;
	ret_table->major_gdrdrv = nodes.major_gdrdrv;
	ret_table->minor_dxg = -1;
	if (nodes.emulated) {
		read_emulated(&nodes, ret_table);
		return 0;
	}
	read_drm(root, &nodes, ret_table);
	read_dxg(root, ret_table);
	read_folder(root, "", ret_table);
	read_folder(root, "nvidia-caps", ret_table);
	read_folder(root, "nvidia-caps-imex-channels", ret_table);
	read_folder(root, "dri", ret_table);
	return 0;
}

/* The number that is all of TEXT, or -1. */
static int32_t whole_number(const char *text, size_t length)
{
	int32_t number = 0;

	if (length == 0 || length > 6)
		return -1;
	for (size_t i = 0; i < length; i++) {
		if (text[i] < '0' || text[i] > '9')
			return -1;
		number = number * 10 + (text[i] - '0');
	}
	return number;
}

bool device_find_name(const char *name, size_t length, struct scan_device *ret_device)
{
	static const struct {
		const char *name;
		enum scan_device_kind kind;
		bool numbered;
	} names[] = {
		{"nvidiactl", SCAN_CONTROL, false},
		{"nvidia-uvm-tools", SCAN_UVM_TOOLS, false},
		{"nvidia-uvm", SCAN_UVM, false},
		{"nvidia-modeset", SCAN_MODESET, false},
		{"nvidia-nvlink", SCAN_NVLINK, false},
		{"nvidia-nvswitchctl", SCAN_NVSWITCH, false},
		{"nvidia-nvswitch", SCAN_NVSWITCH, true},
		{"nvidia-cap", SCAN_CAPS, true},
		{"nvidia", SCAN_GPU, true},
		{"gdrdrv", SCAN_GDRDRV, false},
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		size_t known = strlen(names[i].name);
		int32_t number = -1;

		if (length < known || strncmp(name, names[i].name, known) != 0)
			continue;
		if (names[i].numbered)
			number = whole_number(name + known, length - known);
		if (names[i].numbered ? number < 0 : length != known)
			continue;
		*ret_device = make(names[i].kind, number, names[i].kind == SCAN_GPU ? number : -1);
		return true;
	}
	return false;
}
