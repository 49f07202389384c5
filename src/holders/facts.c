/* SPDX-License-Identifier: MIT */
/*
 * Facts for the causes, from /proc.
 *
 * A number can be looked up below /proc although it is a thread's and no process's, so what is found there counts only
 * if it is the leader of its group.
 *
 * Read next: facts.h.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "common/err.h"
#include "holders/facts.h"
#include "holders/folder.h"
#include "holders/look.h"
#include "holders/parts.h"

#define MODULES_MAX 16U

static ssize_t read_of_process(const char *proc, int32_t pid, const char *name, char *text,
			       size_t bytes)
{
	char path[128];

	(void)snprintf(path, sizeof(path), "%s/%d/%s", proc, pid, name);
	return folder_read_file(AT_FDCWD, path, text, bytes);
}

/* Is PID a process, and not a thread of another one? */
static enum amounts_truth is_leader(const char *proc, int32_t pid)
{
	char text[4096];
	uint64_t leader;

	if (read_of_process(proc, pid, "status", text, sizeof(text)) <= 0 ||
	    !look_find_number(text, "Tgid:", &leader))
		return AMOUNTS_UNKNOWN;
	return leader == (uint64_t)pid ? AMOUNTS_YES : AMOUNTS_NO;
}

void facts_look_at_label(const char *proc, int32_t pid, struct fact_label *ret_label)
{
	char text[1024];
	struct scan_process process;
	ssize_t got = read_of_process(proc, pid, "stat", text, sizeof(text));

	*ret_label = (struct fact_label){.pid = pid,
					 .state = '?',
					 .ppid = -1,
					 .threads = -1,
					 .start_ticks = GW_UNKNOWN,
					 .client_start_ticks = GW_UNKNOWN};
	if (got == -ENOENT || got == -ESRCH || is_leader(proc, pid) == AMOUNTS_NO) {
		ret_label->exists = AMOUNTS_NO;
		return;
	}
	process_init(&process);
	if (got <= 0 || !process_parse_stat(text, (size_t)got, &process))
		return;
	ret_label->exists = AMOUNTS_YES;
	ret_label->state = process.state;
	ret_label->ppid = process.ppid;
	ret_label->threads = process.threads;
	ret_label->start_ticks = process.start_ticks;
	memcpy(ret_label->comm, process.comm, sizeof(ret_label->comm));
}

static int by_pid(const void *a, const void *b)
{
	const struct fact_label *first = a, *second = b;

	return (first->pid > second->pid) - (first->pid < second->pid);
}

/* Marks those that /proc lists. Where it ends early they stay unknown. */
static void look_who_is_listed(const char *proc, struct fact_label *labels, uint32_t count)
{
	DIR *folder = opendir(proc);
	struct dirent *entry;

	if (!folder)
		return;
	for (uint32_t i = 0; i < count; i++)
		labels[i].listed = AMOUNTS_NO;
	while ((entry = readdir(folder)) != NULL) {
		struct fact_label key = {.pid = atoi(entry->d_name)};
		struct fact_label *label = bsearch(&key, labels, count, sizeof(*labels), by_pid);

		if (label)
			label->listed = AMOUNTS_YES;
	}
	(void)closedir(folder);
	/* One that began or ended in between was not hidden. */
	for (uint32_t i = 0; i < count; i++) {
		struct fact_label again;

		if (labels[i].listed == AMOUNTS_YES || labels[i].exists != AMOUNTS_YES)
			continue;
		facts_look_at_label(proc, labels[i].pid, &again);
		if (again.exists != AMOUNTS_YES || again.start_ticks != labels[i].start_ticks)
			labels[i].listed = AMOUNTS_UNKNOWN;
	}
}

static uint32_t count_listed(const struct amounts *amounts)
{
	uint32_t count = 0;

	for (uint32_t gpu = 0; amounts && gpu < amounts->gpu_count; gpu++)
		count += amounts->gpus[gpu].process_count;
	return count;
}

