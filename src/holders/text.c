/* SPDX-License-Identifier: MIT */
#include "holders/text.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Reads one character. Returns its bytes, 0 for what is no UTF-8 (too long a form, half of a pair, too large). */
static size_t decode(const unsigned char *from, size_t bytes, uint32_t *ret_character)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	size_t length = from[0] < 0x80	 ? 1
			: from[0] < 0xc2 ? 0
			: from[0] < 0xe0 ? 2
			: from[0] < 0xf0 ? 3
					 : 4;
	uint32_t character = from[0];

	if (length == 0 || length > bytes || from[0] > 0xf4)
		return 0;
	if (length > 1)
		character &= 0x7fU >> length;
	for (size_t i = 1; i < length; i++) {
		if ((from[i] & 0xc0) != 0x80)
			return 0;
		character = character << 6 | (from[i] & 0x3fU);
	}
	if (character < least[length] || character > 0x10ffff ||
	    (character >= 0xd800 && character <= 0xdfff))
		return 0;
	*ret_character = character;
	return length;
}

/* Controls, marks of direction, separators of lines, tags, and others without a shape; ends are included. */
static bool is_shapeless(uint32_t character)
{
	static const uint32_t ranges[][2] = {
		{0x00, 0x1f},	     {0x7f, 0x9f},     {0xad, 0xad},	 {0x61c, 0x61c},
		{0x180e, 0x180e},    {0x200b, 0x200f}, {0x2028, 0x202e}, {0x2060, 0x206f},
		{0xfeff, 0xfeff},    {0xfff9, 0xfffb}, {0xe000, 0xf8ff}, {0xe0000, 0xe0fff},
		{0xf0000, 0x10ffff},
	};

	for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
		if (character >= ranges[i][0] && character <= ranges[i][1])
			return true;
	}
	return false;
}

size_t text_printable(char *to, size_t bytes, const char *from, size_t from_bytes)
{
	size_t length = 0;

	while (from_bytes > 0 && from[from_bytes - 1] == '\0')
		from_bytes--;
	while (from_bytes > 0) {
		uint32_t character = 0;
		size_t used = decode((const unsigned char *)from, from_bytes, &character);
		bool shown = used > 0 && !is_shapeless(character);
		size_t room = shown ? used : 1;

		if (length + room >= bytes)
			break;
		if (shown)
			memcpy(to + length, from, used);
		else
			to[length] = *from == '\0' ? ' ' : '?';
		length += room;
		used += used == 0;
		from += used;
		from_bytes -= used;
	}
	to[length] = '\0';
	return length;
}
