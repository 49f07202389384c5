/* SPDX-License-Identifier: MIT */
/*
 * Description: what a user can get wrong, and what a machine can lack: each gives one clear line that
 * names what, where and what to do; nothing is left behind.
 *
 * The test's program is host and worker in one. Limits are set in processes of their own, since some cannot be
 * raised again.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <gpuward.h>

#include "../softgpu.h"
#include "../world.h"
#include "common/channel.h"
#include "common/fd.h"
#include "common/wire.h"

#define MS UINT64_C(1000000)

/* A user that nobody is, so that its processes can be counted. */
#define NOBODY 54321

/* The argument of a worker that does not know that it is one. */
#define FORGETFUL "forgetful"

/* ---- the worker ---- */

static int run_empty(struct gw_call *call)
{
	(void)call;
	return 0;
}

/* Publishes a result with lengths of its own choice for the task in hand, and completes MORE than that. */
static int publish(uint64_t output_bytes, uint32_t message_bytes, uint32_t more)
{
	struct channel_map map;
	struct channel_result *result;
	uint32_t number;

	if (channel_map(&map, WIRE_WORKER_CHANNEL, 0) < 0)
		return 1;
	number = atomic_load(&map.shared->completed);
	result = &map.shared->results[number % CHANNEL_DEPTH];
	result->output_bytes = output_bytes;
	result->message_bytes = message_bytes;
	channel_complete(map.shared, number + more, WIRE_WORKER_EVENT);
	for (;;)
		(void)pause();
}

static int run_long_output(struct gw_call *call)
{
	(void)call;
	return publish(UINT64_MAX, 0, 0);
}

static int run_long_message(struct gw_call *call)
{
	(void)call;
	return publish(0, UINT32_MAX, 0);
}

static int run_many_results(struct gw_call *call)
{
	(void)call;
	return publish(0, 0, 77);
}

/* The child returns too: a second process in the loop of the worker. */
static int run_fork_and_return(struct gw_call *call)
{
	pid_t child = fork();

	if (child > 0)
		memcpy(call->output, &child, sizeof(child));
	call->output_bytes = sizeof(child);
	return child < 0 ? 1 : 0;
}

static int run_slowly(struct gw_call *call)
{
	(void)call;
	(void)usleep(200000);
	return 0;
}

static const struct gw_function functions[] = {
	{.name = "empty", .run = run_empty},
	{.name = "long-output", .run = run_long_output},
	{.name = "long-message", .run = run_long_message},
	{.name = "many-results", .run = run_many_results},
	{.name = "fork-and-return", .run = run_fork_and_return},
	{.name = "slowly", .run = run_slowly},
	{.name = NULL},
};

/* ---- helpers ---- */

static struct gw_pool_options small(void)
{
	struct gw_pool_options options = GW_OPTIONS(struct gw_pool_options);

	options.total_input_bytes = options.total_output_bytes = 1 << 20;
	options.max_input_bytes = options.max_output_bytes = 1 << 16;
	options.start_deadline_ns = 5000 * MS;
	options.stop_deadline_ns = 500 * MS;
	options.restart_max_ns = 10 * MS;
	options.max_start_failures = 3;
	return options;
}

static struct gw_pool *open_pool(void)
{
	struct gw_pool_options options = small();
	struct gw_error error = {0};
	struct gw_pool *pool = NULL;

	if (gw_pool_open(&pool, &options, &error) != 0)
		fail_msg("gw_pool_open: %s", error.msg);
	return pool;
}

static void expect_text(const struct gw_error *error, const char *words)
{
	if (!strstr(error->msg, words))
		fail_msg("'%s' does not say '%s'", error->msg, words);
}

/* Opening a pool with OPTIONS fails with CODE and says WORDS and MORE. */
static void expect_refusal(const struct gw_pool_options *options, int code, const char *words,
			   const char *more)
{
	struct gw_error error = {0};
	struct gw_pool *pool = NULL;
	int result = gw_pool_open(&pool, options, &error);

	print_message("%s\n", error.msg);
	assert_null(pool);
	assert_int_equal(result, error.code);
	expect_text(&error, words);
	expect_text(&error, more);
	assert_int_equal(result, code);
}

