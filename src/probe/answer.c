/* SPDX-License-Identifier: MIT */
/*
 * The questions that NVML is asked, and what its answers mean.
 *
 * Runs in: probe. Never keeps a device handle across requests: a GPU can be lost and come back.
 * Handles come from the index of each request, which NVML checks.
 * Read next: answer.h, probe.c.
 */
#include "probe/answer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/err.h"
#include "common/fd.h"

/* So long NVML waits for an event before it is asked again; nothing depends on it. */
#define EVENT_WAIT_MS 60000U

static int make_ready(struct answer *answer, struct gw_error *ret_error)
{
	int code;

	if (answer->ready)
		return 0;
	if (!answer->door.library) {
		code = nvml_open(&answer->door, ret_error);
		if (code < 0)
			return code;
	}
	code = nvml_init(&answer->door, ret_error);
	answer->ready = code == 0;
	return code;
}

static int find_device(const struct answer *answer, uint32_t index, struct nvml_device **ret_device,
		       struct gw_error *ret_error)
{
	int result = answer->door.nvmlDeviceGetHandleByIndex_v2(index, ret_device);

	if (result == NVML_ERROR_INVALID_ARGUMENT)
		return err_set(ret_error, -ENODEV, GW_DOMAIN_NVML, result,
			       "there is no GPU number %u", index);
	return result == NVML_SUCCESS
		       ? 0
		       : nvml_error(ret_error, "nvmlDeviceGetHandleByIndex_v2", result);
}

static int answer_driver(const struct nvml_door *door, struct probe_driver *body,
			 struct gw_error *ret_error)
{
	unsigned int count = 0;
	int cuda = 0;
	int result = door->nvmlDeviceGetCount_v2(&count);

	if (result != NVML_SUCCESS)
		return nvml_error(ret_error, "nvmlDeviceGetCount_v2", result);
	if (door->nvmlSystemGetDriverVersion(body->driver, sizeof(body->driver)) != NVML_SUCCESS)
		body->driver[0] = '\0';
	if (door->nvmlSystemGetNVMLVersion(body->nvml, sizeof(body->nvml)) != NVML_SUCCESS)
		body->nvml[0] = '\0';
	if (!door->nvmlSystemGetCudaDriverVersion_v2 ||
	    door->nvmlSystemGetCudaDriverVersion_v2(&cuda) != NVML_SUCCESS)
		cuda = -1;
	body->cuda = cuda;
	body->device_count = count < PROBE_DEVICES_MAX ? count : PROBE_DEVICES_MAX;
	return 0;
}

static void read_pci(const struct nvml_door *door, struct nvml_device *device, char text[static 32])
{
	struct nvml_pci pci = {0};

	text[0] = '\0';
	if (door->nvmlDeviceGetPciInfo_v3(device, &pci) == NVML_SUCCESS)
		(void)snprintf(text, 32, "%.*s", (int)sizeof(pci.bus_id) - 1, pci.bus_id);
}

static int answer_device(const struct nvml_door *door, struct nvml_device *device, uint32_t index,
			 struct probe_device *body, struct gw_error *ret_error)
{
	struct nvml_memory memory = {0};
	unsigned int minor = 0;
	int result = door->nvmlDeviceGetUUID(device, body->uuid, sizeof(body->uuid));

	if (result != NVML_SUCCESS)
		return nvml_error(ret_error, "nvmlDeviceGetUUID", result);
	if (door->nvmlDeviceGetName(device, body->name, sizeof(body->name)) != NVML_SUCCESS)
		body->name[0] = '\0';
	read_pci(door, device, body->pci);
	body->index = index;
	body->minor = door->nvmlDeviceGetMinorNumber &&
				      door->nvmlDeviceGetMinorNumber(device, &minor) == NVML_SUCCESS
			      ? (int32_t)minor
			      : -1;
	body->total_bytes = door->nvmlDeviceGetMemoryInfo(device, &memory) == NVML_SUCCESS
				    ? memory.total
				    : GW_UNKNOWN;
	return 0;
}

