/* SPDX-License-Identifier: MIT */
/*
 * Loads a driver library by its versioned name and fills a table of its symbols.
 *
 * Runs in: worker and probe, which load; every process asks dl_cuda_is_loaded(). Never loads the
 * unversioned name: that one is the CUDA toolkit's stub, which answers every call with an error.
 * RTLD_LOCAL, so that the driver's symbols do not resolve anything else in the process.
 *
 * Invariant: a door whose opening succeeded has every required symbol; an optional one can be NULL.
 * Read next: cuda.h and nvml.h, the two doors.
 */
#ifndef GPUWARD_GPU_DL_H
#define GPUWARD_GPU_DL_H

#include <gpuward.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One symbol of a library, and where in the door its address goes. */
struct dl_symbol {
	const char *name;
	size_t slot; /* offset of the function pointer in the door */
	bool required;
	const char *since; /* the oldest version that has it, in words for people */
};

/*
 * Loads the library SONAME. INSTALL says how to get it, for the message.
 * Returns 0 and *RET_LIBRARY (end it with dl_close()), or GW_EDRIVER: it is missing, or it cannot be
 * loaded, which are different messages.
 */
int dl_open(const char *soname, const char *install, void **ret_library,
	    struct gw_error *ret_error);

/* Ends a library. NULL is fine. */
void dl_close(void *library);

/*
 * Fills DOOR from TABLE. Symbols that are missing leave NULL.
 * Returns NULL, or the first required symbol that is missing.
 */
const struct dl_symbol *dl_resolve(void *library, const struct dl_symbol *table, size_t count,
				   void *door);

/*
 * Is a CUDA driver mapped in this process already? Loads nothing. True as well for a toolkit stub that
 * was loaded by its path: the dynamic linker then knows it as libcuda.so.1, and this process can get no
 * other driver any more.
 */
bool dl_cuda_is_loaded(void);

/*
 * Notes in the object file that a library is loaded by name at run time, so that packaging tools see
 * it (the section .note.dlopen, owner FDO).
 */
#define DL_NOTE(variable, json)                                                                    \
	__attribute__((used, section(".note.dlopen"))) _Alignas(uint32_t) static const struct {    \
		uint32_t owner_bytes;                                                              \
		uint32_t text_bytes;                                                               \
		uint32_t type;                                                                     \
		char owner[4];                                                                     \
		_Alignas(uint32_t) char text[sizeof(json)];                                        \
	} variable = {4, sizeof(json), 0x407c0c0aU, "FDO", json}

#endif
