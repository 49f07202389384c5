/* SPDX-License-Identifier: MIT */
/*
 * A service that goes on while its GPU code faults: one request a millisecond, a fault a second, no request lost.
 *
 *	standby [--seconds N] [--state MIB]
 *
 * The service answers questions about a large table in device memory: "what is the sum of page N?" The table is
 * *sealed state*: filled once, it outlives the workers, and no kernel can change it. Every second one request
 * poisons the worker that serves it, as a bug would. A hot standby takes its place: it has a context already,
 * and the table mapped. The request runs again there, and its client only waits a little longer.
 *
 * This file is the host, which never touches CUDA; standby_worker.c is what it runs in workers. Exit status:
 * 0 if every answer came and was right and the table's checksum is what it was; 1 if not; 125 if there is no
 * pool. Read next: standby_worker.c; `man 7 gpuward`.
 */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <gpuward.h>

#include "standby.h"

#define SECOND_NS UINT64_C(1000000000)
#define MIB	  UINT64_C(1048576)

struct service {
	struct gw_pool *pool;
	uint64_t page_count;
	uint64_t checksum; /* of the table when it was made */
	uint64_t sent, answered, wrong, lost, checks;
	uint64_t slowest_ns, slowest_of_all_ns;
};

static uint64_t now_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

/* Hands a request to the pool, and goes on. Returns the task, or NULL after saying why there is none. */
static struct gw_task *start(struct service *service, const char *name, struct request request)
{
	struct gw_task_options options = GW_OPTIONS(struct gw_task_options);
	struct gw_error error;
	struct gw_task *task = NULL;

	request.page_count = service->page_count;
	request.asked_ns = now_ns();
	options.input_bytes = sizeof(request);
	options.output_bytes = sizeof(uint64_t);
	if (gw_task_start(service->pool, name, &request, &options, &task, &error) < 0) {
		(void)fprintf(stderr, "standby: %s: %s\n", name, error.msg);
		service->lost++;
	}
	return task;
}

/* One a millisecond; the one in the middle of a second has a fault, and each second another. */
static void ask(struct service *service)
{
	struct request request = {.page = service->sent * 7919 % service->page_count};

	if (service->sent % 1000 == 500)
		request.fault = 1 + (uint32_t)(service->sent / 1000 % FAULTS);
	service->sent++;
	(void)start(service, "answer", request);
}

static uint64_t right_answer(const struct service *service, const struct request *request)
{
	uint64_t first = request->page * PAGE_WORDS, right = 0;

	if (request->is_check)
		return service->checksum;
	for (uint64_t i = first; i < first + PAGE_WORDS; i++)
		right += (uint32_t)(i * 2654435761U) ^ SEED;
	return right;
}

static void take(struct service *service, struct gw_task *task)
{
	const struct request *request = gw_task_input(task);
	uint64_t took_ns = now_ns() - request->asked_ns;
	struct gw_outcome outcome = {0};

	if (gw_task_poll(task, &outcome, NULL) != 1 || outcome.kind != GW_DONE) {
		(void)fprintf(stderr, "standby: lost: %s\n", outcome.message);
		service->lost++;
	} else if (*(const uint64_t *)outcome.output != right_answer(service, request)) {
		service->wrong++;
	} else if (request->is_check) {
		service->checks++;
	} else {
		service->answered++;
		if (took_ns > service->slowest_ns)
			service->slowest_ns = took_ns;
		if (request->fault) /* is the table what it was? */
			(void)start(service, "checksum", (struct request){.is_check = 1});
	}
	gw_task_free(task);
}

static void print_second(struct service *service)
{
	struct gw_pool_stat stat = {0};

	(void)gw_pool_stat(service->pool, &stat);
	(void)printf("second %" PRIu64 ": %" PRIu64
		     " answered so far, slowest answer %.1f ms, %" PRIu64 " recoveries\n",
		     service->sent / 1000, service->answered, (double)service->slowest_ns / 1e6,
		     stat.recoveries);
	(void)fflush(stdout);
	if (service->slowest_ns > service->slowest_of_all_ns)
		service->slowest_of_all_ns = service->slowest_ns;
	service->slowest_ns = 0;
}

