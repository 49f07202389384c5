/* SPDX-License-Identifier: MIT */
#include "cli/bytes.h"

#include <inttypes.h>
#include <stdio.h>

#include <gpuward.h>

void bytes_format(uint64_t bytes, char text[BYTES_TEXT_MAX])
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	unsigned int shift = 0;
	uint64_t whole, tenths;

	if (bytes == GW_UNKNOWN) {
		(void)snprintf(text, BYTES_TEXT_MAX, "-");
		return;
	}
	while (shift <= 50 && bytes >> (shift + 10) > 0)
		shift += 10;
	whole = bytes >> shift;
	tenths = shift > 0 ? (bytes >> (shift - 10) & 1023) * 10 / 1024 : 0;
	if (tenths > 0)
		(void)snprintf(text, BYTES_TEXT_MAX, "%" PRIu64 ".%" PRIu64 " %s", whole, tenths,
			       units[shift / 10]);
	else
		(void)snprintf(text, BYTES_TEXT_MAX, "%" PRIu64 " %s", whole, units[shift / 10]);
}
