/* SPDX-License-Identifier: MIT */
/*
 * Why memory of a GPU is in use: forty causes, each told by one small function from what was seen.
 *
 *	causes_find()	all that apply, in the order of their numbers
 *	causes_main()	the one that says most about a process
 *
 * Runs in: command line and ward's helpers. Pure: works on a scan, on amounts and on facts that others gathered; reads
 * no file, asks no driver, signals nobody. So tests feed it made-up scenes.
 *
 * Invariant: a cause is told only with evidence, and each piece says where it was read. What was not looked at is not
 * taken for absent: the facts are unknown unless somebody fills them in. Where two causes look the same, both are
 * told, and what would decide. Evidence has printable characters only.
 * Read next: docs/causes.md, cause_run.h, then the causes_....c by family.
 */
#ifndef GPUWARD_HOLDERS_CAUSE_H
#define GPUWARD_HOLDERS_CAUSE_H

#include <gpuward.h>
#include <stdbool.h>
#include <stdint.h>

#include "holders/amounts.h"
#include "holders/scan.h"

/* The number of each is the one of its name: CAUSE_MPS is C20. */
enum cause {
	CAUSE_NONE = 0,
	CAUSE_LIVE_OWNER = 1,
	CAUSE_INHERITED = 2, /* its creator is dead, and a child that inherited the files lives */
	CAUSE_ORPHAN = 3,    /* its own client, but what started it is gone */
	CAUSE_CONTAINER = 4, /* survived its container */
	CAUSE_ZOMBIE_LEADER = 5,
	CAUSE_THREAD_TABLE = 6,
	CAUSE_ZOMBIE = 7, /* holds nothing */
	CAUSE_EXITING = 8,
	CAUSE_UNKILLABLE = 9,
	CAUSE_STOPPED = 10,
	CAUSE_TRACED = 11,
	CAUSE_FROZEN = 12,
	CAUSE_IN_FLIGHT = 13,
	CAUSE_IO_URING = 14,
	CAUSE_MAPPING = 15,
	CAUSE_EXPORTED = 16,
	CAUSE_IPC_IMPORTER = 17,
	CAUSE_REMOTE_IMPORTER = 18,
	CAUSE_REGISTERED = 19, /* dma-buf, RDMA, gdrdrv */
	CAUSE_MPS = 20,
	CAUSE_DAEMON = 21,
	CAUSE_DISPLAY = 22,
	CAUSE_MODULE = 23,
	CAUSE_BASELINE = 24,
	CAUSE_MANAGED = 25,
	CAUSE_NUMA = 26,
	CAUSE_IDLE_CACHE = 27,
	CAUSE_OTHER_NAMESPACE = 28,
	CAUSE_DENIED = 29,
	CAUSE_RECYCLED = 30,
	CAUSE_HIDDEN = 31,
	CAUSE_MIG = 32,
	CAUSE_NOT_MEASURABLE = 33,
	CAUSE_UNSUPPORTED = 34,
	CAUSE_GHOST_UTILIZATION = 35,
	CAUSE_GPU_LOST = 36,
	CAUSE_NVML_HUNG = 37,
	CAUSE_DRIVER_LEAK = 38,
	CAUSE_SUSPEND = 39,
	CAUSE_BAR1 = 40,
	CAUSE_COUNT = 41,
};

/* How sure a verdict is. */
enum cause_certainty {
	CAUSE_CERTAIN = 0,
	CAUSE_LIKELY,
	CAUSE_ONE_OF, /* or `other`; `decide` says what would tell them apart */
};

/* What may be done about it without being asked for this very target. */
enum cause_policy {
	CAUSE_LEAVE = 0, /* normal, or nobody's to end: never reaped */
	CAUSE_WAIT,	 /* goes away by itself */
	CAUSE_ADVISE,	 /* people or another program must do it */
	CAUSE_ASK,	 /* only when named */
	CAUSE_AUTO,	 /* may be reaped where it is the caller's own */
};

struct cause_evidence {
	const char *what;   /* "state" */
	const char *source; /* file or call that it was read from: "/proc/4711/stat" */
	const char *value;  /* printable characters only */
};

#define CAUSE_EVIDENCE_MAX 12U
#define CAUSE_NOBODY	   UINT32_MAX

struct verdict {
	enum cause cause;
	enum cause_certainty certainty;
	enum cause other;   /* with CAUSE_ONE_OF; else CAUSE_NONE */
	const char *decide; /* what would make it certain; NULL if it is */
	enum cause_policy policy;
	uint32_t
		process; /* index into scan.processes, the first of `members`; CAUSE_NOBODY for a GPU's */
	int32_t pid;	 /* of `process`, or NVML's label where nobody holds anything; 0 none */
	int32_t creator; /* C02: the pid, as NVML names it, whose memory they keep; else 0 */
	int32_t tid;	 /* 0: the process as a whole */
	uint32_t gpu;	 /* index into amounts.gpus; CAUSE_NOBODY: of several, or not known */
	uint64_t bytes;	 /* of device memory that it accounts for; GW_UNKNOWN */
	/* Several processes with one cause that end or live together; ascending, `process` is the first. */
	uint32_t *members;
	uint32_t member_count;
	struct cause_evidence evidence[CAUSE_EVIDENCE_MAX];
	uint32_t evidence_count;
	const char *remedy; /* a command, or words where there is none. Printable. */
	const char
		*escalation; /* the next step where that does not help, with its risk; NULL none */
};

