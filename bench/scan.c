/* SPDX-License-Identifier: MIT */
/*
 * How long it takes to find out who holds a device, and who is found: gpuward's scan beside fuser and lsof.
 *
 *	scan [--processes N] [--descriptors N] [--holders N] [--churners N] [--rounds N] [--seed N]
 *
 * Runs in: the parent of the crowd (crowd.h). The device is a real one that is hardly ever open (/dev/fuse), by a list
 * of device numbers of the benchmark's own that gives its number to a GPU; so the mapping of a device is not among
 * the holders. The other tools are asked for the device file, as people do it; with their time goes that of their
 * start. They are left out where they are not installed.
 *
 * A holder counts as found where its pid is named. Needs root: to make device files, and to see everybody.
 */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"
#include "crowd.h"
#include "holders/scan.h"

#define DEVICE	  "/dev/fuse"
#define FOUND_MAX 65536U

extern char **environ;

/* The benchmark's own list of numbers, and nodes. */
struct place {
	char folder[64];
	char proc[80];
	char devices[96];
	char other[96];
};

struct way {
	const char *name;
	const char *words[8]; /* of another program; none for the scan */
	struct scan_options options;
	struct series ms;
	uint64_t missed;
	uint64_t false_ones;
	uint64_t kinds_found[CROWD_KINDS];
	bool absent;
};

/* Pids that were named, each once. */
struct found {
	uint32_t count;
	pid_t pids[FOUND_MAX];
};

static void found_add(struct found *found, pid_t pid)
{
	for (uint32_t i = 0; i < found->count; i++) {
		if (found->pids[i] == pid)
			return;
	}
	if (found->count < FOUND_MAX)
		found->pids[found->count++] = pid;
}

static void make_place(struct place *place)
{
	struct stat device;
	FILE *stream;

	if (stat(DEVICE, &device) < 0 || !S_ISCHR(device.st_mode)) {
		printf("scan: skipped: there is no " DEVICE "\n");
		exit(77);
	}
	(void)snprintf(place->folder, sizeof(place->folder), "/tmp/gpuward-scan-XXXXXX");
	if (!mkdtemp(place->folder))
		bench_die("scan: cannot make a folder: %s", strerror(errno));
	(void)snprintf(place->proc, sizeof(place->proc), "%s/proc", place->folder);
	(void)snprintf(place->devices, sizeof(place->devices), "%s/devices", place->proc);
	(void)snprintf(place->other, sizeof(place->other), "%s/other", place->folder);
	bench_os(mkdir(place->proc, 0700), "mkdir");
	stream = fopen(place->devices, "we");
	if (!stream ||
	    fprintf(stream, "Character devices:\n %u nvidia\n", major(device.st_rdev)) < 0 ||
	    fclose(stream))
		bench_die("scan: cannot write %s", place->devices);
	if (mknod(place->other, S_IFCHR | 0600, device.st_rdev) < 0) {
		printf("scan: skipped: device files cannot be made here\n");
		exit(77);
	}
}

static void remove_place(const struct place *place)
{
	(void)unlink(place->other);
	(void)unlink(place->devices);
	(void)rmdir(place->proc);
	(void)rmdir(place->folder);
}

/* Other devices have the same major (a misc device's): only the one counts. */
static void take_scan(const struct scan *scan, int32_t number, struct found *found)
{
	for (uint32_t i = 0; i < scan->reference_count; i++) {
		const struct scan_reference *reference = &scan->references[i];

		if (reference->device.kind == SCAN_GPU && reference->device.minor == number)
			found_add(found, scan->processes[reference->process].pid);
	}
}

static void run_scan(struct way *way, int32_t number, struct found *found)
{
	struct gw_error error = {0};
	struct scan scan;

	if (scan_run(&way->options, &scan, &error) < 0)
		bench_die("scan: %s", error.msg);
	take_scan(&scan, number, found);
	scan_free(&scan);
}

/* Every number in TEXT is a pid: fuser and lsof -t print nothing else to standard output. */
static void take_text(char *text, struct found *found)
{
	char *rest = text;
	char *word;

	while ((word = strtok_r(rest, " \n", &rest)))
		found_add(found, (pid_t)strtol(word, NULL, 10));
}

static void run_program(struct way *way, struct found *found)
{
	static char text[1 << 20];
	posix_spawn_file_actions_t actions;
	size_t length = 0;
	int out[2], status;
	ssize_t got;
	pid_t pid;

	bench_os(pipe2(out, O_CLOEXEC), "pipe2");
	(void)posix_spawn_file_actions_init(&actions);
	(void)posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
	(void)posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
	if (posix_spawnp(&pid, way->words[0], &actions, NULL, (char *const *)(uintptr_t)way->words,
			 environ)) {
		way->absent = true;
		pid = -1;
	}
	(void)posix_spawn_file_actions_destroy(&actions);
	(void)close(out[1]);
	while ((got = read(out[0], text + length, sizeof(text) - 1 - length)) > 0)
		length += (size_t)got;
	(void)close(out[0]);
	if (pid > 0)
		(void)waitpid(pid, &status, 0);
	text[length] = '\0';
	take_text(text, found);
}

