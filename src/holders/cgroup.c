/* SPDX-License-Identifier: MIT */
/*
 * The forms of a control group's path, component by component:
 *
 *	docker-ID.scope  docker/ID			Docker, with systemd and without
 *	cri-containerd-ID.scope  cri-containerd:...:ID	containerd
 *	crio-ID.scope  crio-conmon-ID.scope		CRI-O; conmon is its helper and no container
 *	libpod-ID.scope  libpod_parent/libpod-ID	Podman
 *	lxc/NAME  lxc.payload.NAME			LXC
 *	machine.slice/systemd-nspawn@NAME.service	nspawn
 *	kubepods-burstable-podUID.slice  podUID		Kubernetes: "-" or "_" in the UID
 *	kubepods/burstable/podUID/ID			Kubernetes: the container by its bare ID
 *	kubepods-podUID.slice:cri-containerd:ID		both in one, under the other driver of groups
 *	slurmstepd.scope/job_N/step_S/user/task_0	Slurm, v2
 *	NODE_slurmstepd.scope/job_N/...			Slurm, v2, with several slurmd
 *	slurm/uid_U/job_N/step_S/task_0			Slurm, v1
 *	slurm_NODE/uid_U/job_N/...			Slurm, v1, with several slurmd
 *	NAME.service  NAME.scope			systemd
 *
 * An ID has 64 hexadecimal digits. " (deleted)" behind the path means that the group was removed.
 *
 * Read next: cgroup.h.
 */
#include "holders/cgroup.h"

#include <string.h>

#define ID_DIGITS 64

/* One component of a path. */
struct part {
	const char *text;
	size_t length;
};

static bool begins(const struct part *part, const char *with)
{
	size_t length = strlen(with);

	return part->length >= length && memcmp(part->text, with, length) == 0;
}

static bool ends(const struct part *part, const char *with)
{
	size_t length = strlen(with);

	return part->length >= length &&
	       memcmp(part->text + part->length - length, with, length) == 0;
}

static bool is(const struct part *part, const char *text)
{
	return part->length == strlen(text) && begins(part, text);
}

/* PART without what stands before and behind. */
static struct part inner(const struct part *part, size_t before, size_t behind)
{
	if (part->length < before + behind)
		return (struct part){.text = part->text, .length = 0};
	return (struct part){.text = part->text + before, .length = part->length - before - behind};
}

static bool is_id(const struct part *part)
{
	if (part->length != ID_DIGITS)
		return false;
	for (size_t i = 0; i < part->length; i++) {
		char c = part->text[i];

		if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
			return false;
	}
	return true;
}

/* Copies PART, cut to BYTES. An empty one is not copied. */
static void copy(const struct part *part, char *to, size_t bytes)
{
	size_t length = part->length < bytes ? part->length : bytes - 1;

	if (length == 0)
		return;
	memcpy(to, part->text, length);
	to[length] = '\0';
}

static void set_container(struct cgroup_place *place, enum cgroup_runtime runtime,
			  const struct part *id)
{
	if (id->length == 0 || id->text[0] == '\0')
		return;
	place->runtime = runtime;
	copy(id, place->container_id, sizeof(place->container_id));
}

/* "docker-ID.scope" and its kind, "libpod-ID" too. Returns whether it was one. */
static bool parse_scope(const struct part *part, struct cgroup_place *place)
{
	static const struct {
		const char *prefix;
		enum cgroup_runtime runtime;
	} known[] = {
		{"docker-", CGROUP_DOCKER},	    {"cri-containerd-", CGROUP_CONTAINERD},
		{"containerd-", CGROUP_CONTAINERD}, {"crio-", CGROUP_CRIO},
		{"libpod-", CGROUP_PODMAN},
	};
	size_t behind = ends(part, ".scope") ? strlen(".scope") : 0;

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		struct part id = inner(part, strlen(known[i].prefix), behind);

		if (!begins(part, known[i].prefix) || !is_id(&id))
			continue;
		set_container(place, known[i].runtime, &id);
		return true;
	}
	return false;
}

