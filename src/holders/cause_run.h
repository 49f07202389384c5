/* SPDX-License-Identifier: MIT */
/*
 * What the functions of the single causes have in common: how a verdict is written, and what is asked of the input.
 * Only for cause.c and the causes_....c.
 *
 * Runs in: as cause.h. Questions with an uncertain answer give enum amounts_truth; a question that gives a bool says
 * what its false means.
 * Read next: causes_live.c.
 */
#ifndef GPUWARD_HOLDERS_CAUSE_RUN_H
#define GPUWARD_HOLDERS_CAUSE_RUN_H

#include "holders/cause.h"

/* Whose client the memory is that a holder keeps, and how that is known. */
enum lineage_how {
	LINEAGE_UNKNOWN = 0,
	LINEAGE_SELF,	 /* NVML lists the holder itself */
	LINEAGE_FILE,	 /* it has an open file in common with one whose lineage is known */
	LINEAGE_GROUP,	 /* its process group has the creator's number */
	LINEAGE_SESSION, /* its session has */
	LINEAGE_PARENT,	 /* the creator is its parent, and lives */
	LINEAGE_REST,	 /* no creator but this one is without a holder */
};

struct lineage {
	enum lineage_how how;
	int32_t creator; /* NVML's label; 0 unknown */
	bool gone;	 /* the creator itself holds nothing any more */
};

struct cause_run {
	const struct causes_input *input;
	const struct scan *scan;	  /* input->scan */
	const struct causes_facts *facts; /* never NULL: all zero where nothing is known */
	struct verdicts *out;
	struct lineage *lineages; /* one for each process of the scan */
	struct verdict spare;	  /* is written to where there is no memory for another one */
};

typedef void cause_test(struct cause_run *run);

/* Of one process, of one GPU, of no one in particular. The pointer holds until the next verdict. */
struct verdict *tell_process(struct cause_run *run, enum cause cause,
			     enum cause_certainty certainty, enum cause_policy policy,
			     const struct scan_process *process);
struct verdict *tell_gpu(struct cause_run *run, enum cause cause, enum cause_certainty certainty,
			 enum cause_policy policy, uint32_t gpu);
struct verdict *tell_all(struct cause_run *run, enum cause cause, enum cause_certainty certainty,
			 enum cause_policy policy);

/* Adds PROCESS to those the verdict is about. */
void tell_member(struct cause_run *run, struct verdict *verdict,
		 const struct scan_process *process);

/* Evidence: WHAT is static. SOURCE is a call or a file; tell_of() reads it as /proc/PID/FILE. */
__attribute__((format(printf, 5, 6))) void tell(struct cause_run *run, struct verdict *verdict,
						const char *what, const char *source,
						const char *format, ...);
__attribute__((format(printf, 6, 7))) void tell_of(struct cause_run *run, struct verdict *verdict,
						   const char *what, int32_t pid, const char *file,
						   const char *format, ...);
/* An amount of memory as evidence; "unknown" where it is. */
void tell_bytes(struct cause_run *run, struct verdict *verdict, const char *what,
		const char *source, uint64_t bytes);
/* How the process holds the devices: "3 fd, 2 mapping". */
void tell_references(struct cause_run *run, struct verdict *verdict,
		     const struct scan_process *process);
void tell_wchan(struct cause_run *run, struct verdict *verdict, const struct scan_process *process);

/* What to do, what next, what would make it certain. */
__attribute__((format(printf, 3, 4))) void
tell_remedy(struct cause_run *run, struct verdict *verdict, const char *format, ...);
__attribute__((format(printf, 3, 4))) void
tell_escalation(struct cause_run *run, struct verdict *verdict, const char *format, ...);
void tell_or(struct verdict *verdict, enum cause other, const char *decide);
/* The remedy "end all members": TERM, then KILL. */
void tell_end_members(struct cause_run *run, struct verdict *verdict);

/* References. HELD or KIND that match; false: not seen. */
bool holds_kind(const struct cause_run *run, const struct scan_process *process,
		enum scan_device_kind kind);
bool holds_as(const struct cause_run *run, const struct scan_process *process, enum scan_held held);
const struct scan_reference *reference_as(const struct cause_run *run,
					  const struct scan_process *process, enum scan_held held);
