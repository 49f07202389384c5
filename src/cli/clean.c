/* SPDX-License-Identifier: MIT */
#include "cli/clean.h"

void clean_text(char *to, size_t bytes, const char *from, size_t from_bytes)
{
	size_t length = 0;

	while (length < from_bytes && length + 1 < bytes && from[length] != '\0') {
		char c = from[length];

		to[length++] = (char)(c < ' ' || c > '~' ? '?' : c);
	}
	to[length] = '\0';
}
