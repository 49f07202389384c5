/* SPDX-License-Identifier: MIT */
#include "keeper_host.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "../softgpu.h"
#include "../world.h"
#include "common/fd.h"
#include "common/keep_place.h"
#include "common/packet.h"

static char runtime[64];

void keeper_world(const char *settings)
{
	(void)snprintf(runtime, sizeof(runtime), "/tmp/gpuward-keeper-XXXXXX");
	assert_non_null(mkdtemp(runtime));
	assert_int_equal(setenv("XDG_RUNTIME_DIR", runtime, 1), 0);
	soft_dir_new(settings);
}

static int open_folder(void)
{
	struct gw_error error = {0};
	int folder = keep_place_open(false, &error);

	if (folder < 0 && folder != -ENOENT)
		fail_msg("%s", error.msg);
	return folder;
}

/* Removes what every keeper holds. Returns how many files there are. */
static int remove_all(void)
{
	int folder = open_folder();
	DIR *files = folder < 0 ? NULL : fdopendir(folder);
	const struct dirent *entry;
	int count = 0;

	while (files && (entry = readdir(files))) {
		const char *end = strstr(entry->d_name, KEEP_SOCKET_END);
		char name[GW_NAME_MAX];
		struct keeper_view view;

		if (entry->d_name[0] == '.' && !end)
			continue;
		count++;
		if (!end)
			continue;
		(void)snprintf(name, sizeof(name), "%.*s", (int)(end - entry->d_name),
			       entry->d_name);
		if (!keeper_look(name, &view))
			continue;
		(void)keeper_remove(name, "", NULL);
		keeper_wait_gone(view.welcome.keeper_pid);
	}
	if (files)
		(void)closedir(files);
	return count;
}

void keeper_world_done(void)
{
	char path[300];

	(void)remove_all();
	assert_int_equal(remove_all(), 0);
	(void)snprintf(path, sizeof(path), "%s/gpuward", soft_dir());
	(void)rmdir(path);
	/* On an emulated machine nothing is kept there. */
	assert_int_equal(rmdir(runtime), 0);
	assert_int_equal(soft_used_bytes(0), 0);
	soft_dir_free();
}

static int try_pool(const char *name, int32_t device, uint32_t standby, struct gw_pool **ret_pool,
		    struct gw_error *ret_error)
{
	struct gw_pool_options options = GW_OPTIONS(struct gw_pool_options);

	options.devices = &device;
	options.n_devices = 1;
	options.total_input_bytes = options.total_output_bytes = 16 * MIB;
	options.max_input_bytes = options.max_output_bytes = MIB;
	options.stop_deadline_ns = 300 * MS;
	options.restart_min_ns = options.restart_max_ns = 1;
	options.state_name = name;
	options.standby = standby;
	return gw_pool_open(ret_pool, &options, ret_error);
}

int keeper_try_pool(const char *name, int32_t device, struct gw_pool **ret_pool,
		    struct gw_error *ret_error)
{
	return try_pool(name, device, GW_STANDBY_COLD, ret_pool, ret_error);
}

struct gw_pool *keeper_pool_hot(const char *name)
{
	struct gw_error error = {0};
	struct gw_pool *pool = NULL;

	if (try_pool(name, 0, GW_STANDBY_HOT, &pool, &error) != 0)
		fail_msg("gw_pool_open: %s", error.msg);
	return pool;
}

struct gw_pool *keeper_pool(const char *name, int32_t device)
{
	struct gw_error error = {0};
	struct gw_pool *pool = NULL;

	if (keeper_try_pool(name, device, &pool, &error) != 0)
		fail_msg("gw_pool_open: %s", error.msg);
	return pool;
}

/* ---- the keeper ---- */

static int greet(const char *name)
{
	struct keep_hello hello = {.role = KEEP_LOOKER, .pid = getpid()};
	int folder = open_folder();
	int socket = folder < 0 ? folder : keep_place_connect(folder, name);

	fd_close(folder);
	if (socket < 0)
		return socket;
	keep_header_init(&hello.header, KEEP_HELLO, sizeof(hello));
	assert_int_equal(packet_send(socket, &hello, sizeof(hello), NULL, 0), 0);
	return socket;
}

static bool receive(int socket, union keep_any *message)
{
	struct pollfd fd = {.fd = socket, .events = POLLIN};
	int fds[KEEP_FDS_MAX];
	struct packet packet;

	if (poll(&fd, 1, 10000) != 1)
		fail_msg("the keeper does not answer");
	if (packet_receive(socket, message, sizeof(*message), fds, KEEP_FDS_MAX, &packet) <= 0)
		return false;
	assert_int_equal(packet.n_fds, 0);
	assert_int_equal(keep_wire_check(message, packet.bytes, false), 0);
	return true;
}

static int look(const char *name, struct keeper_view *view)
{
	union keep_any message;
	int socket = greet(name);

	memset(view, 0, sizeof(*view));
	if (socket < 0 || !receive(socket, &message))
		goto out;
	assert_int_equal(message.header.type, KEEP_WELCOME);
	view->welcome = message.welcome;
	while (receive(socket, &message) && message.header.type == KEEP_PIECE) {
		if (view->n_pieces < 16)
			view->pieces[view->n_pieces++] = message.piece;
	}
	if (message.header.type == KEEP_END)
		return socket;
out:
	fd_close(socket);
	return -1;
}

bool keeper_look(const char *name, struct keeper_view *ret_view)
{
	int socket = look(name, ret_view);

	fd_close(socket);
	return socket >= 0;
}

static int ask(const char *name, const void *wish, size_t bytes, struct gw_error *ret_error)
{
	struct keeper_view view;
	union keep_any message;
	int socket = look(name, &view);

	assert_true(socket >= 0);
	assert_int_equal(packet_send(socket, wish, bytes, NULL, 0), 0);
	assert_true(receive(socket, &message));
	assert_int_equal(message.header.type, KEEP_WELCOME);
	fd_close(socket);
	if (ret_error)
		*ret_error = message.welcome.error;
	return message.welcome.error.code;
}

int keeper_remove(const char *name, const char *piece, struct gw_error *ret_error)
{
	struct keep_remove wish = {0};

	keep_header_init(&wish.header, KEEP_REMOVE, sizeof(wish));
	(void)snprintf(wish.name, sizeof(wish.name), "%s", piece);
	return ask(name, &wish, sizeof(wish), ret_error);
}

void keeper_hold_for(const char *name, uint64_t ns)
{
	struct keep_for wish = {.ns = ns};

	keep_header_init(&wish.header, KEEP_FOR, sizeof(wish));
	assert_int_equal(ask(name, &wish, sizeof(wish), NULL), 0);
}

void keeper_wait_gone(int32_t pid)
{
	world_wait_gone(pid);
}

void keeper_lose_ward(struct gw_pool *pool)
{
	struct gw_worker_info info = {0};

	assert_int_equal(gw_pool_worker(pool, 0, &info), 0);
	world_kill(state_stat_of(pool).ward_pid);
	gw_pool_close(pool);
	/* It is this process's now, which has not reaped it: the kernel knows it as dead. */
	world_wait_gone(info.pid);
}
