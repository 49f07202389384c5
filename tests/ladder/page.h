/* SPDX-License-Identifier: MIT */
/*
 * What the test of allocations and the library that it preloads into the subject share.
 *
 * Runs in: test (writes the order), host, ward and worker of the subject (count). A memfd of the test,
 * opened by the path in LADDER_PAGE, so that nothing depends on what descriptors a program inherits.
 */
#ifndef TESTS_LADDER_PAGE_H
#define TESTS_LADDER_PAGE_H

#include <stdatomic.h>
#include <stdint.h>

#define LADDER_PAGE_ENV "LADDER_PAGE"

enum ladder_role {
	LADDER_HOST,
	LADDER_WARD,
	LADDER_WORKER,
	LADDER_ROLES
};

struct ladder_page {
	uint32_t role;	       /* enum ladder_role: whose allocation fails */
	uint32_t place;	       /* which one, from 1 */
	_Atomic uint32_t seen; /* allocations in that role so far */
};

#endif
