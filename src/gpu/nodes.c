/* SPDX-License-Identifier: MIT */
/*
 * Reading the kernel's files about NVIDIA devices.
 *
 * Runs in: ward, host and command line. Never opens a file under /dev, never follows what a file says
 * to another path. Every text is cut to its room.
 *
 *	/proc/devices                           majors: "195 nvidia-frontend" or "195 nvidia"
 *	/proc/driver/nvidia/version             the kernel module's version
 *	/proc/driver/nvidia/gpus/ID/information model, UUID, minor of each GPU
 *	/dev/nvidiactl, nvidia-uvm, nvidiaN     what a process opens
 *
 * Read next: nodes.h.
 */
#include "gpu/nodes.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "common/err.h"
#include "common/fd.h"

#define MINOR_CONTROL 255

static void close_streamp(FILE **stream)
{
	if (*stream)
		(void)fclose(*stream);
}

static void close_folderp(DIR **folder)
{
	if (*folder)
		(void)closedir(*folder);
}

#define cleanup_stream __attribute__((cleanup(close_streamp)))
#define cleanup_folder __attribute__((cleanup(close_folderp)))

static FILE *open_text(const char *root, const char *path)
{
	char whole[PATH_MAX];

	if (snprintf(whole, sizeof(whole), "%s%s", root, path) >= (int)sizeof(whole))
		return NULL;
	return fopen(whole, "re");
}

/* Takes a number that fits in 20 bits, as the kernel's majors and minors do. */
static int32_t small_number(const char *text, const char **ret_end)
{
	char *end;
	long value;

	errno = 0;
	value = strtol(text, &end, 10);
	if (end == text || errno || value < 0 || value >= 1 << 20)
		return -1;
	*ret_end = end;
	return (int32_t)value;
}

/* Where the major of the driver NAME belongs; NULL where it is none of nvidia's. */
static int32_t *find_major(struct nodes *nodes, const char *name)
{
	/* "nvidia-frontend" up to driver 545, "nvidia" and "nvidiactl" after it */
	const struct {
		const char *name;
		int32_t *major;
	} known[] = {
		{"nvidia", &nodes->major_gpu},
		{"nvidia-frontend", &nodes->major_gpu},
		{"nvidia-uvm", &nodes->major_uvm},
		{"nvidia-caps", &nodes->major_caps},
		{"nvidia-caps-imex-channels", &nodes->major_imex},
		{"nvidia-nvlink", &nodes->major_nvlink},
		{"nvidia-nvswitch", &nodes->major_nvswitch},
		{"gdrdrv", &nodes->major_gdrdrv},
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (strcmp(name, known[i].name) == 0)
			return known[i].major;
	}
	return NULL;
}

static void read_majors(const char *root, struct nodes *nodes)
{
	cleanup_stream FILE *stream = open_text(root, "/proc/devices");
	char line[128];

	while (stream && fgets(line, sizeof(line), stream)) {
		const char *name = line;
		int32_t *known;
		int32_t major;

		if (strncmp(line, "Block", 5) == 0)
			return; /* character devices stand first */
		major = small_number(line, &name);
		if (major < 0 || *name++ != ' ')
			continue;
		line[strcspn(line, "\n")] = '\0';
		known = find_major(nodes, name);
		if (known)
			*known = major;
	}
}

/*
 * "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build ...": the version
 * is the first word of digits and dots that has a dot.
 */
static void read_version(const char *root, struct nodes *nodes)
{
	cleanup_stream FILE *stream = open_text(root, "/proc/driver/nvidia/version");
	char line[256];
	char *rest = line;
	char *word;

	if (!stream || !fgets(line, sizeof(line), stream))
		return;
	nodes->driver_loaded = true;
	while ((word = strtok_r(rest, " \t\n", &rest))) {
		if (strspn(word, "0123456789.") != strlen(word) || !strchr(word, '.'))
			continue;
		(void)snprintf(nodes->driver_version, sizeof(nodes->driver_version), "%s", word);
		return;
	}
}

/* If LINE is "KEY: \t value", copies the value. */
static bool take_value(const char *line, const char *key, char *value, size_t bytes)
{
	size_t length = strlen(key);

	if (strncmp(line, key, length) != 0)
		return false;
	line += length;
	line += strspn(line, " \t");
	(void)snprintf(value, bytes, "%.*s", (int)strcspn(line, "\n"), line);
	return true;
}

