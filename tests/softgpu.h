/* SPDX-License-Identifier: MIT */
/*
 * An emulated GPU machine for a test: a directory of its own, its switches, and a look at its memory that
 * needs no driver in the test's process.
 *
 * Runs in: a test's process; every failure fails the test (cmocka).
 * Invariant: soft_dir_free() passes only if no byte of device memory is left and nothing that the
 * emulation did not make lies in the directory.
 * Read next: softgpu/README.md for the switches.
 */
#ifndef TESTS_SOFTGPU_H
#define TESTS_SOFTGPU_H

#include <stdint.h>

/*
 * Makes a machine in a new directory and sets GPUWARD_SOFT_DIR to it. SETTINGS is the text of the file
 * `settings`, or NULL for one device with all defaults. One machine at a time.
 */
void soft_dir_new(const char *settings);

/* The directory. Valid until soft_dir_free(). */
const char *soft_dir(void);

/* Replaces the settings at once, also for processes that are running. */
void soft_setting(const char *settings);

/* The machine begins anew, as after a reset of its GPUs: what holds memory of before holds nothing that counts. */
void soft_reset(void);

/* Bytes in use on DEVICE, without the reserved ones; 0 if no process ever used the machine. */
uint64_t soft_used_bytes(int device);

/* Bytes of host memory that all processes have pinned; 0 if no process ever used the machine. */
uint64_t soft_pinned_bytes(void);

/* How many processes use the machine, the dead whose descriptors live on included. */
int soft_clients(void);

/* The text of the file NAME of the machine, for instance "kmsg"; free() it. */
char *soft_text(const char *name);

/* Waits up to ten seconds until no byte is in use, fails otherwise. For the ends of orphans. */
void soft_wait_unused(void);

/* The same, and removes the directory. */
void soft_dir_free(void);

/* Removes the directory without any demand, for tests that break it. */
void soft_dir_remove(void);

#endif
