/* SPDX-License-Identifier: MIT */
#include "holders/lines.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "common/fd.h"

#define LINES_ROOM (LOOK_TEXT_BYTES - 1) /* and a NUL */

struct reading {
	size_t left;   /* bytes of a piece that is not complete, at the beginning of the buffer */
	bool too_long; /* the piece is left out */
	bool ended;
};

/* Takes the whole pieces of BYTES bytes in the buffer, and moves the rest to its beginning. */
static void take_pieces(struct look *look, size_t bytes, char separator, lines_take *take,
			void *argument, struct reading *reading)
{
	char *piece = look->text;
	char *end;

	while (!reading->ended && (end = memchr(piece, separator, bytes))) {
		*end = '\0';
		if (!reading->too_long)
			reading->ended = !take(look, piece, (size_t)(end - piece), argument);
		reading->too_long = false;
		bytes -= (size_t)(end + 1 - piece);
		piece = end + 1;
	}
	memmove(look->text, piece, bytes);
	reading->left = bytes;
	if (bytes == LINES_ROOM) {
		reading->too_long = true;
		reading->left = 0;
	}
}

int lines_each(struct look *look, int folder, const char *name, char separator, lines_take *take,
	       void *argument)
{
	cleanup_fd int fd = openat(folder, name, O_RDONLY | O_CLOEXEC);
	struct reading reading = {0};

	if (fd < 0)
		return -errno;
	while (!reading.ended) {
		ssize_t got = read(fd, look->text + reading.left, LINES_ROOM - reading.left);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (got == 0)
			break;
		look_beat(look);
		take_pieces(look, reading.left + (size_t)got, separator, take, argument, &reading);
	}
	if (!reading.ended && reading.left > 0 && !reading.too_long) {
		look->text[reading.left] = '\0';
		(void)take(look, look->text, reading.left, argument);
	}
	return 0;
}
