/* SPDX-License-Identifier: MIT */
/*
 * The version of the library that is loaded, for a host that compares it with the header's.
 *
 * Runs in: host, worker, command line; any thread. Allocates nothing and never blocks.
 * The number stands in three places that have to agree: include/gpuward.h, meson.build and the
 * soname; tests/unit/version.c compares the first two. Read next: include/gpuward.h.
 */
#include <gpuward.h>

const char *gw_version(void)
{
	return GW_VERSION_TEXT;
}
