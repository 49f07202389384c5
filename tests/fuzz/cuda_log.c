/* SPDX-License-Identifier: MIT */
/*
 * Fuzz target: the parser of the CUDA driver's log, with any bytes as a message.
 *
 * What it takes for a result must stand in the text as a number, and be all that the text's beginning says.
 * Built with libFuzzer (-Dfuzz=true, clang) or with replay.c.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/cuda_log.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	/* A copy of exactly this size, so that a byte too far is seen. */
	char *message = malloc(bytes ? bytes : 1);
	char wanted[32];
	int result;

	if (!message)
		return 0;
	memcpy(message, data, bytes);
	result = cuda_log_result(message, bytes);
	if (result < -1 || result > 999999)
		abort();
	(void)snprintf(wanted, sizeof(wanted), "%d (", result);
	if (result >= 0 && (bytes < 10 || memcmp(message, "Returning ", 10) != 0 ||
			    !memmem(message, bytes, wanted, strlen(wanted))))
		abort();
	free(message);
	return 0;
}
