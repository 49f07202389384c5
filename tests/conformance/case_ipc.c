/* SPDX-License-Identifier: MIT */
/* CUDA's own sharing between processes: misuse, data, and who is charged. Runs in: see suite.h. */
#include <string.h>

#include "suite.h"

#define SHARED_BYTES (1024 * MIB)

static void own(const void *argument)
{
	struct cuda_allocation allocation = suite_exportable();
	struct cuda_ipc_memory memory = {0};
	struct cuda_ipc_memory garbage;
	struct session session;
	uint64_t address = 0;
	uint64_t mapped = 0;
	uint64_t other = 0;
	uint64_t handle = 0;

	(void)argument;
	session_begin(&session);
	(void)CU(cuMemAlloc_v2, &address, 4 * MIB);
	fact("get", CU(cuIpcGetMemHandle, &memory, address));
	fact("get_null", CU(cuIpcGetMemHandle, NULL, address));
	fact("get_inside", CU(cuIpcGetMemHandle, &garbage, address + 4096));
	fact("get_bad", CU(cuIpcGetMemHandle, &garbage, 0x12345600));
	fact("get_0", CU(cuIpcGetMemHandle, &garbage, 0));
	(void)CU(cuMemCreate, &handle, 2 * MIB, &allocation, 0);
	(void)suite_map(handle, 2 * MIB, CUDA_ACCESS_READWRITE, &mapped);
	fact("get_mapped", CU(cuIpcGetMemHandle, &garbage, mapped));
	fact("open_own", CU(cuIpcOpenMemHandle_v2, &other, memory, CUDA_IPC_LAZY_PEER_ACCESS));
	fact("open_flags_0", CU(cuIpcOpenMemHandle_v2, &other, memory, 0));
	memset(&garbage, 0x5a, sizeof(garbage));
	fact("open_garbage", CU(cuIpcOpenMemHandle_v2, &other, garbage, CUDA_IPC_LAZY_PEER_ACCESS));
	memset(&garbage, 0, sizeof(garbage));
	fact("open_zero", CU(cuIpcOpenMemHandle_v2, &other, garbage, CUDA_IPC_LAZY_PEER_ACCESS));
	fact("close_unopened", CU(cuIpcCloseMemHandle, address));
	fact("close_bad", CU(cuIpcCloseMemHandle, 0x12345600));
	fact("sync", CU(cuCtxSynchronize));
}

static void send_handle(int socket, const struct cuda_ipc_memory *memory)
{
	uint64_t words[8];

	memcpy(words, memory, sizeof(words));
	for (int i = 0; i < 8; i++)
		suite_send(socket, words[i], -1);
}

static void receive_handle(int socket, struct cuda_ipc_memory *memory)
{
	uint64_t words[8];

	for (int i = 0; i < 8; i++)
		words[i] = suite_receive(socket, NULL);
	memcpy(memory, words, sizeof(words));
}

/* Makes the memory, and frees it when it is told to. */
static void exporter(int socket, const void *argument)
{
	struct cuda_ipc_memory memory = {0};
	struct session session;
	uint64_t address = 0;
	uint32_t word = 0;

	(void)argument;
	session_begin(&session);
	(void)CU(cuMemAlloc_v2, &address, SHARED_BYTES);
	(void)CU(cuMemsetD32_v2, address, 4711, MIB / 4);
	(void)CU(cuMemsetD32_v2, address + SHARED_BYTES - MIB, 4711, MIB / 4);
	(void)CU(cuCtxSynchronize);
	(void)CU(cuIpcGetMemHandle, &memory, address);
	send_handle(socket, &memory);
	if (suite_receive(socket, NULL) != 1)
		return;
	(void)CU(cuMemcpyDtoH_v2, &word, address, 4);
	fact("exporter_sees", word);
	fact("exporter_frees", CU(cuMemFree_v2, address));
	suite_send(socket, 1, -1);
	(void)suite_receive(socket, NULL);
}

static void use_imported(uint64_t address)
{
	uint32_t word = 0;

	fact("importer_reads", CU(cuMemcpyDtoH_v2, &word, address + SHARED_BYTES - 4, 4));
	fact("importer_sees", word);
	fact("importer_writes", CU(cuMemsetD32_v2, address, 4712, 1));
	(void)CU(cuCtxSynchronize);
}

