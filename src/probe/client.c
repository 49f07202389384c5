/* SPDX-License-Identifier: MIT */
/*
 * The asking side of the probe.
 *
 * Runs in: ward and command line. Never waits for the probe without a deadline, and never for its death
 * once it is late: SIGKILL cannot end a process that sleeps in the driver.
 *
 *	here                              probe
 *	request, ticket 7        ->
 *	poll(socket, deadline)            hangs in NVML
 *	deadline: SIGKILL by pidfd,
 *	close, "does not answer"
 *	... goes on ...                   dies when the driver lets it; reaped by probe_reap()
 *
 * Read next: client.h, probe.c.
 */
#include "probe/client.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/err.h"
#include "common/fd.h"
#include "common/self.h"

/* So long a healthy probe may take to leave after its socket is closed; then it is killed. */
#define LEAVE_NS 500000000ULL

#define PROGRAM "gpuward-probe"

/* Says it here where it is known already; a failure of exec itself comes with the first question. */
static int check_program(const char *path, struct gw_error *ret_error)
{
	if (faccessat(AT_FDCWD, path, X_OK, AT_EACCESS) < 0)
		return err_os(ret_error, errno, "cannot start %s", path);
	return 0;
}

static int start(const char *path, int socket, struct spawned *ret_child,
		 struct gw_error *ret_error)
{
	const char *const arguments[] = {PROGRAM, NULL};
	const struct spawn spec = {
		.program = path,
		.argv = arguments,
		.envp = (const char *const *)environ,
		.fds = &socket,
		.n_fds = 1,
		/* For a probe that hangs in the driver and sees no end of its socket. */
		.flags = SPAWN_PDEATHSIG | SPAWN_NEW_GROUP};

	return spawn(&spec, ret_child, ret_error);
}

int probe_open(const char *path, uint64_t deadline_ns, struct probe *ret_probe,
	       struct gw_error *ret_error)
{
	struct probe probe = PROBE_NONE;
	char found[PATH_MAX];
	cleanup_fd int ours = -1;
	cleanup_fd int theirs = -1;
	int sockets[2];
	int code = path ? check_program(path, ret_error)
			: self_find_helper(PROGRAM, found, sizeof(found), ret_error);

	if (code < 0)
		return code;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0)
		return err_os(ret_error, errno, "cannot make a socket for the probe");
	ours = sockets[0];
	theirs = sockets[1];
	code = start(path ? path : found, theirs, &probe.child, ret_error);
	if (code < 0)
		return code;
	probe.socket = fd_steal(&ours);
	probe.deadline_ns = deadline_ns ? deadline_ns : PROBE_DEADLINE_NS;
	*ret_probe = probe;
	return 0;
}

bool probe_reap(struct probe *probe)
{
	struct procref_end end;

	if (procref_reap(&probe->child.process, &end) == 0)
		return false;
	spawn_done(&probe->child);
	return true;
}

/* Waits for FD to be readable until UNTIL_NS. Returns 1, 0 when the time is up, or -errno. */
static int wait_readable(int fd, uint64_t until_ns)
{
	struct pollfd entry = {.fd = fd, .events = POLLIN};

	for (;;) {
		uint64_t now = now_ns();
		uint64_t left_ns = now < until_ns ? until_ns - now : 0;
		struct timespec left = {(time_t)(left_ns / 1000000000),
					(long)(left_ns % 1000000000)};
		int ready = ppoll(&entry, 1, &left, NULL);

		if (ready >= 0)
			return ready;
		if (errno != EINTR)
			return -errno;
	}
}

void probe_close(struct probe *probe)
{
	struct procref_end end;
	bool given_up = probe->socket < 0;

	fd_closep(&probe->socket);
	if (!given_up && procref_wait(&probe->child.process, now_ns() + LEAVE_NS, &end) == 0) {
		(void)procref_signal(&probe->child.process, SIGKILL);
		(void)procref_wait(&probe->child.process, now_ns() + LEAVE_NS, &end);
	}
	(void)probe_reap(probe);
	spawn_done(&probe->child);
}

/* No more questions: keeps the reason for later ones. Returns its code. */
static int give_up(struct probe *probe, const struct gw_error *reason, struct gw_error *ret_error)
{
	(void)procref_signal(&probe->child.process, SIGKILL);
	fd_closep(&probe->socket);
	probe->ended = *reason;
	(void)probe_reap(probe);
	if (ret_error)
		*ret_error = *reason;
	return reason->code;
}

