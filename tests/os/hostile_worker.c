/* SPDX-License-Identifier: MIT */
#include "hostile_worker.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../seed.h"
#include "common/channel.h"
#include "common/fd.h"
#include "common/futex.h"
#include "common/state_wire.h"
#include "common/wire.h"

/* Everything before it is the ring. */
#define OUTPUT_OFFSET 65536U

struct hostile {
	struct seed seed;
	struct channel *channel;
	uint8_t *bytes; /* the same */
	uint64_t n_bytes;
	uint32_t next; /* entry that it would serve */
};

/* Says in the file that the test reads that something worked which must not work. */
static void complain(const char *what)
{
	const char *path = getenv(HOSTILE_LOG_ENV);
	int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;

	if (fd < 0)
		return;
	(void)dprintf(fd, "%s\n", what);
	(void)close(fd);
}

/* ---- acts on the memory ---- */

static void fill_random(struct hostile *h, void *to, uint64_t bytes)
{
	uint8_t *byte = to;

	for (uint64_t i = 0; i < bytes; i++)
		byte[i] = (uint8_t)seed_next(&h->seed);
}

static void scribble_ring(struct hostile *h)
{
	uint64_t offset = seed_below(&h->seed, OUTPUT_OFFSET);
	uint64_t bytes = 1 + seed_below(&h->seed, 512);

	fill_random(h, h->bytes + offset,
		    bytes < OUTPUT_OFFSET - offset ? bytes : OUTPUT_OFFSET - offset);
}

static void scribble_output(struct hostile *h)
{
	uint64_t room = h->n_bytes - OUTPUT_OFFSET;
	uint64_t bytes = 1 + seed_below(&h->seed, 512);
	uint64_t offset = OUTPUT_OFFSET + seed_below(&h->seed, room - bytes);

	fill_random(h, h->bytes + offset, bytes);
}

/* Numbers at which a check may be off by one. */
static uint64_t evil_number(struct hostile *h)
{
	static const uint64_t numbers[] = {
		0, 1, 63, 64, 65, 127, 128, 255, 256, INT32_MAX, UINT32_MAX, INT64_MAX, UINT64_MAX};

	if (seed_below(&h->seed, 4) == 0)
		return seed_next(&h->seed);
	return numbers[seed_below(&h->seed, sizeof(numbers) / sizeof(numbers[0]))];
}

static void spoil_result(struct hostile *h)
{
	struct channel_result *result =
		&h->channel->results[seed_below(&h->seed, 2) ? h->next % CHANNEL_DEPTH
							     : seed_below(&h->seed, CHANNEL_DEPTH)];

	result->output_bytes = evil_number(h);
	result->message_bytes = (uint32_t)evil_number(h);
	fill_random(h, result->message, sizeof(result->message));
}

static void spoil_states(struct hostile *h)
{
	uint32_t number = (uint32_t)seed_below(&h->seed, CHANNEL_DEPTH);

	atomic_store(&h->channel->entries[number].state, (uint32_t)seed_below(&h->seed, 5));
}

static void spoil_entry(struct hostile *h)
{
	struct channel_entry *entry = &h->channel->entries[seed_below(&h->seed, CHANNEL_DEPTH)];

	entry->output_offset = evil_number(h);
	entry->output_capacity_bytes = evil_number(h);
	entry->task = evil_number(h);
}

static void move_completed(struct hostile *h)
{
	uint32_t completed = atomic_load(&h->channel->completed);
	uint32_t submitted = atomic_load(&h->channel->submitted);

	switch (seed_below(&h->seed, 16)) {
	case 0:
		atomic_store(&h->channel->completed, (uint32_t)evil_number(h));
		break;
	case 1:
		atomic_store(&h->channel->completed, completed - 1);
		break;
	case 2:
		atomic_store(&h->channel->completed, submitted + 1);
		break;
	default:
		/* A lie that can be true: everything is done. */
		atomic_store(&h->channel->completed, submitted);
		h->next = submitted;
	}
}

static void spoil_words(struct hostile *h)
{
	struct channel *channel = h->channel;

	atomic_store(&channel->host_waiting, (uint32_t)seed_below(&h->seed, 8));
	atomic_store(&channel->worker_waiting, (uint32_t)seed_below(&h->seed, 2));
	atomic_store(&channel->running_since_ns,
		     seed_below(&h->seed, 2) ? now_ns() : evil_number(h));
	if (seed_below(&h->seed, 4) == 0)
		atomic_store(&channel->submitted, (uint32_t)evil_number(h));
}

static void wake(struct hostile *h)
{
	futex_wake_all(&h->channel->host_waiting);
	futex_wake_all(&h->channel->worker_waiting);
}

