/* SPDX-License-Identifier: MIT */
#include "keeper/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "common/err.h"
#include "common/fd.h"
#include "common/keep_place.h"
#include "common/packet.h"

#define EXIT_BAD_START 125
#define RETRY_NS       20000000ULL

/* How long a ward waits for the one before and its workers: a driver that hangs can take for ever. */
#define NEXT_NS 8000000000ULL

static int64_t clock_s(void)
{
	struct timespec now = {0};

	(void)clock_gettime(CLOCK_REALTIME, &now);
	return now.tv_sec;
}

/* ---- when it ends ---- */

static bool has_guests(const struct keeper *keeper)
{
	for (uint32_t i = 0; i < KEEPER_GUESTS_MAX; i++) {
		if (keeper->guests[i])
			return true;
	}
	return false;
}

static void check_end(struct keeper *keeper)
{
	if (keeper->hidden && !keeper->user && !keeper->next)
		(void)hold_remove(&keeper->hold, "");
	if (keeper->hold.count == 0 && !has_guests(keeper))
		loop_end(&keeper->loop);
}

static void on_for(struct loop_timer *timer)
{
	struct keeper *keeper = timer->owner;

	if (!keeper->user && !keeper->next)
		(void)hold_remove(&keeper->hold, "");
	check_end(keeper);
}

static void set_for_timer(struct keeper *keeper)
{
	uint64_t due = GW_FOREVER;

	if (keeper->unused_ns != GW_UNKNOWN && keeper->for_ns < GW_FOREVER - keeper->unused_ns)
		due = keeper->unused_ns + keeper->for_ns;
	loop_set_timer(&keeper->for_timer, due);
}

static void note_use(struct keeper *keeper, bool used)
{
	keeper->unused_ns = used ? GW_UNKNOWN : now_ns();
	keeper->since_s = clock_s();
	set_for_timer(keeper);
}

void keeper_hold_for(struct keeper *keeper, uint64_t ns)
{
	keeper->for_ns = ns;
	set_for_timer(keeper);
}

/* ---- one ward after the other ---- */

static bool has_ended(int pidfd)
{
	struct pollfd fd = {.fd = pidfd, .events = POLLIN};

	return pidfd < 0 || poll(&fd, 1, 0) > 0;
}

static void watch(struct keeper *keeper, struct loop_source *source, int fd)
{
	/* For the end of a socket no event needs to be asked for; what is said there is not ours to read. */
	bool is_socket =
		source == &keeper->owner_source && fd >= 0 &&
		getsockopt(fd, SOL_SOCKET, SO_TYPE, &(int){0}, &(socklen_t){sizeof(int)}) == 0;

	loop_remove(&keeper->loop, source);
	/* Without it the next look comes with the retry timer. */
	if (fd >= 0 && loop_add(&keeper->loop, source, fd, is_socket ? 0 : EPOLLIN) < 0)
		loop_set_timer(&keeper->retry_timer, now_ns() + RETRY_NS);
}

/* Lets the ward in that waits, if all that could still change the state is gone. */
static void let_in(struct keeper *keeper)
{
	int fd = -1;

	watch(keeper, &keeper->past_source, -1);
	watch(keeper, &keeper->owner_source, -1);
	if (!keeper->next) {
		loop_set_timer(&keeper->next_timer, GW_FOREVER);
		return;
	}
	if (keeper->user)
		return; /* it is ending, and will leave */
	if (!has_ended(keeper->past_pidfd)) {
		watch(keeper, &keeper->past_source, keeper->past_pidfd);
		return;
	}
	fd_closep(&keeper->past_pidfd);
	if (hold_owned(&keeper->hold, &fd)) {
		watch(keeper, &keeper->owner_source, fd);
		return;
	}
	keeper->user = keeper->next;
	keeper->next = NULL;
	loop_set_timer(&keeper->next_timer, GW_FOREVER);
	note_use(keeper, true);
	guest_welcome(keeper->user);
}

static void on_past(struct loop_source *source, uint32_t events)
{
	(void)events;
	let_in(source->owner);
}

