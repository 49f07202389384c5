/* SPDX-License-Identifier: MIT */
/*
 * gpuward: keep GPU work alive through CUDA faults.
 *
 * A CUDA fault (an illegal address, an assert, a trap) poisons the whole process that caused it;
 * nothing inside that process recovers. gpuward therefore runs GPU code in worker processes, under a
 * supervisor (the ward) that never loads a driver, and runs again elsewhere what a fault took away.
 *
 * Two forms:
 *
 *	gw_isolate()	a function, in a forked child, for a program that has not touched CUDA
 *	gw_pool_open()	a pool of workers that serve tasks by name, for any program
 *
 * Conventions of this header:
 *
 *  - Functions that can fail return 0 (or a count) or a negative code: -errno, or one of enum gw_code.
 *    Where there is a last parameter `ret_error`, it may be NULL; it is written only on failure.
 *  - A crash of a worker is no failure of gpuward: it is an outcome (struct gw_outcome, struct gw_exit).
 *  - Output parameters are called `ret_...` and stay untouched on failure.
 *  - Time is nanoseconds on CLOCK_MONOTONIC; memory is bytes. A value that is not known is
 *    GW_UNKNOWN (all ones), never 0.
 *  - Option structures begin with `size`: set it with GW_OPTIONS(). A field that is 0 means its default.
 *  - The library never prints, exits, installs signal handlers, starts threads in the host or changes
 *    its environment. Every function may be called from any thread unless it says otherwise.
 */
#ifndef GPUWARD_H
#define GPUWARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GW_VERSION_MAJOR 0
#define GW_VERSION_MINOR 1
#define GW_VERSION_PATCH 0
#define GW_VERSION_TEXT	 "0.1.0"

/* True where the header that is compiled against is at least this version. */
#define GW_CHECK_VERSION(major, minor)                                                             \
	(GW_VERSION_MAJOR > (major) || (GW_VERSION_MAJOR == (major) && GW_VERSION_MINOR >= (minor)))

#if defined(__GNUC__)
#define GW_PUBLIC __attribute__((visibility("default")))
#else
#define GW_PUBLIC
#endif

/* A time or an amount that is not known. */
#define GW_UNKNOWN UINT64_MAX

/* For a deadline or a wait: never give up. */
#define GW_FOREVER UINT64_MAX

/* For spin_ns: sleep at once. */
#define GW_NO_SPIN 1

/* Any device of the pool. */
#define GW_ANY_DEVICE (-1)

/* Workers in one pool, at the most. */
#define GW_WORKERS_MAX 64

/* Bytes of a function's name, the closing zero byte included. */
#define GW_NAME_MAX 64

/* Functions of one worker, at the most. */
#define GW_FUNCTIONS_MAX 128

/* The version of the library that is loaded, "MAJOR.MINOR.PATCH". Static storage. */
GW_PUBLIC const char *gw_version(void);

/* ---------------------------------------------------------------------------------------------- */
/* Errors                                                                                         */
/* ---------------------------------------------------------------------------------------------- */

/* gpuward's own codes, outside the range of errno. Everything else that is negative is -errno. */
enum gw_code {
	GW_EFORKED =
		-5001, /* the pool belongs to the parent of this forked process: only close it */
	GW_EWARDLOST = -5002,	/* the ward died: close the pool and open a new one */
	GW_EPOOLFAILED = -5003, /* no worker can be had any more: the message says why */
	GW_ECUDALOADED =
		-5004, /* a CUDA driver is loaded in this process: gw_isolate() must not fork it */
	GW_ETHREADS = -5005,	/* this process has other threads: gw_isolate() must not fork it */
	GW_ENOFUNCTION = -5006, /* no function of this name in the worker */
	GW_EVERSION = -5007,	/* host, ward and worker were not built from the same version */
	GW_EPROTOCOL = -5008,	/* a peer broke the rules of the channel */
	GW_EDRIVER = -5009, /* the GPU driver is missing, too old, mismatched, or does not answer */
	GW_ELIMIT = -5010,  /* a limit of the pool's options is reached */
	GW_EFENCED = -5011, /* this worker was replaced: nothing that it does counts any more */
	GW_ENOTUSED = -5012, /* not switched on, or something better is used instead */
};

/* Whose number `native` of struct gw_error is. */
enum gw_domain {
	GW_DOMAIN_GPUWARD = 0, /* a rule of gpuward: native is 0 */
	GW_DOMAIN_OS = 1,      /* native is an errno */
	GW_DOMAIN_CUDA =
		2, /* native is a CUresult (the runtime's cudaError_t has the same numbers) */
	GW_DOMAIN_NVML = 3, /* native is an nvmlReturn_t */
};

/* Why a call failed. Plain data of fixed size: it can be copied, and filled when memory is gone. */
struct gw_error {
	int32_t code;	 /* what the function returned */
	uint32_t domain; /* enum gw_domain */
	int64_t native;
	char msg[240]; /* one line: what, where, what to do */
};

/* ---------------------------------------------------------------------------------------------- */
/* How a process ended                                                                            */
/* ---------------------------------------------------------------------------------------------- */

