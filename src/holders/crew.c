/* SPDX-License-Identifier: MIT */
#include "holders/crew.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/err.h"
#include "common/fd.h"
#include "holders/folder.h"

#define THREADS_MAX 16U
#define MEMBERS_MAX 64U /* with those that replace stuck ones */
#define STACK_BYTES (256U << 10)
#define CHECK_NS    20000000ULL	  /* how often stuck ones are looked for */
#define REPLACE_NS  100000000ULL  /* no step for so long: somebody else goes on beside it */
#define STUCK_NS    1000000000ULL /* blocked and no step for so long: nobody waits for it any more */

struct member {
	struct crew *crew;
	struct look look;
	_Atomic uint64_t beat_ns;
	int32_t tid;   /* its own; 0 before it runs */
	int32_t pid;   /* at which it looks; -1 none */
	bool replaced; /* another one was started for it */
};

struct crew {
	struct crew_plan plan;
	pthread_mutex_t lock; /* guards all that follows */
	pthread_cond_t moved; /* a member has ended */
	uint32_t next;	      /* of plan.pids */
	uint32_t references;  /* those who still use the crew: its members and scan_run() */
	uint32_t member_count;
	struct member *members[MEMBERS_MAX];
	bool closed;
	struct crew_result result;
};

static void destroy(struct crew *crew)
{
	fd_close(crew->plan.proc);
	free(crew->plan.devices);
	free(crew->plan.pids);
	quiet_done(&crew->plan.quiet);
	free(crew->result.denied);
	free(crew->result.late);
	for (struct finding *one = crew->result.findings; one;) {
		struct finding *next = one->next;

		finding_free(one);
		one = next;
	}
	(void)pthread_cond_destroy(&crew->moved);
	(void)pthread_mutex_destroy(&crew->lock);
	free(crew);
}

/* Leaves the crew; MEMBER is NULL for scan_run(). */
static void leave(struct crew *crew, struct member *member)
{
	bool last;

	(void)pthread_mutex_lock(&crew->lock);
	for (uint32_t i = 0; member && i < crew->member_count; i++) {
		if (crew->members[i] == member)
			crew->members[i] = crew->members[--crew->member_count];
	}
	free(member);
	last = --crew->references == 0;
	(void)pthread_cond_signal(&crew->moved);
	(void)pthread_mutex_unlock(&crew->lock);
	if (last)
		destroy(crew);
}

/* The next process, or -1. */
static int32_t claim(struct member *member)
{
	struct crew *crew = member->crew;

	(void)pthread_mutex_lock(&crew->lock);
	look_beat(&member->look);
	member->tid = gettid();
	member->pid = -1;
	if (!crew->closed && crew->next < crew->plan.pid_count)
		member->pid = crew->plan.pids[crew->next++];
	(void)pthread_mutex_unlock(&crew->lock);
	return member->pid;
}

static void publish(struct crew *crew, struct finding *finding)
{
	bool refused;

	if (!finding)
		return;
	(void)pthread_mutex_lock(&crew->lock);
	refused = crew->closed;
	if (!refused) {
		finding->next = crew->result.findings;
		crew->result.findings = finding;
	}
	(void)pthread_mutex_unlock(&crew->lock);
	if (refused)
		finding_free(finding);
}

/* Adds the counters of UNSEEN that a look can have set. */
static void add_unseen(struct scan_unseen *sum, const struct scan_unseen *unseen)
{
	sum->maps_denied += unseen->maps_denied;
	sum->maps_unsure += unseen->maps_unsure;
	sum->sockets_denied += unseen->sockets_denied;
	sum->in_flight_hidden += unseen->in_flight_hidden;
	sum->rings_busy += unseen->rings_busy;
	sum->rings_unreachable += unseen->rings_unreachable;
	sum->exiting_unknown += unseen->exiting_unknown;
	sum->references_dropped += unseen->references_dropped;
	sum->needs_ptrace |= unseen->needs_ptrace;
	sum->needs_checkpoint |= unseen->needs_checkpoint;
	if (unseen->failed_errno)
		sum->failed_errno = unseen->failed_errno;
}

