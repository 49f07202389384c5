/* SPDX-License-Identifier: MIT */
/* Initialisation, devices, their attributes and CUDA_VISIBLE_DEVICES. Runs in: see suite.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "suite.h"

static void before_init(const void *argument)
{
	struct cuda_context *context;
	uint64_t address;
	uint64_t handle;
	const char *text = NULL;
	struct cuda_allocation allocation = suite_exportable();
	int value = -1;

	(void)argument;
	fact("device_count", CU(cuDeviceGetCount, &value));
	fact("device", CU(cuDeviceGet, &value, 0));
	fact("alloc", CU(cuMemAlloc_v2, &address, MIB));
	fact("retain", CU(cuDevicePrimaryCtxRetain, &context, 0));
	fact("current", CU(cuCtxGetCurrent, &context));
	fact("set_current", CU(cuCtxSetCurrent, NULL));
	fact("sync", CU(cuCtxSynchronize));
	fact("mem_create", CU(cuMemCreate, &handle, 2 * MIB, &allocation, 0));
	fact("driver_version", CU(cuDriverGetVersion, &value));
	fact("error_name", CU(cuGetErrorName, 700, &text));
	fact("init_with_flags", CU(cuInit, 1));
	fact("init", CU(cuInit, 0));
	fact("init_twice", CU(cuInit, 0));
	fact("init_twice_with_flags", CU(cuInit, 1));
}

static void error_texts(const void *argument)
{
	const char *text = NULL;

	(void)argument;
	fact("name_result", CU(cuGetErrorName, 719, &text));
	fact_text("name", "%s", text);
	fact("string_result", CU(cuGetErrorString, 719, &text));
	fact_text("string", "%s", text);
	fact("unknown_name_result", CU(cuGetErrorName, 12345, &text));
	fact_text("unknown_name", "%s", text ? text : "null");
	fact("unknown_string_result", CU(cuGetErrorString, 12345, &text));
	fact("success_name_result", CU(cuGetErrorName, 0, &text));
	fact_text("success_name", "%s", text);
	/* At last, since it can end the case. */
	fact("null_result", CU(cuGetErrorName, 0, NULL));
}

static void proc_address(const void *argument)
{
	void *function = &function;
	int status = -1;

	(void)argument;
	fact("known", CU(cuGetProcAddress_v2, "cuInit", &function, 12000, 0, &status));
	fact("known_status", status);
	fact_yes("known_found", function != NULL);
	fact("versioned", CU(cuGetProcAddress_v2, "cuMemAlloc", &function, 12000, 0, &status));
	fact_yes("versioned_is_v2", function == suite_symbol(SUITE_CUDA, "cuMemAlloc_v2"));
	fact("unknown", CU(cuGetProcAddress_v2, "cuNothing", &function, 12000, 0, &status));
	fact("unknown_status", status);
	fact_yes("unknown_found", function != NULL);
	fact("null_name", CU(cuGetProcAddress_v2, NULL, &function, 12000, 0, &status));
}

static void devices(const void *argument)
{
	int count = -1;
	int device = -1;
	size_t bytes = 0;
	char text[64] = "";

	(void)argument;
	(void)CU(cuInit, 0);
	fact("count_result", CU(cuDeviceGetCount, &count));
	fact_yes("some", count > 0);
	fact("count_null", CU(cuDeviceGetCount, NULL));
	fact("first", CU(cuDeviceGet, &device, 0));
	fact("first_number", device);
	fact("behind_last", CU(cuDeviceGet, &device, count));
	fact("negative", CU(cuDeviceGet, &device, -1));
	fact("null", CU(cuDeviceGet, NULL, 0));
	fact("total", CU(cuDeviceTotalMem_v2, &bytes, 0));
	fact_yes("total_over_1_gib", bytes > 1024 * MIB);
	fact("total_of_none", CU(cuDeviceTotalMem_v2, &bytes, 77));
	fact("name", CU(cuDeviceGetName, text, sizeof(text), 0));
	fact_yes("name_begins_nvidia", strncmp(text, "NVIDIA ", 7) == 0);
	fact("name_cut", CU(cuDeviceGetName, text, 4, 0));
	fact_text("name_cut_text", "%s", text);
	fact("name_null", CU(cuDeviceGetName, NULL, 10, 0));
	fact("name_of_none", CU(cuDeviceGetName, text, sizeof(text), 77));
	/* At last, since it can end the case. */
	fact("name_no_room", CU(cuDeviceGetName, text, 0, 0));
}

/* Letters and digits as A and 9, to compare the form alone. */
static void shape(char *text)
{
	for (; *text; text++)
		*text = strchr("0123456789abcdefABCDEF", *text) ? '9' : *text;
}

static void identity(const void *argument)
{
	struct cuda_uuid uuid = {0};
	const struct cuda_uuid zero = {0};
	char text[64] = "";

	(void)argument;
	(void)CU(cuInit, 0);
	fact("uuid", CU(cuDeviceGetUuid_v2, &uuid, 0));
	fact_yes("uuid_is_set", memcmp(&uuid, &zero, sizeof(uuid)) != 0);
	fact("uuid_null", CU(cuDeviceGetUuid_v2, NULL, 0));
	fact("uuid_of_none", CU(cuDeviceGetUuid_v2, &uuid, 77));
	fact("bus", CU(cuDeviceGetPCIBusId, text, sizeof(text), 0));
	shape(text);
	fact_text("bus_form", "%s", text);
	fact("bus_short", CU(cuDeviceGetPCIBusId, text, 5, 0));
	fact("bus_null", CU(cuDeviceGetPCIBusId, NULL, 13, 0));
}

