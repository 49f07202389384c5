/* SPDX-License-Identifier: MIT */
#include "ward/keep.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/err.h"
#include "common/fd.h"
#include "common/keep_place.h"
#include "common/packet.h"
#include "ward/keep_start.h"

#define MS UINT64_C(1000000)

/* From the first try until the state is here: the keeper itself says after eight seconds for whom it waits. */
#define OPEN_NS (10000 * MS)
/* The same for a new keeper in place of a dead one: it waits for nobody. */
#define HEAL_NS (5000 * MS)
/* A keeper that takes nothing for so long was stopped. */
#define STUCK_NS (1000 * MS)
/* Two dead keepers in so short a time: a third one would die as well. */
#define HEALED_NS (10000 * MS)
/* Too many connect at this moment, or the kernel had no memory. */
#define RETRY_NS (10 * MS)
/* For the end of a keeper that holds nothing. */
#define END_NS (1000 * MS)

enum phase {
	CONNECTING,
	GREETING,
	TAKING,
	GIVING,
	LIVE,
	KILLING,
	LOST,
};

struct keep {
	struct loop *loop;
	const struct keep_calls *calls;
	void *owner;
	char name[GW_NAME_MAX];
	enum phase phase;
	bool opened; /* once: from then on a failure is a loss */
	int folder;
	int host; /* its pidfd, borrowed */
	int socket;
	struct loop_source source;
	struct procref keeper; /* at the other end, once it has welcomed */
	struct loop_source keeper_source;
	struct spawned child; /* the keeper that was started here last; not reaped yet */
	bool child_served;    /* it has welcomed */
	struct loop_source child_source;
	char program[PATH_MAX];
	struct loop_timer deadline;
	struct loop_timer retry;
	uint64_t healed_ns;
	uint32_t place; /* GIVING: from here on */
};

static void connect_now(struct keep *keep);

/* ---- letting go ---- */

static void close_socket(struct keep *keep)
{
	loop_remove(keep->loop, &keep->source);
	fd_closep(&keep->socket);
}

static void forget_keeper(struct keep *keep)
{
	loop_remove(keep->loop, &keep->keeper_source);
	fd_closep(&keep->keeper.pidfd);
	keep->keeper = PROCREF_NONE;
}

/* It has ended, or is somebody else's to reap. */
static void forget_child(struct keep *keep)
{
	loop_remove(keep->loop, &keep->child_source);
	spawn_done(&keep->child);
	keep->child_served = false;
}

/* ERROR ends it: before the pool is open the pool, later the keeping. */
static void fail(struct keep *keep, const struct gw_error *error)
{
	bool opened = keep->opened;

	close_socket(keep);
	forget_keeper(keep);
	loop_set_timer(&keep->deadline, GW_FOREVER);
	loop_set_timer(&keep->retry, GW_FOREVER);
	keep->phase = LOST;
	keep->opened = true;
	if (!opened) {
		keep->calls->opened(keep->owner, error);
		return;
	}
	(void)dprintf(STDERR_FILENO,
		      "gpuward-ward: state '%s' is not kept beyond this pool any more: %s\n",
		      keep->name, error->msg);
	keep->calls->lost(keep->owner);
	keep->calls->ready(keep->owner);
}

static void fail_own(struct keep *keep, int code, const char *what)
{
	struct gw_error error;

	(void)err_own(&error, code, "state '%s': %s", keep->name, what);
	fail(keep, &error);
}

/* ---- a keeper that is no use any more ---- */

static void on_keeper_end(struct loop_source *source, uint32_t events)
{
	struct keep *keep = source->owner;

	(void)events;
	forget_keeper(keep);
	connect_now(keep);
}

/*
 * The keeper is dead, or as good as dead. Killed first in any case: it may go on later, with what it was told until
 * then, while the memory has changed.
 */
static void heal(struct keep *keep)
{
	uint64_t now = now_ns();
	int result;

	close_socket(keep);
	(void)procref_signal(&keep->keeper, SIGKILL);
	if (keep->healed_ns > 0 && now - keep->healed_ns < HEALED_NS) {
		fail_own(keep, GW_EPROTOCOL, "its keeper died twice within ten seconds");
		return;
	}
	keep->healed_ns = now;
	keep->phase = KILLING;
	loop_set_timer(&keep->deadline, now + HEAL_NS);
	result = loop_add(keep->loop, &keep->keeper_source, keep->keeper.pidfd, EPOLLIN);
	if (result < 0)
		fail_own(keep, result, "the end of its keeper cannot be watched");
}

static void on_deadline(struct loop_timer *timer)
{
	struct keep *keep = timer->owner;

	if (keep->phase == LIVE || keep->phase == GIVING)
		heal(keep);
	else
		fail_own(keep, -ETIMEDOUT,
			 "its keeper does not answer in time (it is stopped, or the machine is "
			 "overloaded)");
}

