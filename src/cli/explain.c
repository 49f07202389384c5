/* SPDX-License-Identifier: MIT */
/* The command `gpuward explain`. Runs in: command line. Read next: explain.h. */
#include "cli/explain.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "common/fd.h"

#define PID_MAX	   4194304
#define COMPARE_NS UINT64_C(300000000)

static void print_help(void)
{
	(void)fputs(
		"usage: gpuward explain [PID | --gpu N]\n\n"
		"Says why memory of GPUs is in use: for each holder that is not ordinary the\n"
		"cause, what shows it, and what to do; then what is normal. It ends nobody.\n\n"
		"  PID      only this process, and where in its life it is; or a pid that NVML\n"
		"           names and that does not exist\n"
		"  --gpu N  only this GPU, in NVML's order\n"
		"  --help   this text\n",
		stdout);
}

static int usage(const char *what, const char *which)
{
	(void)fprintf(stderr, "gpuward explain: %s '%s'; see gpuward explain --help\n", what,
		      which);
	return CLI_USAGE;
}

/* Decimal digits and nothing else, from MIN to MAX. */
static bool parse_number(const char *text, long min, long max, long *ret_number)
{
	char *end;

	if (text[0] < '0' || text[0] > '9')
		return false;
	errno = 0;
	*ret_number = strtol(text, &end, 10);
	return !errno && !*end && *ret_number >= min && *ret_number <= max;
}

static int look(struct explain *explain, struct gw_error *error)
{
	struct accounting_probe probe = ACCOUNTING_PROBE_NONE;
	struct scan_options options = {.deadline_ns = PROBE_DEADLINE_NS / 5 * 4};
	struct causes_input input = {.scan = &explain->scan,
				     .amounts = &explain->amounts,
				     .facts = &explain->facts.facts};
	uint64_t until_ns = after_ns(PROBE_DEADLINE_NS);
	int code = scan_run(&options, &explain->scan, error);
	uint64_t now = now_ns();

	if (code == 0)
		code = accounting_ask(&probe, &explain->scan, now < until_ns ? until_ns - now : 1,
				      &explain->amounts, error);
	accounting_probe_close(&probe);
	if (code == 0)
		code = facts_gather(&explain->scan, &explain->amounts, NULL, after_ns(COMPARE_NS),
				    &explain->facts, error);
	if (code == 0)
		code = causes_find(&input, &explain->verdicts, error);
	return code;
}

static void done(struct explain *explain)
{
	causes_free(&explain->verdicts);
	facts_free(&explain->facts);
	accounting_amounts_free(&explain->amounts);
	scan_free(&explain->scan);
}

/* From NVML's number to the place in amounts. NUMBER -1: all. */
static bool find_gpu(struct explain *explain, long number)
{
	explain->gpu = CAUSE_NOBODY;
	for (uint32_t i = 0; number >= 0 && i < explain->amounts.gpu_count; i++) {
		if (explain->amounts.gpus[i].index == (uint32_t)number)
			explain->gpu = i;
	}
	return number < 0 || explain->gpu != CAUSE_NOBODY;
}

static int explain_all(int32_t pid, long gpu)
{
	struct explain explain = {.pid = pid};
	struct gw_error error;
	char number[24];
	int result;

	if (look(&explain, &error) < 0) {
		(void)fprintf(stderr, "gpuward explain: %s\n", error.msg);
		result = CLI_FAILED;
	} else if (!find_gpu(&explain, gpu)) {
		(void)snprintf(number, sizeof(number), "%ld", gpu);
		result = explain.amounts.answer == AMOUNTS_HUNG
				 ? CLI_NO_ANSWER
				 : usage("--gpu: NVML names no such GPU:", number);
		if (result == CLI_NO_ANSWER)
			(void)fprintf(stderr, "gpuward explain: %s\n", explain.amounts.error.msg);
	} else {
		explain_print(&explain);
		result = cli_printed();
		if (result == CLI_OK && explain.amounts.answer == AMOUNTS_HUNG)
			result = CLI_NO_ANSWER;
	}
	done(&explain);
	return result;
}

int command_explain(int argc, char **argv)
{
	long pid = 0, gpu = -1;

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
			print_help();
			return cli_printed();
		}
		if (strcmp(argv[i], "--gpu") == 0) {
			if (i + 1 == argc)
				return usage("no value after", argv[i]);
			if (!parse_number(argv[++i], 0, 4095, &gpu))
				return usage("--gpu: not the number of a GPU:", argv[i]);
		} else if (argv[i][0] == '-') {
			return usage("unknown option", argv[i]);
		} else if (pid) {
			return usage("one PID is enough; unexpected", argv[i]);
		} else if (!parse_number(argv[i], 1, PID_MAX, &pid)) {
			return usage("not the number of a process:", argv[i]);
		}
	}
	if (pid && gpu >= 0)
		return usage("a PID needs no", "--gpu");
	return explain_all((int32_t)pid, gpu);
}
