/* SPDX-License-Identifier: MIT */
/*
 * Speaks to keepers. Runs in: command line. A file in the folder whose keeper is not there any more (it was killed)
 * is passed over; the next pool of that name tidies up.
 */
#include "cli/state.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/err.h"
#include "common/fd.h"
#include "common/keep_place.h"
#include "common/packet.h"

#define ANSWER_MS 2000

/* Receives the next message. Returns 0 or a negative code. */
static int receive(int socket, union keep_any *message, struct gw_error *ret_error)
{
	struct pollfd fd = {.fd = socket, .events = POLLIN};
	int fds[KEEP_FDS_MAX];
	struct packet packet;
	int pid = -1;
	int result;

	(void)keep_place_is_own(socket, &pid);
	if (poll(&fd, 1, ANSWER_MS) <= 0)
		return err_own(ret_error, -ETIMEDOUT,
			       "its keeper, pid %d, does not answer: it may be stopped", pid);
	result = packet_receive(socket, message, sizeof(*message), fds, KEEP_FDS_MAX, &packet);
	if (result < 0)
		return err_os(ret_error, -result, "cannot hear its keeper, pid %d", pid);
	if (result == 0)
		return err_own(ret_error, -ECONNRESET, "its keeper, pid %d, has just ended", pid);
	packet_close_fds(fds, KEEP_FDS_MAX);
	result = keep_wire_check(message, packet.bytes, false);
	if (result == GW_EVERSION)
		return err_own(ret_error, result,
			       "its keeper, pid %d, is gpuward %s, and this is %s: use the gpuward "
			       "of the same build",
			       pid, message->header.version, GW_VERSION_TEXT);
	return result < 0 ? err_own(ret_error, result, "its keeper, pid %d, breaks the rules", pid)
			  : 0;
}

static int greet(int folder, const char *name, struct keep_welcome *ret_welcome,
		 struct gw_error *ret_error)
{
	struct keep_hello hello = {.role = KEEP_LOOKER, .pid = getpid()};
	cleanup_fd int socket = keep_place_connect(folder, name);
	union keep_any message;
	int result;

	if (socket == -ENOENT || socket == -ECONNREFUSED)
		return err_own(ret_error, -ENOENT,
			       "no state is kept as '%s'; gpuward state ls shows what is", name);
	if (socket < 0)
		return err_os(ret_error, -socket, "cannot ask the keeper of state '%s'", name);
	keep_header_init(&hello.header, KEEP_HELLO, sizeof(hello));
	/* One that is just ending tells it by its end. */
	(void)packet_send(socket, &hello, sizeof(hello), NULL, 0);
	result = receive(socket, &message, ret_error);
	if (result < 0)
		return result;
	if (message.header.type != KEEP_WELCOME)
		return err_own(ret_error, GW_EPROTOCOL, "its keeper breaks the rules");
	if (message.welcome.error.code < 0) {
		*ret_error = message.welcome.error;
		return message.welcome.error.code;
	}
	*ret_welcome = message.welcome;
	return fd_steal(&socket);
}