static void attributes(const void *argument)
{
	static const struct {
		const char *name;
		int number;
	} table[] = {
		{"threads_per_block", CUDA_ATTRIBUTE_MAX_THREADS_PER_BLOCK},
		{"warp_size", CUDA_ATTRIBUTE_WARP_SIZE},
		{"compute_mode", CUDA_ATTRIBUTE_COMPUTE_MODE},
		{"ecc", CUDA_ATTRIBUTE_ECC_ENABLED},
		{"unified_addressing", CUDA_ATTRIBUTE_UNIFIED_ADDRESSING},
		{"capability_major", CUDA_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR},
		{"capability_minor", CUDA_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR},
		{"multiprocessors", CUDA_ATTRIBUTE_MULTIPROCESSOR_COUNT},
		{"host_register", CUDA_ATTRIBUTE_HOST_REGISTER},
		{"virtual_memory", CUDA_ATTRIBUTE_VIRTUAL_MEMORY},
		{"posix_fd", CUDA_ATTRIBUTE_POSIX_FD_HANDLE},
		{"mps", CUDA_ATTRIBUTE_MPS_ENABLED},
	};
	int value = -1;

	(void)argument;
	(void)CU(cuInit, 0);
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		int result = CU(cuDeviceGetAttribute, &value, table[i].number, 0);

		fact(table[i].name, result ? -result : value);
	}
	fact("number_0", CU(cuDeviceGetAttribute, &value, 0, 0));
	fact("number_99999", CU(cuDeviceGetAttribute, &value, 99999, 0));
	fact("null", CU(cuDeviceGetAttribute, NULL, CUDA_ATTRIBUTE_WARP_SIZE, 0));
	fact("of_none", CU(cuDeviceGetAttribute, &value, CUDA_ATTRIBUTE_WARP_SIZE, 77));
}

struct visible {
	const char *name;
	const char *value;
};

static void count_visible(int socket, const void *argument)
{
	const struct visible *visible = argument;
	char name[64];
	int count = -1;
	int result;

	(void)socket;
	(void)setenv("CUDA_VISIBLE_DEVICES", visible->value, 1);
	result = CU(cuInit, 0);
	(void)snprintf(name, sizeof(name), "%s_init", visible->name);
	fact(name, result);
	(void)snprintf(name, sizeof(name), "%s_count", visible->name);
	result = CU(cuDeviceGetCount, &count);
	fact(name, result ? -result : count);
}

static void visible_devices(const void *argument)
{
	static const struct visible table[] = {
		{"first", "0"},
		{"none", ""},
		{"unknown_index", "99"},
		{"minus_one", "-1"},
		{"word", "nonsense"},
		{"first_then_unknown", "0,99"},
		{"unknown_then_first", "99,0"},
		{"minus_in_between", "0,-1,0"},
		{"twice", "0,0"},
		{"spaces", " 0 "},
		{"trailing_word", "0x"},
		{"unknown_uuid", "GPU-12345678"},
	};

	(void)argument;
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		struct role role;

		role_start(&role, count_visible, &table[i]);
		role_end(&role, NULL);
	}
}

static void count_by_uuid(int socket, const void *argument)
{
	char text[64] = "GPU-";
	size_t length = suite_receive(socket, NULL);
	int count = -1;
	int result;

	(void)argument;
	for (size_t i = 0; i < length; i++)
		text[4 + i] = (char)suite_receive(socket, NULL);
	(void)setenv("CUDA_VISIBLE_DEVICES", text, 1);
	(void)CU(cuInit, 0);
	result = CU(cuDeviceGetCount, &count);
	suite_send(socket, (uint64_t)(result ? 0 : count), -1);
}

static void tell_uuid(int socket, const void *argument)
{
	struct cuda_uuid uuid = {0};

	(void)argument;
	(void)CU(cuInit, 0);
	(void)CU(cuDeviceGetUuid_v2, &uuid, 0);
	for (int i = 0; i < 16; i++)
		suite_send(socket, uuid.bytes[i], -1);
}

/* "GPU-" and LENGTH characters of device 0's own UUID. */
static void try_uuid(const char *name, const char *uuid, size_t length)
{
	struct role role;

	role_start(&role, count_by_uuid, NULL);
	suite_send(role.socket, length, -1);
	for (size_t i = 0; i < length; i++)
		suite_send(role.socket, (uint64_t)uuid[i], -1);
	fact_yes(name, suite_receive(role.socket, NULL) == 1);
	role_end(&role, NULL);
}

static void visible_by_uuid(const void *argument)
{
	struct role role;
	char text[40] = "";
	size_t used = 0;

	(void)argument;
	role_start(&role, tell_uuid, NULL);
	for (int i = 0; i < 16; i++) {
		uint64_t byte = suite_receive(role.socket, NULL);

		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%02x",
					 i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
					 (unsigned int)byte);
	}
	role_end(&role, NULL);
	try_uuid("whole", text, used);
	try_uuid("beginning", text, 8);
}

const struct suite_case cases_device[] = {
	{"before", before_init, NULL},
	{"errors", error_texts, NULL},
	{"address", proc_address, NULL},
	{"device", devices, NULL},
	{"identity", identity, NULL},
	{"attribute", attributes, NULL},
	{"visible", visible_devices, NULL},
	{"visible_uuid", visible_by_uuid, NULL},
	{NULL, NULL, NULL},
};