static void count(struct member *member, enum look_result result)
{
	struct crew *crew = member->crew;
	struct crew_result *sum = &crew->result;

	(void)pthread_mutex_lock(&crew->lock);
	if (!crew->closed) {
		add_unseen(&sum->unseen, &member->look.unseen);
		sum->descriptors += member->look.descriptors;
		sum->looked_at += result == LOOK_DONE;
		sum->unseen.vanished += result == LOOK_VANISHED;
		sum->unseen.failed += result == LOOK_FAILED;
		if (result == LOOK_DENIED)
			sum->denied[sum->unseen.denied++] = member->pid;
	}
	member->pid = -1;
	(void)pthread_mutex_unlock(&crew->lock);
	memset(&member->look.unseen, 0, sizeof(member->look.unseen));
	member->look.descriptors = 0;
}

static void look_at(struct member *member, int32_t pid)
{
	struct finding *finding = NULL;
	enum look_result result = look_first(&member->look, pid, &finding);
	bool first = finding != NULL;

	publish(member->crew, finding);
	if (result == LOOK_DONE || first)
		publish(member->crew, look_second(&member->look, first));
	look_end(&member->look);
	count(member, result);
}

static void *run(void *argument)
{
	struct member *member = argument;
	struct crew *crew = member->crew;
	int32_t pid;

	while ((pid = claim(member)) >= 0)
		look_at(member, pid);
	leave(crew, member);
	return NULL;
}

static int start_thread(struct member *member)
{
	pthread_attr_t attributes;
	sigset_t all, before;
	pthread_t thread;
	int error;

	if (pthread_attr_init(&attributes))
		return -ENOMEM;
	(void)pthread_attr_setstacksize(&attributes, STACK_BYTES);
	(void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	/* Signals are for the program's own threads. */
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&thread, &attributes, run, member);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	(void)pthread_attr_destroy(&attributes);
	return -error;
}

static void equip(struct crew *crew, struct member *member)
{
	const struct crew_plan *plan = &crew->plan;
	struct look *look = &member->look;

	member->crew = crew;
	member->pid = -1;
	look->proc = plan->proc;
	look->folder = -1;
	look->devices = plan->devices;
	look->own_proc = plan->own_proc;
	look->groups = &plan->groups;
	look->quiet = &plan->quiet;
	look->pid_namespace = plan->pid_namespace;
	look->mount_namespace = plan->mount_namespace;
	look->without_maps = plan->without_maps;
	look->without_details = plan->without_details;
	look->beat_ns = &member->beat_ns;
	look_beat(look);
}

/* Called with the lock. */
static int add_member(struct crew *crew)
{
	struct member *member;
	int code;

	if (crew->member_count == MEMBERS_MAX)
		return -EAGAIN;
	member = calloc(1, sizeof(*member));
	if (!member)
		return -ENOMEM;
	equip(crew, member);
	code = start_thread(member);
	if (code < 0) {
		free(member);
		return code;
	}
	crew->members[crew->member_count++] = member;
	crew->references++;
	return 0;
}

static uint32_t allowed_cpus(void)
{
	cpu_set_t set;
	uint32_t cpus = 1;

	if (sched_getaffinity(0, sizeof(set), &set) == 0)
		cpus = (uint32_t)CPU_COUNT(&set);
	return cpus < 1 ? 1 : cpus > THREADS_MAX ? THREADS_MAX : cpus;
}

static struct crew *new_crew(const struct crew_plan *plan)
{
	struct crew *crew = calloc(1, sizeof(*crew));
	pthread_condattr_t attributes;

	if (!crew)
		return NULL;
	crew->plan = *plan;
	crew->references = 1;
	crew->result.denied = malloc((plan->pid_count + 1) * sizeof(int32_t));
	crew->result.late = malloc((plan->pid_count + 1) * sizeof(int32_t));
	(void)pthread_mutex_init(&crew->lock, NULL);
	(void)pthread_condattr_init(&attributes);
	(void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&crew->moved, &attributes);
	(void)pthread_condattr_destroy(&attributes);
	return crew;
}