/* ---- sending ---- */

/* What was not taken now: waits for room, or for the kernel. Returns whether there is hope. */
static bool wait_for_room(struct keep *keep, int result)
{
	if (result == -EAGAIN) {
		if (keep->deadline.due_ns == GW_FOREVER)
			loop_set_timer(&keep->deadline, now_ns() + STUCK_NS);
		(void)loop_change(keep->loop, &keep->source, EPOLLIN | EPOLLOUT);
		return true;
	}
	if (result == -ENOMEM || result == -ENOBUFS || result == -ETOOMANYREFS) {
		loop_set_timer(&keep->retry, now_ns() + RETRY_NS);
		return true;
	}
	return false;
}

bool keep_send(struct keep *keep, const void *message, size_t bytes, const int *fds, size_t n_fds)
{
	int result;

	if (keep->phase == LOST)
		return true;
	if (keep->phase != LIVE)
		return false;
	result = packet_send(keep->socket, message, bytes, fds, n_fds);
	if (result == 0)
		return true;
	/* Its end lies in the socket, and the loop tells of it. */
	(void)wait_for_room(keep, result);
	return false;
}

static void go_live(struct keep *keep)
{
	bool opened = keep->opened;

	keep->phase = LIVE;
	keep->opened = true;
	loop_set_timer(&keep->deadline, GW_FOREVER);
	(void)loop_change(keep->loop, &keep->source, EPOLLIN);
	if (opened)
		keep->calls->ready(keep->owner);
	else
		keep->calls->opened(keep->owner, NULL);
}

static void give_more(struct keep *keep)
{
	struct keep_piece piece;
	int fds[KEEP_FDS_MAX];
	size_t n_fds;

	for (;;) {
		uint32_t place = keep->place;
		int result;

		if (!keep->calls->give(keep->owner, &place, &piece, fds, &n_fds))
			break;
		result = packet_send(keep->socket, &piece, sizeof(piece), fds, n_fds);
		if (result < 0 && wait_for_room(keep, result))
			return;
		if (result < 0) {
			heal(keep);
			return;
		}
		keep->place = place;
	}
	go_live(keep);
}

/* ---- what the keeper says ---- */

/* So that it can be killed: what lived when it answered, and still has the other end, is this process. */
static int refer_to_keeper(struct keep *keep, struct gw_error *ret_error)
{
	struct pollfd fd = {.fd = keep->socket};
	int pid = -1;
	int result;

	forget_keeper(keep);
	if (keep->child.process.pid > 0) {
		keep->keeper.pid = keep->child.process.pid;
		keep->keeper.pidfd = dup(keep->child.process.pidfd);
		return keep->keeper.pidfd < 0
			       ? err_os(ret_error, errno, "the ward cannot refer to the keeper")
			       : 0;
	}
	if (!keep_place_is_own(keep->socket, &pid))
		return err_own(ret_error, -EACCES, "the keeper of state '%s' is another user's",
			       keep->name);
	result = procref_open(&keep->keeper, pid, ret_error);
	if (result == 0 && poll(&fd, 1, 0) > 0 && (fd.revents & (POLLHUP | POLLERR)))
		return err_own(ret_error, -ECONNRESET, "the keeper of state '%s' has just ended",
			       keep->name);
	return result;
}

static void on_welcome(struct keep *keep, const struct keep_welcome *welcome)
{
	struct gw_error error;

	if (welcome->error.code < 0) {
		fail(keep, &welcome->error);
		return;
	}
	if (refer_to_keeper(keep, &error) < 0) {
		fail(keep, &error);
		return;
	}
	keep->child_served = keep->child.process.pid > 0;
	if (keep->opened && welcome->pieces > 0) {
		fail_own(keep, -EBUSY, "another pool has used its name meanwhile");
		return;
	}
	keep->phase = TAKING;
}

static void on_piece(struct keep *keep, const struct keep_piece *piece, int *fds)
{
	int result = keep->calls->adopt(keep->owner, piece, fds);

	if (result < 0)
		fail_own(keep, result, "what its keeper holds does not fit together");
}

static void on_taken(struct keep *keep)
{
	if (!keep->opened) {
		go_live(keep);
		return;
	}
	keep->phase = GIVING;
	keep->place = 0;
	loop_set_timer(&keep->deadline, GW_FOREVER);
	give_more(keep);
}

static void on_broken(struct keep *keep)
{
	if (keep->phase == LIVE || keep->phase == GIVING)
		heal(keep);
	else
		fail_own(keep, GW_EPROTOCOL, "its keeper breaks the rules");
}