static void expect_command_refused(const char *program, int code, const char *words,
				   const char *more)
{
	const char *const command[] = {program, NULL};
	struct gw_pool_options options = small();

	options.command = command;
	expect_refusal(&options, code, words, more);
}

/* It starts a process of its own, which is one too many where processes are limited. */
static void no_leak_search(void)
{
	const char *before = getenv("ASAN_OPTIONS");
	char options[512];

	(void)snprintf(options, sizeof(options), "%s:detect_leaks=0", before ? before : "");
	(void)setenv("ASAN_OPTIONS", options, 1);
}

/* Runs the body NAME of the table `bodies` in a fresh process, where a failure of cmocka's ends the process
 * and not a test. */
static void in_child(const char *name)
{
	int status = 0;
	pid_t child;

	(void)fflush(stdout);
	child = fork();

	assert_true(child >= 0);
	if (child == 0) {
		no_leak_search();
		(void)execl("/proc/self/exe", "test-bad_input", name, (char *)NULL);
		_exit(1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	if (status != 0)
		fail_msg("the child ended with status %x", (unsigned int)status);
}

static void limit(int resource, rlim_t value)
{
	const struct rlimit new_limit = {.rlim_cur = value, .rlim_max = value};

	assert_int_equal(setrlimit((__rlimit_resource_t)resource, &new_limit), 0);
}

/* ---- tasks ---- */

static void wrong_tasks_are_named(void **state)
{
	struct gw_task_options options = GW_OPTIONS(struct gw_task_options);
	struct gw_pool *pool = open_pool();
	struct gw_error error = {0};
	struct gw_task *task = NULL;

	(void)state;
	assert_int_equal(gw_task_new(pool, "nope", NULL, &task, &error), GW_ENOFUNCTION);
	expect_text(&error, "no function 'nope'; it has: empty, long-output");
	assert_int_equal(gw_task_new(pool, "no\n\x1b[31m", NULL, &task, &error), GW_ENOFUNCTION);
	expect_text(&error, "no function 'no??[31m'");
	options.input_bytes = (1 << 16) + 1;
	assert_int_equal(gw_task_new(pool, "empty", &options, &task, &error), -EMSGSIZE);
	expect_text(&error, "input of 65537 bytes is over the pool's max_input_bytes, 65536");
	options.input_bytes = 0;
	options.output_bytes = UINT64_MAX;
	assert_int_equal(gw_task_new(pool, "empty", &options, &task, &error), -EMSGSIZE);
	expect_text(&error, "max_output_bytes, 65536");
	options.output_bytes = 0;
	options.set_device = true;
	assert_int_equal(gw_task_new(pool, "empty", &options, &task, &error), -ENODEV);
	expect_text(&error, "device 0 is not one of the pool's");
	assert_null(task);
	gw_pool_close(pool);
}

/* The worker is not believed; its tasks end as poison with the reason, and the next one works. */
static void garbage_in_results_is_refused(void **state)
{
	const char *const names[] = {"long-output", "long-message", "many-results"};
	struct gw_task_options options = GW_OPTIONS(struct gw_task_options);
	struct gw_pool *pool = open_pool();

	(void)state;
	options.output_bytes = 64;
	options.max_attempts = 1;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct gw_outcome outcome = {0};
		struct gw_exit exit = {0};
		struct gw_task *task;

		assert_int_equal(gw_task_start(pool, names[i], NULL, &options, &task, NULL), 0);
		assert_int_equal(gw_task_wait(task, 10000 * MS, &outcome, NULL), 1);
		print_message("%s\n", outcome.message);
		assert_int_equal(outcome.kind, GW_POISON);
		assert_int_equal(gw_task_attempt(task, 0, &exit), 0);
		assert_int_equal(exit.end, GW_END_PROTOCOL);
		gw_task_free(task);
		assert_int_equal(gw_task_start(pool, "empty", NULL, NULL, &task, NULL), 0);
		assert_int_equal(gw_task_wait(task, 10000 * MS, &outcome, NULL), 1);
		assert_int_equal(outcome.kind, GW_DONE);
		gw_task_free(task);
	}
	gw_pool_close(pool);
}

static void a_child_that_returns_into_its_worker_ends(void **state)
{
	struct gw_task_options options = GW_OPTIONS(struct gw_task_options);
	struct gw_pool *pool = open_pool();
	struct gw_outcome outcome = {0};
	struct gw_task *task;
	pid_t child, ended = 0;

	(void)state;
	options.output_bytes = sizeof(child);
	assert_int_equal(gw_task_start(pool, "fork-and-return", NULL, &options, &task, NULL), 0);
	assert_int_equal(gw_task_wait(task, 10000 * MS, &outcome, NULL), 1);
	assert_int_equal(outcome.kind, GW_DONE);
	memcpy(&child, outcome.output, sizeof(child));
	gw_task_free(task);
	gw_pool_close(pool);
	/* It has become this process's own child: world_begin() makes it the reaper. */
	for (int i = 0; i < 1000 && ended == 0; i++) {
		ended = waitpid(child, NULL, WNOHANG);
		(void)usleep(ended == 0 ? 10000 : 0);
	}
	assert_int_equal(ended, child);
}

/* GW_FOREVER, and what is only nearly as long. */
static void deadlines_without_end_never_run_out(void **state)
{
	static const uint64_t long_ns[] = {GW_FOREVER, GW_FOREVER - 1, UINT64_C(1) << 63,
					   UINT64_C(1) << 52};

	(void)state;
	for (size_t i = 0; i < sizeof(long_ns) / sizeof(long_ns[0]); i++) {
		struct gw_pool_options options = small();
		struct gw_error error = {0};
		struct gw_pool *pool = NULL;
		struct gw_task *task;
		uint64_t began;

		options.start_deadline_ns = options.stop_deadline_ns = long_ns[i];
		options.task_deadline_ns = options.restart_max_ns = long_ns[i];
		if (gw_pool_open(&pool, &options, &error) != 0)
			fail_msg("gw_pool_open: %s", error.msg);
		assert_int_equal(gw_task_start(pool, "slowly", NULL, NULL, &task, NULL), 0);
		(void)usleep(50000);
		began = now_ns();
		gw_pool_close(pool);
		/* The worker had the time to finish. */
		assert_true(now_ns() - began >= 50 * MS);
	}
}

/* ---- the worker's program ---- */

static void make_file(char path[64], const char *text, mode_t mode)
{
	int fd;

	(void)snprintf(path, 64, "/tmp/gpuward-test-XXXXXX");
	fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	assert_int_equal(fchmod(fd, mode), 0);
	assert_int_equal(close(fd), 0);
}

static void a_program_that_cannot_run_is_named(void **state)
{
	char path[64];

	(void)state;
	expect_command_refused("/nowhere/worker", -ENOENT, "cannot run /nowhere/worker", "missing");
	expect_command_refused("no-such-worker", -ENOENT, "cannot run no-such-worker", "PATH");
	expect_command_refused("/tmp", -EACCES, "cannot run /tmp", "not executable");
	make_file(path, "#!/bin/sh\n", 0600);
	expect_command_refused(path, -EACCES, path, "not executable");
	assert_int_equal(unlink(path), 0);
	make_file(path, "neither a program nor a script\n", 0700);
	expect_command_refused(path, -ENOEXEC, path, "no program for this machine");
	assert_int_equal(unlink(path), 0);
}

static void a_worker_that_never_says_ready_is_given_up(void **state)
{
	const char *const silent[] = {"sleep", "100", NULL};
	struct gw_pool_options options = small();

	(void)state;
	options.command = silent;
	options.start_deadline_ns = 50 * MS;
	expect_refusal(&options, -ETIMEDOUT, "not ready when the start deadline ran out",
		       "3 starts in a row failed");
	expect_command_refused("true", GW_EPOOLFAILED, "exited with code 0 before it was ready",
			       "3 starts in a row failed");
}

/* What a program does whose main() does not begin with gw_is_worker(). */
static int forget_to_be_a_worker(void)
{
	struct gw_pool_options options = small();
	struct gw_pool *pool = NULL;
	int result = gw_pool_open(&pool, &options, NULL);

	gw_pool_close(pool);
	return result == -EINVAL ? 1 : 0;
}

static void a_main_that_forgets_to_be_a_worker_is_told(void **state)
{
	char self[256] = "";
	const char *const command[] = {self, FORGETFUL, NULL};
	struct gw_pool_options options = small();

	(void)state;
	assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
	options.command = command;
	expect_refusal(&options, -EINVAL, "main() must begin with if (gw_is_worker())",
		       "gw_worker_run(functions)");
}

static void another_version_is_refused(void **state)
{
	char folder[] = "/tmp/gpuward-test-XXXXXX";
	char path[64];
	const char *right = getenv("GPUWARD_LIBEXEC");
	struct gw_pool_options options = small();

	(void)state;
	assert_non_null(right);
	expect_command_refused(TEST_OTHER_WORKER, GW_EVERSION,
			       "the worker is linked to gpuward 0.0.9",
			       "the ward is " GW_VERSION_TEXT);
	assert_non_null(mkdtemp(folder));
	(void)snprintf(path, sizeof(path), "%s/gpuward-ward", folder);
	assert_int_equal(symlink(TEST_OTHER_WARD, path), 0);
	right = strdup(right);
	(void)setenv("GPUWARD_LIBEXEC", folder, 1);
	expect_refusal(&options, GW_EVERSION, "0.0.9", GW_VERSION_TEXT);
	(void)setenv("GPUWARD_LIBEXEC", right, 1);
	free((void *)(uintptr_t)right);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(folder), 0);
}

