/* SPDX-License-Identifier: MIT */
/*
 * What the conformance cases are written with. A case is a small program against the driver's API that
 * states what it saw, as facts: lines "case.fact = value". The same cases run on a real driver and on
 * softgpu; the facts are then compared (run).
 *
 * Runs in: the case's own process, forked before any driver is loaded, and the processes (roles) that
 * the case starts. The process that stages roles and asks NVML (the stage) never loads libcuda: it
 * would hold device memory itself, or its children would.
 *
 * Invariant: a case says only what it observed. It has no opinion of what is right, so it goes on after
 * every result as long as there is anything left to observe. Read next: main.c, then any case_*.c.
 */
#ifndef CONFORMANCE_SUITE_H
#define CONFORMANCE_SUITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "gpu/cuda_abi.h"
#include "gpu/nvml_abi.h"

#define MIB 1048576ULL

struct suite_case {
	const char *name;
	void (*run)(const void *argument);
	const void *argument;
};

/* Each ends with an entry without a name. */
extern const struct suite_case cases_context[];
extern const struct suite_case cases_device[];
extern const struct suite_case cases_fault[];
extern const struct suite_case cases_fork[];
extern const struct suite_case cases_handle[];
extern const struct suite_case cases_ipc[];
extern const struct suite_case cases_lifetime[];
extern const struct suite_case cases_limit[];
extern const struct suite_case cases_memory[];
extern const struct suite_case cases_module[];
extern const struct suite_case cases_nvml[];
extern const struct suite_case cases_pinned[];
extern const struct suite_case cases_reserve[];
extern const struct suite_case cases_stream[];
extern const struct suite_case cases_xid[];

/* ---- facts ---- */

/* Where the facts of this process's case go. */
void suite_begin(const char *case_name, int facts_fd);

void fact(const char *name, long long value);
void fact_yes(const char *name, bool value);
void fact_text(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- the driver ---- */

enum suite_library {
	SUITE_CUDA,
	SUITE_NVML
};

/* Loads the library at the first use. A symbol that is missing is a fact, and ends the process. */
void *suite_symbol(enum suite_library library, const char *name);

#define CU(name, ...)	(((__typeof__(&name))suite_symbol(SUITE_CUDA, #name))(__VA_ARGS__))
#define NVML(name, ...) (((__typeof__(&name))suite_symbol(SUITE_NVML, #name))(__VA_ARGS__))

/* The common beginning: device 0, its primary context current, and the kernels loaded. */
struct session {
	int device;
	struct cuda_context *context;
	struct cuda_module *module;
};

/* A step that fails is a fact, and ends the process. */
void session_begin(struct session *session);

/* The kernel ENTRY; the process ends when there is none. */
struct cuda_function *session_function(const struct session *session, const char *entry);

/* Launches one thread of ENTRY. Returns the result of cuLaunchKernel. */
int session_launch(const struct session *session, const char *entry, struct cuda_stream *stream,
		   void **parameters);

/* The kernels as PTX text. */
const char *suite_ptx(void);

/* What cuMemCreate takes: memory of device 0 that can leave the process as a descriptor. */
struct cuda_allocation suite_exportable(void);

/* Reserves, maps and allows ACCESS. Returns the first result that is no success. */
int suite_map(uint64_t handle, size_t bytes, int access, uint64_t *ret_address);

/* ---- processes ---- */

/* A process of the case, with a socket to the one that started it. */
struct role {
	pid_t pid;
	int socket;
};

/* Starts RUN in a forked process, which ends by exit(0) after it. Only a stage calls this. */
void role_start(struct role *role, void (*run)(int socket, const void *argument),
		const void *argument);
/* Ends the role's socket and waits for its end; states how it ended as fact NAME unless that is NULL. */
void role_end(struct role *role, const char *name);
/* SIGKILL, and then the same. */
void role_kill(struct role *role);

/* One word and perhaps a descriptor over a socket. The peer's end ends the caller's process. */
void suite_send(int socket, uint64_t word, int fd);
uint64_t suite_receive(int socket, int *ret_fd);
/* As suite_receive(), for a peer that may end: false then. */
bool suite_try_receive(int socket, uint64_t *ret_word);

void suite_sleep_ms(unsigned int milliseconds);

/* ---- what others see (for a stage) ---- */

struct suite_gpu {
	int result; /* the first NVML result that was no success, or 0 */
	uint64_t used_bytes;
	uint32_t count;
	struct nvml_process processes[16];
};

/* Asks NVML about device 0, in a process of its own. */
void suite_ask(struct suite_gpu *ret_gpu);

/* What NVML says that PID uses; 0 if it is not listed. */
uint64_t suite_bytes_of(const struct suite_gpu *gpu, pid_t pid);
bool suite_lists(const struct suite_gpu *gpu, pid_t pid);

/* Waits a little for memory to come back: "released" once USED is nearer to BEFORE than to BEFORE plus
 * BYTES, else "held". */
const char *suite_memory_state(uint64_t before_bytes, uint64_t bytes);

/* The kernel log from here on, and the Xids in it. */
struct suite_log {
	int fd;
	bool records; /* one read is one record: /dev/kmsg */
};

void suite_log_open(struct suite_log *log);
/* States the Xids since, in the order of their first lines, and whether one of the lines names PID. */
void suite_log_facts(struct suite_log *log, pid_t pid);
/* Waits for the first Xid since, a few seconds at most. LOG can then not be used any more. */
void suite_log_await(struct suite_log *log);
/* States of each Xid line since whether it names PID. */
void suite_log_line_facts(struct suite_log *log, pid_t pid);

#endif
