/* SPDX-License-Identifier: MIT */
#include "ward/ward.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/err.h"
#include "common/fd.h"
#include "ward/deadline.h"
#include "ward/heartbeat.h"
#include "ward/leaving.h"
#include "ward/outbox.h"
#include "ward/recovery.h"
#include "ward/standby.h"
#include "ward/turn.h"

/* Exit codes of the ward, for the host's message when it dies early. */
#define EXIT_BAD_START 125

/* ---- closing ---- */

static bool are_at_rest(const struct slot *slots, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		if (slots[i].state != SLOT_EMPTY && slots[i].state != SLOT_FAILED)
			return false;
	}
	return true;
}

void ward_check_end(struct ward *ward)
{
	if (!ward->closing)
		return;
	if (are_at_rest(ward->slots, ward->n_slots) &&
	    are_at_rest(ward->standbys, ward->n_standbys) && leaving_is_over(ward))
		loop_end(&ward->loop);
}

void ward_settle(struct ward *ward)
{
	/* What follows from an event comes after all of the event: what is urgent is done by then. */
	if (ward->depth > 0)
		return;
	if (!ward->closing) {
		turn_give(ward);
		standby_refill(ward);
	}
	recovery_settle(ward);
	ward_check_end(ward);
}

static void all_happen(struct ward *ward, enum slot_event event, const struct cause *why)
{
	for (uint32_t i = 0; i < ward->n_slots; i++)
		slot_happens(&ward->slots[i], event, why);
	for (uint32_t i = 0; i < ward->n_standbys; i++)
		slot_happens(&ward->standbys[i], event, why);
}

void ward_close(struct ward *ward)
{
	static const struct cause asked = {.end = GW_END_STOPPED, .source = GW_SOURCE_REQUEST};

	ward->closing = true;
	signs_stop(ward);
	all_happen(ward, EVENT_STOP, &asked);
	ward_check_end(ward);
}

void ward_lose_host(struct ward *ward)
{
	static const struct cause lost = {.end = GW_END_STOPPED, .source = GW_SOURCE_REQUEST};

	if (ward->host_gone)
		return;
	ward->host_gone = true;
	ward->closing = true;
	loop_remove(&ward->loop, &ward->host_source);
	loop_remove(&ward->loop, &ward->host_exit_source);
	outbox_flush(ward);
	all_happen(ward, EVENT_KILL_REQUEST, &lost);
	ward_close(ward);
}

/* A process that survived SIGKILL must be told of: nobody else does any more. */
static void say_left(const struct process *process)
{
	if (process)
		(void)dprintf(STDERR_FILENO,
			      "gpuward-ward: worker pid %d does not end after SIGKILL, and is "
			      "left\n",
			      process->spawned.process.pid);
}

static void say_what_is_left(const struct ward *ward)
{
	for (uint32_t i = 0; i < ward->n_slots; i++)
		say_left(ward->slots[i].process);
	for (uint32_t i = 0; i < ward->n_standbys; i++)
		say_left(ward->standbys[i].process);
	for (const struct process *process = ward->leaving; process; process = process->next)
		say_left(process);
}

static void kill_process(const struct process *process)
{
	if (process)
		(void)procref_signal(&process->spawned.process, SIGKILL);
}

/* The loop itself failed. The kernel would end the workers with the ward; this is in case that it takes
 * the ward long to end. */
static void give_up(struct ward *ward, int error)
{
	(void)dprintf(STDERR_FILENO, "gpuward-ward: the event loop failed: %s\n", strerror(-error));
	for (uint32_t i = 0; i < ward->n_slots; i++)
		kill_process(ward->slots[i].process);
	for (uint32_t i = 0; i < ward->n_standbys; i++)
		kill_process(ward->standbys[i].process);
	ward->exit_code = EXIT_BAD_START;
}

/* ---- opening ---- */

static void refuse(struct ward *ward, const struct gw_error *error)
{
	struct wire_failed failed = {.whole_pool = 1, .error = *error};

	wire_header_init(&failed.header, WIRE_FAILED, sizeof(failed));
	(void)wire_send(ward->host_socket, &failed, NULL, 0);
	ward->exit_code = EXIT_BAD_START;
	ward_lose_host(ward);
}

