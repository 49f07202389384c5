/* SPDX-License-Identifier: MIT */
/*
 * Description: the ward gives a piece of mutable state to one worker at a time, and to the next one only when
 * the last is certainly gone; a worker that is fenced changes nothing, whatever it asks; one that breaks the
 * rules, reads no answers or sends what is no memory harms only itself.
 *
 * Runs in: one process, which is the ward and all its workers: sockets with raw messages at one end, the
 * ward's clients at the other. Nothing waits: pump() takes the events that there are.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "../seed.h"
#include "common/fd.h"
#include "common/packet.h"
#include "common/state_wire.h"
#include "ward/state.h"
#include "ward/state_request.h"

#define PEERS	  4
#define NO_ANSWER 1

/* A worker. */
struct peer {
	int socket;
	struct state_client *client; /* NULL: freed */
	struct state_answer answer;  /* the last */
	int fds[STATE_FDS_MAX];
	uint32_t news;
	uint64_t number;
	bool broke; /* it was told of as one that broke the rules */
};

static struct loop loop;
static struct state_page *page;
static struct state *ward;
static struct peer peers[PEERS];
static int memory_fd; /* what stands for device memory */
static int descriptors;

static int count_descriptors(void)
{
	int count = 0;

	for (int fd = 0; fd < 1024; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

static void pump(void)
{
	struct epoll_event event;

	while (epoll_wait(loop.epoll_fd, &event, 1, 0) == 1) {
		struct loop_source *source = event.data.ptr;

		assert_non_null(source);
		source->ready(source, event.events);
	}
}

static void on_broken(void *owner)
{
	struct peer *peer = owner;

	peer->broke = true;
}

static int on_news(void *owner)
{
	struct peer *peer = owner;

	peer->news++;
	return 0;
}

static void join(struct peer *peer, int32_t pid)
{
	const struct state_who who = {
		.device = 5, .pid = pid, .broken = on_broken, .news = on_news, .owner = peer};
	int sockets[2];

	assert_int_equal(
		socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sockets), 0);
	*peer = (struct peer){.socket = sockets[1]};
	memset(peer->fds, -1, sizeof(peer->fds));
	assert_int_equal(state_client_new(ward, &who, &sockets[0], &peer->client), 0);
	assert_int_equal(sockets[0], -1);
}

static int begin_limited(void **state, uint64_t max_bytes)
{
	static const int32_t devices[] = {3, 5};
	const struct state_config config = {
		.loop = &loop, .devices = devices, .n_devices = 2, .max_bytes = max_bytes};
	struct state_config with_page = config;

	(void)state;
	descriptors = count_descriptors();
	page = calloc(1, sizeof(*page));
	assert_non_null(page);
	with_page.page = page;
	assert_int_equal(loop_init(&loop), 0);
	assert_int_equal(state_new(&with_page, &ward), 0);
	memory_fd = fd_new_memory("memory", 4096);
	assert_true(memory_fd >= 0);
	for (int i = 0; i < PEERS; i++)
		join(&peers[i], 100 + i);
	return 0;
}

static int begin(void **state)
{
	return begin_limited(state, 0);
}

static int end(void **state)
{
	(void)state;
	for (int i = 0; i < PEERS; i++) {
		packet_close_fds(peers[i].fds, STATE_FDS_MAX);
		fd_closep(&peers[i].socket);
	}
	state_free(ward);
	loop_done(&loop);
	fd_closep(&memory_fd);
	free(page);
	assert_int_equal(count_descriptors(), descriptors);
	return 0;
}

/* ---- talking ---- */

static struct state_request request_of(enum state_wire_type type, const char *name, uint64_t piece)
{
	struct state_request request = {.piece = piece,
					.bytes = 4,
					.copy_bytes = STATE_GRANULE,
					.kind = GW_STATE_MUTABLE,
					.access = GW_STATE_READ};

	state_wire_header(&request.header, type, sizeof(request));
	(void)snprintf(request.name, sizeof(request.name), "%s", name);
	return request;
}

/* What has come for PEER: its answer's code, or NO_ANSWER. */
static int hear(struct peer *peer)
{
	int result = NO_ANSWER;

	for (;;) {
		union state_any message;
		int fds[STATE_FDS_MAX];
		struct packet packet;

		if (packet_receive(peer->socket, &message, sizeof(message), fds, STATE_FDS_MAX,
				   &packet) <= 0)
			return result;
		assert_int_equal(state_wire_check_answer(&message, packet.bytes), 0);
		assert_int_equal(result, NO_ANSWER);
		packet_close_fds(peer->fds, STATE_FDS_MAX);
		memcpy(peer->fds, fds, sizeof(fds));
		memcpy(&peer->answer, &message, packet.bytes);
		assert_int_equal(peer->answer.number, peer->number);
		result = peer->answer.error.code;
	}
}

static int ask_with(struct peer *peer, struct state_request request, const int *fds, size_t n_fds)
{
	request.number = ++peer->number;
	assert_int_equal(packet_send(peer->socket, &request, sizeof(request), fds, n_fds), 0);
	pump();
	return hear(peer);
}

static int ask(struct peer *peer, enum state_wire_type type, const char *name, uint64_t piece)
{
	return ask_with(peer, request_of(type, name, piece), NULL, 0);
}

/* Makes a piece; a sealed one is not sealed yet. Returns its number. */
static uint64_t make(struct peer *peer, const char *name, enum gw_state_kind kind)
{
	const int fds[] = {memory_fd, memory_fd};
	struct state_request request = request_of(STATE_RESERVE, name, 0);
	uint64_t piece;

	request.kind = kind;
	assert_int_equal(ask_with(peer, request, NULL, 0), 0);
	assert_int_equal(peer->answer.count, 1);
	piece = peer->answer.entries[0].piece;
	assert_int_equal(
		ask_with(peer, request_of(STATE_OFFER, "", piece), fds, STATE_COPIES(kind)), 0);
	return piece;
}

static uint64_t make_sealed(struct peer *peer, const char *name)
{
	uint64_t piece = make(peer, name, GW_STATE_SEALED);

	assert_int_equal(ask(peer, STATE_SEAL, "", piece), 0);
	return piece;
}

static int map(struct peer *peer, const char *name)
{
	return ask(peer, STATE_MAP, name, 0);
}

/* The process is gone, and no copy of it is left. */
static void bury(struct peer *peer)
{
	fd_closep(&peer->socket);
	state_client_free(peer->client);
	peer->client = NULL;
	pump();
}

/* What the host sees of piece NAME. */
static struct gw_state_info look(const char *name)
{
	for (uint32_t i = 0; i < atomic_load(&page->high); i++) {
		struct gw_state_info info;

		assert_true(state_page_get(page, i, &info));
		if (info.status != 0 && strcmp(info.name, name) == 0)
			return info;
	}
	return (struct gw_state_info){0};
}

/* ---- the rules ---- */

static void mutable_state_passes_on_when_its_owner_is_gone(void **state)
{
	uint64_t piece;

	(void)state;
	piece = make(&peers[0], "cache", GW_STATE_MUTABLE);
	assert_int_equal(look("cache").owner_pid, 100);
	/* Alive: refused. Fenced: waited for. Gone: passed on, to the first who waits. */
	assert_int_equal(map(&peers[1], "cache"), -EBUSY);
	assert_non_null(strstr(peers[1].answer.error.msg, "pid 100"));
	state_client_fence(peers[0].client);
	assert_int_equal(map(&peers[1], "cache"), NO_ANSWER);
	assert_int_equal(map(&peers[2], "cache"), NO_ANSWER);
	assert_int_equal(look("cache").owner_pid, 100);
	bury(&peers[0]);
	assert_int_equal(hear(&peers[1]), 0);
	assert_int_equal(peers[1].answer.count, 1);
	assert_int_equal(peers[1].answer.entries[0].act, STATE_DO_MAP);
	assert_int_equal(peers[1].answer.entries[0].n_fds, 2);
	assert_true(peers[1].fds[1] >= 0);
	assert_int_equal(peers[1].answer.entries[0].piece, piece);
	assert_int_equal(hear(&peers[2]), -EBUSY);
	assert_non_null(strstr(peers[2].answer.error.msg, "pid 101"));
	assert_int_equal(look("cache").owner_pid, 101);
}

/* The process that waits ends itself. */
static void one_that_waited_and_ended_gets_nothing(void **state)
{
	(void)state;
	(void)make(&peers[0], "cache", GW_STATE_MUTABLE);
	state_client_fence(peers[0].client);
	assert_int_equal(map(&peers[1], "cache"), NO_ANSWER);
	assert_int_equal(map(&peers[2], "cache"), NO_ANSWER);
	assert_int_equal(map(&peers[3], "cache"), NO_ANSWER);
	bury(&peers[1]);
	state_client_fence(peers[2].client);
	assert_int_equal(hear(&peers[2]), GW_EFENCED);
	bury(&peers[0]);
	assert_int_equal(hear(&peers[3]), 0);
	assert_int_equal(look("cache").owner_pid, 103);
}

static void whoever_is_fenced_changes_nothing(void **state)
{
	static const enum state_wire_type types[] = {
		STATE_RESERVE, STATE_OFFER, STATE_SEAL, STATE_MAP,  STATE_COMMIT, STATE_SETTLE,
		STATE_UNMAP,   STATE_DROP,  STATE_LIST, STATE_NEXT, STATE_USAGE,  STATE_REFUSED,
	};
	struct gw_state_info before;
	uint64_t cache, half;

	(void)state;
	cache = make(&peers[0], "cache", GW_STATE_MUTABLE);
	half = make(&peers[0], "half", GW_STATE_SEALED);
	(void)make_sealed(&peers[1], "weights");
	assert_int_equal(ask(&peers[0], STATE_COMMIT, "", cache), 0);
	before = look("cache");
	assert_int_equal(before.status, GW_STATE_COPYING);
	assert_int_equal(before.epoch, 1);
	state_client_fence(peers[0].client);
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		const char *names[] = {"cache", "half", "weights", "new"};
		const uint64_t pieces[] = {cache, half};
		struct gw_state_info after;

		for (size_t j = 0; j < 8; j++) {
			struct state_request request =
				request_of(types[i], names[j % 4], pieces[j % 2]);

			assert_int_equal(ask_with(&peers[0], request, &memory_fd, 1), GW_EFENCED);
			assert_int_equal(peers[0].answer.count, 0);
		}
		after = look("cache");
		assert_memory_equal(&after, &before, sizeof(before));
		assert_int_equal(look("half").status, GW_STATE_MAKING);
		assert_int_equal(look("new").status, 0);
		assert_int_equal(atomic_load(&page->pieces), 3);
	}
	/* The next one ends the commit; what was never sealed is gone. */
	bury(&peers[0]);
	assert_int_equal(map(&peers[1], "cache"), 0);
	assert_int_equal(peers[1].answer.entries[0].act, STATE_DO_REDO);
	assert_int_equal(peers[1].answer.entries[0].epoch, 1);
	assert_int_equal(ask(&peers[1], STATE_COMMIT, "", 0), GW_EPROTOCOL);
	assert_int_equal(ask(&peers[1], STATE_SETTLE, "", cache), 0);
	assert_int_equal(look("cache").status, GW_STATE_READY);
	assert_int_equal(map(&peers[1], "half"), -ENOENT);
}

