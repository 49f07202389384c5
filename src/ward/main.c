/* SPDX-License-Identifier: MIT */
/*
 * gpuward-ward: started by the library, with the host at the other end of descriptor 3.
 *
 * Runs in: ward. Nothing for people to call; --print-table is for ARCHITECTURE.md. Read next: ward.h.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/wire.h"
#include "ward/slot_table.h"
#include "ward/ward.h"

#define EXIT_MISUSE 125

static int is_seqpacket(int fd)
{
	int type = 0;
	socklen_t bytes = sizeof(type);

	return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes) == 0 && type == SOCK_SEQPACKET;
}

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "--print-table") == 0) {
		slot_table_print(STDOUT_FILENO);
		return 0;
	}
	if (argc == 2 && strcmp(argv[1], "--version") == 0) {
		(void)dprintf(STDOUT_FILENO, "gpuward-ward %s\n", GW_VERSION_TEXT);
		return 0;
	}
	if (argc > 1 || !is_seqpacket(WIRE_WARD_SOCKET)) {
		(void)dprintf(
			STDERR_FILENO,
			"gpuward-ward is started by libgpuward, with a socket as descriptor %d\n",
			WIRE_WARD_SOCKET);
		return EXIT_MISUSE;
	}
	return ward_run(WIRE_WARD_SOCKET);
}
