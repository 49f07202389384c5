/* SPDX-License-Identifier: MIT */
/*
 * Description: gw_isolate runs a function in a child of its own, says truly how each attempt ended, tries
 * again in a fresh process after a crash, refuses where a fork would not be safe, and leaves no child, no
 * descriptor and no mapping behind.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <gpuward.h>

#define MS 1000000ULL

/* What the functions under test leave in the shared region. */
struct shared {
	_Atomic uint32_t runs;
	_Atomic int32_t pids[8];
	_Atomic uint32_t sum;
};

/* What a function is to do in each of its attempts. */
struct plan {
	enum act {
		RETURN,
		EXIT,
		SIGNAL,
		ABORT,
		SLEEP,
		STOP,
		FORK
	} acts[4];
	int values[4];
	int heard; /* calls of on_attempt */
	struct gw_exit exits[4];
};

_Noreturn static void sleep_for_ever(void)
{
	for (;;)
		(void)pause();
}

static int follow_plan(const struct gw_isolated *run)
{
	struct plan *plan = run->argument;
	struct shared *shared = run->shared;
	int value = plan->values[run->attempt];

	shared->pids[run->attempt] = getpid();
	shared->runs++;
	switch (plan->acts[run->attempt]) {
	case RETURN:
		return value;
	case EXIT:
		_exit(value);
	case SIGNAL:
		(void)signal(value, SIG_DFL);
		(void)raise(value);
		break;
	case ABORT:
		abort();
	case STOP:
		(void)raise(SIGSTOP);
		break;
	case FORK:
		if (fork() > 0)
			(void)pause();
		return value; /* in the grandchild: nobody may take it for the answer */
	case SLEEP:
		break;
	}
	sleep_for_ever();
}

static void listen_to_attempts(const struct gw_exit *exit, uint32_t attempt, void *argument)
{
	struct plan *plan = argument;

	assert_int_equal(attempt, plan->heard);
	plan->exits[plan->heard++] = *exit;
}

static struct gw_isolate_options options_for(struct plan *plan)
{
	struct gw_isolate_options options = GW_OPTIONS(struct gw_isolate_options);

	options.argument = plan;
	options.on_attempt = listen_to_attempts;
	return options;
}

/* ---- nothing is left behind ---- */

static int count_descriptors(void)
{
	DIR *folder = opendir("/proc/self/fd");
	int count = 0;

	assert_non_null(folder);
	while (readdir(folder))
		count++;
	(void)closedir(folder);
	return count;
}

static int count_mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	int count = 0;

	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps))
		count += strstr(line, "/dev/zero") != NULL;
	(void)fclose(maps);
	return count;
}

static int descriptors_before;

static int set_up(void **state)
{
	(void)state;
	descriptors_before = count_descriptors();
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	assert_int_equal(count_descriptors(), descriptors_before);
	assert_int_equal(count_mappings(), 0);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	assert_int_equal(errno, ECHILD);
	return 0;
}

