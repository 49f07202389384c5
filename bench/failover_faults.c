/* SPDX-License-Identifier: MIT */
/*
 * Sections "faults" and "sources": from the launch of each kind of fault to each step of the recovery, at each
 * level, beside what a bystander feels.
 *
 *	launched ── first source spoke ── fenced ── successor ready ── its first kernel done
 *	                                       └───────────── old process gone
 *
 * Runs in: the host. All levels take turns in blocks: a pool is opened for a level, each kind is caused some times,
 * and it is closed, since every context on the GPU makes a fault last longer for all. The bare process is a
 * program that leaves when CUDA reports the error, and is started again by fork and exec.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "failover.h"

#define ROUNDS_OF_BLOCK 5U
/* After a process has gone, an event can still be its own for a second: attribution.h of the ward. */
#define APART_NS       (1100 * MS)
#define ALL_DETECTION  0U
#define GOAL_MS	       10.0
#define GOAL_BEYOND_MS 3.0
#define EVERY_KIND     ((1U << KINDS) - 1)
#define EXCEPTIONS     (1U << KIND_TRAP | 1U << KIND_ASSERT)
#define GPU_KINDS      ((1U << KINDS_OF_GPU) - 1)

enum column {
	COLUMN_SPOKE,
	COLUMN_FENCED,
	COLUMN_READY,
	COLUMN_GOOD,
	COLUMN_GONE,
	COLUMN_STALL,
	COLUMN_BEYOND,
};

/* A way to recover, and its rows. */
struct level {
	const char *name;
	bool bare;
	bool alone; /* no bystander */
	bool apart; /* one fault in APART_NS, and one round in a block */
	uint32_t standby;
	uint32_t connections;
	uint32_t detect;
	uint32_t kinds; /* bits */
	struct row *rows[KINDS];
	uint32_t spoke[KINDS][GW_SOURCES]; /* how often each source was first */
	uint32_t others[KINDS];		   /* recoveries that were not at this level: left out */
};

static struct level levels[] = {
	{.name = "bare", .bare = true, .kinds = EVERY_KIND},
	{.name = "cold", .standby = GW_STANDBY_COLD, .kinds = EVERY_KIND},
	{.name = "primed", .standby = GW_STANDBY_PRIMED, .kinds = EVERY_KIND},
	{.name = "hot", .standby = GW_STANDBY_HOT, .kinds = EVERY_KIND},
	{.name = "hot, 1 connection",
	 .standby = GW_STANDBY_HOT,
	 .connections = 1,
	 .kinds = EVERY_KIND},
	{.name = "hot, 1 connection, no bystander",
	 .standby = GW_STANDBY_HOT,
	 .connections = 1,
	 .alone = true,
	 .kinds = EXCEPTIONS},
};

/* NVML tells only where no other program is on the GPU. */
static struct level sources[] = {
	{.name = "kernel log",
	 .standby = GW_STANDBY_HOT,
	 .detect = GW_DETECT_KERNEL_LOG,
	 .kinds = GPU_KINDS},
	{.name = "NVML, no bystander",
	 .standby = GW_STANDBY_HOT,
	 .detect = GW_DETECT_NVML,
	 .alone = true,
	 .apart = true,
	 .kinds = GPU_KINDS},
	{.name = "error log",
	 .standby = GW_STANDBY_HOT,
	 .detect = GW_DETECT_ERROR_LOG,
	 .kinds = GPU_KINDS},
	{.name = "result only",
	 .standby = GW_STANDBY_HOT,
	 .detect = GW_DETECT_RESULT_ONLY,
	 .kinds = GPU_KINDS},
};

#define N_LEVELS  (sizeof(levels) / sizeof(levels[0]))
#define N_SOURCES (sizeof(sources) / sizeof(sources[0]))
#define COLUMNS                                                                                    \
	"first source spoke", "fenced", "successor ready", "its first kernel done", "old gone",    \
		"bystander's longest gap", "kernel done, after it"

static struct section faults_section = {
	.name = "Fault launched to ...", .unit = "ms", .columns = {COLUMNS, NULL}};
static struct section sources_section = {
	.name = "Hot, each source alone", .unit = "ms", .columns = {COLUMNS, NULL}};

static void make_rows(struct section *section, struct level *list, size_t n)
{
	rows_add_section(section);
	for (size_t i = 0; i < n; i++) {
		for (uint32_t k = 0; k < KINDS; k++) {
			if (list[i].kinds & 1U << k)
				list[i].rows[k] =
					rows_add(section, "%s: %s", list[i].name, kind_names[k]);
		}
	}
}

