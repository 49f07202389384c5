/* SPDX-License-Identifier: MIT */
#include "process.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/fd.h"
#include "context.h"
#include "export.h"
#include "visible.h"
#include "xid.h"

/* A byte of dev/nvidia-uvm behind those of the clients. */
#define TURN_AT (1 << 20)

struct process process = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.changed = PTHREAD_COND_INITIALIZER,
};

/*
 * A fork in the middle of a transaction would give the child a copy of the descriptor that holds the
 * table's lock, and the parent's death would then leave the lock held by a child that knows nothing:
 *
 *	thread A		thread B		child
 *	table_open()
 *				fork()
 *	killed			killed			lives, holds the table for ever
 */
static void before_fork(void)
{
	(void)pthread_mutex_lock(&process.lock);
}

static void after_fork(void)
{
	(void)pthread_mutex_unlock(&process.lock);
}

__attribute__((constructor)) static void guard_forks(void)
{
	(void)pthread_atfork(before_fork, after_fork, after_fork);
}

/* Until somebody changes the switch, and without the lock, so that other threads hang by themselves. */
static void hang(void)
{
	struct timespec wait = {.tv_nsec = 10000000};

	while (process.machine.state == MACHINE_OK && process.machine.settings.cuda_hang) {
		(void)pthread_mutex_unlock(&process.lock);
		(void)nanosleep(&wait, NULL);
		(void)pthread_mutex_lock(&process.lock);
		(void)machine_refresh(&process.machine);
	}
}

int process_result(int code)
{
	if (code == 0)
		return CUDA_SUCCESS;
	return code == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_SYSTEM_NOT_READY;
}

int process_open_table(void)
{
	return process_result(table_open(&process.table, &process.machine));
}

int process_open_table_as_is(void)
{
	return process_result(table_open_as_is(&process.table, &process.machine));
}

uint32_t process_device(int device)
{
	return process.device_index[device];
}

void process_delay(unsigned int milliseconds)
{
	struct timespec wait = {
		.tv_sec = milliseconds / 1000,
		.tv_nsec = (long)(milliseconds % 1000) * 1000000L,
	};

	if (!process.machine.settings.delays)
		return;
	(void)pthread_mutex_unlock(&process.lock);
	while (nanosleep(&wait, &wait) < 0 && errno == EINTR)
		;
	(void)pthread_mutex_lock(&process.lock);
}

/* The driver makes one context at a time: four at once were seen to take 540 ms. */
void process_delay_in_turn(unsigned int milliseconds)
{
	struct flock turn = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	cleanup_fd int fd = -1;

	if (!process.machine.settings.delays)
		return;
	fd = machine_file(&process.machine, "dev/nvidia-uvm", O_RDWR);
	turn.l_start = TURN_AT;
	turn.l_len = 1;
	(void)pthread_mutex_unlock(&process.lock);
	while (fd >= 0 && fcntl(fd, F_OFD_SETLKW, &turn) < 0 && errno == EINTR)
		;
	(void)pthread_mutex_lock(&process.lock);
	process_delay(milliseconds);
	/* Not by closing alone: a child that was forked meanwhile has the descriptor too. */
	turn.l_type = F_UNLCK;
	if (fd >= 0)
		(void)fcntl(fd, F_OFD_SETLK, &turn);
}

bool process_others_live(void)
{
	bool others = false;

	if (!process.machine.settings.delays || process_open_table())
		return false;
	for (uint32_t i = 0; i < process.table.header.clients; i++)
		others = others || (process.table.clients[i].used &&
				    !(process.pid && i == process.client.index));
	table_close(&process.table);
	return others;
}

/* The first one that finds its GPU lost also plays the kernel driver, which logs the loss. */
static void log_loss(uint32_t device)
{
	if (table_open(&process.table, &process.machine) < 0)
		return;
	if (!(process.table.header.lost_mask & 1ULL << device)) {
		process.table.header.lost_mask |= 1ULL << device;
		(void)xid_log(&process.table, TABLE_NONE, device,
			      "79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.");
		(void)xid_announce(&process.machine, device, 0x8, 79);
	}
	table_close(&process.table);
}

