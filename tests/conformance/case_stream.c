/* SPDX-License-Identifier: MIT */
/* Streams, events, and a kernel that does not end. Runs in: see suite.h. */
#include <signal.h>
#include <unistd.h>

#include "suite.h"

static void streams(const void *argument)
{
	struct session session;
	struct cuda_stream *stream = NULL;
	uint64_t n = 2000000; /* ns */
	void *busy[] = {&n};

	(void)argument;
	session_begin(&session);
	fact("null", CU(cuStreamCreate, NULL, 0));
	fact("bad_flags", CU(cuStreamCreate, &stream, 0x70));
	fact("create", CU(cuStreamCreate, &stream, CUDA_STREAM_NON_BLOCKING));
	fact("query_idle", CU(cuStreamQuery, stream));
	fact("query_default", CU(cuStreamQuery, NULL));
	fact("launch", session_launch(&session, "busy", stream, busy));
	fact("sync", CU(cuStreamSynchronize, stream));
	fact("query_done", CU(cuStreamQuery, stream));
	fact("destroy_busy_launch", session_launch(&session, "busy", stream, busy));
	fact("destroy_busy", CU(cuStreamDestroy_v2, stream));
	fact("destroy_null", CU(cuStreamDestroy_v2, NULL));
	fact("sync_default", CU(cuStreamSynchronize, NULL));
	fact("sync_context", CU(cuCtxSynchronize));
}

static void events(const void *argument)
{
	struct session session;
	struct cuda_event *start = NULL;
	struct cuda_event *end = NULL;
	struct cuda_event *untimed = NULL;
	uint64_t ns = 200000000;
	void *busy[] = {&ns};
	float ms = -1.0F;

	(void)argument;
	session_begin(&session);
	fact("null", CU(cuEventCreate, NULL, 0));
	fact("bad_flags", CU(cuEventCreate, &start, 0x70));
	fact("interprocess_alone", CU(cuEventCreate, &start, CUDA_EVENT_INTERPROCESS));
	fact("create", CU(cuEventCreate, &start, 0));
	fact("create_end", CU(cuEventCreate, &end, CUDA_EVENT_BLOCKING_SYNC));
	fact("create_untimed", CU(cuEventCreate, &untimed, CUDA_EVENT_DISABLE_TIMING));
	fact("query_unrecorded", CU(cuEventQuery, start));
	fact("sync_unrecorded", CU(cuEventSynchronize, start));
	fact("elapsed_unrecorded", CU(cuEventElapsedTime, &ms, start, end));
	fact("record", CU(cuEventRecord, start, NULL));
	(void)session_launch(&session, "busy", NULL, busy);
	fact("record_end", CU(cuEventRecord, end, NULL));
	fact("query_not_ready", CU(cuEventQuery, end));
	fact("elapsed_not_ready", CU(cuEventElapsedTime, &ms, start, end));
	fact("sync", CU(cuEventSynchronize, end));
	fact("query_ready", CU(cuEventQuery, end));
	fact("elapsed", CU(cuEventElapsedTime, &ms, start, end));
	fact_yes("elapsed_is_that_of_the_kernel", ms >= 199.0F && ms < 2000.0F);
	fact("record_untimed", CU(cuEventRecord, untimed, NULL));
	(void)CU(cuEventSynchronize, untimed);
	fact("elapsed_untimed", CU(cuEventElapsedTime, &ms, start, untimed));
	fact("elapsed_null", CU(cuEventElapsedTime, NULL, start, end));
	fact("query_null", CU(cuEventQuery, NULL));
	fact("record_null", CU(cuEventRecord, NULL, NULL));
	fact("destroy", CU(cuEventDestroy_v2, start));
	fact("destroy_null", CU(cuEventDestroy_v2, NULL));
}