/* Runs CHECK in a forked process of its own, for tests that change limits, users or signals. */
static void in_own_process(void (*check)(void))
{
	int status = 0;
	pid_t pid;

	(void)fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		check();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* As assert_true(), for in_own_process(): a failure shows as an exit code other than 0. */
#define expect(condition)                                                                          \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			(void)fprintf(stderr, "line %d: not true: %s\n", __LINE__, #condition);    \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

/* ---- how it ends ---- */

static int add_up(const struct gw_isolated *run)
{
	struct shared *shared = run->shared;

	assert_int_equal(run->shared_bytes, 4096);
	for (uint32_t i = 1; i <= 100; i++)
		shared->sum += i;
	shared->pids[0] = getpid();
	return 0;
}

static void a_result_comes_back_through_shared_memory(void **state)
{
	struct gw_isolate_options options = GW_OPTIONS(struct gw_isolate_options);
	struct gw_error error = {0};
	struct gw_exit end;
	struct shared *shared;
	void *memory = NULL;

	(void)state;
	assert_int_equal(gw_isolate(add_up, &options, &memory, &end, &error), 0);
	shared = memory;
	assert_int_equal(shared->sum, 5050);
	assert_int_not_equal(shared->pids[0], getpid());
	assert_int_equal(end.pid, shared->pids[0]);
	assert_int_equal(end.end, GW_END_RESULT);
	assert_int_equal(end.source, GW_SOURCE_RESULT);
	assert_int_equal(end.value, 0);
	assert_int_equal(end.cuda, -1);
	assert_int_equal(end.xid, -1);
	assert_int_equal(end.device, -1);
	assert_string_equal(end.text, "the function returned 0");
	assert_true(end.started_ns < end.noticed_ns && end.noticed_ns <= end.gone_ns);
	assert_int_equal(error.code, 0);
	gw_isolate_free_shared(memory, 0);
}

static void a_value_of_its_own_is_no_crash(void **state)
{
	struct plan plan = {.acts = {RETURN}, .values = {-7}};
	struct gw_isolate_options options = options_for(&plan);
	struct gw_exit end;

	(void)state;
	assert_int_equal(gw_isolate(follow_plan, &options, NULL, &end, NULL), 1);
	assert_int_equal(end.end, GW_END_RESULT);
	assert_int_equal(end.value, -7);
	assert_int_equal(plan.heard, 0);
	/* Out of memory is CUDA's word for a process that is fine. */
	plan.values[0] = 2;
	assert_int_equal(gw_isolate(follow_plan, &options, NULL, &end, NULL), 1);
	assert_int_equal(end.end, GW_END_RESULT);
	assert_int_equal(end.cuda, -1);
}

static void each_kind_of_crash_gets_a_fresh_process(void **state)
{
	struct plan plan = {.acts = {SIGNAL, EXIT, RETURN, RETURN}, .values = {SIGSEGV, 9, 719, 0}};
	struct gw_isolate_options options = options_for(&plan);
	struct gw_exit end;
	struct shared *shared;
	void *memory = NULL;

	(void)state;
	options.max_attempts = 4;
	assert_int_equal(gw_isolate(follow_plan, &options, &memory, &end, NULL), 0);
	assert_int_equal(end.end, GW_END_RESULT);
	assert_int_equal(plan.heard, 3);
	assert_int_equal(plan.exits[0].end, GW_END_SIGNAL);
	assert_int_equal(plan.exits[0].value, SIGSEGV);
	assert_int_equal(plan.exits[0].source, GW_SOURCE_DEATH);
	assert_int_equal(plan.exits[1].end, GW_END_EXIT);
	assert_int_equal(plan.exits[1].value, 9);
	assert_int_equal(plan.exits[2].end, GW_END_CUDA);
	assert_int_equal(plan.exits[2].value, 719);
	assert_int_equal(plan.exits[2].cuda, 719);
	assert_non_null(strstr(plan.exits[2].text, "CUDA_ERROR_LAUNCH_FAILED"));
	shared = memory;
	assert_int_equal(shared->runs, 4);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(plan.exits[i].pid, shared->pids[i]);
		assert_int_not_equal(shared->pids[i], shared->pids[i + 1]);
	}
	gw_isolate_free_shared(memory, 0);
}

static void attempts_run_out(void **state)
{
	struct plan plan = {.acts = {ABORT, ABORT, RETURN}, .values = {0, 0, 700}};
	struct gw_isolate_options options = options_for(&plan);
	struct gw_exit end;
	struct shared *shared;
	void *memory = NULL;

	(void)state;
	assert_int_equal(gw_isolate(follow_plan, &options, &memory, &end, NULL), 1);
	assert_int_equal(end.end, GW_END_CUDA);
	assert_int_equal(end.value, 700);
	assert_non_null(strstr(end.text, "700 CUDA_ERROR_ILLEGAL_ADDRESS"));
	assert_int_equal(plan.heard, 2); /* the last one is told by ret_exit */
	assert_int_equal(plan.exits[0].end, GW_END_SIGNAL);
	assert_int_equal(plan.exits[0].value, SIGABRT);
	shared = memory;
	assert_int_equal(shared->runs, 3);
	gw_isolate_free_shared(memory, 0);
}

