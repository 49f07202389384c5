/* SPDX-License-Identifier: MIT */
#include "cli/pools.h"

#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"

#define PERIOD_MAX_S 3600

struct options {
	bool json;
	bool help;
	int period_ms; /* 0: once */
};

static void print_help(void)
{
	(void)fputs("usage: gpuward pools [--json] [--watch[=SECONDS]]\n\n"
		    "Shows what all pools are doing, as far as this user may look.\n\n"
		    "  --json             as JSON; with --watch one object a line\n"
		    "  --watch[=SECONDS]  again every second, or every SECONDS\n"
		    "  --help             this text\n",
		    stdout);
}

static int usage(const char *what, const char *which)
{
	(void)fprintf(stderr, "gpuward pools: %s '%s'; see gpuward pools --help\n", what, which);
	return CLI_USAGE;
}

static int take_period(struct options *options, const char *text)
{
	char *end = NULL;
	long seconds = text ? strtol(text, &end, 10) : 1;

	if (text && (end == text || *end || seconds < 1 || seconds > PERIOD_MAX_S))
		return usage("--watch: not a number of seconds from 1 to 3600:", text);
	options->period_ms = (int)seconds * 1000;
	return CLI_OK;
}

static int take_json(struct options *options)
{
	options->json = pools_has_json();
	if (options->json)
		return CLI_OK;
	(void)fputs("gpuward pools: --json: this build has no jansson; install libjansson-dev and "
		    "build again\n",
		    stderr);
	return CLI_FAILED;
}

static int parse(int argc, char **argv, struct options *options)
{
	static const struct option known[] = {{"json", no_argument, NULL, 'j'},
					      {"watch", optional_argument, NULL, 'w'},
					      {"help", no_argument, NULL, 'h'},
					      {0}};
	int result = CLI_OK;
	int option;

	opterr = 0;
	optind = 1;
	while (result == CLI_OK && (option = getopt_long(argc, argv, "+h", known, NULL)) != -1) {
		if (option == 'j')
			result = take_json(options);
		else if (option == 'w')
			result = take_period(options, optarg);
		else if (option == 'h')
			options->help = true;
		else
			result = usage("unknown option, or one with a value that it does not take:",
				       argv[optind - 1]);
	}
	if (result == CLI_OK && optind < argc)
		return usage("unexpected", argv[optind]);
	return result;
}

static int show(const struct options *options)
{
	struct pools pools = {0};
	struct gw_error error;
	int result = pools_find(&pools, &error);

	if (result < 0) {
		(void)fprintf(stderr, "gpuward pools: %s\n", error.msg);
		return CLI_FAILED;
	}
	if (!options->json)
		pools_print(&pools);
	else if (pools_json(&pools, options->period_ms > 0) < 0)
		(void)fputs("gpuward pools: no memory for the JSON\n", stderr);
	pools_done(&pools);
	return cli_printed();
}

/* Waits for the next turn. Returns false when nobody reads standard output any more. */
static bool wait_turn(int period_ms)
{
	struct pollfd reader = {.fd = STDOUT_FILENO};

	return poll(&reader, 1, period_ms) == 0;
}

static int watch(const struct options *options)
{
	bool terminal = isatty(STDOUT_FILENO);
	int result;

	for (;;) {
		/* Home, and nothing below it. */
		if (terminal && !options->json)
			(void)fputs("\033[H\033[J", stdout);
		result = show(options);
		if (result != CLI_OK || !wait_turn(options->period_ms))
			return result;
		if (!terminal && !options->json)
			(void)putchar('\n');
	}
}

int command_pools(int argc, char **argv)
{
	struct options options = {0};
	int result = parse(argc, argv, &options);

	if (result != CLI_OK)
		return result;
	if (options.help) {
		print_help();
		return cli_printed();
	}
	return options.period_ms > 0 ? watch(&options) : show(&options);
}