/* The runtime that the word BEFORE an ID names: "docker/ID", "...:cri-containerd:ID". */
static enum cgroup_runtime runtime_of(const struct part *before)
{
	static const struct {
		const char *name;
		enum cgroup_runtime runtime;
	} known[] = {
		{"docker", CGROUP_DOCKER},
		{"cri-containerd", CGROUP_CONTAINERD},
		{"crio", CGROUP_CRIO},
		{"libpod", CGROUP_PODMAN},
		{"libpod_parent", CGROUP_PODMAN},
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (is(before, known[i].name))
			return known[i].runtime;
	}
	return CGROUP_SOME_CONTAINER;
}

/* Splits "slice:runtime:ID" at its last colon; ID alone has no runtime. */
static struct part split_id(const struct part *part, struct part *ret_before)
{
	const char *last = memrchr(part->text, ':', part->length);
	const char *other;
	size_t at;

	if (!last)
		return *part;
	at = (size_t)(last - part->text);
	other = memrchr(part->text, ':', at);
	*ret_before = inner(part, other ? (size_t)(other + 1 - part->text) : 0, part->length - at);
	return inner(part, at + 1, 0);
}

/* A bare ID: its runtime is known by the word before it, or not. */
static bool parse_bare_id(const struct part *before, const struct part *part,
			  struct cgroup_place *place)
{
	struct part word = *before;
	struct part id = split_id(part, &word);
	enum cgroup_runtime runtime = runtime_of(&word);

	if (!is_id(&id))
		return false;
	/* Without a runtime's name it counts only in a pod: other things have such names too. */
	if (runtime == CGROUP_SOME_CONTAINER && !place->pod_uid[0])
		return false;
	set_container(place, runtime, &id);
	return true;
}

static bool parse_named(const struct part *before, const struct part *part,
			struct cgroup_place *place)
{
	struct part name = {0};

	if (begins(part, "lxc.payload."))
		name = inner(part, strlen("lxc.payload."), 0);
	else if (is(before, "lxc") || is(before, "lxc.payload"))
		name = *part;
	if (name.length > 0) {
		set_container(place, CGROUP_LXC, &name);
		return true;
	}
	if (!begins(part, "systemd-nspawn@") || !ends(part, ".service"))
		return false;
	name = inner(part, strlen("systemd-nspawn@"), strlen(".service"));
	set_container(place, CGROUP_NSPAWN, &name);
	return true;
}

