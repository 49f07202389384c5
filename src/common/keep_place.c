/* SPDX-License-Identifier: MIT */
#include "common/keep_place.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/err.h"
#include "common/fd.h"

#define BACKLOG 64

static int check_folder(int folder, const char *path, struct gw_error *ret_error)
{
	struct stat status;

	if (fstat(folder, &status) < 0)
		return err_os(ret_error, errno, "cannot look at %.120s", path);
	if (status.st_uid != geteuid())
		return err_own(ret_error, -EACCES,
			       "%.120s belongs to user %u, and kept state to the user whose it is: "
			       "this is user %u (XDG_RUNTIME_DIR may be another user's)",
			       path, status.st_uid, geteuid());
	if (status.st_mode & (S_IRWXG | S_IRWXO))
		return err_own(ret_error, -EACCES,
			       "others may enter %.120s, which keeps state of this user: chmod 700 "
			       "%.120s",
			       path, path);
	return 0;
}

/* The memory of an emulated machine is in its folder: another one has nothing of it, and it ends with that. */
static void find_folder(char path[PATH_MAX])
{
	const char *machine = secure_getenv("GPUWARD_SOFT_DIR");
	const char *runtime = secure_getenv("XDG_RUNTIME_DIR");

	if (machine && machine[0])
		(void)snprintf(path, PATH_MAX, "%.4000s/gpuward", machine);
	else if (runtime && runtime[0] == '/')
		(void)snprintf(path, PATH_MAX, "%.4000s/gpuward", runtime);
	else
		(void)snprintf(path, PATH_MAX, "/tmp/gpuward-%u", geteuid());
}

int keep_place_open(bool make, struct gw_error *ret_error)
{
	char path[PATH_MAX];
	cleanup_fd int folder = -1;
	int result;
	int fd;

	find_folder(path);
	if (make && mkdir(path, S_IRWXU) < 0 && errno != EEXIST)
		return err_os(ret_error, errno, "cannot make %.120s to keep state", path);
	/* By name alone first: of another user's folder it is said whose it is, and not that it cannot be read. */
	folder = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (folder < 0)
		return err_os(ret_error, errno, "cannot open %.120s, where state is kept", path);
	result = check_folder(folder, path, ret_error);
	if (result < 0)
		return result;
	fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? err_os(ret_error, errno, "cannot read %.120s, where state is kept", path)
		      : fd;
}

bool keep_place_name_is_good(const char *name)
{
	size_t bytes = strnlen(name, GW_NAME_MAX);

	if (bytes == 0 || bytes == GW_NAME_MAX)
		return false;
	for (const char *c = name; *c; c++) {
		if (*c <= ' ' || *c > '~' || *c == '/')
			return false;
	}
	return true;
}

static char *put(char *to, const char *text)
{
	size_t bytes = strlen(text);

	memcpy(to, text, bytes + 1);
	return to + bytes;
}

void keep_place_quote(const char *name, char text[KEEP_QUOTED_MAX])
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
				    "._-+:@%,=";
	char *to = text;

	if (name[0] != '-' && name[strspn(name, plain)] == '\0') {
		(void)put(text, name);
		return;
	}
	to = put(to, name[0] == '-' ? "-- '" : "'");
	for (; *name; name++)
		to = put(to, *name == '\'' ? "'\\''" : (const char[]){*name, '\0'});
	(void)put(to, "'");
}

void keep_place_file(const char *name, const char *end, char file[KEEP_FILE_MAX])
{
	(void)snprintf(file, KEEP_FILE_MAX, "%.63s%s", name, end);
}

/* By the folder's descriptor: a path of any length fits, and it is the folder that was checked. */
static void fill_address(int folder, const char *name, struct sockaddr_un *address)
{
	char file[KEEP_FILE_MAX];

	keep_place_file(name, KEEP_SOCKET_END, file);
	*address = (struct sockaddr_un){.sun_family = AF_UNIX};
	(void)snprintf(address->sun_path, sizeof(address->sun_path), "/proc/self/fd/%d/%s", folder,
		       file);
}

bool keep_place_is_own(int socket, int *ret_pid)
{
	struct ucred peer;
	socklen_t bytes = sizeof(peer);

	if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) < 0)
		return false;
	if (ret_pid)
		*ret_pid = peer.pid;
	return peer.uid == geteuid();
}

static int new_socket(void)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	return fd < 0 ? -errno : fd;
}

int keep_place_connect(int folder, const char *name)
{
	cleanup_fd int fd = new_socket();
	struct sockaddr_un address;

	if (fd < 0)
		return fd;
	fill_address(folder, name, &address);
	if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
		return -errno;
	return keep_place_is_own(fd, NULL) ? fd_steal(&fd) : -EACCES;
}

int keep_place_listen(int folder, const char *name)
{
	cleanup_fd int fd = new_socket();
	struct sockaddr_un address;
	char file[KEEP_FILE_MAX];

	if (fd < 0)
		return fd;
	keep_place_file(name, KEEP_SOCKET_END, file);
	if (unlinkat(folder, file, 0) < 0 && errno != ENOENT)
		return -errno;
	fill_address(folder, name, &address);
	/* The mode of the socket's file; nobody but this user can enter its folder in any case. */
	if (fchmod(fd, S_IRUSR | S_IWUSR) < 0 ||
	    bind(fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
		return -errno;
	if (listen(fd, BACKLOG) < 0)
		return -errno;
	return fd_steal(&fd);
}