/* How one attempt to run something ended. */
enum gw_end {
	GW_END_UNKNOWN = 0, /* not known: somebody else reaped the process */
	GW_END_RESULT = 1,  /* the function returned; `value` is what it returned */
	GW_END_EXIT = 2,    /* the process exited by itself; `value` is the exit code */
	GW_END_SIGNAL = 3,  /* a signal that gpuward did not send ended it; `value` is its number */
	GW_END_CUDA =
		4, /* a CUDA error that poisons the process; `value` is the CUresult, or -1 where only
			  * the Xid is known */
	GW_END_DEADLINE = 5, /* a deadline ran out and gpuward killed it; `value` is 0 */
	GW_END_START = 6,    /* the worker never became ready; `value` is its exit code or 0 */
	GW_END_STOPPED = 7,  /* gpuward ended it on request; `value` is 0 */
	GW_END_PROTOCOL = 8, /* it broke the rules of the channel and gpuward killed it */
};

/* Which source noticed the end first. */
enum gw_source {
	GW_SOURCE_UNKNOWN = 0,
	GW_SOURCE_RESULT = 1,	  /* the function's return value */
	GW_SOURCE_DEATH = 2,	  /* the process was gone (pidfd) */
	GW_SOURCE_DEADLINE = 3,	  /* a deadline ran out */
	GW_SOURCE_REQUEST = 4,	  /* the host asked for it */
	GW_SOURCE_KERNEL_LOG = 5, /* an Xid line of the GPU driver in /dev/kmsg */
	GW_SOURCE_NVML = 6,	  /* an Xid event of NVML */
	GW_SOURCE_PROTOCOL = 7,	  /* the ward's own checks */
	GW_SOURCE_ERROR_LOG = 8,  /* the CUDA driver's error log, inside the worker */
	GW_SOURCE_HEARTBEAT = 9,  /* the worker did not answer (it is stopped, or hangs) */
};

/* Numbers of sources: the size of an array that enum gw_source indexes. */
#define GW_SOURCES 10

/* How one process ended, and when what happened. Plain data. */
struct gw_exit {
	uint32_t end;	     /* enum gw_end */
	uint32_t source;     /* enum gw_source */
	int32_t value;	     /* by `end`, above */
	int32_t cuda;	     /* CUresult, or -1 where none is known */
	int32_t xid;	     /* the driver's Xid, or -1 where none is known */
	int32_t pid;	     /* of the process, in the caller's pid namespace */
	int32_t device;	     /* the pool's device number, or -1 */
	uint32_t slot;	     /* which worker of the pool, from 0 */
	uint64_t started_ns; /* the process was started */
	uint64_t noticed_ns; /* the end was noticed */
	/* The process was gone and reaped. GW_UNKNOWN in a story that was told before: a faulted worker is
	 * replaced at once, and its process ends beside its successor (gw_pool_recovery() has all). */
	uint64_t gone_ns;
	char text[160]; /* one line in plain words */
};

/* ---------------------------------------------------------------------------------------------- */
/* gw_isolate: a function in a child of its own                                                   */
/* ---------------------------------------------------------------------------------------------- */

/* What one run of an isolated function sees. */
struct gw_isolated {
	void *shared; /* memory shared with the parent, zeroed before the first attempt only */
	uint64_t shared_bytes; /* its size */
	uint32_t attempt;      /* 0 in the first process, 1 in the next */
	void *argument;	       /* from the options; a copy-on-write view of the parent's memory */
};

struct gw_isolate_options {
	size_t size;	       /* sizeof(struct gw_isolate_options) */
	uint64_t shared_bytes; /* size of the shared region; 0 = 4096 */
	/* Per attempt; 0 = none. A process that is late is killed; one that does not end within ten
	 * seconds of it (a driver that hangs) is left, said so in `text`, and not tried again. */
	uint64_t deadline_ns;
	uint32_t max_attempts; /* fresh processes to try; 0 = 3 */
	uint32_t reserved;
	void *argument; /* handed to the function */
	/* Called in the parent, in the calling thread, after each attempt that did not succeed and before
	 * the next one. May be NULL. */
	void (*on_attempt)(const struct gw_exit *exit, uint32_t attempt, void *argument);
};

/*
 * Runs FUNCTION in a forked child, waits for its end, and tries again in a fresh child while it
 * crashes, up to max_attempts.
 *
 * The function returns 0 for success. Any other value is a failure: a CUDA result that ends
 * its process (700, 719 and so on, and a suspect device) counts as a crash and is tried again in a fresh process; any other value is the
 * function's own answer and ends the call. The child leaves with _exit: no destructor and no atexit()
 * handler of the parent runs in it.
 *
 * Runs in: the calling thread; blocks until the last attempt ended. The process must have no other
 * thread and no CUDA driver loaded, since neither survives a fork.
 * Parameters: RET_SHARED, if not NULL, receives the shared region after success or crash; the caller
 *   owns it and ends it with gw_isolate_free_shared(). RET_EXIT receives how the last attempt ended.
 * Returns: 0 when an attempt ended with GW_END_RESULT and value 0; 1 when it did not (RET_EXIT says
 *   how the last one ended). -EINVAL bad options; GW_ECUDALOADED; GW_ETHREADS; -ENOMEM; -EAGAIN no
 *   process can be made (RLIMIT_NPROC or pids.max); -EMFILE; -ENOSYS no /proc, or Linux before 5.10.
 * Source: waitid(P_PIDFD) for the end; dl_iterate_phdr for the driver; /proc/self/task for threads.
 */
GW_PUBLIC int gw_isolate(int (*function)(const struct gw_isolated *run),
			 const struct gw_isolate_options *options, void **ret_shared,
			 struct gw_exit *ret_exit, struct gw_error *ret_error);

/* Ends a shared region that gw_isolate() gave. NULL is fine. BYTES is the size that was asked for. */
GW_PUBLIC void gw_isolate_free_shared(void *shared, uint64_t bytes);

