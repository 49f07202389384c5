/* SPDX-License-Identifier: MIT */
#include "gpu/xid_result.h"

#include <stddef.h>
#include <string.h>

#include "gpu/xid_table.h"

#define ILLEGAL_ADDRESS	    700
#define ILLEGAL_INSTRUCTION 715
#define MISALIGNED_ADDRESS  716

/* The words of a graphics exception. Xid 43 has them where it was joined with the 13 before it. */
static const struct {
	const char *words;
	int result;
} exceptions[] = {
	{"Misaligned Address", MISALIGNED_ADDRESS},
	{"Illegal Instruction Parameter", ILLEGAL_INSTRUCTION},
	{"Out Of Range Address", ILLEGAL_ADDRESS}, /* the stack overflowed */
};

int xid_result(uint32_t number, const char *rest)
{
	if (number == 31)
		return ILLEGAL_ADDRESS;
	if (number != 13 && number != 43)
		return -1;
	for (size_t i = 0; i < sizeof(exceptions) / sizeof(exceptions[0]); i++) {
		if (strstr(rest, exceptions[i].words))
			return exceptions[i].result;
	}
	return -1;
}

bool xid_ends_process(uint32_t number)
{
	const struct xid_info *row = xid_find(number);

	return row ? row->ends_process : true;
}
