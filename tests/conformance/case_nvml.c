/* SPDX-License-Identifier: MIT */
/* NVML's own answers, right and wrong use. Runs in: see suite.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "suite.h"

static void before_init(const void *argument)
{
	struct nvml_device *device = NULL;
	struct nvml_event_set *set = NULL;
	unsigned int count = 0;
	char text[NVML_VERSION_SIZE] = "";

	(void)argument;
	fact("count", NVML(nvmlDeviceGetCount_v2, &count));
	fact("handle", NVML(nvmlDeviceGetHandleByIndex_v2, 0, &device));
	fact("driver_version", NVML(nvmlSystemGetDriverVersion, text, sizeof(text)));
	fact("event_set", NVML(nvmlEventSetCreate, &set));
	fact("shutdown", NVML(nvmlShutdown));
	fact_text("error_string_0", "%s", NVML(nvmlErrorString, 0));
	fact_text("error_string_15", "%s", NVML(nvmlErrorString, 15));
	fact_text("error_string_unknown", "%s", NVML(nvmlErrorString, 4711));
	fact("init", NVML(nvmlInit_v2));
	fact("init_twice", NVML(nvmlInit_v2));
	fact("shutdown_once", NVML(nvmlShutdown));
	fact("count_after_one_of_two", NVML(nvmlDeviceGetCount_v2, &count));
	fact("shutdown_last", NVML(nvmlShutdown));
	fact("count_after_last", NVML(nvmlDeviceGetCount_v2, &count));
	fact("shutdown_too_often", NVML(nvmlShutdown));
	fact("init_with_flags", NVML(nvmlInitWithFlags, 0));
}

static struct nvml_device *begin(void)
{
	struct nvml_device *device = NULL;
	int result = NVML(nvmlInit_v2);

	if (result == 0)
		result = NVML(nvmlDeviceGetHandleByIndex_v2, 0, &device);
	if (result != 0) {
		fact("begin", result);
		_exit(2);
	}
	return device;
}

static void system_facts(void)
{
	char text[NVML_VERSION_SIZE] = "";
	int version = 0;

	fact("driver_version", NVML(nvmlSystemGetDriverVersion, text, sizeof(text)));
	fact_yes("driver_version_has_dot", strchr(text, '.') != NULL);
	fact("driver_version_short", NVML(nvmlSystemGetDriverVersion, text, 3));
	fact("driver_version_null", NVML(nvmlSystemGetDriverVersion, NULL, 80));
	fact("nvml_version", NVML(nvmlSystemGetNVMLVersion, text, sizeof(text)));
	fact("cuda_version", NVML(nvmlSystemGetCudaDriverVersion_v2, &version));
	fact_yes("cuda_version_over_12", version >= 12000);
}

static void device_facts(struct nvml_device *device)
{
	struct nvml_pci pci = {0};
	char text[NVML_UUID_SIZE] = "";
	unsigned int number = 99;
	int mode = 99;
	unsigned int amount = 0;

	fact("name", NVML(nvmlDeviceGetName, device, text, sizeof(text)));
	fact_yes("name_begins_nvidia", strncmp(text, "NVIDIA ", 7) == 0);
	fact("name_short", NVML(nvmlDeviceGetName, device, text, 4));
	fact("uuid", NVML(nvmlDeviceGetUUID, device, text, sizeof(text)));
	fact_yes("uuid_form", strncmp(text, "GPU-", 4) == 0 && strlen(text) == 40);
	fact("uuid_short", NVML(nvmlDeviceGetUUID, device, text, 10));
	fact("pci", NVML(nvmlDeviceGetPciInfo_v3, device, &pci));
	fact("pci_bus_id_length", (long long)strlen(pci.bus_id));
	fact("pci_bus_id_legacy_length", (long long)strlen(pci.bus_id_legacy));
	fact("index", NVML(nvmlDeviceGetIndex, device, &number));
	fact("index_value", number);
	fact("minor", NVML(nvmlDeviceGetMinorNumber, device, &number));
	fact("compute_mode", NVML(nvmlDeviceGetComputeMode, device, &mode));
	fact("compute_mode_value", mode);
	fact("persistence", NVML(nvmlDeviceGetPersistenceMode, device, &mode));
	fact("mig", NVML(nvmlDeviceGetMigMode, device, &number, &amount));
	fact("ecc", NVML(nvmlDeviceGetEccMode, device, &mode, &mode));
	fact("temperature", NVML(nvmlDeviceGetTemperature, device, 0, &amount));
	fact_yes("temperature_is_sane", amount > 5 && amount < 110);
	fact("temperature_bad_sensor", NVML(nvmlDeviceGetTemperature, device, 9, &amount));
	fact("power", NVML(nvmlDeviceGetPowerUsage, device, &amount));
	fact_yes("power_in_milliwatts", amount > 5000 && amount < 1500000);
	fact("null_device", NVML(nvmlDeviceGetName, NULL, text, sizeof(text)));
}

static void device(const void *argument)
{
	struct nvml_device *first = begin();
	struct nvml_device *other = NULL;
	char uuid[NVML_UUID_SIZE] = "";
	struct nvml_pci pci = {0};

	(void)argument;
	fact("index_77", NVML(nvmlDeviceGetHandleByIndex_v2, 77, &other));
	fact("index_null", NVML(nvmlDeviceGetHandleByIndex_v2, 0, NULL));
	(void)NVML(nvmlDeviceGetUUID, first, uuid, sizeof(uuid));
	(void)NVML(nvmlDeviceGetPciInfo_v3, first, &pci);
	fact("by_uuid", NVML(nvmlDeviceGetHandleByUUID, uuid, &other));
	fact_yes("by_uuid_is_same", other == first);
	fact("by_bad_uuid", NVML(nvmlDeviceGetHandleByUUID, "GPU-nonsense", &other));
	fact("by_null_uuid", NVML(nvmlDeviceGetHandleByUUID, NULL, &other));
	fact("by_bus", NVML(nvmlDeviceGetHandleByPciBusId_v2, pci.bus_id, &other));
	fact("by_bad_bus", NVML(nvmlDeviceGetHandleByPciBusId_v2, "0000:7F:1F.0", &other));
	fact("by_no_bus", NVML(nvmlDeviceGetHandleByPciBusId_v2, "nonsense", &other));
	system_facts();
	device_facts(first);
}

static void amounts(const void *argument)
{
	struct nvml_device *first = begin();
	struct nvml_memory memory = {0};
	struct nvml_memory_v2 second = {.version = NVML_VERSION(struct nvml_memory_v2, 2)};
	struct nvml_memory_v2 wrong = {.version = 5};
	struct nvml_process processes[4];
	struct nvml_utilization rates;
	struct nvml_field_value field = {.field = NVML_FIELD_RECOVERY_ACTION};
	struct nvml_field_value unknown = {.field = 999999};
	unsigned int count = 4;

	(void)argument;
	fact("memory", NVML(nvmlDeviceGetMemoryInfo, first, &memory));
	fact_yes("adds_up", memory.used + memory.free == memory.total);
	fact("memory_v2", NVML(nvmlDeviceGetMemoryInfo_v2, first, &second));
	fact_yes("v2_adds_up", second.used + second.free + second.reserved == second.total);
	fact_yes("v2_reserved", second.reserved > 0);
	fact_yes("same_total", second.total == memory.total);
	fact_yes("v1_counts_reserved", memory.used >= second.used + second.reserved);
	fact("wrong_version", NVML(nvmlDeviceGetMemoryInfo_v2, first, &wrong));
	fact("memory_null", NVML(nvmlDeviceGetMemoryInfo, first, NULL));
	fact("processes", NVML(nvmlDeviceGetComputeRunningProcesses_v3, first, &count, processes));
	fact("processes_count", count);
	fact("processes_null", NVML(nvmlDeviceGetComputeRunningProcesses_v3, first, NULL, NULL));
	fact("utilization", NVML(nvmlDeviceGetUtilizationRates, first, &rates));
	fact("field", NVML(nvmlDeviceGetFieldValues, first, 1, &field));
	fact("recovery_action_result", field.result);
	fact("recovery_action", field.value.u);
	fact("recovery_action_type", field.value_type);
	fact("unknown_field", NVML(nvmlDeviceGetFieldValues, first, 1, &unknown));
	fact("unknown_field_result", unknown.result);
	fact("no_field", NVML(nvmlDeviceGetFieldValues, first, 0, &field));
}

static void events(const void *argument)
{
	struct nvml_device *first = begin();
	struct nvml_event_set *set = NULL;
	struct nvml_event event;
	uint64_t types = 0;

	(void)argument;
	fact("create", NVML(nvmlEventSetCreate, &set));
	fact("create_null", NVML(nvmlEventSetCreate, NULL));
	fact("supported", NVML(nvmlDeviceGetSupportedEventTypes, first, &types));
	fact_yes("xid_is_supported", (types & NVML_EVENT_XID) != 0);
	fact("wait_unregistered", NVML(nvmlEventSetWait_v2, set, &event, 10));
	fact("register_nothing", NVML(nvmlDeviceRegisterEvents, first, 0, set));
	fact("register_unknown", NVML(nvmlDeviceRegisterEvents, first, 1ULL << 60, set));
	fact("register", NVML(nvmlDeviceRegisterEvents, first, NVML_EVENT_XID, set));
	fact("register_again", NVML(nvmlDeviceRegisterEvents, first, NVML_EVENT_XID, set));
	fact("wait", NVML(nvmlEventSetWait_v2, set, &event, 10));
	fact("wait_now", NVML(nvmlEventSetWait_v2, set, &event, 0));
	fact("wait_null", NVML(nvmlEventSetWait_v2, NULL, &event, 10));
	fact("free", NVML(nvmlEventSetFree, set));
	fact("free_null", NVML(nvmlEventSetFree, NULL));
}

static void after_fork(const void *argument)
{
	struct nvml_device *first = begin();
	struct nvml_memory memory;
	int status = 0;
	pid_t pid = fork();

	(void)argument;
	if (pid == 0) {
		fact("child_memory", NVML(nvmlDeviceGetMemoryInfo, first, &memory));
		fact("child_init", NVML(nvmlInit_v2));
		fact("child_memory_after_init", NVML(nvmlDeviceGetMemoryInfo, first, &memory));
		_exit(0);
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	fact("child_ended", status);
	fact("parent_memory", NVML(nvmlDeviceGetMemoryInfo, first, &memory));
}

static void tell_cuda_identity(int socket, const void *argument)
{
	struct cuda_uuid uuid = {0};
	uint64_t halves[2];
	size_t total = 0;

	(void)argument;
	(void)CU(cuInit, 0);
	(void)CU(cuDeviceGetUuid_v2, &uuid, 0);
	(void)CU(cuDeviceTotalMem_v2, &total, 0);
	memcpy(halves, &uuid, sizeof(halves));
	suite_send(socket, halves[0], -1);
	suite_send(socket, halves[1], -1);
	suite_send(socket, total, -1);
}

static void agrees_with_cuda(const void *argument)
{
	struct nvml_memory memory = {0};
	struct nvml_device *first;
	struct role role;
	unsigned char bytes[16];
	uint64_t halves[2];
	uint64_t total;
	char wanted[64] = "GPU-";
	char uuid[NVML_UUID_SIZE] = "";

	(void)argument;
	role_start(&role, tell_cuda_identity, NULL);
	halves[0] = suite_receive(role.socket, NULL);
	halves[1] = suite_receive(role.socket, NULL);
	total = suite_receive(role.socket, NULL);
	role_end(&role, NULL);
	memcpy(bytes, halves, sizeof(bytes));
	for (int i = 0; i < 16; i++)
		(void)snprintf(wanted + strlen(wanted), 4, "%s%02x",
			       i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", bytes[i]);
	first = begin();
	(void)NVML(nvmlDeviceGetUUID, first, uuid, sizeof(uuid));
	(void)NVML(nvmlDeviceGetMemoryInfo, first, &memory);
	fact_yes("same_uuid", strcmp(wanted, uuid) == 0);
	fact_yes("cuda_total_is_nvml_total", total == memory.total);
	fact_yes("cuda_total_is_at_most_nvml_total", total <= memory.total);
}

/* ---- the driver's log of failing calls ---- */