static void pieces_are_committed_together(void **state)
{
	struct state_request all = request_of(STATE_COMMIT, "", 0);
	uint64_t a, b;

	(void)state;
	a = make(&peers[0], "a", GW_STATE_MUTABLE);
	b = make(&peers[0], "b", GW_STATE_MUTABLE);
	(void)make(&peers[1], "other", GW_STATE_MUTABLE);
	(void)make_sealed(&peers[0], "weights");
	all.task = 42;
	assert_int_equal(ask_with(&peers[0], all, NULL, 0), 0);
	assert_int_equal(look("a").epoch, 1);
	assert_int_equal(look("b").epoch, 1);
	assert_int_equal(look("b").task, 42);
	assert_int_equal(look("other").epoch, 0);
	/* While they are copied they cannot be committed; one by one they are whole again. */
	assert_int_equal(ask(&peers[0], STATE_COMMIT, "", b), GW_EPROTOCOL);
	assert_int_equal(ask(&peers[0], STATE_SETTLE, "", a), 0);
	assert_int_equal(look("a").status, GW_STATE_READY);
	assert_int_equal(look("b").status, GW_STATE_COPYING);
	/* One of the two is not ready: neither counts. */
	assert_int_equal(ask(&peers[0], STATE_COMMIT, "", 0), GW_EPROTOCOL);
	assert_int_equal(look("a").epoch, 1);
	assert_int_equal(ask(&peers[0], STATE_SETTLE, "", b), 0);
	/* What is another's is nobody else's to commit, settle, seal or offer. */
	assert_int_equal(ask(&peers[1], STATE_COMMIT, "", a), -ENOENT);
	assert_int_equal(ask(&peers[1], STATE_SEAL, "", a), -ENOENT);
	assert_int_equal(ask(&peers[2], STATE_COMMIT, "", 0), -ENOENT);
	assert_int_equal(look("a").epoch, 1);
}

