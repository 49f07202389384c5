/* SPDX-License-Identifier: MIT */
/*
 * A wish for an address: when the driver keeps it, and what it gives instead. Runs in: see suite.h.
 */
#include <stdio.h>

#include "suite.h"

#define PIECE (2 * MIB)
#define GIB   (1024 * MIB)

#define WISH  0x700000000000ULL
#define SPACE (4096 * GIB)

/* The address that gpuward gives its surviving memory, and how much it reserves there (STATE_BASE). */
#define STATE	    0x680000000000ULL
#define STATE_SPACE (1024 * GIB)

/* Beyond all addresses of programs and of the GPU. */
#define TOO_HIGH 0x10000000000000ULL

struct size {
	const char *name;
	uint64_t bytes;
};

static const struct size sizes[] = {
	{"2_mib", PIECE}, {"64_mib", 64 * MIB}, {"256_mib", 256 * MIB}, {"512_mib", 512 * MIB},
	{"1_gib", GIB},	  {"64_gib", 64 * GIB}, {"512_gib", 512 * GIB}, {"4_tib", SPACE},
};

static void each_size(void)
{
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint64_t address = 0;
		char name[64];

		fact(sizes[i].name, CU(cuMemAddressReserve, &address, sizes[i].bytes, 0, WISH, 0));
		(void)snprintf(name, sizeof(name), "%s_is_kept", sizes[i].name);
		fact_yes(name, address == WISH);
		(void)snprintf(name, sizeof(name), "%s_free", sizes[i].name);
		fact(name, CU(cuMemAddressFree, address, sizes[i].bytes));
	}
}

/* One piece in the last quarter of a reservation of 4 TiB at WISH. */
static void use_space(void)
{
	const struct cuda_allocation allocation = suite_exportable();
	const struct cuda_access_range range = {
		.location = {.type = CUDA_LOCATION_DEVICE, .id = 0},
		.flags = CUDA_ACCESS_READWRITE,
	};
	const uint64_t address = WISH + SPACE / 4 * 3 + PIECE;
	uint64_t handle = 0;
	uint32_t word = 0;

	(void)CU(cuMemCreate, &handle, PIECE, &allocation, 0);
	fact("piece_map", CU(cuMemMap, address, PIECE, 0, handle, 0));
	fact("piece_access", CU(cuMemSetAccess, address, PIECE, &range, 1));
	(void)CU(cuMemsetD32_v2, address, 4711, PIECE / 4);
	fact("piece_read", CU(cuMemcpyDtoH_v2, &word, address + PIECE - 4, 4));
	fact("piece_value", word);
	fact("piece_unmap", CU(cuMemUnmap, address, PIECE));
}

/* Before the process has a context; what was reserved then can be used when it has one. */
static void early(const void *argument)
{
	struct session session;
	uint64_t address = 0;

	(void)argument;
	(void)CU(cuInit, 0);
	each_size();
	fact("reserve", CU(cuMemAddressReserve, &address, SPACE, 0, WISH, 0));
	fact_yes("is_kept", address == WISH);
	session_begin(&session);
	use_space();
}

static void late(const void *argument)
{
	struct session session;
	uint64_t address = 0;

	(void)argument;
	session_begin(&session);
	each_size();
	fact("odd", CU(cuMemAddressReserve, &address, GIB, 0, WISH + PIECE, 0));
	fact("odd_lies_behind_mib", (long long)((address - WISH) / MIB));
	fact("odd_free", CU(cuMemAddressFree, address, GIB));
	fact("too_high", CU(cuMemAddressReserve, &address, GIB, 0, TOO_HIGH, 0));
	fact("too_high_small", CU(cuMemAddressReserve, &address, PIECE, 0, TOO_HIGH, 0));
	fact("reserve", CU(cuMemAddressReserve, &address, SPACE, 0, WISH, 0));
	fact("taken", CU(cuMemAddressReserve, &address, GIB, 0, WISH, 0));
	fact_yes("taken_is_behind_it", address == WISH + SPACE);
	use_space();
}

/* As a worker does with state: its range, a second one of the same size anywhere, a piece in each. */
static void state_range(const void *argument)
{
	const struct cuda_allocation allocation = suite_exportable();
	struct cuda_access_range range = {
		.location = {.type = CUDA_LOCATION_DEVICE, .id = 0},
		.flags = CUDA_ACCESS_READWRITE,
	};
	struct session session;
	uint64_t address = 0;
	uint64_t shadow = 0;
	uint64_t handle = 0;
	uint32_t word = 0;

	(void)argument;
	session_begin(&session);
	fact("reserve", CU(cuMemAddressReserve, &address, STATE_SPACE, PIECE, STATE, 0));
	fact_yes("is_kept", address == STATE);
	fact("shadow", CU(cuMemAddressReserve, &shadow, STATE_SPACE, PIECE, 0, 0));
	(void)CU(cuMemCreate, &handle, PIECE, &allocation, 0);
	fact("map", CU(cuMemMap, address + PIECE, PIECE, 0, handle, 0));
	fact("access", CU(cuMemSetAccess, address + PIECE, PIECE, &range, 1));
	fact("map_twice", CU(cuMemMap, shadow + PIECE, PIECE, 0, handle, 0));
	fact("access_twice", CU(cuMemSetAccess, shadow + PIECE, PIECE, &range, 1));
	fact("release", CU(cuMemRelease, handle));
	(void)CU(cuMemsetD32_v2, shadow + PIECE, 4711, PIECE / 4);
	fact("sync", CU(cuCtxSynchronize));
	fact("unmap", CU(cuMemUnmap, shadow + PIECE, PIECE));
	range.flags = CUDA_ACCESS_READ;
	fact("seal", CU(cuMemSetAccess, address + PIECE, PIECE, &range, 1));
	fact("read", CU(cuMemcpyDtoH_v2, &word, address + 2 * PIECE - 4, 4));
	fact("value", word);
	fact("write", CU(cuMemsetD32_v2, address + PIECE, 1, PIECE / 4));
}

const struct suite_case cases_reserve[] = {
	{"state_range", state_range, NULL},
	{"wish_early", early, NULL},
	{"wish_late", late, NULL},
	{NULL, NULL, NULL},
};
