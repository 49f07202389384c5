/* SPDX-License-Identifier: MIT */
/*
 * Description: a child that SIGKILL does not end, as one that is blocked in a driver, does not block its
 * parent for ever: gw_isolate() says so and comes back.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <gpuward.h>

#define FREEZER "/sys/fs/cgroup/freezer"

static char group[128];

static int write_text(const char *name, const char *text)
{
	char path[256];
	int fd;
	ssize_t written;

	(void)snprintf(path, sizeof(path), "%s/%s", group, name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	written = write(fd, text, strlen(text));
	(void)close(fd);
	return written < 0 ? -EIO : 0;
}

/* A frozen process of a v1 freezer takes no signal. */
static int freeze_itself(const struct gw_isolated *run)
{
	char pid[32];

	(void)run;
	(void)snprintf(pid, sizeof(pid), "%d", getpid());
	if (write_text("cgroup.procs", pid) < 0 || write_text("freezer.state", "FROZEN") < 0)
		return 9;
	for (;;)
		(void)pause();
	return 0;
}

static void a_stuck_child_is_left_and_said(void **state)
{
	struct gw_isolate_options options = GW_OPTIONS(struct gw_isolate_options);
	struct gw_error error = {0};
	struct gw_exit exit = {0};

	(void)state;
	options.deadline_ns = 300000000;
	assert_int_equal(gw_isolate(freeze_itself, &options, NULL, &exit, &error), 1);
	assert_int_equal(write_text("freezer.state", "THAWED"), 0);
	assert_int_equal(exit.end, GW_END_DEADLINE);
	assert_true(exit.gone_ns == GW_UNKNOWN);
	assert_non_null(strstr(exit.text, "does not end"));
	assert_true(exit.pid > 1);
	assert_int_equal(waitpid(exit.pid, NULL, 0), exit.pid);
	/* And no second attempt was left behind. */
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(a_stuck_child_is_left_and_said)};
	int result;

	(void)snprintf(group, sizeof(group), FREEZER "/gpuward-isolate-%d", getpid());
	if (mkdir(group, 0700) < 0) {
		(void)printf("skipped: no freezer of control groups v1 to write to\n");
		return 77;
	}
	result = cmocka_run_group_tests(tests, NULL, NULL);
	(void)rmdir(group);
	return result;
}