static char logged[512];
static int log_calls;

static void listen_to_log(void *data, int level, char *message, size_t length)
{
	(void)data;
	if (log_calls++ == 0)
		(void)snprintf(logged, sizeof(logged), "level %d: %.*s", level, (int)length,
			       message);
}

static void driver_log(const void *argument)
{
	struct cuda_log_callback *callback = NULL;
	struct session session;

	(void)argument;
	session_begin(&session);
	fact("register", CU(cuLogsRegisterCallback, listen_to_log, NULL, &callback));
	(void)CU(cuMemFree_v2, 0x12345600);
	fact("calls_for_bad_free", log_calls);
	fact_text("text_of_bad_free", "%s", logged);
	log_calls = 0;
	(void)session_launch(&session, "fault_trap", NULL, NULL);
	(void)CU(cuCtxSynchronize);
	fact_yes("called_for_fault", log_calls > 0);
	fact_text("text_of_fault", "%s", logged);
	log_calls = 0;
	(void)CU(cuCtxSynchronize);
	fact_yes("called_for_sticky", log_calls > 0);
	fact_text("text_of_sticky", "%s", logged);
	fact("unregister", CU(cuLogsUnregisterCallback, callback));
	log_calls = 0;
	(void)CU(cuCtxSynchronize);
	fact("calls_when_unregistered", log_calls);
}

const struct suite_case cases_nvml[] = {
	{"nvml_init", before_init, NULL}, {"nvml_device", device, NULL},
	{"nvml_amounts", amounts, NULL},  {"nvml_events", events, NULL},
	{"nvml_fork", after_fork, NULL},  {"nvml_cuda", agrees_with_cuda, NULL},
	{"log", driver_log, NULL},	  {NULL, NULL, NULL},
};