/* ---------------------------------------------------------------------------------------------- */
/* The worker's side                                                                              */
/* ---------------------------------------------------------------------------------------------- */

/* Flags of a call. */
enum gw_call_flags {
	GW_CALL_INPUT_PINNED = 1,  /* `input` is pinned: GW_POOL_PINNED */
	GW_CALL_OUTPUT_PINNED = 2, /* `output` is */
};

/* One call of a function in a worker. Valid during the call. */
struct gw_call {
	const void
		*input; /* the task's input, read-only memory, aligned to 64 bytes; NULL if empty */
	uint64_t input_bytes;
	void *output; /* where the result goes, aligned to 64 bytes; NULL if no room was asked for */
	uint64_t output_capacity_bytes;
	uint64_t output_bytes; /* the function sets it: bytes of the result, at most the capacity */
	uint64_t task;	       /* number of the task in its pool, from 1 */
	uint32_t attempt;      /* 0 the first time, 1 after one crash */
	int32_t device;	       /* the pool's device number, or -1 in a pool without devices */
	char message[128];     /* may be filled on failure: one line that reaches the host */
	uint32_t flags;	       /* enum gw_call_flags, added up */
	uint32_t reserved;
};

/* Flags of a function. */
enum gw_function_flags {
	/* Do not wait for the device after the function returned: it has waited by itself. Without this
	 * flag the worker calls cuCtxSynchronize, so that a fault of a kernel that the function launched
	 * is charged to the task that launched it. */
	GW_FUNCTION_SYNCED = 1,
};

/* A function that a worker offers. */
struct gw_function {
	const char *name; /* at most GW_NAME_MAX - 1 bytes of printable ASCII */
	/*
	 * Runs in: the worker's main thread, one call at a time, with the device's primary context
	 * current (where the pool has devices).
	 * Returns 0, or any other number on failure. CUresult and cudaError_t can be returned as they
	 * are: in a pool with devices those that poison the process end this worker, and the task runs
	 * again in a new one.
	 */
	int (*run)(struct gw_call *call);
	/* Once per worker, before the worker is ready: load modules, warm up. May be NULL. Returns 0, or
	 * a CUresult or other number: the worker then does not become ready. */
	int (*prepare)(int device);
	uint32_t flags; /* enum gw_function_flags */
	uint32_t reserved;
};

/*
 * True in a process that a ward started as a worker. The host's main() begins with
 *
 *	if (gw_is_worker())
 *		return gw_worker_run(functions);
 *
 * In a worker gw_pool_open() refuses until gw_worker_run() was called: a main() without these lines would
 * start workers without end.
 * Runs in: any process, before it starts threads. Source: the environment variable GPUWARD_WORKER.
 */
GW_PUBLIC bool gw_is_worker(void);

/*
 * Serves tasks until the ward or the host ends, or a fault ends this process.
 *
 * FUNCTIONS ends with an entry whose name is NULL. Returns the exit status for main(): 0 after a
 * request to stop, 125 when the worker could not start. Does not return after a fault: it leaves with
 * _exit, makes no further CUDA call and runs no destructor.
 * Runs in: the worker's main thread. Starts one thread of its own, blocks SIGTERM in the process.
 */
GW_PUBLIC int gw_worker_run(const struct gw_function *functions);

/* ---------------------------------------------------------------------------------------------- */
/* Device memory that survives                                                                    */
/* ---------------------------------------------------------------------------------------------- */

/*
 * A piece of state is device memory that outlives the worker that made it, since the ward holds it: the next
 * worker of the same device maps it at the same address. It has a name, and is of one of two kinds.
 *
 *	sealed	is written once, by the worker that creates it, until gw_state_seal(). From then on every
 *		worker of the device maps it, for reading: the hardware refuses writes, so that not even a
 *		wild kernel changes it. One that is not sealed when its worker ends is dropped.
 *	mutable	belongs to one worker at a time. It has a working copy, at its address, and a committed copy
 *		that no kernel reaches. gw_state_commit() makes what the working copy holds the state that
 *		counts; when a worker ends, the next one that maps the piece finds the last commit, whole.
 *
 * These functions run in a worker with a device, in its main thread: in `run` or `prepare` of a function.
 * Elsewhere they return -ENOTSUP or -EPERM, and -EPERM in a signal handler that interrupts one of them. They
 * talk to the ward, which takes microseconds, and to the driver; two of them can wait for as long as another
 * process takes, and say so. A process that the ward has replaced gets GW_EFENCED from all that ask the ward.
 *
 * An error whose domain is GW_DOMAIN_CUDA has the CUresult in `native`: a function returns that, so that a
 * poisoned process is replaced.
 */

enum gw_state_kind {
	GW_STATE_SEALED = 1,
	GW_STATE_MUTABLE = 2,
};

/* What a worker wants to do with a piece that it maps. */
enum gw_state_access {
	GW_STATE_READ = 1,
	GW_STATE_WRITE = 2, /* and read */
};

enum gw_state_status {
	GW_STATE_MAKING = 1,  /* being made and filled, by the worker `owner_pid` */
	GW_STATE_READY = 2,   /* sealed; or mutable, with a committed copy that is whole */
	GW_STATE_COPYING = 3, /* mutable: a commit counts, and is being copied */
	GW_STATE_DROPPED = 4, /* it has no name any more; a worker still has it mapped */
};