static void read_gpu(const char *root, const char *id, struct nodes *nodes)
{
	struct node_gpu gpu = {.minor = -1};
	char path[PATH_MAX];
	char line[256];
	char minor[16];
	const char *end;
	cleanup_stream FILE *stream = NULL;

	if (nodes->gpu_count == NODES_GPU_MAX || strlen(id) >= sizeof(gpu.pci))
		return;
	memcpy(gpu.pci, id, strlen(id) + 1);
	(void)snprintf(path, sizeof(path), "/proc/driver/nvidia/gpus/%s/information", id);
	stream = open_text(root, path);
	while (stream && fgets(line, sizeof(line), stream)) {
		if (take_value(line, "Device Minor:", minor, sizeof(minor)))
			gpu.minor = small_number(minor, &end);
		else if (!take_value(line, "Model:", gpu.model, sizeof(gpu.model)))
			(void)take_value(line, "GPU UUID:", gpu.uuid, sizeof(gpu.uuid));
	}
	nodes->gpus[nodes->gpu_count++] = gpu;
}

static int by_pci(const void *a, const void *b)
{
	return strcmp(((const struct node_gpu *)a)->pci, ((const struct node_gpu *)b)->pci);
}

static void read_gpus(const char *root, struct nodes *nodes)
{
	cleanup_folder DIR *folder = NULL;
	struct dirent *entry;
	char path[PATH_MAX];

	(void)snprintf(path, sizeof(path), "%s/proc/driver/nvidia/gpus", root);
	folder = opendir(path);
	while (folder && (entry = readdir(folder))) {
		if (entry->d_name[0] != '.')
			read_gpu(root, entry->d_name, nodes);
	}
	qsort(nodes->gpus, nodes->gpu_count, sizeof(nodes->gpus[0]), by_pci);
}

/* Looks at FOLDER/NAME. MAJOR and MINOR are -1 where any will do. Emulated ones are regular files. */
static struct node look(const char *folder, const char *name, bool emulated, int32_t major,
			int32_t minor)
{
	struct node node = {.state = NODE_MISSING, .major = -1, .minor = -1};
	struct stat info;

	(void)snprintf(node.path, sizeof(node.path), "%s/%s", folder, name);
	if (stat(node.path, &info) < 0) {
		node.state = errno == EACCES ? NODE_DENIED : NODE_MISSING;
		return node;
	}
	node.mode = info.st_mode & 07777;
	node.uid = info.st_uid;
	node.gid = info.st_gid;
	node.state = NODE_USABLE;
	if (S_ISCHR(info.st_mode)) {
		node.major = (int32_t)major(info.st_rdev);
		node.minor = (int32_t)minor(info.st_rdev);
	}
	if (emulated ? !S_ISREG(info.st_mode) : !S_ISCHR(info.st_mode))
		node.state = NODE_WRONG;
	else if ((major >= 0 && node.major != major) || (minor >= 0 && node.minor != minor))
		node.state = NODE_WRONG;
	else if (faccessat(AT_FDCWD, node.path, R_OK | W_OK, AT_EACCESS) < 0)
		node.state = NODE_DENIED;
	return node;
}

/* The N of "nvidiaN", or -1. */
static int32_t file_number(const char *name)
{
	const char *end;
	int32_t number;

	if (strncmp(name, "nvidia", 6) != 0 || name[6] < '0' || name[6] > '9')
		return -1;
	number = small_number(name + 6, &end);
	return number >= 0 && *end == '\0' ? number : -1;
}

static int by_number(const void *a, const void *b)
{
	const char *left = strrchr(((const struct node *)a)->path, '/');
	const char *right = strrchr(((const struct node *)b)->path, '/');

	return file_number(left + 1) - file_number(right + 1);
}

/* The driver's libraries start this set-uid program to make files that are missing. */
static void read_helper(const char *root, struct nodes *nodes)
{
	char path[PATH_MAX];
	struct stat info;

	(void)snprintf(path, sizeof(path), "%s/usr/bin/nvidia-modprobe", root);
	nodes->made_on_demand = nodes->driver_loaded && stat(path, &info) == 0 &&
				S_ISREG(info.st_mode) && (geteuid() == 0 || info.st_mode & S_ISUID);
}

static void read_files(const char *folder_path, struct nodes *nodes)
{
	int32_t minor = nodes->emulated ? -1 : MINOR_CONTROL;
	cleanup_folder DIR *folder = opendir(folder_path);
	struct dirent *entry;

	nodes->control = look(folder_path, "nvidiactl", nodes->emulated, nodes->major_gpu, minor);
	nodes->uvm = look(folder_path, "nvidia-uvm", nodes->emulated, nodes->major_uvm, -1);
	while (folder && (entry = readdir(folder))) {
		int32_t number = file_number(entry->d_name);

		if (number < 0 || nodes->file_count == NODES_GPU_MAX)
			continue;
		nodes->files[nodes->file_count++] =
			look(folder_path, entry->d_name, nodes->emulated, nodes->major_gpu,
			     nodes->emulated ? -1 : number);
	}
	qsort(nodes->files, nodes->file_count, sizeof(nodes->files[0]), by_number);
}