static int gather_labels(const struct amounts *amounts, const char *proc, struct facts *facts)
{
	uint32_t count = 0, kept = 0;

	facts->labels = calloc((size_t)count_listed(amounts) + 1, sizeof(*facts->labels));
	if (!facts->labels)
		return -ENOMEM;
	for (uint32_t gpu = 0; amounts && gpu < amounts->gpu_count; gpu++) {
		for (uint32_t i = 0; i < amounts->gpus[gpu].process_count; i++)
			facts->labels[count++].pid = amounts->gpus[gpu].processes[i].pid;
	}
	qsort(facts->labels, count, sizeof(*facts->labels), by_pid);
	for (uint32_t i = 0; i < count; i++) {
		int32_t pid = facts->labels[i].pid;

		if (pid > 0 && (!kept || facts->labels[kept - 1].pid != pid))
			facts_look_at_label(proc, pid, &facts->labels[kept++]);
	}
	look_who_is_listed(proc, facts->labels, kept);
	facts->facts.labels = facts->labels;
	facts->facts.label_count = kept;
	return 0;
}

/* "nvidia_uvm 4026368 2 nvidia_peermem, Live 0x0": name, bytes, uses. */
static bool read_module(const char *line, struct fact_module *module)
{
	return (!strncmp(line, "nvidia", 6) || !strncmp(line, "gdrdrv", 6)) &&
	       sscanf(line, "%31s %*u %d", module->name, &module->use_count) == 2;
}

static int gather_modules(const char *proc, struct facts *facts)
{
	char path[128], line[512];
	FILE *stream;

	facts->modules = calloc(MODULES_MAX, sizeof(*facts->modules));
	if (!facts->modules)
		return -ENOMEM;
	facts->facts.modules = facts->modules;
	(void)snprintf(path, sizeof(path), "%s/modules", proc);
	stream = fopen(path, "re");
	if (!stream)
		return 0;
	while (facts->facts.module_count < MODULES_MAX && fgets(line, sizeof(line), stream)) {
		if (read_module(line, &facts->modules[facts->facts.module_count]))
			facts->facts.module_count++;
	}
	(void)fclose(stream);
	return 0;
}

/* Only where the operating system owns the memory has a GPU this file, and it says so when it is in use. */
static enum amounts_truth find_numa(const char *proc)
{
	enum amounts_truth truth = AMOUNTS_NO;
	char pattern[128], text[512];
	glob_t found;

	(void)snprintf(pattern, sizeof(pattern), "%s/driver/nvidia/gpus/*/numa_status", proc);
	if (glob(pattern, 0, NULL, &found) != 0)
		return AMOUNTS_UNKNOWN;
	for (size_t i = 0; i < found.gl_pathc; i++) {
		if (folder_read_file(AT_FDCWD, found.gl_pathv[i], text, sizeof(text)) > 0 &&
		    strstr(text, "online"))
			truth = AMOUNTS_YES;
	}
	globfree(&found);
	return truth;
}

static enum amounts_truth find_wsl(void)
{
	struct utsname name;

	if (uname(&name) < 0)
		return AMOUNTS_UNKNOWN;
	return strstr(name.release, "icrosoft") || strstr(name.release, "WSL") ? AMOUNTS_YES
									       : AMOUNTS_NO;
}

int facts_gather(const struct scan *scan, const struct amounts *amounts, const char *proc,
		 uint64_t deadline_ns, struct facts *ret_facts, struct gw_error *ret_error)
{
	struct facts facts = {0};

	proc = proc ? proc : "/proc";
	if (gather_labels(amounts, proc, &facts) < 0 || gather_modules(proc, &facts) < 0 ||
	    share_find(scan, deadline_ns, &facts.share, NULL) < 0) {
		facts_free(&facts);
		return err_set(ret_error, -ENOMEM, GW_DOMAIN_OS, ENOMEM,
			       "no memory for facts about %u processes", scan->process_count);
	}
	facts.facts.groups = facts.share.group;
	facts.facts.memory_is_numa = find_numa(proc);
	facts.facts.wsl = find_wsl();
	*ret_facts = facts;
	return 0;
}

void facts_free(struct facts *facts)
{
	free(facts->labels);
	free(facts->modules);
	share_free(&facts->share);
	*facts = (struct facts){0};
}
