/* SPDX-License-Identifier: MIT */
/*
 * The transports; see transport.h. Each is as short as its users would write it.
 *
 * Runs in: roundtrip.c and its peers. What a pipe or a socket does for a message it does here; nothing is
 * tuned but the room in the kernel, which every user of large messages raises.
 */
#include "transport.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
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

#define SPIN_NS	   20000U
#define NO_LIMIT   UINT64_MAX
#define PACKET_MAX 65536U

static void *new_buffer(uint64_t bytes)
{
	void *buffer = calloc(1, bytes ? bytes : 1);

	if (!buffer)
		bench_die("no memory for a payload");
	return buffer;
}

/* ---- two words and a buffer in shared memory: the reference ---- */

struct shared {
	_Alignas(64) _Atomic uint32_t ping;
	_Alignas(64) _Atomic uint32_t pong;
	_Alignas(64) uint8_t payload[]; /* the input, then the output */
};

struct futex_pair {
	struct shared *shared;
	uint64_t bytes;
	uint64_t spin_ns;
	uint32_t number;
	pid_t peer;
};

static void futex_set(_Atomic uint32_t *word, uint32_t value)
{
	atomic_store(word, value);
	(void)syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static bool spin_for(_Atomic uint32_t *word, uint32_t value, uint64_t spin_ns)
{
	uint64_t end;

	if (spin_ns == 0)
		return false;
	end = bench_now_ns() + spin_ns;
	do {
		for (int i = 0; i < 64; i++) {
			if (atomic_load_explicit(word, memory_order_acquire) == value)
				return true;
			atomic_signal_fence(memory_order_seq_cst);
		}
	} while (bench_now_ns() < end);
	return false;
}

static void futex_until(_Atomic uint32_t *word, uint32_t value, uint64_t spin_ns)
{
	uint32_t seen;

	if (spin_for(word, value, spin_ns))
		return;
	while ((seen = atomic_load(word)) != value)
		(void)syscall(SYS_futex, word, FUTEX_WAIT, seen, NULL, NULL, 0);
}

_Noreturn static void futex_serve(const struct futex_pair *pair)
{
	struct shared *shared = pair->shared;

	for (uint32_t number = 1;; number++) {
		futex_until(&shared->ping, number, pair->spin_ns);
		payload_work(shared->payload + pair->bytes, shared->payload, pair->bytes);
		futex_set(&shared->pong, number);
	}
}

static void *futex_open(const struct transport *transport, uint64_t bytes)
{
	struct futex_pair *pair = new_buffer(sizeof(*pair));

	pair->shared = bench_share(sizeof(struct shared) + 2 * bytes);
	pair->bytes = bytes;
	pair->spin_ns = transport->spin_ns;
	if (bench_fork_peer(&pair->peer))
		futex_serve(pair);
	return pair;
}

static void futex_trip(void *state, uint64_t seed)
{
	struct futex_pair *pair = state;
	struct shared *shared = pair->shared;

	payload_fill(shared->payload, pair->bytes, seed);
	futex_set(&shared->ping, ++pair->number);
	futex_until(&shared->pong, pair->number, pair->spin_ns);
	payload_check(shared->payload + pair->bytes, pair->bytes, seed);
}

static void futex_close(void *state)
{
	struct futex_pair *pair = state;

	bench_end_peer(pair->peer);
	bench_unshare(pair->shared, sizeof(struct shared) + 2 * pair->bytes);
	free(pair);
}

/* ---- descriptors that carry bytes: pipes and unix sockets ---- */

struct stream {
	int in;
	int out;
	uint64_t bytes; /* of a message: at least one */
	void *buffer;
	pid_t peer;
};

static bool read_all(const struct stream *stream)
{
	for (uint64_t have = 0; have < stream->bytes;) {
		ssize_t got = read(stream->in, (char *)stream->buffer + have, stream->bytes - have);

		if (got <= 0)
			return false;
		have += (uint64_t)got;
	}
	return true;
}

static bool write_all(const struct stream *stream)
{
	for (uint64_t done = 0; done < stream->bytes;) {
		ssize_t put =
			write(stream->out, (char *)stream->buffer + done, stream->bytes - done);

		if (put < 0)
			return false;
		done += (uint64_t)put;
	}
	return true;
}

_Noreturn static void stream_serve(const struct stream *stream)
{
	while (read_all(stream)) {
		payload_work(stream->buffer, stream->buffer, stream->bytes);
		if (!write_all(stream))
			break;
	}
	_exit(0);
}

static void stream_start(struct stream *stream, const int peer_fds[2])
{
	if (bench_fork_peer(&stream->peer)) {
		stream->in = peer_fds[0];
		stream->out = peer_fds[1];
		stream_serve(stream);
	}
	(void)close(peer_fds[0]);
	if (peer_fds[1] != peer_fds[0])
		(void)close(peer_fds[1]);
}

static struct stream *stream_new(uint64_t bytes)
{
	struct stream *stream = new_buffer(sizeof(*stream));

	stream->bytes = bytes ? bytes : 8;
	stream->buffer = new_buffer(stream->bytes);
	return stream;
}

static void *pipe_open(const struct transport *transport, uint64_t bytes)
{
	struct stream *stream = stream_new(bytes);
	int there[2];
	int back[2];

	(void)transport;
	(void)bench_os(pipe2(there, O_CLOEXEC), "pipe");
	(void)bench_os(pipe2(back, O_CLOEXEC), "pipe");
	/* Large messages go faster through a larger pipe; a refusal leaves the usual 64 KiB. */
	(void)fcntl(there[1], F_SETPIPE_SZ, 1 << 20);
	(void)fcntl(back[1], F_SETPIPE_SZ, 1 << 20);
	stream->in = back[0];
	stream->out = there[1];
	stream_start(stream, (int[2]){there[0], back[1]});
	return stream;
}

static struct stream *socket_open(uint64_t bytes, int type)
{
	struct stream *stream = stream_new(bytes);
	int room = 1 << 20;
	int fds[2];

	(void)bench_os(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, fds), "socketpair");
	for (int i = 0; i < 2; i++)
		(void)setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
	stream->in = stream->out = fds[0];
	stream_start(stream, (int[2]){fds[1], fds[1]});
	return stream;
}

