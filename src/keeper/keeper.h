/* SPDX-License-Identifier: MIT */
/*
 * The keeper: a small process that holds the surviving device memory of one name beyond its pool, so that the next
 * pool of that name finds it, after a restart of the host too.
 *
 * Runs in: keeper. One thread, one loop; no callback waits. It has no GPU driver: a descriptor that is held keeps
 * the memory alive. It lives in a session of its own, and ends by itself when it holds nothing and nobody is
 * connected, or when its socket is taken away (the end of a login takes the folder away).
 *
 *	keeper.c	its place (lock, socket), who may come in, when it ends
 *	guest.c		one connection
 *	hold.c		the pieces
 *
 * One ward at a time: a second one is refused, unless the host of the first is dead, so that it is ending. It is
 * let in only when the one before is certainly gone, and with it every worker that could still be writing mutable
 * state:
 *
 *	ward A and its worker		keeper			ward B
 *	are killed together
 *	(kernels still write)		A's pidfd: waits	HELLO
 *					worker's pidfd: waits
 *	are gone					->	WELCOME, pieces
 *
 * All that A sent is read before B is let in, so B finds what A's workers were promised.
 * Read next: ../common/keep_wire.h, ../ward/keep.h.
 */
#ifndef GPUWARD_KEEPER_KEEPER_H
#define GPUWARD_KEEPER_KEEPER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "common/keep_wire.h"
#include "keeper/hold.h"
#include "linux/loop.h"

#define KEEPER_GUESTS_MAX 32

struct keeper;

/* One connection. */
struct guest {
	struct keeper *keeper;
	struct loop_source source;
	int socket;
	uint32_t number; /* in keeper->guests */
	uint32_t role;	 /* enum keep_role; 0: it has not said HELLO */
	int32_t pid;
	int pidfd;    /* a ward's */
	int host;     /* the pidfd of its host: without it the ward is ending */
	bool sending; /* pieces, from next_place on */
	bool ended;   /* it closes when all is sent */
	uint32_t next_place;
};

struct keeper {
	struct loop loop;
	char name[GW_NAME_MAX];
	int folder;
	int lock_fd;
	struct stat place; /* of its socket's file */
	int listen_fd;
	int signal_fd;
	int notify_fd;
	struct loop_source listen_source;
	struct loop_source signal_source;
	struct loop_source notify_source;
	struct loop_source past_source;	 /* the last ward's pidfd, while the next one waits */
	struct loop_source owner_source; /* what tells of a worker's end, likewise */
	struct loop_timer for_timer;
	struct loop_timer next_timer; /* how long `next` waits */
	struct loop_timer retry_timer;
	struct hold hold;
	struct guest *guests[KEEPER_GUESTS_MAX];
	struct guest *user; /* the ward that uses the state, or NULL */
	struct guest *next; /* the ward that waits for the one before, or NULL */
	int past_pidfd;	    /* of the ward that has let go, until it is gone; -1 */
	int32_t past_pid;
	uint64_t for_ns;    /* how long to hold what nobody uses */
	uint64_t unused_ns; /* since when; GW_UNKNOWN: it is used */
	int64_t since_s;    /* used or unused since */
	bool hidden;	    /* its socket is gone: nobody can come any more */
};

/* Holds the state NAME until it ends; the first guest is at KEEP_FIRST_FD. Returns the exit code. */
int keeper_run(const char *name);

/* guest.c: a connection on *SOCKET, which is taken on success. Returns 0, -ENOMEM, -EMFILE: too many. */
int guest_new(struct keeper *keeper, int *socket);
void guest_free(struct guest *guest);
/* Reads all that a ward has left behind. */
void guest_drain(struct guest *guest);
/* Tells why not, or with an error of code 0 that it is done; CLOSE: and lets go of it. */
void guest_answer(struct guest *guest, const struct gw_error *error, bool close);
/* Gives it all pieces. */
void guest_welcome(struct guest *guest);
void guest_send_more(struct guest *guest);

/* keeper.c: GUEST is a ward and wants the state. */
void keeper_enter(struct guest *guest);
/* GUEST has gone, and is freed after this. */
void keeper_leave(struct guest *guest);
/* Lets go of pieces, by the command line's wish. */
void keeper_remove(struct guest *guest, const char *name);
void keeper_hold_for(struct keeper *keeper, uint64_t ns);

#endif