static void refuse_busy(struct guest *guest, int32_t pid, const char *how)
{
	struct gw_error error;

	(void)err_own(&error, -EBUSY,
		      "state '%.63s' is %s the pool of ward pid %d: close that pool first",
		      guest->keeper->name, how, pid);
	guest_answer(guest, &error, true);
}

void keeper_enter(struct guest *guest)
{
	struct keeper *keeper = guest->keeper;

	/* Its end lies in its socket, and was not read yet. */
	if (keeper->user && has_ended(keeper->user->pidfd))
		guest_drain(keeper->user);
	if (keeper->next && has_ended(keeper->next->pidfd))
		guest_free(keeper->next);
	if (keeper->user && !has_ended(keeper->user->host)) {
		refuse_busy(guest, keeper->user->pid, "in use by");
	} else if (keeper->next) {
		refuse_busy(guest, keeper->next->pid, "wanted by");
	} else {
		keeper->next = guest;
		loop_set_timer(&keeper->next_timer, now_ns() + NEXT_NS);
		let_in(keeper);
	}
}

static void on_next(struct loop_timer *timer)
{
	struct keeper *keeper = timer->owner;
	const struct hold_piece *piece;
	struct gw_error error;
	int fd = -1;

	if (!keeper->next)
		return;
	piece = hold_owned(&keeper->hold, &fd);
	if (keeper->user || !has_ended(keeper->past_pidfd))
		(void)err_own(
			&error, -EBUSY,
			"state '%s': the ward of the pool before, pid %d, does not end: end it",
			keeper->name, keeper->user ? keeper->user->pid : keeper->past_pid);
	else
		(void)err_own(&error, -EBUSY,
			      "state '%s': worker pid %d of the pool before, or a process that it "
			      "forked, has not ended and may still write '%s': end it",
			      keeper->name, piece ? piece->info.owner_pid : -1,
			      piece ? piece->info.name : "");
	guest_answer(keeper->next, &error, true);
}

void keeper_leave(struct guest *guest)
{
	struct keeper *keeper = guest->keeper;

	if (keeper->user == guest) {
		keeper->user = NULL;
		keeper->past_pidfd = fd_steal(&guest->pidfd);
		keeper->past_pid = guest->pid;
		note_use(keeper, false);
	}
	if (keeper->next == guest)
		keeper->next = NULL;
	let_in(keeper);
	check_end(keeper);
}

void keeper_remove(struct guest *guest, const char *name)
{
	struct keeper *keeper = guest->keeper;
	struct gw_error error = {0};

	if (keeper->user && has_ended(keeper->user->pidfd))
		guest_drain(keeper->user);
	if (keeper->user || keeper->next) {
		refuse_busy(guest, (keeper->user ? keeper->user : keeper->next)->pid, "in use by");
		return;
	}
	if (hold_remove(&keeper->hold, name) == 0 && name[0] != '\0')
		(void)err_own(&error, -ENOENT, "state '%.63s' has no piece '%.63s'", keeper->name,
			      name);
	guest_answer(guest, &error, false);
}

/* ---- its place ---- */

/*
 * The lock is the file's that has the name now:
 *
 *	keeper A			keeper B
 *	has the lock, ends		opens the file
 *	unlinks it, exits
 *					has the lock of a file that nobody can find
 *
 * Returns 0, -EWOULDBLOCK: another keeper of this name lives; -errno.
 */
