/* SPDX-License-Identifier: MIT */
/*
 * The forty causes as one table, and how all of them are asked.
 *
 * Runs in: as cause.h. Read next: cause_run.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/err.h"
#include "holders/arena.h"
#include "holders/cause_run.h"

struct row {
	const char *id;
	const char *name;
	const char *title;
	cause_test *test;
	uint8_t weight; /* what says more about a process has more; 0: never about one */
};

/* clang-format off */
static const struct row rows[CAUSE_COUNT] = {
	[CAUSE_LIVE_OWNER]        = {"C01", "live-owner",        "in use by a live process",                        cause_live_owner,        10},
	[CAUSE_INHERITED]         = {"C02", "inherited",         "creator dead, inherited files live on",           cause_inherited,         80},
	[CAUSE_ORPHAN]            = {"C03", "orphan",            "what started it is gone",                         cause_orphan,            70},
	[CAUSE_CONTAINER]         = {"C04", "container",         "survived its container",                          cause_container,         75},
	[CAUSE_ZOMBIE_LEADER]     = {"C05", "zombie-leader",     "zombie whose other threads live",                 cause_zombie_leader,     90},
	[CAUSE_THREAD_TABLE]      = {"C06", "thread-table",      "held by a thread's own descriptors",              cause_thread_table,      40},
	[CAUSE_ZOMBIE]            = {"C07", "zombie",            "zombie: listed, but holds nothing",               cause_zombie,            0},
	[CAUSE_EXITING]           = {"C08", "exiting",           "being torn down",                                 cause_exiting,           95},
	[CAUSE_UNKILLABLE]        = {"C09", "unkillable",        "killed, but stuck in the kernel",                 cause_unkillable,        100},
	[CAUSE_STOPPED]           = {"C10", "stopped",           "stopped",                                         cause_stopped,           65},
	[CAUSE_TRACED]            = {"C11", "traced",            "held by a debugger",                              cause_traced,            66},
	[CAUSE_FROZEN]            = {"C12", "frozen",            "in a frozen control group",                       cause_frozen,            67},
	[CAUSE_IN_FLIGHT]         = {"C13", "in-flight",         "descriptor on its way in a socket",               cause_in_flight,         50},
	[CAUSE_IO_URING]          = {"C14", "io-uring",          "file of an io_uring",                             cause_io_uring,          50},
	[CAUSE_MAPPING]           = {"C15", "mapping",           "mapped, descriptor closed",                       cause_mapping,           30},
	[CAUSE_EXPORTED]          = {"C16", "exported",          "exported memory",                                 cause_exported,          45},
	[CAUSE_IPC_IMPORTER]      = {"C17", "ipc-importer",      "imported from a process that is gone",            cause_ipc_importer,      47},
	[CAUSE_REMOTE_IMPORTER]   = {"C18", "remote-importer",   "imported by another machine",                     cause_remote_importer,   0},
	[CAUSE_REGISTERED]        = {"C19", "registered",        "dma-buf or registration for RDMA",                cause_registered,        42},
	[CAUSE_MPS]               = {"C20", "mps",               "MPS server or client",                            cause_mps,               60},
	[CAUSE_DAEMON]            = {"C21", "daemon",            "system daemon or monitor",                        cause_daemon,            64},
	[CAUSE_DISPLAY]           = {"C22", "display",           "display",                                         cause_display,           62},
	[CAUSE_MODULE]            = {"C23", "module",            "held by a kernel module",                         cause_module,            0},
	[CAUSE_BASELINE]          = {"C24", "baseline",          "normal: reserved, or of the driver itself",       cause_baseline,          0},
	[CAUSE_MANAGED]           = {"C25", "managed",           "managed memory of a live process",                cause_managed,           15},
	[CAUSE_NUMA]              = {"C26", "numa",              "owned by the operating system as a NUMA node",    cause_numa,              0},
	[CAUSE_IDLE_CACHE]        = {"C27", "idle-cache",        "kept by a live process that computes nothing",    cause_idle_cache,        12},
	[CAUSE_OTHER_NAMESPACE]   = {"C28", "other-namespace",   "of processes outside this pid namespace",         cause_other_namespace,   0},
	[CAUSE_DENIED]            = {"C29", "denied",            "not all processes could be looked at",            cause_denied,            0},
	[CAUSE_RECYCLED]          = {"C30", "recycled",          "NVML's pid is another process by now",            cause_recycled,          0},
	[CAUSE_HIDDEN]            = {"C31", "hidden",            "process hidden in /proc",                         cause_hidden,            0},
	[CAUSE_MIG]               = {"C32", "mig",               "holds a MIG instance",                            cause_mig,               20},
	[CAUSE_NOT_MEASURABLE]    = {"C33", "not-measurable",    "amounts cannot be measured here",                 cause_not_measurable,    0},
	[CAUSE_UNSUPPORTED]       = {"C34", "unsupported",       "this driver's list of processes is no use",       cause_unsupported,       0},
	[CAUSE_GHOST_UTILIZATION] = {"C35", "ghost-utilization", "busy without anybody",                            cause_ghost_utilization, 0},
	[CAUSE_GPU_LOST]          = {"C36", "gpu-lost",          "the GPU is lost",                                 cause_gpu_lost,          0},
	[CAUSE_NVML_HUNG]         = {"C37", "nvml-hung",         "NVML does not answer",                            cause_nvml_hung,         0},
	[CAUSE_DRIVER_LEAK]       = {"C38", "driver-leak",       "nobody holds it: leaked by the driver",           cause_driver_leak,       0},
	[CAUSE_SUSPEND]           = {"C39", "suspend",           "left over before a suspend",                      cause_suspend,           0},
	[CAUSE_BAR1]              = {"C40", "bar1",              "only the BAR1 aperture is used",                  cause_bar1,              0},
};
/* clang-format on */