static void on_message(struct keep *keep, const union keep_any *message, int *fds, size_t n_fds)
{
	uint32_t type = message->header.type;

	if (keep->phase == GREETING && type == KEEP_WELCOME)
		on_welcome(keep, &message->welcome);
	else if (keep->phase == TAKING && type == KEEP_PIECE && message->piece.owner_pid == -1 &&
		 n_fds == keep_wire_fds(message))
		on_piece(keep, &message->piece, fds);
	else if (keep->phase == TAKING && type == KEEP_END)
		on_taken(keep);
	else
		on_broken(keep);
}

static void on_other_version(struct keep *keep, const struct keep_header *header)
{
	struct gw_error error;

	(void)err_own(&error, GW_EVERSION,
		      "state '%s' is held by a keeper of gpuward %s (layout %u), and this ward is "
		      "%s (layout %u): use the same build, or end the keeper and its state",
		      keep->name, header->version, header->layout, GW_VERSION_TEXT, KEEP_LAYOUT);
	fail(keep, &error);
}

/* A keeper that was just ending, or one that was started although another was faster. */
static void on_end(struct keep *keep)
{
	if (keep->phase == LIVE || keep->phase == GIVING) {
		heal(keep);
		return;
	}
	close_socket(keep);
	forget_keeper(keep);
	keep->phase = CONNECTING;
	/* With a child its end is waited for, which says more. */
	if (keep->child.process.pid < 0)
		loop_set_timer(&keep->retry, now_ns() + RETRY_NS);
}

static void read_one(struct keep *keep)
{
	union keep_any message;
	int fds[KEEP_FDS_MAX];
	struct packet packet;
	int result =
		packet_receive(keep->socket, &message, sizeof(message), fds, KEEP_FDS_MAX, &packet);

	if (result == -EAGAIN || result == -ENOMEM || result == -ENOBUFS)
		return;
	if (result <= 0) {
		on_end(keep);
		return;
	}
	if (packet.no_room) {
		packet_close_fds(fds, KEEP_FDS_MAX);
		fail_own(keep, -EMFILE, "the ward has no room for its descriptors (ulimit -Hn)");
		return;
	}
	result = packet.too_much ? GW_EPROTOCOL : keep_wire_check(&message, packet.bytes, false);
	if (result == GW_EVERSION)
		on_other_version(keep, &message.header);
	else if (result == 0)
		on_message(keep, &message, fds, packet.n_fds);
	else
		on_broken(keep);
	packet_close_fds(fds, KEEP_FDS_MAX);
}

static void on_ready(struct loop_source *source, uint32_t events)
{
	struct keep *keep = source->owner;

	if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
		read_one(keep);
		return;
	}
	loop_set_timer(&keep->deadline, GW_FOREVER);
	(void)loop_change(keep->loop, &keep->source, EPOLLIN);
	if (keep->phase == GIVING)
		give_more(keep);
	else
		keep->calls->ready(keep->owner);
}

/* ---- connecting ---- */

static void greet(struct keep *keep, int socket)
{
	struct keep_hello hello = {.role = KEEP_WARD, .pid = getpid()};
	struct procref self = PROCREF_NONE;
	struct gw_error error;
	int result;

	keep->socket = socket;
	keep->phase = GREETING;
	keep_header_init(&hello.header, KEEP_HELLO, sizeof(hello));
	result = procref_open(&self, getpid(), &error);
	if (result == 0) {
		/* If it is ending, its end says so. */
		(void)packet_send(socket, &hello, sizeof(hello),
				  (const int[]){self.pidfd, keep->host}, 2);
		result = loop_add(keep->loop, &keep->source, socket, EPOLLIN);
		if (result < 0)
			(void)err_os(&error, -result, "the ward cannot watch the keeper");
	}
	procref_done(&self);
	if (result < 0)
		fail(keep, &error);
}

static int spawn_keeper(struct keep *keep, int socket, struct gw_error *ret_error)
{
	int result = keep_start(keep->name, socket, keep->program, &keep->child, ret_error);

	if (result < 0)
		return result;
	result = loop_add(keep->loop, &keep->child_source, keep->child.process.pidfd, EPOLLIN);
	return result < 0 ? err_os(ret_error, -result, "the ward cannot watch the keeper") : 0;
}

static void start_keeper(struct keep *keep)
{
	struct gw_error error;
	int sockets[2];
	int result;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0) {
		fail_own(keep, -errno, "there is no socket for its keeper");
		return;
	}
	result = fd_set_nonblocking(sockets[0]);
	if (result < 0)
		(void)err_os(&error, -result, "the ward cannot set up the keeper's socket");
	else
		result = spawn_keeper(keep, sockets[1], &error);
	fd_close(sockets[1]);
	if (result < 0) {
		fd_close(sockets[0]);
		fail(keep, &error);
		return;
	}
	greet(keep, sockets[0]);
}

