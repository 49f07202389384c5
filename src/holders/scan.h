/* SPDX-License-Identifier: MIT */
/*
 * The kernel's side of "who holds the GPU": one pass over all processes finds every reference to a GPU's
 * device file, and what is known of each process that has one.
 *
 *	scan_run()         looks, and gives a snapshot: plain data, sorted, with one owner
 *	scan_same_file()   do two descriptors stand for one open file? (kcmp)
 *	scan_unseen_text() what could not be seen, and which privilege would help
 *
 * Runs in: command line and ward's helpers, never in a host's library. Loads no driver, opens no device file,
 * signals nobody, takes nothing away. It can be blocked by the kernel where a process is stuck (a read of
 * /proc/PID/cmdline waits for that process's memory lock), so the looking is done by threads of its own, and one
 * that is stuck is left behind: scan_run() returns when its deadline is over.
 *
 * Devices are matched by their number, never by a path: a container's own node is found, and a file that is
 * merely called nvidia0 is not.
 *
 * Invariant: what is not known is -1, GW_UNKNOWN or NULL, never 0. What could not be looked at is counted in
 * struct scan_unseen: an empty list with nothing unseen means that there is no holder.
 *
 * Everything that came from a process (names, command lines, paths) is raw: it goes to a terminal only through
 * text_printable() of text.h. Read next: look.h for how one process is looked at, device.h for the numbers.
 */
#ifndef GPUWARD_HOLDERS_SCAN_H
#define GPUWARD_HOLDERS_SCAN_H

#include <gpuward.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "holders/cgroup.h"

/* Which device file. `minor` of struct scan_device tells which one of its kind. */
enum scan_device_kind {
	SCAN_DEVICE_UNKNOWN =
		0,	/* some GPU device: seen only by what the process is doing (SCAN_EXITING) */
	SCAN_CONTROL,	/* nvidiactl: RM clients, exported memory */
	SCAN_GPU,	/* nvidiaN; minor = N */
	SCAN_UVM,	/* nvidia-uvm */
	SCAN_UVM_TOOLS, /* nvidia-uvm-tools */
	SCAN_CAPS,	/* nvidia-caps/nvidia-capN: MIG and system capabilities; minor = N */
	SCAN_MODESET,	/* nvidia-modeset */
	SCAN_NVLINK,	/* nvidia-nvlink */
	SCAN_NVSWITCH,	/* nvidia-nvswitchN, nvidia-nvswitchctl (255) */
	SCAN_IMEX_CHANNEL, /* nvidia-caps-imex-channels/channelN */
	SCAN_GDRDRV,	   /* gdrdrv */
	SCAN_DRM, /* dri/cardN, dri/renderDN whose driver is nvidia's; gpu_minor tells which GPU */
	SCAN_DMABUF, /* a dma-buf that nvidia's driver exports */
	SCAN_DXG,    /* dxg, of WSL */
};

struct scan_device {
	enum scan_device_kind kind;
	int32_t minor; /* -1 where there is none */
	int32_t gpu_minor; /* N of the nvidiaN that it belongs to; -1 if it is of all GPUs, or not known */
};

/* How a reference is held. */
enum scan_held {
	SCAN_FD = 0,	   /* a descriptor in the process's table */
	SCAN_FD_OF_THREAD, /* a descriptor in a table that not all threads share: `tid` has it */
	SCAN_MAPPING,	   /* mapped memory; `count` mappings */
	SCAN_IN_FLIGHT, /* sent through a unix socket and not received: `fd` is the receiving socket */
	SCAN_IO_URING, /* registered with the io_uring `fd` */
	SCAN_EXITING,  /* the process ends inside nvidia's driver: its tables are empty already */
	SCAN_HELD_KINDS,
};

struct scan_reference {
	uint32_t process; /* index into scan.processes */
	int32_t tid;	  /* 0: what all threads of the process share */
	enum scan_held held;
	int32_t fd; /* -1 where no descriptor stands for it */
	struct scan_device device;
	uint32_t
		count; /* of one kind and place: mappings, descriptors in flight or in a ring; 1 for a descriptor */
	/* The node that was opened is not the one that this system has under /dev: a container's own, or a copy. */
	bool other_node;
	uint64_t bytes; /* mappings: address space; dma-buf: its size; else GW_UNKNOWN */
};

/* Signal sets as the kernel prints them: bit N - 1 is signal N. All GW_UNKNOWN where unknown. */
struct scan_signals {
	uint64_t pending_thread; /* SigPnd of the leader */
	uint64_t pending;	 /* ShdPnd */
	uint64_t blocked;
	uint64_t ignored;
	uint64_t caught;
};

#define SCAN_NSPID_MAX 8

