/* SPDX-License-Identifier: MIT */
/*
 * Description: device memory that a killed process was writing is quiet from the moment at which its pidfd
 * is readable. A writer fills shared device memory by a kernel without end, by 2,000 queued kernels in
 * four streams, or by queued copies; a watcher in another process kills it, takes a picture of all of the
 * memory when the pidfd says that the writer is gone, and compares for 100 ms. No word may change.
 *
 * usage: test-state_handover [--runs N] [--emulated]
 *
 * Without --emulated it is skipped where there is no real GPU. Under MPS it would prove nothing.
 *
 *	test (no CUDA)        watcher                 writer
 *	go ─────────────────────────────────────────▶ writes for ever
 *	order ──────────────▶ waits for changes
 *	                      SIGKILL ──────────────▶ ends
 *	reaps it,             picture, compares
 *	starts the next       for 100 ms
 *	◀──────────── outcome
 *
 * The next writer is awaited before the next kill, so that no start disturbs what is timed.
 */
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "../softgpu.h"
#include "common/fd.h"
#include "gpu/cuda.h"
#include "gpu/kernels_ptx.h"
#include "gpu/nodes.h"
#include "linux/procref.h"

#define STATE_BYTES   (64ULL << 20)
#define STATE_ADDRESS 0x700000000000ULL /* a wish; a writer may get another address */
#define SPOTS	      4			/* what is looked at until the writer is gone */
#define SPOT_BYTES    (256U << 10)
#define QUEUED	      2000
#define STREAMS	      4
#define WINDOW_NS     100000000ULL
#define LIFE_SECONDS  110 /* of watcher and writers, should the test itself hang */
#define RUNS_MAX      10000

enum writing {
	WRITING_ENDLESS,
	WRITING_QUEUED,
	WRITING_COPIES,
	WRITING_COUNT,
};

static const char *const writing_names[] = {"endless kernel", "queued kernels", "queued copies"};

/* From the test to the watcher. */
struct order {
	pid_t writer;
	uint32_t changes; /* to be seen before the kill: each run is killed in another phase */
	bool spare;	  /* do not kill, and compare while it writes: the comparison must notice */
};

/* And back. Times are on CLOCK_MONOTONIC; a change is timed at the end of the look that showed it. */
struct outcome {
	uint64_t kill_ns;
	uint64_t last_change_ns;
	uint64_t gone_ns;
	uint32_t looks;
	uint32_t compared; /* comparisons of all of the memory after the writer was gone */
	uint32_t changed;  /* those that found a change */
};

struct gpu {
	struct cuda_door cuda;
	struct cuda_function *hammer;
	struct cuda_function *add1;
	struct cuda_stream *streams[STREAMS];
	uint64_t state;
};

struct watcher {
	struct gpu gpu;
	uint8_t *now; /* pinned, all of the memory */
	uint8_t *before;
};

static int runs;
static bool emulated;

/* In a child, which has no cmocka. */
#define NEED(wanted) need((wanted), #wanted, __LINE__)

static void need(bool wanted, const char *text, int line)
{
	if (wanted)
		return;
	(void)fprintf(stderr, "state_handover.c:%d: not so: %s\n", line, text);
	_exit(1);
}

#define OK(call) NEED((call) == CUDA_SUCCESS)

union rights {
	struct cmsghdr header;
	char room[CMSG_SPACE(sizeof(int))];
};

static bool send_fd(int socket, int fd)
{
	char byte = 'm';
	struct iovec data = {.iov_base = &byte, .iov_len = 1};
	union rights rights = {.header = {.cmsg_level = SOL_SOCKET,
					  .cmsg_type = SCM_RIGHTS,
					  .cmsg_len = CMSG_LEN(sizeof(int))}};
	struct msghdr message = {.msg_iov = &data,
				 .msg_iovlen = 1,
				 .msg_control = &rights,
				 .msg_controllen = sizeof(rights)};

	memcpy(CMSG_DATA(&rights.header), &fd, sizeof(fd));
	return sendmsg(socket, &message, MSG_NOSIGNAL) == 1;
}

