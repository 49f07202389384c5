/* SPDX-License-Identifier: MIT */
/*
 * The control groups of a process, and whether they are frozen.
 *
 * A process is in one group of the v2 tree ("0::/path") and in one of each v1 tree; machines have either, or both.
 * A frozen process does not act on any signal but SIGKILL under v2, and not even on that under v1.
 *
 * Read next: parts.h, cgroup.h.
 */
#include "holders/groups.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/fd.h"
#include "holders/folder.h"
#include "holders/parts.h"

#define MOUNTS_MAX (1U << 20)

/* One line of mountinfo, of which this is needed. */
struct mount_line {
	const char *where;
	size_t where_bytes;
	const char *type;
	size_t type_bytes;
	const char *options; /* of the file system */
	size_t options_bytes;
};

/* The word at *AT, which goes on behind it. */
static size_t take_word(const char **at, const char **ret_word)
{
	size_t length = strcspn(*at, " \n");

	*ret_word = *at;
	*at += length;
	*at += **at == ' ';
	return length;
}

/* "36 35 98:0 /root /where rw,... shared:1 - type source options" */
static bool parse_mount(const char *line, struct mount_line *mount)
{
	const char *word, *at = line;
	size_t length;

	for (int i = 0; i < 4; i++) {
		if (take_word(&at, &word) == 0)
			return false;
	}
	mount->where_bytes = take_word(&at, &mount->where);
	do {
		length = take_word(&at, &word);
	} while (length > 0 && !(length == 1 && *word == '-'));
	mount->type_bytes = take_word(&at, &mount->type);
	(void)take_word(&at, &word);
	mount->options_bytes = take_word(&at, &mount->options);
	return mount->options_bytes > 0;
}

/* Is OPTION ("freezer", "hidepid=") among the options, or the beginning of one where it ends with "="? */
static const char *find_option(const struct mount_line *mount, const char *option)
{
	size_t length = strlen(option);
	const char *at = mount->options;
	const char *end = mount->options + mount->options_bytes;

	while (at < end) {
		const char *comma = memchr(at, ',', (size_t)(end - at));
		size_t one = comma ? (size_t)(comma - at) : (size_t)(end - at);

		if (one >= length && memcmp(at, option, length) == 0 &&
		    (one == length || option[length - 1] == '='))
			return at + length;
		at += one + 1;
	}
	return NULL;
}

static bool is_type(const struct mount_line *mount, const char *type)
{
	return mount->type_bytes == strlen(type) &&
	       memcmp(mount->type, type, mount->type_bytes) == 0;
}

static void keep(const struct mount_line *mount, char *path, size_t bytes)
{
	if (path[0] || mount->where_bytes >= bytes)
		return;
	memcpy(path, mount->where, mount->where_bytes);
	path[mount->where_bytes] = '\0';
}

static const char *next_line(const char *text)
{
	text += strcspn(text, "\n");
	return text + (*text == '\n');
}

void groups_parse_mounts(const char *text, struct groups *groups)
{
	struct mount_line mount;

	for (; *text; text = next_line(text)) {
		if (!parse_mount(text, &mount))
			continue;
		if (is_type(&mount, "cgroup2"))
			keep(&mount, groups->unified, sizeof(groups->unified));
		else if (is_type(&mount, "cgroup") && find_option(&mount, "freezer"))
			keep(&mount, groups->freezer, sizeof(groups->freezer));
	}
}

/* Numbers up to Linux 5.7, words since. */
static int hidepid_of(const char *value)
{
	if (strncmp(value, "noaccess", 8) == 0)
		return 1;
	if (strncmp(value, "invisible", 9) == 0)
		return 2;
	if (strncmp(value, "ptraceable", 10) == 0)
		return 4;
	return *value >= '0' && *value <= '9' ? *value - '0' : 0;
}

int groups_parse_hidepid(const char *text, const char *path)
{
	struct mount_line mount;
	int hidepid = -1;

	/* A later mount lies over an earlier one. */
	for (; *text; text = next_line(text)) {
		const char *value;

		if (!parse_mount(text, &mount) || !is_type(&mount, "proc") ||
		    mount.where_bytes != strlen(path) ||
		    memcmp(mount.where, path, mount.where_bytes) != 0)
			continue;
		value = find_option(&mount, "hidepid=");
		hidepid = value ? hidepid_of(value) : 0;
	}
	return hidepid;
}

void groups_read_mounts(int proc, struct groups *groups)
{
	cleanup_free char *text = malloc(MOUNTS_MAX);

	if (text && folder_read_file(proc, "self/mountinfo", text, MOUNTS_MAX) > 0)
		groups_parse_mounts(text, groups);
}

static void take_line(const char *line, size_t length, struct finding *finding)
{
	struct cgroup_place *place = &finding->process.place;
	struct cgroup_line parsed;

	if (!cgroup_parse_line(line, length, &parsed))
		return;
	cgroup_parse_path(parsed.path, parsed.path_bytes, place);
	if (parsed.unified)
		place->unified = arena_copy(&finding->chunks, parsed.path, parsed.path_bytes);
	else if (cgroup_line_has(&parsed, "freezer"))
		place->freezer = arena_copy(&finding->chunks, parsed.path, parsed.path_bytes);
}

/* Reads FILE of the group PATH in the tree MOUNT. A path of another namespace ("/../..") is none here. */
static bool read_of_group(const char *mount, const char *path, const char *file, char *text,
			  size_t bytes)
{
	char whole[PATH_MAX];

	if (!mount[0] || !path || strstr(path, "/..") ||
	    snprintf(whole, sizeof(whole), "%s%s/%s", mount, path, file) >= (int)sizeof(whole))
		return false;
	return folder_read_file(AT_FDCWD, whole, text, bytes) > 0;
}

static void read_freezers(struct look *look, struct finding *finding)
{
	const struct cgroup_place *place = &finding->process.place;
	char text[256];

	if (read_of_group(look->groups->unified, place->unified, "cgroup.events", text,
			  sizeof(text)) &&
	    strstr(text, "frozen 1\n"))
		finding->process.flags |= SCAN_FROZEN;
	if (read_of_group(look->groups->freezer, place->freezer, "freezer.state", text,
			  sizeof(text)) &&
	    strncmp(text, "FROZEN", 6) == 0)
		finding->process.flags |= SCAN_FROZEN | SCAN_FROZEN_V1;
}

void groups_read(struct look *look, struct finding *finding)
{
	const char *line = look->text;

	if (folder_read_file(look->folder, "cgroup", look->text, sizeof(look->text)) < 0)
		return;
	while (*line) {
		take_line(line, strcspn(line, "\n"), finding);
		line = next_line(line);
	}
	read_freezers(look, finding);
}
