/* SPDX-License-Identifier: MIT */
/*
 * The table of Xids, from the driver vendor's public catalogue, in our own words.
 *
 * Runs in: every process. Never loads a driver. One correction was measured: Xid 43 asks for no action of
 * its own in the catalogue, yet the process that its line names can do no CUDA work any more; so
 * `ends_process` is a column of its own. It is false for reports about the hardware that may name a
 * process by chance (a row remapped, a resource retired): those must not cost a healthy worker.
 * Columns: number, action, action when no other Xid is near, ends the named process, text.
 * Read next: faults.h.
 */
#include "gpu/xid_table.h"
#include "gpu/faults.h"

#include <stdlib.h>

/* clang-format off */
static const struct xid_info table[] = {
	{ 1, XID_SUPPORT, XID_SUPPORT, false, "the command stream is invalid or corrupted" },
	{ 2, XID_SUPPORT, XID_SUPPORT, false, "the command stream is invalid or corrupted" },
	{ 3, XID_SUPPORT, XID_SUPPORT, false, "the command stream is invalid or corrupted" },
	{ 4, XID_SUPPORT, XID_SUPPORT, false, "the command stream is invalid or corrupted" },
	{ 5, XID_SUPPORT, XID_SUPPORT, false, "not in use, or without public documentation" },
	{ 6, XID_SUPPORT, XID_SUPPORT, false, "the command stream is invalid or corrupted" },
	{ 7, XID_SUPPORT, XID_SUPPORT, false, "a command stream has an invalid address" },
	{ 8, XID_RESTART, XID_RESTART, true, "the GPU stopped processing commands" },
	{ 9, XID_SUPPORT, XID_SUPPORT, false,
	  "the driver made an error in programming the GPU" },
	{ 10, XID_SUPPORT, XID_SUPPORT, false, "not in use, or without public documentation" },
	{ 11, XID_RESTART, XID_RESTART, true,
	  "the command stream is invalid or corrupted: often the application's or the driver's mistake" },
	{ 12, XID_SUPPORT, XID_SUPPORT, false,
	  "the driver could not handle an exception of the GPU" },
	{ 13, XID_RESTART, XID_RESTART, true,
	  "graphics engine exception: a kernel did something illegal, such as a misaligned or out-of-range access" },
	{ 14, XID_IGNORE, XID_IGNORE, false, "a report that needs no action of its own" },
	{ 15, XID_SUPPORT, XID_SUPPORT, false, "not in use, or without public documentation" },
	{ 16, XID_SUPPORT, XID_SUPPORT, false, "the display engine hung" },
	{ 17, XID_SUPPORT, XID_SUPPORT, false, "not in use, or without public documentation" },
	{ 18, XID_SUPPORT, XID_SUPPORT, false,
	  "bus mastering is switched off in PCI configuration space" },
	{ 19, XID_SUPPORT, XID_SUPPORT, false, "display engine error" },
	{ 20, XID_SUPPORT, XID_SUPPORT, false,
	  "the command stream of a video engine is invalid" },
	{ 21, XID_SUPPORT, XID_SUPPORT, false,
	  "the command stream of a video engine is invalid" },
	{ 22, XID_SUPPORT, XID_SUPPORT, false,
	  "the command stream of a video engine is invalid" },
	{ 23, XID_SUPPORT, XID_SUPPORT, false, "not in use, or without public documentation" },
	{ 24, XID_SUPPORT, XID_SUPPORT, false, "a GPU semaphore timed out" },
	{ 25, XID_RESTART, XID_RESTART, true, "the command stream is invalid or illegal" },
	{ 26, XID_SUPPORT, XID_SUPPORT, false, "the frame buffer timed out" },
	{ 27, XID_SUPPORT, XID_SUPPORT, false, "video processor exception" },
	{ 28, XID_SUPPORT, XID_SUPPORT, false, "video processor exception" },
	{ 29, XID_SUPPORT, XID_SUPPORT, false, "video processor exception" },
	{ 30, XID_SUPPORT, XID_SUPPORT, false, "access to a GPU semaphore failed" },
	{ 31, XID_RESTART, XID_RESTART, true,
	  "GPU memory page fault: a kernel used an address that is not mapped or may not be written" },
	{ 32, XID_RESTART, XID_RESTART, true,
	  "the command stream is invalid or corrupted: the application, the driver or the PCIe link" },
	{ 33, XID_SUPPORT, XID_SUPPORT, false, "internal micro-controller error" },
	{ 34, XID_SUPPORT, XID_SUPPORT, false, "video processor exception" },
	{ 35, XID_SUPPORT, XID_SUPPORT, false, "video processor exception" },
	{ 36, XID_SUPPORT, XID_SUPPORT, false, "video processor exception" },
	{ 37, XID_IGNORE, XID_IGNORE, false, "driver firmware error" },
	{ 38, XID_IGNORE, XID_IGNORE, false, "driver firmware error" },
	{ 39, XID_RESTART, XID_RESTART, true, "copy engine exception" },
	{ 40, XID_RESTART, XID_RESTART, true, "copy engine exception" },
	{ 41, XID_RESTART, XID_RESTART, true, "copy engine exception" },
	{ 42, XID_SUPPORT, XID_SUPPORT, false, "video processor exception" },
	{ 43, XID_IGNORE, XID_IGNORE, true,
	  "the GPU stopped processing a channel: the application's own fault, such as an assertion or a trap" },
	{ 44, XID_IGNORE, XID_IGNORE, true, "graphics engine fault during a context switch" },
	{ 45, XID_NOTE, XID_IGNORE, true,
	  "preemptive cleanup: a channel was torn down, after another fault or because its process was killed" },
	{ 46, XID_RESET, XID_RESET, true, "the GPU stopped processing and timed out" },
	{ 47, XID_SUPPORT, XID_SUPPORT, false, "video processor exception" },
	{ 48, XID_NOTE, XID_RESTART, true,
	  "double-bit ECC error: with Xid 94 restart the application, with Xid 95 or 140 reset the GPU" },
	{ 49, XID_SUPPORT, XID_SUPPORT, false, "not in use, or without public documentation" },
	{ 50, XID_SUPPORT, XID_SUPPORT, false, "not in use, or without public documentation" },
	{ 51, XID_SUPPORT, XID_SUPPORT, false, "not in use, or without public documentation" },
	{ 52, XID_SUPPORT, XID_SUPPORT, false, "not in use, or without public documentation" },
	{ 53, XID_SUPPORT, XID_SUPPORT, false, "not in use, or without public documentation" },
	{ 54, XID_NOTE, XID_REBOOT, false,
	  "auxiliary power is not connected: check the power cable" },
	{ 55, XID_SUPPORT, XID_SUPPORT, false, "not in use, or without public documentation" },
	{ 56, XID_SUPPORT, XID_SUPPORT, false, "display engine error" },
	{ 57, XID_SUPPORT, XID_SUPPORT, false,
	  "the video memory interface could not be programmed" },
	{ 58, XID_SUPPORT, XID_SUPPORT, false, "the video memory interface is unstable" },
	{ 59, XID_SUPPORT, XID_SUPPORT, false, "internal micro-controller error" },
	{ 60, XID_RESTART, XID_RESTART, true, "video processor exception" },
	{ 61, XID_SUPPORT, XID_SUPPORT, false,
	  "internal micro-controller breakpoint or warning" },
	{ 62, XID_RESET, XID_RESET, true, "internal micro-controller halt" },
	{ 63, XID_IGNORE, XID_IGNORE, false,
	  "a row of device memory was marked to be remapped: it takes effect at the next reset" },
	{ 64, XID_RESET, XID_RESET, false, "a row of device memory could not be remapped" },
	{ 65, XID_SUPPORT, XID_SUPPORT, false, "video processor exception" },
	{ 66, XID_IGNORE, XID_IGNORE, false, "illegal access by the driver" },
	{ 67, XID_IGNORE, XID_IGNORE, false, "illegal access by the driver" },
	{ 68, XID_RESTART, XID_RESTART, true, "video decoder exception" },
	{ 69, XID_RESTART, XID_RESTART, true,
	  "graphics engine class error: a command was used in the wrong way" },
	{ 70, XID_RESTART, XID_RESTART, true, "copy engine exception" },
	{ 71, XID_RESTART, XID_RESTART, true, "copy engine exception" },
	{ 72, XID_RESTART, XID_RESTART, true, "copy engine exception" },
	{ 73, XID_SUPPORT, XID_SUPPORT, false, "video encoder error" },
	{ 74, XID_NVLINK, XID_NVLINK, false,
	  "NVLink error: check the link, the cables and the peer" },
	{ 75, XID_RESTART, XID_RESTART, true, "copy engine exception" },
	{ 76, XID_RESTART, XID_RESTART, true, "copy engine exception" },
	{ 77, XID_RESTART, XID_RESTART, true, "copy engine exception" },
	{ 78, XID_NOTE, XID_REBOOT, false,
	  "virtual GPU could not start: update the software of host or guest" },
	{ 79, XID_REBOOT, XID_REBOOT, true, "the GPU has fallen off the bus" },
	{ 80, XID_RESTART, XID_RESTART, true, "corrupted data was sent to the GPU" },
	{ 81, XID_SUPPORT, XID_SUPPORT, false, "VGA subsystem error" },
	{ 82, XID_RESTART, XID_RESTART, true, "JPEG engine error" },
	{ 83, XID_RESTART, XID_RESTART, true, "video decoder error" },
	{ 84, XID_RESTART, XID_RESTART, true, "video decoder error" },
	{ 85, XID_RESTART, XID_RESTART, true, "copy engine exception" },
	{ 86, XID_RESTART, XID_RESTART, true, "optical flow engine exception" },
	{ 87, XID_SUPPORT, XID_SUPPORT, false, "not in use, or without public documentation" },
	{ 88, XID_RESTART, XID_RESTART, true, "video decoder error" },
	{ 89, XID_RESTART, XID_RESTART, true, "video decoder error" },
	{ 90, XID_SUPPORT, XID_SUPPORT, false, "not in use, or without public documentation" },
	{ 91, XID_SUPPORT, XID_SUPPORT, false, "not in use, or without public documentation" },
	{ 92, XID_IGNORE, XID_IGNORE, false, "the rate of single-bit ECC errors is high" },
	{ 93, XID_IGNORE, XID_IGNORE, false,
	  "the InfoROM was written more often than planned, without harm so far" },
	{ 94, XID_RESTART, XID_RESTART, true,
	  "contained memory error: only the process that used the memory is affected" },
	{ 95, XID_RESET, XID_RESET, true,
	  "uncontained memory error: everything on the GPU is affected" },
	{ 96, XID_RESTART, XID_RESTART, true, "video decoder error" },
	{ 97, XID_RESTART, XID_RESTART, true, "video decoder error" },
	{ 98, XID_RESTART, XID_RESTART, true, "video decoder error" },
	{ 99, XID_RESTART, XID_RESTART, true, "JPEG engine error" },
	{ 100, XID_RESTART, XID_RESTART, true, "JPEG engine error" },
	{ 101, XID_RESTART, XID_RESTART, true, "JPEG engine error" },
	{ 102, XID_RESTART, XID_RESTART, true, "JPEG engine error" },
	{ 103, XID_RESTART, XID_RESTART, true, "JPEG engine error" },
	{ 104, XID_RESTART, XID_RESTART, true, "JPEG engine error" },
	{ 105, XID_RESTART, XID_RESTART, true, "JPEG engine error" },
	{ 106, XID_IGNORE, XID_IGNORE, false, "test message of the management interface" },
	{ 107, XID_IGNORE, XID_IGNORE, false, "test message of the management interface" },
	{ 108, XID_IGNORE, XID_IGNORE, false,
	  "a report of the management interface that needs no action of its own" },
	{ 109, XID_RESET, XID_RESET, true, "a context switch timed out" },
	{ 110, XID_RESET, XID_RESET, true, "security fault" },
	{ 111, XID_SUPPORT, XID_SUPPORT, false, "display event" },
	{ 112, XID_SUPPORT, XID_SUPPORT, false, "display supervisor error" },
	{ 113, XID_SUPPORT, XID_SUPPORT, false, "display link training error" },
	{ 114, XID_SUPPORT, XID_SUPPORT, false, "display pipeline underflow" },
	{ 115, XID_SUPPORT, XID_SUPPORT, false, "display core channel error" },
	{ 116, XID_SUPPORT, XID_SUPPORT, false, "display window channel error" },
	{ 117, XID_SUPPORT, XID_SUPPORT, false, "display cursor channel error" },
	{ 118, XID_SUPPORT, XID_SUPPORT, false, "display pixel pipeline error" },
	{ 119, XID_RESET, XID_RESET, true,
	  "a call to the GPU system processor (GSP) timed out" },
	{ 120, XID_RESET, XID_RESET, true, "error in the GPU system processor (GSP)" },
	{ 121, XID_IGNORE, XID_IGNORE, false, "chip-to-chip link error that was corrected" },
	{ 122, XID_SUPPORT, XID_SUPPORT, false, "the board's flash memory failed to read" },
	{ 123, XID_SUPPORT, XID_SUPPORT, false, "the board's flash memory failed to write" },
	{ 124, XID_SUPPORT, XID_SUPPORT, false, "the board's flash memory failed to erase" },
	{ 125, XID_SUPPORT, XID_SUPPORT, false, "failure of the InfoROM's file system" },
	{ 126, XID_RESTART, XID_RESTART, true, "copy engine exception" },
	{ 127, XID_RESTART, XID_RESTART, true, "copy engine exception" },
	{ 128, XID_RESTART, XID_RESTART, true, "copy engine exception" },
	{ 129, XID_RESTART, XID_RESTART, true, "copy engine exception" },
	{ 130, XID_RESTART, XID_RESTART, true, "copy engine exception" },
	{ 131, XID_RESTART, XID_RESTART, true, "copy engine exception" },
	{ 132, XID_RESTART, XID_RESTART, true, "copy engine exception" },
	{ 133, XID_RESTART, XID_RESTART, true, "copy engine exception" },
	{ 134, XID_RESTART, XID_RESTART, true, "copy engine exception" },
	{ 135, XID_RESTART, XID_RESTART, true, "copy engine exception" },
	{ 136, XID_RESET, XID_RESET, true, "a link could not be trained" },
	{ 137, XID_IGNORE, XID_IGNORE, false,
	  "NVLink privilege error: a peer used memory that it may not use" },
	{ 138, XID_SUPPORT, XID_SUPPORT, false, "deep learning accelerator error" },
	{ 139, XID_RESTART, XID_RESTART, true, "optical flow engine exception" },
	{ 140, XID_RESET, XID_RESET, true, "unrecovered ECC error" },
	{ 141, XID_IGNORE, XID_IGNORE, false,
	  "a channel failed on a path that recovers by itself" },
	{ 142, XID_SUPPORT, XID_SUPPORT, false, "video encoder error" },
	{ 143, XID_RESET, XID_RESET, false, "the GPU could not be initialised" },
	{ 144, XID_NVLINK, XID_NVLINK, false,
	  "NVLink error inside the link's hardware: check link and peer" },
	{ 145, XID_NVLINK, XID_NVLINK, false,
	  "NVLink error inside the link's hardware: check link and peer" },
	{ 146, XID_NVLINK, XID_NVLINK, false,
	  "NVLink error inside the link's hardware: check link and peer" },
	{ 147, XID_NVLINK, XID_NVLINK, false,
	  "NVLink error inside the link's hardware: check link and peer" },
	{ 148, XID_NVLINK, XID_NVLINK, false,
	  "NVLink error inside the link's hardware: check link and peer" },
	{ 149, XID_NVLINK, XID_NVLINK, false,
	  "NVLink error inside the link's hardware: check link and peer" },
	{ 150, XID_NVLINK, XID_NVLINK, false,
	  "NVLink error inside the link's hardware: check link and peer" },
	{ 151, XID_REBOOT, XID_REBOOT, true,
	  "key rotation failed: in a virtual machine, restart the machine" },
	{ 152, XID_IGNORE, XID_IGNORE, false,
	  "memory translation fault of the deep learning accelerator" },
	{ 153, XID_IGNORE, XID_IGNORE, false, "the deep learning accelerator timed out" },
	{ 154, XID_NOTE, XID_IGNORE, false,
	  "the GPU's recovery action changed: the line names the new one" },
	{ 155, XID_RESET, XID_RESET, false, "NVLink error reported by software" },
	{ 156, XID_RESET, XID_RESET, false,
	  "a resource of the GPU was retired: a reset makes it effective" },
	{ 157, XID_IGNORE, XID_IGNORE, false, "a resource of the GPU could not be retired" },
	{ 158, XID_RESET, XID_RESET, true, "fatal timeout of the GPU" },
	{ 159, XID_NOTE, XID_RESTART, false,
	  "error on the coherent interface to the CPU: check the unified memory driver (UVM)" },
	{ 160, XID_IGNORE, XID_IGNORE, false, "a memory channel was retired" },
	{ 161, XID_IGNORE, XID_IGNORE, false, "a memory channel could not be retired" },
	{ 162, XID_SUPPORT, XID_SUPPORT, false, "report of power smoothing" },
	{ 163, XID_SUPPORT, XID_SUPPORT, false, "report of power smoothing" },
	{ 164, XID_SUPPORT, XID_SUPPORT, false, "report of power smoothing" },
	{ 165, XID_SUPPORT, XID_SUPPORT, false, "report of power smoothing" },
	{ 166, XID_SUPPORT, XID_SUPPORT, false,
	  "confidential computing: link or interrupt in an unexpected state" },
	{ 167, XID_SUPPORT, XID_SUPPORT, false, "fatal timeout on PCI Express" },
	{ 168, XID_SUPPORT, XID_SUPPORT, false,
	  "the GPU runs with less memory than it was built with" },
	{ 169, XID_SUPPORT, XID_SUPPORT, false, "the security processor (SEC2) halted" },
	{ 170, XID_SUPPORT, XID_SUPPORT, false,
	  "confidential computing: link or interrupt in an unexpected state" },
	{ 171, XID_NOTE, XID_IGNORE, false,
	  "uncorrectable error in device memory (DRAM): detail of Xid 48" },
	{ 172, XID_NOTE, XID_IGNORE, false,
	  "uncorrectable error in on-chip memory (SRAM): detail of Xid 48" },
};
/* clang-format on */

