/* SPDX-License-Identifier: MIT */
#include "cli/ps.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/commands.h"

static int fail(const struct gw_error *error, int result)
{
	(void)fprintf(stderr, "gpuward ps: %s\n", error->msg);
	return result;
}

static int print(const struct ps_view *view, const struct ps_rows *rows,
		 const struct ps_options *options)
{
	struct ps_gpu gpu;

	if (options->json) {
		if (ps_json(view, rows, options->period_ms > 0) < 0)
			(void)fputs("gpuward ps: no memory for the JSON\n", stderr);
	} else {
		if (options->tree)
			ps_print_tree(view, rows);
		else
			ps_print_table(view, rows);
		ps_print_sums(view,
			      options->gpu && ps_find_gpu(view, options->gpu, &gpu) ? &gpu : NULL);
	}
	return cli_printed();
}

static int show(struct accounting_probe *probe, const struct ps_options *options)
{
	struct ps_view view = {0};
	struct ps_rows rows = {0};
	struct gw_error error;
	int result;

	if (ps_view_take(probe, options->deadline_ns, &view, &error) < 0)
		return fail(&error, CLI_FAILED);
	result = ps_rows_make(&view, options, &rows, &error);
	if (result == 0)
		result = print(&view, &rows, options);
	else
		result = fail(&error, options->gpu ? CLI_USAGE : CLI_FAILED);
	if (result == CLI_OK && view.amounts.answer == AMOUNTS_HUNG)
		result = CLI_NO_ANSWER;
	free(rows.all);
	ps_view_done(&view);
	return result;
}

/* Waits for the next turn. Returns false when nobody reads standard output any more. */
static bool wait_turn(int period_ms)
{
	struct pollfd reader = {.fd = STDOUT_FILENO};

	return poll(&reader, 1, period_ms) == 0;
}

static int watch(struct accounting_probe *probe, const struct ps_options *options)
{
	bool terminal = isatty(STDOUT_FILENO);
	int result;

	for (;;) {
		/* Home, and nothing below it. */
		if (terminal && !options->json)
			(void)fputs("\033[H\033[J", stdout);
		result = show(probe, options);
		/* A driver that hangs may come back. */
		if (result != CLI_OK && result != CLI_NO_ANSWER)
			return result;
		if (!wait_turn(options->period_ms))
			return result;
		if (!terminal && !options->json)
			(void)putchar('\n');
	}
}

int command_ps(int argc, char **argv)
{
	struct accounting_probe probe = ACCOUNTING_PROBE_NONE;
	struct ps_options options;
	int result = ps_parse(argc, argv, &options);

	if (result != CLI_OK)
		return result;
	if (options.help) {
		ps_help();
		return cli_printed();
	}
	result = options.period_ms > 0 ? watch(&probe, &options) : show(&probe, &options);
	accounting_probe_close(&probe);
	return result;
}
