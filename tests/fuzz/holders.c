/* SPDX-License-Identifier: MIT */
/*
 * Fuzz target: the parsers of /proc texts, and what makes text printable, with any bytes.
 *
 * Each input is taken as every kind of text in turn. What comes back is checked against the promises of scan.h,
 * cgroup.h and text.h. Built with libFuzzer (-Dfuzz=true, clang) or with replay.c, which runs a folder of kept inputs.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "holders/cgroup.h"
#include "holders/device.h"
#include "holders/groups.h"
#include "holders/look.h"
#include "holders/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void require(bool condition)
{
	if (!condition)
		abort();
}

static void check_place(const struct cgroup_place *place)
{
	require(memchr(place->container_id, 0, sizeof(place->container_id)) != NULL);
	require(memchr(place->pod_uid, 0, sizeof(place->pod_uid)) != NULL);
	require(memchr(place->slurm_step, 0, sizeof(place->slurm_step)) != NULL);
	require(memchr(place->unit, 0, sizeof(place->unit)) != NULL);
	require((place->runtime == CGROUP_NO_CONTAINER) == (place->container_id[0] == '\0'));
	require(place->slurm_job_id != GW_UNKNOWN || place->slurm_step[0] == '\0');
}

static void check_groups(const char *text, size_t bytes)
{
	struct cgroup_place place = CGROUP_PLACE_NONE;
	struct cgroup_line line;
	struct groups groups = {0};

	cgroup_parse_path(text, bytes, &place);
	check_place(&place);
	if (cgroup_parse_line(text, bytes, &line)) {
		require(line.path_bytes > 0 && line.path[0] == '/');
		require(line.path + line.path_bytes == text + bytes);
		require(line.controllers + line.controllers_bytes < line.path);
		(void)cgroup_line_has(&line, "freezer");
	}
	groups_parse_mounts(text, &groups);
	require(memchr(groups.unified, 0, sizeof(groups.unified)) != NULL);
	require(memchr(groups.freezer, 0, sizeof(groups.freezer)) != NULL);
	(void)groups_parse_hidepid(text, "/proc");
}

static void check_process(const char *text, size_t bytes)
{
	struct scan_process process;
	struct scan_device device;

	process_init(&process);
	if (process_parse_stat(text, bytes, &process))
		require(process.start_ticks != GW_UNKNOWN || process.comm[0] != '\0' || bytes > 0);
	require(memchr(process.comm, 0, sizeof(process.comm)) != NULL);
	process_parse_status(text, &process);
	require(process.nspid_count <= SCAN_NSPID_MAX);
	if (device_find_name(text, bytes, &device))
		require(device.kind != SCAN_DEVICE_UNKNOWN && device.minor >= -1);
}

/* One line, no control character, and the same again when it is made printable again. */
static void check_printable(const char *text, size_t bytes, size_t room)
{
	char first[256], second[256];
	size_t length = text_printable(first, room, text, bytes);

	require(length < room && first[length] == '\0' && strlen(first) == length);
	for (size_t i = 0; i < length; i++)
		require((unsigned char)first[i] >= ' ' && first[i] != 0x7f);
	require(text_printable(second, sizeof(second), first, length) == length);
	require(memcmp(first, second, length + 1) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	char *text = malloc(bytes + 1);

	if (!text)
		return 0;
	memcpy(text, data, bytes);
	text[bytes] = '\0';
	check_groups(text, bytes);
	check_process(text, bytes);
	check_printable(text, bytes, 256);
	check_printable(text, bytes, 1 + bytes % 16);
	free(text);
	return 0;
}