/* A piece of state. Plain data. */
struct gw_state_info {
	size_t size; /* sizeof(struct gw_state_info); in an array, that of the first counts for all */
	char name[GW_NAME_MAX];
	uint64_t address; /* on the device, the same in every worker; from the driver's cuMemMap */
	uint64_t bytes;	  /* as asked for */
	uint64_t held_bytes; /* device memory of all its copies: multiples of 2 MiB */
	uint64_t epoch;	     /* mutable: commits so far */
	uint64_t task;	     /* number of the task of this pool that committed last, or 0 */
	int32_t device;	     /* the pool's number */
	uint32_t kind;	     /* enum gw_state_kind */
	uint32_t status;     /* enum gw_state_status */
	int32_t owner_pid;   /* of the worker that may write it, or -1 */
};

/* Pieces of one pool, at the most. */
#define GW_STATES_MAX 16384

/*
 * Makes a piece of BYTES bytes called NAME (at most GW_NAME_MAX - 1 bytes of printable ASCII) of KIND, filled
 * with zeros, and maps it for reading and writing in this worker alone. The device memory is at least twice
 * BYTES for a mutable piece. A mutable one is at epoch 0: all zero, until the first commit.
 *
 * Runs in: worker, main thread; for as long as the driver takes to make and clear the memory.
 * Owns: the pool owns the piece; it ends with the pool (unless that has a state_name), or by gw_state_drop().
 * Returns 0 and *RET_ADDRESS. -EEXIST there is one of this name on the device; -EINVAL; -ENOMEM the device has
 *   no room, or GW_ELIMIT max_state_bytes, GW_STATES_MAX or the ward's descriptors are used up: the message
 *   says which pieces use how much; -EADDRINUSE the range of addresses is taken in this process; -ENOTSUP
 *   no worker, no device, or mutable under MPS; -EPERM another thread or a forked child; GW_EFENCED;
 *   GW_EWARDLOST; GW_EDRIVER.
 * Source: cuMemCreate, cuMemExportToShareableHandle, cuMemMap (CUDA 11.0).
 */
GW_PUBLIC int gw_state_create(const char *name, uint64_t bytes, enum gw_state_kind kind,
			      uint64_t *ret_address, struct gw_error *ret_error);

/*
 * Maps the piece NAME in this worker. One that is mapped already is only looked up, so that a function can
 * begin with this call.
 *
 * A sealed piece is mapped for reading; where another worker is still filling it, the call waits until that
 * one seals it or ends. A mutable piece passes to this worker, which finds the last commit in it. While a
 * worker that lives has it, the call returns -EBUSY at once; where that worker was replaced and its process is
 * not gone yet (its kernels may still write), the call waits for its end, 50 to 100 ms.
 *
 * So `prepare` is no place to map mutable state: a standby prepares while the worker lives that has it.
 * Runs in: worker, main thread.
 * Returns 0 and *RET_INFO (whose `size` is set by the caller; may be NULL). -ENOENT no such piece on this
 *   device; -EACCES GW_STATE_WRITE of a sealed piece; -EBUSY a worker, which is named, has it, or a process
 *   that a dead worker forked still holds its descriptors; -ESTALE it was kept by a pool before on another machine or
 *   instance of the driver, and the driver does not take it: the worker lives, gw_state_drop() it and make it anew;
 *   and the errors of gw_state_create().
 * Source: cuMemImportFromShareableHandle, cuMemMap, cuMemSetAccess (CUDA 11.0).
 */
GW_PUBLIC int gw_state_map(const char *name, enum gw_state_access access,
			   struct gw_state_info *ret_info, struct gw_error *ret_error);

/*
 * Seals the piece NAME, which this worker created: waits for the device, makes it read-only here, and gives it
 * to all other workers of the device.
 *
 * Runs in: worker, main thread; waits for all work of the device's context.
 * Returns 0, also where it is sealed already. -ENOENT it is not mapped here; -EINVAL it is mutable; an error of
 *   domain CUDA when a kernel has failed: the piece is not sealed then; GW_EFENCED; GW_EWARDLOST.
 * Source: cuCtxSynchronize, cuMemSetAccess.
 */
GW_PUBLIC int gw_state_seal(const char *name, struct gw_error *ret_error);

/*
 * Commits the mutable piece NAME, or with NULL all mutable pieces that this worker has mapped, together: after
 * whatever happens, either all of them are at the new epoch or none. Waits for the device, and for a copy
 * on the device of all that is committed. No other thread or stream may write the pieces meanwhile.
 *
 * Runs in: worker, main thread. A worker that is replaced between the moment at which the commit counts and
 * the end of the copy does not return from this call: the process ends.
 * Returns 0. -ENOENT it is not mapped here, or there is none; -EINVAL it is sealed; an error of domain CUDA when
 *   a kernel has failed; GW_EFENCED, GW_EWARDLOST: nothing was committed in any of these cases.
 * Source: cuCtxSynchronize, cuMemcpyDtoD.
 */
GW_PUBLIC int gw_state_commit(const char *name, struct gw_error *ret_error);

/*
 * Brings the mutable piece NAME, or with NULL all that this worker has mapped, back to the last commit.
 *
 * Runs in: worker, main thread; waits for the device, and for a copy on the device.
 * Returns 0; -ENOENT; -EINVAL it is sealed; an error of domain CUDA; GW_EFENCED; GW_EWARDLOST.
 */
GW_PUBLIC int gw_state_roll_back(const char *name, struct gw_error *ret_error);

