/* SPDX-License-Identifier: MIT */
/*
 * Which descriptors stand for one open file: kcmp() compares the kernel's own pointers, and gives an order of them,
 * so that many can be sorted.
 *
 * kcmp takes numbers, which can pass to other processes. So both processes are compared with the snapshot after the
 * question, by the time at which they began: who is the same one then was it at the question too.
 *
 * Read next: scan.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/fd.h"
#include "holders/folder.h"
#include "holders/look.h"
#include "holders/scan.h"

static bool is_descriptor(const struct scan_reference *reference)
{
	return reference->held == SCAN_FD || reference->held == SCAN_FD_OF_THREAD;
}

/* Is the process of REFERENCE still the one of the snapshot? */
static bool is_same_process(const struct scan *scan, const struct scan_reference *reference)
{
	const struct scan_process *known = &scan->processes[reference->process];
	struct scan_process now;
	char path[64], text[1024];
	ssize_t got;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", known->pid);
	got = folder_read_once(AT_FDCWD, path, text, sizeof(text));
	process_init(&now);
	return got > 0 && process_parse_stat(text, (size_t)got, &now) &&
	       now.start_ticks == known->start_ticks;
}

/* The number by which kcmp finds the table. */
static int32_t number_of(const struct scan *scan, const struct scan_reference *reference)
{
	return reference->tid ? reference->tid : scan->processes[reference->process].pid;
}

int scan_compare_files(const struct scan *scan, const struct scan_reference *a,
		       const struct scan_reference *b, int *ret_order)
{
	long order;

	if (!is_descriptor(a) || !is_descriptor(b))
		return -EINVAL;
	if (scan->unseen.foreign_proc)
		return -ENOSYS;
	order = syscall(SYS_kcmp, number_of(scan, a), number_of(scan, b), KCMP_FILE, a->fd, b->fd);
	if (order < 0)
		return errno == EBADF ? -ESRCH : -errno;
	if (!is_same_process(scan, a) || !is_same_process(scan, b))
		return -ESRCH;
	/* 3 is "not equal, and no order", which no kernel of today answers. */
	*ret_order = order == 0 ? 0 : order == 1 ? -1 : 1;
	return 0;
}

int scan_same_file(const struct scan *scan, const struct scan_reference *a,
		   const struct scan_reference *b)
{
	int order = 0;
	int code = scan_compare_files(scan, a, b, &order);

	return code < 0 ? code : order == 0;
}
