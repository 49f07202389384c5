/* SPDX-License-Identifier: MIT */
/*
 * Finds wards in /proc, and the pages that they share with their hosts among their descriptors.
 *
 * Everything of a process is read through one descriptor of its folder, so that a pid that is given to another
 * process meanwhile cannot mix the two: what is read after the end of the first one fails.
 *
 * A descriptor is opened only after it is known to be memory of the kernel's own (the mount that all memfds are
 * on), since opening a file of some user's file system can wait for that user.
 */
#include "cli/pools.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/clean.h"
#include "common/err.h"
#include "common/fd.h"

#define WARD_COMM "gpuward-ward"
#define PAGE_LINK "/memfd:" POOL_PAGE_NAME " (deleted)"

/* Reads a small text file of the folder PROC. Returns false where that is not possible. */
static bool read_text(int proc, const char *name, char *text, size_t bytes)
{
	cleanup_fd int fd = openat(proc, name, O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? -1 : read(fd, text, bytes - 1);

	if (got < 0)
		return false;
	text[got] = '\0';
	return true;
}

static bool is_ward(int proc)
{
	char comm[32];

	return read_text(proc, "comm", comm, sizeof(comm)) && strcmp(comm, WARD_COMM "\n") == 0;
}

/* The mount of the file behind FD of this process, or -1. */
static long mount_of(int fd)
{
	char path[64];
	char text[512];
	const char *line;

	(void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	if (!read_text(AT_FDCWD, path, text, sizeof(text)))
		return -1;
	line = strstr(text, "mnt_id:");
	return line ? strtol(line + strlen("mnt_id:"), NULL, 10) : -1;
}

static long mount_of_memory(void)
{
	cleanup_fd int fd = fd_new_memory("gpuward-look", 0);

	return fd < 0 ? -1 : mount_of(fd);
}

/* Opens descriptor NAME of a process, a page by its name. Returns it or -errno. */
static int open_page(int folder, const char *name)
{
	cleanup_fd int path = openat(folder, name, O_PATH | O_CLOEXEC);
	char own[64];
	long mount;
	int fd;

	if (path < 0)
		return -errno;
	mount = mount_of(path);
	if (mount < 0 || mount != mount_of_memory())
		return -EINVAL;
	(void)snprintf(own, sizeof(own), "/proc/self/fd/%d", path);
	fd = open(own, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* The page among the descriptors of the process PROC: the descriptor, -ENOENT, or why not. */
static int find_page(int proc)
{
	int fd = openat(proc, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *folder = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;
	int result = -ENOENT;

	if (!folder) {
		result = -errno;
		fd_close(fd);
		return result;
	}
	while (result == -ENOENT && (entry = readdir(folder))) {
		char link[64];
		ssize_t length = readlinkat(fd, entry->d_name, link, sizeof(link) - 1);

		link[length > 0 ? length : 0] = '\0';
		if (strcmp(link, PAGE_LINK) == 0)
			result = open_page(fd, entry->d_name);
	}
	(void)closedir(folder);
	return result;
}

static void refuse(struct pool_view *view, const char *what)
{
	(void)snprintf(view->problem, sizeof(view->problem), "%s", what);
}

/* Nobody can cut it short while it is mapped here: a read behind its end would be SIGBUS. */
static void read_page(int fd, struct pool_view *view)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat status;
	uint64_t bytes;
	void *page;

	if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &status) < 0 ||
	    status.st_size <= 0) {
		refuse(view, "its page is not sealed: it is of another version, or no ward");
		return;
	}
	bytes = (uint64_t)status.st_size;
	bytes = bytes < sizeof(struct pool_page) ? bytes : sizeof(struct pool_page);
	page = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED) {
		refuse(view, "its page cannot be mapped");
		return;
	}
	pools_read(page, bytes, view);
	(void)munmap(page, bytes);
}

/* The state letter and the parent, behind the name in parentheses, which can contain anything. */
static bool read_stat(int proc, char *ret_state, int32_t *ret_parent)
{
	char text[1024];
	const char *fields =
		read_text(proc, "stat", text, sizeof(text)) ? strrchr(text, ')') : NULL;
	char *end;
	long parent;

	if (!fields || fields[1] != ' ' || fields[2] == '\0' || fields[3] != ' ')
		return false;
	parent = strtol(fields + 4, &end, 10);
	if (end == fields + 4 || parent < 0 || parent > INT32_MAX)
		return false;
	*ret_state = fields[2];
	*ret_parent = (int32_t)parent;
	return true;
}

/* Whether the process PROC has PID as one of its numbers: here, or in a pid namespace of its own. */
static bool has_number(int proc, int32_t pid)
{
	char text[4096];
	char *next =
		read_text(proc, "status", text, sizeof(text)) ? strstr(text, "\nNSpid:") : NULL;
	bool found = false;

	for (next = next ? next + strlen("\nNSpid:") : NULL; next && *next && *next != '\n';) {
		char *end;
		long number = strtol(next, &end, 10);

		if (end == next)
			break;
		found = found || number == pid;
		next = end;
	}
	return found;
}

/*
 * The host is the ward's parent, by the kernel's word, unless it has died and somebody else was made the parent:
 * then its own number in the page is not the parent's.
 */
static void name_host(struct pool_view *view, int32_t parent)
{
	cleanup_fd int proc = -1;
	char path[64];
	char comm[POOLS_PROGRAM_MAX];

	(void)snprintf(path, sizeof(path), "/proc/%d", parent);
	proc = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (proc < 0 || !has_number(proc, view->host.pid))
		return;
	view->host_pid = parent;
	if (read_text(proc, "comm", comm, sizeof(comm))) {
		comm[strcspn(comm, "\n")] = '\0';
		clean_text(view->program, sizeof(view->program), comm, sizeof(comm));
	}
}

/* Returns 1, 0 it is gone or not to be looked at, or -EACCES. */
static int view_ward(int proc, struct pool_view *view)
{
	struct stat status;
	cleanup_fd int page = -1;
	int32_t parent;
	char state;

	if (fstat(proc, &status) < 0 || !read_stat(proc, &state, &parent) || state == 'Z' ||
	    state == 'X')
		return 0;
	view->uid = status.st_uid;
	view->stopped = state == 'T' || state == 't';
	view->host_pid = -1;
	page = find_page(proc);
	if (page == -EACCES || page == -EPERM)
		return -EACCES;
	if (page < 0) {
		refuse(view, "it shows no pool: it is starting or ending, or of another version");
		return 1;
	}
	read_page(page, view);
	if (view->problem[0] == '\0')
		name_host(view, parent);
	return 1;
}

static int look_at(const char *pid, struct pools *pools)
{
	char path[32];
	cleanup_fd int proc = -1;
	struct pool_view *grown;
	struct pool_view *view;
	int result;

	(void)snprintf(path, sizeof(path), "/proc/%.20s", pid);
	proc = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (proc < 0 || !is_ward(proc))
		return 0;
	grown = reallocarray(pools->all, pools->count + 1, sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	pools->all = grown;
	view = &pools->all[pools->count];
	memset(view, 0, sizeof(*view));
	view->ward_pid = (int32_t)strtol(pid, NULL, 10);
	result = view_ward(proc, view);
	pools->count += result > 0;
	pools->unreadable += result < 0;
	return 0;
}

static int by_pid(const void *one, const void *other)
{
	const struct pool_view *a = one;
	const struct pool_view *b = other;

	return (a->ward_pid > b->ward_pid) - (a->ward_pid < b->ward_pid);
}

int pools_find(struct pools *ret_pools, struct gw_error *ret_error)
{
	struct pools pools = {0};
	DIR *folder = opendir("/proc");
	const struct dirent *entry;
	int result = 0;

	if (!folder)
		return err_os(ret_error, errno, "cannot look for pools in /proc");
	while (result == 0 && (entry = readdir(folder))) {
		if (isdigit((unsigned char)entry->d_name[0]))
			result = look_at(entry->d_name, &pools);
	}
	(void)closedir(folder);
	if (result < 0) {
		pools_done(&pools);
		return err_os(ret_error, -result, "cannot list the pools");
	}
	if (pools.count > 0)
		qsort(pools.all, pools.count, sizeof(*pools.all), by_pid);
	*ret_pools = pools;
	return 0;
}

void pools_done(struct pools *pools)
{
	free(pools->all);
	*pools = (struct pools){0};
}