static int map_page(struct ward *ward, int fd, struct gw_error *ret_error)
{
	struct stat status;
	void *page;

	if (fstat(fd, &status) < 0)
		return err_os(ret_error, errno, "ward: cannot look at the pool's page");
	if ((uint64_t)status.st_size < sizeof(struct pool_page))
		return err_own(ret_error, GW_EPROTOCOL, "ward: the pool's page is too small");
	page = mmap(NULL, sizeof(struct pool_page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED)
		return err_os(ret_error, errno, "ward: cannot map the pool's page");
	ward->page = page;
	if (!pool_page_is_known(ward->page))
		return err_own(ret_error, GW_EVERSION,
			       "ward: the pool's page is of another layout; install host and ward "
			       "from the same build");
	return 0;
}

/* argv of the workers, from the strings of the message or from the program's own path. */
static int make_argv(struct ward *ward, struct gw_error *ret_error)
{
	const char *next = ward->open.command;
	uint32_t count = ward->open.command_count;

	ward->argv = calloc((size_t)count + 2, sizeof(*ward->argv));
	if (!ward->argv)
		return err_os(ret_error, ENOMEM, "ward: cannot keep the workers' command");
	for (uint32_t i = 0; i < count; i++) {
		ward->argv[i] = next;
		next += strlen(next) + 1;
	}
	if (count == 0) {
		char link[64];
		ssize_t bytes;

		(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", ward->program_fd);
		bytes = readlink(link, ward->program, sizeof(ward->program) - 1);
		(void)snprintf(ward->program + (bytes > 0 ? bytes : 0),
			       sizeof(ward->program) - (size_t)(bytes > 0 ? bytes : 0), "%s",
			       bytes > 0 ? "" : "the host's program");
		ward->argv[0] = ward->program;
	} else {
		(void)snprintf(ward->program, sizeof(ward->program), "%s", ward->argv[0]);
	}
	return 0;
}

static int make_slots(struct ward *ward, struct gw_error *ret_error)
{
	ward->slots = calloc(ward->open.workers, sizeof(*ward->slots));
	ward->standbys = calloc((size_t)ward->open.standbys + 1, sizeof(*ward->standbys));
	if (!ward->slots || !ward->standbys)
		return err_os(ret_error, ENOMEM, "ward: cannot keep %u workers and %u standbys",
			      ward->open.workers, ward->open.standbys);
	for (uint32_t i = 0; i < ward->open.workers; i++)
		slot_init(&ward->slots[i], ward, i, false);
	for (uint32_t i = 0; i < ward->open.standbys; i++)
		slot_init(&ward->standbys[i], ward, i, true);
	ward->n_slots = ward->open.workers;
	ward->n_standbys = ward->open.standbys;
	return 0;
}

static uint64_t size_of(int fd)
{
	struct stat status;

	return fstat(fd, &status) == 0 ? (uint64_t)status.st_size : 0;
}

/* Takes the descriptors that came with WIRE_OPEN. */
static int take_fds(struct ward *ward, int fds[WIRE_FDS_MAX], struct gw_error *ret_error)
{
	int result;

	ward->input_fd = fd_steal(&fds[0]);
	ward->page_fd = fd_steal(&fds[1]);
	ward->host_pidfd = fd_steal(&fds[2]);
	if (ward->open.command_count == 0)
		ward->program_fd = fd_steal(&fds[3]);
	if (ward->input_fd < 0 || ward->page_fd < 0 || ward->host_pidfd < 0 ||
	    (ward->open.command_count == 0 && ward->program_fd < 0))
		return err_own(ret_error, GW_EPROTOCOL,
			       "ward: a descriptor is missing in the host's first message");
	ward->input_bytes = size_of(ward->input_fd);
	result = map_page(ward, ward->page_fd, ret_error);
	if (result < 0)
		return result;
	result = loop_add(&ward->loop, &ward->host_exit_source, ward->host_pidfd, EPOLLIN);
	if (result < 0)
		return err_os(ret_error, -result, "ward: cannot watch the host");
	result = life_begin(&ward->life, &ward->page->ward_life);
	if (result < 0)
		return err_os(ret_error, -result, "ward: cannot tie its word to its life");
	return 0;
}

static int make_state(struct ward *ward, struct gw_error *ret_error)
{
	const struct state_config config = {.loop = &ward->loop,
					    .page = &ward->page->states,
					    .devices = ward->open.devices,
					    .n_devices = ward->open.n_devices,
					    .max_bytes = ward->open.max_state_bytes};
	int result = state_new(&config, &ward->state);

	return result < 0 ? err_os(ret_error, -result, "ward: cannot keep surviving state") : 0;
}

static void start_workers(struct ward *ward)
{
	deadline_begin(ward);
	signs_begin(ward);
	heartbeat_begin(ward);
	for (uint32_t i = 0; i < ward->n_slots; i++)
		slot_happens(&ward->slots[i], EVENT_START, NULL);
}

/* The state that was kept is here, or cannot be had. */
static void on_kept(void *owner, const struct gw_error *error)
{
	struct ward *ward = owner;

	if (ward->closing)
		return;
	if (error)
		refuse(ward, error);
	else
		start_workers(ward);
}

static void on_open(struct ward *ward, const struct wire_open *open, int fds[WIRE_FDS_MAX])
{
	struct gw_error error;
	int result;

	ward->open = *open;
	loop_set_timer(&ward->open_timer, GW_FOREVER);
	result = take_fds(ward, fds, &error);
	if (result == 0)
		result = make_argv(ward, &error);
	if (result == 0)
		result = make_state(ward, &error);
	if (result == 0)
		result = make_slots(ward, &error);
	if (result == 0 && ward->open.state_name[0])
		result = state_keep(ward->state, ward->open.state_name, ward->host_pidfd, on_kept,
				    ward, &error);
	if (result < 0) {
		refuse(ward, &error);
		return;
	}
	if (ward->open.state_name[0])
		return; /* the workers start when the state is here */
	start_workers(ward);
}

/* ---- the host's messages ---- */

static void on_kill(struct ward *ward, const struct wire_kill *kill)
{
	const struct cause asked = {.end = GW_END_STOPPED, .source = GW_SOURCE_REQUEST};
	const struct cause broken = {.end = GW_END_PROTOCOL,
				     .source = GW_SOURCE_PROTOCOL,
				     .what = "the host found its results broken"};
	/* As good as not started, so that it is tried again with pauses, and not for ever. */
	const struct cause useless = {.end = GW_END_START,
				      .source = GW_SOURCE_REQUEST,
				      .what = "the host has no descriptor or memory left for it"};
	struct slot *slot;

	if (kill->slot >= ward->n_slots)
		return;
	slot = &ward->slots[kill->slot];
	/* The one that the host means may be gone by now; its successor is innocent. */
	if (!slot->process || kill->incarnation != slot->process->incarnation)
		return;
	if (kill->reason == GW_END_START && slot->state == SLOT_READY) {
		(void)err_os(&slot->process->start_error, kill->error,
			     "the host cannot use worker %u", slot->number);
		slot_happens(slot, EVENT_KILL_REQUEST, &useless);
		return;
	}
	slot_happens(slot, EVENT_KILL_REQUEST, kill->reason == GW_END_PROTOCOL ? &broken : &asked);
}

static void on_message(struct ward *ward, const union wire_any *message, int fds[WIRE_FDS_MAX])
{
	bool opened = ward->n_slots > 0;
	struct gw_error error;

	switch (message->header.type) {
	case WIRE_OPEN:
		if (!opened)
			on_open(ward, &message->open, fds);
		return;
	case WIRE_KICK:
		if (opened)
			deadline_kick(ward);
		return;
	case WIRE_KILL:
		on_kill(ward, &message->kill);
		return;
	case WIRE_CLOSE:
		ward_close(ward);
		return;
	default:
		(void)err_own(&error, GW_EPROTOCOL, "ward: message %u is not the host's to send",
			      message->header.type);
		refuse(ward, &error);
	}
}

static void refuse_version(struct ward *ward, const struct wire_header *header)
{
	struct gw_error error;

	(void)err_own(&error, GW_EVERSION,
		      "the library is gpuward %s (layout %u), its ward is %s (layout %u): install "
		      "both from the same build",
		      header->version, header->layout, GW_VERSION_TEXT, WIRE_LAYOUT);
	refuse(ward, &error);
}

static void on_bad_message(struct ward *ward, int result, const union wire_any *message)
{
	struct gw_error error;

	if (result == -EAGAIN || result == -ENOMEM || result == -ENOBUFS)
		return; /* the loop tells again */
	if (result == GW_EVERSION) {
		refuse_version(ward, &message->header);
	} else if (result == GW_EPROTOCOL) {
		(void)err_own(&error, GW_EPROTOCOL, "ward: the host's message breaks the rules");
		refuse(ward, &error);
	} else if (result == -EMFILE) {
		(void)err_os(&error, EMFILE, "the ward has no room for the host's descriptors");
		refuse(ward, &error);
	} else {
		ward_lose_host(ward);
	}
}

static void on_host_ready(struct loop_source *source, uint32_t events)
{
	struct ward *ward = source->owner;
	union wire_any message;
	int fds[WIRE_FDS_MAX];
	int result;

	if (events & EPOLLOUT)
		outbox_flush(ward);
	if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR)) || source->fd < 0)
		return;
	result = wire_receive(ward->host_socket, &message, fds);
	if (result > 0)
		on_message(ward, &message, fds);
	else
		on_bad_message(ward, result, &message);
	for (size_t i = 0; i < WIRE_FDS_MAX; i++)
		fd_close(fds[i]);
}

