/* SPDX-License-Identifier: MIT */
#include "stage.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#define FULL_MAJOR 1
#define FULL_MINOR 7
#define ZERO_MINOR 5

struct stage stage;

/* In a child: where it reports, and what it waits for. */
static int report_fd = -1;
static int life_fd = -1;

/* In the test: the lives of its children, which no other child may keep. */
static int lives[64];
static unsigned int life_count;

static void make_file(const char *path, const char *text)
{
	FILE *stream = fopen(path, "we");

	assert_non_null(stream);
	assert_true(fputs(text, stream) >= 0);
	assert_int_equal(fclose(stream), 0);
}

static void make_folder(const char *name)
{
	char path[128];

	(void)snprintf(path, sizeof(path), "%s/%s", stage.folder, name);
	assert_int_equal(mkdir(path, 0755), 0);
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
	(void)info;
	(void)kind;
	(void)walk;
	return remove(path);
}

static void remove_folder(void)
{
	assert_int_equal(nftw(stage.folder, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

static void begin_emulated(void)
{
	char path[96], text[8192];

	(void)snprintf(stage.control, sizeof(stage.control), "%s/dev/nvidiactl", stage.folder);
	(void)snprintf(path, sizeof(path), "%s/dev/nvidia-uvm", stage.folder);
	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	make_file(stage.device, text);
	(void)snprintf(stage.mappable, sizeof(stage.mappable), "%s", stage.device);
	make_file(stage.control, "");
	make_file(path, "");
	assert_int_equal(setenv("GPUWARD_SOFT_DIR", stage.folder, 1), 0);
}

static void begin_numbers(void)
{
	char path[96];

	make_folder("proc");
	(void)snprintf(path, sizeof(path), "%s/proc/devices", stage.folder);
	make_file(path, "Character devices:\n  1 nvidia\n\nBlock devices:\n");
	if (mknod(stage.device, S_IFCHR | 0666, makedev(FULL_MAJOR, FULL_MINOR)) < 0) {
		printf("device files cannot be made here: %s\n", strerror(errno));
		remove_folder();
		skip();
	}
	assert_int_equal(chmod(stage.device, 0666), 0);
	stage.foreign = "/dev/full";
	(void)snprintf(stage.mappable, sizeof(stage.mappable), "/dev/zero");
	stage.options.root = stage.folder;
	unsetenv("GPUWARD_SOFT_DIR");
}

void stage_begin(enum stage_kind kind)
{
	memset(&stage, 0, sizeof(stage));
	stage.kind = kind;
	(void)snprintf(stage.folder, sizeof(stage.folder), "/tmp/gpuward-stage-XXXXXX");
	assert_non_null(mkdtemp(stage.folder));
	assert_int_equal(chmod(stage.folder, 0755), 0);
	make_folder("dev");
	(void)snprintf(stage.device, sizeof(stage.device), "%s/dev/nvidia7", stage.folder);
	if (kind == STAGE_EMULATED)
		begin_emulated();
	else
		begin_numbers();
}

void stage_finish(void)
{
	scan_free(&stage.scan);
	unsetenv("GPUWARD_SOFT_DIR");
	remove_folder();
}

int stage_open(void)
{
	return open(stage.device, O_RDWR | O_CLOEXEC);
}

void stage_ready(int32_t value)
{
	if (write(report_fd, &value, sizeof(value)) != sizeof(value))
		_exit(99);
	(void)close(report_fd);
	report_fd = -1;
}

void stage_wait_end(void)
{
	char byte;

	while (read(life_fd, &byte, 1) < 0 && errno == EINTR)
		;
}

static _Noreturn void run_child(int32_t (*hold)(void *argument), void *argument)
{
	int32_t value;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (unsigned int i = 0; i < life_count; i++)
		(void)close(lives[i]);
	value = hold(argument);
	if (report_fd >= 0)
		stage_ready(value);
	stage_wait_end();
	_exit(0);
}

struct stage_child stage_child(int32_t (*hold)(void *argument), void *argument)
{
	struct stage_child child = {.life = -1};
	int report[2], life[2];

	assert_int_equal(pipe2(report, O_CLOEXEC), 0);
	assert_int_equal(pipe2(life, O_CLOEXEC), 0);
	child.pid = fork();
	assert_true(child.pid >= 0);
	if (child.pid == 0) {
		(void)close(report[0]);
		(void)close(life[1]);
		report_fd = report[1];
		life_fd = life[0];
		run_child(hold, argument);
	}
	(void)close(report[1]);
	(void)close(life[0]);
	child.life = life[1];
	assert_true(life_count < sizeof(lives) / sizeof(lives[0]));
	lives[life_count++] = child.life;
	assert_int_equal(read(report[0], &child.value, sizeof(child.value)), sizeof(child.value));
	(void)close(report[0]);
	if (child.value < 0)
		fail_msg("the child cannot do its part: %s", strerror(-child.value));
	return child;
}

void stage_end(struct stage_child *child)
{
	int status;

	for (unsigned int i = 0; i < life_count; i++) {
		if (lives[i] == child->life)
			lives[i] = lives[--life_count];
	}
	(void)close(child->life);
	assert_int_equal(waitpid(child->pid, &status, 0), child->pid);
	child->pid = -1;
}

void stage_kill(struct stage_child *child)
{
	assert_true(child->pid > 0);
	assert_int_equal(kill(child->pid, SIGKILL), 0);
	stage_end(child);
}

void stage_scan(void)
{
	struct gw_error error = {0};

	scan_free(&stage.scan);
	if (scan_run(&stage.options, &stage.scan, &error) < 0)
		fail_msg("%s", error.msg);
}

static const struct scan_reference *next_reference(pid_t pid, uint32_t *at)
{
	const struct scan_process *process = scan_find(&stage.scan, pid);

	if (!process || *at >= process->reference_count)
		return NULL;
	return &stage.scan.references[process->first_reference + (*at)++];
}

static bool is_staged(const struct scan_reference *reference)
{
	if (reference->device.kind == SCAN_DEVICE_UNKNOWN)
		return true;
	return reference->device.kind == SCAN_GPU &&
	       (reference->device.minor == FULL_MINOR ||
		(reference->device.minor == ZERO_MINOR && reference->held == SCAN_MAPPING));
}

unsigned int stage_count_all(pid_t pid)
{
	const struct scan_reference *reference;
	unsigned int count = 0;
	uint32_t at = 0;

	while ((reference = next_reference(pid, &at)))
		count += is_staged(reference);
	return count;
}

unsigned int stage_count(pid_t pid, enum scan_held held)
{
	const struct scan_reference *reference;
	unsigned int count = 0;
	uint32_t at = 0;

	while ((reference = next_reference(pid, &at)))
		count += reference->held == held && is_staged(reference);
	return count;
}

const struct scan_reference *stage_reference(pid_t pid, enum scan_held held)
{
	const struct scan_reference *reference;
	uint32_t at = 0;

	while ((reference = next_reference(pid, &at))) {
		if (reference->held == held && is_staged(reference))
			return reference;
	}
	return NULL;
}