static void punch_hole(struct hostile *h)
{
	(void)fallocate(WIRE_WORKER_CHANNEL, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			(off_t)(seed_below(&h->seed, 16) * 4096), 4096);
}

/* ---- acts on descriptors ---- */

/* Whoever reads or writes this descriptor shares its flags: the host must not come to block in it. */
static void abuse_event(struct hostile *h)
{
	struct pollfd fd = {.fd = WIRE_WORKER_EVENT, .events = POLLIN | POLLOUT};
	uint64_t count = 1 + seed_below(&h->seed, 100);

	(void)fcntl(WIRE_WORKER_EVENT, F_SETFL, seed_below(&h->seed, 3) ? 0 : O_NONBLOCK);
	if (poll(&fd, 1, 0) != 1)
		return;
	if ((fd.revents & POLLOUT) && seed_below(&h->seed, 2))
		(void)!write(WIRE_WORKER_EVENT, &count, sizeof(count));
	else if (fd.revents & POLLIN)
		(void)!read(WIRE_WORKER_EVENT, &count, sizeof(count));
}

static void try_file(int fd, const char *name, bool may_write)
{
	const int seals[] = {F_SEAL_WRITE, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_SEAL};
	char text[64];
	void *map;

	(void)snprintf(text, sizeof(text), "%s was changed", name);
	if (ftruncate(fd, 0) == 0 || ftruncate(fd, INT64_C(1) << 50) == 0 ||
	    fallocate(fd, 0, INT64_C(1) << 45, 4096) == 0)
		complain(text);
	for (size_t i = 0; i < sizeof(seals) / sizeof(seals[0]); i++) {
		if (fcntl(fd, F_ADD_SEALS, seals[i]) == 0)
			complain(text);
	}
	if (may_write)
		return;
	map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map != MAP_FAILED || pwrite(fd, "x", 1, 0) == 1 ||
	    fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0)
		complain(text);
	map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	if (map != MAP_FAILED && mprotect(map, 4096, PROT_READ | PROT_WRITE) == 0)
		complain(text);
	if (map != MAP_FAILED)
		(void)munmap(map, 4096);
}

/* The same file through another door. */
static void try_reopened(int fd, const char *name)
{
	char path[64];
	int again;

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open(path, O_RDWR | O_CLOEXEC);
	if (again < 0)
		return;
	try_file(again, name, false);
	(void)close(again);
}

static void abuse_files(struct hostile *h)
{
	(void)h;
	try_file(WIRE_WORKER_CHANNEL, "the channel", true);
	try_file(WIRE_WORKER_INPUT, "the input memory", false);
	try_reopened(WIRE_WORKER_INPUT, "the input memory");
}

