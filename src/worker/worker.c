/* SPDX-License-Identifier: MIT */
/*
 * The entry of a worker: gw_is_worker() and gw_worker_run().
 *
 * Runs in: worker, main thread. The ward started this process with six descriptors (enum
 * wire_worker_fd) and one environment variable. The steps: take over what was inherited, map the memory,
 * start the control thread, bring the device up in turn with others, prepare the functions, say ready, wait
 * for the promotion where it is a standby, serve, let go.
 * Every failure before "ready" goes to the ward with its reason. Read next: serve.c.
 */
#include "worker/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/err.h"
#include "common/fd.h"
#include "common/wire.h"
#include "worker/pin.h"
#include "worker/state.h"

bool gw_is_worker(void)
{
	socklen_t bytes = sizeof(int);
	int type;

	/* The variable alone proves nothing: a worker's own children inherit it. */
	return getenv(WIRE_WORKER_ENV) != NULL &&
	       getsockopt(WIRE_WORKER_SOCKET, SOL_SOCKET, SO_TYPE, &type, &bytes) == 0 &&
	       type == SOCK_SEQPACKET;
}

static int read_environment(struct worker *worker, struct gw_error *ret_error)
{
	const char *text = getenv(WIRE_WORKER_ENV);
	uint32_t layout;

	if (!text || sscanf(text,
			    "%" SCNu32 ":%" SCNu32 ":%" SCNu32 ":%" SCNd32 ":%" SCNu64 ":%" SCNu64
			    ":%" SCNu32 ":%" SCNu32 ":%" SCNu32,
			    &layout, &worker->slot, &worker->incarnation, &worker->device,
			    &worker->spin.limit_ns, &worker->stop_deadline_ns, &worker->standby,
			    &worker->detect, &worker->flags) != 9)
		return err_own(ret_error, GW_EVERSION,
			       WIRE_WORKER_ENV " is not what this version understands: ward and "
					       "worker must be from the same build");
	if (layout != WIRE_LAYOUT)
		return err_own(ret_error, GW_EVERSION,
			       "the ward speaks layout %u, this worker %u: both must be from the "
			       "same build",
			       layout, WIRE_LAYOUT);
	/* Programs that this worker starts are not workers. */
	(void)unsetenv(WIRE_WORKER_ENV);
	for (int fd = WIRE_WORKER_SOCKET; fd <= WIRE_WORKER_STATE; fd++)
		(void)fcntl(fd, F_SETFD, FD_CLOEXEC);
	(void)prctl(PR_SET_NAME, "gpuward-worker");
	return 0;
}

static int map_input(struct worker *worker, struct gw_error *ret_error)
{
	struct stat status;
	void *input;

	if (fstat(WIRE_WORKER_INPUT, &status) < 0)
		return err_os(ret_error, errno, "the input memory is not there");
	input = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_SHARED | MAP_NORESERVE,
		     WIRE_WORKER_INPUT, 0);
	if (input == MAP_FAILED)
		return err_os(ret_error, errno, "cannot map the input memory");
	(void)madvise(input, (size_t)status.st_size, MADV_DONTDUMP);
	worker->input = input;
	worker->input_bytes = (uint64_t)status.st_size;
	return 0;
}

static int map_memory(struct worker *worker, struct gw_error *ret_error)
{
	int result = channel_map(&worker->channel, WIRE_WORKER_CHANNEL, 0);

	if (result == GW_EPROTOCOL)
		return err_own(ret_error, GW_EVERSION,
			       "the channel has a layout of another version");
	if (result < 0)
		return err_os(ret_error, -result, "cannot map the channel");
	(void)madvise(worker->channel.shared, worker->channel.bytes, MADV_DONTDUMP);
	return map_input(worker, ret_error);
}

static bool name_is_good(const char *name)
{
	size_t length = strnlen(name, GW_NAME_MAX);

	for (size_t i = 0; i < length; i++) {
		if (name[i] <= ' ' || name[i] > '~')
			return false;
	}
	return length > 0 && length < GW_NAME_MAX;
}

static int check_functions(struct worker *worker, struct gw_error *ret_error)
{
	const struct gw_function *f = worker->functions;
	uint32_t n;

	for (n = 0; f && f[n].name; n++) {
		if (n == GW_FUNCTIONS_MAX)
			return err_own(ret_error, -E2BIG, "a worker can offer %d functions",
				       GW_FUNCTIONS_MAX);
		if (!name_is_good(f[n].name) || !f[n].run)
			return err_own(ret_error, -EINVAL,
				       "function %u has a bad name or nothing to run", n);
		for (uint32_t i = 0; i < n; i++) {
			if (strcmp(f[i].name, f[n].name) == 0)
				return err_own(ret_error, -EINVAL, "two functions are called '%s'",
					       f[n].name);
		}
	}
	if (n == 0)
		return err_own(ret_error, -EINVAL, "the worker offers no function");
	worker->n_functions = n;
	return 0;
}

static int prepare_functions(const struct worker *worker, struct gw_error *ret_error)
{
	for (uint32_t i = 0; i < worker->n_functions; i++) {
		const struct gw_function *function = &worker->functions[i];
		const char *stale;
		const char *name;
		int value;

		state_forget_stale();
		value = function->prepare ? function->prepare(worker->device) : 0;
		name = gw_cuda_name(value);
		stale = state_stale_text();
		if (value != 0 && stale)
			return err_set(ret_error, GW_EPOOLFAILED, GW_DOMAIN_CUDA, value,
				       "%s: prepare of function '%s' returned %d", stale,
				       function->name, value);
		if (value != 0)
			return err_set(ret_error, GW_EPOOLFAILED, GW_DOMAIN_CUDA, value,
				       "prepare of function '%s' returned %d%s%s", function->name,
				       value, name && worker->device >= 0 ? " " : "",
				       name && worker->device >= 0 ? name : "");
	}
	return 0;
}

