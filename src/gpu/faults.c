/* SPDX-License-Identifier: MIT */
/*
 * The table of CUDA results (CUDA 13.0) and the rules that go from a class or an action to an exit code.
 *
 * Runs in: every process. Never loads a driver. The classes follow what the header of CUDA says about
 * each result, with one correction that was measured: the process of an ASSERT (710) is just as dead
 * as that of any other device exception. The runtime's cudaError_t uses the same numbers for these.
 * Read next: xid_table.c, the other table.
 */
#include "gpu/faults.h"

#include <stdlib.h>

/* clang-format off */
static const struct cuda_fault table[] = {
	{ 0, GW_FAULT_NONE, "CUDA_SUCCESS",
	  "no error" },
	{ 1, GW_FAULT_CALLER, "CUDA_ERROR_INVALID_VALUE",
	  "an argument of the call is out of range: check what was passed" },
	{ 2, GW_FAULT_RESOURCES, "CUDA_ERROR_OUT_OF_MEMORY",
	  "not enough memory on the device or host: right after a crash, wait until the dead process has let go" },
	{ 3, GW_FAULT_NODE, "CUDA_ERROR_NOT_INITIALIZED",
	  "the driver is not initialised, or cuInit failed: look at what cuInit returned first" },
	{ 4, GW_FAULT_NODE, "CUDA_ERROR_DEINITIALIZED",
	  "the driver is shutting down in this process: make no CUDA call while the process exits" },
	{ 5, GW_FAULT_CALLER, "CUDA_ERROR_PROFILER_DISABLED",
	  "profiling is switched off for this run: end the outside profiler to use this call" },
	{ 6, GW_FAULT_CALLER, "CUDA_ERROR_PROFILER_NOT_INITIALIZED",
	  "the profiler was not initialised: a result of old drivers that can be left out of account" },
	{ 7, GW_FAULT_CALLER, "CUDA_ERROR_PROFILER_ALREADY_STARTED",
	  "the profiler runs already: a result of old drivers that can be left out of account" },
	{ 8, GW_FAULT_CALLER, "CUDA_ERROR_PROFILER_ALREADY_STOPPED",
	  "the profiler is stopped already: a result of old drivers that can be left out of account" },
	{ 34, GW_FAULT_NODE, "CUDA_ERROR_STUB_LIBRARY",
	  "the toolkit's stub was loaded in place of the driver: take its stubs folder out of the library path" },
	{ 36, GW_FAULT_NODE, "CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER",
	  "the installed driver is too old for this call: install a newer driver" },
	{ 46, GW_FAULT_DEVICE, "CUDA_ERROR_DEVICE_UNAVAILABLE",
	  "the device takes no work now: look at its compute mode and at who holds it" },
	{ 100, GW_FAULT_NODE, "CUDA_ERROR_NO_DEVICE",
	  "the driver sees no CUDA device: check CUDA_VISIBLE_DEVICES, the device nodes and the kernel log" },
	{ 101, GW_FAULT_CALLER, "CUDA_ERROR_INVALID_DEVICE",
	  "there is no device of this number, or it cannot do this: check the number that was asked for" },
	{ 102, GW_FAULT_NODE, "CUDA_ERROR_DEVICE_NOT_LICENSED",
	  "the virtual GPU has no licence: have its licence client checked" },
	{ 200, GW_FAULT_CALLER, "CUDA_ERROR_INVALID_IMAGE",
	  "the module is no valid device code: check the file that was loaded" },
	{ 201, GW_FAULT_CALLER, "CUDA_ERROR_INVALID_CONTEXT",
	  "no valid context is current in this thread: make one current before the call" },
	{ 202, GW_FAULT_CALLER, "CUDA_ERROR_CONTEXT_ALREADY_CURRENT",
	  "the context is current already: a result of old drivers that can be left out of account" },
	{ 205, GW_FAULT_CALLER, "CUDA_ERROR_MAP_FAILED",
	  "a resource could not be mapped or registered: check its state and size" },
	{ 206, GW_FAULT_CALLER, "CUDA_ERROR_UNMAP_FAILED",
	  "a resource could not be unmapped: check that it was mapped here" },
	{ 207, GW_FAULT_CALLER, "CUDA_ERROR_ARRAY_IS_MAPPED",
	  "the array is still mapped: unmap it before it is destroyed" },
	{ 208, GW_FAULT_CALLER, "CUDA_ERROR_ALREADY_MAPPED",
	  "the resource is mapped already: map it once" },
	{ 209, GW_FAULT_CALLER, "CUDA_ERROR_NO_BINARY_FOR_GPU",
	  "the program holds no code for this GPU: build it for this architecture or ship PTX" },
	{ 210, GW_FAULT_CALLER, "CUDA_ERROR_ALREADY_ACQUIRED",
	  "the resource is taken already: release it first" },
	{ 211, GW_FAULT_CALLER, "CUDA_ERROR_NOT_MAPPED",
	  "the resource is not mapped: map it first" },
	{ 212, GW_FAULT_CALLER, "CUDA_ERROR_NOT_MAPPED_AS_ARRAY",
	  "the resource is mapped, but not as an array: use the other form of access" },
	{ 213, GW_FAULT_CALLER, "CUDA_ERROR_NOT_MAPPED_AS_POINTER",
	  "the resource is mapped, but not as a pointer: use the other form of access" },
	{ 214, GW_FAULT_DEVICE, "CUDA_ERROR_ECC_UNCORRECTABLE",
	  "device memory had an error that ECC could not correct: data is lost, look at the GPU's recovery action" },
	{ 215, GW_FAULT_CALLER, "CUDA_ERROR_UNSUPPORTED_LIMIT",
	  "the device does not have this limit: leave it unset" },
	{ 216, GW_FAULT_CALLER, "CUDA_ERROR_CONTEXT_ALREADY_IN_USE",
	  "the context belongs to another thread: use it there" },
	{ 217, GW_FAULT_CALLER, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
	  "these devices cannot reach each other's memory: copy through the host" },
	{ 218, GW_FAULT_CALLER, "CUDA_ERROR_INVALID_PTX",
	  "the PTX text does not compile: ask the linker for its log" },
	{ 219, GW_FAULT_CALLER, "CUDA_ERROR_INVALID_GRAPHICS_CONTEXT",
	  "the OpenGL or DirectX context is not usable here: check that it is current" },
	{ 220, GW_FAULT_DEVICE, "CUDA_ERROR_NVLINK_UNCORRECTABLE",
	  "an NVLink had an error that it could not correct: look at the GPU's recovery action" },
	{ 221, GW_FAULT_CALLER, "CUDA_ERROR_JIT_COMPILER_NOT_FOUND",
	  "the driver's PTX compiler library is missing: install libnvidia-ptxjitcompiler of the same version" },
	{ 222, GW_FAULT_CALLER, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
	  "the PTX is newer than the driver: install a newer driver or build with an older toolkit" },
	{ 223, GW_FAULT_CALLER, "CUDA_ERROR_JIT_COMPILATION_DISABLED",
	  "compiling PTX is switched off: unset CUDA_DISABLE_PTX_JIT or ship code for this GPU" },
	{ 224, GW_FAULT_CALLER, "CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY",
	  "the device cannot limit a context to some of its processors: leave the affinity out" },
	{ 225, GW_FAULT_CALLER, "CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC",
	  "the PTX calls cudaDeviceSynchronize on the device, which is gone: change the kernel" },
	{ 226, GW_FAULT_POISONED, "CUDA_ERROR_CONTAINED",
	  "the GPU contained a hardware exception to this process: only a new process works" },
	{ 300, GW_FAULT_CALLER, "CUDA_ERROR_INVALID_SOURCE",
	  "the kernel source does not compile or link: read the compiler's log" },
	{ 301, GW_FAULT_CALLER, "CUDA_ERROR_FILE_NOT_FOUND",
	  "a file of the call was not found: check its path" },
	{ 302, GW_FAULT_CALLER, "CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND",
	  "a shared object misses a symbol: library versions do not fit together" },
	{ 303, GW_FAULT_CALLER, "CUDA_ERROR_SHARED_OBJECT_INIT_FAILED",
	  "a shared object could not be initialised: check that it is whole and fits the driver" },
	{ 304, GW_FAULT_CALLER, "CUDA_ERROR_OPERATING_SYSTEM",
	  "a call to the operating system failed: check limits, descriptors and permissions" },
	{ 400, GW_FAULT_CALLER, "CUDA_ERROR_INVALID_HANDLE",
	  "a stream, event or other handle is not valid: it was destroyed or never made" },
	{ 401, GW_FAULT_CALLER, "CUDA_ERROR_ILLEGAL_STATE",
	  "an object is not in the state that the call needs: check the order of calls" },
	{ 402, GW_FAULT_CALLER, "CUDA_ERROR_LOSSY_QUERY",
	  "the query would leave out part of the answer: use a newer form of the call" },
	{ 500, GW_FAULT_CALLER, "CUDA_ERROR_NOT_FOUND",
	  "there is no symbol of this name in the module: check spelling and mangling" },
	{ 600, GW_FAULT_NONE, "CUDA_ERROR_NOT_READY",
	  "the work has not ended yet: this is no failure" },
	{ 700, GW_FAULT_POISONED, "CUDA_ERROR_ILLEGAL_ADDRESS",
	  "a kernel read or wrote an address that is not mapped: only a new process works" },
	{ 701, GW_FAULT_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
	  "the launch asks for more registers, threads or arguments than there are: make the blocks smaller" },
	{ 702, GW_FAULT_POISONED, "CUDA_ERROR_LAUNCH_TIMEOUT",
	  "a kernel ran longer than the device allows: only a new process works" },
	{ 703, GW_FAULT_CALLER, "CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING",
	  "the launch uses a texture mode that does not fit: use one mode in the whole program" },
	{ 704, GW_FAULT_CALLER, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED",
	  "access to this peer is on already: nothing needs to be done" },
	{ 705, GW_FAULT_CALLER, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED",
	  "access to this peer was never on: enable it first" },
	{ 708, GW_FAULT_CALLER, "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE",
	  "the device's primary context exists already: set its flags before it is made" },
	{ 709, GW_FAULT_CALLER, "CUDA_ERROR_CONTEXT_IS_DESTROYED",
	  "the thread's context was destroyed: make another one current" },
	{ 710, GW_FAULT_POISONED, "CUDA_ERROR_ASSERT",
	  "an assertion in a kernel failed: only a new process works" },
	{ 711, GW_FAULT_CALLER, "CUDA_ERROR_TOO_MANY_PEERS",
	  "the hardware can hold no more peers: disable one first" },
	{ 712, GW_FAULT_CALLER, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
	  "this host memory is registered already: register it once" },
	{ 713, GW_FAULT_CALLER, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
	  "this host memory was never registered: pass the address that was registered" },
	{ 714, GW_FAULT_POISONED, "CUDA_ERROR_HARDWARE_STACK_ERROR",
	  "a kernel broke or overran its stack: only a new process works" },
	{ 715, GW_FAULT_POISONED, "CUDA_ERROR_ILLEGAL_INSTRUCTION",
	  "a kernel met an instruction that it may not execute: only a new process works" },
	{ 716, GW_FAULT_POISONED, "CUDA_ERROR_MISALIGNED_ADDRESS",
	  "a kernel used an address that is not aligned to its type: only a new process works" },
	{ 717, GW_FAULT_POISONED, "CUDA_ERROR_INVALID_ADDRESS_SPACE",
	  "a kernel used an address of the wrong memory space: only a new process works" },
	{ 718, GW_FAULT_POISONED, "CUDA_ERROR_INVALID_PC",
	  "a kernel jumped outside its code: only a new process works" },
	{ 719, GW_FAULT_POISONED, "CUDA_ERROR_LAUNCH_FAILED",
	  "a kernel ended with an exception such as a trap: only a new process works" },
	{ 720, GW_FAULT_CALLER, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
	  "a cooperative launch has more blocks than fit at once: launch fewer" },
	{ 721, GW_FAULT_POISONED, "CUDA_ERROR_TENSOR_MEMORY_LEAK",
	  "a kernel ended with tensor memory still taken: only a new process works" },
	{ 800, GW_FAULT_CALLER, "CUDA_ERROR_NOT_PERMITTED",
	  "this operation is not allowed here: check permissions and the kind of context" },
	{ 801, GW_FAULT_CALLER, "CUDA_ERROR_NOT_SUPPORTED",
	  "this system or device cannot do this: ask for the attribute before the call" },
	{ 802, GW_FAULT_NODE, "CUDA_ERROR_SYSTEM_NOT_READY",
	  "the node is not ready for CUDA: check that the fabric manager and the driver's daemons run" },
	{ 803, GW_FAULT_NODE, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
	  "the CUDA library and the loaded kernel module are of different versions: reboot or reload the module" },
	{ 804, GW_FAULT_NODE, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
	  "the forward-compatibility library does not work with this GPU or kernel module: remove it, or update the driver and reboot" },
	{ 805, GW_FAULT_MPS, "CUDA_ERROR_MPS_CONNECTION_FAILED",
	  "the MPS daemon or server cannot be reached: start it, or unset CUDA_MPS_PIPE_DIRECTORY" },
	{ 806, GW_FAULT_MPS, "CUDA_ERROR_MPS_RPC_FAILURE",
	  "the MPS server broke off a call: replace the process" },
	{ 807, GW_FAULT_MPS, "CUDA_ERROR_MPS_SERVER_NOT_READY",
	  "the MPS server recovers from a fault and takes no clients now: try again a little later" },
	{ 808, GW_FAULT_MPS, "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED",
	  "the MPS server has all the clients that it can hold: try again when one has ended" },
	{ 809, GW_FAULT_MPS, "CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED",
	  "the MPS server has all the device connections that it can hold: try again when one is free" },
	{ 810, GW_FAULT_MPS, "CUDA_ERROR_MPS_CLIENT_TERMINATED",
	  "the MPS server ended this client: only a new process works" },
	{ 811, GW_FAULT_CALLER, "CUDA_ERROR_CDP_NOT_SUPPORTED",
	  "kernels that launch kernels do not work in this configuration: run without MPS" },
	{ 812, GW_FAULT_CALLER, "CUDA_ERROR_CDP_VERSION_MISMATCH",
	  "the module mixes two versions of kernels that launch kernels: build all of it with one toolkit" },
	{ 900, GW_FAULT_CALLER, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
	  "this call may not be made while a stream is captured: move it out of the capture" },
	{ 901, GW_FAULT_CALLER, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
	  "an earlier error spoiled this capture: end it and look at the first error" },
	{ 902, GW_FAULT_CALLER, "CUDA_ERROR_STREAM_CAPTURE_MERGE",
	  "the call would join two separate captures: keep their streams apart" },
	{ 903, GW_FAULT_CALLER, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
	  "the capture was not begun in this stream: end it where it began" },
	{ 904, GW_FAULT_CALLER, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED",
	  "the capture has a branch that was not joined: wait for it before the end" },
	{ 905, GW_FAULT_CALLER, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
	  "the call would make the capture depend on work outside of it: keep the two apart" },
	{ 906, GW_FAULT_CALLER, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
	  "the default stream would wait for the capture: use other streams" },
	{ 907, GW_FAULT_CALLER, "CUDA_ERROR_CAPTURED_EVENT",
	  "the event was last recorded in a capture: use another event" },
	{ 908, GW_FAULT_CALLER, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
	  "the capture was begun in another thread: end it there" },
	{ 909, GW_FAULT_NONE, "CUDA_ERROR_TIMEOUT",
	  "the time given to a wait ran out: this is no failure" },
	{ 910, GW_FAULT_CALLER, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE",
	  "the new graph differs too much from the instantiated one: instantiate it anew" },
	{ 911, GW_FAULT_POISONED, "CUDA_ERROR_EXTERNAL_DEVICE",
	  "a device outside CUDA reported that its data is not valid: only a new process works" },
	{ 912, GW_FAULT_CALLER, "CUDA_ERROR_INVALID_CLUSTER_SIZE",
	  "the cluster size of the launch does not work: ask for the greatest one first" },
	{ 913, GW_FAULT_CALLER, "CUDA_ERROR_FUNCTION_NOT_LOADED",
	  "the function is not loaded yet: load it before this call" },
	{ 914, GW_FAULT_CALLER, "CUDA_ERROR_INVALID_RESOURCE_TYPE",
	  "a resource is of a kind that the call does not take: check the arguments" },
	{ 915, GW_FAULT_CALLER, "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION",
	  "the resources of the call are too few or do not fit: check how they were divided" },
	{ 916, GW_FAULT_DEVICE, "CUDA_ERROR_KEY_ROTATION",
	  "the change of encryption keys failed: look at the GPU's recovery action" },
	{ 999, GW_FAULT_DEVICE, "CUDA_ERROR_UNKNOWN",
	  "the driver failed and does not say why: look at the kernel log and the GPU's recovery action" },
};
/* clang-format on */

