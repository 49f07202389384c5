/* SPDX-License-Identifier: MIT */
/*
 * gpuward-keeper: started by a ward, with the ward at the other end of descriptor 3 and the state's name as its
 * argument.
 *
 * Runs in: keeper. Nothing for people to call: `gpuward state` speaks to it. Read next: keeper.h.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/keep_place.h"
#include "keeper/keeper.h"

#define EXIT_MISUSE 125

static int is_seqpacket(int fd)
{
	int type = 0;
	socklen_t bytes = sizeof(type);

	return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes) == 0 && type == SOCK_SEQPACKET;
}

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "--version") == 0 && !is_seqpacket(KEEP_FIRST_FD)) {
		(void)dprintf(STDOUT_FILENO, "gpuward-keeper %s\n", GW_VERSION_TEXT);
		return 0;
	}
	if (argc != 2 || !keep_place_name_is_good(argv[1]) || !is_seqpacket(KEEP_FIRST_FD)) {
		(void)dprintf(
			STDERR_FILENO,
			"gpuward-keeper is started by a ward, with a socket as descriptor %d\n",
			KEEP_FIRST_FD);
		return EXIT_MISUSE;
	}
	return keeper_run(argv[1]);
}
