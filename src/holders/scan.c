/* SPDX-License-Identifier: MIT */
/*
 * The scan as a whole: which processes there are, the crew that looks at them, and the snapshot.
 *
 * Read next: scan.h, crew.c, look.c.
 */
#include "holders/scan.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/err.h"
#include "common/fd.h"
#include "holders/crew.h"
#include "holders/folder.h"
#include "holders/groups.h"
#include "holders/merge.h"
#include "holders/relatives.h"
#include "linux/namespaces.h"

#define DEADLINE_NS 5000000000ULL
#define PIDS_FIRST  1024U
#define MOUNTS_MAX  (1U << 20)

/* All numbers in the folder PROC. Returns how many, or -errno. */
static int64_t list_pids(int proc, int32_t **ret_pids)
{
	cleanup_free char *buffer = malloc(LOOK_FOLDER_BYTES);
	struct folder folder = {.fd = proc, .buffer = buffer, .room = LOOK_FOLDER_BYTES};
	cleanup_free int32_t *pids = NULL;
	uint32_t count = 0, room = 0;
	const char *name;
	int32_t pid;
	int code;

	if (!buffer)
		return -ENOMEM;
	while ((code = folder_next(&folder, &pid, &name)) > 0) {
		if (count == room) {
			int32_t *grown;

			room = room ? room * 2 : PIDS_FIRST;
			grown = reallocarray(pids, room, sizeof(*pids));
			if (!grown)
				return -ENOMEM;
			pids = grown;
		}
		pids[count++] = pid;
	}
	if (code < 0)
		return code;
	*ret_pids = pids;
	pids = NULL;
	return count;
}

/* Whether numbers of PROC are pids for this process's system calls. */
static bool is_own(int proc)
{
	char text[16], own[16];

	(void)snprintf(own, sizeof(own), "%d", (int)getpid());
	return folder_read_link(proc, "self", text, sizeof(text)) > 0 && strcmp(text, own) == 0;
}

static uint64_t namespace_of(const char *path)
{
	struct stat status;

	return stat(path, &status) < 0 ? GW_UNKNOWN : status.st_ino;
}

/*
 * The option hidepid of /proc, where it hides processes from this one: the first process of a pid namespace is
 * everybody's to see, if anything is.
 */
static int32_t read_hidepid(int proc, const char *path)
{
	cleanup_free char *text = malloc(MOUNTS_MAX);
	int hidepid = -1;

	if (text && folder_read_file(proc, "self/mountinfo", text, MOUNTS_MAX) > 0)
		hidepid = groups_parse_hidepid(text, path);
	if (hidepid > 0 && faccessat(proc, "1/stat", R_OK, 0) == 0)
		return 0;
	return hidepid;
}

static void describe(const struct crew_plan *plan, const struct scan_options *options,
		     struct scan *scan)
{
	struct timespec now = {0};

	scan->taken_ns = now_ns();
	scan->emulated = plan->devices && plan->devices->emulated;
	scan->pid_namespace = plan->pid_namespace;
	scan->pid_namespace_initial = namespaces_pid_is_initial();
	scan->unseen.foreign_proc = !plan->own_proc;
	scan->unseen.hidepid = read_hidepid(plan->proc, options->proc ? options->proc : "/proc");
	scan->ticks_per_second = (uint64_t)sysconf(_SC_CLK_TCK);
	(void)clock_gettime(CLOCK_BOOTTIME, &now);
	scan->now_ticks = (uint64_t)now.tv_sec * scan->ticks_per_second +
			  (uint64_t)now.tv_nsec / (1000000000U / scan->ticks_per_second);
	if (folder_read_file(plan->proc, "sys/kernel/random/boot_id", scan->boot_id,
			     sizeof(scan->boot_id)) <= 0)
		scan->boot_id[0] = '\0';
	scan->boot_id[strcspn(scan->boot_id, "\n")] = '\0';
}

static void let_go(struct crew_plan *plan)
{
	fd_close(plan->proc);
	free(plan->devices);
	free(plan->pids);
	quiet_done(&plan->quiet);
}

static int prepare(const struct scan_options *options, struct crew_plan *plan,
		   struct gw_error *ret_error)
{
	const char *path = options->proc ? options->proc : "/proc";
	int64_t count;
	int code;