static int add_piece(struct state_kept *kept, const struct keep_piece *piece)
{
	struct keep_piece *grown = kept->pieces;

	if ((kept->n_pieces & (kept->n_pieces - 1)) == 0)
		grown = reallocarray(kept->pieces, kept->n_pieces ? kept->n_pieces * 2 : 1,
				     sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	kept->pieces = grown;
	grown[kept->n_pieces++] = *piece;
	return 0;
}

static int read_pieces(int socket, struct state_kept *kept, struct gw_error *ret_error)
{
	union keep_any message;
	int result;

	for (;;) {
		result = receive(socket, &message, ret_error);
		if (result < 0 || message.header.type == KEEP_END)
			return result;
		if (message.header.type != KEEP_PIECE || kept->n_pieces == GW_STATES_MAX)
			return err_own(ret_error, GW_EPROTOCOL, "its keeper breaks the rules");
		if (add_piece(kept, &message.piece) < 0)
			return err_os(ret_error, ENOMEM, "no memory for its pieces");
	}
}

/* Asks the keeper of kept->name; what it cannot say is its problem. */
static int look(int folder, struct state_kept *kept)
{
	int socket = greet(folder, kept->name, &kept->welcome, &kept->problem);
	int result = socket;

	if (socket >= 0)
		result = read_pieces(socket, kept, &kept->problem);
	if (result >= 0)
		kept->problem.code = 0;
	fd_close(socket);
	return result;
}

static int add(struct state_list *list, int folder, const char *name)
{
	struct state_kept *grown = reallocarray(list->all, list->count + 1, sizeof(*grown));
	struct state_kept *kept;

	if (!grown)
		return -ENOMEM;
	list->all = grown;
	kept = &grown[list->count];
	*kept = (struct state_kept){0};
	(void)snprintf(kept->name, sizeof(kept->name), "%s", name);
	/* Nobody is there (any more): nothing to tell. */
	if (look(folder, kept) == -ENOENT || kept->problem.code == -ECONNRESET)
		free(kept->pieces);
	else
		list->count++;
	return 0;
}

/* Whether FILE is the socket of a name, and which. */
static bool name_of(const char *file, char name[GW_NAME_MAX])
{
	size_t length = strlen(file);
	size_t end = strlen(KEEP_SOCKET_END);

	if (length <= end || length - end >= GW_NAME_MAX ||
	    strcmp(file + length - end, KEEP_SOCKET_END) != 0)
		return false;
	(void)snprintf(name, GW_NAME_MAX, "%.*s", (int)(length - end), file);
	return keep_place_name_is_good(name);
}

static int by_name(const void *one, const void *other)
{
	const struct state_kept *a = one;
	const struct state_kept *b = other;

	return strcmp(a->name, b->name);
}

static int ask_each(int folder, struct state_list *list)
{
	int copy = dup(folder);
	DIR *files = copy < 0 ? NULL : fdopendir(copy);
	const struct dirent *entry;
	int result = 0;

	if (!files) {
		result = -errno;
		fd_close(copy);
		return result;
	}
	while (result == 0 && (entry = readdir(files))) {
		char name[GW_NAME_MAX];

		if (name_of(entry->d_name, name))
			result = add(list, folder, name);
	}
	(void)closedir(files);
	if (list->count > 0)
		qsort(list->all, list->count, sizeof(*list->all), by_name);
	return result;
}

int state_ask_all(const char *name, struct state_list *ret_list, struct gw_error *ret_error)
{
	struct state_list list = {0};
	cleanup_fd int folder = keep_place_open(false, ret_error);
	int result;

	if (folder < 0 && folder != -ENOENT)
		return folder;
	if (folder >= 0) {
		result = name ? add(&list, folder, name) : ask_each(folder, &list);
		if (result < 0) {
			state_list_done(&list);
			return err_os(ret_error, -result, "cannot list the state that is kept");
		}
	}
	if (name && list.count == 0) {
		state_list_done(&list);
		return err_own(ret_error, -ENOENT,
			       "no state is kept as '%s'; gpuward state ls shows what is", name);
	}
	*ret_list = list;
	return 0;
}

void state_list_done(struct state_list *list)
{
	for (size_t i = 0; i < list->count; i++)
		free(list->all[i].pieces);
	free(list->all);
	*list = (struct state_list){0};
}

/* Says WISH to the keeper of NAME, and hears what it says to that. */
static int wish(const char *name, const void *message, size_t bytes, struct gw_error *ret_error)
{
	cleanup_fd int folder = keep_place_open(false, ret_error);
	struct state_kept kept = {0};
	cleanup_fd int socket = -1;
	union keep_any answer;
	int result;

	if (folder == -ENOENT)
		return err_own(ret_error, -ENOENT, "no state is kept as '%s', nor any other", name);
	if (folder < 0)
		return folder;
	socket = greet(folder, name, &kept.welcome, ret_error);
	if (socket < 0)
		return socket;
	result = read_pieces(socket, &kept, ret_error);
	free(kept.pieces);
	if (result < 0)
		return result;
	(void)packet_send(socket, message, bytes, NULL, 0);
	result = receive(socket, &answer, ret_error);
	if (result < 0)
		return result;
	if (answer.header.type != KEEP_WELCOME)
		return err_own(ret_error, GW_EPROTOCOL, "its keeper breaks the rules");
	if (answer.welcome.error.code < 0)
		*ret_error = answer.welcome.error;
	return answer.welcome.error.code;
}

int state_ask_remove(const char *name, const char *piece, struct gw_error *ret_error)
{
	struct keep_remove message = {0};

	keep_header_init(&message.header, KEEP_REMOVE, sizeof(message));
	(void)snprintf(message.name, sizeof(message.name), "%s", piece);
	return wish(name, &message, sizeof(message), ret_error);
}

int state_ask_for(const char *name, uint64_t ns, struct gw_error *ret_error)
{
	struct keep_for message = {.ns = ns};

	keep_header_init(&message.header, KEEP_FOR, sizeof(message));
	return wish(name, &message, sizeof(message), ret_error);
}
