/* SPDX-License-Identifier: MIT */
/*
 * The kernel log as a source of the ward's loop.
 *
 * Runs in: ward.
 *
 *	/dev/kmsg       one read is one record; EPIPE: some were overwritten; level-triggered
 *	regular file    a notice, then pieces up to the end; if one turn is not enough, a timer that is
 *	                due at once asks for another one, after all others had theirs
 *
 * Read next: kernel_log.h.
 */
#include "ward/kernel_log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/err.h"
#include "common/fd.h"
#include "gpu/xid_result.h"
#include "linux/namespaces.h"

/* What one turn reads at most: a few hundred microseconds of work. */
#define RECORDS_MAX 64
#define PIECES_MAX  8
#define PIECE_BYTES 4096

struct kernel_log_xid kernel_log_read_line(const struct xid_line *line, bool names_pids)
{
	struct kernel_log_xid xid = {
		.at_ns = line->at_ns,
		.pid = names_pids && (line->have & XID_HAVE_PID) ? line->pid : -1,
		.xid = (int32_t)line->number,
		.cuda = xid_result(line->number, line->rest),
		.ends_process = xid_ends_process(line->number),
	};

	if (line->have & XID_HAVE_PCI)
		(void)snprintf(xid.pci, sizeof(xid.pci), "%04x:%02x:%02x", line->pci.domain,
			       line->pci.bus, line->pci.device);
	return xid;
}

/* A callback may have closed the log while more of the same piece is being read. */
static void give(void *owner, const struct xid_line *line)
{
	struct kernel_log *log = owner;
	struct kernel_log_xid xid;

	if (!log->open || !(line->have & XID_HAVE_NUMBER) || line->number > INT32_MAX)
		return;
	xid = kernel_log_read_line(line, log->names_pids);
	log->xid(log, &xid);
}

static void set_join_timer(struct kernel_log *log)
{
	uint64_t oldest = log_lines_oldest_ns(&log->lines);

	if (!log->open)
		return;
	loop_set_timer(&log->join_timer,
		       oldest == GW_FOREVER ? GW_FOREVER : oldest + KERNEL_LOG_JOIN_NS);
}

static void join_due(struct loop_timer *timer)
{
	struct kernel_log *log = timer->owner;

	log_lines_expire(&log->lines, now_ns(), KERNEL_LOG_JOIN_NS);
	set_join_timer(log);
}

void kernel_log_close(struct kernel_log *log)
{
	if (!log->open)
		return;
	log->open = false;
	loop_set_timer(&log->join_timer, GW_FOREVER);
	loop_set_timer(&log->more_timer, GW_FOREVER);
	loop_remove(log->loop, &log->source);
	fd_closep(&log->device_fd);
	log_file_close(&log->file);
}

/* What was heard so far still counts. */
static void fail(struct kernel_log *log, int number)
{
	struct gw_error error = {0};

	log_lines_expire(&log->lines, UINT64_MAX, 0);
	if (!log->open)
		return;
	kernel_log_close(log);
	(void)err_os(&error, number, "the kernel log cannot be read any more");
	log->failed(log, &error);
}

static void device_ready(struct loop_source *source, uint32_t events)
{
	struct kernel_log *log = source->owner;
	char record[LOG_LINE_MAX];
	uint64_t now = now_ns();

	(void)events;
	for (int i = 0; i < RECORDS_MAX && log->open; i++) {
		ssize_t got = read(log->device_fd, record, sizeof(record));
		int number = got < 0 ? errno : EIO; /* no bytes: a log has no end */

		if (got > 0) {
			log_lines_record(&log->lines, record, (size_t)got, now);
		} else if (number == EPIPE) {
			log_lines_overrun(&log->lines);
		} else if (number != EINTR) {
			if (number != EAGAIN)
				fail(log, number);
			break;
		}
	}
	set_join_timer(log);
}

