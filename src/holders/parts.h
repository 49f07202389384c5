/* SPDX-License-Identifier: MIT */
/*
 * How the parts of a look are joined: what each of them does with a finding. Only for look.c and the parts.
 *
 * A place is where a reference was found: a descriptor of a table, or what lies behind one (a message in a
 * socket, a slot of an io_uring). Places can lie in each other: a device in flight in a socket that is itself in
 * flight; the outermost descriptor is the one that is told.
 *
 * Runs in: the scan's threads. Read next: look.h.
 */
#ifndef GPUWARD_HOLDERS_PARTS_H
#define GPUWARD_HOLDERS_PARTS_H

#include "holders/look.h"

#define PLACE_DEPTH_MAX 4U

struct place {
	struct scan_reference reference; /* held, tid and fd are set; the device is filled in */
	unsigned int depth;		 /* 0: a descriptor of the process itself */
};

/* Never a network or FUSE server's answer, never an automount. */
#define LOOK_STATX_FLAGS (AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT)

/* fds.c: adds what descriptor NAME of the table FOLDER/fd (open as FDS) stands for. FOLDER also has fdinfo. */
void fds_look_at(struct look *look, int folder, int fds, const char *name,
		 const struct place *place, struct finding *finding);

/* sockets.c: what is in flight behind the socket NAME. */
void sockets_look(struct look *look, int folder, const char *name, const struct place *place,
		  struct finding *finding);

/* rings.c: what is registered with the io_uring NAME. */
void rings_look(struct look *look, int folder, const char *name, const struct place *place,
		struct finding *finding);

/* threads.c: tables that are not the process's own. */
void threads_look(struct look *look, struct finding *finding);

/* exiting.c: a process whose tables are empty. Adds a reference if it is in nvidia's driver. */
void exiting_look(struct look *look, struct finding *finding);
/* Where it sleeps, into the process of FINDING. */
void exiting_read_kernel_place(struct look *look, struct finding *finding);
/* Does this text of /proc/PID/stack stand in nvidia's driver? And this name of a function? */
bool exiting_is_driver_stack(const char *stack);
bool exiting_is_driver_function(const char *name);

/* maps.c: mapped devices. */
void maps_look(struct look *look, struct finding *finding);

/* memory.c: command line and environment. */
void memory_read(struct look *look, struct finding *finding);

/* groups.c: control groups, container, job, freezer. */
void groups_read(struct look *look, struct finding *finding);

/* Adds REFERENCE to an equal one of FINDING (kind, tid, fd, device, node), or as a new one. */
void finding_count(struct look *look, struct finding *finding,
		   const struct scan_reference *reference);

/* fdinfo NAME of FOLDER in look->text. Returns the bytes or -errno. */
ssize_t look_read_fdinfo(struct look *look, int folder, const char *name);

/* The number behind KEY ("scm_fds:") at the beginning of a line of TEXT. */
bool look_find_number(const char *text, const char *key, uint64_t *ret_number);

#endif
