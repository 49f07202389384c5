/* SPDX-License-Identifier: MIT */
#include "ward/keep_start.h"

#include <stddef.h>

#include "common/self.h"

int keep_start(const char *name, int socket, char program[PATH_MAX], struct spawned *ret_child,
	       struct gw_error *ret_error)
{
	extern char **environ;
	const char *const argv[] = {"gpuward-keeper", name, NULL};
	struct spawn spec = {.program = program,
			     .program_fd = -1,
			     .argv = argv,
			     .envp = (const char *const *)environ,
			     .fds = &socket,
			     .n_fds = 1};
	int result = self_find_helper("gpuward-keeper", program, PATH_MAX, ret_error);

	return result < 0 ? result : spawn(&spec, ret_child, ret_error);
}