/* Flags of struct scan_process. */
enum scan_process_flag {
	SCAN_PF_EXITING = 1 << 0, /* the kernel is taking it down */
	SCAN_PF_KTHREAD = 1 << 1,
	SCAN_ZOMBIE_LEADER = 1 << 2, /* state Z, but other threads live */
	SCAN_OTHER_PID_NAMESPACE = 1 << 3,
	SCAN_OTHER_MOUNT_NAMESPACE = 1 << 4,
	SCAN_FROZEN = 1 << 5,	 /* its control group is frozen */
	SCAN_FROZEN_V1 = 1 << 6, /* by the v1 freezer: SIGKILL waits until it is thawed */
	SCAN_DETAILS_LATE =
		1
		<< 7, /* reading its memory blocked: command line, environment, maps are unknown */
	SCAN_MAPS_DENIED = 1 << 8,
	SCAN_ENVIRONMENT_DENIED = 1 << 9,
};

/* A process that holds a reference, or may. */
struct scan_process {
	/* Identity: (pid, start_ticks) of scan.boot_id. Never send a signal to a bare pid. */
	int32_t pid;
	uint64_t start_ticks; /* field 22 of stat: clock ticks after the boot */
	int32_t ppid;
	int32_t pgid;
	int32_t sid;
	int32_t tty; /* device number of the controlling terminal; 0 none */
	int32_t uid; /* real; -1 unknown */
	int32_t effective_uid;
	char comm[16];	    /* raw */
	char state;	    /* R S D Z T t X I; '?' unknown */
	uint32_t flags;	    /* enum scan_process_flag */
	int32_t threads;    /* living ones and the leader */
	int32_t tracer_pid; /* 0 none */
	int32_t nspid
		[SCAN_NSPID_MAX]; /* pids from this /proc's namespace inwards; nspid[0] is pid */
	uint32_t nspid_count;	  /* 0 unknown */
	uint64_t pid_namespace;	  /* inode numbers; GW_UNKNOWN */
	uint64_t mount_namespace;
	struct scan_signals signals;
	uint64_t rss_bytes;
	uint64_t pinned_bytes; /* VmPin */
	uint64_t locked_bytes; /* VmLck */
	char wchan[64]; /* where it sleeps in the kernel; "" unknown or running. Of `wchan_tid` */
	int32_t wchan_tid;
	const char *
		stack; /* kernel stack, lines of "[<0>] function+0x.. [module]"; NULL not allowed, or none */
	const char *
		cmdline; /* raw bytes, words end with NUL; NULL unknown. At most SCAN_CMDLINE_MAX */
	uint32_t cmdline_bytes;
	bool cmdline_cut;
	const char *exe;	   /* the link /proc/PID/exe; NULL unknown */
	struct cgroup_place place; /* control groups, container, job; see cgroup.h */
	/* Environment as it was at exec. NULL: not set, or not readable (SCAN_ENVIRONMENT_DENIED). */
	const char *slurm_job_id;
	const char *slurm_step_id;
	const char *pbs_job_id;
	const char *cuda_visible_devices;
	const char *mps_pipe_directory; /* CUDA_MPS_PIPE_DIRECTORY */
	/* Its references: scan.references[first_reference ... + reference_count - 1]. */
	uint32_t first_reference;
	uint32_t reference_count;
};

#define SCAN_CMDLINE_MAX 4096

/* A process that is no holder, but of which one speaks: parent, session or group leader, tracer. */
struct scan_relative {
	int32_t pid;
	int32_t ppid;
	int32_t sid;
	int32_t uid;
	uint64_t start_ticks;
	char comm[16]; /* raw */
	char state;
};

/* What could not be looked at. Every number is of processes unless it says otherwise. */
struct scan_unseen {
	uint32_t denied;   /* descriptors not readable: other users', without CAP_SYS_PTRACE */
	uint32_t vanished; /* ended meanwhile: no loss, for information */
	uint32_t late;	   /* the look at them was stuck in the kernel when the time was over */
	uint32_t failed;   /* any other error; `failed_errno` is the last one */
	int32_t failed_errno;
	uint32_t maps_denied; /* mappings not readable, and no device among the descriptors */
	uint32_t
		maps_unsure; /* mappings whose file could not be identified (no CAP_CHECKPOINT_RESTORE) */
	uint32_t
		sockets_denied; /* sockets with descriptors in flight that may not be looked into */
	uint32_t
		in_flight_hidden; /* descriptors in flight behind others: only the first message can be seen */
	uint32_t rings_busy;	    /* io_urings whose table could not be read */
	uint32_t rings_unreachable; /* io_urings that are mapped but have no descriptor */
	uint32_t
		exiting_unknown; /* processes that are ending, and it cannot be known where in the kernel */
	uint32_t references_dropped; /* over SCAN_REFERENCES_MAX, or no memory */
	int32_t hidepid; /* the mount option of /proc that applies to this process; 0 none, -1 unknown */
	bool foreign_proc; /* /proc is of another pid namespace: sockets cannot be looked into */
	bool needs_ptrace; /* CAP_SYS_PTRACE would show more */
	bool needs_checkpoint; /* CAP_CHECKPOINT_RESTORE (or CAP_SYS_ADMIN) would show more */
};