int probe_late(struct probe *probe, uint64_t deadline_ns, struct gw_error *ret_error)
{
	uint64_t millis = (deadline_ns + 999999) / 1000000;
	struct gw_error reason = {0};

	if (millis % 1000 == 0)
		(void)err_set(&reason, GW_EDRIVER, GW_DOMAIN_OS, ETIMEDOUT,
			      "driver does not answer (%llu s)",
			      (unsigned long long)(millis / 1000));
	else
		(void)err_set(&reason, GW_EDRIVER, GW_DOMAIN_OS, ETIMEDOUT,
			      "driver does not answer (%llu.%03llu s)",
			      (unsigned long long)(millis / 1000),
			      (unsigned long long)(millis % 1000));
	return give_up(probe, &reason, ret_error);
}

void probe_give_up(struct probe *probe, const struct gw_error *reason)
{
	(void)give_up(probe, reason, NULL);
}

/* RESULT and END as from procref_reap(). */
static int give_up_ended(struct probe *probe, int result, const struct procref_end *end,
			 struct gw_error *ret_error)
{
	struct gw_error reason = {0};

	if (spawn_failure(&probe->child, PROGRAM, &reason) < 0)
		return give_up(probe, &reason, ret_error);
	if (result != 1)
		(void)err_own(&reason, GW_EDRIVER, "the probe process closed its socket");
	else if (!end->by_signal)
		(void)err_own(&reason, GW_EDRIVER,
			      "the probe process exited with code %d while it asked the driver",
			      end->value);
	else
		(void)err_own(&reason, GW_EDRIVER,
			      "the probe process was killed by signal %d (%s) while it asked the "
			      "driver",
			      end->value, sigdescr_np(end->value));
	return give_up(probe, &reason, ret_error);
}

/* The end of the socket can be seen a moment before the process can be reaped. */
static int give_up_dead(struct probe *probe, struct gw_error *ret_error)
{
	struct procref_end end = {0};
	int result = procref_wait(&probe->child.process, now_ns() + LEAVE_NS, &end);

	return give_up_ended(probe, result, &end, ret_error);
}

static int give_up_garbled(struct probe *probe, int code, struct gw_error *ret_error)
{
	struct gw_error reason = {0};

	if (code == GW_EVERSION)
		(void)err_own(&reason, code,
			      "the probe program is of another version: install gpuward anew");
	else
		(void)err_own(&reason, code, "the probe sent a message that breaks the rules");
	return give_up(probe, &reason, ret_error);
}

static void keep_event(struct probe *probe, const struct probe_reply *reply)
{
	uint32_t last = (probe->event_first + probe->event_count) % PROBE_EVENTS_MAX;

	probe->events_dropped += reply->xid.dropped;
	if (probe->event_count == PROBE_EVENTS_MAX) {
		probe->events_dropped++;
		return;
	}
	probe->events[last] = (struct probe_event){reply->error, reply->xid};
	probe->event_count++;
}

/* Takes one message. Returns 1 and *RET_REPLY, 0 when there is none, -EPIPE at the end of the socket, or the
 * code of giving up. */
static int receive(struct probe *probe, struct probe_reply *ret_reply, struct gw_error *ret_error)
{
	union {
		struct probe_reply reply;
		char bytes[sizeof(struct probe_reply) + 1]; /* a longer message shows */
	} message;
	ssize_t got;
	int code;

	do {
		got = recv(probe->socket, &message, sizeof(message), MSG_DONTWAIT);
	} while (got < 0 && errno == EINTR);
	if (got < 0 && errno == EAGAIN)
		return 0;
	if (got <= 0)
		return -EPIPE;
	code = probe_take_reply(&message, (size_t)got, ret_reply);
	return code < 0 ? give_up_garbled(probe, code, ret_error) : 1;
}

static int take_message(struct probe *probe, struct probe_reply *ret_reply,
			struct gw_error *ret_error)
{
	int code = receive(probe, ret_reply, ret_error);

	return code == -EPIPE ? give_up_dead(probe, ret_error) : code;
}

/* Returns 0 or -errno. */
static int send_request(struct probe *probe, uint32_t kind, uint32_t device)
{
	struct probe_request request = {.magic = PROBE_MAGIC,
					.layout = PROBE_LAYOUT,
					.kind = (uint16_t)kind,
					.device = device,
					.ticket = ++probe->ticket};
	ssize_t sent;

	do {
		sent = send(probe->socket, &request, sizeof(request), MSG_NOSIGNAL | MSG_DONTWAIT);
	} while (sent < 0 && errno == EINTR);
	return sent < 0 ? -errno : 0;
}

/* Waits for the answer to the last request; events that come first are kept. */
static int await_reply(struct probe *probe, uint32_t kind, struct probe_reply *ret_reply,
		       struct gw_error *ret_error)
{
	uint64_t until_ns = now_ns() + probe->deadline_ns;