static void unsealed_pieces_are_waited_for(void **state)
{
	uint64_t piece;

	(void)state;
	piece = make(&peers[0], "weights", GW_STATE_SEALED);
	assert_int_equal(map(&peers[1], "weights"), NO_ANSWER);
	assert_int_equal(ask(&peers[0], STATE_SEAL, "", piece), 0);
	assert_int_equal(hear(&peers[1]), 0);
	assert_int_equal(peers[1].answer.entries[0].act, STATE_DO_MAP);
	assert_int_equal(peers[1].answer.entries[0].n_fds, 1);
	/* Its maker has it, and so has who mapped it. */
	assert_int_equal(map(&peers[0], "weights"), 0);
	assert_int_equal(peers[0].answer.entries[0].act, STATE_HAVE_IT);
	assert_int_equal(map(&peers[1], "weights"), 0);
	assert_int_equal(peers[1].answer.entries[0].act, STATE_HAVE_IT);
	(void)make(&peers[0], "never", GW_STATE_SEALED);
	assert_int_equal(map(&peers[2], "never"), NO_ANSWER);
	bury(&peers[0]);
	assert_int_equal(hear(&peers[2]), -ENOENT);
}

/* A process that the dead one forked holds the other end of its socket, and so may hold its kernels. */
static void a_copy_of_the_dead_keeps_what_it_had(void **state)
{
	int copy;

	(void)state;
	(void)make(&peers[0], "cache", GW_STATE_MUTABLE);
	(void)make(&peers[0], "half", GW_STATE_SEALED);
	copy = fcntl(peers[0].socket, F_DUPFD_CLOEXEC, 0);
	assert_true(copy >= 0);
	state_client_fence(peers[0].client);
	assert_int_equal(map(&peers[1], "cache"), NO_ANSWER);
	bury(&peers[0]);
	/* Who waited is told, since nobody knows how long it would be. */
	assert_int_equal(hear(&peers[1]), -EBUSY);
	assert_non_null(strstr(peers[1].answer.error.msg, "forked"));
	assert_int_equal(map(&peers[1], "cache"), -EBUSY);
	assert_int_equal(map(&peers[1], "half"), -ENOENT);
	/* The copy asks in vain. */
	peers[0].socket = copy;
	assert_int_equal(ask(&peers[0], STATE_COMMIT, "", 0), GW_EFENCED);
	fd_closep(&peers[0].socket);
	pump();
	assert_int_equal(map(&peers[1], "cache"), 0);
	assert_int_equal(atomic_load(&page->pieces), 1);
}

