/* SPDX-License-Identifier: MIT */
/*
 * Description: addresses of surviving state lie in the range, on whole granules, never overlap, and have a gap
 * behind each piece; what was given back is given out again, the lowest first; a full range says so.
 *
 * Runs in: one process without the operating system. The model is a table of what is out.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../seed.h"
#include "common/state_wire.h"
#include "ward/state_space.h"

#define PIECES 300
#define ROUNDS 20000

static void the_first_gap_is_taken(void **state)
{
	struct state_space space = {0};
	uint64_t a, b, c, d;

	(void)state;
	assert_int_equal(state_space_alloc(&space, STATE_GRANULE, &a), 0);
	assert_int_equal(state_space_alloc(&space, 4 * STATE_GRANULE, &b), 0);
	assert_int_equal(state_space_alloc(&space, STATE_GRANULE, &c), 0);
	assert_int_equal(a, STATE_BASE);
	assert_int_equal(b, a + 2 * STATE_GRANULE);
	assert_int_equal(c, b + 5 * STATE_GRANULE);
	state_space_free(&space, b);
	/* Five granules are not enough for five and the gap behind them. */
	assert_int_equal(state_space_alloc(&space, 5 * STATE_GRANULE, &d), 0);
	assert_int_equal(d, c + 2 * STATE_GRANULE);
	assert_int_equal(state_space_alloc(&space, 4 * STATE_GRANULE, &d), 0);
	assert_int_equal(d, b);
	/* An address that is not out is nobody's. */
	state_space_free(&space, STATE_BASE + STATE_GRANULE);
	assert_int_equal(space.count, 4);
	state_space_done(&space);
}

static void a_full_range_says_so(void **state)
{
	struct state_space space = {0};
	uint64_t a = 0, b = 0, c = 0;

	(void)state;
	assert_int_equal(state_space_alloc(&space, STATE_SPACE_BYTES / 2, &a), 0);
	assert_int_equal(state_space_alloc(&space, STATE_SPACE_BYTES / 2, &b), -ENOSPC);
	assert_int_equal(b, 0);
	assert_int_equal(state_space_alloc(&space, STATE_SPACE_BYTES / 2 - 2 * STATE_GRANULE, &b),
			 0);
	assert_int_equal(state_space_alloc(&space, STATE_GRANULE, &c), -ENOSPC);
	state_space_free(&space, a);
	assert_int_equal(state_space_alloc(&space, STATE_GRANULE, &c), 0);
	assert_int_equal(c, STATE_BASE);
	state_space_done(&space);
}

static void random_pieces_never_overlap(void **state)
{
	struct seed seed = seed_new("state_space");
	struct state_space space = {0};
	uint64_t starts[PIECES] = {0}, bytes[PIECES] = {0};

	(void)state;
	for (int round = 0; round < ROUNDS; round++) {
		uint32_t at = (uint32_t)seed_below(&seed, PIECES);

		if (starts[at]) {
			state_space_free(&space, starts[at]);
			starts[at] = 0;
			continue;
		}
		bytes[at] = (1 + seed_below(&seed, 64)) * STATE_GRANULE;
		assert_int_equal(state_space_alloc(&space, bytes[at], &starts[at]), 0);
		assert_int_equal(starts[at] % STATE_GRANULE, 0);
		assert_in_range(starts[at], STATE_BASE,
				STATE_BASE + STATE_SPACE_BYTES - bytes[at] - STATE_GRANULE);
		for (uint32_t i = 0; i < PIECES; i++) {
			if (i == at || !starts[i])
				continue;
			assert_true(starts[i] >= starts[at] + bytes[at] + STATE_GRANULE ||
				    starts[at] >= starts[i] + bytes[i] + STATE_GRANULE);
		}
	}
	/* First fit: it never went far. */
	for (uint32_t i = 0; i < PIECES; i++)
		assert_true(starts[i] < STATE_BASE + 2ULL * PIECES * 65 * STATE_GRANULE);
	state_space_done(&space);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_first_gap_is_taken),
		cmocka_unit_test(a_full_range_says_so),
		cmocka_unit_test(random_pieces_never_overlap),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
