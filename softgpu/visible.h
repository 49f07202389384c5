/* SPDX-License-Identifier: MIT */
/*
 * CUDA_VISIBLE_DEVICES: which devices of the machine a process sees, and in which order; and the names
 * by which devices are known.
 *
 * Runs in: cuInit and NVML. Allocates nothing.
 * Invariant: the first entry that names no device ends the list, and a device that is named twice makes
 * the whole list wrong, as with the real driver.
 */
#ifndef SOFTGPU_VISIBLE_H
#define SOFTGPU_VISIBLE_H

#include <stdint.h>

#define VISIBLE_NAME "Emulated H200 (softgpu)"

/* LIST may be NULL: all are visible. INDEX gets the machine's numbers. Returns how many,
 * or -1 for a list with a device in it twice. */
int visible_devices(const char *list, uint32_t devices, uint32_t *index);

/* The 16 bytes of the UUID of DEVICE, and its text form "GPU-..." (41 bytes with the zero). */
void visible_uuid_bytes(uint32_t device, uint8_t bytes[16]);
void visible_uuid_text(uint32_t device, char text[41]);

#endif
