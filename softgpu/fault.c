/* SPDX-License-Identifier: MIT */
#include "fault.h"

#include <errno.h>
#include <stddef.h>
#include <time.h>

#include "common/fd.h"
#include "gpu/nvml_abi.h"
#include "process.h"
#include "xid.h"

struct fault_kind {
	int result;
	uint32_t xid;
	/* Tenths of a millisecond after the launch. */
	uint32_t log_at;
	uint32_t event_at;
	uint32_t result_at;
	uint32_t stall_until; /* of other processes' kernels */
	const char *lines[4];
};

#define PAGE_FAULT                                                                                 \
	"31, pid=@PID, name=@NAME, channel @CHANNEL, intr 00000000. MMU Fault: ENGINE GRAPHICS "   \
	"GPC1 GPCCLIENT_T1_0 faulted @ 0x0_00000000. Fault is of type "
#define WARP_EXCEPTION "13, Graphics SM Warp Exception on (GPC 1, TPC 4, SM 0): "
#define REGISTERS                                                                                  \
	"13, Graphics Exception: ESR 0x50ce48=0x10000f 0x50ce50=0x20 0x50ce44=0xd3eff2 "           \
	"0x50ce4c=0x17f"
#define GRAPHICS_EXCEPTION                                                                         \
	"13, pid=@PID, name=@NAME, Graphics Exception: channel @CHANNEL, Class 0000cbc0, Offset "  \
	"00000510, Data 0017e2ac"
#define STOPPED "43, pid=@PID, name=@NAME, channel @CHANNEL"

static const struct fault_kind kinds[] = {
	[FAULT_ADDRESS] = {CUDA_ERROR_ILLEGAL_ADDRESS,
			   31,
			   1250,
			   1480,
			   1490,
			   1450,
			   {PAGE_FAULT "FAULT_PDE ACCESS_TYPE_VIRT_WRITE"}},
	[FAULT_READ_ONLY] = {CUDA_ERROR_ILLEGAL_ADDRESS,
			     31,
			     1250,
			     1480,
			     1490,
			     1450,
			     {PAGE_FAULT "FAULT_RO_VIOLATION ACCESS_TYPE_VIRT_WRITE"}},
	[FAULT_MISALIGNED] = {CUDA_ERROR_MISALIGNED_ADDRESS,
			      13,
			      30,
			      1110,
			      1640,
			      1110,
			      {WARP_EXCEPTION "Misaligned Address", REGISTERS, GRAPHICS_EXCEPTION}},
	[FAULT_ASSERT] = {CUDA_ERROR_ASSERT, 43, 50, 90, 50, 15, {STOPPED}},
	[FAULT_TRAP] = {CUDA_ERROR_LAUNCH_FAILED, 43, 65, 87, 5500, 40, {STOPPED}},
	[FAULT_SHARED] = {CUDA_ERROR_ILLEGAL_INSTRUCTION,
			  13,
			  50,
			  900,
			  1330,
			  900,
			  {WARP_EXCEPTION "Illegal Instruction Parameter", REGISTERS,
			   GRAPHICS_EXCEPTION}},
	/* Result and lines are measured, the times are taken from FAULT_MISALIGNED. */
	[FAULT_STACK] = {CUDA_ERROR_ILLEGAL_ADDRESS,
			 13,
			 30,
			 1110,
			 1640,
			 1110,
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

static void write_log(const struct fault_kind *kind, uint32_t device, uint64_t launched_ns)
{
	struct table *table = &process.table;
	uint64_t stall_ns = launched_ns + kind->stall_until * 100000ULL;

	if (process_open_table())
		return;
	if (process.machine.settings.delays && table->header.stall_until_ns[device] < stall_ns) {
		table->header.stall_until_ns[device] = stall_ns;
		(void)table_put_header(table);
	}
	for (size_t i = 0; i < 4 && kind->lines[i] && process.machine.settings.xid_lines; i++)
		(void)xid_log(table, process.client.index, device, kind->lines[i]);
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
	bool event_first;

	/* These two have no row in the table. */
	if (fault == FAULT_NONE || fault == FAULT_CUT_OFF)
		return;
	kind = &kinds[fault];
	event_first = kind->event_at <= kind->result_at;
	(void)pthread_mutex_lock(&process.lock);
	process.stopping = true;
	(void)pthread_mutex_unlock(&process.lock);
	wait_tenths(launched_ns, kind->log_at);
	(void)pthread_mutex_lock(&process.lock);
	write_log(kind, machine_device, launched_ns);
	(void)pthread_mutex_unlock(&process.lock);
	wait_tenths(launched_ns, event_first ? kind->event_at : kind->result_at);
	(void)pthread_mutex_lock(&process.lock);
	announce(kind, machine_device);
	(void)pthread_mutex_unlock(&process.lock);
	wait_tenths(launched_ns, kind->result_at);
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