/*
 * Unmaps the piece NAME in this worker; another one can have it then. What a mutable piece has beyond its last
 * commit is lost, and a piece that was never sealed is dropped.
 *
 * Runs in: worker, main thread; waits for the device.
 * Returns 0; -ENOENT it is not mapped here; an error of domain CUDA; GW_EFENCED; GW_EWARDLOST.
 */
GW_PUBLIC int gw_state_unmap(const char *name, struct gw_error *ret_error);

/*
 * Ends the piece NAME, unmapping it in this worker where it is mapped. Its name is free at once; its memory is
 * back when standby workers, which map sealed state in advance, have let go of it too.
 *
 * Runs in: worker, main thread; waits for the device.
 * Returns 0; -ENOENT no such piece on this device; -EBUSY another worker, which is named, has it; an error of
 *   domain CUDA; GW_EFENCED; GW_EWARDLOST.
 */
GW_PUBLIC int gw_state_drop(const char *name, struct gw_error *ret_error);

/*
 * The pieces of this worker's device, those included that are not mapped here.
 * RET_INFOS has room for N, may be NULL if N is 0; its first element's `size` is set by the caller.
 *
 * Runs in: worker, main thread.
 * Returns how many there are, which can be more than N, or a negative code: -EINVAL, -ENOTSUP, -EPERM,
 *   GW_EFENCED, GW_EWARDLOST.
 */
GW_PUBLIC int gw_state_list(struct gw_state_info *ret_infos, uint32_t n,
			    struct gw_error *ret_error);

/* ---------------------------------------------------------------------------------------------- */
/* Pools                                                                                          */
/* ---------------------------------------------------------------------------------------------- */

struct gw_pool;
struct gw_task;

/* How far the processes are brought up that wait to take the place of a worker. */
enum gw_standby {
	GW_STANDBY_COLD = 0, /* there are none: the next process starts when the last one failed */
	GW_STANDBY_PRIMED = 1, /* the driver is initialised: 3 MiB of device memory */
	GW_STANDBY_HOT =
		2, /* the context is up, functions are prepared, sealed state is mapped: 530 MiB */
};

/* Sources of early detection. Results, death and deadlines always count. */
enum gw_detect {
	GW_DETECT_KERNEL_LOG = 1, /* Xid lines; needs root or CAP_SYSLOG */
	GW_DETECT_NVML =
		2, /* Xid events; only where just one worker of the pool can have caused one */
	GW_DETECT_ERROR_LOG = 4,   /* the driver's log inside the worker; CUDA 12.9 and newer */
	GW_DETECT_RESULT_ONLY = 8, /* none of these */
};

/* Flags of a pool. */
enum gw_pool_flags {
	/*
	 * Each worker pins the memory of inputs and outputs once, when its context is up, so that copies from
	 * call->input and to call->output run at the full speed of the bus: 54 GB/s and not 7 on an H200.
	 *
	 * Pinned memory is taken at once, and stays taken: twice total_input_bytes for the pool, and twice
	 * total_output_bytes for each worker, for each hot standby and for one more. So choose small totals:
	 * the bytes of the tasks that live at a time. The defaults become max_input_bytes and
	 * max_output_bytes. Where the machine, or a control group, has less, gw_pool_open() returns
	 * -ENOMEM; RLIMIT_MEMLOCK does not count. Each start takes 40 ms per GiB more, and the first one the
	 * time to clear the pages; start_deadline_ns is longer by 2 s per GiB. Each end takes 150 ms per GiB
	 * more, beside its successor.
	 *
	 * What a driver cannot pin stays as it is, slower, and call->flags tells: inputs where memory
	 * cannot be registered for reading alone (device attribute 113), outputs where none can, and both
	 * in a worker that starts when too little memory is left. A pool without devices is refused.
	 */
	GW_POOL_PINNED = 1,
	/* Hot standbys lower the stack limit of their context to 256 bytes until they are promoted: 198 MiB
	 * of device memory less on an H200 each, and a promotion takes 2 to 13 ms more after some faults. */
	GW_POOL_SLIM_STANDBYS = 2,
};

struct gw_pool_options {
	size_t size; /* sizeof(struct gw_pool_options) */

	const int *
		devices; /* device numbers in PCI bus order; NULL with n_devices 0 = no GPU at all */
	uint32_t n_devices;
	uint32_t workers_per_device; /* 0 = 1. Without devices: the number of workers */

	/* The worker's program: argv, ended by NULL; argv[0] is looked up in PATH. NULL = this program
	 * itself, whose main() must begin with gw_is_worker(). */
	const char *const *command;

	uint64_t max_input_bytes;  /* of one task; 0 = 1 GiB */
	uint64_t max_output_bytes; /* of one task; 0 = 1 GiB */
	/* Of all live tasks. 0 = 4 GiB, or with GW_POOL_PINNED as much as one task may have. Memory is taken
	 * when it is touched, or with that flag at once. */
	uint64_t total_input_bytes;
	uint64_t total_output_bytes;
	uint32_t queue_depth; /* tasks handed to one worker in advance, 1 to 256; 0 = 64 */

	uint32_t max_attempts;	    /* processes that may die of one task; 0 = 3 */
	uint64_t task_deadline_ns;  /* default of the tasks; 0 = none */
	uint64_t start_deadline_ns; /* exec to ready; 0 = 60 s */
	uint64_t stop_deadline_ns;  /* a request to stop to SIGKILL; 0 = 5 s */
	uint64_t
		restart_min_ns; /* pause before a restart that follows a quick death; 0 = 10 ms. The
				      * first restart after a good run is at once; it doubles from there */
	uint64_t restart_max_ns; /* 0 = 5 s */
	uint32_t
		max_start_failures; /* starts in a row that never got ready; then the slot fails; 0 = 5 */
	/* How long a side that waits spins before it sleeps, at most: it learns whether that pays, and
	 * sleeps at once where it does not. 0 = 20 us where this thread may use more than one processor,
	 * not at all where it has only one; GW_NO_SPIN = not at all. */
	uint32_t spin_ns;