static void add(struct row *row, enum column column, uint64_t launched_ns, uint64_t time_ns)
{
	if (is_known(time_ns))
		series_add(&row->columns[column], ms_since(launched_ns, time_ns));
}

static void add_stall(struct level *level, uint32_t kind, struct bystander *bystander)
{
	struct series *columns = level->rows[kind]->columns;
	uint64_t good_ns = atomic_load(&page->good_ns);
	struct gap gap;

	if (level->alone)
		return;
	gap = bystander_longest_gap(bystander, atomic_load(&page->launched_ns), good_ns);
	series_add(&columns[COLUMN_STALL], ms_since(gap.from_ns, gap.to_ns));
	if (gap.to_ns > 0)
		series_add(&columns[COLUMN_BEYOND], ms_since(gap.to_ns, good_ns));
}

/* ---- through a pool ---- */

static const char *const source_names[GW_SOURCES] = {
	"unknown",    "result", "death",    "deadline",	 "request",
	"kernel log", "NVML",	"protocol", "error log", "heartbeat",
};

/* Hot, an exception of a kernel is to be over soon, and a fault of memory when the GPU serves others again. */
static const char *goal_of(const struct level *level, uint32_t kind)
{
	struct row *row = level->rows[kind];
	bool exception = (EXCEPTIONS & 1U << kind) != 0;
	struct series *series = &row->columns[exception ? COLUMN_GOOD : COLUMN_BEYOND];

	if (level->standby != GW_STANDBY_HOT || kind >= KINDS_OF_GPU || series->n == 0)
		return "";
	if (exception)
		return series_median(series) <= GOAL_MS ? "; 10 ms: met" : "; 10 ms: missed";
	return series_median(series) <= GOAL_BEYOND_MS ? "; 3 ms after the gap: met"
						       : "; 3 ms after the gap: missed";
}

static void write_note(struct level *level, uint32_t kind)
{
	struct row *row = level->rows[kind];
	size_t used = 0;

	row->note[0] = '\0';
	for (uint32_t s = 0; s < GW_SOURCES && used < sizeof(row->note) - 32; s++) {
		if (level->spoke[kind][s] > 0)
			used += (size_t)snprintf(
				row->note + used, sizeof(row->note) - used, "%s%s %u",
				used ? ", " : "first: ", source_names[s], level->spoke[kind][s]);
	}
	if (level->others[kind] > 0 && used < sizeof(row->note) - 64)
		used += (size_t)snprintf(row->note + used, sizeof(row->note) - used,
					 "; %u at another level", level->others[kind]);
	(void)snprintf(row->note + used, sizeof(row->note) - used, "%s", goal_of(level, kind));
}

/* The time itself is what is waited for. */
static void stay_apart(struct gw_pool *pool)
{
	struct gw_pool_stat stat = stat_of(pool);
	uint64_t gone_ns, now_ns = bench_now_ns();

	if (stat.recoveries == 0)
		return;
	gone_ns = wait_recovery(pool, stat.recoveries - 1).exit.gone_ns;
	if (gone_ns + APART_NS > now_ns)
		(void)poll(NULL, 0, (int)((gone_ns + APART_NS - now_ns) / MS) + 1);
}

static void measure_one(struct level *level, uint32_t kind, struct gw_pool *pool,
			struct bystander *bystander)
{
	const struct fault_job job = {.kind = kind};
	struct row *row = level->rows[kind];
	struct gw_recovery recovery;
	uint64_t launched_ns;

	wait_settled(pool, level->standby);
	if (level->apart)
		stay_apart(pool);
	recovery = fault_once(pool, &job);
	launched_ns = atomic_load(&page->launched_ns);
	if (recovery.standby != level->standby) {
		level->others[kind]++;
	} else {
		uint32_t source = recovery.exit.source < GW_SOURCES ? recovery.exit.source : 0;

		level->spoke[kind][source]++;
		add(row, COLUMN_SPOKE, launched_ns, recovery.spoke_ns[source]);
		add(row, COLUMN_FENCED, launched_ns, recovery.fenced_ns);
		add(row, COLUMN_READY, launched_ns, recovery.ready_ns);
		add(row, COLUMN_GOOD, launched_ns, atomic_load(&page->good_ns));
		add(row, COLUMN_GONE, launched_ns, recovery.exit.gone_ns);
		add_stall(level, kind, bystander);
	}
	write_note(level, kind);
}

static void measure_pool(struct level *level, uint64_t rounds, uint64_t deadline_ns,
			 struct bystander *bystander)
{
	const struct fault_job good = {.kind = KIND_NONE};
	struct gw_pool *pool =
		open_failover_pool(level->standby, level->connections, level->detect);