/* ---- in advance ---- */

static void sealed_state_is_told_of_in_advance(void **state)
{
	char name[GW_NAME_MAX];
	uint32_t mapped = 0;

	(void)state;
	for (uint32_t i = 0; i < 2 * STATE_BATCH + 3; i++) {
		(void)snprintf(name, sizeof(name), "piece%u", i);
		(void)make_sealed(&peers[0], name);
	}
	(void)make(&peers[0], "unsealed", GW_STATE_SEALED);
	(void)make(&peers[0], "cache", GW_STATE_MUTABLE);
	do {
		assert_int_equal(ask(&peers[1], STATE_NEXT, "", 0), 0);
		for (uint32_t i = 0; i < peers[1].answer.count; i++) {
			assert_int_equal(peers[1].answer.entries[i].act, STATE_DO_MAP);
			assert_true(peers[1].fds[i] >= 0);
			mapped++;
		}
	} while (peers[1].answer.more);
	assert_int_equal(mapped, 2 * STATE_BATCH + 3);
	/* From here on it hears of more, once until it asks. */
	assert_int_equal(peers[1].news, 0);
	(void)make_sealed(&peers[2], "later");
	(void)make_sealed(&peers[2], "latest");
	assert_int_equal(hear(&peers[1]), NO_ANSWER);
	assert_int_equal(peers[1].news, 1);
	assert_int_equal(ask(&peers[1], STATE_NEXT, "", 0), 0);
	assert_int_equal(peers[1].answer.count, 2);
	assert_int_equal(peers[1].news, 1);
	/* Who made it is not told to map it. */
	assert_int_equal(ask(&peers[2], STATE_NEXT, "", 0), 0);
	for (uint32_t i = 0; i < peers[2].answer.count; i++)
		assert_string_not_equal(peers[2].answer.entries[i].name, "later");
}