static void exit_with_0_is_not_success(void **state)
{
	struct plan plan = {.acts = {EXIT}, .values = {0}};
	struct gw_isolate_options options = options_for(&plan);
	struct gw_exit end;

	(void)state;
	options.max_attempts = 1;
	assert_int_equal(gw_isolate(follow_plan, &options, NULL, &end, NULL), 1);
	assert_int_equal(end.end, GW_END_EXIT);
	assert_int_equal(end.value, 0);
}

static void a_late_process_is_killed(void **state)
{
	static const enum act acts[] = {SLEEP, STOP};

	(void)state;
	for (size_t i = 0; i < sizeof(acts) / sizeof(acts[0]); i++) {
		struct plan plan = {.acts = {acts[i]}};
		struct gw_isolate_options options = options_for(&plan);
		struct gw_exit end;

		options.max_attempts = 1;
		options.deadline_ns = 60 * MS;
		assert_int_equal(gw_isolate(follow_plan, &options, NULL, &end, NULL), 1);
		assert_int_equal(end.end, GW_END_DEADLINE);
		assert_int_equal(end.source, GW_SOURCE_DEADLINE);
		assert_int_equal(end.value, 0);
		assert_true(end.noticed_ns - end.started_ns >= 60 * MS);
		assert_true(end.gone_ns >= end.noticed_ns);
		assert_non_null(strstr(end.text, "0.060 s"));
	}
}

static void a_deadline_that_holds_changes_nothing(void **state)
{
	struct plan plan = {.acts = {RETURN}};
	struct gw_isolate_options options = options_for(&plan);

	(void)state;
	options.deadline_ns = 30000 * MS;
	assert_int_equal(gw_isolate(follow_plan, &options, NULL, NULL, NULL), 0);
	options.deadline_ns = GW_FOREVER;
	assert_int_equal(gw_isolate(follow_plan, &options, NULL, NULL, NULL), 0);
}

static int killed_by_a_stranger(const struct gw_isolated *run)
{
	pid_t self = getpid();

	(void)run;
	if (fork() == 0) {
		(void)kill(self, SIGKILL);
		_exit(0);
	}
	sleep_for_ever();
}

static void a_kill_from_outside_is_a_signal(void **state)
{
	struct gw_isolate_options options = GW_OPTIONS(struct gw_isolate_options);
	struct gw_exit end;

	(void)state;
	options.max_attempts = 1;
	assert_int_equal(gw_isolate(killed_by_a_stranger, &options, NULL, &end, NULL), 1);
	assert_int_equal(end.end, GW_END_SIGNAL);
	assert_int_equal(end.value, SIGKILL);
	assert_string_equal(end.text, "signal 9 (Killed) ended the process");
}

static void a_grandchild_does_not_answer(void **state)
{
	struct plan plan = {.acts = {FORK}, .values = {5}};
	struct gw_isolate_options options = options_for(&plan);
	struct gw_exit end;

	(void)state;
	options.max_attempts = 1;
	options.deadline_ns = 100 * MS;
	assert_int_equal(gw_isolate(follow_plan, &options, NULL, &end, NULL), 1);
	assert_int_equal(end.end, GW_END_DEADLINE);
}

static int look_for_pieces(const struct gw_isolated *run)
{
	unsigned char *bytes = run->shared;

	if (run->attempt == 0) {
		memset(bytes, 0x5a, run->shared_bytes);
		return 700;
	}
	for (uint64_t i = 0; i < run->shared_bytes; i++)
		if (bytes[i] != 0x5a)
			return 1;
	memset(bytes, 0xa5, run->shared_bytes);
	return 0;
}

