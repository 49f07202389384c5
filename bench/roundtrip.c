/* SPDX-License-Identifier: MIT */
/*
 * How long a task takes there and back, beside the bare futex ping-pong and what people use otherwise.
 *
 *	roundtrip [--rounds N] [--trips N] [--large-trips N] [--place free|one|two]
 *
 * Runs in: the host; transport.c has the peers. All transports are open at the same time, and each round
 * measures each of them, one after the other, so that a disturbance hits all. A row is the median over the
 * rounds of a trip's time, with the least and the most, and its ratio to the bare ping-pong of the same
 * kind (sleeping or spinning). Read next: transport.c.
 */
#include <stdio.h>
#include <stdlib.h>

#include "bench.h"
#include "transport.h"

#define KINDS_MAX 16

static const uint64_t payloads[] = {0, 64, 1 << 20};

#define N_PAYLOADS (sizeof(payloads) / sizeof(payloads[0]))

struct row {
	void *state; /* NULL: this transport does not carry that much */
	struct series ns;
};

static struct row rows[N_PAYLOADS][KINDS_MAX];
static uint64_t next_seed = 1;

static void open_all(void)
{
	for (size_t p = 0; p < N_PAYLOADS; p++) {
		for (size_t i = 0; transports[i].name; i++) {
			if (payloads[p] <= transports[i].max_bytes)
				rows[p][i].state = transports[i].open(&transports[i], payloads[p]);
		}
	}
}

static void close_all(void)
{
	for (size_t p = 0; p < N_PAYLOADS; p++) {
		for (size_t i = 0; transports[i].name; i++) {
			if (rows[p][i].state)
				transports[i].close(rows[p][i].state);
		}
	}
}

static double measure(const struct transport *transport, void *state, uint64_t trips)
{
	uint64_t start = bench_now_ns();

	for (uint64_t i = 0; i < trips; i++)
		transport->trip(state, next_seed++);
	return (double)(bench_now_ns() - start) / (double)trips;
}

/* Each round begins with another transport: none always follows the same neighbour. */
static void round_of(uint64_t number, size_t p, uint64_t trips)
{
	size_t count = 0;

	while (transports[count].name)
		count++;
	for (size_t n = 0; n < count; n++) {
		size_t i = (n + number) % count;

		if (rows[p][i].state)
			series_add(&rows[p][i].ns,
				   measure(&transports[i], rows[p][i].state, trips));
	}
}

static double reference(size_t p, bool spins)
{
	for (size_t i = 0; transports[i].name; i++) {
		if ((transports[i].spin_ns > 0) == spins)
			return series_median(&rows[p][i].ns);
	}
	return 0;
}

static void print_table(size_t p)
{
	(void)printf("\npayload %llu bytes\n%-22s %12s %12s %12s %8s\n",
		     (unsigned long long)payloads[p], "", "median us", "least", "most", "ratio");
	for (size_t i = 0; transports[i].name; i++) {
		struct series *ns = &rows[p][i].ns;
		double base = reference(p, transports[i].spin_ns > 0);

		if (!rows[p][i].state) {
			(void)printf("%-22s %12s %12s %12s %8s\n", transports[i].name, "-", "-",
				     "-", "-");
			continue;
		}
		(void)printf("%-22s %12.2f %12.2f %12.2f %8.2f\n", transports[i].name,
			     series_median(ns) / 1000, series_min(ns) / 1000, series_max(ns) / 1000,
			     series_median(ns) / base);
	}
}

int main(int argc, char **argv)
{
	uint64_t n_rounds = 100;
	uint64_t trips = 200;
	uint64_t large_trips = 4;
	const char *place = "free";
	const struct bench_option options[] = {{"--rounds", &n_rounds, NULL},
					       {"--trips", &trips, NULL},
					       {"--large-trips", &large_trips, NULL},
					       {"--place", NULL, &place},
					       {NULL, NULL, NULL}};

	if (gw_is_worker())
		return gw_worker_run(transport_functions);
	bench_options(argc, argv, options);
	if (!bench_place(place)) {
		(void)printf("skipped: there is no second processor\n");
		return 77;
	}
	open_all();
	for (size_t p = 0; p < N_PAYLOADS; p++)
		round_of(0, p, 1);
	for (size_t p = 0; p < N_PAYLOADS; p++) {
		for (size_t i = 0; i < KINDS_MAX; i++)
			rows[p][i].ns.n = 0;
	}
	for (uint64_t r = 0; r < n_rounds; r++) {
		for (size_t p = 0; p < N_PAYLOADS; p++)
			round_of(r, p, payloads[p] > 65536 ? large_trips : trips);
	}
	(void)printf(
		"round trip, place %s, %llu rounds of %llu trips (%llu of the large payload)\n",
		place, (unsigned long long)n_rounds, (unsigned long long)trips,
		(unsigned long long)large_trips);
	for (size_t p = 0; p < N_PAYLOADS; p++)
		print_table(p);
	close_all();
	return 0;
}