/*
 * The host is dead. Its socket may not say so: a child that it forked holds a copy.
 *
 *	host ── socket ── ward
 *	 └ fork ── the same socket: no end of file while the child lives
 */
static void on_host_exit(struct loop_source *source, uint32_t events)
{
	(void)events;
	ward_lose_host(source->owner);
}

static void on_open_deadline(struct loop_timer *timer)
{
	ward_lose_host(timer->owner);
}

/* ---- signals ---- */

static void on_signal(struct loop_source *source, uint32_t events)
{
	struct ward *ward = source->owner;
	struct signalfd_siginfo info;

	(void)events;
	if (read(ward->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info))
		ward_close(ward);
}

/*
 * Blocks what comes from outside; what the kernel raises for our own faults stays.
 *
 * The ward is a process group of its own in the host's session, so that Ctrl-C ends the host alone and
 * the ward closes in order. A group whose members' parents are all outside the session, or in the same
 * group, is orphaned; when that happens and a member is stopped, the kernel sends the group SIGHUP and
 * SIGCONT:
 *
 *	somebody stops the ward (SIGSTOP)
 *	host is killed: the ward's group is orphaned, and has a stopped member
 *	kernel: SIGHUP, SIGCONT -> the ward runs again, sees the host's end, and ends the workers
 *
 * So SIGHUP must not kill the ward: it is blocked for good.
 */