static void a_ward_that_is_missing_is_named(void **state)
{
	struct gw_pool_options options = small();
	char *right = strdup(getenv("GPUWARD_LIBEXEC"));

	(void)state;
	(void)setenv("GPUWARD_LIBEXEC", "/nowhere", 1);
	expect_refusal(&options, -ENOENT, "cannot find the helper program gpuward-ward",
		       "/nowhere/gpuward-ward");
	(void)setenv("GPUWARD_LIBEXEC", right, 1);
	free(right);
}

/* ---- devices ---- */

static void a_device_that_does_not_exist_is_named(void **state)
{
	const int devices[] = {7};
	struct gw_pool_options options = small();

	(void)state;
	soft_dir_new(NULL);
	options.devices = devices;
	options.n_devices = 1;
	expect_refusal(&options, -ENODEV, "device 7 is not there", "CUDA_VISIBLE_DEVICES=7");
	soft_dir_free();
}

static void become_nobody(void)
{
	assert_int_equal(setresgid(NOBODY, NOBODY, NOBODY), 0);
	assert_int_equal(setresuid(NOBODY, NOBODY, NOBODY), 0);
}

/* Whether another user can run what this build made: not where it lies in somebody's private folder. */
static bool nobody_can_run(void)
{
	char path[4096];
	int status = 1;
	pid_t child;

	if (getuid() != 0)
		return false;
	(void)snprintf(path, sizeof(path), "%s/gpuward-ward", getenv("GPUWARD_LIBEXEC"));
	child = fork();
	assert_true(child >= 0);
	if (child == 0)
		_exit(setresuid(NOBODY, NOBODY, NOBODY) != 0 || access(path, X_OK) != 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	return status == 0;
}

static void open_device_as_nobody(void)
{
	const int devices[] = {0};
	struct gw_pool_options options = small();

	become_nobody();
	options.devices = devices;
	options.n_devices = 1;
	expect_refusal(&options, -EACCES, "permission", getenv("GPUWARD_SOFT_DIR"));
}

static void devices_without_permission_are_named(void **state)
{
	const char *const files[] = {"nvidia0", "nvidiactl", "nvidia-uvm"};
	const int devices[] = {0};
	struct gw_pool_options options = small();
	struct gw_pool *pool = NULL;
	char path[300];

	(void)state;
	if (!nobody_can_run())
		skip();
	soft_dir_new(NULL);
	options.devices = devices;
	options.n_devices = 1;
	/* The machine makes its files when it is used first. */
	assert_int_equal(gw_pool_open(&pool, &options, NULL), 0);
	gw_pool_close(pool);
	assert_int_equal(chmod(soft_dir(), 0755), 0);
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		(void)snprintf(path, sizeof(path), "%s/dev/%s", soft_dir(), files[i]);
		assert_int_equal(chmod(path, 0), 0);
	}
	in_child("device-as-nobody");
	soft_dir_free();
}