static void connect_now(struct keep *keep)
{
	struct gw_error error;
	int socket;

	keep->phase = CONNECTING;
	/* The one that was started here is still ending: then on. */
	if (keep->child.process.pid > 0)
		return;
	socket = keep_place_connect(keep->folder, keep->name);
	if (socket >= 0) {
		greet(keep, socket);
	} else if (socket == -ENOENT || socket == -ECONNREFUSED) {
		start_keeper(keep);
	} else if (socket == -EAGAIN) {
		loop_set_timer(&keep->retry, now_ns() + RETRY_NS);
	} else if (socket == -EACCES) {
		fail_own(keep, -EACCES, "it is kept by a process of another user");
	} else {
		(void)err_os(&error, -socket, "cannot connect to the keeper of state '%s'",
			     keep->name);
		fail(keep, &error);
	}
}

/* The keeper that was started here has ended: it was not needed, could not start, or was killed. */
static void on_child_end(struct loop_source *source, uint32_t events)
{
	struct keep *keep = source->owner;
	struct procref_end end = {0};
	struct gw_error error;
	bool served;
	int result;

	(void)events;
	if (procref_reap(&keep->child.process, &end) == 0)
		return;
	/* What it said before comes first. */
	if (keep->phase == GREETING && keep->source.fd >= 0)
		read_one(keep);
	served = keep->child_served;
	result = spawn_failure(&keep->child, keep->program, &error);
	forget_child(keep);
	if (keep->phase != CONNECTING && keep->phase != GREETING)
		return;
	if (result == 0 && !served && (end.by_signal || end.value != 0))
		result = err_own(&error, GW_EPROTOCOL,
				 "the keeper of state '%s' %s %d at its start", keep->name,
				 end.by_signal ? "was killed by signal" : "exited with code",
				 end.value);
	close_socket(keep);
	if (result < 0)
		fail(keep, &error);
	else
		connect_now(keep);
}

static void on_retry(struct loop_timer *timer)
{
	struct keep *keep = timer->owner;

	if (keep->phase == CONNECTING)
		connect_now(keep);
	else if (keep->phase == GIVING)
		give_more(keep);
	else if (keep->phase == LIVE)
		keep->calls->ready(keep->owner);
}

/* ---- the whole ---- */

int keep_new(struct loop *loop, const char *name, int host, const struct keep_calls *calls,
	     void *owner, struct keep **ret_keep, struct gw_error *ret_error)
{
	int folder = keep_place_open(true, ret_error);
	struct keep *keep;

	if (folder < 0)
		return folder;
	keep = calloc(1, sizeof(*keep));
	if (!keep) {
		fd_close(folder);
		return err_os(ret_error, ENOMEM, "no memory to keep state '%s'", name);
	}
	*keep = (struct keep){.loop = loop,
			      .calls = calls,
			      .owner = owner,
			      .folder = folder,
			      .host = host,
			      .socket = -1,
			      .keeper = PROCREF_NONE,
			      .child = SPAWNED_NONE};
	(void)snprintf(keep->name, sizeof(keep->name), "%s", name);
	keep->source = (struct loop_source){.fd = -1, .ready = on_ready, .owner = keep};
	keep->keeper_source = (struct loop_source){.fd = -1, .ready = on_keeper_end, .owner = keep};
	keep->child_source = (struct loop_source){.fd = -1, .ready = on_child_end, .owner = keep};
	keep->deadline = (struct loop_timer){.due = on_deadline, .owner = keep};
	keep->retry = (struct loop_timer){.due = on_retry, .owner = keep};
	loop_add_timer(loop, &keep->deadline);
	loop_add_timer(loop, &keep->retry);
	loop_set_timer(&keep->deadline, now_ns() + OPEN_NS);
	loop_set_timer(&keep->retry, now_ns());
	*ret_keep = keep;
	return 0;
}

const char *keep_name(const struct keep *keep)
{
	return keep->name;
}

int32_t keep_pid(const struct keep *keep)
{
	return keep->keeper.pid;
}

void keep_free(struct keep *keep, bool empty)
{
	struct procref_end end;

	if (!keep)
		return;
	close_socket(keep);
	forget_keeper(keep);
	if (keep->child.process.pid > 0 && empty)
		(void)procref_wait(&keep->child.process, now_ns() + END_NS, &end);
	forget_child(keep);
	loop_remove_timer(keep->loop, &keep->deadline);
	loop_remove_timer(keep->loop, &keep->retry);
	fd_close(keep->folder);
	free(keep);
}