#define SCAN_REFERENCES_MAX (1U << 20)

/* A snapshot. Zero-initialise, or scan_run() fills it; end with scan_free(). */
struct scan {
	char boot_id[40];  /* "" unknown */
	uint64_t taken_ns; /* CLOCK_MONOTONIC, when the scan began */
	uint64_t took_ns;
	uint64_t ticks_per_second;  /* of start_ticks */
	uint64_t now_ticks;	    /* the time of the scan as start_ticks counts */
	uint64_t pid_namespace;	    /* of this process; GW_UNKNOWN */
	bool pid_namespace_initial; /* there are no processes outside it */
	bool emulated;		    /* the GPUs are emulated ones */
	uint32_t processes_looked_at;
	uint64_t descriptors_looked_at;
	struct scan_process *processes; /* ascending pid */
	uint32_t process_count;
	struct scan_reference *references; /* by process, then as in enum scan_held */
	uint32_t reference_count;
	struct scan_relative *relatives; /* ascending pid; holders are not among them */
	uint32_t relative_count;
	int32_t *denied_pids; /* unseen.denied of them, ascending */
	struct scan_unseen unseen;
	struct arena_chunk *chunks; /* where the texts lie */
};

/* All fields may be 0. */
struct scan_options {
	const char *proc; /* where proc is mounted; NULL "/proc" */
	const char *root; /* before /proc/devices, /dev and /sys for the device numbers; NULL "" */
	uint64_t deadline_ns; /* for the whole scan, from now; 0 = 5 s */
	uint32_t threads;     /* that look at the same time; 0 = one per allowed CPU, at most 16 */
	bool without_maps;    /* do not look at mappings */
	bool without_details; /* only identities and references: no command line, control group, relatives */
};

/*
 * Takes a snapshot. Blocks until it is complete, or until the deadline; what was not seen by then is counted as
 * late. Threads that are stuck in the kernel stay behind, each with a few descriptors of /proc and no lock, until
 * the kernel lets them go.
 * Owns: *RET_SCAN is the caller's: scan_free(). Untouched on failure.
 * Returns 0; -ENOENT no /proc there; -ENOMEM; -EMFILE; -EAGAIN no thread could be started.
 * Source: /proc/PID/{fd,fdinfo,task,maps,map_files,stat,status,cgroup,...}; Linux 5.10 or later.
 */
int scan_run(const struct scan_options *options, struct scan *ret_scan, struct gw_error *ret_error);

/* Ends a snapshot, also one that is all zero. */
void scan_free(struct scan *scan);

/* The holder PID, or NULL. */
const struct scan_process *scan_find(const struct scan *scan, int32_t pid);

/* The relative PID (see struct scan_relative), or NULL: there is no such process, or nobody here is related. */
const struct scan_relative *scan_find_relative(const struct scan *scan, int32_t pid);

/* Was PID there, but its descriptors, or some of them, not readable? */
bool scan_was_denied(const struct scan *scan, int32_t pid);

/*
 * Are A and B the same open file, so that one of them alone keeps everything alive? Both must be descriptors
 * (SCAN_FD, SCAN_FD_OF_THREAD). The processes are checked to be those of the snapshot, before and after.
 * Returns 1 yes; 0 no; -ESRCH one has ended or closed it; -EPERM not allowed; -ENOSYS the kernel has no kcmp, or
 * /proc is of another pid namespace; -EINVAL no descriptor.
 */
int scan_same_file(const struct scan *scan, const struct scan_reference *a,
		   const struct scan_reference *b);

/*
 * An order of open files, for sorting references so that equal ones are neighbours: *RET_ORDER is 0, -1 or 1 for
 * equal, A first, B first. Returns 0 or as scan_same_file().
 */
int scan_compare_files(const struct scan *scan, const struct scan_reference *a,
		       const struct scan_reference *b, int *ret_order);

/*
 * One line on what could not be seen and what would help, in words for people; "" if nothing was left out. TEXT
 * has room for BYTES, cut if need be; 512 is enough. For example:
 * "12 processes of other users are not readable: run with CAP_SYS_PTRACE (root)".
 */
void scan_unseen_text(const struct scan *scan, char *text, size_t bytes);

/* "fd", "thread fd", "mapping", "in flight", "io_uring", "exiting". */
const char *scan_held_name(enum scan_held held);

/* "nvidiactl", "nvidia0", "nvidia-uvm", "nvidia-cap3", "dri/renderD" ... Cut to BYTES; 40 is enough. */
void scan_device_name(const struct scan_device *device, char *text, size_t bytes);

#endif