static void shared_memory_keeps_its_content_over_attempts(void **state)
{
	struct gw_isolate_options options = GW_OPTIONS(struct gw_isolate_options);
	void *memory = NULL;

	(void)state;
	options.shared_bytes = 3 * 1048576 + 5;
	assert_int_equal(gw_isolate(look_for_pieces, &options, &memory, NULL, NULL), 0);
	assert_int_equal(((unsigned char *)memory)[3 * 1048576 + 4], 0xa5);
	gw_isolate_free_shared(memory, 3 * 1048576 + 5);
	gw_isolate_free_shared(NULL, 17);
}

/* ---- hosts that make it hard ---- */

static void with_sigchld_ignored(void)
{
	struct plan plan = {.acts = {ABORT, RETURN}, .values = {0, 0}};
	struct gw_isolate_options options = options_for(&plan);
	struct gw_exit end;

	(void)signal(SIGCHLD, SIG_IGN);
	expect(gw_isolate(follow_plan, &options, NULL, &end, NULL) == 0);
	expect(plan.heard == 1);
	expect(plan.exits[0].end == GW_END_UNKNOWN);
	expect(plan.exits[0].value == 0);
	expect(strstr(plan.exits[0].text, "SIGCHLD"));
	expect(end.end == GW_END_RESULT && end.source == GW_SOURCE_RESULT);
}

static void a_host_that_ignores_sigchld_still_gets_results(void **state)
{
	(void)state;
	in_own_process(with_sigchld_ignored);
}

static void reap_everything(int number)
{
	(void)number;
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
}

static void with_a_handler_that_reaps(void)
{
	struct plan plan = {.acts = {EXIT, RETURN}, .values = {3, 0}};
	struct gw_isolate_options options = options_for(&plan);
	struct gw_exit end;

	(void)signal(SIGCHLD, reap_everything);
	expect(gw_isolate(follow_plan, &options, NULL, &end, NULL) == 0);
	expect(plan.exits[0].end == GW_END_UNKNOWN);
	expect(end.end == GW_END_RESULT);
}

static void a_host_that_reaps_all_children_still_gets_results(void **state)
{
	(void)state;
	in_own_process(with_a_handler_that_reaps);
}

/* The child holds the pipe's last write end, so its end is the pipe's end of file. */
static int hold_the_pipe(const struct gw_isolated *run)
{
	const int *write_end = run->argument;

	(void)!write(*write_end, "r", 1);
	sleep_for_ever();
}

static void a_child_ends_with_its_parent(void **state)
{
	struct gw_isolate_options options = GW_OPTIONS(struct gw_isolate_options);
	struct pollfd end = {.events = POLLIN};
	int pipes[2];
	char byte;
	pid_t pid;

	(void)state;
	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	options.argument = &pipes[1];
	pid = fork();
	if (pid == 0) {
		(void)gw_isolate(hold_the_pipe, &options, NULL, NULL, NULL);
		_exit(1);
	}
	(void)close(pipes[1]);
	assert_int_equal(read(pipes[0], &byte, 1), 1); /* the grandchild is in the function */
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	end.fd = pipes[0];
	assert_int_equal(poll(&end, 1, 5000), 1);
	assert_int_equal(read(pipes[0], &byte, 1), 0);
	(void)close(pipes[0]);
}

/* ---- refusals ---- */

static void options_are_checked(void **state)
{
	struct gw_isolate_options options = GW_OPTIONS(struct gw_isolate_options);
	struct gw_error error = {0};
	struct gw_exit end = {.pid = 77};
	void *memory = &options;

	(void)state;
	assert_int_equal(gw_isolate(NULL, &options, &memory, &end, &error), -EINVAL);
	assert_int_equal(error.code, -EINVAL);
	assert_int_equal(gw_isolate(add_up, NULL, &memory, &end, &error), -EINVAL);
	options.size = 8;
	assert_int_equal(gw_isolate(add_up, &options, &memory, &end, &error), -EINVAL);
	assert_non_null(strstr(error.msg, "GW_OPTIONS"));
	options.size = sizeof(options);
	options.reserved = 1;
	assert_int_equal(gw_isolate(add_up, &options, &memory, &end, &error), -EINVAL);
	options.reserved = 0;
	options.shared_bytes = UINT64_MAX - 3;
	assert_int_equal(gw_isolate(add_up, &options, &memory, &end, &error), -ENOMEM);
	options.shared_bytes = 1ULL << 62;
	assert_int_equal(gw_isolate(add_up, &options, &memory, &end, &error), -ENOMEM);
	assert_ptr_equal(memory, &options);
	assert_int_equal(end.pid, 77);
}

