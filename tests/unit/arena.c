/* SPDX-License-Identifier: MIT */
/*
 * Description: the arena hands out pieces that are aligned, lie inside it and never overlap, whatever the
 * order of allocations and frees; what was freed can be had again, in other sizes too; it says when it
 * is full, and an offset is untouched then.
 *
 * Runs in: one process without the operating system. The model is a table of the pieces that are out,
 * compared with each new one. The seed is printed: GPUWARD_TEST_SEED repeats a failure.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../seed.h"
#include "lib/arena.h"

#define PIECES 512

/* A piece that is out. */
struct piece {
	uint64_t offset;
	uint64_t bytes; /* as asked for; 0 = none */
};

static struct piece out[PIECES];

static uint64_t rounded(uint64_t bytes)
{
	uint64_t size = 64;

	while (size < bytes)
		size *= 2;
	return size;
}

/* Sizes of every kind: a few bytes, just at and just over a power of two, many pages. */
static uint64_t random_size(struct seed *seed)
{
	uint64_t power = UINT64_C(1) << seed_below(seed, 21);

	switch (seed_below(seed, 4)) {
	case 0:
		return power;
	case 1:
		return power + 1;
	case 2:
		return 1 + seed_below(seed, 4096);
	default:
		return 1 + seed_below(seed, power);
	}
}

/* Fails the test where the new piece NUMBER is not as promised. */
static void check_piece(const struct arena *arena, uint32_t number)
{
	const struct piece *piece = &out[number];
	uint64_t end = piece->offset + piece->bytes;

	assert_int_equal(piece->offset % 64, 0);
	assert_true(end <= arena->bytes);
	for (uint32_t i = 0; i < PIECES; i++) {
		const struct piece *other = &out[i];

		if (i == number || other->bytes == 0)
			continue;
		if (piece->offset < other->offset + other->bytes && other->offset < end)
			fail_msg("[%llu, %llu) overlaps [%llu, %llu)",
				 (unsigned long long)piece->offset, (unsigned long long)end,
				 (unsigned long long)other->offset,
				 (unsigned long long)(other->offset + other->bytes));
	}
}

static void give_back(struct arena *arena, uint32_t number)
{
	if (out[number].bytes > 0)
		(void)arena_release(arena, out[number].offset, out[number].bytes);
	out[number].bytes = 0;
}

static void give_all_back(struct arena *arena)
{
	for (uint32_t i = 0; i < PIECES; i++)
		give_back(arena, i);
}

static uint64_t held(void)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < PIECES; i++)
		bytes += out[i].bytes ? rounded(out[i].bytes) : 0;
	return bytes;
}

/* One random step. Returns whether there was no room. */
static bool step(struct arena *arena, struct seed *seed)
{
	uint32_t number = (uint32_t)seed_below(seed, PIECES);
	uint64_t offset = 7;
	uint64_t bytes;
	int result;

	if (out[number].bytes > 0) {
		give_back(arena, number);
		return false;
	}
	bytes = random_size(seed);
	result = arena_alloc(arena, bytes, &offset);
	if (result < 0) {
		assert_int_equal(result, -ENOSPC);
		assert_int_equal(offset, 7);
		return true;
	}
	out[number] = (struct piece){offset, bytes};
	check_piece(arena, number);
	return false;
}

static void random_use_never_overlaps(void **state)
{
	struct seed seed = seed_new("arena");
	uint32_t full = 0;

	(void)state;
	for (int round = 0; round < 20; round++) {
		/* From far too small to large enough for all. */
		struct arena arena;

		arena_init(&arena,
			   (UINT64_C(64) << (round / 2)) * 1024 + 64 * seed_below(&seed, 64));
		for (int i = 0; i < 4000; i++)
			full += step(&arena, &seed);
		assert_true(held() <= arena.bytes);
		give_all_back(&arena);
		arena_done(&arena);
	}
	/* Otherwise the test would not have seen exhaustion at all. */
	assert_true(full > 100);
}

/* After everything is back, the largest piece that fits can be had, whatever lay there before. */
static void what_is_free_is_joined(void **state)
{
	struct seed seed = seed_new("arena join");
	const uint64_t bytes = 1 << 20;
	uint64_t offset;

	(void)state;
	for (int round = 0; round < 100; round++) {
		struct arena arena;

		arena_init(&arena, bytes);
		for (int i = 0; i < 600; i++)
			(void)step(&arena, &seed);
		give_all_back(&arena);
		assert_int_equal(arena_alloc(&arena, bytes, &offset), 0);
		assert_int_equal(offset, 0);
		assert_int_equal(arena_alloc(&arena, 1, &offset), -ENOSPC);
		(void)arena_release(&arena, 0, bytes);
		arena_done(&arena);
	}
}