static void a_dropped_piece_ends_when_it_is_mapped_nowhere(void **state)
{
	uint64_t piece, address;

	(void)state;
	piece = make_sealed(&peers[0], "weights");
	address = look("weights").address;
	assert_int_equal(ask(&peers[1], STATE_NEXT, "", 0), 0);
	assert_int_equal(ask(&peers[2], STATE_NEXT, "", 0), 0);
	assert_int_equal(map(&peers[2], "weights"), 0);
	assert_int_equal(peers[2].answer.entries[0].act, STATE_HAVE_IT);
	/* One that a function asked for is in use; one that is mapped in advance is not. */
	assert_int_equal(ask(&peers[0], STATE_DROP, "weights", 0), -EBUSY);
	assert_non_null(strstr(peers[0].answer.error.msg, "pid 102"));
	assert_int_equal(ask(&peers[2], STATE_UNMAP, "", piece), 0);
	assert_int_equal(ask(&peers[0], STATE_DROP, "weights", 0), 0);
	assert_int_equal(peers[0].answer.entries[0].act, STATE_DO_FORGET);
	assert_int_equal(ask(&peers[0], STATE_UNMAP, "", piece), 0);
	assert_int_equal(look("weights").status, GW_STATE_DROPPED);
	assert_int_equal(atomic_load(&page->bytes), STATE_GRANULE);
	/* Its name is free, its address is not. */
	assert_int_equal(hear(&peers[1]), NO_ANSWER);
	assert_int_equal(peers[1].news, 1);
	(void)make_sealed(&peers[0], "weights");
	assert_int_not_equal(peers[0].client, NULL);
	assert_int_equal(ask(&peers[1], STATE_NEXT, "", 0), 0);
	assert_int_equal(peers[1].answer.count, 2);
	assert_int_equal(peers[1].answer.entries[0].act, STATE_DO_UNMAP);
	assert_int_equal(peers[1].answer.entries[0].piece, piece);
	assert_int_not_equal(peers[1].answer.entries[1].address, address);
	assert_int_equal(ask(&peers[1], STATE_UNMAP, "", piece), 0);
	assert_int_equal(atomic_load(&page->pieces), 1);
	(void)make_sealed(&peers[0], "more");
	assert_int_equal(look("more").address, address);
	/* The number of the one that ended means nothing any more. */
	assert_int_equal(ask(&peers[1], STATE_UNMAP, "", piece), 0);
	assert_int_equal(atomic_load(&page->pieces), 2);
}