/* Returns -1 when nobody sends one any more. */
static int receive_fd(int socket)
{
	char byte;
	struct iovec data = {.iov_base = &byte, .iov_len = 1};
	union rights rights = {0};
	struct msghdr message = {.msg_iov = &data,
				 .msg_iovlen = 1,
				 .msg_control = &rights,
				 .msg_controllen = sizeof(rights)};
	int fd = -1;

	if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) == 1 &&
	    message.msg_controllen >= CMSG_LEN(sizeof(int)))
		memcpy(&fd, CMSG_DATA(&rights.header), sizeof(fd));
	return fd;
}

/* All functions are asked for here: beside an endless kernel a late one would never be loaded. */
static void start_gpu(struct gpu *gpu)
{
	struct cuda_context *context;
	struct cuda_module *module;
	struct gw_error failure = {0};

	(void)alarm(LIFE_SECONDS);
	if (cuda_open(&gpu->cuda, &failure) < 0 ||
	    cuda_start_device(&gpu->cuda, 0, &context, &failure) < 0) {
		(void)fprintf(stderr, "%s\n", failure.msg);
		_exit(1);
	}
	OK(gpu->cuda.cuModuleLoadData(&module, gpu_kernels_ptx));
	OK(gpu->cuda.cuModuleGetFunction(&gpu->hammer, module, "hammer"));
	OK(gpu->cuda.cuModuleGetFunction(&gpu->add1, module, "add1"));
	for (int i = 0; i < STREAMS; i++)
		OK(gpu->cuda.cuStreamCreate(&gpu->streams[i], CUDA_STREAM_NON_BLOCKING));
}

static void map_state(struct gpu *gpu, uint64_t handle)
{
	struct cuda_access_range access = {.location = {.type = CUDA_LOCATION_DEVICE},
					   .flags = CUDA_ACCESS_READWRITE};

	OK(gpu->cuda.cuMemAddressReserve(&gpu->state, STATE_BYTES, 0, STATE_ADDRESS, 0));
	OK(gpu->cuda.cuMemMap(gpu->state, STATE_BYTES, 0, handle, 0));
	OK(gpu->cuda.cuMemSetAccess(gpu->state, STATE_BYTES, &access, 1));
}

/* The writer. */

static void launch(const struct gpu *gpu, struct cuda_function *function, unsigned int blocks,
		   struct cuda_stream *stream)
{
	uint64_t address = gpu->state;
	uint64_t words = STATE_BYTES / 4;
	void *parameters[] = {&address, &words};

	OK(gpu->cuda.cuLaunchKernel(function, blocks, 1, 1, 256, 1, 1, 0, stream, parameters,
				    NULL));
}

/* Few blocks, so that each kernel takes a millisecond and the queues are long when the kill comes. */
static void queue_kernels(const struct gpu *gpu)
{
	for (int i = 0; i < QUEUED; i++)
		launch(gpu, gpu->add1, 32, gpu->streams[i % STREAMS]);
}

static void __attribute__((noreturn)) queue_copies(const struct gpu *gpu)
{
	struct cuda_stream *stream = gpu->streams[0];
	uint64_t other;

	OK(gpu->cuda.cuMemAlloc_v2(&other, STATE_BYTES));
	for (unsigned int i = 0;; i++) {
		OK(gpu->cuda.cuMemsetD32Async(other, i, STATE_BYTES / 4, stream));
		OK(gpu->cuda.cuMemcpyDtoDAsync_v2(gpu->state, other, STATE_BYTES, stream));
	}
}