/* ---- limits of the system ---- */

/* It opens and works, or says which limit is in the way. Returns whether it opened. */
static bool opens_or_says(const char *words)
{
	struct gw_pool_options options = small();
	struct gw_error error = {0};
	struct gw_pool *pool = NULL;
	struct gw_task *task;
	int result = gw_pool_open(&pool, &options, &error);

	if (result < 0) {
		print_message("%s\n", error.msg);
		assert_int_equal(result, error.code);
		expect_text(&error, words);
		return false;
	}
	assert_int_equal(gw_task_start(pool, "empty", NULL, NULL, &task, &error), 0);
	assert_int_equal(gw_task_wait(task, 10000 * MS, NULL, &error), 1);
	gw_pool_close(pool);
	return true;
}

static void open_with_few_descriptors(void)
{
	struct rlimit now;
	rlim_t n = 5;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &now), 0);
	do {
		now.rlim_cur = n++;
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &now), 0);
		assert_true(n < 64);
	} while (!opens_or_says("(ulimit -n)"));
	/* The last one was no accident: some had failed before. */
	assert_true(n > 10);
}

static void few_descriptors_are_named(void **state)
{
	(void)state;
	in_child("few-descriptors");
}

/* The host is full when its worker is replaced: the new one is given back, a few times, and the tasks end
 * with the reason. Nothing spins, and the pool closes as ever. */