/* A device whose file can keep memory: nvidiactl, nvidiaN, nvidia-uvm. */
bool holds_memory(const struct cause_run *run, const struct scan_process *process);
/* The GPU (index into amounts.gpus) that it holds; CAUSE_NOBODY for none, several, or not known. */
uint32_t gpu_of(const struct cause_run *run, const struct scan_process *process);

/* NVML. */
const struct amounts_process *listed_on(const struct amounts_gpu *gpu, int32_t pid);
bool is_listed(const struct cause_run *run, int32_t pid); /* false: on no list that was read */
/* Were all lists of all GPUs read whole, so that who is on none has no client? */
bool lists_are_whole(const struct cause_run *run);
uint64_t listed_bytes(const struct cause_run *run,
		      int32_t pid); /* on all GPUs; GW_UNKNOWN if any is */
/* Unattributed bytes above what is normal on GPU; 0 none, GW_UNKNOWN. */
uint64_t unexplained_bytes(const struct amounts_gpu *gpu);
/* The same, summed; GW_UNKNOWN only where no GPU tells. */
uint64_t unexplained_everywhere(const struct cause_run *run);

/* Facts. NULL: nobody gathered it. */
const struct fact_label *fact_label_of(const struct cause_run *run, int32_t pid);
const struct fact_watch *fact_watch_of(const struct cause_run *run,
				       const struct scan_process *process);
enum amounts_truth fact_job_runs(const struct cause_run *run, uint64_t id);
/* Does the leader or parent PID of a holder live? A zombie does not. */
enum amounts_truth relative_lives(const struct cause_run *run, int32_t pid);
/* Could everything be looked at, so that a process that is no holder holds nothing? */
bool sight_is_whole(const struct cause_run *run);
/* Does PID, which NVML names, hold nothing (any more)? */
enum amounts_truth label_holds_nothing(const struct cause_run *run, int32_t pid);
/* The batch job that the process names, by control group or environment; GW_UNKNOWN. */
uint64_t job_of(const struct scan_process *process);

/* What a process is. By names, which anybody can choose: good for leaving alone, never for ending. */
bool is_mps(const struct scan_process *process);
bool is_daemon(const struct scan_process *process);
bool is_display(const struct cause_run *run, const struct scan_process *process);
/* None of these, no kernel thread: a process whose memory is its owner's work. */
bool is_work(const struct cause_run *run, const struct scan_process *process);
/* Is it being taken down by the kernel? */
bool is_ending(const struct scan_process *process);
/* The last part of its program's path, or its name where that is unknown. Raw. */
void program_name(const struct scan_process *process, char *text, size_t bytes);

const struct lineage *lineage_of(const struct cause_run *run, const struct scan_process *process);
/* Fills run->lineages. Returns 0 or -ENOMEM. */
int lineage_find(struct cause_run *run);

/* How sure it is that what started PROCESS is gone; nothing says so with ORPHAN_NOT. */
enum cause_orphaned {
	ORPHAN_NOT = 0,
	ORPHAN_PERHAPS,
	ORPHAN_LIKELY,
	ORPHAN_CERTAIN,
};
enum cause_orphaned orphaned(const struct cause_run *run, const struct scan_process *process);

/* Over the processes of the scan. */
#define FOR_EACH_HOLDER(run, process)                                                              \
	for (const struct scan_process *process = (run)->scan->processes;                          \
	     (process) < (run)->scan->processes + (run)->scan->process_count; (process)++)

/* One for each cause, in files by family. */
cause_test cause_live_owner, cause_idle_cache;
cause_test cause_inherited, cause_orphan, cause_container, cause_recycled;
cause_test cause_zombie_leader, cause_zombie, cause_exiting, cause_unkillable;
cause_test cause_stopped, cause_traced, cause_frozen;
cause_test cause_thread_table, cause_in_flight, cause_io_uring, cause_mapping;
cause_test cause_exported, cause_ipc_importer, cause_remote_importer, cause_registered,
	cause_managed;
cause_test cause_mps, cause_daemon, cause_display, cause_module, cause_mig;
cause_test cause_other_namespace, cause_denied, cause_hidden, cause_not_measurable,
	cause_unsupported, cause_nvml_hung;
cause_test cause_baseline, cause_numa, cause_ghost_utilization, cause_gpu_lost, cause_driver_leak,
	cause_suspend, cause_bar1;

#endif