	plan->devices = calloc(1, sizeof(*plan->devices));
	if (!plan->devices)
		return err_os(ret_error, ENOMEM, "cannot look at processes");
	code = device_table_read(options->root ? options->root : "", plan->devices, ret_error);
	if (code < 0)
		return code;
	plan->proc = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (plan->proc < 0)
		return err_os(ret_error, errno, "cannot look at processes: %s", path);
	count = list_pids(plan->proc, &plan->pids);
	if (count < 0)
		return err_os(ret_error, (int)-count, "cannot list the processes of %s", path);
	plan->pid_count = (uint32_t)count;
	plan->own_proc = is_own(plan->proc);
	plan->pid_namespace = namespace_of("/proc/self/ns/pid");
	plan->mount_namespace = namespace_of("/proc/self/ns/mnt");
	groups_read_mounts(plan->proc, &plan->groups);
	quiet_read(&plan->quiet);
	plan->without_maps = options->without_maps;
	plan->without_details = options->without_details;
	plan->threads = options->threads;
	return 0;
}

/* Joins what the crew has found; PROC for the relatives, -1 for none. */
static int assemble(struct crew_result *result, int proc, struct scan *scan,
		    struct gw_error *ret_error)
{
	int32_t hidepid = scan->unseen.hidepid;
	bool foreign = scan->unseen.foreign_proc;
	int code = merge_findings(result, scan);

	if (code == 0 && proc >= 0)
		code = relatives_read(proc, scan);
	if (code < 0)
		return err_os(ret_error, -code, "cannot hold what was found");
	scan->unseen.hidepid = hidepid;
	scan->unseen.foreign_proc = foreign;
	scan->unseen.needs_ptrace |= scan->unseen.denied > 0 || hidepid > 0;
	scan->took_ns = now_ns() - scan->taken_ns;
	return 0;
}

int scan_run(const struct scan_options *options, struct scan *ret_scan, struct gw_error *ret_error)
{
	uint64_t deadline_ns = after_ns(options->deadline_ns ? options->deadline_ns : DEADLINE_NS);
	struct crew_plan plan = {.proc = -1};
	cleanup_fd int proc = -1;
	struct crew_result result;
	struct scan scan = {0};
	struct crew *crew = NULL;
	int code = prepare(options, &plan, ret_error);

	if (code == 0) {
		describe(&plan, options, &scan);
		/* The plan will be the crew's, which can be gone when its findings are there. */
		if (!options->without_details)
			proc = fcntl(plan.proc, F_DUPFD_CLOEXEC, 0);
		code = crew_start(&plan, &crew, ret_error);
	}
	if (code < 0) {
		let_go(&plan);
		return code;
	}
	crew_take(crew, deadline_ns, &result);
	code = assemble(&result, proc, &scan, ret_error);
	if (code < 0)
		scan_free(&scan);
	else
		*ret_scan = scan;
	return code;
}

void scan_free(struct scan *scan)
{
	free(scan->processes);
	free(scan->references);
	free(scan->relatives);
	free(scan->denied_pids);
	arena_free(&scan->chunks);
	memset(scan, 0, sizeof(*scan));
}

static int compare_process(const void *key, const void *element)
{
	int32_t pid = *(const int32_t *)key;
	int32_t other = ((const struct scan_process *)element)->pid;

	return (pid > other) - (pid < other);
}

const struct scan_process *scan_find(const struct scan *scan, int32_t pid)
{
	return scan->process_count ? bsearch(&pid, scan->processes, scan->process_count,
					     sizeof(*scan->processes), compare_process)
				   : NULL;
}

static int compare_relative(const void *key, const void *element)
{
	int32_t pid = *(const int32_t *)key;
	int32_t other = ((const struct scan_relative *)element)->pid;

	return (pid > other) - (pid < other);
}

const struct scan_relative *scan_find_relative(const struct scan *scan, int32_t pid)
{
	return scan->relative_count ? bsearch(&pid, scan->relatives, scan->relative_count,
					      sizeof(*scan->relatives), compare_relative)
				    : NULL;
}

static int compare_pid(const void *key, const void *element)
{
	int32_t pid = *(const int32_t *)key, other = *(const int32_t *)element;

	return (pid > other) - (pid < other);
}

bool scan_was_denied(const struct scan *scan, int32_t pid)
{
	return scan->unseen.denied &&
	       bsearch(&pid, scan->denied_pids, scan->unseen.denied, sizeof(int32_t), compare_pid);
}
