/* SPDX-License-Identifier: MIT */
/*
 * Short forms for tests that call the driver: processes that do one thing, and the usual first steps.
 *
 * Runs in: a test's process and the children that it forks. A child never uses cmocka: it ends with
 * CHILD_BAD_CALL and a line on standard error when something is not as expected.
 * Invariant: the parent never initialises CUDA, so that its forked children can.
 * Read next: softgpu.h.
 */
#ifndef TESTS_SOFTGPU_CALLS_H
#define TESTS_SOFTGPU_CALLS_H

#include <stdint.h>
#include <sys/types.h>

#include "gpu/cuda_abi.h"

#define CHILD_BAD_CALL 99

/* In a child: ends it unless CALL gives WANTED. */
#define NEED(call, wanted) child_need((call), (wanted), #call, __FILE__, __LINE__)
#define OK(call)	   NEED(call, CUDA_SUCCESS)

void child_need(long result, long wanted, const char *call, const char *file, int line);

/* Forks a child that runs FUNCTION and exits with what it returns. Returns its pid. */
pid_t child_start(int (*function)(void *argument), void *argument);

/* Waits for the child. Returns its exit code, or minus the signal that ended it. */
int child_end(pid_t pid);

/* Both. */
int child_run(int (*function)(void *argument), void *argument);

/* In a child: cuInit, primary context of DEVICE, current. */
void child_context(int device);

/* In a child: the function NAME of the common kernels, loaded in the current context. */
struct cuda_function *child_kernel(const char *name);

/* In a child: launches one block of one thread on the default stream. */
int child_launch(struct cuda_function *function, void **parameters);

/* In a child: COUNT words filled by the kernel `fill` with SEED, or counted by `check`. */
void child_fill(uint64_t address, uint64_t count, uint32_t seed);
uint64_t child_check(uint64_t address, uint64_t count, uint32_t seed);

/* One byte from one process to another: the writer's end, the reader's end. */
struct signal_pipe {
	int fds[2];
};

void pipe_open(struct signal_pipe *pipe);
void pipe_send(const struct signal_pipe *pipe);
/* Returns 1 for a byte, 0 when every writer is gone. */
int pipe_wait(const struct signal_pipe *pipe);
void pipe_close(struct signal_pipe *pipe);

/* Sends FD over SOCKET, receives one. */
void socket_send_fd(int socket, int fd);
int socket_receive_fd(int socket);

#endif
