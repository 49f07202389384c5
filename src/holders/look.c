/* SPDX-License-Identifier: MIT */
#include "holders/look.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/fd.h"
#include "holders/folder.h"
#include "holders/parts.h"

#define REFERENCES_FIRST 16U

void look_beat(struct look *look)
{
	atomic_store_explicit(look->beat_ns, now_ns(), memory_order_relaxed);
}

struct finding *finding_new(void)
{
	struct finding *finding = calloc(1, sizeof(*finding));

	if (finding)
		process_init(&finding->process);
	return finding;
}

void finding_free(struct finding *finding)
{
	if (!finding)
		return;
	arena_free(&finding->chunks);
	free(finding->references);
	free(finding);
}

bool finding_add(struct look *look, struct finding *finding, const struct scan_reference *reference)
{
	if (finding->count == finding->room) {
		uint32_t room = finding->room ? finding->room * 2 : REFERENCES_FIRST;
		struct scan_reference *grown =
			room > SCAN_REFERENCES_MAX
				? NULL
				: reallocarray(finding->references, room, sizeof(*grown));

		if (!grown) {
			look->unseen.references_dropped++;
			return false;
		}
		finding->references = grown;
		finding->room = room;
	}
	finding->references[finding->count++] = *reference;
	return true;
}

#define COMPARE_LAST 64U

static bool is_equal(const struct scan_reference *a, const struct scan_reference *b)
{
	return a->held == b->held && a->tid == b->tid && a->fd == b->fd &&
	       a->device.kind == b->device.kind && a->device.minor == b->device.minor &&
	       a->other_node == b->other_node;
}

void finding_count(struct look *look, struct finding *finding,
		   const struct scan_reference *reference)
{
	uint32_t first = finding->count > COMPARE_LAST ? finding->count - COMPARE_LAST : 0;

	for (uint32_t i = finding->count; i > first; i--) {
		struct scan_reference *other = &finding->references[i - 1];

		if (!is_equal(other, reference))
			continue;
		other->count += reference->count;
		if (reference->bytes != GW_UNKNOWN)
			other->bytes += reference->bytes;
		return;
	}
	(void)finding_add(look, finding, reference);
}

ssize_t look_read_fdinfo(struct look *look, int folder, const char *name)
{
	char path[32];

	(void)snprintf(path, sizeof(path), "fdinfo/%s", name);
	return folder_read_once(folder, path, look->text, sizeof(look->text));
}

bool look_find_number(const char *text, const char *key, uint64_t *ret_number)
{
	size_t length = strlen(key);

	for (const char *line = text; line; line = strchr(line, '\n')) {
		char *end;

		line += *line == '\n';
		if (strncmp(line, key, length) != 0)
			continue;
		errno = 0;
		*ret_number = strtoull(line + length, &end, 10);
		return errno == 0 && end != line + length;
	}
	return false;
}

/* What the error of a first read means for the process. */
static enum look_result result_of(struct look *look, int error)
{
	if (error == ENOENT || error == ESRCH)
		return LOOK_VANISHED;
	if (error == EACCES || error == EPERM)
		return LOOK_DENIED;
	look->unseen.failed_errno = error;
	return LOOK_FAILED;
}

/* Kernel threads have no descriptors, and nobody without privilege may see that. */
static enum look_result refused(struct look *look, int error, struct finding *finding)
{
	enum look_result result = result_of(look, error);

	if (result != LOOK_DENIED)
		return result;
	if (process_read_stat(look, &finding->process) < 0)
		return LOOK_VANISHED;
	return finding->process.flags & SCAN_PF_KTHREAD ? LOOK_DONE : LOOK_DENIED;
}

static uint64_t namespace_of(int folder, const char *name)
{
	struct statx file;

	return statx(folder, name, AT_STATX_DONT_SYNC, STATX_INO, &file) < 0 ? GW_UNKNOWN
									     : file.stx_ino;
}

/* Another one only where both are known. */
static bool is_other(uint64_t namespace, uint64_t own)
{
	return namespace != GW_UNKNOWN && own != GW_UNKNOWN && namespace != own;
}

static void read_namespaces(struct look *look, struct scan_process *process)
{
	process->pid_namespace = namespace_of(look->folder, "ns/pid");
	process->mount_namespace = namespace_of(look->folder, "ns/mnt");
	if (is_other(process->pid_namespace, look->pid_namespace))
		process->flags |= SCAN_OTHER_PID_NAMESPACE;
	if (is_other(process->mount_namespace, look->mount_namespace))
		process->flags |= SCAN_OTHER_MOUNT_NAMESPACE;
}

/* What the process is, and where in the kernel. */
static void read_facts(struct look *look, struct finding *finding)
{
	char link[4096];
	ssize_t length;

	process_read_details(look, finding);
	read_namespaces(look, &finding->process);
	groups_read(look, finding);
	exiting_read_kernel_place(look, finding);
	length = folder_read_link(look->folder, "exe", link, sizeof(link));
	if (length >= 0)
		finding->process.exe = arena_copy(&finding->chunks, link, (size_t)length);
}

/* Identity, and with it the proof that all that was read before is of one process. */
static enum look_result identify(struct look *look, struct finding *finding)
{
	int code = process_read_stat(look, &finding->process);

	if (code < 0)
		return result_of(look, -code);
	if (!look->without_details)
		read_facts(look, finding);
	return LOOK_DONE;
}

static enum look_result look_into(struct look *look, struct finding *finding)
{
	int64_t count = fds_look(look, look->folder, 0, finding);
	enum look_result result = LOOK_DONE;

	if (count < 0)
		return refused(look, (int)-count, finding);
	threads_look(look, finding);
	if (count == 0 && finding->count == 0)
		exiting_look(look, finding);
	if (finding->count > 0)
		result = identify(look, finding);
	return result == LOOK_DONE && look->links_denied ? LOOK_DENIED : result;
}

enum look_result look_first(struct look *look, int32_t pid, struct finding **ret_finding)
{
	struct finding *finding = finding_new();
	enum look_result result;
	char name[16];

	*ret_finding = NULL;
	look->pid = pid;
	look->rings = 0;
	look->links_denied = false;
	look_beat(look);
	(void)snprintf(name, sizeof(name), "%d", pid);
	look->folder = openat(look->proc, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (look->folder < 0 || !finding) {
		result = result_of(look, finding ? errno : ENOMEM);
		finding_free(finding);
		return result;
	}
	result = look_into(look, finding);
	if ((result == LOOK_DONE || result == LOOK_DENIED) && finding->count > 0)
		*ret_finding = finding;
	else
		finding_free(finding);
	return result;
}

/* Of one whose only references are mappings nothing is known yet. */
static bool is_complete(struct look *look, bool first, struct finding *finding)
{
	return first || (finding->count > 0 && identify(look, finding) == LOOK_DONE);
}

struct finding *look_second(struct look *look, bool first)
{
	struct finding *finding;

	if (look->without_maps && !first)
		return NULL;
	finding = finding_new();
	if (!finding) {
		look->unseen.references_dropped++;
		return NULL;
	}
	finding->second = true;
	finding->process.pid = look->pid;
	if (!look->without_maps)
		maps_look(look, finding);
	look->unseen.maps_denied += !first && (finding->process.flags & SCAN_MAPS_DENIED);
	if (!is_complete(look, first, finding)) {
		finding_free(finding);
		return NULL;
	}
	if (!look->without_details)
		memory_read(look, finding);
	return finding;
}

void look_end(struct look *look)
{
	fd_close(look->folder);
	look->folder = -1;
}
