/* SPDX-License-Identifier: MIT */
/* The command line of `gpuward ps`. Runs in: command line. Read next: ps.h. */
#include "cli/ps.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"

#define SECONDS_MAX 3600
#define PID_MAX	    4194304
#define SECOND_NS   UINT64_C(1000000000)

enum {
	OPTION_JSON = 256,
	OPTION_TREE,
	OPTION_WATCH,
	OPTION_DEADLINE,
	OPTION_SORT,
	OPTION_GPU,
	OPTION_USER,
	OPTION_PID,
	OPTION_JOB,
	OPTION_CONTAINER,
	OPTION_CAUSE,
	OPTION_UNATTRIBUTED,
};

void ps_help(void)
{
	(void)fputs(
		"usage: gpuward ps [OPTION ...]\n\n"
		"Shows every process that holds a GPU, its memory there, and memory of nobody.\n\n"
		"  --gpu GPU            only of this GPU: its number, nvidiaN or its UUID\n"
		"  --user USER          only of this user: a name or a number\n"
		"  --pid PID            only this process; of a dead one: who holds its memory\n"
		"  --job ID             only of this Slurm or PBS job\n"
		"  --container ID       only of this container or pod; the first digits are enough\n"
		"  --cause CAUSE        only of this cause: its name or number, see gpuward-ps(1)\n"
		"  --unattributed       only holders that are charged for no memory: what is charged to\n"
		"                       nobody may be theirs\n"
		"  --sort KEY           gpu, pid, memory, user, age or command; -KEY turns it round\n"
		"  --tree               who shares open files with whom, and who made them\n"
		"  --watch[=SECONDS]    again every second, or every SECONDS\n"
		"  --json               as JSON; with --watch one object a line\n"
		"  --deadline SECONDS   how long to wait for the driver, at most; default 5\n"
		"  --help               this text\n",
		stdout);
}

static int usage(const char *what, const char *which)
{
	(void)fprintf(stderr, "gpuward ps: %s '%s'; see gpuward ps --help\n", what, which);
	return CLI_USAGE;
}

/* Decimal digits and nothing else. */
static bool parse_number(const char *text, long max, long *ret_number)
{
	char *end;
	long number;

	if (text[0] < '0' || text[0] > '9')
		return false;
	errno = 0;
	number = strtol(text, &end, 10);
	if (errno || *end || number > max)
		return false;
	*ret_number = number;
	return true;
}

static int take_seconds(const char *option, const char *text, long *ret_seconds)
{
	if (parse_number(text, SECONDS_MAX, ret_seconds) && *ret_seconds > 0)
		return CLI_OK;
	(void)fprintf(stderr,
		      "gpuward ps: %s: not a number of seconds from 1 to 3600: '%s'; see gpuward "
		      "ps --help\n",
		      option, text);
	return CLI_USAGE;
}

static int take_period(struct ps_options *options, const char *text)
{
	long seconds = 1;
	int result = text ? take_seconds("--watch", text, &seconds) : CLI_OK;

	options->period_ms = (int)seconds * 1000;
	return result;
}

static int take_deadline(struct ps_options *options, const char *text)
{
	long seconds = 0;
	int result = take_seconds("--deadline", text, &seconds);

	options->deadline_ns = (uint64_t)seconds * SECOND_NS;
	return result;
}

static int take_key(struct ps_options *options, const char *text)
{
	static const char *const names[] = {"gpu", "pid", "memory", "user", "age", "command"};

	options->reverse = text[0] == '-';
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(names[i], text + options->reverse) == 0) {
			options->key = (enum ps_key)i;
			return CLI_OK;
		}
	}
	return usage("--sort: not one of gpu, pid, memory, user, age, command:", text);
}

static int take_user(struct ps_options *options, const char *text)
{
	long number = 0;

	options->uid =
		parse_number(text, INT32_MAX, &number) ? (int32_t)number : ps_find_user(text);
	return options->uid >= 0 ? CLI_OK
				 : usage("--user: not in /etc/passwd (give the number):", text);
}