static void a_full_host_ends_its_tasks(void **state)
{
	struct rlimit before, full;
	struct gw_worker_info info;
	struct gw_outcome outcome = {0};
	struct gw_error error = {0};
	struct gw_pool *pool;
	struct gw_task *task;

	(void)state;
	pool = open_pool();
	assert_int_equal(gw_pool_worker(pool, 0, &info), 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	full = (struct rlimit){.rlim_cur = 3, .rlim_max = before.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &full), 0);
	world_kill(info.pid);
	assert_int_equal(gw_task_start(pool, "empty", NULL, NULL, &task, NULL), 0);
	assert_int_equal(gw_task_wait(task, 10000 * MS, &outcome, NULL), 1);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	print_message("%s\n", outcome.message);
	assert_int_equal(outcome.kind, GW_LOST);
	assert_non_null(strstr(outcome.message, "the host cannot use worker 0"));
	assert_non_null(strstr(outcome.message, "ulimit -n"));
	gw_task_free(task);
	assert_int_equal(gw_task_new(pool, "empty", NULL, &task, &error), GW_EPOOLFAILED);
	expect_text(&error, "ulimit -n");
	gw_pool_close(pool);
}

static void open_with_few_processes(void)
{
	struct gw_pool_options options = small();

	become_nobody();
	/* This process alone; then one more, which is the ward. */
	limit(RLIMIT_NPROC, 2);
	expect_refusal(&options, -EAGAIN, "cannot start a process", "ulimit -u");
	limit(RLIMIT_NPROC, 1);
	expect_refusal(&options, -EAGAIN, "cannot start a process", "ulimit -u");
}

static void few_processes_are_named(void **state)
{
	(void)state;
	if (!nobody_can_run())
		skip();
	in_child("few-processes");
}

static void open_with_small_files(void)
{
	struct gw_pool_options options = small();

	limit(RLIMIT_FSIZE, 4096);
	expect_refusal(&options, -EFBIG, "RLIMIT_FSIZE", "ulimit -f");
}

static void small_files_are_named(void **state)
{
	(void)state;
	in_child("small-files");
}

