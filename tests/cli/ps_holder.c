/* SPDX-License-Identifier: MIT */
/*
 * A program that uses the emulated GPU, for tests of `gpuward ps`: a context and some memory, and children that have
 * its open files and use nothing. It prints its pid and theirs in one line, then lives until its input ends; so do
 * the children.
 *
 * usage: ps-holder MIB CHILDREN [WORD ...]	(more words are there to be seen in its command line)
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "gpu/cuda_abi.h"

static void wait_end(void)
{
	char byte;

	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
}

int main(int argc, char **argv)
{
	struct cuda_context *context;
	uint64_t address;

	if (argc < 3 || cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) ||
	    cuCtxSetCurrent(context) || cuMemAlloc_v2(&address, strtoull(argv[1], NULL, 10) << 20))
		return 1;
	(void)printf("%d", getpid());
	for (int i = 0; i < atoi(argv[2]); i++) {
		pid_t pid;

		(void)fflush(stdout);
		pid = fork();
		if (pid == 0) {
			wait_end();
			_exit(0);
		}
		(void)printf(" %d", pid);
	}
	(void)printf("\n");
	(void)fclose(stdout);
	wait_end();
	return 0;
}
