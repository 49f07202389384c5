/* SPDX-License-Identifier: MIT */
/*
 * Which line of an Xid 13 has the pid: it depends on whether the process still lives. Runs in: see suite.h.
 */
#include "suite.h"

static void launch_when_told(int socket)
{
	struct session session;
	struct cuda_function *function;
	uint64_t address = 0;
	void *parameters[] = {&address};

	session_begin(&session);
	(void)CU(cuMemAlloc_v2, &address, MIB);
	function = session_function(&session, "fault_misaligned");
	suite_send(socket, 1, -1);
	(void)suite_receive(socket, NULL);
	(void)CU(cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
}

static void fault_and_see(int socket, const void *argument)
{
	(void)argument;
	launch_when_told(socket);
	fact("sync", CU(cuCtxSynchronize));
}

/* Until it is killed. */
static void fault_and_wait(int socket, const void *argument)
{
	(void)argument;
	launch_when_told(socket);
	(void)suite_receive(socket, NULL);
}

static void lives(const void *argument)
{
	struct suite_log log;
	struct role role;

	(void)argument;
	suite_log_open(&log);
	role_start(&role, fault_and_see, NULL);
	(void)suite_receive(role.socket, NULL);
	suite_send(role.socket, 1, -1);
	role_end(&role, "process");
	suite_log_line_facts(&log, role.pid);
}

/* SIGKILL as soon as the kernel log has its first line. */
static void killed(const void *argument)
{
	struct suite_log first;
	struct suite_log log;
	struct role role;

	(void)argument;
	suite_log_open(&first);
	suite_log_open(&log);
	role_start(&role, fault_and_wait, NULL);
	(void)suite_receive(role.socket, NULL);
	suite_send(role.socket, 1, -1);
	suite_log_await(&first);
	role_kill(&role);
	suite_log_line_facts(&log, role.pid);
}

const struct suite_case cases_xid[] = {
	{"xid_lives", lives, NULL},
	{"xid_killed", killed, NULL},
	{NULL, NULL, NULL},
};