static int by_number(const void *key, const void *row)
{
	int number = *(const int *)key;
	int other = ((const struct cuda_fault *)row)->number;

	return (number > other) - (number < other);
}

const struct cuda_fault *cuda_fault_table(size_t *ret_count)
{
	*ret_count = sizeof(table) / sizeof(table[0]);
	return table;
}

const struct cuda_fault *cuda_fault_find(int number)
{
	return bsearch(&number, table, sizeof(table) / sizeof(table[0]), sizeof(table[0]),
		       by_number);
}

/* A number that is not in the table comes from a driver newer than it. Nothing says that the process
 * is dead, so it counts as the caller's: the task fails with it. */
enum gw_fault_class gw_cuda_class(int result)
{
	const struct cuda_fault *row = cuda_fault_find(result);

	return row ? row->kind : GW_FAULT_CALLER;
}

const char *gw_cuda_name(int result)
{
	const struct cuda_fault *row = cuda_fault_find(result);

	return row ? row->name : NULL;
}

const char *gw_cuda_text(int result)
{
	const struct cuda_fault *row = cuda_fault_find(result);

	return row ? row->text
		   : "not a result that this version of gpuward knows: see the driver's documentation";
}

const char *cuda_remedy(enum gw_fault_class kind)
{
	switch (kind) {
	case GW_FAULT_NONE:
		return "nothing needs to be done";
	case GW_FAULT_CALLER:
		return "correct the call; the process is fine";
	case GW_FAULT_RESOURCES:
		return "ask for less, or wait until memory is free; the process is fine";
	case GW_FAULT_POISONED:
		return "replace the process; nothing inside it recovers";
	case GW_FAULT_DEVICE:
		return "replace the process once; if it comes again, look at the GPU's recovery action";
	case GW_FAULT_NODE:
		return "no retry helps: put the driver or the node right";
	case GW_FAULT_MPS:
		return "replace the process, or wait until the MPS server takes clients again";
	}
	return "see the driver's documentation";
}

int cuda_exit_code(enum gw_fault_class kind)
{
	switch (kind) {
	case GW_FAULT_DEVICE:
		return FAULT_EXIT_RETRY;
	case GW_FAULT_NODE:
		return FAULT_EXIT_REPAIR;
	case GW_FAULT_NONE:
	case GW_FAULT_CALLER:
	case GW_FAULT_RESOURCES:
	case GW_FAULT_POISONED:
	case GW_FAULT_MPS:
		break;
	}
	return FAULT_EXIT_OWN;
}

/* Of the MPS results these two stay with the process: the others are waited out. */
#define MPS_RPC_FAILURE	      806
#define MPS_CLIENT_TERMINATED 810

bool cuda_ends_process(int result)
{
	enum gw_fault_class kind;

	/* Nearly always: the table need not be searched. */
	if (result == 0)
		return false;
	kind = gw_cuda_class(result);
	return kind == GW_FAULT_POISONED || kind == GW_FAULT_DEVICE || result == MPS_RPC_FAILURE ||
	       result == MPS_CLIENT_TERMINATED;
}
