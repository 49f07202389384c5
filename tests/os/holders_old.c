/* SPDX-License-Identifier: MIT */
/*
 * Calls that older kernels lack, or that a container filters: linked into the tests of a scan, by which those have
 * to pass without them too. PROCMAP_QUERY is of Linux 6.11; kcmp is an option of the kernel.
 */
#include <errno.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <sys/types.h>

int __wrap_ioctl(int fd, unsigned long request, ...);
long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);

int __wrap_ioctl(int fd, unsigned long request, ...)
{
	(void)fd;
	(void)request;
	errno = ENOTTY;
	return -1;
}

/* Reads as many words as any call has, as syscall() itself does; a checker of addresses minds. */
__attribute__((no_sanitize("address"))) long __wrap_syscall(long number, ...)
{
	va_list arguments;
	long values[6];

	va_start(arguments, number);
	for (int i = 0; i < 6; i++)
		values[i] = va_arg(arguments, long);
	va_end(arguments);
	if (number == SYS_kcmp) {
		errno = ENOSYS;
		return -1;
	}
	return __real_syscall(number, values[0], values[1], values[2], values[3], values[4],
			      values[5]);
}
