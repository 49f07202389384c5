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

/* The pool's number of NAME, added if it is new; -1 when there are too many names. */
static int intern_name(struct gw_pool *pool, const char *name)
{
	for (uint32_t i = 0; i < pool->n_names; i++) {
		if (strcmp(pool->names[i], name) == 0)
			return (int)i;
	}
	if (pool->n_names == POOL_NAMES_MAX)
		return -1;
	memcpy(pool->names[pool->n_names], name, strlen(name) + 1);
	return (int)pool->n_names++;
}

static void map_names(struct gw_pool *pool, struct link *link, const struct wire_up *up)
{
	for (uint32_t i = 0; i < POOL_NAMES_MAX; i++)
		link->function_of_name[i] = -1;
	for (uint32_t i = 0; i < up->n_functions; i++) {
		int name = intern_name(pool, up->functions[i]);

		if (name >= 0)
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
