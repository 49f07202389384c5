/* SPDX-License-Identifier: MIT */
/*
 * The symbols of the fake libcuda.so.1 that no test calls: each is another name of one function that
 * reports success. Weak, and in a file of their own, so that those of cuda.c stand.
 */
#include "gpu/cuda.h"

int fake_anything(void);

__attribute__((used, visibility("default"))) int fake_anything(void)
{
	return CUDA_SUCCESS;
}

#define ALIAS(name, required, since) __asm__(".weak " #name "\n.set " #name ", fake_anything");
CUDA_SYMBOLS(ALIAS)
