/* SPDX-License-Identifier: MIT */
/*
 * Command line and environment of a process: they lie in its own memory, so it can write anything there, and
 * reading them waits for its memory lock. Only chosen names of the environment are kept: the rest can be secrets.
 *
 * Read next: parts.h.
 */
#include <errno.h>
#include <string.h>

#include "holders/folder.h"
#include "holders/lines.h"
#include "holders/parts.h"

#define VALUE_MAX 1024U

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

static bool take_piece(struct look *look, char *word, size_t length, void *argument)
{
	(void)look;
	take_word(word, length, argument);
	return true;
}

static void read_environment(struct look *look, struct finding *finding)
{
	int code = lines_each(look, look->folder, "environ", '\0', take_piece, finding);

	if (code == -EACCES || code == -EPERM)
		finding->process.flags |= SCAN_ENVIRONMENT_DENIED;
}

void memory_read(struct look *look, struct finding *finding)
{
	read_cmdline(look, finding);
	read_environment(look, finding);
}
