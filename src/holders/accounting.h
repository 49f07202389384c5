/* SPDX-License-Identifier: MIT */
/*
 * Whose memory is it? Asks the probe for amounts, and finds for each pid that NVML names what that pid is: a holder
 * that the scan has found, one that could not be looked at, or a creator that is dead, and then who holds what it
 * has left behind, where that can be shown.
 *
 *	accounting_ask()     amounts, from NVML, before a deadline
 *	accounting_join()    each of its processes, beside the scan
 *
 * Runs in: command line, a program of one thread: the probe ends with the thread that started it. Loads no driver
 * itself, and never waits for a probe that hangs. While one hangs no other one is started: it would hang too.
 *
 * NVML's pid is the label of who created the memory. It outlives its process, and the number may since belong to
 * somebody else; so it is a name here, and never the target of a signal.
 *
 * Invariant: every byte that NVML charges to a pid is in exactly one line. Read next: amounts.h, share.h.
 */
#ifndef GPUWARD_HOLDERS_ACCOUNTING_H
#define GPUWARD_HOLDERS_ACCOUNTING_H

#include "holders/amounts.h"
#include "holders/scan.h"
#include "holders/share.h"
#include "probe/client.h"

#define ACCOUNT_NONE UINT32_MAX

/* The probe between two questions: there is one only while it hangs. One that is well has ended: NVML keeps device
 * files open, so it would be a holder itself. */
struct accounting_probe {
	const char *program; /* NULL: where it is installed */
	bool open;
	struct probe probe;
};

#define ACCOUNTING_PROBE_NONE ((struct accounting_probe){.probe = PROBE_NONE})

/*
 * Asks for all GPUs, their memory and processes. DEADLINE_NS is for everything, from now; 0 = 5 s. SCAN may be NULL;
 * a probe of an earlier call of the tool that still hangs is found in it, and then NVML is not asked.
 * Owns: *RET_AMOUNTS is the caller's: accounting_amounts_free().
 * Returns 0, also where NVML does not answer: amounts.answer and .error say so, and what it told until then is
 * there; or -ENOMEM. Source: NVML, by gpuward-probe.
 */
int accounting_ask(struct accounting_probe *probe, const struct scan *scan, uint64_t deadline_ns,
		   struct amounts *ret_amounts, struct gw_error *ret_error);

/* Lets go of a probe that hangs, at once. */
void accounting_probe_close(struct accounting_probe *probe);

/* Ends amounts, also those that are all zero. */
void accounting_amounts_free(struct amounts *amounts);

/*
 * Sorts the processes of GPU, makes one of several entries of a pid, and sets attributed and unattributed bytes.
 * Pure. NVML can list a pid twice: as compute and graphics, and where it compares pids of two namespaces. The larger
 * amount counts then.
 */
void accounting_sum(struct amounts_gpu *gpu);

/* What the pid of a line is. */
enum account_owner {
	ACCOUNT_HOLDER = 0, /* scan.processes[process] */
	ACCOUNT_SHARED,	    /* dead; the processes of `group` hold its open files */
	ACCOUNT_DEAD,	    /* dead, and who holds its files is not known */
	ACCOUNT_UNSEEN,	    /* lives, and its descriptors could not be looked at */
	ACCOUNT_HIDDEN,	    /* lives, and /proc does not show it */
	ACCOUNT_STRANGER,   /* dead: the number belongs to a process now that holds no GPU */
	ACCOUNT_LATER,	    /* began after the scan */
	ACCOUNT_ELSEWHERE,  /* of another pid namespace: nobody here can be named */
};

/* How it was shown that a group holds a dead pid's files. */
enum account_proof {
	ACCOUNT_NO_PROOF = 0,
	ACCOUNT_LINEAGE,  /* one of them is in the process group or session that the dead one led */
	ACCOUNT_ONLY_ONE, /* all was seen, and nobody else here can hold them */
};

/* A process of NVML's list of one GPU. */
struct account_line {
	uint32_t gpu; /* into amounts.gpus */
	int32_t pid;  /* NVML's label */
	uint64_t used_bytes;
	enum account_owner owner;
	uint32_t process;	  /* into scan.processes, for ACCOUNT_HOLDER; else ACCOUNT_NONE */
	uint32_t group;		  /* of `share`; ACCOUNT_NONE */
	enum account_proof proof; /* for ACCOUNT_SHARED */
	bool number_taken;	  /* the dead one's number belongs to somebody else now */
	int32_t uid;		  /* of a living one that is no holder; -1 */
	char comm[16];		  /* the same; raw; "" unknown */
	char state;		  /* the same; '?' */
	uint64_t start_ticks;	  /* the same; GW_UNKNOWN */
};

struct accounting {
	struct share share;
	struct account_line *lines; /* by GPU, then by pid */
	uint32_t line_count;
};

/*
 * Joins AMOUNTS with SCAN. DEADLINE_NS, on CLOCK_MONOTONIC, is for comparing open files. Looks into /proc for pids
 * that are no holders. Returns 0 and *RET_ACCOUNTING, which is the caller's: accounting_free(); or -ENOMEM.
 */
int accounting_join(const struct scan *scan, const struct amounts *amounts, uint64_t deadline_ns,
		    struct accounting *ret_accounting, struct gw_error *ret_error);

/* Its last step, which looks at nothing else: gives the bytes of dead pids to the groups that hold them. */
void accounting_settle(const struct scan *scan, const struct amounts *amounts,
		       struct accounting *accounting);

/* Ends it, also one that is all zero. */
void accounting_free(struct accounting *accounting);

/* Bytes of GPU (into amounts.gpus; ACCOUNT_NONE: all) that are charged to holder PROCESS itself; GW_UNKNOWN where
 * NVML lists it not, or without an amount. */
uint64_t accounting_process_bytes(const struct accounting *accounting, uint32_t gpu,
				  uint32_t process);

/* The GPU with this MINOR, into amounts.gpus, or ACCOUNT_NONE. */
uint32_t accounting_find_gpu(const struct amounts *amounts, int32_t minor);

#endif