static int take_signals(struct ward *ward)
{
	static const int own_faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
	sigset_t blocked, wanted;

	(void)sigfillset(&blocked);
	for (size_t i = 0; i < sizeof(own_faults) / sizeof(own_faults[0]); i++)
		(void)sigdelset(&blocked, own_faults[i]);
	(void)sigprocmask(SIG_SETMASK, &blocked, NULL);
	/* An ignored SIGCHLD would let the kernel reap workers before the ward sees how they ended. */
	(void)signal(SIGCHLD, SIG_DFL);
	(void)sigemptyset(&wanted);
	(void)sigaddset(&wanted, SIGTERM);
	(void)sigaddset(&wanted, SIGINT);
	ward->signal_fd = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
	if (ward->signal_fd < 0)
		return -errno;
	return loop_add(&ward->loop, &ward->signal_source, ward->signal_fd, EPOLLIN);
}

/* Each piece of surviving state is a descriptor or two. */
static void take_descriptors(struct ward *ward)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &ward->nofile) < 0)
		return;
	limit = ward->nofile;
	limit.rlim_cur = limit.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &limit);
}

/* ---- the whole ---- */

static int ward_init(struct ward *ward, int host_socket)
{
	int result;

	*ward = (struct ward){.host_socket = host_socket,
			      .host_pidfd = -1,
			      .signal_fd = -1,
			      .input_fd = -1,
			      .page_fd = -1,
			      .program_fd = -1};
	ward->host_source = (struct loop_source){.fd = -1, .ready = on_host_ready, .owner = ward};
	ward->host_exit_source =
		(struct loop_source){.fd = -1, .ready = on_host_exit, .owner = ward};
	ward->signal_source = (struct loop_source){.fd = -1, .ready = on_signal, .owner = ward};
	ward->open_timer = (struct loop_timer){.due = on_open_deadline, .owner = ward};
	take_descriptors(ward);
	result = loop_init(&ward->loop);
	if (result < 0)
		return result;
	loop_add_timer(&ward->loop, &ward->open_timer);
	deadline_init(ward);
	heartbeat_init(ward);
	outbox_init(ward);
	loop_set_timer(&ward->open_timer, now_ns() + WARD_OPEN_DEADLINE_NS);
	result = take_signals(ward);
	if (result == 0)
		result = fd_set_nonblocking(host_socket);
	if (result == 0)
		result = loop_add(&ward->loop, &ward->host_source, host_socket, EPOLLIN);
	return result;
}

static void ward_done(struct ward *ward)
{
	for (uint32_t i = 0; i < ward->n_slots; i++)
		slot_done(&ward->slots[i]);
	for (uint32_t i = 0; i < ward->n_standbys; i++)
		slot_done(&ward->standbys[i]);
	leaving_done(ward);
	state_free(ward->state);
	signs_done(ward);
	free(ward->slots);
	free(ward->standbys);
	free(ward->argv);
	loop_done(&ward->loop);
	fd_close(ward->signal_fd);
	fd_close(ward->input_fd);
	fd_close(ward->page_fd);
	fd_close(ward->program_fd);
	fd_close(ward->host_pidfd);
	fd_close(ward->host_socket);
	/* The page stays mapped: the kernel writes the ward's last word into it. */
}

int ward_run(int host_socket)
{
	/* Static, since the kernel's list of robust words points into it until the process is gone. */
	static struct ward only;
	struct ward *ward = &only;
	struct gw_error error;
	int result;

	result = ward_init(ward, host_socket);
	if (result < 0) {
		(void)err_os(&error, -result, "the ward cannot set itself up");
		refuse(ward, &error);
	}
	result = loop_run(&ward->loop);
	if (result < 0)
		give_up(ward, result);
	else
		say_what_is_left(ward);
	outbox_flush(ward);
	ward_done(ward);
	return ward->exit_code;
}