static int by_number(const void *key, const void *row)
{
	uint32_t number = *(const uint32_t *)key;
	uint32_t other = ((const struct xid_info *)row)->number;

	return (number > other) - (number < other);
}

const struct xid_info *xid_table(size_t *ret_count)
{
	*ret_count = sizeof(table) / sizeof(table[0]);
	return table;
}

const struct xid_info *xid_find(uint32_t number)
{
	return bsearch(&number, table, sizeof(table) / sizeof(table[0]), sizeof(table[0]),
		       by_number);
}

enum xid_action xid_advise(uint32_t number, unsigned int seen)
{
	const struct xid_info *row = xid_find(number);

	if (!row)
		return seen == 0 ? XID_RESTART : XID_RESET;
	return (enum xid_action)row->alone;
}

static const struct {
	char letter;
	const char *text;
} actions[] = {
	[XID_UNKNOWN] = {'?', "unknown"},
	[XID_RESTART] = {'A', "restart the application"},
	[XID_IGNORE] = {'I', "no action of its own"},
	[XID_RESET] = {'R', "reset the GPU"},
	[XID_REBOOT] = {'B', "reboot or repair the node"},
	[XID_NVLINK] = {'N', "check NVLink"},
	[XID_NOTE] = {'W', "see the text"},
	[XID_SUPPORT] = {'S', "contact support"},
};

static size_t action_index(enum xid_action action)
{
	return (size_t)action < sizeof(actions) / sizeof(actions[0]) ? (size_t)action : XID_UNKNOWN;
}

char xid_action_letter(enum xid_action action)
{
	return actions[action_index(action)].letter;
}

const char *xid_action_text(enum xid_action action)
{
	return actions[action_index(action)].text;
}

int xid_exit_code(enum xid_action action)
{
	switch (action) {
	case XID_RESET:
	case XID_NVLINK:
		return FAULT_EXIT_RETRY;
	case XID_REBOOT:
		return FAULT_EXIT_REPAIR;
	case XID_UNKNOWN:
	case XID_RESTART:
	case XID_IGNORE:
	case XID_NOTE:
	case XID_SUPPORT:
		break;
	}
	return FAULT_EXIT_OWN;
}