static void open_with_little_memory(void)
{
	struct gw_pool_options options = small();

	options.total_input_bytes = UINT64_C(1) << 38;
	limit(RLIMIT_AS, UINT64_C(1) << 36);
	expect_refusal(&options, -ENOMEM, "cannot set up a pool", "ulimit -v");
	options = small();
	options.total_output_bytes = UINT64_C(1) << 38;
	expect_refusal(&options, -ENOMEM, "3 starts in a row failed", "ulimit -v");
}

static void little_memory_is_named(void **state)
{
	(void)state;
	if (TEST_SANITIZED)
		skip();
	in_child("little-memory");
}

static void open_with_full_shm(void)
{
	static char block[4096];
	int fd;

	assert_int_equal(unshare(CLONE_NEWNS), 0);
	assert_int_equal(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	assert_int_equal(mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=16k"), 0);
	fd = open("/dev/shm/full", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	while (write(fd, block, sizeof(block)) > 0)
		continue;
	assert_int_equal(errno, ENOSPC);
	assert_int_equal(close(fd), 0);
	assert_true(opens_or_says("/dev/shm"));
}

/* Shared memory is anonymous (memfd): a full /dev/shm, as in containers with 64 MiB, is no obstacle. */
static void a_full_shm_does_not_matter(void **state)
{
	int status;
	pid_t child = fork();

	(void)state;
	if (child == 0)
		_exit(unshare(CLONE_NEWNS) != 0 ||
		      mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	if (status != 0)
		skip();
	in_child("full-shm");
}

static void open_without_pidfd_open(void)
{
	struct gw_pool_options options = small();

	expect_refusal(&options, -ENOSYS, "pidfd_open is missing", "Linux 5.4");
}

static void open_without_memfd_create(void)
{
	struct gw_pool_options options = small();

	expect_refusal(&options, -ENOSYS, "memfd_create is missing", "Linux 5.4");
}

/* Runs the body NAME on a kernel without CALL. */
static void without_call(const char *call, const char *name)
{
	char self[256] = "";
	int status;
	pid_t child;

	assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
	(void)fflush(stdout);
	child = fork();
	if (child == 0) {
		(void)execl(TEST_WITHOUT, "without", call, self, name, (char *)NULL);
		_exit(1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(status, 0);
}

static void a_kernel_that_is_too_old_is_named(void **state)
{
	(void)state;
	without_call("pidfd_open", "without-pidfd_open");
	without_call("memfd_create", "without-memfd_create");
}

static const struct {
	const char *name;
	void (*body)(void);
} bodies[] = {
	{"without-pidfd_open", open_without_pidfd_open},
	{"without-memfd_create", open_without_memfd_create},
	{"device-as-nobody", open_device_as_nobody},
	{"few-descriptors", open_with_few_descriptors},
	{"few-processes", open_with_few_processes},
	{"small-files", open_with_small_files},
	{"little-memory", open_with_little_memory},
	{"full-shm", open_with_full_shm},
};

static int run_body(const char *name)
{
	for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
		if (strcmp(bodies[i].name, name) == 0) {
			bodies[i].body();
			return 0;
		}
	}
	return 1;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		world_test(wrong_tasks_are_named),
		world_test(garbage_in_results_is_refused),
		world_test(a_child_that_returns_into_its_worker_ends),
		world_test(deadlines_without_end_never_run_out),
		world_test(a_program_that_cannot_run_is_named),
		world_test(a_worker_that_never_says_ready_is_given_up),
		world_test(a_main_that_forgets_to_be_a_worker_is_told),
		world_test(another_version_is_refused),
		world_test(a_ward_that_is_missing_is_named),
		world_test(a_device_that_does_not_exist_is_named),
		world_test(devices_without_permission_are_named),
		world_test(few_descriptors_are_named),
		world_test(a_full_host_ends_its_tasks),
		world_test(few_processes_are_named),
		world_test(small_files_are_named),
		world_test(little_memory_is_named),
		world_test(a_full_shm_does_not_matter),
		world_test(a_kernel_that_is_too_old_is_named),
	};

	if (argc == 2 && strcmp(argv[1], FORGETFUL) == 0)
		return forget_to_be_a_worker();
	if (gw_is_worker())
		return gw_worker_run(functions);
	if (argc == 2)
		return run_body(argv[1]);
	world_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
