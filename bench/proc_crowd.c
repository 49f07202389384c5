/* SPDX-License-Identifier: MIT */
/*
 * Makes a crowd of processes, prints the truth about it as JSON, and keeps it until standard input ends: for
 * tools that look for holders of a device.
 *
 *	proc_crowd --device PATH [--other PATH] [--mappable PATH] [--processes N] [--descriptors N] [--holders N]
 *		   [--churners N] [--seed N]
 *
 * Runs in: the parent of the crowd, which dies with it. Read next: crowd.h.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "crowd.h"

static void print(const struct crowd *crowd)
{
	printf("{\"processes\": %u, \"holders\": [", crowd->pid_count);
	for (uint32_t i = 0; i < crowd->holder_count; i++) {
		const struct crowd_holder *holder = &crowd->holders[i];

		printf("%s\n  {\"pid\": %d, \"kind\": \"%s\", \"tid\": %d, \"fd\": %d, \"count\": %d}",
		       i ? "," : "", holder->pid, crowd_kind_name(holder->kind), holder->tid,
		       holder->fd, holder->count);
	}
	printf("]}\n");
	(void)fflush(stdout);
}

int main(int argc, char **argv)
{
	uint64_t processes = 5000, descriptors = 25, holders = 50, churners = 0;
	struct crowd_options options = {.seed = 1};
	const struct bench_option known[] = {
		{"--device", .text = &options.device},
		{"--other", .text = &options.other_node},
		{"--mappable", .text = &options.mappable},
		{"--processes", .number = &processes},
		{"--descriptors", .number = &descriptors},
		{"--holders", .number = &holders},
		{"--churners", .number = &churners},
		{"--seed", .number = &options.seed},
		{0},
	};
	struct crowd crowd;
	char byte;
	int code;

	bench_options(argc, argv, known);
	if (!options.device)
		bench_die("proc_crowd: --device is missing: the device file that is held");
	options.processes = (uint32_t)processes;
	options.descriptors = (uint32_t)descriptors;
	options.holders = (uint32_t)holders;
	options.churners = (uint32_t)churners;
	code = crowd_open(&options, &crowd);
	if (code < 0)
		bench_die("proc_crowd: cannot make the crowd: %s", strerror(-code));
	print(&crowd);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	crowd_close(&crowd);
	return 0;
}
