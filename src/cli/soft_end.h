/* SPDX-License-Identifier: MIT */
/*
 * The end of a program on an emulated GPU: what it leaves behind is waited for, since it still uses the machine.
 *
 *	is left			on a machine of our own		on one that stays
 *	a ward, any orphan	waited for			waited for
 *	a keeper of it		ended: its memory goes		lives on
 *	another's keeper	lives on			lives on
 *
 * Runs in: command line, which its program's orphans fall to (PR_SET_CHILD_SUBREAPER). Read next: soft.h.
 */
#ifndef GPUWARD_CLI_SOFT_END_H
#define GPUWARD_CLI_SOFT_END_H

#include <sys/types.h>

/*
 * Reaps what became this process's child because its parent ended, three seconds at most: the ward of a drill that
 * was interrupted, say, which is ending its workers. SIGNAL_FD tells of SIGCHLD. FOLDER is the machine's if it ends
 * now, else "". HELPER is a child that is none of the program's, or -1.
 */
void soft_wait_for_orphans(int signal_fd, const char *folder, pid_t helper);

#endif
