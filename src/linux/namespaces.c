/* SPDX-License-Identifier: MIT */
#include "linux/namespaces.h"

#include <sys/stat.h>

/* PROC_PID_INIT_INO of the kernel: part of its interface, since programs compare with it. */
#define INITIAL_PID_INODE 0xEFFFFFFCU

bool namespaces_pid_is_initial(void)
{
	struct stat status;

	return stat("/proc/self/ns/pid", &status) == 0 && status.st_ino == INITIAL_PID_INODE;
}
