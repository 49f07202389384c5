/* SPDX-License-Identifier: MIT */
/*
 * How many empty tasks a second go through one worker when the host does not wait for each, beside what
 * other transports reach with the same window.
 *
 *	pipeline [--rounds N] [--tasks N] [--window N] [--place free|one|two]
 *
 * Runs in: the host; each way has a peer of its own, all are open at once and take turns. A message of the
 * others is a number of 8 bytes that comes back. They are as fast as their users would make them: one
 * write for each message, since each is sent when it is there, but both sides take all that has arrived
 * by one read, and the peer answers all of it by one write. The bare ring is two rings of numbers in shared
 * memory with a futex for a side that sleeps: what gpuward's tasks cost comes on top of it.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef BENCH_ZMQ
#include <zmq.h>
#endif

#include "bench.h"

#define RING_SLOTS 4096U
#define WINDOW_MAX 4096U
#define SPIN_NS	   20000U

static uint64_t window = 256;

/* One way to send messages and to take in answers. */
struct way {
	const char *name;
	uint64_t spin_ns;
	void *(*open)(const struct way *way);
	void (*send)(void *state, uint64_t number);
	/* Waits for at least one answer; takes in what there is; returns how many. */
	uint64_t (*receive)(void *state);
	void (*close)(void *state);
};

static void *new_state(size_t bytes)
{
	void *state = calloc(1, bytes);

	if (!state)
		bench_die("no memory");
	return state;
}

/* ---- a bare ring ---- */

struct ring {
	_Alignas(64) _Atomic uint32_t head; /* moved by the sender */
	_Alignas(64) _Atomic uint32_t sleeps;
	_Alignas(64) uint64_t slots[RING_SLOTS];
};

struct ring_pair {
	struct ring *there;
	struct ring *back;
	uint32_t taken;
	uint64_t spin_ns;
	pid_t peer;
};

static void ring_put(struct ring *ring, uint64_t number)
{
	uint32_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);

	ring->slots[head % RING_SLOTS] = number;
	atomic_store(&ring->head, head + 1);
	if (atomic_load(&ring->sleeps))
		(void)syscall(SYS_futex, &ring->head, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void ring_wait(struct ring *ring, uint32_t taken, uint64_t spin_ns)
{
	uint64_t end = spin_ns ? bench_now_ns() + spin_ns : 0;

	do {
		for (int i = 0; i < 64; i++) {
			if (atomic_load(&ring->head) != taken)
				return;
		}
	} while (spin_ns && bench_now_ns() < end);
	atomic_store(&ring->sleeps, 1);
	while (atomic_load(&ring->head) == taken)
		(void)syscall(SYS_futex, &ring->head, FUTEX_WAIT, taken, NULL, NULL, 0);
	atomic_store(&ring->sleeps, 0);
}

_Noreturn static void ring_serve(const struct ring_pair *pair)
{
	for (uint32_t taken = 0;; taken++) {
		ring_wait(pair->there, taken, pair->spin_ns);
		ring_put(pair->back, pair->there->slots[taken % RING_SLOTS]);
	}
}

static void *ring_open(const struct way *way)
{
	struct ring_pair *pair = new_state(sizeof(*pair));

	pair->there = bench_share(sizeof(*pair->there));
	pair->back = bench_share(sizeof(*pair->back));
	pair->spin_ns = way->spin_ns;
	if (bench_fork_peer(&pair->peer))
		ring_serve(pair);
	return pair;
}

static void ring_send(void *state, uint64_t number)
{
	ring_put(((struct ring_pair *)state)->there, number);
}

static uint64_t ring_receive(void *state)
{
	struct ring_pair *pair = state;
	uint32_t head;
	uint64_t n;

	ring_wait(pair->back, pair->taken, pair->spin_ns);
	head = atomic_load(&pair->back->head);
	n = head - pair->taken;
	pair->taken = head;
	return n;
}

static void ring_close(void *state)
{
	struct ring_pair *pair = state;

	bench_end_peer(pair->peer);
	bench_unshare(pair->there, sizeof(*pair->there));
	bench_unshare(pair->back, sizeof(*pair->back));
	free(pair);
}

/* ---- pipe and unix sockets ---- */

struct stream {
	int in;
	int out;
	pid_t peer;
	uint64_t numbers[WINDOW_MAX];
};

_Noreturn static void stream_serve(struct stream *stream)
{
	for (;;) {
		ssize_t got = read(stream->in, stream->numbers, sizeof(stream->numbers));

		if (got <= 0 || write(stream->out, stream->numbers, (size_t)got) != got)
			_exit(0);
	}
}

static void stream_start(struct stream *stream, int peer_in, int peer_out)
{
	if (bench_fork_peer(&stream->peer)) {
		stream->in = peer_in;
		stream->out = peer_out;
		stream_serve(stream);
	}
	(void)close(peer_in);
	if (peer_out != peer_in)
		(void)close(peer_out);
}

static void *pipe_open(const struct way *way)
{
	struct stream *stream = new_state(sizeof(*stream));
	int there[2], back[2];

	(void)way;
	(void)bench_os(pipe2(there, O_CLOEXEC), "pipe");
	(void)bench_os(pipe2(back, O_CLOEXEC), "pipe");
	stream->in = back[0];
	stream->out = there[1];
	stream_start(stream, there[0], back[1]);
	return stream;
}

static void *socket_open(int type)
{
	struct stream *stream = new_state(sizeof(*stream));
	int fds[2];

	(void)bench_os(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, fds), "socketpair");
	stream->in = stream->out = fds[0];
	stream_start(stream, fds[1], fds[1]);
	return stream;
}

