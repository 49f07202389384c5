/* SPDX-License-Identifier: MIT */
/*
 * Finding gpuward's helper programs beside this object or where they are installed.
 *
 * Runs in: host and command line. The path of this object comes from the dynamic linker, not from
 * argv, which the caller chooses; the main program is an exception there (its name in the link map is
 * empty), so that one is asked of /proc/self/exe. Read next: self.h.
 */
#include "common/self.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/err.h"

/* 0 if PATH is a file that may be executed here, else -errno. */
static int check(const char *path)
{
	struct stat info;

	if (stat(path, &info) < 0)
		return -errno;
	if (!S_ISREG(info.st_mode))
		return -EACCES;
	return faccessat(AT_FDCWD, path, X_OK, AT_EACCESS) < 0 ? -errno : 0;
}

static int join(const char *folder, const char *name, char *path, size_t bytes)
{
	int used = snprintf(path, bytes, "%s/%s", folder, name);

	return used < 0 || (size_t)used >= bytes ? -ENAMETOOLONG : 0;
}

/* The folder of the shared library or program that holds this function. */
static int own_folder(char folder[static PATH_MAX])
{
	struct link_map *map = NULL;
	const char *path = "/proc/self/exe";
	char *slash;
	Dl_info info;

	if (dladdr1((void *)&self_find_helper, &info, (void **)&map, RTLD_DL_LINKMAP) && map &&
	    map->l_name[0])
		path = map->l_name;
	if (!realpath(path, folder))
		return -errno;
	slash = strrchr(folder, '/');
	if (!slash)
		return -ENOENT;
	*slash = '\0';
	return 0;
}

static int try_folder(const char *folder, const char *name, char *buffer, size_t bytes)
{
	int code = join(folder, name, buffer, bytes);

	return code < 0 ? code : check(buffer);
}

static int find(const char *name, char *buffer, size_t bytes)
{
	const char *chosen = secure_getenv("GPUWARD_LIBEXEC");
	char folder[PATH_MAX];
	int code;

	if (chosen && chosen[0])
		return try_folder(chosen, name, buffer, bytes);
	code = own_folder(folder);
	if (code == 0)
		code = try_folder(folder, name, buffer, bytes);
	if (code == -ENOENT || code == -ENOTDIR)
		code = try_folder(GPUWARD_LIBEXECDIR, name, buffer, bytes);
	return code;
}

int self_find_helper(const char *name, char *buffer, size_t bytes, struct gw_error *ret_error)
{
	char path[PATH_MAX] = "";
	char absolute[PATH_MAX];
	int code = find(name, path, sizeof(path));

	if (code < 0)
		return err_os(ret_error, -code, "cannot find the helper program %s (last tried %s)",
			      name, path);
	if (!realpath(path, absolute))
		return err_os(ret_error, errno, "cannot resolve %s", path);
	if (strlen(absolute) >= bytes)
		return err_os(ret_error, ENAMETOOLONG, "the path %s does not fit", absolute);
	memcpy(buffer, absolute, strlen(absolute) + 1);
	return 0;
}
