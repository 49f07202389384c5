/* SPDX-License-Identifier: MIT */
/*
 * gpuward pools: what all pools of this machine are doing, as far as this user may look.
 *
 * Runs in: command line. Nobody is asked: a ward is found in /proc, and the page that it shares with its host
 * among its descriptors. So a pool is seen although its ward or host is stopped, and nothing of it changes.
 *
 *	pools_find.c    wards in /proc, and their pages
 *	pools_read.c    what a page says, checked
 *	pools_print.c   tables and words; pools_json.c the same for programs
 *	pools.c         options, --watch
 *
 * Trust: any process may call itself a ward, and a page is data of another process, perhaps of another user. It
 * can say what it likes about itself; it cannot crash, hold up or mislead the tool about anything else.
 */
#ifndef GPUWARD_CLI_POOLS_H
#define GPUWARD_CLI_POOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gpuward.h>

#include "common/pool_page.h"

#define POOLS_PROBLEM_MAX 160
#define POOLS_PROGRAM_MAX 64

/* What was seen of one pool. Texts are printable ASCII; what is not known is -1 or GW_UNKNOWN. */
struct pool_view {
	int32_t ward_pid;
	uint32_t uid; /* of the ward */
	bool stopped; /* the ward is */
	int32_t host_pid;
	char program[POOLS_PROGRAM_MAX]; /* the host's; "" not known */
	char problem[POOLS_PROBLEM_MAX]; /* not "": why nothing more is known */
	struct pool_page_host host;	 /* last_exit.end GW_END_UNKNOWN: none */
	struct pool_page_report report;
	uint32_t state_pieces;
	uint64_t state_bytes;
	uint32_t state_kept; /* enum state_page_kept */
};

struct pools {
	struct pool_view *all;
	size_t count;
	size_t unreadable; /* wards of others, which this user may not look at */
};

/* Fills RET_POOLS, in the order of pids. Returns 0, -ENOMEM, or why /proc cannot be read. */
int pools_find(struct pools *ret_pools, struct gw_error *ret_error);
void pools_done(struct pools *pools);

/*
 * Reads what PAGE (BYTES bytes, which nobody can take away) says into *VIEW, whose host, report and so on are
 * filled if nothing is wrong; `problem` else.
 */
void pools_read(const struct pool_page *page, uint64_t bytes, struct pool_view *view);

/* The time from the first sign of the fault, and from the fence, until RECOVERY's successor could take tasks;
 * GW_UNKNOWN where that is not known. */
uint64_t pools_sign_to_ready(const struct gw_recovery *recovery);
uint64_t pools_fence_to_ready(const struct gw_recovery *recovery);

/* How many recoveries of VIEW are kept; number I of them, 0 is the last, or NULL: it is not kept after all. */
size_t pools_kept(const struct pool_view *view);
const struct gw_recovery *pools_recovery(const struct pool_view *view, size_t i);

void pools_print(const struct pools *pools);

/* False in a build without jansson. */
bool pools_has_json(void);
/* One object, on one line if COMPACT. Returns 0 or -ENOMEM. */
int pools_json(const struct pools *pools, bool compact);

#endif