/* The eight groups of a UID: 8-4-4-4-12 hexadecimal digits, "-" or "_" between them; or 32 digits. */
static bool parse_pod_uid(const struct part *part, char uid[37])
{
	static const size_t dashes[] = {8, 13, 18, 23};
	size_t next = 0;

	if (part->length != 36 && part->length != 32)
		return false;
	for (size_t i = 0; i < part->length; i++) {
		char c = part->text[i];
		bool is_dash = part->length == 36 && next < 4 && i == dashes[next];

		if (is_dash ? c != '-' && c != '_'
			    : !((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
			return false;
		next += is_dash;
		uid[i] = is_dash ? '-' : c;
	}
	uid[part->length] = '\0';
	return true;
}

/* "podUID" and "kubepods-besteffort-podUID.slice". */
static void parse_pod(const struct part *part, struct cgroup_place *place)
{
	const char *colon = memchr(part->text, ':', part->length);
	struct part rest = {.text = part->text,
			    .length = colon ? (size_t)(colon - part->text) : part->length};
	char uid[37];

	rest = inner(&rest, 0, ends(&rest, ".slice") ? strlen(".slice") : 0);
	for (size_t at = 0; at + 3 < rest.length; at++) {
		struct part id = inner(&rest, at + 3, 0);

		if (memcmp(rest.text + at, "pod", 3) != 0 ||
		    (at > 0 && (rest.text[at - 1] != '-' || !begins(part, "kube"))) ||
		    !parse_pod_uid(&id, uid))
			continue;
		memcpy(place->pod_uid, uid, strlen(uid) + 1);
		return;
	}
}

/* A number that is all of PART; GW_UNKNOWN otherwise. */
static uint64_t whole_number(const struct part *part)
{
	uint64_t number = 0;

	if (part->length == 0 || part->length > 18)
		return GW_UNKNOWN;
	for (size_t i = 0; i < part->length; i++) {
		if (part->text[i] < '0' || part->text[i] > '9')
			return GW_UNKNOWN;
		number = number * 10 + (uint64_t)(part->text[i] - '0');
	}
	return number;
}

/* Inside the group of Slurm's daemon. */
static void parse_slurm(const struct part *part, struct cgroup_place *place)
{
	struct part rest;
	uint64_t number;

	if (begins(part, "uid_")) {
		rest = inner(part, strlen("uid_"), 0);
		number = whole_number(&rest);
		if (number <= INT32_MAX)
			place->slurm_uid = (int32_t)number;
	} else if (begins(part, "job_") && place->slurm_job_id == GW_UNKNOWN) {
		rest = inner(part, strlen("job_"), 0);
		place->slurm_job_id = whole_number(&rest);
	} else if (begins(part, "step_") && place->slurm_job_id != GW_UNKNOWN &&
		   !place->slurm_step[0]) {
		rest = inner(part, strlen("step_"), 0);
		copy(&rest, place->slurm_step, sizeof(place->slurm_step));
	}
}

/* v2: the scope of slurmstepd. v1: a folder of Slurm's own, directly below the root of a tree. */
static bool begins_slurm(const struct part *part, bool first)
{
	if (is(part, "slurmstepd.scope") || ends(part, "_slurmstepd.scope"))
		return true;
	return first && (is(part, "slurm") || begins(part, "slurm_"));
}

static void parse_unit(const struct part *part, struct cgroup_place *place)
{
	if (ends(part, ".service") || ends(part, ".scope"))
		copy(part, place->unit, sizeof(place->unit));
}

static void parse_part(const struct part *before, const struct part *part,
		       struct cgroup_place *place)
{
	parse_pod(part, place);
	if (!parse_scope(part, place) && !parse_bare_id(before, part, place))
		(void)parse_named(before, part, place);
}

void cgroup_parse_path(const char *path, size_t length, struct cgroup_place *place)
{
	struct part whole = {.text = path, .length = length};
	struct part before = {.text = "", .length = 0};
	struct cgroup_place found = *place;
	bool slurm = false, first = true;

	if (ends(&whole, " (deleted)")) {
		found.deleted = true;
		whole.length -= strlen(" (deleted)");
	}
	while (whole.length > 0) {
		const char *slash = memchr(whole.text, '/', whole.length);
		struct part part = {.text = whole.text};

		part.length = slash ? (size_t)(slash - whole.text) : whole.length;
		whole = inner(&whole, part.length + (slash != NULL), 0);
		if (part.length == 0)
			continue;
		slurm = slurm || begins_slurm(&part, first);
		if (slurm)
			parse_slurm(&part, &found);
		else
			parse_part(&before, &part, &found);
		parse_unit(&part, &found);
		before = part;
		first = false;
	}
	*place = found;
}

bool cgroup_parse_line(const char *line, size_t length, struct cgroup_line *ret_line)
{
	const char *first = memchr(line, ':', length);
	const char *second =
		first ? memchr(first + 1, ':', length - (size_t)(first + 1 - line)) : NULL;

	if (!second || second + 1 >= line + length || second[1] != '/')
		return false;
	*ret_line = (struct cgroup_line){
		.unified = first == line + 1 && line[0] == '0' && second == first + 1,
		.controllers = first + 1,
		.controllers_bytes = (size_t)(second - first - 1),
		.path = second + 1,
		.path_bytes = length - (size_t)(second + 1 - line),
	};
	return true;
}

bool cgroup_line_has(const struct cgroup_line *line, const char *name)
{
	struct part rest = {.text = line->controllers, .length = line->controllers_bytes};

	while (rest.length > 0) {
		const char *comma = memchr(rest.text, ',', rest.length);
		struct part one = {.text = rest.text};

		one.length = comma ? (size_t)(comma - rest.text) : rest.length;
		if (is(&one, name))
			return true;
		rest = inner(&rest, one.length + (comma != NULL), 0);
	}
	return false;
}

const char *cgroup_runtime_name(enum cgroup_runtime runtime)
{
	static const char *const names[] = {
		[CGROUP_NO_CONTAINER] = "",	    [CGROUP_DOCKER] = "docker",
		[CGROUP_CONTAINERD] = "containerd", [CGROUP_CRIO] = "cri-o",
		[CGROUP_PODMAN] = "podman",	    [CGROUP_LXC] = "lxc",
		[CGROUP_NSPAWN] = "nspawn",	    [CGROUP_SOME_CONTAINER] = "container",
	};

	return runtime < sizeof(names) / sizeof(names[0]) ? names[runtime] : "";
}
