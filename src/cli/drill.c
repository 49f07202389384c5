/* SPDX-License-Identifier: MIT */
#include "cli/drill.h"

#include <errno.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/replace.h"
#include "common/err.h"
#include "common/visible.h"
#include "gpu/nodes.h"

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

uint64_t drill_free(struct drill *drill)
{
	struct probe_memory memory;

	if (drill->nvml_index == PROBE_DEVICE_UNKNOWN ||
	    probe_ask_memory(&drill->probe, drill->nvml_index, &memory, NULL) < 0)
		return GW_UNKNOWN;
	return memory.free_bytes;
}

void drill_note(struct drill *drill, const char *format, ...)
{
	char note[DRILL_NOTE_MAX];
	va_list arguments;

	va_start(arguments, format);
	(void)vsnprintf(note, sizeof(note), format, arguments);
	va_end(arguments);
	for (size_t i = 0; i < drill->n_notes; i++) {
		if (strcmp(drill->notes[i], note) == 0)
			return;
	}
	if (drill->n_notes < DRILL_NOTES_MAX)
		memcpy(drill->notes[drill->n_notes++], note, sizeof(note));
}

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
	n = drill_number(entry, 0, PROBE_DEVICES_MAX);
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

	for (size_t i = 0; i < drill->n_crash; i++) {
		for (int level = 0; level < DRILL_LEVELS; level++) {
			for (int state = 0; state < 2; state++) {
				const struct drill_row *row = &drill->crash[i].rows[level][state];

				ok = ok && (!row->ran || row->ok);
			}
		}
	}
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

/* Returns EXIT_CODE after one line on standard error. */
static int failed(const struct gw_error *error, int exit_code)
{
	(void)fprintf(stderr, "gpuward drill: %s\n", error->msg);
	return exit_code;
}

int command_drill(int argc, char **argv)
{
	static struct drill drill = {.nvml_index = PROBE_DEVICE_UNKNOWN};
	struct gw_error error = {0};
	int result;

	(void)setlocale(LC_CTYPE, "");
	drill.probe = PROBE_NONE;
	result = drill_parse(&drill.options, argc, argv);
	if (result != CLI_OK)
		return result < 0 ? cli_printed() : result;
	/* Before work that takes long. */
	if (drill.options.svg_path && replace_check(drill.options.svg_path, &error) < 0)
		return failed(&error, CLI_USAGE);
	result = run(&drill, &error);
	probe_close(&drill.probe);
	if (result < 0)
		return failed(&error, error.code == GW_EDRIVER && error.native == ETIMEDOUT
					      ? CLI_NO_ANSWER
					      : CLI_FAILED);
	result = show(&drill);
	if (drill.options.svg_path && drill_svg(&drill, &error) < 0)
		return failed(&error, CLI_USAGE);
	return result == CLI_OK && !all_worked(&drill) ? CLI_FAILED : result;
}