/* The second version tells reserved memory apart; drivers before 510 have only the first. */
static int answer_memory(const struct nvml_door *door, struct nvml_device *device,
			 struct probe_memory *body, struct gw_error *ret_error)
{
	struct nvml_memory_v2 second = {.version = NVML_VERSION(struct nvml_memory_v2, 2)};
	struct nvml_memory first = {0};
	int result;

	if (door->nvmlDeviceGetMemoryInfo_v2 &&
	    door->nvmlDeviceGetMemoryInfo_v2(device, &second) == NVML_SUCCESS) {
		*body = (struct probe_memory){second.total, second.free, second.used,
					      second.reserved};
		return 0;
	}
	result = door->nvmlDeviceGetMemoryInfo(device, &first);
	if (result != NVML_SUCCESS)
		return nvml_error(ret_error, "nvmlDeviceGetMemoryInfo", result);
	*body = (struct probe_memory){first.total, first.free, first.used, GW_UNKNOWN};
	return 0;
}

static int answer_processes(const struct nvml_door *door, struct nvml_device *device,
			    struct probe_processes *body, struct gw_error *ret_error)
{
	static struct nvml_process list[PROBE_PROCESSES_MAX];
	unsigned int count = PROBE_PROCESSES_MAX;
	int result = door->nvmlDeviceGetComputeRunningProcesses_v3(device, &count, list);

	/* If they do not fit, NVML says how many there are and fills nothing. */
	if (result == NVML_ERROR_INSUFFICIENT_SIZE) {
		body->total = count;
		return 0;
	}
	if (result != NVML_SUCCESS)
		return nvml_error(ret_error, "nvmlDeviceGetComputeRunningProcesses_v3", result);
	body->total = count;
	body->count = count < PROBE_PROCESSES_MAX ? count : PROBE_PROCESSES_MAX;
	for (uint32_t i = 0; i < body->count; i++) {
		body->list[i].pid = list[i].pid;
		body->list[i].used_bytes =
			list[i].used_bytes == NVML_UNKNOWN_BYTES ? GW_UNKNOWN : list[i].used_bytes;
	}
	return 0;
}

/* A driver that does not know the field is no failure: the action is not known. */
static int answer_recovery(const struct nvml_door *door, struct nvml_device *device,
			   struct probe_recovery *body)
{
	struct nvml_field_value value = {.field = NVML_FIELD_RECOVERY_ACTION};

	body->action = PROBE_ACTION_UNKNOWN;
	if (door->nvmlDeviceGetFieldValues &&
	    door->nvmlDeviceGetFieldValues(device, 1, &value) == NVML_SUCCESS &&
	    value.result == NVML_SUCCESS && value.value_type == NVML_VALUE_UINT &&
	    value.value.u <= PROBE_ACTION_DRAIN_AND_RESET)
		body->action = value.value.u;
	return 0;
}

static int fill(struct answer *answer, const struct probe_request *request,
		struct probe_reply *reply, struct gw_error *ret_error)
{
	const struct nvml_door *door = &answer->door;
	struct nvml_device *device = NULL;
	int code = make_ready(answer, ret_error);

	if (code == 0 && request->kind == PROBE_DRIVER)
		return answer_driver(door, &reply->driver, ret_error);
	if (code == 0)
		code = find_device(answer, request->device, &device, ret_error);
	if (code < 0)
		return code;
	switch ((enum probe_kind)request->kind) {
	case PROBE_DEVICE:
		return answer_device(door, device, request->device, &reply->device, ret_error);
	case PROBE_MEMORY:
		return answer_memory(door, device, &reply->memory, ret_error);
	case PROBE_PROCESSES:
		return answer_processes(door, device, &reply->processes, ret_error);
	case PROBE_RECOVERY:
		return answer_recovery(door, device, &reply->recovery);
	case PROBE_DRIVER:
	case PROBE_WATCH:
	case PROBE_XID:
		break;
	}
	return err_own(ret_error, GW_EPROTOCOL, "no such question: %u", request->kind);
}