/* Lets go of a crew that has no members, and gives the plan back to its maker. */
static void abandon(struct crew *crew)
{
	crew->plan = (struct crew_plan){.proc = -1};
	destroy(crew);
}

int crew_start(const struct crew_plan *plan, struct crew **ret_crew, struct gw_error *ret_error)
{
	uint32_t wanted = plan->threads ? plan->threads : allowed_cpus();
	struct crew *crew = new_crew(plan);
	int code = 0;

	if (!crew)
		return err_os(ret_error, ENOMEM, "cannot look at processes");
	if (!crew->result.denied || !crew->result.late) {
		abandon(crew);
		return err_os(ret_error, ENOMEM, "cannot look at processes");
	}
	(void)pthread_mutex_lock(&crew->lock);
	for (uint32_t i = 0; i < wanted && code == 0; i++)
		code = add_member(crew);
	/* One is enough. */
	if (crew->references > 1)
		code = 0;
	(void)pthread_mutex_unlock(&crew->lock);
	if (code < 0) {
		abandon(crew);
		return err_os(ret_error, -code, "cannot start a thread that looks at processes");
	}
	*ret_crew = crew;
	return 0;
}

/*
 * A thread that makes no step can also be one that gets no processor: it is waited for, up to the deadline. One that
 * has not run yet is such a one.
 */
static bool is_blocked(const struct member *member)
{
	char path[64], text[512];
	const char *end;

	if (member->tid == 0)
		return false;
	(void)snprintf(path, sizeof(path), "/proc/self/task/%d/stat", member->tid);
	if (folder_read_once(AT_FDCWD, path, text, sizeof(text)) <= 0)
		return true;
	end = strrchr(text, ')');
	return !end || end[1] != ' ' || end[2] != 'R';
}

/* Called with the lock: starts others for those that do not move. Returns whether there is anything to wait for. */
static bool tend(struct crew *crew)
{
	uint64_t now = now_ns();
	uint32_t members = crew->member_count;
	bool waiting = crew->next < crew->plan.pid_count;

	for (uint32_t i = 0; i < members; i++) {
		struct member *member = crew->members[i];
		uint64_t beat = atomic_load_explicit(&member->beat_ns, memory_order_relaxed);
		uint64_t silent = now > beat ? now - beat : 0;

		if (silent > REPLACE_NS && !member->replaced && member->pid >= 0 &&
		    crew->next < crew->plan.pid_count)
			member->replaced = add_member(crew) == 0;
		if (silent <= STUCK_NS || !is_blocked(member))
			waiting = true;
	}
	return waiting;
}

static struct timespec at(uint64_t time_ns)
{
	return (struct timespec){.tv_sec = (time_t)(time_ns / 1000000000U),
				 .tv_nsec = (long)(time_ns % 1000000000U)};
}

/* Called with the lock: those that are not looked at, or not to the end. */
static void count_late(struct crew *crew)
{
	struct crew_result *result = &crew->result;

	for (uint32_t i = 0; i < crew->member_count; i++) {
		if (crew->members[i]->pid >= 0)
			result->late[result->unseen.late++] = crew->members[i]->pid;
	}
	while (crew->next < crew->plan.pid_count)
		result->late[result->unseen.late++] = crew->plan.pids[crew->next++];
}

void crew_take(struct crew *crew, uint64_t deadline_ns, struct crew_result *ret_result)
{
	(void)pthread_mutex_lock(&crew->lock);
	while (crew->member_count > 0 && now_ns() < deadline_ns && tend(crew)) {
		uint64_t until = after_ns(CHECK_NS);
		struct timespec when = at(until < deadline_ns ? until : deadline_ns);

		(void)pthread_cond_timedwait(&crew->moved, &crew->lock, &when);
	}
	count_late(crew);
	crew->closed = true;
	*ret_result = crew->result;
	crew->result = (struct crew_result){0};
	(void)pthread_mutex_unlock(&crew->lock);
	leave(crew, NULL);
}