static int check_context(void)
{
	const struct cuda_context *context = context_current();

	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (process.machine.settings.lost == context->machine_device) {
		log_loss(context->machine_device);
		return CUDA_ERROR_UNKNOWN;
	}
	return CUDA_SUCCESS;
}

static int check_need(int need)
{
	if (!(need & (NEED_INIT | NEED_CONTEXT)))
		return CUDA_SUCCESS;
	if (process.pid == 0 || process.pid != getpid())
		return CUDA_ERROR_NOT_INITIALIZED;
	if (machine_refresh(&process.machine) != MACHINE_OK)
		return CUDA_ERROR_SYSTEM_NOT_READY;
	hang();
	/* Measured: a context that was reset after the fault is destroyed first, and faulted second. */
	if (need & NEED_CONTEXT && context_current() && context_current()->destroyed)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	if (process.sticky && !(need & NEED_EVEN_DEAD))
		return process.sticky;
	return need & NEED_CONTEXT ? check_context() : CUDA_SUCCESS;
}

int process_enter(int need)
{
	(void)pthread_mutex_lock(&process.lock);
	return check_need(need);
}

/* The call that finds the fault is named in the log; those after it are only said to be in vain. */
int process_leave(const char *function, int result)
{
	const char *name = NULL;
	bool known = process.sticky_is_known;
	bool sticky = process.sticky && process.sticky == result;
	char text[160];

	process.sticky_is_known = known || sticky;

	(void)pthread_mutex_unlock(&process.lock);
	if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY ||
	    (process.pid && process.pid != getpid()))
		return result;
	if (sticky && known) {
		process_log(CUDA_LOG_ERROR, "Sticky error detected");
		return result;
	}
	(void)cuGetErrorName(result, &name);
	(void)snprintf(text, sizeof(text), "Returning %d (%s) from %s", result,
		       name ? name : "unknown", function);
	process_log(CUDA_LOG_ERROR, text);
	return result;
}

void process_crash(const char *what)
{
	machine_say("%s: the real driver crashes here, and so does this one", what);
	(void)signal(SIGSEGV, SIG_DFL);
	(void)raise(SIGSEGV);
	/* It may be blocked. */
	_exit(128 + SIGSEGV);
}

/* Loads what CUDA_INJECTION64_PATH names and calls its entry point, as the real driver does. */
static void inject(void)
{
	const char *path = getenv("CUDA_INJECTION64_PATH");
	int (*entry)(void) = NULL;
	void *library;

	if (!path || !*path)
		return;
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (library)
		*(void **)&entry = dlsym(library, "InitializeInjection");
	if (entry)
		(void)entry();
}

static int join(void)
{
	int result;

	if (machine_open(&process.machine) != MACHINE_OK)
		return process.machine.state == MACHINE_ABSENT ? CUDA_ERROR_NO_DEVICE
							       : CUDA_ERROR_SYSTEM_NOT_READY;
	hang();
	if (process.machine.settings.mismatch)
		return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
	process.devices =
		visible_devices(getenv("CUDA_VISIBLE_DEVICES"),
				(uint32_t)process.machine.settings.devices, process.device_index);
	if (process.devices <= 0)
		return process.devices < 0 ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_NO_DEVICE;
	process_delay(process_others_live() ? 12 : 100);
	result = process_open_table();
	if (result)
		return result;
	result = process_result(client_join(&process.client, &process.table));
	table_close(&process.table);
	return result;
}

SOFT_EXPORT int cuInit(unsigned int flags)
{
	bool first = false;
	int result = process_enter(NEED_NOTHING);

	if (flags)
		result = CUDA_ERROR_INVALID_VALUE;
	else if (process.pid == 0) {
		result = join();
		first = result == CUDA_SUCCESS;
		if (first)
			process.pid = getpid();
	} else if (process.pid != getpid()) {
		result = CUDA_ERROR_NOT_INITIALIZED;
	}
	result = process_leave("cuInit", result);
	if (first)
		inject();
	return result;
}