static void __attribute__((noreturn)) run_writer(int memory, int up, int go)
{
	struct gpu gpu = {0};
	uint64_t handle;
	uint8_t writing;

	start_gpu(&gpu);
	OK(gpu.cuda.cuMemImportFromShareableHandle(&handle, (void *)(uintptr_t)memory,
						   CUDA_HANDLE_POSIX_FD));
	map_state(&gpu, handle);
	NEED(write(up, "u", 1) == 1);
	/* End of file here and below: the test has gone. */
	if (read(go, &writing, 1) != 1)
		_exit(0);
	if (writing == WRITING_ENDLESS)
		launch(&gpu, gpu.hammer, 132, gpu.streams[0]);
	else if (writing == WRITING_QUEUED)
		queue_kernels(&gpu);
	else
		queue_copies(&gpu);
	(void)!read(go, &writing, 1);
	_exit(0);
}

/* The watcher. */

static void copy(const struct watcher *watcher, uint8_t *to, uint64_t offset, size_t bytes)
{
	const struct gpu *gpu = &watcher->gpu;

	OK(gpu->cuda.cuMemcpyDtoHAsync_v2(to, gpu->state + offset, bytes, gpu->streams[0]));
}

static void await_copies(const struct watcher *watcher)
{
	OK(watcher->gpu.cuda.cuStreamSynchronize(watcher->gpu.streams[0]));
}

/* Compares some of the memory with the last look, and keeps it. */
static bool look(const struct watcher *watcher, struct outcome *outcome)
{
	size_t bytes = (size_t)SPOTS * SPOT_BYTES;

	for (unsigned int i = 0; i < SPOTS; i++)
		copy(watcher, watcher->now + (size_t)i * SPOT_BYTES, i * (STATE_BYTES / SPOTS),
		     SPOT_BYTES);
	await_copies(watcher);
	outcome->looks++;
	if (memcmp(watcher->before, watcher->now, bytes) == 0)
		return false;
	outcome->last_change_ns = now_ns();
	memcpy(watcher->before, watcher->now, bytes);
	return true;
}

static void compare_all(const struct watcher *watcher, struct outcome *outcome)
{
	uint64_t end_ns;

	copy(watcher, watcher->before, 0, STATE_BYTES);
	await_copies(watcher);
	end_ns = after_ns(WINDOW_NS);
	do {
		copy(watcher, watcher->now, 0, STATE_BYTES);
		await_copies(watcher);
		outcome->compared++;
		if (memcmp(watcher->before, watcher->now, STATE_BYTES) != 0) {
			outcome->changed++;
			outcome->last_change_ns = now_ns();
			memcpy(watcher->before, watcher->now, STATE_BYTES);
		}
	} while (now_ns() < end_ns);
}

static bool ended(const struct procref *process)
{
	struct pollfd end = {.fd = process->pidfd, .events = POLLIN};

	return poll(&end, 1, 0) == 1;
}

static void watch(const struct watcher *watcher, const struct order *order, struct outcome *outcome)
{
	struct procref writer;

	NEED(procref_open(&writer, order->writer, NULL) == 0);
	(void)look(watcher, outcome);
	for (uint32_t seen = 0; seen < order->changes;) {
		NEED(!ended(&writer));
		seen += look(watcher, outcome);
	}
	outcome->kill_ns = now_ns();
	if (!order->spare) {
		NEED(procref_signal(&writer, SIGKILL) == 0);
		while (!ended(&writer))
			(void)look(watcher, outcome);
	}
	outcome->gone_ns = now_ns();
	compare_all(watcher, outcome);
	procref_done(&writer);
}

