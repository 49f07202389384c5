/* SPDX-License-Identifier: MIT */
/*
 * Command line and environment of a process: they lie in its own memory, so it can write anything there, and
 * reading them waits for its memory lock. Only chosen names of the environment are kept: the rest can be secrets.
 *
 * Read next: parts.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "common/fd.h"
#include "holders/folder.h"
#include "holders/parts.h"

#define ENVIRONMENT_MAX (4U << 20)
#define VALUE_MAX	1024U

static void read_cmdline(struct look *look, struct finding *finding)
{
	struct scan_process *process = &finding->process;
	ssize_t got = folder_read_file(look->folder, "cmdline", look->text, SCAN_CMDLINE_MAX + 2);

	if (got < 0)
		return;
	process->cmdline_cut = got > SCAN_CMDLINE_MAX;
	process->cmdline_bytes = process->cmdline_cut ? SCAN_CMDLINE_MAX : (uint32_t)got;
	process->cmdline = arena_copy(&finding->chunks, look->text, process->cmdline_bytes);
}

/* Keeps WORD, "NAME=value", if it is one that is wanted. */
static void take_word(const char *word, size_t length, struct finding *finding)
{
	struct scan_process *process = &finding->process;
	const struct {
		const char *name;
		const char **value;
	} wanted[] = {
		{"SLURM_JOB_ID=", &process->slurm_job_id},
		{"SLURM_STEP_ID=", &process->slurm_step_id},
		{"PBS_JOBID=", &process->pbs_job_id},
		{"CUDA_VISIBLE_DEVICES=", &process->cuda_visible_devices},
		{"CUDA_MPS_PIPE_DIRECTORY=", &process->mps_pipe_directory},
	};

	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		size_t name = strlen(wanted[i].name);
		size_t value = length - name;

		/* The first one counts, as it does for getenv(). */
		if (length < name || memcmp(word, wanted[i].name, name) != 0 || *wanted[i].value)
			continue;
		*wanted[i].value = arena_copy(&finding->chunks, word + name,
					      value < VALUE_MAX ? value : VALUE_MAX);
		return;
	}
}

/* Takes the whole words of look->text. Returns how many bytes of a word are left at its beginning. */
static size_t take_words(struct look *look, size_t bytes, struct finding *finding)
{
	char *word = look->text;
	char *end;

	while ((end = memchr(word, '\0', bytes))) {
		take_word(word, (size_t)(end - word), finding);
		bytes -= (size_t)(end + 1 - word);
		word = end + 1;
	}
	memmove(look->text, word, bytes);
	return bytes;
}

static void read_environment(struct look *look, struct finding *finding)
{
	cleanup_fd int fd = openat(look->folder, "environ", O_RDONLY | O_CLOEXEC);
	size_t left = 0, total = 0;
	ssize_t got;

	if (fd < 0) {
		if (errno == EACCES || errno == EPERM)
			finding->process.flags |= SCAN_ENVIRONMENT_DENIED;
		return;
	}
	while (total < ENVIRONMENT_MAX &&
	       (got = read(fd, look->text + left, sizeof(look->text) - left)) > 0) {
		look_beat(look);
		total += (size_t)got;
		left = take_words(look, left + (size_t)got, finding);
		if (left == sizeof(look->text))
			left = 0; /* a value of 64 KiB is none that is wanted */
	}
	if (left > 0)
		take_word(look->text, left, finding);
}

void memory_read(struct look *look, struct finding *finding)
{
	read_cmdline(look, finding);
	read_environment(look, finding);
}
