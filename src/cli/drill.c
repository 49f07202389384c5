/* SPDX-License-Identifier: MIT */
#include "cli/drill.h"

#include <errno.h>
#include <getopt.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "common/err.h"
#include "common/visible.h"
#include "gpu/nodes.h"

static const char help[] =
	"usage: gpuward drill crash|release|all [OPTION ...]\n\n"
	"Stages GPU faults and memory releases on this machine's GPU, and takes the times.\n\n"
	"  crash            each kind of fault: through a pool, and without one\n"
	"  release          each way in which a process with device memory ends, and two ghosts\n\n"
	"  --device N       the GPU, in PCI bus order (0)\n"
	"  --kinds A,B      only these faults: null, oob, misaligned, assert, trap, shared, stack\n"
	"  --repeat N       runs of each, of which the median is shown, 1 to 100 (1)\n"
	"  --memory MIB     device memory to release (8192, or 256 if emulated)\n"
	"  --json           the results as JSON\n"
	"  --help           this text\n";

static int by_value(const void *left, const void *right)
{
	const uint64_t *a = left, *b = right;

	return *a < *b ? -1 : *a > *b;
}

uint64_t drill_median(uint64_t *values, size_t count)
{
	qsort(values, count, sizeof(*values), by_value);
	if (count == 0 || values[count - 1] == GW_UNKNOWN)
		return GW_UNKNOWN;
	return values[count / 2];
}

uint64_t drill_used(struct drill *drill)
{
	struct probe_memory memory;

	if (drill->nvml_index == PROBE_DEVICE_UNKNOWN ||
	    probe_ask_memory(&drill->probe, drill->nvml_index, &memory, NULL) < 0)
		return GW_UNKNOWN;
	return memory.used_bytes;
}

/* ---- options ---- */

static int usage(const char *format, const char *what)
{
	(void)fprintf(stderr, "gpuward drill: ");
	/* The format is one of this file's own. */
	(void)fprintf(stderr, "%s '%s'; see gpuward drill --help\n", format, what);
	return CLI_USAGE;
}

/* A whole number in range, or -1. */
static int64_t number(const char *text, int64_t from, int64_t to)
{
	char *end;
	long long value;

	errno = 0;
	value = strtoll(text, &end, 10);
	return errno || *end || end == text || value < from || value > to ? -1 : value;
}

static int find_kind(const char *name, size_t length)
{
	for (int i = 0; i < DRILL_KINDS; i++) {
		if (strlen(drill_kinds[i].name) == length &&
		    strncmp(drill_kinds[i].name, name, length) == 0)
			return i;
	}
	return -1;
}

static bool take_kinds(struct drill_options *options, const char *list)
{
	memset(options->kinds, 0, sizeof(options->kinds));
	for (;;) {
		size_t length = strcspn(list, ",");
		int kind = find_kind(list, length);

		if (kind < 0)
			return false;
		options->kinds[kind] = true;
		if (list[length] == '\0')
			return true;
		list += length + 1;
	}
}

static int take_option(struct drill_options *options, int option, const char *value)
{
	int64_t n;

	switch (option) {
	case 'd':
		n = number(value, 0, 255);
		options->device = (int32_t)n;
		return n < 0 ? usage("--device: not a device number:", value) : CLI_OK;
	case 'r':
		n = number(value, 1, DRILL_REPEAT_MAX);
		options->repeat = (uint32_t)n;
		return n < 0 ? usage("--repeat: not a number from 1 to 100:", value) : CLI_OK;
	case 'm':
		n = number(value, 2, 1 << 30);
		options->memory_bytes = (uint64_t)n << 20;
		return n < 0 ? usage("--memory: not a number of MiB, at least 2:", value) : CLI_OK;
	case 'k':
		return take_kinds(options, value) ? CLI_OK
						  : usage("--kinds: unknown kind in", value);
	case 'j':
		if (!drill_has_json()) {
			(void)fprintf(stderr, "gpuward drill: --json: this build has no jansson; "
					      "install libjansson-dev and build again\n");
			return CLI_FAILED;
		}
		options->json = true;
		return CLI_OK;
	default:
		return CLI_USAGE;
	}
}

static int take_subject(struct drill_options *options, int argc, char **argv)
{
	bool all;

	if (argc == 0) {
		(void)fputs(help, stderr);
		return CLI_USAGE;
	}
	if (argc > 1)
		return usage("one of crash, release and all, not also", argv[1]);
	all = strcmp(argv[0], "all") == 0;
	options->crash = all || strcmp(argv[0], "crash") == 0;
	options->release = all || strcmp(argv[0], "release") == 0;
	if (!options->crash && !options->release)
		return usage("crash, release or all, not", argv[0]);
	return CLI_OK;
}

