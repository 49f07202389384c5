/* SPDX-License-Identifier: MIT */
/*
 * `gpuward ps`: who holds a GPU, how much of its memory, and what is not known.
 *
 *	ps_options.c	the command line
 *	ps_view.c	one look: scan, amounts, and the two joined
 *	ps_cause.c	why
 *	ps_rows.c	what is shown of it: filters and order
 *	ps_text.c	a row's cells; the only way for other processes' texts to the terminal
 *	ps_print.c, ps_tree.c, ps_json.c
 *
 * Runs in: command line, one thread. Looks only: signals nobody, opens no device file, changes nothing.
 * Invariant: every byte that NVML charges to a process is in exactly one row, before filters.
 * Read next: ../holders/accounting.h.
 */
#ifndef GPUWARD_CLI_PS_H
#define GPUWARD_CLI_PS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/out.h"
#include "holders/accounting.h"
#include "holders/amounts.h"
#include "holders/cause.h"
#include "holders/scan.h"

enum ps_key {
	PS_BY_GPU = 0,
	PS_BY_PID,
	PS_BY_MEMORY,
	PS_BY_USER,
	PS_BY_AGE,
	PS_BY_COMMAND,
};

struct ps_options {
	bool help;
	bool json;
	bool tree;
	int period_ms; /* --watch; 0: once */
	uint64_t deadline_ns;
	enum ps_key key;
	bool reverse;
	/* Filters: all that are given must fit. */
	const char *gpu; /* NULL: all */
	int32_t uid;	 /* -1: all */
	int32_t pid;	 /* 0: all */
	const char *job;
	const char *container;
	enum cause cause; /* CAUSE_NONE: all */
	bool unattributed;
};

/* Parses. Returns an exit code: CLI_OK, or CLI_USAGE and CLI_FAILED with a line on standard error. */
int ps_parse(int argc, char **argv, struct ps_options *ret_options);
void ps_help(void);

/* One look. */
struct ps_view {
	struct scan scan;
	struct amounts amounts;
	struct accounting accounting;
	struct verdicts verdicts;
};

/* Takes it, within DEADLINE_NS and half a second. Returns 0 and *RET_VIEW, for ps_view_done(); or why not. */
int ps_view_take(struct accounting_probe *probe, uint64_t deadline_ns, struct ps_view *ret_view,
		 struct gw_error *ret_error);
void ps_view_done(struct ps_view *view);

/* Its last step: fills view->verdicts. Returns 0 or -ENOMEM. */
int ps_find_causes(struct ps_view *view, struct gw_error *ret_error);

/* A GPU as the user names it. */
struct ps_gpu {
	uint32_t gpu;  /* into amounts.gpus; ACCOUNT_NONE where NVML did not tell */
	int32_t minor; /* -1 unknown */
};

/* "0", "nvidia0", "GPU-...": a number is NVML's where NVML answers, else that of the device file. Returns false where
 * there is none. */
bool ps_find_gpu(const struct ps_view *view, const char *name, struct ps_gpu *ret_gpu);

/* Whether PROCESS has the GPU's own device file; *RET_ANY whether it has one of any GPU. */
bool ps_holds_gpu(const struct ps_view *view, uint32_t process, const struct ps_gpu *gpu,
		  bool *ret_any);

/* A holder on one GPU; or a pid that NVML names and that is no holder. */
struct ps_row {
	uint32_t gpu;	  /* into amounts.gpus; ACCOUNT_NONE: it is charged for nothing */
	uint32_t process; /* into scan.processes; ACCOUNT_NONE */
	uint32_t line;	  /* into accounting.lines, which it comes from; ACCOUNT_NONE */
	uint64_t bytes;	  /* GW_UNKNOWN */
	bool shared;	  /* it holds the same as another row of its group, which has the bytes */
};

struct ps_rows {
	struct ps_row *all;
	size_t count;
};

/* Makes the rows. Returns 0 and *RET_ROWS, whose array is the caller's; -ENOENT no such GPU; -ENOMEM. */
int ps_rows_make(const struct ps_view *view, const struct ps_options *options,
		 struct ps_rows *ret_rows, struct gw_error *ret_error);

/* Cells. TEXT has room for OUT_CELL_MAX bytes; "-" for what is not known. All of them are fit for a terminal. */
void ps_text_gpu(const struct ps_view *view, const struct ps_row *row, char *text);
void ps_text_pid(const struct ps_view *view, const struct ps_row *row, char *text);
void ps_text_tid(const struct ps_view *view, const struct ps_row *row, char *text);
void ps_text_memory(const struct ps_row *row, char *text);
void ps_text_user(int32_t uid, char *text);
void ps_text_place(const struct ps_view *view, const struct ps_row *row, char *text);
void ps_text_age(const struct ps_view *view, const struct ps_row *row, char *text);
void ps_text_state(const struct ps_view *view, const struct ps_row *row, char *text);
void ps_text_command(const struct ps_view *view, const struct ps_row *row, char *text);

/* Whose row it is; -1 unknown. */
int32_t ps_uid(const struct ps_view *view, const struct ps_row *row);
/* When it began, in scan ticks; GW_UNKNOWN. */
uint64_t ps_start(const struct ps_view *view, const struct ps_row *row);
/* The user NAME by /etc/passwd alone: a directory service may hang. Returns -1 where it is not there. */
int32_t ps_find_user(const char *name);

/* The cause that says most about a row; NULL. And whether VERDICT is about it. */
const struct verdict *ps_verdict(const struct ps_view *view, const struct ps_row *row);
bool ps_is_about(const struct ps_view *view, const struct ps_row *row,
		 const struct verdict *verdict);
void ps_text_cause(const struct ps_view *view, const struct ps_row *row, char *text);
/* Whether VERDICT is about GPU (into amounts.gpus) as a whole. */
bool ps_is_about_gpu(const struct verdict *verdict, uint32_t gpu);
/* Those, a line each, if it is not normal. */
void ps_print_gpu_causes(const struct ps_view *view, uint32_t gpu);

/* For JSON: "holder", "shared", "dead" ... */
const char *ps_owner_id(enum account_owner owner);

void ps_print_table(const struct ps_view *view, const struct ps_rows *rows);
void ps_print_tree(const struct ps_view *view, const struct ps_rows *rows);
/* What stands below both: memory of each GPU, and what is not known. GPU NULL: of all. */
void ps_print_sums(const struct ps_view *view, const struct ps_gpu *gpu);

bool ps_has_json(void);
/* The schema stands in gpuward-ps(1). Returns 0 or -ENOMEM. */
int ps_json(const struct ps_view *view, const struct ps_rows *rows, bool compact);

#endif
