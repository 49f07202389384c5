/* SPDX-License-Identifier: MIT */
/*
 * Description: each allocation of host, ward and worker fails once, from the first on until a run sees
 * no failure. Every run ends in a success or in one clear refusal; nothing crashes, hangs or is left
 * behind.
 *
 * The subject is this program, started anew with a library that counts its allocations (alloc.c).
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "../world.h"
#include "page.h"
#include "run.h"
#include "subject.h"

/* More than any run has: a ladder without an end is a failure. */
#define PLACES_MAX 2000

static const char *const role_names[LADDER_ROLES] = {"host", "ward", "worker"};

static struct ladder_page *page;
static char page_path[64];

static void make_page(void)
{
	int fd = memfd_create("ladder-page", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, sizeof(*page)), 0);
	page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(page, MAP_FAILED);
	(void)snprintf(page_path, sizeof(page_path), "/proc/%d/fd/%d", getpid(), fd);
}

static _Noreturn void be_subject(const struct run *run, const char *what)
{
	run_child(run);
	(void)setenv(LADDER_PAGE_ENV, page_path, 1);
	(void)setenv("LD_PRELOAD", TEST_PRELOAD, 1);
	(void)execl("/proc/self/exe", "ladder-host", what, (char *)NULL);
	_exit(SUBJECT_WRONG);
}

/* Runs the subject with allocation PLACE of ROLE failing. Returns whether there was one. */
static bool climb(const char *what, enum ladder_role role, uint32_t place, unsigned int *refusals)
{
	struct run run;
	bool refused;
	const char *fault;

	page->role = role;
	page->place = place;
	atomic_store(&page->seen, 0);
	run_begin(&run);
	run.host = fork();
	if (run.host == 0)
		be_subject(&run, what);
	assert_true(run.host > 0);
	run_finish(&run, -1, NULL, NULL);
	fault = run_judge(&run, &refused);
	if (fault)
		fail_msg("allocation %u of the %s fails: %s (status %x)\n%s", place,
			 role_names[role], fault, (unsigned int)run.status, run.text);
	if (getenv("LADDER_VERBOSE"))
		print_message("%-6s %2u %s%s", role_names[role], place, run.text,
			      run.text[0] ? "" : "done\n");
	*refusals += refused;
	return atomic_load(&page->seen) >= place;
}

static void climb_all(const char *what, enum ladder_role last_role)
{
	unsigned int refusals = 0;

	for (enum ladder_role role = LADDER_HOST; role <= last_role; role++) {
		uint32_t place = 1;

		while (climb(what, role, place, &refusals)) {
			place++;
			assert_true(place < PLACES_MAX);
		}
		/* The first run of a ladder that never begins would prove nothing. */
		assert_true(place > 1);
		print_message("%s: %u allocations\n", role_names[role], place - 1);
	}
	print_message("%u runs refused in clear words\n", refusals);
}

static void a_pool_survives_each_allocation_that_fails(void **state)
{
	(void)state;
	climb_all("pool", LADDER_WORKER);
}

static void gw_isolate_survives_each_allocation_that_fails(void **state)
{
	(void)state;
	climb_all("isolate", LADDER_HOST);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		world_test(a_pool_survives_each_allocation_that_fails),
		world_test(gw_isolate_survives_each_allocation_that_fails),
	};

	if (gw_is_worker())
		return gw_worker_run(subject_functions);
	if (argc == 2)
		return (int)(strcmp(argv[1], "pool") == 0 ? subject_pool() : subject_isolate());
	if (TEST_SANITIZED) {
		(void)puts("skipped: a sanitizer's allocator cannot be preloaded over");
		return 77;
	}
	world_begin();
	make_page();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
