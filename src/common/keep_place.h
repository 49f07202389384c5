/* SPDX-License-Identifier: MIT */
/*
 * Where keepers are found: a folder of this user's own, with a socket and a lock file for each name.
 *
 *	$XDG_RUNTIME_DIR/gpuward/	or, where that is not set, /tmp/gpuward-UID/; on an emulated machine, whose
 *					memory is none of another one's, $GPUWARD_SOFT_DIR/gpuward/
 *		NAME.state		the socket, for this user alone
 *		NAME.lock		locked by the keeper for as long as it lives
 *
 * Runs in: keeper, ward, command line. The folder is opened once and then used by its descriptor, so that nobody
 * can put another one in its place after it was checked. Read next: keep_wire.h.
 */
#ifndef GPUWARD_COMMON_KEEP_PLACE_H
#define GPUWARD_COMMON_KEEP_PLACE_H

#include <stdbool.h>
#include <stddef.h>

#include <gpuward.h>

#define KEEP_SOCKET_END ".state"
#define KEEP_LOCK_END	".lock"
#define KEEP_FILE_MAX	(GW_NAME_MAX + 8)

/*
 * Opens the folder, and makes it if MAKE is true. Returns a descriptor; -ENOENT it is not there (and MAKE is
 * false); -EACCES it belongs to another user, or others may enter it; -ENOTDIR it is no folder (or a link);
 * or another -errno. The text names the folder.
 */
int keep_place_open(bool make, struct gw_error *ret_error);

/* Whether NAME can be the name of state: as in gw_pool_options.state_name. */
bool keep_place_name_is_good(const char *name);

/* Writes NAME, which is good, as `gpuward state` takes it in a shell: as it is, or where that would be an option or
 * mean something to the shell, quoted. */
#define KEEP_QUOTED_MAX (4 * GW_NAME_MAX + 8)
void keep_place_quote(const char *name, char text[KEEP_QUOTED_MAX]);

/* Writes NAME with END behind it. NAME is good. */
void keep_place_file(const char *name, const char *end, char file[KEEP_FILE_MAX]);

/* Connects to the keeper of NAME in FOLDER, without blocking. Returns a non-blocking socket; -ENOENT or
 * -ECONNREFUSED there is none; -EAGAIN too many connect at this moment; -EACCES it is another user's; -errno. */
int keep_place_connect(int folder, const char *name);

/* Makes the socket of the keeper of NAME, in place of one that nobody listens to. The caller has the lock.
 * Returns a non-blocking socket that listens, or -errno. */
int keep_place_listen(int folder, const char *name);

/* Whether the process at the other end of SOCKET is this user's. RET_PID may be NULL. */
bool keep_place_is_own(int socket, int *ret_pid);

#endif