/* Returns CLI_OK, or the exit code; -1 after --help. */
static int parse(struct drill_options *options, int argc, char **argv)
{
	static const struct option longs[] = {
		{"device", required_argument, NULL, 'd'},
		{"kinds", required_argument, NULL, 'k'},
		{"repeat", required_argument, NULL, 'r'},
		{"memory", required_argument, NULL, 'm'},
		{"json", no_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	int option;

	opterr = 0;
	while ((option = getopt_long(argc, argv, ":h", longs, NULL)) != -1) {
		int result;

		if (option == 'h') {
			(void)fputs(help, stdout);
			return -1;
		}
		if (option == '?' || option == ':')
			return usage(option == ':' ? "a value is missing after" : "unknown option",
				     argv[optind - 1]);
		result = take_option(options, option, optarg);
		if (result != CLI_OK)
			return result;
	}
	return take_subject(options, argc - optind, argv + optind);
}

/* ---- running ---- */

/* CUDA takes the beginning of a UUID too, if it is the only one that begins so. */
static uint32_t find_uuid(struct drill *drill, const char *start)
{
	struct probe_device device;
	uint32_t found = PROBE_DEVICE_UNKNOWN;

	for (uint32_t i = 0; i < drill->driver.device_count; i++) {
		if (probe_ask_device(&drill->probe, i, &device, NULL) < 0 ||
		    strncmp(device.uuid, start, strlen(start)) != 0)
			continue;
		if (found != PROBE_DEVICE_UNKNOWN)
			return PROBE_DEVICE_UNKNOWN;
		found = i;
	}
	return found;
}

/* The pool's device numbers are those of CUDA_VISIBLE_DEVICES where that is set; NVML's are not. */
static uint32_t find_nvml_index(struct drill *drill)
{
	const char *list = getenv(VISIBLE_ENV);
	int32_t device = drill->options.device;
	const char *found;
	uint32_t count;
	char entry[96];
	size_t bytes;
	int64_t n;

	if (!list)
		return (uint32_t)device;
	if (!visible_entry(list, (uint32_t)device, &found, &bytes, &count))
		return PROBE_DEVICE_UNKNOWN;
	(void)snprintf(entry, sizeof(entry), "%.*s", (int)bytes, found);
	if (strncmp(entry, "GPU-", 4) == 0)
		return find_uuid(drill, entry);
	n = number(entry, 0, PROBE_DEVICES_MAX);
	return n < 0 ? PROBE_DEVICE_UNKNOWN : (uint32_t)n;
}

static int open_probe(struct drill *drill, struct gw_error *ret_error)
{
	uint32_t index;
	int result = probe_open(NULL, 0, &drill->probe, ret_error);

	if (result == 0)
		result = probe_ask_driver(&drill->probe, &drill->driver, ret_error);
	if (result < 0)
		return result;
	index = find_nvml_index(drill);
	if (index == PROBE_DEVICE_UNKNOWN)
		return 0;
	if (index >= drill->driver.device_count)
		return err_own(ret_error, -ENODEV, "device %d does not exist: this machine has %u",
			       drill->options.device, drill->driver.device_count);
	drill->nvml_index = index;
	return probe_ask_device(&drill->probe, index, &drill->device, ret_error);
}

static int check_nodes(struct gw_error *ret_error)
{
	struct nodes *nodes = calloc(1, sizeof(*nodes));
	int result;

	if (!nodes)
		return err_os(ret_error, ENOMEM, "no memory");
	result = nodes_read("", nodes, ret_error);
	if (result == 0)
		result = nodes_check(nodes, ret_error);
	free(nodes);
	return result;
}

static int run(struct drill *drill, struct gw_error *ret_error)
{
	int result = check_nodes(ret_error);

	if (result == 0)
		result = open_probe(drill, ret_error);
	if (result < 0)
		return result;
	drill->used_before_bytes = drill_used(drill);
	if (drill->options.crash)
		result = drill_crash_run(drill, ret_error);
	if (result == 0 && drill->options.release)
		result = drill_release_run(drill, ret_error);
	drill->used_after_bytes = drill_used(drill);
	/* A driver that stopped answering meanwhile is the reason for whatever else went wrong. */
	if (drill->probe.socket < 0) {
		*ret_error = drill->probe.ended;
		return drill->probe.ended.code;
	}
	return result;
}

static bool all_worked(const struct drill *drill)
{
	bool ok = true;

	for (size_t i = 0; i < drill->n_crash; i++)
		ok = ok && drill->crash[i].ok;
	for (size_t i = 0; i < drill->n_release; i++)
		ok = ok && drill->release[i].ok;
	return ok;
}

static int show(const struct drill *drill)
{
	int result = 0;

	if (drill->options.json)
		result = drill_json(drill);
	else
		drill_print(drill);
	if (fflush(stdout) != 0 || ferror(stdout))
		result = errno ? -errno : -EIO;
	if (result == 0)
		return CLI_OK;
	(void)fprintf(stderr, "gpuward drill: cannot print the results: %s\n", strerror(-result));
	return CLI_FAILED;
}

int command_drill(int argc, char **argv)
{
	static struct drill drill = {.options = {.repeat = 1}, .nvml_index = PROBE_DEVICE_UNKNOWN};
	struct gw_error error = {0};
	int result;

	(void)setlocale(LC_CTYPE, "");
	drill.probe = PROBE_NONE;
	for (int i = 0; i < DRILL_KINDS; i++)
		drill.options.kinds[i] = true;
	result = parse(&drill.options, argc, argv);
	if (result != CLI_OK)
		return result < 0 ? cli_printed() : result;
	result = run(&drill, &error);
	probe_close(&drill.probe);
	if (result < 0) {
		(void)fprintf(stderr, "gpuward drill: %s\n", error.msg);
		return error.code == GW_EDRIVER && error.native == ETIMEDOUT ? CLI_NO_ANSWER
									     : CLI_FAILED;
	}
	result = show(&drill);
	return result == CLI_OK && !all_worked(&drill) ? CLI_FAILED : result;
}