/* ---- adversaries ---- */

static void what_breaks_the_rules_is_heard_no_more(void **state)
{
	struct state_request good = request_of(STATE_LIST, "", 0);
	struct state_request bad = good;
	const int many[STATE_FDS_MAX + 1] = {0};

	(void)state;
	(void)make(&peers[0], "cache", GW_STATE_MUTABLE);
	(void)make(&peers[3], "third", GW_STATE_MUTABLE);
	assert_int_equal(packet_send(peers[0].socket, &good, 7, NULL, 0), 0);
	bad.header.type = 99;
	assert_int_equal(packet_send(peers[1].socket, &bad, sizeof(bad), many, STATE_FDS_MAX), 0);
	bad = good;
	bad.header.magic++;
	assert_int_equal(packet_send(peers[2].socket, &bad, sizeof(bad), NULL, 0), 0);
	pump();
	for (int i = 0; i < 3; i++) {
		assert_true(peers[i].broke);
		(void)packet_send(peers[i].socket, &good, sizeof(good), NULL, 0);
		pump();
		assert_int_equal(hear(&peers[i]), NO_ANSWER);
	}
	assert_false(peers[3].broke);
	/* What they had is theirs until they are gone. */
	assert_int_equal(map(&peers[3], "cache"), -EBUSY);
	bury(&peers[0]);
	assert_int_equal(map(&peers[3], "cache"), 0);
}

static void what_is_no_memory_is_not_kept(void **state)
{
	struct state_request request = request_of(STATE_RESERVE, "odd", 0);
	int pipe_fds[2], pair[2], folder;
	int before;

	(void)state;
	request.kind = GW_STATE_SEALED;
	assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	folder = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(folder >= 0);
	assert_int_equal(ask_with(&peers[0], request, NULL, 0), 0);
	request = request_of(STATE_OFFER, "", peers[0].answer.entries[0].piece);
	before = count_descriptors();
	assert_int_equal(ask_with(&peers[0], request, &pipe_fds[0], 1), GW_EPROTOCOL);
	assert_int_equal(ask_with(&peers[0], request, &pair[0], 1), GW_EPROTOCOL);
	assert_int_equal(ask_with(&peers[0], request, &folder, 1), GW_EPROTOCOL);
	assert_int_equal(ask_with(&peers[0], request, &loop.epoll_fd, 1), GW_EPROTOCOL);
	assert_int_equal(ask_with(&peers[0], request, pair, 2), GW_EPROTOCOL);
	assert_int_equal(ask_with(&peers[0], request, NULL, 0), GW_EPROTOCOL);
	assert_int_equal(count_descriptors(), before);
	/* A seal of nothing is none. */
	request.header.type = STATE_SEAL;
	assert_int_equal(ask_with(&peers[0], request, NULL, 0), -EINVAL);
	request.header.type = STATE_OFFER;
	assert_int_equal(ask_with(&peers[0], request, &memory_fd, 1), 0);
	assert_int_equal(ask_with(&peers[0], request, &memory_fd, 1), -EALREADY);
	assert_int_equal(count_descriptors(), before + 1);
	packet_close_fds(pipe_fds, 2);
	packet_close_fds(pair, 2);
	fd_close(folder);
}

/* A worker that asks and asks and reads no answer: the ward keeps one request of it, and serves others. */
static void a_deaf_worker_costs_one_answer(void **state)
{
	struct state_request list = request_of(STATE_LIST, "", 0);
	uint32_t sent = 0, heard = 0;
	union state_any message;
	int fds[STATE_FDS_MAX];
	struct packet packet;

	(void)state;
	for (int round = 0; round < 50; round++) {
		while (packet_send(peers[0].socket, &list, sizeof(list), NULL, 0) == 0)
			sent++;
		pump();
	}
	assert_true(peers[0].client->answers);
	assert_int_equal(ask(&peers[1], STATE_LIST, "", 0), 0);
	/* It reads again: each request has its answer, in the end. */
	for (;;) {
		pump();
		if (packet_receive(peers[0].socket, &message, sizeof(message), fds, STATE_FDS_MAX,
				   &packet) <= 0)
			break;
		heard++;
	}
	assert_int_equal(heard, sent);
}