	uint32_t standby;	      /* enum gw_standby */
	uint32_t standbys_per_device; /* 0 = 1. Without devices: of the pool */
	uint32_t detect;	      /* enum gw_detect, added up; 0 = all */
	uint32_t flags;		      /* enum gw_pool_flags, added up */
	/* Workers in a row of one slot that died without completing a task; then the slot fails; 0 = 32 */
	uint32_t max_quick_deaths;
	/* CUDA_DEVICE_MAX_CONNECTIONS of the workers: hardware queues of each; 0 = as the host's environment
	 * has it, at most 32. With 1 in every process of a GPU, a fault stalls it for 2 ms per context
	 * instead of 11, and a context takes half the time; but the streams of a worker share a queue. */
	uint32_t connections;
	uint32_t reserved;
	/* A worker or standby that does not answer the ward for so long is replaced (it was stopped, or the
	 * machine swaps); 0 = it is not asked, and the ward sleeps. At least 10 ms. */
	uint64_t heartbeat_ns;
	uint64_t max_state_bytes; /* of surviving state, per device; 0 = what the device has */
	/* Keeps the state beyond the pool, under this name (printable ASCII without '/'), for the next
	 * pool of the same user that asks for it; NULL = it ends with the pool. One pool at a time: gw_pool_open()
	 * waits up to 10 s for the one before to be gone, and returns -EBUSY where it lives. Numbers of tasks
	 * begin anew with each pool: what must happen once across restarts needs a key of your own in the state.
	 * gpuward-state(1). */
	const char *state_name;
};

/* An option structure with every field at its default: struct gw_x o = GW_OPTIONS(struct gw_x). */
#ifdef __cplusplus
extern "C++" {
template <class type> inline type gw_options_of()
{
	type options = {};

	options.size = sizeof(type);
	return options;
}
}
#define GW_OPTIONS(type) gw_options_of<type>()
#else
#define GW_OPTIONS(type)                                                                           \
	{                                                                                          \
		.size = sizeof(type)                                                               \
	}
#endif

/*
 * Starts a ward and its workers, and waits until the first worker is ready.
 *
 * Runs in: the calling thread, for at most start_deadline_ns times max_start_failures. The host may
 * have threads and CUDA of its own.
 * Owns: the caller owns *RET_POOL and ends it with gw_pool_close().
 * Returns 0; -EINVAL bad options; -ENOENT, -EACCES or -ENOEXEC the worker's program is missing, not
 *   executable, or no program; -ENODEV a device does not exist; -EACCES it may not be used; GW_EVERSION;
 *   GW_EDRIVER; GW_EPOOLFAILED or -ETIMEDOUT no worker became ready; GW_EWARDLOST the ward died; with a
 *   state_name -EBUSY another pool uses it, -EACCES its folder is another user's or open to others;
 *   -EAGAIN, -EMFILE, -ENOMEM, -EFBIG a limit of the system; -ENOSYS the kernel lacks a call.
 */
GW_PUBLIC int gw_pool_open(struct gw_pool **ret_pool, const struct gw_pool_options *options,
			   struct gw_error *ret_error);

/*
 * Ends the pool: workers finish the task in hand within stop_deadline_ns, free the device and exit;
 * what is late is killed. Returns after the last process of the pool is gone.
 *
 * All tasks must have been freed, or are freed by this call: no task of the pool may be used after it,
 * and no other thread may be inside a call on the pool. In a forked child it only lets go of the
 * child's copies. NULL is fine.
 */
GW_PUBLIC void gw_pool_close(struct gw_pool *pool);

/*
 * A descriptor for the host's own event loop: readable when gw_pool_dispatch() has something to do.
 * It belongs to the pool: do not close it, do not read from it. Returns the descriptor, or GW_EFORKED.
 */
GW_PUBLIC int gw_pool_fd(struct gw_pool *pool);

/*
 * Takes in what workers and ward have said since, without blocking. Returns the number of tasks that
 * wait for gw_pool_next(), or GW_EFORKED. After the ward's death it returns GW_EWARDLOST once there is
 * nothing left to take.
 */
GW_PUBLIC int gw_pool_dispatch(struct gw_pool *pool, struct gw_error *ret_error);

/*
 * The next task that has ended, oldest end first, waiting for it up to TIMEOUT_NS (0 = do not wait,
 * GW_FOREVER). Each task is given out once by this call; gw_task_wait() on a task takes it out of this
 * queue. Returns 1 and *RET_TASK, 0 when the time ran out or no task is under way, or a negative code.
 */
GW_PUBLIC int gw_pool_next(struct gw_pool *pool, uint64_t timeout_ns, struct gw_task **ret_task,
			   struct gw_error *ret_error);

