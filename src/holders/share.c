/* SPDX-License-Identifier: MIT */
/*
 * Groups are found in two rounds, since a comparison costs some microseconds and a busy machine has thousands of
 * descriptors. A forked child has its parent's numbers: so first each descriptor is compared with its neighbour of
 * the same device and number. Those that differ are then sorted by the kernel's order of open files, whatever their
 * number is: equal ones meet there.
 *
 * Sorted by a merge of our own: a process may end in between, so the order may contradict itself, which qsort() does
 * not promise to survive.
 *
 * kcmp takes numbers, which can pass to other processes. Who is still the one of the snapshot after the search was it at
 * every question; so each process is checked once, at the end, and where one has gone all is searched again without it.
 *
 * Read next: share.h.
 */
#include "holders/share.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/err.h"
#include "common/fd.h"
#include "holders/folder.h"
#include "holders/look.h"

#define ROUNDS 3

struct search {
	const struct scan *scan;
	uint64_t deadline_ns;
	uint32_t *parent; /* of each process: a forest, whose roots stand for the groups */
	bool *gone;	  /* of each process: it has ended */
	bool incomplete;
	bool stopped;
};

static uint32_t find_root(uint32_t *parent, uint32_t process)
{
	while (parent[process] != process) {
		parent[process] = parent[parent[process]];
		process = parent[process];
	}
	return process;
}

/* The smaller one becomes the root. */
static void join(uint32_t *parent, uint32_t a, uint32_t b)
{
	uint32_t root_a = find_root(parent, a);
	uint32_t root_b = find_root(parent, b);

	if (root_a < root_b)
		parent[root_b] = root_a;
	else
		parent[root_a] = root_b;
}

/* The number by which kcmp finds the table of descriptors. */
static int32_t number_of(const struct scan *scan, const struct scan_reference *reference)
{
	return reference->tid ? reference->tid : scan->processes[reference->process].pid;
}

/* Compares A and B, and joins their processes if it is one file. What cannot be compared is not equal. */
static int compare(struct search *search, const struct scan_reference *a,
		   const struct scan_reference *b)
{
	long order;

	if (search->stopped)
		return -1;
	order = syscall(SYS_kcmp, number_of(search->scan, a), number_of(search->scan, b), KCMP_FILE,
			a->fd, b->fd);
	if (order == 0)
		join(search->parent, a->process, b->process);
	/* One that has ended or closed it meanwhile shares with nobody. */
	else if (order < 0 && errno != ESRCH && errno != EBADF)
		search->incomplete = true;
	if ((order < 0 && errno == ENOSYS) || now_ns() >= search->deadline_ns)
		search->stopped = search->incomplete = true;
	return order == 0 ? 0 : order == 2 ? 1 : -1;
}

/* Marks those that are not the processes of the snapshot any more. Returns whether there were new ones. */
static bool find_gone(struct search *search)
{
	bool found = false;

	for (uint32_t i = 0; i < search->scan->process_count; i++) {
		const struct scan_process *known = &search->scan->processes[i];
		struct scan_process now;
		char path[64], text[1024];
		ssize_t got;

		if (search->gone[i])
			continue;
		(void)snprintf(path, sizeof(path), "/proc/%d/stat", known->pid);
		got = folder_read_file(AT_FDCWD, path, text, sizeof(text));
		process_init(&now);
		if (got > 0 && process_parse_stat(text, (size_t)got, &now) &&
		    now.start_ticks == known->start_ticks)
			continue;
		search->gone[i] = found = true;
	}
	return found;
}

static int by_device_and_number(const void *left, const void *right)
{
	const struct scan_reference *a = *(const struct scan_reference *const *)left;
	const struct scan_reference *b = *(const struct scan_reference *const *)right;

	if (a->device.kind != b->device.kind)
		return a->device.kind < b->device.kind ? -1 : 1;
	if (a->device.minor != b->device.minor)
		return a->device.minor < b->device.minor ? -1 : 1;
	if (a->fd != b->fd)
		return a->fd < b->fd ? -1 : 1;
	return a->process < b->process ? -1 : a->process > b->process;
}

static bool is_same_device(const struct scan_reference *a, const struct scan_reference *b)
{
	return a->device.kind == b->device.kind && a->device.minor == b->device.minor;
}