	if (level->apart)
		rounds = 1;
	end_task(start_task(pool, "fault", &good, sizeof(good), 0), "a good task", NULL, 0);
	for (uint64_t r = 0; r < rounds && bench_now_ns() < deadline_ns; r++) {
		for (uint32_t k = 0; k < KINDS; k++) {
			if (level->kinds & 1U << k)
				measure_one(level, k, pool, bystander);
		}
	}
	gw_pool_close(pool);
}

/* ---- a bare process ---- */

struct bare {
	pid_t pid;
	int socket;
};

static void wait_for_bare(const struct bare *bare)
{
	struct pollfd fd = {.fd = bare->socket, .events = POLLIN};
	uint8_t byte;

	if (poll(&fd, 1, (int)(WAIT_NS / MS)) != 1 || read(bare->socket, &byte, 1) != 1)
		bench_die("a bare process does not come up: result %d",
			  atomic_load(&page->failure));
}

static void bare_start(struct bare *bare)
{
	char device[16], socket[16];
	pid_t host = getpid();
	int ends[2];

	(void)bench_os(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), "socketpair");
	bare->pid = bench_os(fork(), "fork");
	if (bare->pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != host)
			_exit(0);
		(void)close(ends[0]);
		(void)snprintf(device, sizeof(device), "%" PRIu64, failover.device);
		(void)snprintf(socket, sizeof(socket), "%d", ends[1]);
		(void)execl("/proc/self/exe", "failover", "--bare", device, socket, (char *)NULL);
		_exit(127);
	}
	(void)close(ends[1]);
	bare->socket = ends[0];
}

static void bare_reap(struct bare *bare)
{
	int status;

	while (waitpid(bare->pid, &status, 0) < 0 && errno == EINTR)
		;
	(void)close(bare->socket);
}

static void measure_bare(struct level *level, uint64_t rounds, uint64_t deadline_ns,
			 struct bystander *bystander)
{
	struct bare bare;

	bare_start(&bare);
	wait_for_bare(&bare);
	for (uint64_t i = 0; i < rounds * KINDS && bench_now_ns() < deadline_ns; i++) {
		uint8_t kind = (uint8_t)(i % KINDS);
		struct row *row = level->rows[kind];
		uint64_t launched_ns, gone_ns;

		atomic_store(&page->reported_ns, 0);
		if (write(bare.socket, &kind, 1) != 1)
			bench_die("a bare process does not take its fault");
		bare_reap(&bare);
		gone_ns = bench_now_ns();
		bare_start(&bare);
		wait_for_bare(&bare);
		launched_ns = atomic_load(&page->launched_ns);
		add(row, COLUMN_SPOKE, launched_ns, atomic_load(&page->reported_ns));
		add(row, COLUMN_GOOD, launched_ns, atomic_load(&page->good_ns));
		add(row, COLUMN_GONE, launched_ns, gone_ns);
		add_stall(level, kind, bystander);
	}
	(void)kill(bare.pid, SIGKILL);
	bare_reap(&bare);
	if (atomic_load(&page->failure))
		bench_die("a bare process got result %d", atomic_load(&page->failure));
}

/* ---- all ---- */

static void measure_level(struct level *level, uint64_t rounds, uint64_t deadline_ns)
{
	struct bystander bystander = {.seen = atomic_load(&page->n_gaps)};

	if (!level->alone)
		bystander_start(&bystander, level->connections);
	if (level->bare)
		measure_bare(level, rounds, deadline_ns, &bystander);
	else
		measure_pool(level, rounds, deadline_ns, &bystander);
	bystander_end(&bystander);
	save();
}

static void measure_blocks(struct level *list, size_t n, uint64_t deadline_ns)
{
	for (uint64_t done = 0; done < failover.repeat && bench_now_ns() < deadline_ns;
	     done += ROUNDS_OF_BLOCK) {
		uint64_t rounds = failover.repeat - done < ROUNDS_OF_BLOCK ? failover.repeat - done
									   : ROUNDS_OF_BLOCK;

		for (size_t i = 0; i < n; i++) {
			measure_level(&list[i], rounds, deadline_ns);
			say("%s: %" PRIu64 " of %" PRIu64 " rounds", list[i].name, done + rounds,
			    failover.repeat);
		}
	}
}

void measure_faults(uint64_t deadline_ns)
{
	make_rows(&faults_section, levels, N_LEVELS);
	measure_blocks(levels, N_LEVELS, deadline_ns);
}

void measure_sources(uint64_t deadline_ns)
{
	make_rows(&sources_section, sources, N_SOURCES);
	measure_blocks(sources, N_SOURCES, deadline_ns);
}