/* Zero-initialise; end with causes_free(). */
struct verdicts {
	struct verdict *list; /* ascending cause, then process or GPU */
	uint32_t count;
	uint32_t room;
	struct arena_chunk *texts;
	bool no_memory; /* something could not be added: causes_find() fails then */
};

/* What is known of a pid that NVML names, whether it holds anything or not. */
struct fact_label {
	int32_t pid;
	enum amounts_truth exists;   /* by a direct look at /proc/PID */
	enum amounts_truth listed;   /* by reading /proc as a folder */
	char state;		     /* '?' unknown */
	int32_t ppid;		     /* -1 */
	int32_t threads;	     /* -1 */
	uint64_t start_ticks;	     /* GW_UNKNOWN */
	uint64_t client_start_ticks; /* when the driver's client began, by accounting; GW_UNKNOWN */
	char comm[16];
};

struct fact_module {
	char name[32];	   /* "nvidia_drm" */
	int32_t use_count; /* -1 */
};

struct fact_xid {
	uint32_t gpu; /* index into amounts.gpus */
	uint32_t number;
	uint64_t ago_ns; /* GW_UNKNOWN */
};

/* A batch job or container that processes name, and whether it still runs. */
struct fact_job {
	uint64_t id;
	enum amounts_truth running;
};
struct fact_container {
	char id[65];
	enum amounts_truth running;
};

/* How a process did while it was watched: at least two looks. */
struct fact_watch {
	int32_t pid;
	uint64_t start_ticks;
	uint64_t watched_ns;
	enum amounts_truth moved; /* its memory shrank, or it used the CPU */
};

/* All zero: nothing is known. Lists are the caller's. */
struct causes_facts {
	const struct fact_label *labels; /* ascending pid */
	uint32_t label_count;
	const struct fact_module *modules;
	uint32_t module_count;
	const struct fact_xid *xids;
	uint32_t xid_count;
	const struct fact_job *jobs;
	uint32_t job_count;
	const struct fact_container *containers;
	uint32_t container_count;
	const struct fact_watch *watches;
	uint32_t watch_count;
	/* For each process of the scan: those with equal numbers have an open file in common, as share_find() numbers
	 * them, from 0 and below process_count. NULL: nobody compared. */
	const uint32_t *groups;
	enum amounts_truth memory_is_numa; /* the operating system owns the GPU's memory */
	enum amounts_truth suspending;
	enum amounts_truth uvm_queue_busy; /* UVM's deferred releases */
	enum amounts_truth virtual_gpu;
	enum amounts_truth wsl;
	enum amounts_truth fabric; /* the GPU is in a fabric with others' */
	const char *probe_wchan;   /* where the hung probe sleeps; NULL */
	int32_t probe_pid;	   /* 0 */
};

struct causes_input {
	const struct scan *scan;	  /* never NULL */
	const struct amounts *amounts;	  /* NULL: nobody asked NVML */
	const struct amounts *before;	  /* earlier ones, for what needs history; NULL */
	const struct causes_facts *facts; /* NULL: nothing is known */
};

/*
 * Tells all causes that apply. *RET_VERDICTS borrows nothing from INPUT but the meaning of indices.
 * Returns 0, or -ENOMEM.
 */
int causes_find(const struct causes_input *input, struct verdicts *ret_verdicts,
		struct gw_error *ret_error);

/* The same for one CAUSE alone, for tests and filters. -EINVAL for one that does not exist. */
int causes_find_one(const struct causes_input *input, enum cause cause,
		    struct verdicts *ret_verdicts, struct gw_error *ret_error);

void causes_free(struct verdicts *verdicts);

/* The verdict that says most about process number PROCESS of the scan; NULL for one that holds nothing. */
const struct verdict *causes_main(const struct verdicts *verdicts, uint32_t process);

/* Is VERDICT about process number PROCESS? */
bool verdict_is_about(const struct verdict *verdict, uint32_t process);

/* "C20", "mps", "MPS server or client". Static; "?" for none. */
const char *cause_id(enum cause cause);
const char *cause_name(enum cause cause);
const char *cause_title(enum cause cause);
/* By id or by name; CAUSE_NONE if there is no such. */
enum cause cause_by_name(const char *name);

/* "certain", "likely", "one of". */
const char *cause_certainty_name(enum cause_certainty certainty);

#endif