static void *socket_stream_open(const struct way *way)
{
	(void)way;
	return socket_open(SOCK_STREAM);
}

static void *socket_packet_open(const struct way *way)
{
	(void)way;
	return socket_open(SOCK_SEQPACKET);
}

static void stream_send(void *state, uint64_t number)
{
	struct stream *stream = state;

	if (write(stream->out, &number, sizeof(number)) != sizeof(number))
		bench_die("a peer is gone");
}

static uint64_t stream_receive(void *state)
{
	struct stream *stream = state;
	ssize_t got = read(stream->in, stream->numbers, sizeof(stream->numbers));

	/* Pipes and streams keep what one write put in together, so numbers are whole. */
	if (got <= 0 || got % 8 != 0)
		bench_die("a peer is gone");
	return (uint64_t)got / 8;
}

static void stream_close(void *state)
{
	struct stream *stream = state;

	bench_end_peer(stream->peer);
	(void)close(stream->in);
	if (stream->out != stream->in)
		(void)close(stream->out);
	free(stream);
}

/* ---- ZeroMQ ---- */

#ifdef BENCH_ZMQ
struct queue {
	void *context;
	void *socket;
	pid_t peer;
};

static void queue_connect(struct queue *queue, const char *address, bool host)
{
	int linger = 0, no_limit = 0;

	queue->context = zmq_ctx_new();
	queue->socket = zmq_socket(queue->context, ZMQ_PAIR);
	if (!queue->socket || zmq_setsockopt(queue->socket, ZMQ_LINGER, &linger, sizeof(int)) < 0 ||
	    zmq_setsockopt(queue->socket, ZMQ_SNDHWM, &no_limit, sizeof(int)) < 0 ||
	    zmq_setsockopt(queue->socket, ZMQ_RCVHWM, &no_limit, sizeof(int)) < 0 ||
	    (host ? zmq_connect(queue->socket, address) : zmq_bind(queue->socket, address)) < 0)
		bench_die("ZeroMQ: %s", zmq_strerror(zmq_errno()));
}

static void queue_send(void *state, uint64_t number)
{
	struct queue *queue = state;

	if (zmq_send(queue->socket, &number, sizeof(number), 0) < 0)
		bench_die("ZeroMQ: %s", zmq_strerror(zmq_errno()));
}

_Noreturn static void queue_serve(struct queue *queue)
{
	for (;;) {
		uint64_t number;

		if (zmq_recv(queue->socket, &number, sizeof(number), 0) < 0)
			_exit(1);
		queue_send(queue, number);
	}
}

static void *queue_open(const struct way *way)
{
	struct queue *queue = new_state(sizeof(*queue));
	char address[64];

	(void)way;
	(void)snprintf(address, sizeof(address), "ipc://@gpuward-pipeline-%d", (int)getpid());
	if (bench_fork_peer(&queue->peer)) {
		queue_connect(queue, address, false);
		queue_serve(queue);
	}
	queue_connect(queue, address, true);
	return queue;
}

static uint64_t queue_receive(void *state)
{
	struct queue *queue = state;
	uint64_t number, n = 1;

	if (zmq_recv(queue->socket, &number, sizeof(number), 0) < 0)
		bench_die("ZeroMQ: %s", zmq_strerror(zmq_errno()));
	while (zmq_recv(queue->socket, &number, sizeof(number), ZMQ_DONTWAIT) >= 0)
		n++;
	return n;
}

static void queue_close(void *state)
{
	struct queue *queue = state;

	(void)zmq_close(queue->socket);
	(void)zmq_ctx_term(queue->context);
	bench_end_peer(queue->peer);
	free(queue);
}
#endif

/* ---- gpuward ---- */