static void *socket_stream_open(const struct transport *transport, uint64_t bytes)
{
	(void)transport;
	return socket_open(bytes, SOCK_STREAM);
}

static void *socket_packet_open(const struct transport *transport, uint64_t bytes)
{
	(void)transport;
	return socket_open(bytes, SOCK_SEQPACKET);
}

static void stream_trip(void *state, uint64_t seed)
{
	struct stream *stream = state;

	payload_fill(stream->buffer, stream->bytes, seed);
	if (!write_all(stream) || !read_all(stream))
		bench_die("a peer is gone");
	payload_check(stream->buffer, stream->bytes, seed);
}

static void stream_close(void *state)
{
	struct stream *stream = state;

	bench_end_peer(stream->peer);
	(void)close(stream->in);
	if (stream->out != stream->in)
		(void)close(stream->out);
	free(stream->buffer);
	free(stream);
}

/* ---- ZeroMQ, ipc ---- */

#ifdef BENCH_ZMQ
struct queue {
	void *context;
	void *socket;
	uint64_t bytes;
	pid_t peer;
};

static void queue_connect(struct queue *queue, const char *address, bool host)
{
	int linger = 0;

	queue->context = zmq_ctx_new();
	queue->socket = zmq_socket(queue->context, host ? ZMQ_REQ : ZMQ_REP);
	if (!queue->socket ||
	    zmq_setsockopt(queue->socket, ZMQ_LINGER, &linger, sizeof(linger)) < 0 ||
	    (host ? zmq_connect(queue->socket, address) : zmq_bind(queue->socket, address)) < 0)
		bench_die("ZeroMQ: %s", zmq_strerror(zmq_errno()));
}

static void queue_receive(struct queue *queue, zmq_msg_t *message)
{
	(void)zmq_msg_init(message);
	if (zmq_msg_recv(message, queue->socket, 0) < 0 || zmq_msg_size(message) != queue->bytes)
		bench_die("ZeroMQ: %s", zmq_strerror(zmq_errno()));
}

static void queue_send(struct queue *queue, zmq_msg_t *message)
{
	if (zmq_msg_send(message, queue->socket, 0) < 0)
		bench_die("ZeroMQ: %s", zmq_strerror(zmq_errno()));
}