/* What a pool is doing. Filled by gw_pool_stat(). */
struct gw_pool_stat {
	uint32_t workers_ready;
	uint32_t workers_starting; /* started, not ready yet, or waiting for their restart */
	uint32_t workers_failed;   /* given up */
	uint32_t reserved;
	int32_t ward_pid;
	int32_t last_device;	/* of last_exit, or -1 */
	uint64_t tasks_pending; /* submitted, not ended */
	uint64_t tasks_done;	/* ended, all time */
	uint64_t recoveries;	/* workers that were replaced, all time */
	uint64_t input_bytes;	/* held by live tasks */
	uint64_t output_bytes;
	uint64_t attempts_failed; /* deaths that a task was running at, all time */
	uint64_t tasks_poisoned;  /* ended as GW_POISON, all time */
	uint32_t standbys_hot;
	uint32_t standbys_primed;
	uint32_t standbys_starting; /* on their way, or waiting for another try */
	uint32_t standbys_failed;   /* given up */
	uint32_t standbys_no_room;  /* of the primed ones: would be hot if the device had room */
	uint32_t state_pieces;
	uint64_t state_bytes;		 /* device memory of surviving state, all copies */
	uint64_t noticed_by[GW_SOURCES]; /* recoveries by the source that was first */
	uint64_t kernel_log_lost;	 /* lines that were overwritten before the ward read them */
	/* For GW_SOURCE_KERNEL_LOG, GW_SOURCE_NVML and GW_SOURCE_ERROR_LOG: 0 it is listened to, or why not:
	 * GW_ENOTUSED switched off, or (NVML) the kernel log is better; -EPERM, -EACCES not allowed; -EXDEV
	 * the log has pids of another pid namespace; -ENOENT, -EOPNOTSUPP it is not there; GW_EDRIVER. */
	int32_t source_error[GW_SOURCES];
	struct gw_exit last_exit; /* how the last worker ended; end is GW_END_UNKNOWN if none did */
};

/* One worker's replacement, for gw_pool_recovery(). */
struct gw_recovery {
	uint64_t number;   /* from 0, in the order in which they began */
	uint32_t complete; /* 1: the old process is gone, and the new one is ready */
	uint32_t standby;  /* enum gw_standby: how far the new one had been brought up in advance */
	int32_t new_pid;   /* -1: there is none yet */
	uint32_t reserved;
	uint64_t fenced_ns; /* from here on nothing of the old process counts */
	uint64_t ready_ns;  /* the new one could take tasks, or GW_UNKNOWN */
	/* When each source spoke, or GW_UNKNOWN; the first is exit.source. Indexed by enum gw_source. */
	uint64_t spoke_ns[GW_SOURCES];
	struct gw_exit exit;
};

/* How many of the last recoveries are kept. */
#define GW_RECOVERIES_KEPT 64

/*
 * Recovery NUMBER, from 0 to gw_pool_stat.recoveries - 1, of which the last GW_RECOVERIES_KEPT are kept.
 * Never blocks. Returns 0; -ENOENT there was none yet, or it is no longer kept; GW_EFORKED.
 */
GW_PUBLIC int gw_pool_recovery(struct gw_pool *pool, uint64_t number,
			       struct gw_recovery *ret_recovery);

/* Never blocks. Returns 0 or GW_EFORKED. */
GW_PUBLIC int gw_pool_stat(struct gw_pool *pool, struct gw_pool_stat *ret_stat);

/* One worker of a pool, as the ward reported it last. */
struct gw_worker_info {
	int32_t pid;	      /* -1 while there is no ready process */
	int32_t device;	      /* -1 in a pool without devices */
	uint32_t incarnation; /* how many processes this slot has had before, from 0 */
	uint32_t in_flight;   /* tasks handed to it */
};

/* Never blocks. SLOT counts from 0. Returns 0, -ENOENT past the last slot, or GW_EFORKED. */
GW_PUBLIC int gw_pool_worker(struct gw_pool *pool, uint32_t slot, struct gw_worker_info *ret_info);

/*
 * The surviving state of the pool, as the ward reported it last, of all devices, in no particular order.
 * RET_INFOS has room for N, may be NULL if N is 0; its first element's `size` is set by the caller.
 *
 * Runs in: host, any thread; never blocks.
 * Returns how many pieces there are, which can be more than N; -EINVAL or GW_EFORKED.
 * Source: a table in memory that host and ward share.
 */
GW_PUBLIC int gw_pool_states(struct gw_pool *pool, struct gw_state_info *ret_infos, uint32_t n);

/* ---------------------------------------------------------------------------------------------- */
/* Tasks                                                                                          */
/* ---------------------------------------------------------------------------------------------- */

struct gw_task_options {
	size_t size; /* sizeof(struct gw_task_options) */
	uint64_t input_bytes;
	uint64_t output_bytes; /* room for the result */
	uint64_t deadline_ns;  /* from the start of an attempt; 0 = the pool's */
	int32_t device; /* a device of the pool or GW_ANY_DEVICE. GW_OPTIONS() leaves 0: device 0 is
				  * meant only if set_device is true */
	bool set_device;       /* use `device` */
	uint32_t max_attempts; /* 0 = the pool's */
	void *user;	       /* for the host: gw_task_user() returns it */
};

/*
 * Makes a task for FUNCTION. Its input lies in memory that every worker can read: fill it at
 * gw_task_input() and then submit, with no copy. OPTIONS may be NULL: all defaults.
 *
 * Owns: the caller owns *RET_TASK and ends it with gw_task_free().
 * Returns 0; -EINVAL; GW_ENOFUNCTION (the message lists what there is); -EMSGSIZE larger than the
 *   pool's limit for one task; GW_ELIMIT no room beside the tasks that live; -ENODEV; -ENOMEM;
 *   GW_EFORKED; GW_EWARDLOST; GW_EPOOLFAILED.
 */
