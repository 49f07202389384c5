/* SPDX-License-Identifier: MIT */
#include "fault.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include "common/fd.h"
#include "gpu/nvml_abi.h"
#include "process.h"
#include "xid.h"

/* Tenths of a millisecond after the launch. */
struct fault_times {
	uint32_t log;
	uint32_t event;
	uint32_t result;
	uint32_t stall_until; /* of other processes' kernels */
};

struct fault_kind {
	int result;
	uint32_t xid; /* of the event; lines can have others before */
	/*
	 * Faults that the GPU itself finds become known in one of two ways, each about as often: after
	 * 100 ms or after 147.
	 */
	struct fault_times times[2];
	const char *lines[4];
	bool counts_contexts; /* all of this takes longer for each other context on the GPU */
};

/* Tenths of a millisecond for each other context: usually, and where every process has one connection. */
#define OTHER_CONTEXT	    110
#define OTHER_SMALL_CONTEXT 20

#define PAGE_FAULT                                                                                 \
	"31, pid=@PID, name=@NAME, channel @CHANNEL, intr 00000000. MMU Fault: ENGINE GRAPHICS "   \
	"GPC1 GPCCLIENT_T1_0 faulted @ 0x0_00000000. Fault is of type "
#define WARP_EXCEPTION "13, Graphics SM Warp Exception on (GPC 1, TPC 4, SM 0): "
#define REGISTERS_TEXT                                                                             \
	"Graphics Exception: ESR 0x50ce48=0x10000f 0x50ce50=0x20 0x50ce44=0xd3eff2 0x50ce4c=0x17f"
#define REGISTERS "13, " REGISTERS_TEXT
/* The same where the process was killed at the first line: the name is that of one of its threads. */
#define REGISTERS_OF_KILLED "13, pid=@PID, name=cuda-EvtHandlr, " REGISTERS_TEXT
#define GRAPHICS_EXCEPTION                                                                         \
	"13, pid=@PID, name=@NAME, Graphics Exception: channel @CHANNEL, Class 0000cbc0, Offset "  \
	"00000510, Data 0017e2ac"
#define STOPPED "43, pid=@PID, name=@NAME, channel @CHANNEL"

#define TIMES_OF_PAGE_FAULT                                                                        \
	{                                                                                          \
		{770, 1000, 1010, 970},                                                            \
		{                                                                                  \
			1250, 1470, 1480, 1450                                                     \
		}                                                                                  \
	}
#define TIMES_OF_EXCEPTION                                                                         \
	{                                                                                          \
		{30, 1000, 1020, 1000},                                                            \
		{                                                                                  \
			30, 1110, 1480, 1110                                                       \
		}                                                                                  \
	}

static const struct fault_kind kinds[] = {
	[FAULT_ADDRESS] = {CUDA_ERROR_ILLEGAL_ADDRESS,
			   31,
			   TIMES_OF_PAGE_FAULT,
			   {PAGE_FAULT "FAULT_PDE ACCESS_TYPE_VIRT_WRITE"}},
	[FAULT_READ_ONLY] = {CUDA_ERROR_ILLEGAL_ADDRESS,
			     31,
			     TIMES_OF_PAGE_FAULT,
			     {PAGE_FAULT "FAULT_RO_VIOLATION ACCESS_TYPE_VIRT_WRITE"}},
	[FAULT_MISALIGNED] = {CUDA_ERROR_MISALIGNED_ADDRESS,
			      13,
			      TIMES_OF_EXCEPTION,
			      {WARP_EXCEPTION "Misaligned Address", REGISTERS, GRAPHICS_EXCEPTION}},
	[FAULT_ASSERT] = {CUDA_ERROR_ASSERT,
			  43,
			  {{60, 90, 70, 30}, {60, 90, 70, 30}},
			  {STOPPED},
			  .counts_contexts = true},
	[FAULT_TRAP] = {CUDA_ERROR_LAUNCH_FAILED,
			43,
			{{55, 77, 3420, 31}, {55, 77, 3480, 31}},
			{STOPPED},
			.counts_contexts = true},
	[FAULT_SHARED] = {CUDA_ERROR_ILLEGAL_INSTRUCTION,
			  13,
			  {{50, 760, 1020, 760}, {50, 1110, 1480, 1110}},
			  {WARP_EXCEPTION "Illegal Instruction Parameter", REGISTERS,
			   GRAPHICS_EXCEPTION}},
	/* Result and lines are measured, the times are taken from FAULT_MISALIGNED. */
	[FAULT_STACK] = {CUDA_ERROR_ILLEGAL_ADDRESS,
			 43,
			 TIMES_OF_EXCEPTION,
			 {WARP_EXCEPTION "Out Of Range Address", REGISTERS, STOPPED}},
};