static void __attribute__((noreturn)) run_watcher(int socket)
{
	static struct watcher watcher;
	struct cuda_door *cuda = &watcher.gpu.cuda;
	struct cuda_allocation kind = {.type = CUDA_MEMORY_PINNED,
				       .handle_types = CUDA_HANDLE_POSIX_FD,
				       .location = {.type = CUDA_LOCATION_DEVICE}};
	struct order order;
	uint64_t handle;
	int memory = -1;

	start_gpu(&watcher.gpu);
	OK(cuda->cuMemCreate(&handle, STATE_BYTES, &kind, 0));
	OK(cuda->cuMemExportToShareableHandle(&memory, handle, CUDA_HANDLE_POSIX_FD, 0));
	map_state(&watcher.gpu, handle);
	OK(cuda->cuMemAllocHost_v2((void **)&watcher.now, STATE_BYTES));
	OK(cuda->cuMemAllocHost_v2((void **)&watcher.before, STATE_BYTES));
	NEED(send_fd(socket, memory));
	while (recv(socket, &order, sizeof(order), 0) == (ssize_t)sizeof(order)) {
		struct outcome outcome = {0};

		watch(&watcher, &order, &outcome);
		NEED(send(socket, &outcome, sizeof(outcome), MSG_NOSIGNAL) ==
		     (ssize_t)sizeof(outcome));
	}
	_exit(0);
}

/* The test. */

struct rig {
	pid_t watcher;
	int socket;
	int memory;
};

struct writer {
	pid_t pid;
	int up;
	int go;
};

static void reap(pid_t pid, int signal)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(WIFSIGNALED(status) ? WTERMSIG(status) : 0, signal);
	if (!signal)
		assert_int_equal(WEXITSTATUS(status), 0);
}

static int set_up(void **state)
{
	static struct rig rig;
	int sockets[2];

	if (emulated)
		soft_dir_new(NULL);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
	rig.watcher = fork();
	assert_true(rig.watcher >= 0);
	if (rig.watcher == 0) {
		(void)close(sockets[0]);
		run_watcher(sockets[1]);
	}
	(void)close(sockets[1]);
	rig.socket = sockets[0];
	rig.memory = receive_fd(rig.socket);
	assert_true(rig.memory >= 0);
	*state = &rig;
	return 0;
}

static int tear_down(void **state)
{
	struct rig *rig = *state;

	(void)close(rig->socket);
	(void)close(rig->memory);
	reap(rig->watcher, 0);
	if (emulated)
		soft_dir_free();
	return 0;
}

static void start_writer(struct rig *rig, struct writer *writer)
{
	int up[2];
	int go[2];

	assert_int_equal(pipe2(up, O_CLOEXEC), 0);
	assert_int_equal(pipe2(go, O_CLOEXEC), 0);
	writer->pid = fork();
	assert_true(writer->pid >= 0);
	if (writer->pid == 0) {
		(void)close(rig->socket);
		(void)close(up[0]);
		(void)close(go[1]);
		run_writer(rig->memory, up[1], go[0]);
	}
	(void)close(up[1]);
	(void)close(go[0]);
	writer->up = up[0];
	writer->go = go[1];
}

static void let_write(struct rig *rig, const struct writer *writer, uint8_t writing,
		      const struct order *order)
{
	char byte;

	assert_int_equal(read(writer->up, &byte, 1), 1);
	assert_int_equal(write(writer->go, &writing, 1), 1);
	assert_int_equal(send(rig->socket, order, sizeof(*order), MSG_NOSIGNAL), sizeof(*order));
}

static void await_outcome(struct rig *rig, struct outcome *ret_outcome)
{
	assert_int_equal(recv(rig->socket, ret_outcome, sizeof(*ret_outcome), 0),
			 sizeof(*ret_outcome));
}

static void end_writer(const struct writer *writer)
{
	reap(writer->pid, SIGKILL);
	(void)close(writer->up);
	(void)close(writer->go);
}

static void a_living_writer_is_noticed(void **state)
{
	struct rig *rig = *state;

	for (uint8_t writing = 0; writing < WRITING_COUNT; writing++) {
		struct order order = {.changes = 1, .spare = true};
		struct writer writer;
		struct outcome outcome;

		start_writer(rig, &writer);
		order.writer = writer.pid;
		let_write(rig, &writer, writing, &order);
		await_outcome(rig, &outcome);
		printf("%s, alive: %u of %u comparisons saw a change\n", writing_names[writing],
		       outcome.changed, outcome.compared);
		assert_int_equal(kill(writer.pid, SIGKILL), 0);
		end_writer(&writer);
		assert_true(outcome.changed > 0);
	}
}

