/* SPDX-License-Identifier: MIT */
/*
 * Marks the functions that the emulated libraries export; everything else is hidden.
 *
 * Runs in: nothing; one macro. Never put it on a function that the real library does not export.
 * Invariant: the version scripts libcuda.map and libnvidia-ml.map say the same by pattern.
 * Read next: process.h, nvml.c.
 */
#ifndef SOFTGPU_EXPORT_H
#define SOFTGPU_EXPORT_H

#define SOFT_EXPORT __attribute__((visibility("default")))

#endif