static int take_pid(struct ps_options *options, const char *text)
{
	long number = 0;

	if (!parse_number(text, PID_MAX, &number) || number == 0)
		return usage("--pid: not the number of a process:", text);
	options->pid = (int32_t)number;
	return CLI_OK;
}

static int take_text(const char *what, const char *text, const char **ret_text)
{
	*ret_text = text;
	return text[0] ? CLI_OK : usage(what, text);
}

static int take_json(struct ps_options *options)
{
	options->json = ps_has_json();
	if (options->json)
		return CLI_OK;
	(void)fputs("gpuward ps: --json: this build has no jansson; install libjansson-dev and "
		    "build again\n",
		    stderr);
	return CLI_FAILED;
}

static int take(struct ps_options *options, int option, const char *word)
{
	switch (option) {
	case OPTION_JSON:
		return take_json(options);
	case OPTION_TREE:
		options->tree = true;
		return CLI_OK;
	case OPTION_WATCH:
		return take_period(options, optarg);
	case OPTION_DEADLINE:
		return take_deadline(options, optarg);
	case OPTION_SORT:
		return take_key(options, optarg);
	case OPTION_GPU:
		return take_text("--gpu: no GPU:", optarg, &options->gpu);
	case OPTION_USER:
		return take_user(options, optarg);
	case OPTION_PID:
		return take_pid(options, optarg);
	case OPTION_JOB:
		return take_text("--job: no job:", optarg, &options->job);
	case OPTION_CONTAINER:
		return take_text("--container: no container:", optarg, &options->container);
	case OPTION_CAUSE:
		options->cause = cause_by_name(optarg);
		return options->cause != CAUSE_NONE ? CLI_OK : usage("--cause: no cause:", optarg);
	case OPTION_UNATTRIBUTED:
		options->unattributed = true;
		return CLI_OK;
	case 'h':
		options->help = true;
		return CLI_OK;
	case ':':
		return usage("no value after", word);
	default:
		return usage("unknown option, or one with a value that it does not take:", word);
	}
}

/* What is left: `--watch 2` too means two seconds. */
static int take_rest(struct ps_options *options, int argc, char **argv)
{
	if (optind < argc && options->period_ms > 0 && strcmp(argv[optind - 1], "--watch") == 0) {
		int result = take_period(options, argv[optind++]);

		if (result != CLI_OK)
			return result;
	}
	if (optind < argc)
		return usage("unexpected", argv[optind]);
	if (options->json && options->tree)
		return usage("--json has all that a tree has; leave out", "--tree");
	return CLI_OK;
}

int ps_parse(int argc, char **argv, struct ps_options *ret_options)
{
	static const struct option known[] = {
		{"json", no_argument, NULL, OPTION_JSON},
		{"tree", no_argument, NULL, OPTION_TREE},
		{"watch", optional_argument, NULL, OPTION_WATCH},
		{"deadline", required_argument, NULL, OPTION_DEADLINE},
		{"sort", required_argument, NULL, OPTION_SORT},
		{"gpu", required_argument, NULL, OPTION_GPU},
		{"user", required_argument, NULL, OPTION_USER},
		{"pid", required_argument, NULL, OPTION_PID},
		{"job", required_argument, NULL, OPTION_JOB},
		{"container", required_argument, NULL, OPTION_CONTAINER},
		{"cause", required_argument, NULL, OPTION_CAUSE},
		{"unattributed", no_argument, NULL, OPTION_UNATTRIBUTED},
		{"help", no_argument, NULL, 'h'},
		{0}};
	int result = CLI_OK;
	int option;

	*ret_options = (struct ps_options){.deadline_ns = PROBE_DEADLINE_NS, .uid = -1};
	opterr = 0;
	optind = 1;
	while (result == CLI_OK && (option = getopt_long(argc, argv, "+:h", known, NULL)) != -1)
		result = take(ret_options, option, argv[optind - 1]);
	return result == CLI_OK ? take_rest(ret_options, argc, argv) : result;
}
