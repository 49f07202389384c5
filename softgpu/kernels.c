/* SPDX-License-Identifier: MIT */
#include "kernels.h"

#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "common/fd.h"
#include "engine.h"
#include "machine.h"
#include "space.h"

/* Knuth's multiplier: what fill() writes and check() expects. */
static uint32_t pattern(uint64_t i, uint32_t seed)
{
	return (uint32_t)(i * 2654435761U) ^ seed;
}

/* A float as it lies in a parameter or in memory. */
static float as_float(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

/* Whole words at ADDRESS, as many as lie together, at most COUNT. */
static enum fault words(uint64_t address, uint64_t count, bool write, uint32_t **ret_words,
			uint64_t *ret_count)
{
	uint8_t *host;
	uint64_t bytes;
	enum fault fault;

	if (address % 4)
		return FAULT_MISALIGNED;
	fault = space_span(address, count * 4, write, &host, &bytes);
	if (fault != FAULT_NONE)
		return fault;
	if (bytes < 4)
		return FAULT_ADDRESS;
	*ret_words = (uint32_t *)(void *)host;
	*ret_count = bytes / 4;
	return FAULT_NONE;
}

static enum fault store(uint64_t address, uint32_t value)
{
	uint32_t *word;
	uint64_t count;
	enum fault fault = words(address, 1, true, &word, &count);

	if (fault == FAULT_NONE)
		*word = value;
	return fault;
}

static enum fault run_nop(const uint64_t *arguments)
{
	(void)arguments;
	return FAULT_NONE;
}

/* fill(u32 *p, u64 n, u32 seed) */
static enum fault run_fill(const uint64_t *arguments)
{
	for (uint64_t i = 0; i < arguments[1];) {
		uint32_t *data;
		uint64_t count;
		enum fault fault =
			words(arguments[0] + 4 * i, arguments[1] - i, true, &data, &count);

		if (fault != FAULT_NONE)
			return fault;
		for (uint64_t k = 0; k < count; k++)
			data[k] = pattern(i + k, (uint32_t)arguments[2]);
		i += count;
	}
	return FAULT_NONE;
}

/* add1(u32 *p, u64 n) */
static enum fault run_add1(const uint64_t *arguments)
{
	for (uint64_t i = 0; i < arguments[1];) {
		uint32_t *data;
		uint64_t count;
		enum fault fault =
			words(arguments[0] + 4 * i, arguments[1] - i, true, &data, &count);

		if (fault != FAULT_NONE)
			return fault;
		for (uint64_t k = 0; k < count; k++)
			data[k]++;
		i += count;
	}
	return FAULT_NONE;
}

static enum fault add_wide(uint64_t address, uint64_t amount)
{
	uint8_t *host;
	uint64_t bytes;
	uint64_t value;
	enum fault fault;

	if (address % 8)
		return FAULT_MISALIGNED;
	fault = space_span(address, 8, true, &host, &bytes);
	if (fault != FAULT_NONE)
		return fault;
	if (bytes < 8)
		return FAULT_ADDRESS;
	memcpy(&value, host, sizeof(value));
	value += amount;
	memcpy(host, &value, sizeof(value));
	return FAULT_NONE;
}

/* check(u32 *p, u64 n, u32 seed, u64 *bad) */
static enum fault run_check(const uint64_t *arguments)
{
	uint64_t bad = 0;

	for (uint64_t i = 0; i < arguments[1];) {
		uint32_t *data;
		uint64_t count;
		enum fault fault =
			words(arguments[0] + 4 * i, arguments[1] - i, false, &data, &count);

		if (fault != FAULT_NONE)
			return fault;
		for (uint64_t k = 0; k < count; k++)
			bad += data[k] != pattern(i + k, (uint32_t)arguments[2]);
		i += count;
	}
	return bad ? add_wide(arguments[3], bad) : FAULT_NONE;
}

/* checksum(u32 *p, u64 n, u64 *sum): *sum grows by all words. */
static enum fault run_checksum(const uint64_t *arguments)
{
	uint64_t sum = 0;

	for (uint64_t i = 0; i < arguments[1];) {
		uint32_t *data;
		uint64_t count;
		enum fault fault =
			words(arguments[0] + 4 * i, arguments[1] - i, false, &data, &count);

		if (fault != FAULT_NONE)
			return fault;
		for (uint64_t k = 0; k < count; k++)
			sum += data[k];
		i += count;
	}
	return add_wide(arguments[2], sum);
}

static void nap(uint64_t ns)
{
	struct timespec wait = {.tv_nsec = (long)(ns < 1000000 ? ns : 1000000)};

	(void)nanosleep(&wait, NULL);
}

/* spin(volatile u32 *stop): until the word is not zero. */
static enum fault run_spin(const uint64_t *arguments)
{
	for (;;) {
		uint32_t *word;
		uint64_t count;
		enum fault fault = words(arguments[0], 1, false, &word, &count);

		if (fault != FAULT_NONE)
			return fault;
		if (__atomic_load_n(word, __ATOMIC_ACQUIRE))
			return FAULT_NONE;
		nap(200000);
	}
}

/* busy(u64 nanoseconds) */
static enum fault run_busy(const uint64_t *arguments)
{
	uint64_t start = now_ns();

	for (;;) {
		uint64_t gone = now_ns() - start;

		if (gone >= arguments[0])
			return FAULT_NONE;
		if (engine_is_cut_off())
			return FAULT_CUT_OFF;
		nap(arguments[0] - gone);
	}
}

/* hammer(volatile u32 *p, u64 n): add1() for ever. */
static enum fault run_hammer(const uint64_t *arguments)
{
	for (;;) {
		enum fault fault = run_add1(arguments);

		if (fault != FAULT_NONE)
			return fault;
		if (engine_is_cut_off())
			return FAULT_CUT_OFF;
		nap(20000);
	}
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* vector_add(float *a, float *b, float *c, u64 n): c = a + b. */
static enum fault run_vector_add(const uint64_t *arguments)
{
	for (uint64_t i = 0; i < arguments[3];) {
		uint32_t *data[3];
		uint64_t count = arguments[3] - i;

		for (int k = 0; k < 3; k++) {
			uint64_t some;
			enum fault fault =
				words(arguments[k] + 4 * i, count, k == 2, &data[k], &some);

			if (fault != FAULT_NONE)
				return fault;
			count = least(count, some);
		}
		for (uint64_t k = 0; k < count; k++) {
			float sum = as_float(data[0][k]) + as_float(data[1][k]);

			memcpy(&data[2][k], &sum, sizeof(sum));
		}
		i += count;
	}
	return FAULT_NONE;
}

/* saxpy(float a, float *x, float *y, u64 n): y = a x + y. */
static enum fault run_saxpy(const uint64_t *arguments)
{
	float a = as_float((uint32_t)arguments[0]);

	for (uint64_t i = 0; i < arguments[3];) {
		uint32_t *x;
		uint32_t *y;
		uint64_t count;
		uint64_t some;
		enum fault fault = words(arguments[1] + 4 * i, arguments[3] - i, false, &x, &count);

		if (fault == FAULT_NONE)
			fault = words(arguments[2] + 4 * i, count, true, &y, &some);
		if (fault != FAULT_NONE)
			return fault;
		for (uint64_t k = 0; k < some; k++) {
			float sum = __builtin_fmaf(a, as_float(x[k]), as_float(y[k]));

			memcpy(&y[k], &sum, sizeof(sum));
		}
		i += some;
	}
	return FAULT_NONE;
}

static enum fault run_fault_null(const uint64_t *arguments)
{
	(void)arguments;
	return store(0, 1);
}

/* fault_oob(u32 *p): 2^40 words behind p. */
static enum fault run_fault_oob(const uint64_t *arguments)
{
	return store(arguments[0] + (1ULL << 42), 1);
}

/*
 * fault_misaligned(u8 *p): a word at p + 1. One word of the memory can change all the same, as was seen
 * on the hardware; the emulation always changes it.
 */
static enum fault run_fault_misaligned(const uint64_t *arguments)
{
	(void)store((arguments[0] + 1) & ~3ULL, 1);
	return store((arguments[0] | 3ULL) == arguments[0] ? arguments[0] + 2 : arguments[0] + 1,
		     1);
}

/* fault_assert(u32 x): asserts that x is 0. */
static enum fault run_fault_assert(const uint64_t *arguments)
{
	if ((uint32_t)arguments[0] == 0)
		return FAULT_NONE;
	machine_say("kernels.ptx:1: fault_assert: block: [0,0,0], thread: [0,0,0] Assertion `x == "
		    "0` failed.");
	return FAULT_ASSERT;
}

static enum fault run_fault_trap(const uint64_t *arguments)
{
	(void)arguments;
	return FAULT_TRAP;
}

/* fault_shared(u32 i): a word of shared memory, i times 64 MiB behind its start. */
static enum fault run_fault_shared(const uint64_t *arguments)
{
	return (uint32_t)arguments[0] ? FAULT_SHARED : FAULT_NONE;
}

/* fault_stack(u32 n, u32 *out): calls itself without end unless n is 0. */
static enum fault run_fault_stack(const uint64_t *arguments)
{
	return (uint32_t)arguments[0] ? FAULT_STACK : store(arguments[1], 0);
}

/* What a call takes that has 256 bytes of its own: so many of them fit, with each of three stack limits. */
#define CALL_BYTES 272

/* recurse(u32 n, u32 *out): *out = 1 + 2 + ... + n, with n + 1 calls inside of each other. */
static enum fault run_recurse(const uint64_t *arguments)
{
	uint64_t n = (uint32_t)arguments[0];

	if ((n + 1) * CALL_BYTES > engine_stack_bytes())
		return FAULT_STACK;
	return store(arguments[1], (uint32_t)(n * (n + 1) / 2));
}

/* static_frame(u32 n, u32 *out): *out = n, by way of 16 KiB of the stack. */
static enum fault run_static_frame(const uint64_t *arguments)
{
	return store(arguments[1], (uint32_t)arguments[0]);
}

static const struct kernel kernels[] = {
	{"nop", {0}, run_nop},
	{"fill", {8, 8, 4}, run_fill},
	{"add1", {8, 8}, run_add1},
	{"check", {8, 8, 4, 8}, run_check},
	{"checksum", {8, 8, 8}, run_checksum},
	{"spin", {8}, run_spin},
	{"busy", {8}, run_busy},
	{"hammer", {8, 8}, run_hammer},
	{"vector_add", {8, 8, 8, 8}, run_vector_add},
	{"saxpy", {4, 8, 8, 8}, run_saxpy},
	{"fault_null", {0}, run_fault_null},
	{"fault_oob", {8}, run_fault_oob},
	{"fault_misaligned", {8}, run_fault_misaligned},
	{"fault_assert", {4}, run_fault_assert, .prints = true},
	{"fault_trap", {0}, run_fault_trap},
	{"fault_shared", {4}, run_fault_shared},
	{"fault_stack", {4, 8}, run_fault_stack},
	{"recurse", {4, 8}, run_recurse},
	{"static_frame", {4, 8}, run_static_frame, .frame_bytes = 16384},
};

const struct kernel *kernel_find(const char *name, size_t length)
{
	for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++) {
		if (strlen(kernels[i].name) == length && memcmp(kernels[i].name, name, length) == 0)
			return &kernels[i];
	}
	return NULL;
}
