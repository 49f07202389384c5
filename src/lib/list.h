/* SPDX-License-Identifier: MIT */
/*
 * A doubly linked list whose nodes lie inside the things that it lists. A node that is in no list has
 * a NULL next. Runs in: host, under the pool's lock.
 */
#ifndef GPUWARD_LIB_LIST_H
#define GPUWARD_LIB_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list_node {
	struct list_node *next;
	struct list_node *previous;
};

struct list {
	struct list_node head;
};

#define list_item(node, type, member) ((type *)(void *)((char *)(node)-offsetof(type, member)))

static inline void list_init(struct list *list)
{
	list->head.next = &list->head;
	list->head.previous = &list->head;
}

static inline bool list_is_empty(const struct list *list)
{
	return list->head.next == &list->head;
}

static inline bool list_has(const struct list_node *node)
{
	return node->next != NULL;
}

static inline void list_insert_after(struct list_node *place, struct list_node *node)
{
	node->next = place->next;
	node->previous = place;
	place->next->previous = node;
	place->next = node;
}

static inline void list_push_back(struct list *list, struct list_node *node)
{
	list_insert_after(list->head.previous, node);
}

static inline void list_push_front(struct list *list, struct list_node *node)
{
	list_insert_after(&list->head, node);
}

static inline void list_remove(struct list_node *node)
{
	if (!node->next)
		return;
	node->previous->next = node->next;
	node->next->previous = node->previous;
	node->next = NULL;
	node->previous = NULL;
}

/* The first node, or NULL. */
static inline struct list_node *list_first(const struct list *list)
{
	return list_is_empty(list) ? NULL : list->head.next;
}

#endif
