/* SPDX-License-Identifier: MIT */
#include "cli/xml.h"

#include <stdbool.h>
#include <stdint.h>

#define REPLACEMENT 0xfffdU
#define ELLIPSIS    0x2026U

/* The continuation bytes that follow a first byte, and the least code that needs so many; -1 for no first byte. */
static int follow_count(unsigned char first, uint32_t *ret_least)
{
	static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
	int count = first < 0x80	     ? 0
		    : (first & 0xe0) == 0xc0 ? 1
		    : (first & 0xf0) == 0xe0 ? 2
		    : (first & 0xf8) == 0xf0 ? 3
					     : -1;

	*ret_least = count > 0 ? least[count] : 0;
	return count;
}

static bool is_allowed(uint32_t code)
{
	return code >= 0x20 && !(code >= 0x7f && code < 0xa0) &&
	       !(code >= 0xd800 && code < 0xe000) && code != 0xfffe && code != 0xffff &&
	       code < 0x110000;
}

/* The next character of the text, which must not have ended. Bad bytes are taken one by one. */
static uint32_t next(const char **text)
{
	const unsigned char *at = (const unsigned char *)*text;
	uint32_t least;
	int count = follow_count(at[0], &least);
	uint32_t code;

	(*text)++;
	if (count < 0)
		return REPLACEMENT;
	code = count == 0 ? at[0] : at[0] & (0x3fU >> count);
	for (int i = 1; i <= count; i++) {
		/* The zero byte at the end is none either. */
		if ((at[i] & 0xc0) != 0x80)
			return REPLACEMENT;
		code = code << 6 | (at[i] & 0x3fU);
	}
	*text += count;
	if (code == '\t' || code == '\n' || code == '\r')
		return ' ';
	return code < least || !is_allowed(code) ? REPLACEMENT : code;
}

/* Roughly where the scripts begin whose characters are as wide as two letters. */
static size_t width_of(uint32_t code)
{
	return code >= 0x1100 && code != ELLIPSIS && code != REPLACEMENT &&
			       (code < 0x2000 || code >= 0x2e80)
		       ? 2
		       : 1;
}

size_t xml_width(const char *text)
{
	size_t width = 0;

	while (*text)
		width += width_of(next(&text));
	return width;
}

static void put_code(FILE *to, uint32_t code)
{
	const char *entity = code == '&'    ? "&amp;"
			     : code == '<'  ? "&lt;"
			     : code == '>'  ? "&gt;"
			     : code == '"'  ? "&quot;"
			     : code == '\'' ? "&#39;"
					    : NULL;

	if (entity)
		(void)fputs(entity, to);
	else if (code < 0x80)
		(void)putc((int)code, to);
	else
		(void)fprintf(to, "&#x%x;", code);
}

void xml_put(FILE *to, const char *text, size_t max)
{
	bool cut = xml_width(text) > max;
	size_t room = cut && max > 0 ? max - 1 : max;

	while (*text) {
		uint32_t code = next(&text);
		size_t width = width_of(code);

		if (width > room)
			break;
		room -= width;
		put_code(to, code);
	}
	if (cut && max > 0)
		put_code(to, ELLIPSIS);
}