/* The host's own loop: the clock, and the pool's descriptor, which is readable when there is an answer. */
static void serve(struct service *service, uint64_t seconds)
{
	const struct itimerspec every_ms = {{.tv_nsec = 1000000}, {.tv_nsec = 1000000}};
	struct pollfd fds[] = {
		{.fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC), .events = POLLIN},
		{.fd = gw_pool_fd(service->pool), .events = POLLIN}};
	struct gw_task *task;
	uint64_t ticks;

	(void)timerfd_settime(fds[0].fd, 0, &every_ms, NULL);
	while (service->sent < seconds * 1000 && service->lost == 0 && poll(fds, 2, -1) > 0) {
		ticks = 0;
		if (fds[0].revents && read(fds[0].fd, &ticks, sizeof(ticks)) < 0)
			break;
		for (; ticks > 0 && service->sent < seconds * 1000; ticks--) {
			ask(service);
			if (service->sent % 1000 == 0)
				print_second(service);
		}
		(void)gw_pool_dispatch(service->pool, NULL);
		while (gw_pool_next(service->pool, 0, &task, NULL) == 1)
			take(service, task);
	}
	/* What is still under way. */
	while (gw_pool_next(service->pool, 30 * SECOND_NS, &task, NULL) == 1)
		take(service, task);
	(void)close(fds[0].fd);
}

/* Runs a task to its end. Returns whether it is good; its output is the table's checksum. */
static int run(struct service *service, const char *name)
{
	struct gw_task *task = start(service, name, (struct request){.is_check = 1});
	struct gw_outcome outcome = {0};
	int good = task && gw_task_wait(task, 60 * SECOND_NS, &outcome, NULL) == 1 &&
		   outcome.kind == GW_DONE;

	if (task && !good)
		(void)fprintf(stderr, "standby: %s: %s\n", name, outcome.message);
	if (good && outcome.output_bytes == sizeof(uint64_t))
		service->checksum = *(const uint64_t *)outcome.output;
	gw_task_free(task);
	return good;
}

static int print_summary(struct service *service)
{
	uint64_t made = service->checksum;
	int good = run(service, "checksum") && service->checksum == made && service->lost == 0 &&
		   service->wrong == 0 && service->answered == service->sent;

	(void)printf("%" PRIu64 " requests: %" PRIu64 " answered, %" PRIu64 " wrong, %" PRIu64
		     " lost; slowest answer %.1f ms\n",
		     service->sent, service->answered, service->wrong, service->lost,
		     (double)service->slowest_of_all_ns / 1e6);
	(void)printf("checksum of %" PRIu64 " MiB: %016" PRIx64 " at first, the same after %" PRIu64
		     " faults, %016" PRIx64 " at the end\n",
		     service->page_count * PAGE_WORDS * 4 / MIB, made, service->checks,
		     service->checksum);
	return good ? 0 : 1;
}

/* Returns whether they are understood. */
static int read_options(int argc, char **argv, uint64_t *seconds, uint64_t *mib)
{
	for (int i = 1; i < argc; i += 2) {
		uint64_t *value = strcmp(argv[i], "--seconds") == 0 ? seconds : NULL;
		char *end = NULL;

		if (strcmp(argv[i], "--state") == 0)
			value = mib;
		if (value && i + 1 < argc)
			*value = strtoull(argv[i + 1], &end, 10);
		if (!end || *end || *value == 0 || *value > 1000000) {
			(void)fprintf(stderr, "usage: standby [--seconds N] [--state MIB]\n");
			return 0;
		}
	}
	return 1;
}

int main(int argc, char **argv)
{
	const int device = 0;
	/* An emulated GPU computes on this machine's processor. */
	const int emulated = getenv("GPUWARD_SOFT_DIR") != NULL;
	struct gw_pool_options options = GW_OPTIONS(struct gw_pool_options);
	struct service service = {0};
	struct gw_error error;
	uint64_t seconds = emulated ? 5 : 10, mib = emulated ? 64 : 8192;
	int status = 1;

	if (gw_is_worker())
		return gw_worker_run(standby_functions);
	if (!read_options(argc, argv, &seconds, &mib))
		return 2;
	options.devices = &device;
	options.n_devices = 1;
	options.standby = GW_STANDBY_HOT;
	options.connections = 1; /* one queue for each process: a fault stalls the GPU for less */
	if (gw_pool_open(&service.pool, &options, &error) < 0) {
		(void)fprintf(stderr, "standby: %s\n", error.msg);
		return 125;
	}
	service.page_count = mib * MIB / PAGE_WORDS / 4;
	if (run(&service, "load") && run(&service, "checksum")) {
		serve(&service, seconds);
		status = print_summary(&service);
	}
	gw_pool_close(service.pool);
	return status;
}
