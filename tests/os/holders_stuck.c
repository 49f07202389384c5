/* SPDX-License-Identifier: MIT */
/*
 * Description: a scan whose look at a process is stuck in the kernel ends in time, with everything else: other
 * threads go on, the process is told with what was read without waiting, and as late; and who was stuck does no harm
 * when it comes back long after.
 *
 * The kernel makes a reader of a process's memory wait for that process. Here the reading itself is replaced (by the
 * linker), and waits for the test.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "holders/parts.h"
#include "stage.h"

#define CHILDREN 8

void __real_memory_read(struct look *look, struct finding *finding);
void __wrap_memory_read(struct look *look, struct finding *finding);

/* Processes whose memory cannot be read before the gate opens. */
static struct {
	pid_t pids[CHILDREN];
	unsigned int count;
	int gate[2];
	_Atomic unsigned int waiting;
	_Atomic unsigned int released;
} stuck;

void __wrap_memory_read(struct look *look, struct finding *finding)
{
	bool waits = false;
	char byte;

	for (unsigned int i = 0; i < stuck.count; i++)
		waits = waits || stuck.pids[i] == look->pid;
	if (waits) {
		atomic_fetch_add(&stuck.waiting, 1);
		while (read(stuck.gate[0], &byte, 1) < 0 && errno == EINTR)
			;
	}
	__real_memory_read(look, finding);
	if (waits)
		atomic_fetch_add(&stuck.released, 1);
}

static int set_up(void **state)
{
	(void)state;
	stage_begin(STAGE_EMULATED);
	memset(&stuck, 0, sizeof(stuck));
	return pipe2(stuck.gate, O_CLOEXEC);
}

/* Threads that were left behind are gone when they have closed what they had open. */
static unsigned int open_descriptors(void)
{
	unsigned int count = 0;

	for (int fd = 0; fd < 1024; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

static int tear_down(void **state)
{
	(void)state;
	(void)close(stuck.gate[0]);
	(void)close(stuck.gate[1]);
	stage_finish();
	return 0;
}

static int32_t hold_fd(void *argument)
{
	(void)argument;
	return stage_open();
}

static void open_gate(unsigned int descriptors)
{
	unsigned int let_in = 0;

	/* A byte for each: the children have the gate's other end too, so closing it opens nothing. */
	while (atomic_load(&stuck.released) < atomic_load(&stuck.waiting) ||
	       open_descriptors() > descriptors) {
		if (let_in < atomic_load(&stuck.waiting)) {
			assert_int_equal(write(stuck.gate[1], "", 1), 1);
			let_in++;
		}
		(void)sched_yield();
	}
}

static void stuck_looks_are_left_behind(unsigned int blocked, uint64_t deadline_ns)
{
	struct stage_child children[CHILDREN];
	unsigned int descriptors, late = 0;

	for (unsigned int i = 0; i < CHILDREN; i++)
		children[i] = stage_child(hold_fd, NULL);
	for (unsigned int i = 0; i < blocked; i++)
		stuck.pids[i] = children[i].pid;
	stuck.count = blocked;
	descriptors = open_descriptors();
	stage.options.threads = 2;
	stage.options.deadline_ns = deadline_ns;
	stage_scan();
	for (unsigned int i = 0; i < CHILDREN; i++) {
		const struct scan_process *process = scan_find(&stage.scan, children[i].pid);

		assert_non_null(process);
		assert_int_equal(stage_count(children[i].pid, SCAN_FD), 1);
		assert_int_equal(process->ppid, getpid());
		late += (process->flags & SCAN_DETAILS_LATE) != 0;
		assert_int_equal(process->cmdline == NULL, i < blocked);
	}
	assert_int_equal(late, blocked);
	assert_int_equal(stage.scan.unseen.late, blocked);
	assert_int_equal(atomic_load(&stuck.waiting), blocked);
	open_gate(descriptors);
	for (unsigned int i = 0; i < CHILDREN; i++)
		stage_end(&children[i]);
}

static void one_stuck_look_is_left_behind(void **state)
{
	(void)state;
	stuck_looks_are_left_behind(1, 60000000000ULL);
}

static void more_stuck_looks_than_threads_are_left_behind(void **state)
{
	(void)state;
	stuck_looks_are_left_behind(CHILDREN - 2, 60000000000ULL);
}

static void the_deadline_ends_a_scan(void **state)
{
	struct stage_child child = stage_child(hold_fd, NULL);
	unsigned int descriptors = open_descriptors();
	char text[256];

	(void)state;
	stuck.pids[0] = child.pid;
	stuck.count = 1;
	stage.options.threads = 1;
	stage.options.deadline_ns = 1;
	stage_scan();
	assert_true(stage.scan.unseen.late > 0);
	scan_unseen_text(&stage.scan, text, sizeof(text));
	assert_non_null(strstr(text, "could not be looked at in time"));
	open_gate(descriptors);
	stage_end(&child);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(one_stuck_look_is_left_behind, set_up, tear_down),
		cmocka_unit_test_setup_teardown(more_stuck_looks_than_threads_are_left_behind,
						set_up, tear_down),
		cmocka_unit_test_setup_teardown(the_deadline_ends_a_scan, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