static int take_lock(struct keeper *keeper)
{
	char file[KEEP_FILE_MAX];
	struct stat own, named;

	keep_place_file(keeper->name, KEEP_LOCK_END, file);
	for (;;) {
		cleanup_fd int fd = openat(keeper->folder, file,
					   O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

		if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0 || fstat(fd, &own) < 0)
			return -errno;
		if (fstatat(keeper->folder, file, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
		    own.st_ino == named.st_ino && own.st_dev == named.st_dev) {
			keeper->lock_fd = fd_steal(&fd);
			return 0;
		}
	}
}

static bool is_at_its_place(const struct keeper *keeper)
{
	char file[KEEP_FILE_MAX];
	struct stat now;

	keep_place_file(keeper->name, KEEP_SOCKET_END, file);
	return fstatat(keeper->folder, file, &now, AT_SYMLINK_NOFOLLOW) == 0 &&
	       now.st_ino == keeper->place.st_ino && now.st_dev == keeper->place.st_dev;
}

static void leave_place(struct keeper *keeper)
{
	char file[KEEP_FILE_MAX];

	if (keeper->lock_fd < 0)
		return;
	keep_place_file(keeper->name, KEEP_SOCKET_END, file);
	if (is_at_its_place(keeper))
		(void)unlinkat(keeper->folder, file, 0);
	keep_place_file(keeper->name, KEEP_LOCK_END, file);
	(void)unlinkat(keeper->folder, file, 0);
}

/* Somebody took files out of the folder. */
static void on_notify(struct loop_source *source, uint32_t events)
{
	struct keeper *keeper = source->owner;
	char text[4096] __attribute__((aligned(8)));

	(void)events;
	while (read(keeper->notify_fd, text, sizeof(text)) > 0)
		continue;
	keeper->hidden = !is_at_its_place(keeper);
	check_end(keeper);
}

/* Without it (a limit of inotify) a keeper that nobody can reach stays until a signal. */
static void watch_place(struct keeper *keeper)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", keeper->folder);
	keeper->notify_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	if (keeper->notify_fd < 0 ||
	    inotify_add_watch(keeper->notify_fd, path, IN_DELETE | IN_MOVED_FROM) < 0)
		return;
	(void)loop_add(&keeper->loop, &keeper->notify_source, keeper->notify_fd, EPOLLIN);
}

static int take_place(struct keeper *keeper, struct gw_error *ret_error)
{
	char file[KEEP_FILE_MAX];
	int result;

	keeper->folder = keep_place_open(true, ret_error);
	if (keeper->folder < 0)
		return keeper->folder;
	result = take_lock(keeper);
	if (result == -EWOULDBLOCK)
		return result;
	if (result < 0)
		return err_os(ret_error, -result, "cannot lock the place of state '%s'",
			      keeper->name);
	keeper->listen_fd = keep_place_listen(keeper->folder, keeper->name);
	if (keeper->listen_fd < 0)
		return err_os(ret_error, -keeper->listen_fd, "cannot make the socket of state '%s'",
			      keeper->name);
	keep_place_file(keeper->name, KEEP_SOCKET_END, file);
	if (fstatat(keeper->folder, file, &keeper->place, AT_SYMLINK_NOFOLLOW) < 0)
		return err_os(ret_error, errno, "cannot look at the socket of state '%s'",
			      keeper->name);
	return 0;
}

/* ---- the whole ---- */

static void on_listen(struct loop_source *source, uint32_t events)
{
	struct keeper *keeper = source->owner;
	cleanup_fd int socket =
		accept4(keeper->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	(void)events;
	/* One that is too many sees its end at once. */
	if (socket >= 0 && keep_place_is_own(socket, NULL))
		(void)guest_new(keeper, &socket);
}

static void on_signal(struct loop_source *source, uint32_t events)
{
	struct keeper *keeper = source->owner;

	(void)events;
	loop_end(&keeper->loop);
}

static void on_retry(struct loop_timer *timer)
{
	struct keeper *keeper = timer->owner;

	for (uint32_t i = 0; i < KEEPER_GUESTS_MAX; i++) {
		if (keeper->guests[i] && keeper->guests[i]->sending)
			guest_send_more(keeper->guests[i]);
	}
	let_in(keeper);
}

/* It outlives whoever started it: no terminal and no stream of theirs. */
static void go_alone(void)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	struct rlimit limit;

	(void)setsid();
	for (int fd = STDIN_FILENO; null >= 0 && fd <= STDERR_FILENO; fd++)
		(void)dup2(null, fd);
	fd_close(null);
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &limit);
	}
}