/* The first round. Leaves one of each run of equal ones in LIST. Returns how many. */
static size_t drop_equal_neighbours(struct search *search, const struct scan_reference **list,
				    size_t count)
{
	size_t kept = 0;

	for (size_t i = 0; i < count; i++) {
		const struct scan_reference *last = kept > 0 ? list[kept - 1] : NULL;

		if (last && is_same_device(last, list[i]) && last->fd == list[i]->fd &&
		    last->process != list[i]->process && compare(search, last, list[i]) == 0)
			continue;
		list[kept++] = list[i];
	}
	return kept;
}

static void merge(struct search *search, const struct scan_reference **from, size_t middle,
		  size_t count, const struct scan_reference **to)
{
	size_t left = 0;
	size_t right = middle;

	for (size_t i = 0; i < count; i++) {
		if (right == count ||
		    (left < middle && compare(search, from[left], from[right]) <= 0))
			to[i] = from[left++];
		else
			to[i] = from[right++];
	}
}

/* The second round, for one device. Neighbours in the order that comes out were compared, so equal ones have met. */
static void sort(struct search *search, const struct scan_reference **list, size_t count,
		 const struct scan_reference **room)
{
	for (size_t width = 1; width < count && !search->stopped; width *= 2) {
		for (size_t at = 0; at < count; at += 2 * width) {
			size_t left = count - at < width ? count - at : width;
			size_t both = count - at < 2 * width ? count - at : 2 * width;

			merge(search, list + at, left, both, room + at);
		}
		memcpy(list, room, count * sizeof(struct scan_reference *));
	}
}

static size_t collect(const struct search *search, const struct scan_reference **list)
{
	const struct scan *scan = search->scan;
	size_t count = 0;

	for (uint32_t i = 0; i < scan->reference_count; i++) {
		const struct scan_reference *reference = &scan->references[i];

		if ((reference->held == SCAN_FD || reference->held == SCAN_FD_OF_THREAD) &&
		    !search->gone[reference->process])
			list[count++] = reference;
	}
	qsort(list, count, sizeof(struct scan_reference *), by_device_and_number);
	return count;
}

static void search_once(struct search *search, const struct scan_reference **list,
			const struct scan_reference **room)
{
	size_t count = drop_equal_neighbours(search, list, collect(search, list));
	size_t end;

	for (size_t at = 0; at < count; at = end) {
		for (end = at + 1; end < count && is_same_device(list[at], list[end]); end++)
			;
		sort(search, list + at, end - at, room);
	}
}

static void separate(const struct search *search)
{
	for (uint32_t i = 0; i < search->scan->process_count; i++)
		search->parent[i] = i;
}

static void search_all(struct search *search, const struct scan_reference **list,
		       const struct scan_reference **room)
{
	for (int i = 0; i < ROUNDS; i++) {
		separate(search);
		search_once(search, list, room);
		if (!find_gone(search))
			return;
	}
	/* They end faster than they can be compared: then nothing is said. */
	separate(search);
	search->incomplete = true;
}

/* Roots become numbers, in their order. */
static void number_groups(const struct scan *scan, uint32_t *parent, struct share *share)
{
	share->group_count = 0;
	for (uint32_t i = 0; i < scan->process_count; i++) {
		uint32_t root = find_root(parent, i);

		share->group[i] = root == i ? share->group_count++ : share->group[root];
	}
}

int share_find(const struct scan *scan, uint64_t deadline_ns, struct share *ret_share,
	       struct gw_error *ret_error)
{
	size_t processes = (size_t)scan->process_count + 1;
	size_t references = (size_t)scan->reference_count + 1;
	struct search search = {.scan = scan,
				.deadline_ns = deadline_ns,
				.parent = calloc(processes, sizeof(uint32_t)),
				.gone = calloc(processes, sizeof(bool))};
	const struct scan_reference **list = calloc(2 * references, sizeof(*list));
	struct share share = {.group = calloc(processes, sizeof(uint32_t))};
	int code = 0;

	/* Numbers of another namespace name nobody to kcmp. */
	search.stopped = search.incomplete = scan->unseen.foreign_proc;
	if (search.parent && search.gone && list && share.group) {
		search_all(&search, list, list + references);
		number_groups(scan, search.parent, &share);
		share.incomplete = search.incomplete;
		*ret_share = share;
	} else {
		share_free(&share);
		code = err_os(ret_error, ENOMEM, "no memory for groups of processes");
	}
	free(search.parent);
	free(search.gone);
	free(list);
	return code;
}

void share_free(struct share *share)
{
	free(share->group);
	*share = (struct share){0};
}

uint32_t share_size(const struct scan *scan, const struct share *share, uint32_t group)
{
	uint32_t size = 0;

	for (uint32_t i = 0; i < scan->process_count; i++)
		size += share->group[i] == group;
	return size;
}
