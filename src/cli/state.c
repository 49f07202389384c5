/* SPDX-License-Identifier: MIT */
#include "cli/state.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "common/keep_place.h"
#include "common/state_wire.h"

#define SECOND_NS UINT64_C(1000000000)

struct options {
	bool json;
	bool help;
	const char *hold_for; /* NULL: not given */
	char **rest;
	int n_rest;
};

static void print_help(void)
{
	(void)fputs(
		"usage: gpuward state ls [--json] [NAME]\n"
		"       gpuward state rm NAME [PIECE]\n"
		"       gpuward state keep NAME --for DURATION\n\n"
		"Shows and removes device memory that is kept beyond its pool.\n\n"
		"  --json           as JSON\n"
		"  --for DURATION   how long NAME is kept when no pool uses it: 30s, 10m, 2h, 7d or\n"
		"                   forever (until rm, the end of the login or of the machine)\n"
		"  --help           this text\n",
		stdout);
}

static int usage(const char *what, const char *which)
{
	(void)fprintf(stderr, "gpuward state: %s '%s'; see gpuward state --help\n", what, which);
	return CLI_USAGE;
}

static int fail(const struct gw_error *error)
{
	(void)fprintf(stderr, "gpuward state: %s\n", error->msg);
	return CLI_FAILED;
}

static int take_json(struct options *options)
{
	options->json = state_has_json();
	if (options->json)
		return CLI_OK;
	(void)fputs("gpuward state: --json: this build has no jansson; install libjansson-dev and "
		    "build again\n",
		    stderr);
	return CLI_FAILED;
}

static int parse(int argc, char **argv, struct options *options)
{
	static const struct option known[] = {{"json", no_argument, NULL, 'j'},
					      {"for", required_argument, NULL, 'f'},
					      {"help", no_argument, NULL, 'h'},
					      {0}};
	int result = CLI_OK;
	int option;

	opterr = 0;
	optind = 1;
	while (result == CLI_OK && (option = getopt_long(argc, argv, ":h", known, NULL)) != -1) {
		if (option == 'j')
			result = take_json(options);
		else if (option == 'f')
			options->hold_for = optarg;
		else if (option == 'h')
			options->help = true;
		else
			result = usage(option == ':' ? "no value after" : "unknown option",
				       argv[optind - 1]);
	}
	options->rest = argv + optind;
	options->n_rest = argc - optind;
	return result;
}

/* "10m", "forever". */
static bool parse_duration(const char *text, uint64_t *ret_ns)
{
	static const struct {
		char unit;
		uint64_t seconds;
	} units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
	unsigned long long count;
	char *end;

	if (strcmp(text, "forever") == 0) {
		*ret_ns = GW_FOREVER;
		return true;
	}
	errno = 0;
	count = strtoull(text, &end, 10);
	if (errno || end == text || text[0] < '0' || text[0] > '9' || end[0] == '\0' || end[1])
		return false;
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		uint64_t ns = units[i].seconds * SECOND_NS;

		/* Under 292 years, so that a sum with the clock does not overflow. */
		if (end[0] == units[i].unit && count <= (uint64_t)INT64_MAX / ns) {
			*ret_ns = count * ns;
			return true;
		}
	}
	return false;
}

/* ---- the three ---- */

static int run_ls(const struct options *options)
{
	struct state_list list;
	struct gw_error error;

	if (options->n_rest > 2)
		return usage("unexpected", options->rest[2]);
	if (options->n_rest == 2 && !keep_place_name_is_good(options->rest[1]))
		return usage("no name of state:", options->rest[1]);
	if (state_ask_all(options->n_rest == 2 ? options->rest[1] : NULL, &list, &error) < 0)
		return fail(&error);
	if (!options->json)
		state_print(&list);
	else if (state_json(&list) < 0)
		(void)fputs("gpuward state: no memory for the JSON\n", stderr);
	state_list_done(&list);
	return cli_printed();
}

static bool piece_is_good(const char *piece)
{
	char name[GW_NAME_MAX] = "";

	(void)snprintf(name, sizeof(name), "%s", piece);
	return strlen(piece) < sizeof(name) && state_wire_name_is_good(name);
}

static int run_rm(const struct options *options)
{
	const char *piece = options->n_rest == 3 ? options->rest[2] : "";
	struct gw_error error;

	if (options->n_rest < 2)
		return usage("no name after", "rm");
	if (options->n_rest > 3)
		return usage("unexpected", options->rest[3]);
	if (!keep_place_name_is_good(options->rest[1]))
		return usage("no name of state:", options->rest[1]);
	if (options->n_rest == 3 && !piece_is_good(piece))
		return usage("no name of a piece:", piece);
	return state_ask_remove(options->rest[1], piece, &error) < 0 ? fail(&error) : CLI_OK;
}

static int run_keep(const struct options *options)
{
	struct gw_error error;
	uint64_t ns;

	if (options->n_rest < 2)
		return usage("no name after", "keep");
	if (options->n_rest > 2)
		return usage("unexpected", options->rest[2]);
	if (!keep_place_name_is_good(options->rest[1]))
		return usage("no name of state:", options->rest[1]);
	if (!options->hold_for)
		return usage("how long? --for is missing after", "keep");
	if (!parse_duration(options->hold_for, &ns))
		return usage("--for: no duration (30s, 10m, 2h, 7d, forever):", options->hold_for);
	return state_ask_for(options->rest[1], ns, &error) < 0 ? fail(&error) : CLI_OK;
}

int command_state(int argc, char **argv)
{
	struct options options = {0};
	const char *what;
	int result = parse(argc, argv, &options);

	if (result != CLI_OK)
		return result;
	if (options.help) {
		print_help();
		return cli_printed();
	}
	if (options.n_rest == 0)
		return usage("ls, rm or keep? nothing after", "state");
	what = options.rest[0];
	if (options.json && strcmp(what, "ls") != 0)
		return usage("--json is for ls, not for", what);
	if (options.hold_for && strcmp(what, "keep") != 0)
		return usage("--for is for keep, not for", what);
	if (strcmp(what, "ls") == 0)
		return run_ls(&options);
	if (strcmp(what, "rm") == 0)
		return run_rm(&options);
	if (strcmp(what, "keep") == 0)
		return run_keep(&options);
	return usage("unknown command", what);
}
