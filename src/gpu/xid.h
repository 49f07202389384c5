/* SPDX-License-Identifier: MIT */
/*
 * Reads Xid reports of the NVIDIA kernel driver out of lines of the kernel log.
 *
 * Runs in: ward and command line. Pure text: opens nothing, allocates nothing, keeps no pointers into
 * what it was given. The text is not trusted: it can be cut anywhere, mixed with another line, and it
 * contains the name that a process gave itself.
 *
 * Invariant: a field counts only where its bit is set in `have`; what is not known is never 0. A
 * number that stands at the very end of a text may have been cut, so it does not count: a wrong pid is
 * worse than none.
 *
 * The line forms are those of drivers 470 to 580; the pid is one of the initial pid namespace.
 * Read next: xid.c, faults.h for what the numbers mean.
 */
#ifndef GPUWARD_GPU_XID_H
#define GPUWARD_GPU_XID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bits of xid_line.have. */
enum xid_have {
	XID_HAVE_NUMBER = 1 << 0,
	XID_HAVE_PCI = 1 << 1,
	XID_HAVE_PID = 1 << 2,
	XID_HAVE_NAME = 1 << 3,
	XID_HAVE_CHANNEL = 1 << 4,
	XID_HAVE_SEQUENCE = 1 << 5, /* only from a record */
	XID_HAVE_TIME = 1 << 6,	    /* only from a record */
	XID_CUT = 1 << 7,	    /* the text ended in the middle of the report */
};

/* Where a device sits on the PCI bus. */
struct xid_pci {
	uint32_t domain;
	uint8_t bus;
	uint8_t device;
};

/* One report. */
struct xid_line {
	uint32_t have; /* enum xid_have */
	uint32_t number;
	int32_t pid; /* in the initial pid namespace */
	uint32_t channel;
	uint64_t sequence; /* of the record */
	uint64_t at_ns; /* the kernel's clock of the record: CLOCK_MONOTONIC, but for its drift */
	struct xid_pci pci;
	char name[16];	/* what the process calls itself: a label, never a key */
	char rest[200]; /* the text behind the fields above; can be empty */
};

/* A record as /dev/kmsg gives it: "prio,seq,usec,flags;text", then lines that begin with a space. */
struct kmsg_record {
	uint32_t level;	   /* 0 to 7 */
	uint32_t facility; /* 0 is the kernel; a program that wrote to /dev/kmsg has another one */
	uint64_t sequence;
	uint64_t at_ns;
	const char *text; /* inside the record, not terminated */
	size_t text_bytes;
};

/* Takes a record apart. Returns 0, or -EBADMSG. */
int kmsg_parse(const char *record, size_t bytes, struct kmsg_record *ret_record);

/*
 * Finds the first Xid report in TEXT, which is a bare line as dmesg or a journal shows it. Call it
 * again with what is left, since two reports can be mixed in one line.
 * Returns how many bytes were used up, and *RET_LINE; 0 when there is no report.
 */
size_t xid_parse(const char *text, size_t bytes, struct xid_line *ret_line);

/* The same for the text of RECORD, which must begin as the driver's lines do, with "NVRM:", and which
 * gives sequence and time. *OFFSET begins as 0 and says where the next call goes on. Returns true and
 * *RET_LINE while there are reports. */
bool xid_parse_record(const struct kmsg_record *record, size_t *offset, struct xid_line *ret_line);

/* Reads "0000:00:06", "00000000:00:06.0" (NVML's form) and the like. Returns bytes used, or 0. */
size_t xid_pci_parse(const char *text, size_t bytes, struct xid_pci *ret_pci);
bool xid_pci_equal(const struct xid_pci *a, const struct xid_pci *b);

/* The action that the text of an Xid 154 names. */
enum xid_recovery {
	XID_RECOVERY_UNKNOWN = 0,
	XID_RECOVERY_NONE,
	XID_RECOVERY_RESET,
	XID_RECOVERY_REBOOT,
	XID_RECOVERY_DRAIN_P2P,
	XID_RECOVERY_DRAIN_AND_RESET,
};
enum xid_recovery xid_recovery(const char *rest);

/* ---------------------------------------------------------------------------------------------- */

#define XID_JOIN_MAX 16

/*
 * Joins the lines of one Xid 13, whose first lines come without a pid (it comes with the last one, which
 * can be an Xid 43), and counts what was lost. All zero is its beginning. One device's lines never join
 * with another's.
 */
struct xid_join {
	struct xid_line held[XID_JOIN_MAX]; /* .have is 0 in a free place */
	uint64_t next_sequence;
	uint64_t lost;	   /* records that were overwritten before they could be read */
	uint64_t overruns; /* times that the log said so (EPIPE) */
	bool started;
};

/* Every record that was read goes through here, Xid or not: gaps in the numbers are counted. */
void xid_join_saw(struct xid_join *join, uint64_t sequence);

/* read() gave EPIPE. The records that are missing show as a gap at the next xid_join_saw(). */
void xid_join_overrun(struct xid_join *join);

/*
 * Takes LINE in. Returns true when *RET_EVENT is to be acted on: at once for a line that stands alone;
 * for an Xid 13 or 43 with a pid it carries time, sequence and text of the first line that was held back.
 */
bool xid_join_feed(struct xid_join *join, const struct xid_line *line, struct xid_line *ret_event);

/* Gives a line whose pid never came once it is older than AGE_NS; call it until it returns false. */
bool xid_join_expire(struct xid_join *join, uint64_t now_ns, uint64_t age_ns,
		     struct xid_line *ret_event);

#endif