static bool exists(enum cause cause)
{
	return cause > CAUSE_NONE && cause < CAUSE_COUNT;
}

const char *cause_id(enum cause cause)
{
	return exists(cause) ? rows[cause].id : "?";
}

const char *cause_name(enum cause cause)
{
	return exists(cause) ? rows[cause].name : "?";
}

const char *cause_title(enum cause cause)
{
	return exists(cause) ? rows[cause].title : "?";
}

enum cause cause_by_name(const char *name)
{
	for (int cause = CAUSE_NONE + 1; cause < CAUSE_COUNT; cause++) {
		if (!strcasecmp(name, rows[cause].id) || !strcasecmp(name, rows[cause].name))
			return (enum cause)cause;
	}
	return CAUSE_NONE;
}

const char *cause_certainty_name(enum cause_certainty certainty)
{
	static const char *const names[] = {
		[CAUSE_CERTAIN] = "certain",
		[CAUSE_LIKELY] = "likely",
		[CAUSE_ONE_OF] = "one of",
	};

	return certainty < sizeof(names) / sizeof(names[0]) ? names[certainty] : "?";
}

static int find(const struct causes_input *input, int first, int last,
		struct verdicts *ret_verdicts, struct gw_error *ret_error)
{
	static const struct causes_facts nothing;
	struct verdicts verdicts = {0};
	struct cause_run run = {.input = input,
				.scan = input->scan,
				.facts = input->facts ? input->facts : &nothing,
				.out = &verdicts};

	if (lineage_find(&run) < 0)
		verdicts.no_memory = true;
	for (int cause = first; cause <= last && !verdicts.no_memory; cause++)
		rows[cause].test(&run);
	free(run.lineages);
	free(run.spare.members);
	if (verdicts.no_memory) {
		causes_free(&verdicts);
		return err_set(ret_error, -ENOMEM, GW_DOMAIN_OS, ENOMEM,
			       "no memory for what was found about holders of GPUs");
	}
	*ret_verdicts = verdicts;
	return 0;
}

int causes_find(const struct causes_input *input, struct verdicts *ret_verdicts,
		struct gw_error *ret_error)
{
	return find(input, CAUSE_NONE + 1, CAUSE_COUNT - 1, ret_verdicts, ret_error);
}

int causes_find_one(const struct causes_input *input, enum cause cause,
		    struct verdicts *ret_verdicts, struct gw_error *ret_error)
{
	if (!exists(cause))
		return err_set(ret_error, -EINVAL, GW_DOMAIN_OS, EINVAL,
			       "there is no cause number %d: they are 1 to %d", (int)cause,
			       CAUSE_COUNT - 1);
	return find(input, (int)cause, (int)cause, ret_verdicts, ret_error);
}

void causes_free(struct verdicts *verdicts)
{
	for (uint32_t i = 0; i < verdicts->count; i++)
		free(verdicts->list[i].members);
	free(verdicts->list);
	arena_free(&verdicts->texts);
	*verdicts = (struct verdicts){0};
}

bool verdict_is_about(const struct verdict *verdict, uint32_t process)
{
	for (uint32_t i = 0; i < verdict->member_count; i++) {
		if (verdict->members[i] == process)
			return true;
	}
	return false;
}

const struct verdict *causes_main(const struct verdicts *verdicts, uint32_t process)
{
	const struct verdict *best = NULL;

	for (uint32_t i = 0; i < verdicts->count; i++) {
		const struct verdict *verdict = &verdicts->list[i];

		if (rows[verdict->cause].weight && verdict_is_about(verdict, process) &&
		    (!best || rows[verdict->cause].weight > rows[best->cause].weight))
			best = verdict;
	}
	return best;
}