static int take_signals(struct keeper *keeper)
{
	sigset_t wanted;

	(void)sigemptyset(&wanted);
	(void)sigaddset(&wanted, SIGTERM);
	(void)sigaddset(&wanted, SIGINT);
	(void)sigaddset(&wanted, SIGHUP);
	(void)sigprocmask(SIG_BLOCK, &wanted, NULL);
	keeper->signal_fd = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
	if (keeper->signal_fd < 0)
		return -errno;
	return loop_add(&keeper->loop, &keeper->signal_source, keeper->signal_fd, EPOLLIN);
}

static void init(struct keeper *keeper, const char *name)
{
	*keeper = (struct keeper){.folder = -1,
				  .lock_fd = -1,
				  .listen_fd = -1,
				  .signal_fd = -1,
				  .notify_fd = -1,
				  .past_pidfd = -1,
				  .for_ns = GW_FOREVER,
				  .unused_ns = GW_UNKNOWN,
				  .since_s = clock_s()};
	(void)snprintf(keeper->name, sizeof(keeper->name), "%s", name);
	keeper->listen_source = (struct loop_source){.fd = -1, .ready = on_listen, .owner = keeper};
	keeper->signal_source = (struct loop_source){.fd = -1, .ready = on_signal, .owner = keeper};
	keeper->notify_source = (struct loop_source){.fd = -1, .ready = on_notify, .owner = keeper};
	keeper->past_source = (struct loop_source){.fd = -1, .ready = on_past, .owner = keeper};
	keeper->owner_source = (struct loop_source){.fd = -1, .ready = on_past, .owner = keeper};
	keeper->for_timer = (struct loop_timer){.due = on_for, .owner = keeper};
	keeper->next_timer = (struct loop_timer){.due = on_next, .owner = keeper};
	keeper->retry_timer = (struct loop_timer){.due = on_retry, .owner = keeper};
}

static int set_up(struct keeper *keeper, struct gw_error *ret_error)
{
	int first = KEEP_FIRST_FD;
	int result = loop_init(&keeper->loop);

	if (result == 0)
		result = hold_init(&keeper->hold);
	if (result < 0)
		return err_os(ret_error, -result, "the keeper cannot set itself up");
	loop_add_timer(&keeper->loop, &keeper->for_timer);
	loop_add_timer(&keeper->loop, &keeper->next_timer);
	loop_add_timer(&keeper->loop, &keeper->retry_timer);
	result = take_place(keeper, ret_error);
	if (result < 0)
		return result;
	watch_place(keeper);
	/* The folder can have been removed in between. */
	keeper->hidden = !is_at_its_place(keeper);
	result = take_signals(keeper);
	if (result == 0)
		result =
			loop_add(&keeper->loop, &keeper->listen_source, keeper->listen_fd, EPOLLIN);
	if (result == 0)
		result = fd_set_nonblocking(first);
	if (result == 0)
		result = guest_new(keeper, &first);
	return result < 0 ? err_os(ret_error, -result, "the keeper cannot set itself up") : 0;
}

/* To the ward that started it. */
static void say_failure(const struct gw_error *error)
{
	struct keep_welcome welcome = {
		.error = *error, .keeper_pid = getpid(), .ward_pid = -1, .left_ns = GW_UNKNOWN};

	keep_header_init(&welcome.header, KEEP_WELCOME, sizeof(welcome));
	(void)packet_send(KEEP_FIRST_FD, &welcome, sizeof(welcome), NULL, 0);
}

int keeper_run(const char *name)
{
	static struct keeper keeper;
	struct gw_error error = {0};
	int result;

	go_alone();
	init(&keeper, name);
	result = set_up(&keeper, &error);
	/* Another one was faster: the end of the connection says so. */
	if (result < 0 && result != -EWOULDBLOCK)
		say_failure(&error);
	/* Only now, since its place may have a name that begins here. A folder that stays in use is a nuisance, and no
	 * more. */
	if (chdir("/") < 0)
		(void)errno;
	if (result == 0)
		result = loop_run(&keeper.loop);
	/* Out of sight first: nobody is to come in while the memory goes, which takes the driver its time. */
	leave_place(&keeper);
	return result == 0 || result == -EWOULDBLOCK ? 0 : EXIT_BAD_START;
}
