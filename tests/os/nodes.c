/* SPDX-License-Identifier: MIT */
/*
 * Description: device files and numbers are read from staged trees: a GPU machine, one without a driver,
 * one whose files are missing, of the wrong kind or not accessible, and emulated GPUs; each has its own
 * clear message. Files that a driver would never write do no harm.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cmocka.h>

#include "gpu/nodes.h"

static char root[64];
static struct nodes nodes;
static struct gw_error error;

static int set_up(void **state)
{
	(void)state;
	(void)snprintf(root, sizeof(root), "/tmp/gpuward-nodes-XXXXXX");
	unsetenv("GPUWARD_SOFT_DIR");
	memset(&error, 0, sizeof(error));
	return mkdtemp(root) ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
	(void)info;
	(void)kind;
	(void)walk;
	return remove(path);
}

static int tear_down(void **state)
{
	(void)state;
	unsetenv("GPUWARD_SOFT_DIR");
	return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void make_folders(char *path)
{
	for (char *slash = strchr(path + strlen(root) + 1, '/'); slash;
	     slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		if (mkdir(path, 0755) < 0)
			assert_int_equal(errno, EEXIST);
		*slash = '/';
	}
}

static void stage(const char *name, const char *text, mode_t mode)
{
	char path[256];
	FILE *stream;

	(void)snprintf(path, sizeof(path), "%s/%s", root, name);
	make_folders(path);
	stream = fopen(path, "we");
	assert_non_null(stream);
	assert_true(fputs(text, stream) >= 0);
	assert_int_equal(fclose(stream), 0);
	assert_int_equal(chmod(path, mode), 0);
}

static void stage_device(const char *name, unsigned int major_number, unsigned int minor_number)
{
	char path[256];

	if (geteuid() != 0) {
		printf("device files need root\n");
		skip();
	}
	(void)snprintf(path, sizeof(path), "%s/dev/%s", root, name);
	make_folders(path);
	if (mknod(path, S_IFCHR | 0666, makedev(major_number, minor_number)) < 0) {
		printf("device files cannot be made here\n");
		skip();
	}
}

static void stage_proc(void)
{
	stage("proc/devices",
	      "Character devices:\n  1 mem\n195 nvidia\n195 nvidiactl\n238 nvidia-uvm\n"
	      "241 nvidia-caps\n\nBlock devices:\n  7 nvidia\n",
	      0644);
	stage("proc/driver/nvidia/version",
	      "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\n"
	      "GCC version:  gcc version 12.2.0\n",
	      0644);
	stage("proc/driver/nvidia/gpus/0000:00:07.0/information",
	      "Model: \t\t NVIDIA H200\nIRQ:   \t\t 32\nGPU UUID: \t GPU-aa\nDevice Minor: \t 1\n",
	      0644);
	stage("proc/driver/nvidia/gpus/0000:00:06.0/information",
	      "Model: \t\t NVIDIA H200\nGPU UUID: \t GPU-bb\nDevice Minor: \t 0\n", 0644);
}

static void a_gpu_machine_is_read(void **state)
{
	(void)state;
	stage_proc();
	stage_device("nvidiactl", 195, 255);
	stage_device("nvidia1", 195, 1);
	stage_device("nvidia0", 195, 0);
	stage_device("nvidia-uvm", 238, 0);
	assert_int_equal(nodes_read(root, &nodes, &error), 0);
	assert_false(nodes.emulated);
	assert_string_equal(nodes.driver_version, "580.159.04");
	assert_int_equal(nodes.major_gpu, 195);
	assert_int_equal(nodes.major_uvm, 238);
	assert_int_equal(nodes.major_caps, 241);
	assert_int_equal(nodes.gpu_count, 2);
	assert_string_equal(nodes.gpus[0].pci, "0000:00:06.0");
	assert_string_equal(nodes.gpus[0].uuid, "GPU-bb");
	assert_string_equal(nodes.gpus[1].model, "NVIDIA H200");
	assert_int_equal(nodes.gpus[1].minor, 1);
	assert_int_equal(nodes.file_count, 2);
	assert_int_equal(nodes.files[0].minor, 0);
	assert_int_equal(nodes.files[1].minor, 1);
	assert_int_equal(nodes_check(&nodes, &error), 0);
}

static void no_driver_is_said(void **state)
{
	(void)state;
	stage("proc/devices", "Character devices:\n  1 mem\n", 0644);
	assert_int_equal(nodes_read(root, &nodes, &error), 0);
	assert_false(nodes.driver_loaded);
	assert_int_equal(nodes.major_gpu, -1);
	assert_int_equal(nodes_check(&nodes, &error), -ENODEV);
	assert_non_null(strstr(error.msg, "no NVIDIA driver is loaded"));
}

static void missing_files_are_named(void **state)
{
	(void)state;
	stage_proc();
	assert_int_equal(nodes_read(root, &nodes, &error), 0);
	assert_int_equal(nodes_check(&nodes, &error), -ENODEV);
	assert_non_null(strstr(error.msg, "/dev/nvidiactl is missing"));
}

static void files_that_are_made_on_demand_may_be_missing(void **state)
{
	(void)state;
	stage_proc();
	stage("usr/bin/nvidia-modprobe", "", 04755);
	assert_int_equal(nodes_read(root, &nodes, &error), 0);
	assert_true(nodes.made_on_demand);
	assert_int_equal(nodes_check(&nodes, &error), 0);
}

static void a_file_of_another_number_is_refused(void **state)
{
	(void)state;
	stage_proc();
	stage_device("nvidiactl", 195, 255);
	stage_device("nvidia0", 194, 0);
	assert_int_equal(nodes_read(root, &nodes, &error), 0);
	assert_int_equal(nodes_check(&nodes, &error), -ENODEV);
	assert_non_null(strstr(error.msg, "nvidia0"));
	assert_non_null(strstr(error.msg, "remove it"));
}

static void a_plain_file_is_no_device(void **state)
{
	(void)state;
	stage_proc();
	stage("dev/nvidiactl", "", 0666);
	assert_int_equal(nodes_read(root, &nodes, &error), 0);
	assert_int_equal(nodes.control.state, NODE_WRONG);
	assert_int_equal(nodes_check(&nodes, &error), -ENODEV);
}

static void denied_files_are_named_with_their_owner(void **state)
{
	(void)state;
	stage("dev/nvidia0", "", 0666);
	stage("dev/nvidia-uvm", "", 0666);
	stage("dev/nvidiactl", "", 0600);
	assert_int_equal(setenv("GPUWARD_SOFT_DIR", root, 1), 0);
	assert_int_equal(chmod(root, 0755), 0);
	if (geteuid() == 0)
		assert_int_equal(seteuid(65534), 0);
	else
		stage("dev/nvidiactl", "", 0000);
	assert_int_equal(nodes_read(root, &nodes, &error), 0);
	if (getuid() == 0)
		assert_int_equal(seteuid(0), 0);
	assert_int_equal(nodes_check(&nodes, &error), -EACCES);
	assert_non_null(strstr(error.msg, "no permission to use"));
	assert_non_null(strstr(error.msg, "nvidiactl"));
}

static void emulated_gpus_are_plain_files(void **state)
{
	(void)state;
	assert_false(nodes_emulated());
	assert_int_equal(setenv("GPUWARD_SOFT_DIR", root, 1), 0);
	assert_true(nodes_emulated());
	/* A new machine makes its files at its first use; one with files has what they say. */
	assert_true(nodes_have_gpu());
	stage("dev/nvidiactl", "", 0666);
	assert_int_equal(nodes_read("", &nodes, &error), 0);
	assert_true(nodes.emulated);
	assert_int_equal(nodes_check(&nodes, &error), -ENODEV);
	assert_non_null(strstr(error.msg, "emulated"));
	assert_false(nodes_have_gpu());
	stage("dev/nvidia-uvm", "", 0666);
	stage("dev/nvidia0", "", 0666);
	stage("dev/nvidia10", "", 0666);
	stage("dev/nvidia2", "", 0666);
	stage("dev/nvidia2x", "", 0666);
	assert_true(nodes_have_gpu());
	assert_int_equal(nodes_read("", &nodes, &error), 0);
	assert_int_equal(nodes.file_count, 3);
	assert_non_null(strstr(nodes.files[2].path, "nvidia10"));
	assert_int_equal(nodes.files[0].major, -1);
	assert_int_equal(setenv("GPUWARD_SOFT_DIR", "/nowhere", 1), 0);
	assert_false(nodes_have_gpu());
}