static void read_file(struct kernel_log *log)
{
	char piece[PIECE_BYTES];
	uint64_t now = now_ns();
	ssize_t got = 1;

	for (int i = 0; i < PIECES_MAX && log->open && got > 0; i++) {
		bool anew;

		got = log_file_read(&log->file, piece, sizeof(piece), &anew);
		if (anew)
			log_lines_restart(&log->lines);
		if (got > 0)
			log_lines_bytes(&log->lines, piece, (size_t)got, now);
	}
	if (got < 0)
		fail(log, (int)-got);
	if (log->open)
		loop_set_timer(&log->more_timer, got > 0 ? now : GW_FOREVER);
	set_join_timer(log);
}

static void file_ready(struct loop_source *source, uint32_t events)
{
	struct kernel_log *log = source->owner;

	(void)events;
	/* First the notices, then the file: what comes in between has a notice of its own. */
	log_file_take_notices(&log->file);
	read_file(log);
}

static void more_due(struct loop_timer *timer)
{
	read_file(timer->owner);
}

static int open_device(struct kernel_log *log, const char *path)
{
	int result;

	log->device_fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (log->device_fd < 0)
		return -errno;
	/* The end of /dev/kmsg is behind its last record. */
	(void)lseek(log->device_fd, 0, SEEK_END);
	log->source.ready = device_ready;
	result = loop_add(log->loop, &log->source, log->device_fd, EPOLLIN);
	if (result < 0)
		fd_closep(&log->device_fd);
	return result;
}

static int open_file(struct kernel_log *log, const char *path)
{
	int result = log_file_open(&log->file, path);

	if (result < 0)
		return result;
	log->source.ready = file_ready;
	result = loop_add(log->loop, &log->source, log->file.notices_fd, EPOLLIN);
	if (result < 0)
		log_file_close(&log->file);
	return result;
}

/* A file that was asked for by name may come later. */
static int open_path(struct kernel_log *log, const char *path, bool asked)
{
	struct stat status = {.st_mode = S_IFREG};

	if (stat(path, &status) < 0 && (errno != ENOENT || !asked))
		return -errno;
	log->names_pids = !S_ISCHR(status.st_mode) || namespaces_pid_is_initial();
	if (S_ISCHR(status.st_mode))
		return open_device(log, path);
	return S_ISREG(status.st_mode) ? open_file(log, path) : -EINVAL;
}

static int explain(int code, const char *path, struct gw_error *ret_error)
{
	if (code == -EPERM || code == -EACCES)
		return err_os(ret_error, -code,
			      "the kernel log %s may not be read (run as root, or give the program "
			      "CAP_SYSLOG; other sources of detection are used)",
			      path);
	if (code == -EINVAL)
		return err_own(ret_error, code,
			       "the kernel log %s is neither a log device nor a regular file",
			       path);
	return err_os(ret_error, -code, "the kernel log %s cannot be opened", path);
}

int kernel_log_open(struct kernel_log *log, struct loop *loop, struct gw_error *ret_error)
{
	const char *asked = getenv(KERNEL_LOG_ENV);
	const char *path = asked && *asked ? asked : KERNEL_LOG_PATH;
	int result;

	log->loop = loop;
	log->source = (struct loop_source){.fd = -1, .owner = log};
	log->file = LOG_FILE_NONE;
	log->device_fd = -1;
	log->lines.give = give;
	log->lines.owner = log;
	result = open_path(log, path, path == asked);
	if (result < 0)
		return explain(result, path, ret_error);
	log->join_timer = (struct loop_timer){.due = join_due, .owner = log};
	log->more_timer = (struct loop_timer){.due = more_due, .owner = log};
	loop_add_timer(loop, &log->join_timer);
	loop_add_timer(loop, &log->more_timer);
	log->open = true;
	return 0;
}

bool kernel_log_pids_match(const struct kernel_log *log)
{
	return log->open && log->names_pids;
}

uint64_t kernel_log_lost(const struct kernel_log *log)
{
	return log_lines_lost(&log->lines);
}
