/* SPDX-License-Identifier: MIT */
/*
 * One fault, followed to its end. Runs in: command line.
 */
#ifndef GPUWARD_CLI_DRILL_RUN_H
#define GPUWARD_CLI_DRILL_RUN_H

#include "cli/drill.h"
#include "cli/drill_child.h"

/* What one run is told of. */
struct drill_run_order {
	int kind;
	enum drill_level level;
	uint64_t state_bytes; /* 0: without state */
};

/* What it found: moments, and not yet times after the launch. */
struct drill_run {
	uint64_t at_ns[DRILL_MARKS];
	struct drill_span stall;
	enum gw_standby standby;
	uint32_t source;
	int32_t cuda;
	uint64_t bad_words;
	bool ok;
};

/* Memory with the stamps. It has no name in any folder, so nothing is left of it if the drill is killed:
 * a worker opens it as a descriptor of this process. */
struct drill_stamp_file {
	char path[256];
	int fd;
	struct drill_stamps *stamps;
};

#define DRILL_STAMP_FILE_NONE ((struct drill_stamp_file){.fd = -1})

int drill_stamps_open(struct drill_stamp_file *file, struct gw_error *ret_error);
void drill_stamps_close(struct drill_stamp_file *file);

/* Submits a bad task with a good one behind it to POOL, and waits until all is as before. Returns 0, also where
 * the recovery failed (run->ok), or the code of what made going on useless. */
int drill_run(struct drill *drill, struct gw_pool *pool, struct drill_child *bystander,
	      const struct drill_stamp_file *file, const struct drill_run_order *order,
	      struct drill_run *ret_run, struct gw_error *ret_error);

/* Fills ROW from COUNT runs, which it does not change. */
void drill_run_summarise(struct drill_row *row, const struct drill_run *runs, uint32_t count);

#endif