static void odd_texts_do_no_harm(void **state)
{
	char text[8192];

	(void)state;
	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	stage("proc/devices", "99999999999999999999 nvidia\n-1 nvidia\n195nvidia\n \n", 0644);
	stage("proc/driver/nvidia/version", text, 0644);
	stage("proc/driver/nvidia/gpus/0000:00:06.0/information", text, 0644);
	stage("proc/driver/nvidia/gpus/0000:00:07.0/information", "Device Minor: -4\nModel:\n",
	      0644);
	stage("proc/driver/nvidia/gpus/a-name-that-is-too-long-for-one/information", "", 0644);
	assert_int_equal(nodes_read(root, &nodes, &error), 0);
	assert_int_equal(nodes.major_gpu, -1);
	assert_true(nodes.driver_loaded);
	assert_string_equal(nodes.driver_version, "");
	assert_int_equal(nodes.gpu_count, 2);
	assert_int_equal(nodes.gpus[1].minor, -1);
	assert_string_equal(nodes.gpus[1].model, "");
	text[300] = '\0';
	assert_int_equal(nodes_read(text, &nodes, &error), -ENAMETOOLONG);
}

#define STAGED(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		STAGED(a_gpu_machine_is_read),
		STAGED(no_driver_is_said),
		STAGED(missing_files_are_named),
		STAGED(files_that_are_made_on_demand_may_be_missing),
		STAGED(a_file_of_another_number_is_refused),
		STAGED(a_plain_file_is_no_device),
		STAGED(denied_files_are_named_with_their_owner),
		STAGED(emulated_gpus_are_plain_files),
		STAGED(odd_texts_do_no_harm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
