/* SPDX-License-Identifier: MIT */
/*
 * Hears of GPU faults from the kernel log, in the ward's event loop.
 *
 * Runs in: ward. Reads /dev/kmsg, or the file that the environment variable GPUWARD_KERNEL_LOG names: a
 * regular file with one record a line, in the form in which /dev/kmsg gives them. Only what is logged
 * after kernel_log_open() counts. Never blocks, never polls; what one callback of the loop reads is
 * bounded, so that a flood of lines starves nobody. An unreadable log is said once and then let go.
 *
 * Trust: /dev/kmsg is written by the kernel (records of programs are left out). A regular file is as
 * good as whoever can write to it.
 * Invariant: a pid is given only where it means the same here as in the log.
 * Read next: log_lines.h for what becomes of the text, log_file.h for regular files.
 */
#ifndef GPUWARD_WARD_KERNEL_LOG_H
#define GPUWARD_WARD_KERNEL_LOG_H

#include <gpuward.h>
#include <stdbool.h>
#include <stdint.h>

#include "linux/loop.h"
#include "ward/log_file.h"
#include "ward/log_lines.h"

#define KERNEL_LOG_ENV	"GPUWARD_KERNEL_LOG"
#define KERNEL_LOG_PATH "/dev/kmsg"

/* So long a report without a pid waits for the line that has it. Later the pid tells nothing new: the driver's
 * own error has come by then. */
#define KERNEL_LOG_JOIN_NS 250000000ULL

/* One Xid. */
struct kernel_log_xid {
	uint64_t at_ns; /* its first line arrived here; CLOCK_MONOTONIC */
	int32_t pid;	/* in this process's pid namespace, or -1: not named, or not comparable */
	int32_t xid;	/* its number */
	int32_t cuda;	/* the CUresult that it implies, or -1 where none is known */
	bool ends_process; /* the process that the line names can do no CUDA work any more */
	char pci[16]; /* "00000000:00:06.0" without the function: "0000:00:06"; "": not known */
};

/* All zero is its beginning, but for the first three, which the owner sets. */
struct kernel_log {
	void (*xid)(struct kernel_log *log, const struct kernel_log_xid *xid);
	/* The log cannot be read any more; called at most once, and nothing after it. */
	void (*failed)(struct kernel_log *log, const struct gw_error *error);
	void *owner;

	struct loop *loop;
	struct loop_source source;
	struct loop_timer join_timer;
	struct loop_timer more_timer; /* there is more to read than one callback may */
	struct log_file file;	      /* a regular file */
	int device_fd;		      /* /dev/kmsg, or -1 */
	bool open;
	bool names_pids;
	struct log_lines lines;
};

/*
 * Starts to listen. Call it once for each LOG, which stays where it is until the loop is done with.
 * Returns 0, or -errno and *RET_ERROR, which says what to do: -EPERM or -EACCES not allowed (root or
 *   CAP_SYSLOG is needed), -ENOENT there is none, -EINVAL neither a log nor a regular file, -EMFILE.
 */
int kernel_log_open(struct kernel_log *log, struct loop *loop, struct gw_error *ret_error);

/* Works on one that is not open. */
void kernel_log_close(struct kernel_log *log);

/* Whether the pids in the log are those of this process's namespace: it is the initial one, or the log is
 * a regular file. Where they are not, every Xid comes with a pid of -1. */
bool kernel_log_pids_match(const struct kernel_log *log);

/* Records that were overwritten before they could be read, so far. */
uint64_t kernel_log_lost(const struct kernel_log *log);

/* What LINE says, for a log whose pids are (NAMES_PIDS) those of this process's namespace. Pure. */
struct kernel_log_xid kernel_log_read_line(const struct xid_line *line, bool names_pids);

#endif
