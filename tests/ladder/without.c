/* SPDX-License-Identifier: MIT */
/*
 * usage: without CALL[=ERRNO] PROGRAM [ARGUMENT ...]
 *
 * Runs a program, and all that comes of it, on a kernel that lacks one system call: it always fails
 * with ENOSYS, or with EPERM as under the filters of some containers.
 *
 * Runs in: itself, then PROGRAM by exec. Exits with 77 where filters do not work, 125 for its own
 * mistakes. It leaves nothing behind but the filter, which the kernel takes back with the last process.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif

static const struct {
	const char *name;
	uint32_t number;
} calls[] = {
	{"close_range", SYS_close_range},
	{"futex_waitv", SYS_futex_waitv},
	{"memfd_create", SYS_memfd_create},
	{"pidfd_open", SYS_pidfd_open},
	{"clone3", SYS_clone3},
};

static int install(uint32_t number, uint32_t error)
{
	struct sock_filter program[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog filter = {.len = sizeof(program) / sizeof(program[0]),
					  .filter = program};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -1;
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}

int main(int argc, char **argv)
{
	const char *error = argc > 2 ? strchr(argv[1], '=') : NULL;
	size_t length = argc > 2 ? strcspn(argv[1], "=") : 0;

	for (size_t i = 0; argc > 2 && i < sizeof(calls) / sizeof(calls[0]); i++) {
		if (strlen(calls[i].name) != length || strncmp(calls[i].name, argv[1], length) != 0)
			continue;
		if (install(calls[i].number,
			    error && strcmp(error, "=EPERM") == 0 ? EPERM : ENOSYS) < 0) {
			(void)puts("skipped: no seccomp filters here");
			return 77;
		}
		(void)execv(argv[2], argv + 2);
		(void)fprintf(stderr, "without: %s: %s\n", argv[2], strerror(errno));
		return 125;
	}
	(void)fputs("usage: without CALL[=ERRNO] PROGRAM [ARGUMENT ...]\n", stderr);
	return 125;
}