static void limits_hold(void **state)
{
	struct state_request request = request_of(STATE_RESERVE, "huge", 0);

	(void)state;
	request.copy_bytes = STATE_SPACE_BYTES / 2;
	request.bytes = request.copy_bytes;
	request.kind = GW_STATE_SEALED;
	assert_int_equal(ask_with(&peers[0], request, NULL, 0), 0);
	(void)snprintf(request.name, sizeof(request.name), "huger");
	assert_int_equal(ask_with(&peers[0], request, NULL, 0), GW_ELIMIT);
	assert_non_null(strstr(peers[0].answer.error.msg, "no gap"));
	request.copy_bytes = request.bytes = STATE_GRANULE;
	for (uint32_t i = 1; i < GW_STATES_MAX; i++) {
		(void)snprintf(request.name, sizeof(request.name), "%u", i);
		assert_int_equal(ask_with(&peers[i % 2], request, NULL, 0), 0);
	}
	(void)snprintf(request.name, sizeof(request.name), "over");
	assert_int_equal(ask_with(&peers[0], request, NULL, 0), GW_ELIMIT);
	assert_non_null(strstr(peers[0].answer.error.msg, "16384"));
	assert_int_equal(atomic_load(&page->pieces), GW_STATES_MAX);
	bury(&peers[0]);
	bury(&peers[1]);
	assert_int_equal(atomic_load(&page->pieces), 0);
	assert_int_equal(atomic_load(&page->bytes), 0);
}

static int begin_with_limit(void **state)
{
	return begin_limited(state, 5 * STATE_GRANULE);
}

static void the_limit_in_bytes_counts_all_copies(void **state)
{
	struct state_request request = request_of(STATE_RESERVE, "over", 0);

	(void)state;
	(void)make(&peers[0], "a", GW_STATE_MUTABLE);
	(void)make(&peers[1], "b", GW_STATE_MUTABLE);
	assert_int_equal(ask_with(&peers[0], request, NULL, 0), GW_ELIMIT);
	assert_non_null(strstr(peers[0].answer.error.msg, "2 pieces, 8 MiB: a 4 MiB, b 4 MiB"));
	request.kind = GW_STATE_SEALED;
	assert_int_equal(ask_with(&peers[0], request, NULL, 0), 0);
	assert_int_equal(ask(&peers[0], STATE_USAGE, "", 0), 0);
	assert_string_equal(peers[0].answer.error.msg,
			    "3 pieces, 10 MiB: a 4 MiB, b 4 MiB, over 2 MiB");
}

/* ---- anything at all ---- */

/* One owner at the most, who has it mapped; sums that add up; what the host sees is what there is. */
static void check_books(void)
{
	const struct state_pieces *pieces = &ward->pieces;
	uint32_t count = 0;
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < pieces->high; i++) {
		const struct state_piece *piece = &pieces->all[i];
		struct gw_state_info info;

		assert_true(state_page_get(page, i, &info));
		assert_int_equal(info.status, piece->status);
		if (piece->status == 0)
			continue;
		count++;
		bytes += info.held_bytes;
		assert_int_equal(info.epoch, piece->epoch);
		assert_int_equal(info.owner_pid, piece->owner_pid);
		if (piece->owner != STATE_NOBODY) {
			assert_non_null(ward->clients[piece->owner]);
			assert_true(state_clients_has(&piece->mapped, piece->owner));
		}
		if (piece->kind == GW_STATE_MUTABLE && piece->owner != STATE_NOBODY)
			assert_int_equal(state_clients_other(&piece->mapped, piece->owner),
					 STATE_NOBODY);
		if (piece->status == GW_STATE_DROPPED)
			assert_int_not_equal(state_clients_other(&piece->mapped, STATE_NOBODY),
					     STATE_NOBODY);
	}
	assert_int_equal(atomic_load(&page->pieces), count);
	assert_int_equal(atomic_load(&page->bytes), bytes);
}