GW_PUBLIC int gw_task_new(struct gw_pool *pool, const char *function,
			  const struct gw_task_options *options, struct gw_task **ret_task,
			  struct gw_error *ret_error);

/* The task's input, writable until the task is submitted; NULL where input_bytes is 0. */
GW_PUBLIC void *gw_task_input(struct gw_task *task);

/*
 * Queues the task. Never blocks. From here the input must not be written. A task runs at least once
 * (again after a crash of its worker) and ends exactly once.
 * Returns 0, -EALREADY if it was submitted before, GW_EFORKED, GW_EWARDLOST or GW_EPOOLFAILED.
 */
GW_PUBLIC int gw_task_submit(struct gw_task *task, struct gw_error *ret_error);

/* gw_task_new(), a copy of INPUT (options->input_bytes bytes) and gw_task_submit() in one call. */
GW_PUBLIC int gw_task_start(struct gw_pool *pool, const char *function, const void *input,
			    const struct gw_task_options *options, struct gw_task **ret_task,
			    struct gw_error *ret_error);

/* How a task ended. */
enum gw_outcome_kind {
	GW_PENDING = 0, /* not ended yet */
	GW_DONE = 1,	/* the function returned 0 */
	GW_FAILED = 2,	/* the function returned something else; the worker lives on */
	GW_POISON =
		3, /* every attempt killed its worker: gw_task_attempt() tells each one's story */
	GW_CANCELLED = 4,
	GW_LOST = 5, /* no worker is left to run it: the ward died or the pool failed */
};

struct gw_outcome {
	uint32_t kind;	   /* enum gw_outcome_kind */
	int32_t value;	   /* GW_DONE and GW_FAILED: what the function returned */
	uint32_t attempts; /* attempts that killed their worker */
	int32_t device;	   /* where it ended, or -1 */
	const void *
		output; /* the result: belongs to the task, valid until gw_task_free(). It was written by
				* a worker: check it before you rely on it */
	uint64_t output_bytes; /* at most the room that was asked for */
	uint64_t
		started_ns; /* the worker began the last attempt, by the worker's word; or GW_UNKNOWN */
	uint64_t ended_ns; /* the worker ended it, by the worker's word; or GW_UNKNOWN */
	char message
		[160]; /* the function's message, the last death's story, or why the task was lost */
};

/* Takes in news without blocking. Returns 1 and *RET_OUTCOME when the task has ended, 0 when not, or
 * a negative code. */
GW_PUBLIC int gw_task_poll(struct gw_task *task, struct gw_outcome *ret_outcome,
			   struct gw_error *ret_error);

/*
 * Waits until the task has ended, for at most TIMEOUT_NS (GW_FOREVER allowed).
 * Returns 1 and *RET_OUTCOME (which may be NULL), 0 when the time ran out, or -EINVAL for a task that
 * was never submitted, GW_EFORKED. After the ward's death the outcome is GW_LOST.
 */
GW_PUBLIC int gw_task_wait(struct gw_task *task, uint64_t timeout_ns,
			   struct gw_outcome *ret_outcome, struct gw_error *ret_error);

/*
 * Ends a task that is not wanted any more. A queued one never runs. One that runs already is killed
 * with its worker if KILL is true (other tasks of that worker run again elsewhere), else left to end.
 * Returns 1 when it is cancelled, 0 when it had ended, or runs and KILL is false, or a negative code.
 */
GW_PUBLIC int gw_task_cancel(struct gw_task *task, bool kill, struct gw_error *ret_error);

/* The story of attempt NUMBER (from 0) that killed its worker. Returns 0, or -ENOENT. */
GW_PUBLIC int gw_task_attempt(struct gw_task *task, uint32_t number, struct gw_exit *ret_exit);

/* What the options said in `user`. */
GW_PUBLIC void *gw_task_user(const struct gw_task *task);

/* Lets go of a task, its input and its output. One that is under way is cancelled without a kill and
 * its memory is kept until the worker has let go of it. NULL is fine. */
GW_PUBLIC void gw_task_free(struct gw_task *task);

/* ---------------------------------------------------------------------------------------------- */
/* What the numbers mean                                                                          */
/* ---------------------------------------------------------------------------------------------- */

/* What a CUDA result means for the process that got it. */
enum gw_fault_class {
	GW_FAULT_NONE = 0,	/* no failure: 0, 600 NOT_READY, 909 TIMEOUT */
	GW_FAULT_CALLER = 1,	/* the caller's mistake: the task fails, the worker lives */
	GW_FAULT_RESOURCES = 2, /* out of memory and the like: the process is fine */
	GW_FAULT_POISONED = 3,	/* only a new process works */
	GW_FAULT_DEVICE =
		4, /* the device is suspect: replace the process once, then look at the GPU */
	GW_FAULT_NODE = 5, /* no retry helps: driver or node must be put right */
	GW_FAULT_MPS = 6,  /* the MPS server or another client failed */
};

/* The class of a CUresult or cudaError_t. Source: table in src/gpu/faults.c. */
GW_PUBLIC enum gw_fault_class gw_cuda_class(int result);

/* The name, such as "CUDA_ERROR_ILLEGAL_ADDRESS", or NULL for a number that is not known. Static. */
GW_PUBLIC const char *gw_cuda_name(int result);

/* What it means and what to do, in one sentence for people; never NULL. Static. */
GW_PUBLIC const char *gw_cuda_text(int result);

#ifdef __cplusplus
}
#endif

#endif