static int say_ready(const struct worker *worker, struct gw_error *ret_error)
{
	cleanup_free struct wire_ready *ready = calloc(1, sizeof(*ready));
	int result;

	if (!ready)
		return err_os(ret_error, ENOMEM, "no memory to say ready");
	wire_header_init(&ready->header, WIRE_READY, sizeof(*ready));
	ready->n_functions = worker->n_functions;
	for (uint32_t i = 0; i < worker->n_functions; i++)
		memcpy(ready->functions[i], worker->functions[i].name,
		       strlen(worker->functions[i].name));
	result = wire_send(WIRE_WORKER_SOCKET, ready, NULL, 0);
	return result < 0 ? err_os(ret_error, -result, "the ward does not listen") : 0;
}

static int block_stop_signal(void)
{
	sigset_t mask;

	(void)sigemptyset(&mask);
	(void)sigaddset(&mask, SIGTERM);
	return -pthread_sigmask(SIG_BLOCK, &mask, NULL);
}

static int say(enum wire_type type)
{
	struct wire_word word;

	wire_header_init(&word.header, type, sizeof(word));
	return wire_send(WIRE_WORKER_SOCKET, &word, NULL, 0);
}

static int say_context(const struct worker *worker, struct wire_context *context)
{
	wire_header_init(&context->header, WIRE_CONTEXT, sizeof(*context));
	context->error_log = worker->error_log;
	return wire_send(WIRE_WORKER_SOCKET, context, NULL, 0);
}

/* Makes the context when it is this process's turn, as often as it takes until there is room for it. */
static int make_context(struct worker *worker, struct gw_error *ret_error)
{
	struct wire_context context;
	int result;

	do {
		if (orders_wait(worker, ORDER_WARM) == ORDER_STOP)
			_exit(0);
		result = device_start(worker, &context, ret_error);
		if (result == -ENOMEM)
			(void)say(WIRE_NO_ROOM);
	} while (result == -ENOMEM);
	if (result == 0 && say_context(worker, &context) < 0)
		result = err_os(ret_error, EPIPE, "the ward does not listen");
	return result;
}

/* With the small stack of a standby a good kernel can fault: then another process is better. */
static void grow(struct worker *worker)
{
	int result = device_grow(worker);

	if (result != 0)
		leave_after_fault(result, 0);
}

/* What cannot be mapped in advance is mapped when a function asks for it. */
static void prepare_standby(struct worker *worker)
{
	(void)state_take_news(worker, NULL);
	device_slim(worker);
}

/*
 * From a bare process to one that serves:
 *
 *	driver ── PRIMED ── (WARM) ── context ── CONTEXT ── prepare ── READY ── (PROMOTE) ── serve
 *
 * In brackets what the ward says. A standby waits at the second one, and takes less device memory until then.
 */
static int bring_up(struct worker *worker, struct gw_error *ret_error)
{
	int result;

	state_begin(worker);
	result = device_prime(worker, ret_error);
	if (result == 0 && say(WIRE_PRIMED) < 0)
		result = err_os(ret_error, EPIPE, "the ward does not listen");
	if (result == 0)
		result = make_context(worker, ret_error);
	if (result == 0)
		result = pin_start(worker, ret_error);
	if (result == 0)
		result = prepare_functions(worker, ret_error);
	if (result == 0 && worker->standby)
		prepare_standby(worker);
	if (result == 0)
		result = say_ready(worker, ret_error);
	if (result == 0 && worker->standby && orders_wait(worker, ORDER_PROMOTE) == ORDER_PROMOTE)
		grow(worker);
	return result;
}

static int start(struct worker *worker, struct gw_error *ret_error)
{
	int result = read_environment(worker, ret_error);

	if (result == 0)
		result = check_functions(worker, ret_error);
	if (result == 0)
		result = map_memory(worker, ret_error);
	if (result < 0)
		return result;
	result = block_stop_signal();
	if (result == 0)
		result = orders_init(worker);
	if (result == 0)
		result = control_start(worker);
	if (result < 0)
		return err_os(ret_error, -result, "cannot start the worker's control thread");
	return bring_up(worker, ret_error);
}

static void say_failed(const struct gw_error *error)
{
	struct wire_start_failed failed = {.error = *error};

	wire_header_init(&failed.header, WIRE_START_FAILED, sizeof(failed));
	(void)wire_send(WIRE_WORKER_SOCKET, &failed, NULL, 0);
}

int gw_worker_run(const struct gw_function *functions)
{
	/* The control thread uses it until the process ends. */
	static struct worker worker;
	struct gw_error error = {0};

	if (!gw_is_worker())
		return WORKER_EXIT_START;
	worker.functions = functions;
	if (start(&worker, &error) < 0) {
		say_failed(&error);
		/* A device that failed to come up may hang in a destructor. */
		_exit(WORKER_EXIT_START);
	}
	serve(&worker);
	pin_stop(&worker);
	device_stop(&worker);
	return 0;
}