static void importer(int socket, const void *argument)
{
	struct cuda_ipc_memory memory;
	struct session session;
	uint64_t address = 0;
	uint64_t again = 0;
	uint64_t order;

	(void)argument;
	receive_handle(socket, &memory);
	session_begin(&session);
	fact("open", CU(cuIpcOpenMemHandle_v2, &address, memory, CUDA_IPC_LAZY_PEER_ACCESS));
	use_imported(address);
	fact("open_again", CU(cuIpcOpenMemHandle_v2, &again, memory, CUDA_IPC_LAZY_PEER_ACCESS));
	fact_yes("open_again_is_same", again == address);
	suite_send(socket, 1, -1);
	while (suite_try_receive(socket, &order) && order == 1) {
		uint32_t word = 0;

		fact("late_read", CU(cuMemcpyDtoH_v2, &word, address + 64, 4));
		fact("late_value", word);
		suite_send(socket, 1, -1);
	}
	fact("free_imported", CU(cuMemFree_v2, address));
	fact("close", CU(cuIpcCloseMemHandle, address));
	fact("close_again", CU(cuIpcCloseMemHandle, again));
	fact("close_too_often", CU(cuIpcCloseMemHandle, again));
	suite_send(socket, 1, -1);
	(void)suite_try_receive(socket, &order);
}

struct pair {
	struct suite_gpu before;
	struct role exporter;
	struct role importer;
};

/* Both roles up, the memory open in both. */
static void start_pair(struct pair *pair)
{
	suite_ask(&pair->before);
	role_start(&pair->exporter, exporter, NULL);
	role_start(&pair->importer, importer, NULL);
	for (int i = 0; i < 8; i++)
		suite_send(pair->importer.socket, suite_receive(pair->exporter.socket, NULL), -1);
	(void)suite_receive(pair->importer.socket, NULL);
}

static void charge(const char *exporter_name, const char *importer_name, const struct pair *pair)
{
	struct suite_gpu gpu;

	suite_ask(&gpu);
	fact_yes(exporter_name, suite_bytes_of(&gpu, pair->exporter.pid) > SHARED_BYTES);
	fact_yes(importer_name, suite_bytes_of(&gpu, pair->importer.pid) > SHARED_BYTES);
}

static void shared_by_two(const void *argument)
{
	struct pair pair;

	(void)argument;
	start_pair(&pair);
	charge("exporter_is_charged", "importer_is_charged", &pair);
	suite_send(pair.exporter.socket, 1, -1); /* free */
	(void)suite_receive(pair.exporter.socket, NULL);
	fact_text("memory_after_free", "%s",
		  suite_memory_state(pair.before.used_bytes + 1400 * MIB, SHARED_BYTES));
	suite_send(pair.importer.socket, 1, -1); /* read again */
	(void)suite_receive(pair.importer.socket, NULL);
	suite_send(pair.importer.socket, 2, -1); /* close */
	(void)suite_receive(pair.importer.socket, NULL);
	fact_text("memory_after_close", "%s",
		  suite_memory_state(pair.before.used_bytes + 1400 * MIB, SHARED_BYTES));
	role_end(&pair.importer, "importer_ended");
	role_kill(&pair.exporter);
}

static void exporter_killed(const void *argument)
{
	struct pair pair;

	(void)argument;
	start_pair(&pair);
	role_kill(&pair.exporter);
	fact_text("memory", "%s",
		  suite_memory_state(pair.before.used_bytes + 700 * MIB, SHARED_BYTES));
	charge("exporter_is_charged", "importer_is_charged", &pair);
	suite_send(pair.importer.socket, 1, -1);
	(void)suite_receive(pair.importer.socket, NULL);
	role_kill(&pair.importer);
	fact_text("memory_at_last", "%s", suite_memory_state(pair.before.used_bytes, SHARED_BYTES));
}

static void open_late(int socket, const void *argument)
{
	struct cuda_ipc_memory memory;
	struct session session;
	uint64_t address = 0;

	(void)argument;
	receive_handle(socket, &memory);
	session_begin(&session);
	fact("open", CU(cuIpcOpenMemHandle_v2, &address, memory, CUDA_IPC_LAZY_PEER_ACCESS));
	fact("sync", CU(cuCtxSynchronize));
}

static void opened_too_late(const void *argument)
{
	struct role first;
	struct role second;
	uint64_t words[8];

	(void)argument;
	role_start(&first, exporter, NULL);
	for (int i = 0; i < 8; i++)
		words[i] = suite_receive(first.socket, NULL);
	role_kill(&first);
	role_start(&second, open_late, NULL);
	for (int i = 0; i < 8; i++)
		suite_send(second.socket, words[i], -1);
	role_end(&second, "ended");
}

const struct suite_case cases_ipc[] = {
	{"ipc_own", own, NULL},
	{"ipc", shared_by_two, NULL},
	{"ipc_exporter_killed", exporter_killed, NULL},
	{"ipc_late", opened_too_late, NULL},
	{NULL, NULL, NULL},
};