static void *wait_for_byte(void *argument)
{
	const int *read_end = argument;
	char byte;

	(void)!read(*read_end, &byte, 1);
	return NULL;
}

static void other_threads_are_refused(void **state)
{
	struct gw_isolate_options options = GW_OPTIONS(struct gw_isolate_options);
	struct gw_error error = {0};
	pthread_t thread;
	int pipes[2];

	(void)state;
	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	assert_int_equal(pthread_create(&thread, NULL, wait_for_byte, &pipes[0]), 0);
	assert_int_equal(gw_isolate(add_up, &options, NULL, NULL, &error), GW_ETHREADS);
	assert_int_equal(error.code, GW_ETHREADS);
	assert_non_null(strstr(error.msg, "1 other thread,"));
	assert_int_equal(write(pipes[1], "x", 1), 1);
	assert_int_equal(pthread_join(thread, NULL), 0);
	/* At once: the kernel may still list the thread that was just joined. */
	assert_int_equal(gw_isolate(add_up, &options, NULL, NULL, &error), 0);
	(void)close(pipes[0]);
	(void)close(pipes[1]);
}

static void joined_threads_are_forgotten(void **state)
{
	struct gw_isolate_options options = GW_OPTIONS(struct gw_isolate_options);

	(void)state;
	for (int i = 0; i < 50; i++) {
		pthread_t thread;
		int closed = -1;

		assert_int_equal(pthread_create(&thread, NULL, wait_for_byte, &closed), 0);
		assert_int_equal(pthread_join(thread, NULL), 0);
		assert_int_equal(gw_isolate(add_up, &options, NULL, NULL, NULL), 0);
	}
}

static void with_a_driver_loaded(void)
{
	struct gw_isolate_options options = GW_OPTIONS(struct gw_isolate_options);
	struct gw_error error = {0};
	char folder[] = "/tmp/gpuward-isolate-XXXXXX";
	char path[64];
	void *driver;

	expect(getenv("FAKE_CUDA") && mkdtemp(folder));
	(void)snprintf(path, sizeof(path), "%s/libcuda.so.1", folder);
	expect(symlink(getenv("FAKE_CUDA"), path) == 0);
	driver = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	(void)unlink(path);
	(void)rmdir(folder);
	expect(driver);
	expect(gw_isolate(add_up, &options, NULL, NULL, &error) == GW_ECUDALOADED);
	expect(strstr(error.msg, "CUDA driver"));
	(void)dlclose(driver);
	expect(gw_isolate(add_up, &options, NULL, NULL, &error) == 0);
}

static void a_loaded_driver_is_refused(void **state)
{
	(void)state;
	in_own_process(with_a_driver_loaded);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(a_result_comes_back_through_shared_memory),
		TEST(a_value_of_its_own_is_no_crash),
		TEST(each_kind_of_crash_gets_a_fresh_process),
		TEST(attempts_run_out),
		TEST(exit_with_0_is_not_success),
		TEST(a_late_process_is_killed),
		TEST(a_deadline_that_holds_changes_nothing),
		TEST(a_kill_from_outside_is_a_signal),
		TEST(a_grandchild_does_not_answer),
		TEST(shared_memory_keeps_its_content_over_attempts),
		TEST(a_host_that_ignores_sigchld_still_gets_results),
		TEST(a_host_that_reaps_all_children_still_gets_results),
		TEST(a_child_ends_with_its_parent),
		TEST(options_are_checked),
		TEST(other_threads_are_refused),
		TEST(joined_threads_are_forgotten),
		TEST(a_loaded_driver_is_refused),
	};
	const struct rlimit no_core = {0, 0};

	(void)setrlimit(RLIMIT_CORE, &no_core);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