void answer_request(struct answer *answer, const struct probe_request *request,
		    struct probe_reply *reply)
{
	struct gw_error error = {0};

	if (fill(answer, request, reply, &error) == 0)
		return;
	memset(&reply->driver, 0, sizeof(*reply) - offsetof(struct probe_reply, driver));
	reply->error = error;
}

/* Registers each device that can report Xids. Returns how many. */
static unsigned int register_devices(const struct nvml_door *door, struct nvml_event_set *set)
{
	unsigned int count = 0;
	unsigned int registered = 0;

	(void)door->nvmlDeviceGetCount_v2(&count);
	for (unsigned int i = 0; i < count; i++) {
		struct nvml_device *device;

		if (door->nvmlDeviceGetHandleByIndex_v2(i, &device) == NVML_SUCCESS &&
		    door->nvmlDeviceRegisterEvents(device, NVML_EVENT_XID, set) == NVML_SUCCESS)
			registered++;
	}
	return registered;
}

int answer_watch(struct answer *answer, struct gw_error *ret_error)
{
	const struct nvml_door *door = &answer->door;
	struct nvml_event_set *set = NULL;
	int result;
	int code = make_ready(answer, ret_error);

	if (code < 0)
		return code;
	if (!door->nvmlEventSetCreate || !door->nvmlEventSetFree || !door->nvmlEventSetWait_v2 ||
	    !door->nvmlDeviceRegisterEvents)
		return err_own(ret_error, GW_EDRIVER, "this NVML has no events");
	result = door->nvmlEventSetCreate(&set);
	if (result != NVML_SUCCESS)
		return nvml_error(ret_error, "nvmlEventSetCreate", result);
	if (register_devices(door, set) == 0) {
		(void)door->nvmlEventSetFree(set);
		return err_own(ret_error, -EOPNOTSUPP, "no GPU here reports Xid events");
	}
	answer->events = set;
	return 0;
}

/* NVML's events name a device by its handle, which is the same one that an index gives. */
static uint32_t index_of(const struct nvml_door *door, struct nvml_device *device)
{
	unsigned int count = 0;
	struct nvml_device *other;

	(void)door->nvmlDeviceGetCount_v2(&count);
	for (unsigned int i = 0; i < count && i < PROBE_DEVICES_MAX; i++) {
		if (door->nvmlDeviceGetHandleByIndex_v2(i, &other) == NVML_SUCCESS &&
		    other == device)
			return i;
	}
	return PROBE_DEVICE_UNKNOWN;
}

void answer_next_event(struct answer *answer, struct probe_reply *ret_event)
{
	const struct nvml_door *door = &answer->door;
	struct nvml_event event;
	int result;

	memset(ret_event, 0, sizeof(*ret_event));
	ret_event->magic = PROBE_MAGIC;
	ret_event->layout = PROBE_LAYOUT;
	ret_event->kind = PROBE_XID;
	do {
		memset(&event, 0, sizeof(event));
		result = door->nvmlEventSetWait_v2(answer->events, &event, EVENT_WAIT_MS);
	} while (result == NVML_ERROR_TIMEOUT ||
		 (result == NVML_SUCCESS && event.type != NVML_EVENT_XID));
	if (result != NVML_SUCCESS) {
		(void)nvml_error(&ret_event->error, "nvmlEventSetWait_v2", result);
		return;
	}
	ret_event->xid.at_ns = now_ns();
	ret_event->xid.xid = (uint32_t)event.data;
	ret_event->xid.device = index_of(door, event.device);
	read_pci(door, event.device, ret_event->xid.pci);
}
