/* SPDX-License-Identifier: MIT */
#include "gpu/cuda_log.h"

#include <string.h>

/* Far beyond every result; what has more digits is something else. */
#define DIGITS_MAX 6

int cuda_log_result(const char *message, size_t length)
{
	static const char begin[] = "Returning ";
	static const char behind[] = " (";
	size_t at = strlen(begin);
	size_t digits = 0;
	int result = 0;

	if (length < at || memcmp(message, begin, at) != 0)
		return -1;
	while (digits < DIGITS_MAX && at < length && message[at] >= '0' && message[at] <= '9') {
		result = result * 10 + (message[at] - '0');
		at++;
		digits++;
	}
	if (digits == 0 || length - at < strlen(behind) ||
	    memcmp(message + at, behind, strlen(behind)) != 0)
		return -1;
	return result;
}
