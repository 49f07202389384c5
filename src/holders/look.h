/* SPDX-License-Identifier: MIT */
/*
 * One look at one process. Each part of the looking is a file of its own:
 *
 *	fds.c		descriptors of a table
 *	threads.c	threads whose table is their own
 *	sockets.c	descriptors in flight
 *	rings.c		files that are registered with an io_uring
 *	exiting.c	processes whose tables are empty since they are ending
 *	process.c	what the process is
 *	maps.c		mapped memory
 *	memory.c	command line and environment
 *	groups.c	control groups
 *
 * Runs in: the scan's threads, each with a struct look of its own; nothing is shared but the device table. All of
 * a process is read through one descriptor of its folder in /proc, so that a pid that is given to another process
 * meanwhile cannot mix the two: what is read after the end of the first one fails.
 *
 * A look has two halves. The first one takes no lock that another process can keep. The second one reads the
 * memory of the process (mappings, command line, environment), for which the kernel waits until that process lets
 * go of its memory lock, and one that hangs in a driver may never do that. So what the first half has found is
 * published before the second one begins (crew.h).
 */
#ifndef GPUWARD_HOLDERS_LOOK_H
#define GPUWARD_HOLDERS_LOOK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "holders/arena.h"
#include "holders/device.h"
#include "holders/groups.h"
#include "holders/quiet.h"
#include "holders/scan.h"

#define LOOK_FOLDER_BYTES 32768
#define LOOK_TEXT_BYTES	  65536
#define LOOK_PLAIN_MAX	  64
#define LOOK_KNOWN_MAX	  512

/* What looks at one process have found. */
struct finding {
	struct finding *next;
	bool second; /* of the second half: details and mappings */
	bool late;   /* for the merge: the second half is missing */
	struct scan_process
		process; /* the first half: all but texts from its memory; the second half: those */
	struct scan_reference *references;
	uint32_t count;
	uint32_t room;
	struct arena_chunk *chunks;
};

/* What becomes of a process in the scan's sums. */
enum look_result {
	LOOK_DONE = 0,
	LOOK_VANISHED,
	LOOK_DENIED,
	LOOK_FAILED,
};

/* What a file is that was met among mappings. */
struct look_known {
	struct device_inode file;
	struct scan_device device;
	bool used;
	bool is_device;
	bool is_ring; /* an io_uring, mapped */
	bool other_node;
};

/* One thread's tools. */
struct look {
	int proc; /* the folder /proc */
	const struct device_table *devices;
	bool own_proc; /* numbers of this /proc are pids for this process's system calls */
	const struct groups *groups;
	const struct quiet *quiet;
	uint64_t pid_namespace; /* this process's own; GW_UNKNOWN */
	uint64_t mount_namespace;
	bool without_maps;
	bool without_details;
	_Atomic uint64_t *beat_ns; /* set at every step, so that one who is stuck is seen */
	/* Of the present process. */
	int32_t pid;
	int folder;
	uint32_t rings;	   /* io_urings among its descriptors */
	bool links_denied; /* not all of its descriptors could be looked at */
	uint64_t descriptors;
	struct scan_unseen unseen; /* added up over processes until it is taken */
	/* Numbers of file systems without a device (their major is 0) that have no dma-bufs. */
	uint32_t plain[LOOK_PLAIN_MAX];
	size_t plain_count;
	struct look_known known[LOOK_KNOWN_MAX]; /* by a hash of the file */
	/* Buffers. */
	char entries[LOOK_FOLDER_BYTES];
	char thread_entries[LOOK_FOLDER_BYTES];
	char text[LOOK_TEXT_BYTES];
};

/* Tells that this thread is alive. */
void look_beat(struct look *look);

/*
 * The first half for PID. Sets *RET_FINDING to what was found, NULL if it is nobody of interest; the caller frees it. It
 * can be set for a process of which not everything may be seen, LOOK_DENIED, too.
 * Returns an enum look_result. look->folder stays open for the second half, until look_end().
 */
enum look_result look_first(struct look *look, int32_t pid, struct finding **ret_finding);

/* The second half; FIRST says whether the first one found something. May block for ever. */
struct finding *look_second(struct look *look, bool first);

void look_end(struct look *look);

/* Adds REFERENCE (process is ignored). False when there is no memory: counted as dropped. */
bool finding_add(struct look *look, struct finding *finding,
		 const struct scan_reference *reference);

struct finding *finding_new(void);
void finding_free(struct finding *finding);

/* Looks at a table of descriptors: FOLDER is /proc/PID or /proc/PID/task/TID, TID 0 for the process's table.
 * Returns how many descriptors it has, or -errno. */
int64_t fds_look(struct look *look, int folder, int32_t tid, struct finding *finding);

/* Reads what a process is: identity, state, signals. Returns 0 or -errno. */
int process_read_stat(struct look *look, struct scan_process *process);
void process_read_details(struct look *look, struct finding *finding);

/* All unknown. */
void process_init(struct scan_process *process);

/* Parses /proc/PID/stat. Returns false where it is no such text. */
bool process_parse_stat(const char *text, size_t bytes, struct scan_process *process);

/* Parses /proc/PID/status, line by line; unknown lines are passed over. */
void process_parse_status(const char *text, struct scan_process *process);

#endif
