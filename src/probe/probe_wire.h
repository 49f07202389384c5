/* SPDX-License-Identifier: MIT */
/*
 * What passes between the probe and the process that started it, over a SOCK_SEQPACKET socket.
 *
 * Runs in: probe, ward and command line. Every message is one struct of fixed size; a reply has exactly
 * the size that its kind says. Both sides take a message in by one checking function, which copies it:
 * texts end with a zero byte, counts are within their arrays, enumerations are known.
 *
 *	request   probe_request                      kind, device, ticket
 *	reply     probe_reply up to its body's end   the same kind and ticket; code 0 or an error
 *	event     probe_reply of kind PROBE_XID      ticket 0, at any time after a PROBE_WATCH
 *
 * Both sides come from the same build; `layout` is checked all the same, since a library can be
 * updated while a program runs. An amount that is not known is GW_UNKNOWN.
 * Read next: probe.c answers, client.c asks.
 */
#ifndef GPUWARD_PROBE_PROBE_WIRE_H
#define GPUWARD_PROBE_PROBE_WIRE_H

#include <gpuward.h>
#include <stddef.h>
#include <stdint.h>

#define PROBE_SOCKET	     3		 /* the probe's descriptor, inherited at exec */
#define PROBE_MAGIC	     0x65627270U /* "prbe" */
#define PROBE_LAYOUT	     1U
#define PROBE_PROCESSES_MAX  512U
#define PROBE_DEVICES_MAX    256U
#define PROBE_DEVICE_UNKNOWN UINT32_MAX

enum probe_kind {
	PROBE_DRIVER = 1,    /* versions, number of devices */
	PROBE_DEVICE = 2,    /* what a device is */
	PROBE_MEMORY = 3,    /* its memory */
	PROBE_PROCESSES = 4, /* who uses it */
	PROBE_RECOVERY = 5,  /* what NVML says must be done about it */
	PROBE_WATCH = 6,     /* from now on, send events; no body */
	PROBE_XID = 7,	     /* an event, never asked for */
};

struct probe_request {
	uint32_t magic;
	uint16_t layout;
	uint16_t kind;	 /* enum probe_kind, but not PROBE_XID */
	uint32_t device; /* index in NVML's order; 0 where the kind has no device */
	uint32_t reserved;
	uint64_t ticket; /* comes back in the reply; never 0 */
};

struct probe_driver {
	char driver[80]; /* "580.159.04", or empty where it is not known */
	char nvml[80];
	int32_t cuda; /* 1000 * major + 10 * minor, or -1 */
	uint32_t device_count;
};

struct probe_device {
	uint32_t index;
	int32_t minor; /* N of /dev/nvidiaN, or -1 */
	uint64_t total_bytes;
	char uuid[96];
	char name[96];
	char pci[32]; /* "00000000:00:06.0" */
};

/* `used` leaves reserved memory out where `reserved` is known, and counts it where it is not. */
struct probe_memory {
	uint64_t total_bytes;
	uint64_t free_bytes;
	uint64_t used_bytes;
	uint64_t reserved_bytes;
};

struct probe_process {
	uint32_t pid; /* as the probe's pid namespace sees it; a label: the process can be gone */
	uint32_t reserved;
	uint64_t used_bytes;
};

struct probe_processes {
	uint32_t count; /* entries that are filled */
	uint32_t total; /* how many there are: more than `count` where they do not fit */
	struct probe_process list[PROBE_PROCESSES_MAX];
};

/* What NVML asks for; its own numbers. */
enum probe_action {
	PROBE_ACTION_NONE = 0,
	PROBE_ACTION_GPU_RESET = 1,
	PROBE_ACTION_NODE_REBOOT = 2,
	PROBE_ACTION_DRAIN_P2P = 3,
	PROBE_ACTION_DRAIN_AND_RESET = 4,
	PROBE_ACTION_UNKNOWN = UINT32_MAX,
};

struct probe_recovery {
	uint32_t action; /* enum probe_action */
	uint32_t reserved;
};

/* An Xid as NVML reports it, which is without a pid. If the header's code is not 0, events have ended:
 * the message says why, and the other fields are 0. */
struct probe_xid {
	uint32_t device; /* index in NVML's order, or PROBE_DEVICE_UNKNOWN */
	uint32_t xid;
	uint64_t at_ns;	  /* CLOCK_MONOTONIC, when NVML gave it */
	uint64_t dropped; /* events since the last one that did not fit in the socket */
	char pci[32];
};

struct probe_reply {
	uint32_t magic;
	uint16_t layout;
	uint16_t kind;
	uint64_t ticket;
	struct gw_error error; /* code 0 = the body counts; else it is all zero */
	union {
		struct probe_driver driver;
		struct probe_device device;
		struct probe_memory memory;
		struct probe_processes processes;
		struct probe_recovery recovery;
		struct probe_xid xid;
	};
};

_Static_assert(sizeof(struct probe_request) == 24, "layout of a request");
_Static_assert(sizeof(struct gw_error) == 256, "layout of an error");
_Static_assert(offsetof(struct probe_reply, error) == 16, "layout of a reply");
_Static_assert(offsetof(struct probe_reply, driver) == 272, "layout of a reply");
_Static_assert(sizeof(struct probe_driver) == 168, "layout of a reply");
_Static_assert(sizeof(struct probe_device) == 240, "layout of a reply");
_Static_assert(sizeof(struct probe_memory) == 32, "layout of a reply");
_Static_assert(sizeof(struct probe_processes) == 8 + 16 * PROBE_PROCESSES_MAX, "layout");
_Static_assert(sizeof(struct probe_xid) == 56, "layout of an event");

/* Bytes of a reply of KIND, or 0 for a kind that is not known. */
size_t probe_reply_bytes(uint32_t kind);

/* Take a message in. Return 0, GW_EVERSION for another layout, or GW_EPROTOCOL. */
int probe_take_request(const void *message, size_t bytes, struct probe_request *ret_request);
int probe_take_reply(const void *message, size_t bytes, struct probe_reply *ret_reply);

#endif