static int launch_one(struct cuda_function *function, struct cuda_stream *stream)
{
	return CU(cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
}

/*
 * A kernel that runs until the host writes a word that both see. The other kernel is asked for before:
 * case `order` does it later.
 */
static void spinning(const void *argument)
{
	struct session session;
	struct cuda_function *nop;
	struct cuda_stream *stream = NULL;
	struct cuda_stream *other = NULL;
	uint64_t stop = 0;
	void *word = NULL;
	void *parameters[] = {&stop};

	(void)argument;
	session_begin(&session);
	nop = session_function(&session, "nop");
	(void)CU(cuMemAllocHost_v2, &word, 4096);
	*(volatile uint32_t *)word = 0;
	(void)CU(cuMemHostGetDevicePointer_v2, &stop, word, 0);
	(void)CU(cuStreamCreate, &stream, CUDA_STREAM_NON_BLOCKING);
	(void)CU(cuStreamCreate, &other, CUDA_STREAM_NON_BLOCKING);
	fact("launch", session_launch(&session, "spin", stream, parameters));
	fact("query", CU(cuStreamQuery, stream));
	fact("other_launch", launch_one(nop, other));
	fact("other_sync", CU(cuStreamSynchronize, other));
	fact("query_other", CU(cuStreamQuery, other));
	*(volatile uint32_t *)word = 1;
	fact("sync", CU(cuStreamSynchronize, stream));
	fact("query_done", CU(cuStreamQuery, stream));
}

static void spin_for_ever(int socket, const void *argument)
{
	struct session session;
	uint64_t stop = 0;
	void *parameters[] = {&stop};

	(void)argument;
	session_begin(&session);
	(void)CU(cuMemAlloc_v2, &stop, 1024 * MIB);
	(void)CU(cuMemsetD8_v2, stop, 0, 4096);
	(void)session_launch(&session, "spin", NULL, parameters);
	suite_send(socket, 1, -1);
	(void)CU(cuCtxSynchronize);
	fact_text("returned", "by itself");
}

static void good_citizen(int socket, const void *argument)
{
	struct session session;

	(void)argument;
	session_begin(&session);
	suite_send(socket, 1, -1);
	(void)suite_receive(socket, NULL);
	fact("other_launch", session_launch(&session, "nop", NULL, NULL));
	fact("other_sync", CU(cuCtxSynchronize));
	suite_send(socket, 1, -1);
}

static void killed_while_spinning(const void *argument)
{
	struct suite_gpu before;
	struct suite_log log;
	struct role spinner;
	struct role other;

	(void)argument;
	suite_log_open(&log);
	role_start(&other, good_citizen, NULL);
	(void)suite_receive(other.socket, NULL);
	suite_ask(&before);
	role_start(&spinner, spin_for_ever, NULL);
	(void)suite_receive(spinner.socket, NULL);
	suite_send(other.socket, 1, -1);
	(void)suite_receive(other.socket, NULL);
	role_kill(&spinner);
	fact_text("memory", "%s", suite_memory_state(before.used_bytes, 1024 * MIB));
	suite_log_facts(&log, spinner.pid);
	role_end(&other, "other_ended");
}

static void terminated_while_spinning(const void *argument)
{
	struct role spinner;

	(void)argument;
	role_start(&spinner, spin_for_ever, NULL);
	(void)suite_receive(spinner.socket, NULL);
	(void)kill(spinner.pid, SIGTERM);
	role_end(&spinner, "ended");
}

static void *address_of_word(struct session *session, uint64_t *ret_device)
{
	void *word = NULL;

	(void)session;
	(void)CU(cuMemAllocHost_v2, &word, 4096);
	(void)CU(cuMemHostGetDevicePointer_v2, ret_device, word, 0);
	return word;
}

/*
 * Which streams wait for which: a kernel in the default stream and in blocking ones. The other kernel is
 * asked for while the first one runs, and is then loaded behind it, as was seen on hardware.
 */
static void order(const void *argument)
{
	struct session session;
	struct cuda_stream *blocking = NULL;
	struct cuda_stream *free_running = NULL;
	uint64_t stop = 0;
	void *parameters[] = {&stop};
	volatile uint32_t *word;

	(void)argument;
	session_begin(&session);
	(void)CU(cuStreamCreate, &blocking, 0);
	(void)CU(cuStreamCreate, &free_running, CUDA_STREAM_NON_BLOCKING);
	word = address_of_word(&session, &stop);
	*word = 0;
	(void)session_launch(&session, "spin", NULL, parameters);
	(void)session_launch(&session, "nop", blocking, NULL);
	(void)session_launch(&session, "nop", free_running, NULL);
	/* What does not wait for the spinning kernel is done soon. */
	for (int i = 0; i < 10 && CU(cuStreamQuery, free_running) != 0; i++)
		suite_sleep_ms(20);
	fact("default_spins", CU(cuStreamQuery, NULL));
	fact("blocking_waits", CU(cuStreamQuery, blocking));
	fact("non_blocking_waits", CU(cuStreamQuery, free_running));
	*word = 1;
	fact("sync", CU(cuCtxSynchronize));
	fact("blocking_done", CU(cuStreamQuery, blocking));
}

const struct suite_case cases_stream[] = {
	{"stream", streams, NULL},
	{"event", events, NULL},
	{"spin", spinning, NULL},
	{"spin_killed", killed_while_spinning, NULL},
	{"spin_terminated", terminated_while_spinning, NULL},
	{"order", order, NULL},
	{NULL, NULL, NULL},
};
