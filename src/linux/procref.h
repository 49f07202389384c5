/* SPDX-License-Identifier: MIT */
/*
 * A process as gpuward refers to it: its pid for people, its pidfd for everything else.
 *
 * Runs in: host, ward, command line. A pid can belong to somebody else a moment after its process was
 * reaped; a pidfd never does. So signals and waits go through the pidfd alone, and the number is for
 * texts. Never calls waitpid(-1): the program around may have children of its own, and may even reap
 * ours, which is a case with a name here (-ECHILD). Read next: spawn.h.
 */
#ifndef GPUWARD_LINUX_PROCREF_H
#define GPUWARD_LINUX_PROCREF_H

#include <signal.h>
#include <stdint.h>

#include <gpuward.h>

struct procref {
	int32_t pid; /* -1: no process */
	int pidfd;
	uint64_t started_ns; /* when this process was made, or GW_UNKNOWN for one that was found */
};

#define PROCREF_NONE ((struct procref){.pid = -1, .pidfd = -1, .started_ns = GW_UNKNOWN})

/* How a child ended. */
struct procref_end {
	bool by_signal;
	int32_t value; /* the signal's number, or the exit code */
};

/* Refers to the living process PID. Returns 0, -ESRCH, -EMFILE, or -ENOSYS before Linux 5.3. */
int procref_open(struct procref *ret_process, int32_t pid, struct gw_error *ret_error);

/* Lets go of the process, which lives on. Works on PROCREF_NONE. */
void procref_done(struct procref *process);

/* Sends SIGNAL. Returns 0, -ESRCH when the process has ended, -EPERM. */
int procref_signal(const struct procref *process, int signal);

/*
 * Reaps the child PROCESS if it has ended. Never blocks: the pidfd is readable once it has.
 * Returns 1 and *RET_END; 0 while it runs; -ECHILD when it is no child, or somebody else reaped it.
 */
int procref_reap(const struct procref *process, struct procref_end *ret_end);

/*
 * How the child PROCESS is ending, while it still is: its exit code is set before the kernel takes its
 * memory and descriptors down, which takes a GPU's driver 100 ms. Never blocks, reaps nothing.
 * Returns 1 and *RET_END; 0 when it is not ending, ends with 0, or cannot be seen (not allowed, no /proc).
 */
int procref_peek(const struct procref *process, struct procref_end *ret_end);

/* How long a process that has ended by its pidfd is waited for to be reaped: somebody may trace it. */
#define PROCREF_REAP_NS 200000000ULL

/*
 * Waits for the child's end until DEADLINE_NS (GW_FOREVER allowed) and reaps it.
 * Returns as procref_reap(), 0 when the time ran out.
 */
int procref_wait(const struct procref *process, uint64_t deadline_ns, struct procref_end *ret_end);

#endif