static double since_kill_ms(const struct outcome *outcome, uint64_t time_ns)
{
	return (double)(int64_t)(time_ns - outcome->kill_ns) / 1e6;
}

static int by_value(const void *a, const void *b)
{
	double difference = *(const double *)a - *(const double *)b;

	return (difference > 0) - (difference < 0);
}

static void print_spread(const char *what, double *values, size_t count)
{
	qsort(values, count, sizeof(*values), by_value);
	printf("  %s: median %.1f, lowest %.1f, highest %.1f\n", what, values[count / 2], values[0],
	       values[count - 1]);
}

/* Every third outcome from the one at WRITING. */
static void print_outcomes(const struct outcome *outcomes, int writing)
{
	static double last[RUNS_MAX];
	static double gone[RUNS_MAX];
	static double margin[RUNS_MAX];
	uint32_t compared = 0;
	size_t count = 0;

	for (int i = writing; i < runs; i += WRITING_COUNT, count++) {
		last[count] = since_kill_ms(&outcomes[i], outcomes[i].last_change_ns);
		gone[count] = since_kill_ms(&outcomes[i], outcomes[i].gone_ns);
		margin[count] = gone[count] - last[count];
		compared += outcomes[i].compared;
	}
	if (count == 0)
		return;
	printf("%s, %zu runs, %u comparisons; milliseconds:\n", writing_names[writing], count,
	       compared);
	print_spread("kill to the last change seen", last, count);
	print_spread("kill to the readable pidfd", gone, count);
	print_spread("last change to the readable pidfd", margin, count);
}

static void a_dead_writer_writes_no_more(void **state)
{
	static struct outcome outcomes[RUNS_MAX];
	struct rig *rig = *state;
	struct writer next;
	int changed = 0;

	start_writer(rig, &next);
	for (int i = 0; i < runs; i++) {
		struct writer writer = next;
		struct order order = {.writer = writer.pid, .changes = 1 + (uint32_t)i % 16};

		let_write(rig, &writer, (uint8_t)(i % WRITING_COUNT), &order);
		end_writer(&writer);
		if (i + 1 < runs)
			start_writer(rig, &next);
		await_outcome(rig, &outcomes[i]);
		printf("%d %s: last change %.2f ms after the kill, gone %.2f, %u looks, %u of %u "
		       "comparisons changed\n",
		       i, writing_names[i % WRITING_COUNT],
		       since_kill_ms(&outcomes[i], outcomes[i].last_change_ns),
		       since_kill_ms(&outcomes[i], outcomes[i].gone_ns), outcomes[i].looks,
		       outcomes[i].changed, outcomes[i].compared);
		changed += outcomes[i].changed > 0;
	}
	for (int writing = 0; writing < WRITING_COUNT; writing++)
		print_outcomes(outcomes, writing);
	printf("%d of %d runs changed after the writer was gone\n", changed, runs);
	assert_int_equal(changed, 0);
}

/* Returns false for arguments that cannot be understood. */
static bool read_arguments(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		char *end = NULL;
		long count;

		if (strcmp(argv[i], "--emulated") == 0) {
			emulated = true;
			continue;
		}
		if (strcmp(argv[i], "--runs") != 0 || i + 1 == argc)
			return false;
		count = strtol(argv[++i], &end, 10);
		if (*end || count < 1 || count > RUNS_MAX)
			return false;
		runs = (int)count;
	}
	return true;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_living_writer_is_noticed, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_dead_writer_writes_no_more, set_up, tear_down),
	};

	if (!read_arguments(argc, argv)) {
		(void)fprintf(stderr, "usage: %s [--runs N] [--emulated], N from 1 to %d\n",
			      argv[0], RUNS_MAX);
		return 2;
	}
	if (!emulated && (nodes_emulated() || !nodes_have_gpu())) {
		printf("skipped: there is no real GPU here\n");
		return 77;
	}
	if (runs == 0)
		runs = emulated ? 6 : 30;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