static void sleep_until(uint64_t when_ns)
{
	struct timespec when = {
		.tv_sec = (time_t)(when_ns / 1000000000U),
		.tv_nsec = (long)(when_ns % 1000000000U),
	};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL) == EINTR)
		;
}

static void wait_tenths(uint64_t launched_ns, uint32_t tenths)
{
	if (process.machine.settings.delays)
		sleep_until(launched_ns + tenths * 100000ULL);
}

/* What the other contexts on the GPU add to the times of a fault, in tenths of a millisecond. */
static uint32_t time_of_others(const struct table *table, uint32_t device)
{
	uint32_t others = 0;
	bool small = true;

	for (uint32_t i = 0; i < table->header.clients; i++) {
		const struct table_client *client = &table->clients[i];

		if (!client->used || !(client->contexts & 1ULL << device))
			continue;
		small = small && client->connections == 1;
		others += i != process.client.index;
	}
	return others * (small ? OTHER_SMALL_CONTEXT : OTHER_CONTEXT);
}

static void add_tenths(struct fault_times *times, uint32_t tenths)
{
	times->log += tenths;
	times->event += tenths;
	times->result += tenths;
	times->stall_until += tenths;
}

/* From the launch on nobody else's work runs: with the lock, and at once, since the line may come later. */
static void begin_stall(const struct fault_kind *kind, struct fault_times *times, uint32_t device,
			uint64_t launched_ns)
{
	struct table *table = &process.table;
	uint64_t *until = &table->header.stall_until_ns[device];
	uint64_t stall_ns;

	if (!process.machine.settings.delays || process_open_table())
		return;
	if (kind->counts_contexts)
		add_tenths(times, time_of_others(table, device));
	stall_ns = launched_ns + times->stall_until * 100000ULL;
	if (*until < stall_ns) {
		*until = stall_ns;
		(void)table_put_header(table);
	}
	table_close(table);
}

static void write_log(const struct fault_kind *kind, uint32_t device)
{
	const struct settings *settings = &process.machine.settings;
	struct table *table = &process.table;

	if (process_open_table())
		return;
	for (size_t i = 0; i < 4 && kind->lines[i] && settings->xid_lines; i++) {
		const char *line = kind->lines[i];

		if (settings->xid_early_pid && strcmp(line, REGISTERS) == 0)
			line = REGISTERS_OF_KILLED;
		(void)xid_log(table, process.client.index, device, line);
	}
	table_close(table);
}

static void announce(const struct fault_kind *kind, uint32_t device)
{
	if (process.machine.settings.xid_events)
		(void)xid_announce(&process.machine, device, NVML_EVENT_XID, kind->xid);
}

static void publish(const struct fault_kind *kind)
{
	if (!process.sticky)
		process.sticky = kind->result;
	(void)pthread_cond_broadcast(&process.changed);
}

void fault_raise(enum fault fault, uint32_t machine_device, uint64_t launched_ns)
{
	const struct fault_kind *kind;
	struct fault_times times;

	/* These two have no row in the table. */
	if (fault == FAULT_NONE || fault == FAULT_CUT_OFF)
		return;
	kind = &kinds[fault];
	/* Which of the two: as good as chance. */
	times = kind->times[launched_ns / 1000 % 2];
	(void)pthread_mutex_lock(&process.lock);
	process.stopping = true;
	begin_stall(kind, &times, machine_device, launched_ns);
	(void)pthread_mutex_unlock(&process.lock);
	wait_tenths(launched_ns, times.log);
	(void)pthread_mutex_lock(&process.lock);
	write_log(kind, machine_device);
	(void)pthread_mutex_unlock(&process.lock);
	wait_tenths(launched_ns, times.event <= times.result ? times.event : times.result);
	(void)pthread_mutex_lock(&process.lock);
	announce(kind, machine_device);
	(void)pthread_mutex_unlock(&process.lock);
	wait_tenths(launched_ns, times.result);
	(void)pthread_mutex_lock(&process.lock);
	publish(kind);
	(void)pthread_mutex_unlock(&process.lock);
}

void fault_await_stall(uint32_t machine_device)
{
	uint64_t until = 0;

	(void)pthread_mutex_lock(&process.lock);
	if (process.machine.settings.delays && !process_open_table()) {
		until = process.table.header.stall_until_ns[machine_device];
		table_close(&process.table);
	}
	(void)pthread_mutex_unlock(&process.lock);
	if (until > now_ns())
		sleep_until(until);
}