bool nodes_emulated(void)
{
	const char *folder = getenv("GPUWARD_SOFT_DIR");

	return folder && folder[0];
}

int nodes_read(const char *root, struct nodes *ret_nodes, struct gw_error *ret_error)
{
	const char *named = getenv("GPUWARD_SOFT_DIR");
	const char *soft = named && named[0] ? named : NULL;
	struct nodes nodes = {.emulated = soft != NULL,
			      .major_gpu = -1,
			      .major_uvm = -1,
			      .major_caps = -1,
			      .major_imex = -1,
			      .major_nvlink = -1,
			      .major_nvswitch = -1,
			      .major_gdrdrv = -1};
	char folder[sizeof(nodes.control.path) - 16];
	int used = soft ? snprintf(folder, sizeof(folder), "%s/dev", soft)
			: snprintf(folder, sizeof(folder), "%s/dev", root);

	if (used >= (int)sizeof(folder))
		return err_own(ret_error, -ENAMETOOLONG,
			       "the path of the device folder is too long");
	if (!nodes.emulated) {
		read_majors(root, &nodes);
		read_version(root, &nodes);
		read_gpus(root, &nodes);
		read_helper(root, &nodes);
	}
	read_files(folder, &nodes);
	/* An emulated machine makes its files at its first use. */
	if (soft && nodes.control.state == NODE_MISSING)
		nodes.made_on_demand = faccessat(AT_FDCWD, soft, W_OK | X_OK, AT_EACCESS) == 0;
	*ret_nodes = nodes;
	return 0;
}

static int refuse(const struct nodes *nodes, const struct node *node, struct gw_error *ret_error)
{
	switch (node->state) {
	case NODE_DENIED:
		return err_own(ret_error, -EACCES,
			       "no permission to use %s (mode %04o, user %u, group %u): join its "
			       "group or have its mode changed",
			       node->path, node->mode, node->uid, node->gid);
	case NODE_WRONG:
		return err_own(ret_error, -ENODEV,
			       "%s is not the device file that the driver has now: remove it and "
			       "run nvidia-modprobe",
			       node->path);
	case NODE_MISSING:
		if (nodes->made_on_demand)
			return 0;
		return err_own(ret_error, -ENODEV,
			       "%s is missing: run nvidia-modprobe, or pass the device into this "
			       "container",
			       node->path);
	case NODE_USABLE:
		break;
	}
	return 0;
}

/* With several GPUs, one that is usable is enough: a job is often given only its own. */
static int check_files(const struct nodes *nodes, struct gw_error *ret_error)
{
	struct node absent = {.state = NODE_MISSING};
	const struct node *worst = &absent;

	(void)snprintf(absent.path, sizeof(absent.path), "/dev/nvidiaN");
	for (size_t i = 0; i < nodes->file_count; i++) {
		if (nodes->files[i].state == NODE_USABLE)
			return 0;
		worst = &nodes->files[i];
	}
	return refuse(nodes, worst, ret_error);
}

int nodes_check(const struct nodes *nodes, struct gw_error *ret_error)
{
	int code;

	if (nodes->emulated && nodes->file_count == 0 && !nodes->made_on_demand)
		return err_own(ret_error, -ENODEV, "there is no emulated GPU in GPUWARD_SOFT_DIR");
	if (!nodes->emulated && !nodes->driver_loaded && nodes->control.state == NODE_MISSING)
		return err_own(ret_error, -ENODEV,
			       "no NVIDIA driver is loaded in the kernel: install it, or load it "
			       "with modprobe nvidia");
	if (!nodes->emulated && nodes->driver_loaded && nodes->gpu_count == 0 &&
	    nodes->file_count == 0)
		return err_own(
			ret_error, -ENODEV,
			"the NVIDIA driver %s is loaded but knows no GPU: check the kernel log",
			nodes->driver_version);
	code = refuse(nodes, &nodes->control, ret_error);
	if (code == 0)
		code = check_files(nodes, ret_error);
	return code == 0 ? refuse(nodes, &nodes->uvm, ret_error) : code;
}

bool nodes_have_gpu(void)
{
	struct nodes nodes;

	return nodes_read("", &nodes, NULL) == 0 && nodes_check(&nodes, NULL) == 0;
}