_Noreturn static void queue_serve(struct queue *queue)
{
	for (;;) {
		zmq_msg_t request;
		zmq_msg_t answer;

		queue_receive(queue, &request);
		(void)zmq_msg_init_size(&answer, queue->bytes);
		payload_work(zmq_msg_data(&answer), zmq_msg_data(&request), queue->bytes);
		(void)zmq_msg_close(&request);
		queue_send(queue, &answer);
	}
}

static void *queue_open(const struct transport *transport, uint64_t bytes)
{
	static unsigned int number;
	struct queue *queue = new_buffer(sizeof(*queue));
	char address[64];

	(void)transport;
	/* An abstract name: nothing is left in the file system. */
	(void)snprintf(address, sizeof(address), "ipc://@gpuward-bench-%d-%u", (int)getpid(),
		       number++);
	queue->bytes = bytes;
	if (bench_fork_peer(&queue->peer)) {
		queue_connect(queue, address, false);
		queue_serve(queue);
	}
	queue_connect(queue, address, true);
	return queue;
}

static void queue_trip(void *state, uint64_t seed)
{
	struct queue *queue = state;
	zmq_msg_t message;

	(void)zmq_msg_init_size(&message, queue->bytes);
	payload_fill(zmq_msg_data(&message), queue->bytes, seed);
	queue_send(queue, &message);
	queue_receive(queue, &message);
	payload_check(zmq_msg_data(&message), queue->bytes, seed);
	(void)zmq_msg_close(&message);
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

struct tasks {
	struct gw_pool *pool;
	uint64_t bytes;
};

static int run_work(struct gw_call *call)
{
	payload_work(call->output, call->input, call->input_bytes);
	call->output_bytes = call->input_bytes;
	return 0;
}

static int prepare_work(int device)
{
	(void)device;
	bench_pin(BENCH_PEER);
	return 0;
}

const struct gw_function transport_functions[] = {
	{.name = "work", .run = run_work, .prepare = prepare_work},
	{.name = NULL},
};

static void *tasks_open(const struct transport *transport, uint64_t bytes)
{
	struct tasks *tasks = new_buffer(sizeof(*tasks));

	tasks->bytes = bytes;
	tasks->pool = bench_pool(1, transport->spin_ns, 64);
	return tasks;
}

static void tasks_trip(void *state, uint64_t seed)
{
	struct tasks *tasks = state;
	struct gw_task_options options = GW_OPTIONS(struct gw_task_options);
	struct gw_outcome outcome;
	struct gw_error error;
	struct gw_task *task;

	options.input_bytes = options.output_bytes = tasks->bytes;
	if (gw_task_new(tasks->pool, "work", &options, &task, &error) < 0)
		bench_die("%s", error.msg);
	payload_fill(gw_task_input(task), tasks->bytes, seed);
	if (gw_task_submit(task, &error) < 0 ||
	    gw_task_wait(task, GW_FOREVER, &outcome, &error) < 0)
		bench_die("%s", error.msg);
	if (outcome.kind != GW_DONE || outcome.output_bytes != tasks->bytes)
		bench_die("a task failed: %s", outcome.message);
	payload_check(outcome.output, tasks->bytes, seed);
	gw_task_free(task);
}

static void tasks_close(void *state)
{
	struct tasks *tasks = state;

	gw_pool_close(tasks->pool);
	free(tasks);
}

const struct transport transports[] = {
	{"futex ping-pong", NO_LIMIT, 0, futex_open, futex_trip, futex_close},
	{"gpuward, no spin", NO_LIMIT, 0, tasks_open, tasks_trip, tasks_close},
	{"pipe", NO_LIMIT, 0, pipe_open, stream_trip, stream_close},
	{"unix SEQPACKET", PACKET_MAX, 0, socket_packet_open, stream_trip, stream_close},
	{"unix STREAM", NO_LIMIT, 0, socket_stream_open, stream_trip, stream_close},
#ifdef BENCH_ZMQ
	{"ZeroMQ ipc", NO_LIMIT, 0, queue_open, queue_trip, queue_close},
#endif
	{"futex, spins 20 us", NO_LIMIT, SPIN_NS, futex_open, futex_trip, futex_close},
	{"gpuward, default", NO_LIMIT, SPIN_NS, tasks_open, tasks_trip, tasks_close},
	{.name = NULL},
};
