/* SPDX-License-Identifier: MIT */
/*
 * What the drill is asked for. Runs in: command line. Whatever is wrong is told in one line; what belongs to the
 * other half of the drill is wrong too, since it would have no effect.
 */
#include "cli/drill.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"

static const char help[] =
	"usage: gpuward drill [crash|release|all] [OPTION ...]\n\n"
	"Stages GPU faults and memory releases on this machine's GPU, and takes the times.\n\n"
	"  crash            faults, through pools with cold, primed and hot standbys, and by hand\n"
	"  release          each way in which a process with device memory ends, and two ghosts\n"
	"  all              both (the default)\n\n"
	"  --device N       the GPU, in PCI bus order (0)\n"
	"  --repeat N       runs of each, of which the median is shown, 1 to 100 (1)\n"
	"  --json           the results as JSON\n"
	"  --help           this text\n\n"
	"of crash:\n"
	"  --kinds A,B      these faults: null, oob, misaligned, assert, trap, shared, stack (null,trap)\n"
	"  --all            every kind of fault\n"
	"  --levels A,B     only these: by-hand, cold, primed, hot, hot-1 (all)\n"
	"  --state MIB      sealed state on the device (512, or 32 if emulated); 0: none\n"
	"  --svg FILE       draw the timelines into FILE\n\n"
	"of release:\n"
	"  --memory MIB     device memory to release (8192, or 256 if emulated)\n";

static int usage(const char *format, const char *what)
{
	(void)fprintf(stderr, "gpuward drill: ");
	/* The format is one of this file's own. */
	(void)fprintf(stderr, "%s '%s'; see gpuward drill --help\n", format, what);
	return CLI_USAGE;
}

int64_t drill_number(const char *text, int64_t from, int64_t to)
{
	char *end;
	long long value;

	errno = 0;
	value = strtoll(text, &end, 10);
	return errno || *end || end == text || value < from || value > to ? -1 : value;
}

static const char *kind_name(int number)
{
	return drill_kinds[number].name;
}

static const char *level_name(int number)
{
	return drill_level_id((enum drill_level)number);
}

static int find(const char *name, size_t length, const char *(*name_of)(int), int count)
{
	for (int i = 0; i < count; i++) {
		if (strlen(name_of(i)) == length && strncmp(name_of(i), name, length) == 0)
			return i;
	}
	return -1;
}

/* Sets those of COUNT flags whose names stand in LIST, and no others. False where there is no such name. */
static bool take_list(bool *flags, const char *(*name_of)(int), int count, const char *list)
{
	memset(flags, 0, (size_t)count * sizeof(*flags));
	for (;;) {
		size_t length = strcspn(list, ",");
		int number = find(list, length, name_of, count);

		if (number < 0)
			return false;
		flags[number] = true;
		if (list[length] == '\0')
			return true;
		list += length + 1;
	}
}

/* Which options were given, for what contradicts. */
struct given {
	const char *of_crash; /* the last one that belongs to crash alone */
	const char *of_release;
	bool kinds;
	bool all;
};

static int take_json(struct drill_options *options)
{
	if (!drill_has_json()) {
		(void)fprintf(stderr, "gpuward drill: --json: this build has no jansson; "
				      "install libjansson-dev and build again\n");
		return CLI_FAILED;
	}
	options->json = true;
	return CLI_OK;
}

static int take_crash_option(struct drill_options *options, struct given *given, int option,
			     const char *value)
{
	int64_t n;

	switch (option) {
	case 'k':
		given->kinds = true;
		given->of_crash = "--kinds";
		return take_list(options->kinds, kind_name, DRILL_KINDS, value)
			       ? CLI_OK
			       : usage("--kinds: unknown kind in", value);
	case 'l':
		given->of_crash = "--levels";
		return take_list(options->levels, level_name, DRILL_LEVELS, value)
			       ? CLI_OK
			       : usage("--levels: unknown level in", value);
	case 'a':
		given->all = true;
		given->of_crash = "--all";
		return CLI_OK;
	case 's':
		given->of_crash = "--state";
		n = drill_number(value, 0, 1 << 30);
		/* Device memory comes in pieces of 2 MiB. */
		options->state_bytes = (uint64_t)((n + 1) & ~INT64_C(1)) << 20;
		return n < 0 ? usage("--state: not a number of MiB:", value) : CLI_OK;
	case 'v':
		given->of_crash = "--svg";
		options->svg_path = value;
		return *value ? CLI_OK : usage("--svg: not the name of a file:", value);
	default:
		return CLI_USAGE;
	}
}

