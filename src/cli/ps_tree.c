/* SPDX-License-Identifier: MIT */
/*
 * Who shares open files with whom, as a tree: a dead creator, or the first of the living, and below it those that hold
 * the same open files, child below parent.
 *
 * Runs in: command line. Parents come from a snapshot in which a number may have passed on, so they could form a
 * ring: each process is printed once, and what no root leads to is a root itself. Read next: ps.h.
 */
#include "cli/ps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bytes.h"
#include "holders/text.h"

#define PREFIX_MAX 160

struct tree {
	const struct ps_view *view;
	bool *shown;   /* of scan.processes: there is a row for it */
	bool *printed; /* of scan.processes */
	bool utf8;
};

static const char *branch(const struct tree *tree, bool last)
{
	if (tree->utf8)
		return last ? "└─ " : "├─ ";
	return last ? "`- " : "|- ";
}

static const char *trunk(const struct tree *tree, bool last)
{
	if (last)
		return "   ";
	return tree->utf8 ? "│  " : "|  ";
}

static uint32_t group_of(const struct tree *tree, uint32_t process)
{
	return tree->view->accounting.share.group[process];
}

/* Is CHILD's parent PARENT, and both of one group? */
static bool is_child(const struct tree *tree, uint32_t child, uint32_t parent)
{
	const struct scan_process *processes = tree->view->scan.processes;

	return child != parent && group_of(tree, child) == group_of(tree, parent) &&
	       processes[child].ppid == processes[parent].pid;
}

static bool is_root(const struct tree *tree, uint32_t process)
{
	for (uint32_t i = 0; i < tree->view->scan.process_count; i++) {
		if (tree->shown[i] && is_child(tree, process, i))
			return false;
	}
	return true;
}

static void print_parent(const struct tree *tree, int32_t ppid)
{
	const struct scan_relative *relative = scan_find_relative(&tree->view->scan, ppid);
	const struct scan_process *holder = scan_find(&tree->view->scan, ppid);
	const char *comm = relative ? relative->comm : holder ? holder->comm : NULL;
	char name[64] = "";

	if (comm)
		(void)text_printable(name, sizeof(name), comm, strnlen(comm, 16));
	if (ppid > 0)
		(void)printf("  (parent %d%s%s)", ppid, name[0] ? " " : "", name);
}

static void print_process(const struct tree *tree, uint32_t process, bool with_parent)
{
	const struct scan_process *entry = &tree->view->scan.processes[process];
	struct ps_row row = {
		.gpu = ACCOUNT_NONE,
		.process = process,
		.line = ACCOUNT_NONE,
		.bytes = accounting_process_bytes(&tree->view->accounting, ACCOUNT_NONE, process)};
	char user[OUT_CELL_MAX], memory[OUT_CELL_MAX], state[OUT_CELL_MAX], command[OUT_CELL_MAX];

	ps_text_user(entry->uid, user);
	ps_text_memory(&row, memory);
	ps_text_state(tree->view, &row, state);
	ps_text_command(tree->view, &row, command);
	(void)printf("%d  %s  %s  %s  %s", entry->pid, memory, user, state, command);
	if (with_parent)
		print_parent(tree, entry->ppid);
	(void)putchar('\n');
}

/* The next child of PARENT that is not printed, from FROM on; ACCOUNT_NONE. */
static uint32_t next_child(const struct tree *tree, uint32_t parent, uint32_t from)
{
	for (uint32_t i = from; i < tree->view->scan.process_count; i++) {
		if (tree->shown[i] && !tree->printed[i] && is_child(tree, i, parent))
			return i;
	}
	return ACCOUNT_NONE;
}

/* PREFIX stands before the lines below this one; it stops growing where it would not fit. */
static void print_below(struct tree *tree, uint32_t parent, const char *prefix)
{
	uint32_t child = next_child(tree, parent, 0);

	while (child != ACCOUNT_NONE) {
		uint32_t next = next_child(tree, parent, child + 1);
		char longer[PREFIX_MAX];

		tree->printed[child] = true;
		(void)printf("%s%s", prefix, branch(tree, next == ACCOUNT_NONE));
		print_process(tree, child, false);
		(void)snprintf(longer, sizeof(longer), "%s%s", prefix,
			       strlen(prefix) + 8 < sizeof(longer)
				       ? trunk(tree, next == ACCOUNT_NONE)
				       : "");
		print_below(tree, child, longer);
		child = next;
	}
}

