/* SPDX-License-Identifier: MIT */
/*
 * A link: the channel of one incarnation of a worker, as the host maps it.
 *
 * Runs in: host, under the pool's lock. It is counted, since outputs that lie in it are valid until
 * their tasks are freed, which can be long after the worker is gone.
 */
#include "lib/pool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/fd.h"

/* Marks the names that a worker offers or that a task was made for. */
static void mark_used(const struct gw_pool *pool, bool used[POOL_NAMES_MAX])
{
	const struct list_node *node = pool->live.head.next;

	for (uint32_t i = 0; i < pool->n_slots; i++) {
		const struct link *link = pool->slots[i].link;

		for (uint32_t n = 0; link && n < POOL_NAMES_MAX; n++)
			used[n] |= link->function_of_name[n] >= 0;
	}
	for (; node != &pool->live.head; node = node->next)
		used[list_item(node, struct gw_task, live)->name] = true;
}

static int find_name(const struct gw_pool *pool, const char *name)
{
	for (uint32_t i = 0; i < pool->n_names; i++) {
		if (strcmp(pool->names[i], name) == 0)
			return (int)i;
	}
	return -1;
}

/* A place for a new name: behind the others, or where one lies that is not used. */
static int find_place(const struct gw_pool *pool, const bool used[POOL_NAMES_MAX])
{
	if (pool->n_names < POOL_NAMES_MAX)
		return (int)pool->n_names;
	for (uint32_t i = 0; i < POOL_NAMES_MAX; i++) {
		if (!used[i])
			return (int)i;
	}
	return -1;
}

/* The pool's number of NAME, added if it is new; -1 when there are too many names in use. */
static int intern_name(struct gw_pool *pool, const bool used[POOL_NAMES_MAX], const char *name)
{
	int place = find_name(pool, name);

	if (place >= 0)
		return place;
	place = find_place(pool, used);
	if (place < 0)
		return -1;
	memcpy(pool->names[place], name, strlen(name) + 1);
	if ((uint32_t)place == pool->n_names)
		pool->n_names++;
	return place;
}

/* A worker that announces new names at every start must not fill the table for the others: names that
 * nobody uses any more make room. */
static void map_names(struct gw_pool *pool, struct link *link, const struct wire_up *up)
{
	bool used[POOL_NAMES_MAX] = {false};

	if (pool->n_names + up->n_functions > POOL_NAMES_MAX)
		mark_used(pool, used);
	for (uint32_t i = 0; i < POOL_NAMES_MAX; i++)
		link->function_of_name[i] = -1;
	for (uint32_t i = 0; i < up->n_functions; i++) {
		int name = find_name(pool, up->functions[i]);

		if (name >= 0)
			used[name] = true;
	}
	for (uint32_t i = 0; i < up->n_functions; i++) {
		int name = intern_name(pool, used, up->functions[i]);

		if (name < 0)
			continue;
		used[name] = true;
		link->function_of_name[name] = (int16_t)i;
	}
}

int link_new_take(struct gw_pool *pool, int channel_fd, int event_fd, const struct wire_up *up,
		  struct link **ret_link)
{
	struct link *link = calloc(1, sizeof(*link));
	int result;

	if (!link)
		return -ENOMEM;
	result = channel_map(&link->map, channel_fd, up->output_bytes);
	if (result < 0) {
		free(link);
		return result;
	}
	(void)madvise(link->map.shared, link->map.bytes, MADV_DONTDUMP);
	arena_init(&link->outputs, link->map.output_bytes);
	link->references = 1;
	link->event_fd = event_fd;
	map_names(pool, link, up);
	*ret_link = link;
	return 0;
}

void link_release(struct link *link)
{
	if (!link || --link->references > 0)
		return;
	arena_done(&link->outputs);
	channel_unmap(&link->map);
	fd_close(link->event_fd);
	free(link);
}
