/* SPDX-License-Identifier: MIT */
/*
 * Reads what the CUDA driver says through cuLogsRegisterCallback (CUDA 12.9 and newer).
 *
 * Runs in: worker, in any of its threads, inside the driver. Pure: no allocation, no lock, no byte is looked
 * at that is not inside the text.
 */
#ifndef GPUWARD_GPU_CUDA_LOG_H
#define GPUWARD_GPU_CUDA_LOG_H

#include <stddef.h>

/*
 * The CUresult of a call that failed, from a MESSAGE of LENGTH bytes such as
 * "Returning 710 (CUDA_ERROR_ASSERT) from cuCtxSynchronize"; -1 for any other text.
 */
int cuda_log_result(const char *message, size_t length);

#endif
