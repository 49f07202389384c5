/* SPDX-License-Identifier: MIT */
#include "common/visible.h"

#include <string.h>

bool visible_entry(const char *list, uint32_t number, const char **ret_entry, size_t *ret_bytes,
		   uint32_t *ret_count)
{
	bool found = false;
	uint32_t count = 0;

	while (*list != '\0' && *list != '-') {
		size_t bytes = strcspn(list, ",");

		if (count == number) {
			found = true;
			*ret_entry = list;
			*ret_bytes = bytes;
		}
		count++;
		list += bytes;
		if (*list == ',')
			list++;
	}
	*ret_count = count;
	return found;
}