/* Sends BYTES bytes of MESSAGE with up to 20 descriptors, which is more than anybody expects. */
static void send_raw(struct hostile *h, int socket, const void *message, size_t bytes)
{
	struct iovec data = {.iov_base = (void *)(uintptr_t)message, .iov_len = bytes};
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(20 * sizeof(int))];
	} control;
	int fds[20];
	size_t n_fds = seed_below(&h->seed, 3) ? 0 : 1 + seed_below(&h->seed, 20);
	struct msghdr packet = {.msg_iov = &data, .msg_iovlen = 1};

	if (n_fds > 0) {
		for (size_t i = 0; i < n_fds; i++)
			fds[i] = WIRE_WORKER_SOCKET + (int)seed_below(&h->seed, 6);
		memset(&control, 0, sizeof(control));
		control.header = (struct cmsghdr){.cmsg_len = CMSG_LEN(n_fds * sizeof(int)),
						  .cmsg_level = SOL_SOCKET,
						  .cmsg_type = SCM_RIGHTS};
		memcpy(CMSG_DATA(&control.header), fds, n_fds * sizeof(int));
		packet.msg_control = &control;
		packet.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
	}
	(void)sendmsg(socket, &packet, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* The messages of a worker, with the size that each must have; and some that are others' to send. */
static const struct {
	enum wire_type type;
	size_t bytes;
} kinds[] = {
	{WIRE_READY, sizeof(struct wire_ready)},
	{WIRE_FAULT, sizeof(struct wire_fault)},
	{WIRE_PRIMED, sizeof(struct wire_word)},
	{WIRE_CONTEXT, sizeof(struct wire_context)},
	{WIRE_NO_ROOM, sizeof(struct wire_word)},
	{WIRE_PONG, sizeof(struct wire_word)},
	{WIRE_PONG, sizeof(struct wire_word)},
	{WIRE_START_FAILED, sizeof(struct wire_start_failed)},
	{WIRE_OPEN, sizeof(struct wire_open)},
	{WIRE_KICK, sizeof(struct wire_kick)},
	{WIRE_KILL, sizeof(struct wire_kill)},
	{WIRE_CLOSE, sizeof(struct wire_close)},
	{WIRE_UP, sizeof(struct wire_up)},
	{WIRE_GONE, sizeof(struct wire_gone)},
	{WIRE_STOP, sizeof(struct wire_word)},
	{WIRE_WARM, sizeof(struct wire_word)},
	{WIRE_PROMOTE, sizeof(struct wire_word)},
	{WIRE_PING, sizeof(struct wire_word)},
	{WIRE_STATE, sizeof(struct wire_word)},
};

static void send_message(struct hostile *h)
{
	static union wire_any message;
	size_t kind = seed_below(&h->seed, sizeof(kinds) / sizeof(kinds[0]));
	size_t bytes = seed_below(&h->seed, 4) ? kinds[kind].bytes
					       : seed_below(&h->seed, sizeof(message) + 1);

	fill_random(h, &message, seed_below(&h->seed, 4) ? 256 : sizeof(message));
	wire_header_init(&message.header, kinds[kind].type, (uint32_t)bytes);
	if (message.header.type == WIRE_FAULT && seed_below(&h->seed, 2))
		message.fault.source = GW_SOURCE_ERROR_LOG;
	if (seed_below(&h->seed, 8) == 0)
		fill_random(h, (uint8_t *)&message + seed_below(&h->seed, 40), 4);
	send_raw(h, WIRE_WORKER_SOCKET, &message, bytes);
}

/* Asks for surviving state: anything, with any descriptors, and does not always listen to the answer. */
static void ask_state(struct hostile *h)
{
	struct state_request request = {.number = seed_next(&h->seed),
					.piece = seed_below(&h->seed, 4),
					.bytes = evil_number(h),
					.copy_bytes = evil_number(h),
					.task = evil_number(h),
					.kind = (uint32_t)seed_below(&h->seed, 4),
					.access = (uint32_t)seed_below(&h->seed, 4),
					.name = {(char)('a' + seed_below(&h->seed, 4))}};
	size_t bytes =
		seed_below(&h->seed, 50) ? sizeof(request) : seed_below(&h->seed, sizeof(request));
	char answer[64];

	state_wire_header(&request.header,
			  (enum state_wire_type)(1 + seed_below(&h->seed, STATE_REFUSED)), bytes);
	if (seed_below(&h->seed, 2)) {
		request.bytes = 1;
		request.copy_bytes = STATE_GRANULE;
	}
	if (seed_below(&h->seed, 3))
		request.piece |= UINT64_C(1) << 32;
	if (seed_below(&h->seed, 100) == 0)
		fill_random(h, &request, sizeof(request));
	send_raw(h, WIRE_WORKER_STATE, &request, bytes);
	while (seed_below(&h->seed, 3) &&
	       recv(WIRE_WORKER_STATE, answer, sizeof(answer), MSG_DONTWAIT) > 0)
		;
}

/* ---- acts that look honest ---- */

/* Answers one entry as a good worker does, so that the host keeps reading. */
static void serve_one(struct hostile *h)
{
	struct channel_result *result = &h->channel->results[h->next % CHANNEL_DEPTH];
	struct channel_entry entry;

	if (atomic_load(&h->channel->submitted) == h->next)
		return;
	if (channel_claim(h->channel, h->next, &entry)) {
		*result = (struct channel_result){.value = seed_below(&h->seed, 4) ? 0 : 7,
						  .output_bytes = seed_below(&h->seed, 8),
						  .started_ns = now_ns(),
						  .ended_ns = now_ns()};
		if (seed_below(&h->seed, 8) == 0)
			result->output_bytes = entry.output_capacity_bytes + 1;
	}
	atomic_store(&h->channel->completed, h->next + 1);
	h->next++;
	wake(h);
}

static void rest(struct hostile *h)
{
	struct timespec pause = {.tv_nsec = (long)seed_below(&h->seed, 2000000)};

	(void)nanosleep(&pause, NULL);
}

/* ---- the whole ---- */

static void say_ready(struct hostile *h)
{
	static struct wire_ready ready;

	wire_header_init(&ready.header, WIRE_READY, sizeof(ready));
	ready.n_functions = 1;
	(void)snprintf(ready.functions[0], GW_NAME_MAX, "%s", HOSTILE_FUNCTION);
	/* Sometimes as many names as can be, each new. */
	if (seed_below(&h->seed, 4) == 0) {
		for (; ready.n_functions < GW_FUNCTIONS_MAX; ready.n_functions++)
			(void)snprintf(ready.functions[ready.n_functions], GW_NAME_MAX, "x%" PRIx64,
				       seed_next(&h->seed));
	}
	(void)wire_send(WIRE_WORKER_SOCKET, &ready, NULL, 0);
}

static void say(enum wire_type type)
{
	struct wire_word word;

	wire_header_init(&word.header, type, sizeof(word));
	(void)wire_send(WIRE_WORKER_SOCKET, &word, NULL, 0);
}

static void say_context(struct hostile *h)
{
	struct wire_context context = {.error_log = (int32_t)evil_number(h)};

	wire_header_init(&context.header, WIRE_CONTEXT, sizeof(context));
	if (seed_below(&h->seed, 2))
		fill_random(h, context.pci, sizeof(context.pci) - 1);
	else
		(void)snprintf(context.pci, sizeof(context.pci), "0000:00:%02x.0",
			       (unsigned int)(6 + seed_below(&h->seed, 2)));
	(void)wire_send(WIRE_WORKER_SOCKET, &context, NULL, 0);
}

/* Waits for an order of the ward's, and not for long. */
static void hear(void)
{
	struct pollfd fd = {.fd = WIRE_WORKER_SOCKET, .events = POLLIN};
	char message[256];

	if (poll(&fd, 1, 100) == 1)
		(void)!recv(WIRE_WORKER_SOCKET, message, sizeof(message), MSG_DONTWAIT);
}

/* As a worker comes up that keeps the order of things, more or less. */
static void come_up(struct hostile *h)
{
	say(WIRE_PRIMED);
	hear();
	while (seed_below(&h->seed, 4) == 0) {
		say(WIRE_NO_ROOM);
		hear();
	}
	if (seed_below(&h->seed, 8) > 0)
		say_context(h);
	if (seed_below(&h->seed, 8) == 0)
		say_context(h);
}

static void leave(struct hostile *h)
{
	switch (seed_below(&h->seed, 5)) {
	case 0:
		_exit((int)seed_below(&h->seed, 256));
	case 1:
		for (int fd = WIRE_WORKER_SOCKET; fd <= WIRE_WORKER_STATE; fd++)
			(void)close(fd);
		break;
	case 2:
		(void)shutdown(WIRE_WORKER_SOCKET, SHUT_RDWR);
		break;
	case 3:
		send_raw(h, WIRE_WORKER_SOCKET, "", 0);
		break;
	default:
		abort();
	}
	for (;;)
		(void)pause();
}

/* The last of the acts. */
#define ACT_TALK (3U << 10)

static void act(struct hostile *h, uint32_t allowed)
{
	static void (*const acts[])(struct hostile *) = {
		scribble_ring, scribble_output, spoil_result, spoil_states,
		spoil_entry,   move_completed,	spoil_words,  punch_hole,
		abuse_event,   abuse_files,	send_message, ask_state,
	};
	uint32_t number = (uint32_t)seed_below(&h->seed, sizeof(acts) / sizeof(acts[0]));

	if (allowed & (1U << number))
		acts[number](h);
	if (seed_below(&h->seed, 2))
		serve_one(h);
	if (seed_below(&h->seed, 8) == 0)
		wake(h);
	if (seed_below(&h->seed, 16) == 0)
		rest(h);
}

int hostile_run(uint32_t incarnation)
{
	static struct hostile h;
	struct stat status;
	uint64_t end;
	uint32_t allowed;
	void *map;

	h.seed = (struct seed){seed_value() + incarnation};
	if (fstat(WIRE_WORKER_CHANNEL, &status) < 0)
		return 99;
	h.n_bytes = (uint64_t)status.st_size;
	map = mmap(NULL, h.n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
		   WIRE_WORKER_CHANNEL, 0);
	if (map == MAP_FAILED)
		return 98;
	h.channel = map;
	h.bytes = map;
	/* Each process has a character of its own: one that does everything is caught at once. */
	allowed = (uint32_t)(seed_next(&h.seed) & seed_next(&h.seed));
	end = now_ns() + 1000000 + seed_below(&h.seed, 200000000);
	/* A start that fails can be final by the worker's own word, and then there is no enemy any more. */
	for (uint64_t i = seed_below(&h.seed, 2) ? 0 : seed_below(&h.seed, 20); i > 0; i--)
		act(&h, allowed & ~ACT_TALK);
	if (seed_below(&h.seed, 2))
		come_up(&h);
	say_ready(&h);
	while (now_ns() < end)
		act(&h, allowed);
	leave(&h);
	return 97;
}