static struct state_request random_request(struct seed *seed)
{
	char name[2] = {(char)('a' + seed_below(seed, 6)), '\0'};
	struct state_request request =
		request_of((enum state_wire_type)(1 + seed_below(seed, 11)), name,
			   (1 + seed_below(seed, 8)) << 32 | (1 + seed_below(seed, 8)));

	request.kind = 1 + (uint32_t)seed_below(seed, 2);
	request.access = 1 + (uint32_t)seed_below(seed, 2);
	request.copy_bytes = (1 + seed_below(seed, 3)) * STATE_GRANULE;
	if (seed_below(seed, 4) == 0)
		request.piece = 0;
	if (seed_below(seed, 200) == 0)
		request.header.type = 60;
	return request;
}

static void random_act(struct seed *seed, struct peer *peer, int32_t pid)
{
	const int fds[] = {memory_fd, memory_fd, memory_fd};
	struct state_request request = random_request(seed);

	if (!peer->client) {
		join(peer, pid);
	} else if (seed_below(seed, 60) == 0) {
		state_client_fence(peer->client);
	} else if (seed_below(seed, 60) == 0) {
		packet_close_fds(peer->fds, STATE_FDS_MAX);
		bury(peer);
	} else {
		/* A request of one piece by its right number, more often than chance has it. */
		if (peer->answer.count > 0 && seed_below(seed, 2) == 0)
			request.piece = peer->answer.entries[0].piece;
		request.number = ++peer->number;
		(void)packet_send(peer->socket, &request, sizeof(request), fds,
				  (size_t)seed_below(seed, 4));
	}
}

/* What is not answered before the next is asked would have another number. */
static void drain(struct peer *peer)
{
	union state_any message;
	int fds[STATE_FDS_MAX];
	struct packet packet;

	while (peer->socket >= 0 && packet_receive(peer->socket, &message, sizeof(message), fds,
						   STATE_FDS_MAX, &packet) > 0) {
		assert_int_equal(state_wire_check_answer(&message, packet.bytes), 0);
		packet_close_fds(fds, STATE_FDS_MAX);
		memcpy(&peer->answer, &message, packet.bytes);
	}
}

static void whatever_is_asked_the_books_are_right(void **state)
{
	struct seed seed = seed_new("state_ward");

	(void)state;
	for (int round = 0; round < 30000; round++) {
		uint32_t at = (uint32_t)seed_below(&seed, PEERS);

		random_act(&seed, &peers[at], 100 + (int32_t)at);
		pump();
		drain(&peers[at]);
		if (round % 10 == 0)
			check_books();
	}
	for (int i = 0; i < PEERS; i++)
		bury(&peers[i]);
	check_books();
}

#define state_test(function) cmocka_unit_test_setup_teardown(function, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		state_test(mutable_state_passes_on_when_its_owner_is_gone),
		state_test(one_that_waited_and_ended_gets_nothing),
		state_test(whoever_is_fenced_changes_nothing),
		state_test(pieces_are_committed_together),
		state_test(unsealed_pieces_are_waited_for),
		state_test(a_copy_of_the_dead_keeps_what_it_had),
		state_test(sealed_state_is_told_of_in_advance),
		state_test(a_dropped_piece_ends_when_it_is_mapped_nowhere),
		state_test(what_breaks_the_rules_is_heard_no_more),
		state_test(what_is_no_memory_is_not_kept),
		state_test(a_deaf_worker_costs_one_answer),
		state_test(limits_hold),
		cmocka_unit_test_setup_teardown(the_limit_in_bytes_counts_all_copies,
						begin_with_limit, end),
		state_test(whatever_is_asked_the_books_are_right),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
