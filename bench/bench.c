/* SPDX-License-Identifier: MIT */
/*
 * Parts that all benchmarks use; see bench.h.
 *
 * Runs in: the benchmarks and their peers. The payload's loops are plain, so that they cost the same in
 * every transport and the differences are the transports' own.
 */
#include "bench.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PIN_ENV "GPUWARD_BENCH_PIN"

void series_add(struct series *series, double value)
{
	if (series->n == SERIES_MAX)
		bench_die("more than %d rounds", SERIES_MAX);
	series->values[series->n++] = value;
}

static int by_value(const void *left, const void *right)
{
	const double a = *(const double *)left;
	const double b = *(const double *)right;

	return a < b ? -1 : a > b;
}

static double series_at(struct series *series, size_t place)
{
	if (series->n == 0)
		return 0;
	qsort(series->values, series->n, sizeof(series->values[0]), by_value);
	return series->values[place];
}

double series_median(struct series *series)
{
	double high = series_at(series, series->n / 2);

	if (series->n == 0 || series->n % 2)
		return high;
	return (high + series_at(series, series->n / 2 - 1)) / 2;
}

double series_min(struct series *series)
{
	return series_at(series, 0);
}

double series_max(struct series *series)
{
	return series_at(series, series->n - 1);
}

_Noreturn static void usage(const char *program, const struct bench_option *options)
{
	(void)fprintf(stderr, "usage: %s", program);
	for (; options->name; options++)
		(void)fprintf(stderr, " [%s %s]", options->name, options->number ? "N" : "WORD");
	(void)fputc('\n', stderr);
	exit(2);
}

static bool take_value(const struct bench_option *option, const char *value)
{
	char *end = NULL;
	uint64_t number;

	if (option->text) {
		*option->text = value;
		return true;
	}
	errno = 0;
	number = strtoull(value, &end, 10);
	if (errno || *end || end == value || value[0] == '-')
		return false;
	*option->number = number;
	return true;
}

void bench_options(int argc, char **argv, const struct bench_option *options)
{
	for (int i = 1; i < argc; i += 2) {
		const struct bench_option *option = options;

		while (option->name && strcmp(option->name, argv[i]) != 0)
			option++;
		if (!option->name || i + 1 == argc || !take_value(option, argv[i + 1]))
			usage(argv[0], options);
	}
}

_Noreturn void bench_die(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	(void)fputs("bench: ", stderr);
	(void)vfprintf(stderr, format, arguments);
	(void)fputc('\n', stderr);
	va_end(arguments);
	exit(1);
}

int bench_os(int result, const char *what)
{
	if (result < 0)
		bench_die("%s: %s", what, strerror(errno));
	return result;
}

void *bench_share(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		bench_die("mmap: %s", strerror(errno));
	return memory;
}

void bench_unshare(void *memory, size_t bytes)
{
	(void)munmap(memory, bytes);
}

bool bench_fork_peer(pid_t *ret_peer)
{
	pid_t host = getpid();
	pid_t peer = bench_os(fork(), "fork");

	if (peer > 0) {
		*ret_peer = peer;
		return false;
	}
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != host)
		_exit(0);
	bench_pin(BENCH_PEER);
	return true;
}

void bench_end_peer(pid_t peer)
{
	if (peer <= 0)
		return;
	(void)kill(peer, SIGKILL);
	(void)waitpid(peer, NULL, 0);
}

uint64_t bench_now_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

/* The first two processors that this process may use, or one twice. */
static int first_processors(int processors[2])
{
	cpu_set_t set;
	int found = 0;

	(void)bench_os(sched_getaffinity(0, sizeof(set), &set), "sched_getaffinity");
	for (int i = 0; i < CPU_SETSIZE && found < 2; i++) {
		if (CPU_ISSET(i, &set))
			processors[found++] = i;
	}
	return found;
}

bool bench_place(const char *place)
{
	int processors[2] = {0, 0};
	int found = first_processors(processors);
	char text[32];

	if (strcmp(place, "free") == 0)
		return true;
	if (strcmp(place, "one") == 0)
		processors[1] = processors[0];
	else if (strcmp(place, "two") != 0)
		bench_die("a place is one of: free one two");
	else if (found < 2)
		return false;
	(void)snprintf(text, sizeof(text), "%d %d", processors[BENCH_HOST], processors[BENCH_PEER]);
	(void)bench_os(setenv(PIN_ENV, text, 1), "setenv");
	bench_pin(BENCH_HOST);
	return true;
}

void bench_pin(enum bench_side side)
{
	const char *text = getenv(PIN_ENV);
	int processors[2];
	cpu_set_t set;

	if (!text || sscanf(text, "%d %d", &processors[0], &processors[1]) != 2)
		return;
	CPU_ZERO(&set);
	CPU_SET(processors[side], &set);
	(void)bench_os(sched_setaffinity(0, sizeof(set), &set), "sched_setaffinity");
}

void payload_fill(void *input, uint64_t bytes, uint64_t seed)
{
	uint64_t *words = input;

	for (uint64_t i = 0; i < bytes / 8; i++)
		words[i] = seed + i;
}

void payload_work(void *output, const void *input, uint64_t bytes)
{
	const uint64_t *in = input;
	uint64_t *out = output;

	for (uint64_t i = 0; i < bytes / 8; i++)
		out[i] = ~in[i];
}

void payload_check(const void *output, uint64_t bytes, uint64_t seed)
{
	const uint64_t *words = output;
	uint64_t wrong = 0;

	for (uint64_t i = 0; i < bytes / 8; i++)
		wrong |= words[i] ^ ~(seed + i);
	if (wrong)
		bench_die("a transport returned something else than what was worked out");
}

/* A pool decides by the processors of both sides together whether it spins. */
static void pin_to_both(void)
{
	const char *text = getenv(PIN_ENV);
	int processors[2];
	cpu_set_t set;

	if (!text || sscanf(text, "%d %d", &processors[0], &processors[1]) != 2)
		return;
	CPU_ZERO(&set);
	CPU_SET(processors[BENCH_HOST], &set);
	CPU_SET(processors[BENCH_PEER], &set);
	(void)bench_os(sched_setaffinity(0, sizeof(set), &set), "sched_setaffinity");
}

struct gw_pool *bench_pool(uint32_t workers, uint64_t spin_ns, uint32_t queue_depth)
{
	struct gw_pool_options options = GW_OPTIONS(struct gw_pool_options);
	struct gw_error error = {0};
	struct gw_pool *pool;

	options.workers_per_device = workers;
	/* A row that spins is the pool as it is by default. */
	options.spin_ns = spin_ns ? 0 : GW_NO_SPIN;
	options.queue_depth = queue_depth;
	pin_to_both();
	if (gw_pool_open(&pool, &options, &error) < 0)
		bench_die("%s", error.msg);
	bench_pin(BENCH_HOST);
	return pool;
}
