/* SPDX-License-Identifier: BSD-2-Clause */
/* An intrusive, circular, doubly linked list; a node that is in no list points to itself. */
#ifndef UVHOST_BASE_LIST_H
#define UVHOST_BASE_LIST_H

#include <stdbool.h>

#include "base/util.h"

struct list {
	struct list *next, *prev;
};

static inline void list_init(struct list *l)
{
	l->next = l->prev = l;
}

static inline bool list_empty(const struct list *l)
{
	return l->next == l;
}

static inline void list_add_tail(struct list *head, struct list *node)
{
	node->prev = head->prev;
	node->next = head;
	head->prev->next = node;
	head->prev = node;
}

static inline void list_add_head(struct list *head, struct list *node)
{
	list_add_tail(head->next, node);
}

/* Harmless on a node that is in no list. */
static inline void list_del(struct list *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
	list_init(node);
}

#define list_entry(node, type, member) container_of(node, type, member)

/* The first entry, or NULL. */
#define list_first(head, type, member) \
	(list_empty(head) ? NULL : list_entry((head)->next, type, member))

/* Safe against removal of the current entry; @n is the cursor that runs ahead. */
#define list_for_each(it, n, head)                                                 \
	for (struct list * (it) = (head)->next, *(n) = (it)->next; (it) != (head); \
	     (it) = (n), (n) = (it)->next)

#endif
