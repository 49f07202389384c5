/* SPDX-License-Identifier: MIT */
#include "cli/ms.h"

#include <stdio.h>
#include <string.h>

#define MS UINT64_C(1000000)

void ms_format(uint64_t ns, char text[MS_TEXT_MAX])
{
	int decimals = ns < MS / 10 ? 3 : ns < 10 * MS ? 2 : ns < 100 * MS ? 1 : 0;
	uint64_t scale = 1;
	uint64_t unit = MS;
	uint64_t count;

	for (int i = 0; i < decimals; i++) {
		unit /= 10;
		scale *= 10;
	}
	/* Rounded: a sum could overflow. */
	count = ns / unit + (ns % unit >= unit / 2);
	if (decimals == 0)
		(void)snprintf(text, MS_TEXT_MAX, "%llu ms", (unsigned long long)count);
	else
		(void)snprintf(text, MS_TEXT_MAX, "%llu.%0*llu ms",
			       (unsigned long long)(count / scale), decimals,
			       (unsigned long long)(count % scale));
}

size_t ms_format_exact(uint64_t ns, char text[MS_TEXT_MAX])
{
	size_t length;

	(void)snprintf(text, MS_TEXT_MAX, "%llu.%06llu", (unsigned long long)(ns / MS),
		       (unsigned long long)(ns % MS));
	length = strlen(text);
	while (text[length - 1] == '0')
		length--;
	length -= text[length - 1] == '.';
	text[length] = '\0';
	return length;
}
