/* SPDX-License-Identifier: MIT */
#include "holders/look.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/fd.h"

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

static enum look_result look_into(struct look *look, struct finding *finding)
{
	int64_t count = fds_look(look, look->folder, 0, finding);
	int code;

	if (count < 0)
		return refused(look, (int)-count, finding);
	if (finding->count == 0)
		return LOOK_DONE;
	code = process_read_stat(look, &finding->process);
	if (code < 0)
		return result_of(look, -code);
	if (!look->without_details)
		process_read_details(look, finding);
	return LOOK_DONE;
}

enum look_result look_first(struct look *look, int32_t pid, struct finding **ret_finding)
{
	struct finding *finding = finding_new();
	enum look_result result;
	char name[16];

	*ret_finding = NULL;
	look->pid = pid;
	look_beat(look);
	(void)snprintf(name, sizeof(name), "%d", pid);
	look->folder = openat(look->proc, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (look->folder < 0 || !finding) {
		result = result_of(look, finding ? errno : ENOMEM);
		finding_free(finding);
		return result;
	}
	result = look_into(look, finding);
	if (result == LOOK_DONE && finding->count > 0)
		*ret_finding = finding;
	else
		finding_free(finding);
	return result;
}

struct finding *look_second(struct look *look, bool first)
{
	(void)look;
	(void)first;
	return NULL;
}

void look_end(struct look *look)
{
	fd_close(look->folder);
	look->folder = -1;
}
