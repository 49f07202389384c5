/* SPDX-License-Identifier: MIT */
/*
 * How long a pool takes from a fault to the next good kernel, and what it keeps meanwhile.
 *
 *	failover [--only SECTION,...] [--repeat N] [--budget SECONDS] [--table FILE] [--json FILE] [--device N]
 *		 [--faults N] [--state-unit-mib N] [--pieces N] [--queue N] [--trips N]
 *
 *	faults	each kind of fault at each level, beside a bystander and a bare process that is started again
 *	state	with sealed state: 1, 8 and 100 times 1 GiB (--state-unit-mib), and --pieces pieces of 2 MiB
 *	queue	with 10, 1,000 and --queue tasks in line
 *	steady	round trips with and without detection
 *	sources	hot, with each source of early detection alone; only where named
 *	soak	--faults faults of all kinds over a queue that is never empty; only where named. Exit status 1 if
 *		anything is lost, comes twice, or differs from a model
 *
 * The sections share the budget, and end early, with fewer rounds, where it is used up. Progress goes to standard
 * error; results go to the files, which are complete after each step, and at the end to standard output.
 *
 * Runs in: the host, which never loads CUDA; workers and bare processes are this program again, the bystander is
 * forked from it. Works on the emulated GPU: `gpuward --soft -- failover --repeat 1`.
 * Read next: failover.h, failover_faults.c.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "failover.h"

#define MACHINE_MAX 512
/* Beyond the budget: a hung machine ends the program, and what was measured is in the files. */
#define ALARM_S	   180
#define FAULTS_MAX 10000 /* what the series of their kinds hold */

struct failover_options failover = {
	.repeat = 20,
	.budget_s = 240,
	.faults = 1000,
	.unit_mib = 1024,
	.pieces = 1000,
	.queue = 100000,
	.trips = 5000,
};

static const struct part {
	const char *name;
	void (*measure)(uint64_t deadline_ns);
	uint32_t share;	 /* of the budget */
	bool on_request; /* only where it is named */
} parts[] = {
	{"faults", measure_faults, 65, false},	{"state", measure_state, 20, false},
	{"queue", measure_queue, 10, false},	{"steady", measure_steady, 5, false},
	{"sources", measure_sources, 50, true}, {"soak", measure_soak, 70, true},
};

#define N_PARTS (sizeof(parts) / sizeof(parts[0]))

static char machine[MACHINE_MAX];

void save(void)
{
	rows_write(machine, failover.table, failover.json);
}

/* ---- the machine ---- */

static void read_driver_version(char *text, size_t bytes)
{
	FILE *file = fopen("/sys/module/nvidia/version", "re");

	(void)snprintf(text, bytes, "unknown");
	if (file) {
		if (fgets(text, (int)bytes, file))
			text[strcspn(text, "\n")] = '\0';
		(void)fclose(file);
	}
}

static void look_at_machine(void)
{
	struct gw_pool *pool = open_failover_pool(GW_STANDBY_COLD, 0, 0);
	struct utsname system = {0};
	char driver[64];
	char name[160] = "";

	end_task(start_task(pool, "machine", NULL, 0, sizeof(name)), "machine", name, sizeof(name));
	name[sizeof(name) - 1] = '\0';
	gw_pool_close(pool);
	read_driver_version(driver, sizeof(driver));
	(void)uname(&system);
	(void)snprintf(machine, sizeof(machine), "%s%s, driver %s, %s %s, %ld cores", name,
		       getenv("GPUWARD_SOFT_DIR") ? " (emulated)" : "", driver, system.sysname,
		       system.release, sysconf(_SC_NPROCESSORS_ONLN));
	say("%s", machine);
}

/* ---- sections ---- */

static bool is_wanted(const struct part *part)
{
	const char *list = failover.only;
	size_t bytes = strlen(part->name);

	while (list && *list) {
		size_t length = strcspn(list, ",");

		if (length == bytes && strncmp(list, part->name, bytes) == 0)
			return true;
		list += length + (list[length] == ',');
	}
	return !failover.only && !part->on_request;
}

static void check_names(void)
{
	size_t wanted = 0, named = 1;

	for (const char *at = failover.only; at && *at; at++)
		named += *at == ',';
	for (size_t i = 0; failover.only && i < N_PARTS; i++)
		wanted += is_wanted(&parts[i]);
	if (failover.only && wanted != named)
		bench_die("--only takes of: faults,state,queue,steady,sources,soak");
}

static void check_numbers(void)
{
	if (failover.repeat == 0 || failover.repeat > SERIES_MAX)
		bench_die("--repeat is 1 to %d", SERIES_MAX);
	if (failover.budget_s == 0 || failover.budget_s > 86400)
		bench_die("--budget is 1 to 86400 seconds");
	if (failover.faults == 0 || failover.faults > FAULTS_MAX)
		bench_die("--faults is 1 to %d", FAULTS_MAX);
	if (failover.pieces == 0 || failover.pieces > GW_STATES_MAX)
		bench_die("--pieces is 1 to %d", GW_STATES_MAX);
	if (failover.unit_mib == 0 || failover.unit_mib > 5000 || failover.trips == 0 ||
	    failover.trips > 10000000 || failover.queue == 0 || failover.queue > 10000000)
		bench_die("--state-unit-mib is 1 to 5000, --trips and --queue 1 to 10000000");
}

static void measure(void)
{
	uint32_t shares = 0;

	for (size_t i = 0; i < N_PARTS; i++)
		shares += is_wanted(&parts[i]) ? parts[i].share : 0;
	for (size_t i = 0; i < N_PARTS; i++) {
		uint64_t part_ns = failover.budget_s * 1000 * MS / shares * parts[i].share;

		if (!is_wanted(&parts[i]))
			continue;
		say("section %s, at most %.0f s", parts[i].name, (double)part_ns / 1e9);
		parts[i].measure(bench_now_ns() + part_ns);
		save();
	}
}

int main(int argc, char **argv)
{
	const struct bench_option options[] = {{"--repeat", &failover.repeat, NULL},
					       {"--device", &failover.device, NULL},
					       {"--budget", &failover.budget_s, NULL},
					       {"--faults", &failover.faults, NULL},
					       {"--state-unit-mib", &failover.unit_mib, NULL},
					       {"--pieces", &failover.pieces, NULL},
					       {"--queue", &failover.queue, NULL},
					       {"--trips", &failover.trips, NULL},
					       {"--only", NULL, &failover.only},
					       {"--table", NULL, &failover.table},
					       {"--json", NULL, &failover.json},
					       {NULL, NULL, NULL}};

	if (gw_is_worker())
		return gw_worker_run(failover_functions);
	if (argc == 4 && strcmp(argv[1], "--bare") == 0)
		bare_main(atoi(argv[2]), atoi(argv[3]));
	bench_options(argc, argv, options);
	check_names();
	check_numbers();
	(void)alarm((unsigned int)failover.budget_s + ALARM_S);
	page_make();
	look_at_machine();
	measure();
	rows_print(machine);
	return soak_failed ? 1 : 0;
}
