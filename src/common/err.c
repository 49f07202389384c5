/* SPDX-License-Identifier: MIT */
#include "common/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Names and paths come from users, and a terminal obeys control characters. */
static void keep_one_line(char *text)
{
	for (; *text; text++) {
		if ((unsigned char)*text < ' ' || *text == 0x7f)
			*text = '?';
	}
}

__attribute__((format(printf, 5, 0))) static int fill(struct gw_error *error, int code,
						      enum gw_domain domain, int64_t native,
						      const char *format, va_list arguments)
{
	if (!error)
		return code;
	error->code = code;
	error->domain = domain;
	error->native = native;
	(void)vsnprintf(error->msg, sizeof(error->msg), format, arguments);
	keep_one_line(error->msg);
	return code;
}

int err_set(struct gw_error *error, int code, enum gw_domain domain, int64_t native,
	    const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	(void)fill(error, code, domain, native, format, arguments);
	va_end(arguments);
	return code;
}

/* Where the limit is that a call has met. */
static const char *hint(int number)
{
	switch (number) {
	case EMFILE:
		return " (ulimit -n)";
	case ENFILE:
		return " (sysctl fs.file-max)";
	case ENOMEM:
		return " (ulimit -v, or the control group's memory.max)";
	case EFBIG:
		return " (ulimit -f)";
	default:
		return "";
	}
}

int err_os(struct gw_error *error, int number, const char *format, ...)
{
	va_list arguments;
	size_t used;

	va_start(arguments, format);
	(void)fill(error, -number, GW_DOMAIN_OS, number, format, arguments);
	va_end(arguments);
	if (!error)
		return -number;
	used = strlen(error->msg);
	(void)snprintf(error->msg + used, sizeof(error->msg) - used, ": %s%s",
		       strerrordesc_np(number) ? strerrordesc_np(number) : "unknown error",
		       hint(number));
	return -number;
}

void err_own_fill(struct gw_error *error, int code, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	(void)fill(error, code, GW_DOMAIN_GPUWARD, 0, format, arguments);
	va_end(arguments);
}