static int run_empty(struct gw_call *call)
{
	(void)call;
	return 0;
}

static int prepare_empty(int device)
{
	(void)device;
	bench_pin(BENCH_PEER);
	return 0;
}

static const struct gw_function functions[] = {
	{.name = "empty", .run = run_empty, .prepare = prepare_empty},
	{.name = NULL},
};

static void *tasks_open(const struct way *way)
{
	return bench_pool(1, way->spin_ns, 256);
}

static void tasks_send(void *state, uint64_t number)
{
	struct gw_task_options options = GW_OPTIONS(struct gw_task_options);
	struct gw_error error;
	struct gw_task *task;

	(void)number;
	if (gw_task_start(state, "empty", NULL, &options, &task, &error) < 0)
		bench_die("%s", error.msg);
}

static uint64_t tasks_receive(void *state)
{
	uint64_t timeout_ns = GW_FOREVER;
	struct gw_error error;
	struct gw_task *task;
	uint64_t n = 0;

	while (gw_pool_next(state, timeout_ns, &task, &error) == 1) {
		gw_task_free(task);
		timeout_ns = 0;
		n++;
	}
	if (n == 0)
		bench_die("a pool gives no task back");
	return n;
}

static void tasks_close(void *state)
{
	gw_pool_close(state);
}

/* ---- all of them ---- */

static const struct way ways[] = {
	{"gpuward, no spin", 0, tasks_open, tasks_send, tasks_receive, tasks_close},
	{"gpuward, default", SPIN_NS, tasks_open, tasks_send, tasks_receive, tasks_close},
	{"bare ring", 0, ring_open, ring_send, ring_receive, ring_close},
	{"bare ring, spins 20 us", SPIN_NS, ring_open, ring_send, ring_receive, ring_close},
	{"pipe", 0, pipe_open, stream_send, stream_receive, stream_close},
	{"unix SEQPACKET", 0, socket_packet_open, stream_send, stream_receive, stream_close},
	{"unix STREAM", 0, socket_stream_open, stream_send, stream_receive, stream_close},
#ifdef BENCH_ZMQ
	{"ZeroMQ ipc", 0, queue_open, queue_send, queue_receive, queue_close},
#endif
};

#define N_WAYS (sizeof(ways) / sizeof(ways[0]))

/* Messages a second. */
static double measure(const struct way *way, void *state, uint64_t count)
{
	uint64_t start = bench_now_ns();
	uint64_t sent = 0, done = 0;

	while (done < count) {
		while (sent < count && sent - done < window)
			way->send(state, sent++);
		done += way->receive(state);
	}
	return (double)count * 1e9 / (double)(bench_now_ns() - start);
}

static void print_table(struct series rates[N_WAYS])
{
	(void)printf("%-24s %14s %12s %12s\n", "", "median 1000/s", "least", "most");
	for (size_t i = 0; i < N_WAYS; i++)
		(void)printf("%-24s %14.0f %12.0f %12.0f\n", ways[i].name,
			     series_median(&rates[i]) / 1000, series_min(&rates[i]) / 1000,
			     series_max(&rates[i]) / 1000);
}

int main(int argc, char **argv)
{
	static struct series rates[N_WAYS];
	void *states[N_WAYS];
	uint64_t n_rounds = 50;
	uint64_t count = 20000;
	const char *place = "free";
	const struct bench_option options[] = {{"--rounds", &n_rounds, NULL},
					       {"--tasks", &count, NULL},
					       {"--window", &window, NULL},
					       {"--place", NULL, &place},
					       {NULL, NULL, NULL}};

	if (gw_is_worker())
		return gw_worker_run(functions);
	bench_options(argc, argv, options);
	if (window < 1 || window > WINDOW_MAX)
		bench_die("a window has 1 to %u messages", WINDOW_MAX);
	if (!bench_place(place)) {
		(void)printf("skipped: there is no second processor\n");
		return 77;
	}
	for (size_t i = 0; i < N_WAYS; i++)
		states[i] = ways[i].open(&ways[i]);
	for (size_t i = 0; i < N_WAYS; i++)
		(void)measure(&ways[i], states[i], window);
	for (uint64_t r = 0; r < n_rounds; r++) {
		for (size_t n = 0; n < N_WAYS; n++) {
			size_t i = (n + r) % N_WAYS;

			series_add(&rates[i], measure(&ways[i], states[i], count));
		}
	}
	(void)printf("pipelined, place %s, window %llu, %llu rounds of %llu\n", place,
		     (unsigned long long)window, (unsigned long long)n_rounds,
		     (unsigned long long)count);
	print_table(rates);
	for (size_t i = 0; i < N_WAYS; i++)
		ways[i].close(states[i]);
	return 0;
}