/* Half of the range is free in small neighbours: a large piece is found there. */
static void free_neighbours_make_a_large_piece(void **state)
{
	struct arena arena;
	uint64_t offset;

	(void)state;
	arena_init(&arena, 64 * 64);
	for (uint32_t i = 0; i < 64; i++) {
		assert_int_equal(arena_alloc(&arena, 64, &out[i].offset), 0);
		out[i].bytes = 64;
	}
	assert_int_equal(arena_alloc(&arena, 1, &offset), -ENOSPC);
	/* Every second one: nothing to join. */
	for (uint32_t i = 0; i < 64; i += 2)
		give_back(&arena, i);
	assert_int_equal(arena_alloc(&arena, 65, &offset), -ENOSPC);
	for (uint32_t i = 1; i < 32; i += 2)
		give_back(&arena, i);
	assert_int_equal(arena_alloc(&arena, 2048, &offset), 0);
	assert_true(offset + 2048 <= 64 * 64);
	for (uint32_t i = 33; i < 64; i += 2)
		assert_true(out[i].offset >= offset + 2048 || out[i].offset < offset);
	(void)arena_release(&arena, offset, 2048);
	give_all_back(&arena);
	arena_done(&arena);
}

static void exact_fit_and_one_too_many(void **state)
{
	struct arena arena;
	uint64_t offset = 7;

	(void)state;
	arena_init(&arena, 128);
	assert_int_equal(arena_alloc(&arena, 129, &offset), -ENOSPC);
	assert_int_equal(offset, 7);
	assert_int_equal(arena_alloc(&arena, 128, &offset), 0);
	assert_int_equal(arena_alloc(&arena, 1, &offset), -ENOSPC);
	assert_int_equal(offset, 0);
	(void)arena_release(&arena, offset, 128);
	arena_done(&arena);

	arena_init(&arena, 0);
	assert_int_equal(arena_alloc(&arena, 1, &offset), -ENOSPC);
	arena_done(&arena);
}

/* Ranges as large as a process can map, without touching them. */
static void the_largest_range_works(void **state)
{
	const uint64_t half = UINT64_C(1) << 46;
	struct arena arena;
	uint64_t first, second, third;

	(void)state;
	arena_init(&arena, 2 * half);
	assert_int_equal(arena_alloc(&arena, half, &first), 0);
	assert_int_equal(arena_alloc(&arena, half - 1, &second), 0);
	assert_int_equal(arena_alloc(&arena, 1, &third), -ENOSPC);
	assert_int_not_equal(first, second);
	(void)arena_release(&arena, first, half);
	assert_int_equal(arena_alloc(&arena, 1, &third), 0);
	assert_true(third < half || third >= second);
	(void)arena_release(&arena, second, half - 1);
	(void)arena_release(&arena, third, 1);
	assert_int_equal(arena_alloc(&arena, 2 * half, &first), 0);
	(void)arena_release(&arena, first, 2 * half);
	arena_done(&arena);
}

static void pages_of_large_pieces_are_given_back(void **state)
{
	enum {
		COUNT = 8
	};
	const uint64_t bytes = 4 << 20;
	struct arena arena;
	uint64_t offsets[COUNT];
	int given = 0;

	(void)state;
	arena_init(&arena, COUNT * bytes);
	for (int i = 0; i < COUNT; i++)
		assert_int_equal(arena_alloc(&arena, bytes, &offsets[i]), 0);
	for (int i = 0; i < COUNT; i++)
		given += arena_release(&arena, offsets[i], bytes);
	/* Some stay warm for the next task, the rest goes back to the system. */
	assert_true(given >= COUNT - 3 && given < COUNT);
	assert_int_equal(arena_alloc(&arena, 64, &offsets[0]), 0);
	assert_false(arena_release(&arena, offsets[0], 64));
	arena_done(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_use_never_overlaps),
		cmocka_unit_test(what_is_free_is_joined),
		cmocka_unit_test(free_neighbours_make_a_large_piece),
		cmocka_unit_test(exact_fit_and_one_too_many),
		cmocka_unit_test(the_largest_range_works),
		cmocka_unit_test(pages_of_large_pieces_are_given_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
