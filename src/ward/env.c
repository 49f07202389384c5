/* SPDX-License-Identifier: MIT */
#include "ward/env.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"
#include "common/visible.h"
#include "common/wire.h"

#define VISIBLE	      VISIBLE_ENV
#define ORDER	      VISIBLE_ORDER_ENV
#define CONNECTIONS   "CUDA_DEVICE_MAX_CONNECTIONS"
#define ADDED	      4
#define TEXT_MAX      256
#define LIST_MAX_TEXT 80

static bool is_variable(const char *entry, const char *name)
{
	size_t bytes = strlen(name);

	return strncmp(entry, name, bytes) == 0 && entry[bytes] == '=';
}

static const char *value_of(const char *const *base, const char *name)
{
	for (; *base; base++) {
		if (is_variable(*base, name))
			return *base + strlen(name) + 1;
	}
	return NULL;
}

static int write_visible(char text[TEXT_MAX], const char *list, int32_t device,
			 struct gw_error *ret_error)
{
	const char *entry = NULL;
	size_t bytes = 0;
	uint32_t count;

	if (!list) {
		(void)snprintf(text, TEXT_MAX, VISIBLE "=%d", device);
		return 0;
	}
	if (!visible_entry(list, (uint32_t)device, &entry, &bytes, &count))
		return err_os(ret_error, ENODEV,
			      "device %d is not there: " VISIBLE
			      "=%.*s names %u device(s), counted "
			      "from 0",
			      device, LIST_MAX_TEXT, list, count);
	if (bytes >= TEXT_MAX - sizeof(VISIBLE "="))
		return err_os(ret_error, ENODEV, VISIBLE " has an entry of %zu bytes", bytes);
	(void)snprintf(text, TEXT_MAX, VISIBLE "=%.*s", (int)bytes, entry);
	return 0;
}

/* Fills in the texts of a pool with devices. Entries of an inherited list that are numbers keep the
 * order that the host chose for them. */
static int write_device(char texts[ADDED][TEXT_MAX], const char *const *base, int32_t device,
			struct gw_error *ret_error)
{
	const char *list = value_of(base, VISIBLE);
	const char *order = list ? value_of(base, ORDER) : NULL;

	(void)snprintf(texts[1], TEXT_MAX, ORDER "=%s", order ? order : "PCI_BUS_ID");
	return write_visible(texts[2], list, device, ret_error);
}

static bool is_replaced(const char *entry, const struct env_worker *worker)
{
	if (is_variable(entry, WIRE_WORKER_ENV))
		return true;
	if (worker->device < 0)
		return false;
	return is_variable(entry, VISIBLE) || is_variable(entry, ORDER) ||
	       (worker->connections > 0 && is_variable(entry, CONNECTIONS));
}

/* How many variables are added. */
static size_t count_added(const struct env_worker *worker)
{
	if (worker->device < 0)
		return 1;
	return worker->connections > 0 ? ADDED : ADDED - 1;
}

int env_new(const char *const *base, const struct env_worker *worker, const char ***ret_environment,
	    struct gw_error *ret_error)
{
	char texts[ADDED][TEXT_MAX];
	size_t added = count_added(worker);
	size_t count = 0, used = 0;
	const char **environment;
	char *storage;

	(void)snprintf(texts[0], TEXT_MAX, WIRE_WORKER_ENV "=%u:%u:%u:%d:%u:%" PRIu64 ":%d:%u:%u",
		       WIRE_LAYOUT, worker->slot, worker->incarnation, worker->device,
		       worker->spin_ns, worker->stop_deadline_ns, worker->standby, worker->detect,
		       worker->flags);
	(void)snprintf(texts[3], TEXT_MAX, CONNECTIONS "=%u", worker->connections);
	if (worker->device >= 0) {
		int result = write_device(texts, base, worker->device, ret_error);

		if (result < 0)
			return result;
	}
	while (base[count])
		count++;
	environment = malloc((count + added + 1) * sizeof(*environment) + sizeof(texts));
	if (!environment)
		return err_os(ret_error, ENOMEM, "cannot make a worker's environment");
	storage = memcpy(environment + count + added + 1, texts, sizeof(texts));
	for (size_t i = 0; i < count; i++) {
		if (!is_replaced(base[i], worker))
			environment[used++] = base[i];
	}
	for (size_t i = 0; i < added; i++)
		environment[used++] = storage + i * TEXT_MAX;
	environment[used] = NULL;
	*ret_environment = environment;
	return 0;
}