/* The dead that have left memory to GROUP. Returns how many lines were printed. */
static uint32_t print_dead(const struct tree *tree, uint32_t group)
{
	const struct accounting *accounting = &tree->view->accounting;
	uint32_t count = 0;

	for (uint32_t i = 0; i < accounting->line_count; i++) {
		const struct account_line *line = &accounting->lines[i];
		char bytes[BYTES_TEXT_MAX];

		if (line->owner != ACCOUNT_SHARED || line->group != group)
			continue;
		bytes_format(line->used_bytes, bytes);
		(void)printf("%d  %s on GPU %u  (dead: it made the open files that these hold)\n",
			     line->pid, bytes, tree->view->amounts.gpus[line->gpu].index);
		count++;
	}
	return count;
}

/* The next of GROUP that has no parent in it; then, for a ring, any that is left. */
static uint32_t next_root(const struct tree *tree, uint32_t group, bool any)
{
	for (uint32_t i = 0; i < tree->view->scan.process_count; i++) {
		if (tree->shown[i] && !tree->printed[i] && group_of(tree, i) == group &&
		    (any || is_root(tree, i)))
			return i;
	}
	return ACCOUNT_NONE;
}

/* A line that stands above several roots, so that it is seen that they belong together. */
static bool print_head(const struct tree *tree, uint32_t group)
{
	uint32_t roots = 0;

	if (print_dead(tree, group) > 0)
		return true;
	for (uint32_t i = 0; i < tree->view->scan.process_count; i++)
		roots += tree->shown[i] && group_of(tree, i) == group && is_root(tree, i);
	if (roots > 1)
		(void)puts("(these share open files; who made them is not known)");
	return roots > 1;
}

static void print_group(struct tree *tree, uint32_t group)
{
	bool head = print_head(tree, group);
	uint32_t root = next_root(tree, group, false);

	while (root != ACCOUNT_NONE || (root = next_root(tree, group, true)) != ACCOUNT_NONE) {
		uint32_t next;

		tree->printed[root] = true;
		next = next_root(tree, group, false);
		if (head)
			(void)fputs(branch(tree, next == ACCOUNT_NONE), stdout);
		print_process(tree, root, true);
		print_below(tree, root, head ? trunk(tree, next == ACCOUNT_NONE) : "");
		root = next;
	}
}

static void print_lines(const struct ps_view *view, const struct ps_rows *rows)
{
	for (size_t i = 0; i < rows->count; i++) {
		const struct ps_row *row = &rows->all[i];
		char memory[OUT_CELL_MAX], command[OUT_CELL_MAX];

		if (row->process != ACCOUNT_NONE)
			continue;
		ps_text_memory(row, memory);
		ps_text_command(view, row, command);
		(void)printf("%d  %s  %s\n", view->accounting.lines[row->line].pid, memory,
			     command);
	}
}

void ps_print_tree(const struct ps_view *view, const struct ps_rows *rows)
{
	size_t count = (size_t)view->scan.process_count + 1;
	bool *flags = calloc(2 * count, sizeof(*flags));
	struct tree tree = {view, flags, flags ? flags + count : NULL, out_has_utf8()};

	if (!flags) {
		(void)fputs("gpuward ps: no memory for a tree\n", stderr);
		return;
	}
	for (size_t i = 0; i < rows->count; i++) {
		if (rows->all[i].process != ACCOUNT_NONE)
			tree.shown[rows->all[i].process] = true;
	}
	for (size_t i = 0; i < rows->count; i++) {
		if (rows->all[i].process != ACCOUNT_NONE && !tree.printed[rows->all[i].process])
			print_group(&tree, group_of(&tree, rows->all[i].process));
	}
	print_lines(view, rows);
	if (rows->count == 0)
		(void)puts("no holder");
	free(flags);
}