	for (;;) {
		int code = wait_readable(probe->socket, until_ns);

		if (code == 0)
			return probe_late(probe, probe->deadline_ns, ret_error);
		if (code < 0)
			return err_os(ret_error, -code, "cannot wait for the probe");
		code = take_message(probe, ret_reply, ret_error);
		if (code < 0)
			return code;
		if (code == 0)
			continue;
		if (ret_reply->kind == PROBE_XID)
			keep_event(probe, ret_reply);
		else if (ret_reply->kind != kind || ret_reply->ticket != probe->ticket)
			return give_up_garbled(probe, GW_EPROTOCOL, ret_error);
		else
			break;
	}
	if (ret_reply->error.code < 0 && ret_error)
		*ret_error = ret_reply->error;
	return ret_reply->error.code;
}

static int already_ended(const struct probe *probe, struct gw_error *ret_error)
{
	if (ret_error)
		*ret_error = probe->ended;
	return probe->ended.code;
}

static int ask(struct probe *probe, uint32_t kind, uint32_t device, struct probe_reply *ret_reply,
	       struct gw_error *ret_error)
{
	int code;

	if (probe->socket < 0)
		return already_ended(probe, ret_error);
	code = send_request(probe, kind, device);
	return code < 0 ? give_up_dead(probe, ret_error)
			: await_reply(probe, kind, ret_reply, ret_error);
}

int probe_send(struct probe *probe, enum probe_kind kind, uint32_t device,
	       struct gw_error *ret_error)
{
	int code;

	if (probe->socket < 0)
		return already_ended(probe, ret_error);
	code = send_request(probe, kind, device);
	/* Its death is told by probe_take(), after the messages that it sent before. */
	return code < 0 && code != -EPIPE ? err_os(ret_error, -code, "the probe takes no question")
					  : 0;
}

int probe_take(struct probe *probe, struct probe_reply *ret_reply, struct gw_error *ret_error)
{
	struct procref_end end = {0};
	int code;

	if (probe->socket < 0)
		return already_ended(probe, ret_error);
	code = receive(probe, ret_reply, ret_error);
	if (code != -EPIPE)
		return code;
	code = procref_reap(&probe->child.process, &end);
	if (code != 0)
		return give_up_ended(probe, code, &end, ret_error);
	probe->hung_up = true;
	return 0;
}

int probe_ask_driver(struct probe *probe, struct probe_driver *ret, struct gw_error *ret_error)
{
	struct probe_reply reply;
	int code = ask(probe, PROBE_DRIVER, 0, &reply, ret_error);

	if (code == 0)
		*ret = reply.driver;
	return code;
}

int probe_ask_device(struct probe *probe, uint32_t device, struct probe_device *ret,
		     struct gw_error *ret_error)
{
	struct probe_reply reply;
	int code = ask(probe, PROBE_DEVICE, device, &reply, ret_error);

	if (code == 0)
		*ret = reply.device;
	return code;
}

int probe_ask_memory(struct probe *probe, uint32_t device, struct probe_memory *ret,
		     struct gw_error *ret_error)
{
	struct probe_reply reply;
	int code = ask(probe, PROBE_MEMORY, device, &reply, ret_error);

	if (code == 0)
		*ret = reply.memory;
	return code;
}

int probe_ask_processes(struct probe *probe, uint32_t device, struct probe_processes *ret,
			struct gw_error *ret_error)
{
	struct probe_reply reply;
	int code = ask(probe, PROBE_PROCESSES, device, &reply, ret_error);

	if (code == 0)
		*ret = reply.processes;
	return code;
}

int probe_ask_recovery(struct probe *probe, uint32_t device, enum probe_action *ret,
		       struct gw_error *ret_error)
{
	struct probe_reply reply;
	int code = ask(probe, PROBE_RECOVERY, device, &reply, ret_error);

	if (code == 0)
		*ret = (enum probe_action)reply.recovery.action;
	return code;
}

int probe_watch(struct probe *probe, struct gw_error *ret_error)
{
	struct probe_reply reply;

	return ask(probe, PROBE_WATCH, 0, &reply, ret_error);
}

int probe_next_event(struct probe *probe, struct probe_event *ret_event, struct gw_error *ret_error)
{
	struct probe_reply reply;
	int code = 1;

	if (probe->event_count == 0) {
		if (probe->socket < 0)
			return already_ended(probe, ret_error);
		code = take_message(probe, &reply, ret_error);
		if (code <= 0)
			return code;
		if (reply.kind != PROBE_XID)
			return give_up_garbled(probe, GW_EPROTOCOL, ret_error);
		keep_event(probe, &reply);
	}
	*ret_event = probe->events[probe->event_first];
	probe->event_first = (probe->event_first + 1) % PROBE_EVENTS_MAX;
	probe->event_count--;
	return 1;
}