static int take_option(struct drill_options *options, struct given *given, int option,
		       const char *value)
{
	int64_t n;

	switch (option) {
	case 'd':
		n = drill_number(value, 0, 255);
		options->device = (int32_t)n;
		return n < 0 ? usage("--device: not a device number:", value) : CLI_OK;
	case 'r':
		n = drill_number(value, 1, DRILL_REPEAT_MAX);
		options->repeat = (uint32_t)n;
		return n < 0 ? usage("--repeat: not a number from 1 to 100:", value) : CLI_OK;
	case 'm':
		given->of_release = "--memory";
		n = drill_number(value, 2, 1 << 30);
		options->memory_bytes = (uint64_t)n << 20;
		return n < 0 ? usage("--memory: not a number of MiB, at least 2:", value) : CLI_OK;
	case 'j':
		return take_json(options);
	default:
		return take_crash_option(options, given, option, value);
	}
}

static int take_subject(struct drill_options *options, int argc, char **argv)
{
	const char *subject = argc > 0 ? argv[0] : "all";
	bool all = strcmp(subject, "all") == 0;

	if (argc > 1)
		return usage("one of crash, release and all, not also", argv[1]);
	options->crash = all || strcmp(subject, "crash") == 0;
	options->release = all || strcmp(subject, "release") == 0;
	if (!options->crash && !options->release)
		return usage("crash, release or all, not", subject);
	return CLI_OK;
}

static int check(struct drill_options *options, const struct given *given)
{
	if (given->kinds && given->all)
		return usage("--kinds names some kinds, so not also", "--all");
	if (!options->crash && given->of_crash)
		return usage("release has no faults, so not with", given->of_crash);
	if (!options->release && given->of_release)
		return usage("crash releases no memory, so not with", given->of_release);
	if (given->all)
		(void)memset(options->kinds, 1, sizeof(options->kinds));
	return CLI_OK;
}

static void set_defaults(struct drill_options *options)
{
	*options = (struct drill_options){.repeat = 1, .state_bytes = GW_UNKNOWN};
	(void)take_list(options->kinds, kind_name, DRILL_KINDS, "null,trap");
	for (int i = 0; i < DRILL_LEVELS; i++)
		options->levels[i] = true;
}

int drill_parse(struct drill_options *options, int argc, char **argv)
{
	static const struct option longs[] = {
		{"device", required_argument, NULL, 'd'},
		{"kinds", required_argument, NULL, 'k'},
		{"all", no_argument, NULL, 'a'},
		{"levels", required_argument, NULL, 'l'},
		{"state", required_argument, NULL, 's'},
		{"svg", required_argument, NULL, 'v'},
		{"repeat", required_argument, NULL, 'r'},
		{"memory", required_argument, NULL, 'm'},
		{"json", no_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	struct given given = {0};
	int option, result;

	set_defaults(options);
	opterr = 0;
	while ((option = getopt_long(argc, argv, ":h", longs, NULL)) != -1) {
		if (option == 'h') {
			(void)fputs(help, stdout);
			return -1;
		}
		if (option == '?' || option == ':')
			return usage(option == ':' ? "a value is missing after" : "unknown option",
				     argv[optind - 1]);
		result = take_option(options, &given, option, optarg);
		if (result != CLI_OK)
			return result;
	}
	result = take_subject(options, argc - optind, argv + optind);
	return result == CLI_OK ? check(options, &given) : result;
}