static bool was_found(const struct found *found, pid_t pid)
{
	for (uint32_t i = 0; i < found->count; i++) {
		if (found->pids[i] == pid)
			return true;
	}
	return false;
}

static void judge(struct way *way, const struct crowd *crowd, const struct found *found)
{
	for (uint32_t i = 0; i < crowd->holder_count; i++) {
		bool named = was_found(found, crowd->holders[i].pid);

		way->missed += !named;
		way->kinds_found[crowd->holders[i].kind] += named;
	}
	for (uint32_t i = 0; i < found->count; i++)
		way->false_ones += crowd_find(crowd, found->pids[i]) == NULL;
}

static void run_round(struct way *way, const struct crowd *crowd, int32_t number, bool counts)
{
	static struct found found;
	uint64_t from = bench_now_ns();

	found.count = 0;
	if (way->words[0])
		run_program(way, &found);
	else
		run_scan(way, number, &found);
	if (!counts || way->absent)
		return;
	series_add(&way->ms, (double)(bench_now_ns() - from) / 1e6);
	judge(way, crowd, &found);
}

static void print_kinds(const struct crowd *crowd)
{
	printf("holders:");
	for (int kind = CROWD_FD; kind < CROWD_KINDS; kind++) {
		unsigned int count = 0;

		for (uint32_t i = 0; i < crowd->holder_count; i++)
			count += crowd->holders[i].kind == (enum crowd_kind)kind;
		if (count)
			printf("  %u %s", count, crowd_kind_name((enum crowd_kind)kind));
	}
	printf("\n\n%-34s %22s %8s %8s  %s\n", "", "ms: median (least..most)", "missed", "false",
	       "kinds found");
}

static void print_way(struct way *way, uint64_t rounds)
{
	unsigned int kinds = 0;

	if (way->absent) {
		printf("%-34s not installed\n", way->name);
		return;
	}
	for (int kind = CROWD_FD; kind < CROWD_KINDS; kind++)
		kinds += way->kinds_found[kind] > 0;
	printf("%-34s %8.1f (%.1f..%.1f) %8.1f %8.1f  %u\n", way->name, series_median(&way->ms),
	       series_min(&way->ms), series_max(&way->ms), (double)way->missed / (double)rounds,
	       (double)way->false_ones / (double)rounds, kinds);
}

static void measure(const struct crowd *crowd, const struct place *place, uint64_t rounds)
{
	static struct way ways[] = {
		{.name = "scan"},
		{.name = "scan, one thread", .options = {.threads = 1}},
		{.name = "scan, without details", .options = {.without_details = true}},
		{.name = "scan, without mappings", .options = {.without_maps = true}},
		{.name = "fuser", .words = {"fuser", DEVICE}},
		{.name = "lsof -t", .words = {"lsof", "-t", DEVICE}},
	};
	struct stat device;

	bench_os(stat(DEVICE, &device), "stat");
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
		ways[i].options.root = place->folder;
	/* One round more, first, for what is not in memory yet. */
	for (uint64_t round = 0; round <= rounds; round++) {
		for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
			run_round(&ways[i], crowd, (int32_t)minor(device.st_rdev), round > 0);
	}
	print_kinds(crowd);
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
		print_way(&ways[i], rounds);
}

int main(int argc, char **argv)
{
	uint64_t processes = 5000, descriptors = 25, holders = 50, churners = 0, rounds = 10;
	struct crowd_options options = {.seed = 1, .device = DEVICE};
	const struct bench_option known[] = {
		{"--processes", .number = &processes},
		{"--descriptors", .number = &descriptors},
		{"--holders", .number = &holders},
		{"--churners", .number = &churners},
		{"--rounds", .number = &rounds},
		{"--seed", .number = &options.seed},
		{0},
	};
	struct place place = {0};
	struct crowd crowd;
	int code;

	bench_options(argc, argv, known);
	make_place(&place);
	options.processes = (uint32_t)processes;
	options.descriptors = (uint32_t)descriptors;
	options.holders = (uint32_t)holders;
	options.churners = (uint32_t)churners;
	options.other_node = place.other;
	code = crowd_open(&options, &crowd);
	if (code < 0) {
		remove_place(&place);
		bench_die("scan: cannot make the crowd: %s", strerror(-code));
	}
	printf("%llu processes with %llu descriptors each, %llu holders, %llu rounds\n",
	       (unsigned long long)processes, (unsigned long long)descriptors,
	       (unsigned long long)holders, (unsigned long long)rounds);
	measure(&crowd, &place, rounds);
	crowd_close(&crowd);
	remove_place(&place);
	return 0;
}
