/* SPDX-License-Identifier: MIT */
/*
 * Taking in the messages of the probe, with every bound checked.
 *
 * Runs in: probe, ward and command line. Never reads a byte of a message that it was not given, never
 * gives a message on that broke a rule: the probe lives beside a driver that can fail in any way.
 * Read next: probe_wire.h.
 */
#include "probe/probe_wire.h"

#include <stdbool.h>
#include <string.h>

#define BODY offsetof(struct probe_reply, driver)

size_t probe_reply_bytes(uint32_t kind)
{
	switch ((enum probe_kind)kind) {
	case PROBE_DRIVER:
		return BODY + sizeof(struct probe_driver);
	case PROBE_DEVICE:
		return BODY + sizeof(struct probe_device);
	case PROBE_MEMORY:
		return BODY + sizeof(struct probe_memory);
	case PROBE_PROCESSES:
		return BODY + sizeof(struct probe_processes);
	case PROBE_RECOVERY:
		return BODY + sizeof(struct probe_recovery);
	case PROBE_WATCH:
		return BODY;
	case PROBE_XID:
		return BODY + sizeof(struct probe_xid);
	}
	return 0;
}

int probe_take_request(const void *message, size_t bytes, struct probe_request *ret_request)
{
	struct probe_request request;

	if (bytes != sizeof(request))
		return GW_EPROTOCOL;
	memcpy(&request, message, sizeof(request));
	if (request.magic != PROBE_MAGIC)
		return GW_EPROTOCOL;
	if (request.layout != PROBE_LAYOUT)
		return GW_EVERSION;
	if (request.kind < PROBE_DRIVER || request.kind > PROBE_WATCH || request.ticket == 0 ||
	    request.reserved != 0)
		return GW_EPROTOCOL;
	*ret_request = request;
	return 0;
}

#define ENDS(text) (memchr((text), 0, sizeof(text)) != NULL)

static bool body_is_sound(const struct probe_reply *reply)
{
	switch ((enum probe_kind)reply->kind) {
	case PROBE_DRIVER:
		return ENDS(reply->driver.driver) && ENDS(reply->driver.nvml) &&
		       reply->driver.cuda >= -1 && reply->driver.device_count <= PROBE_DEVICES_MAX;
	case PROBE_DEVICE:
		return ENDS(reply->device.uuid) && ENDS(reply->device.name) &&
		       ENDS(reply->device.pci) && reply->device.minor >= -1 &&
		       reply->device.index < PROBE_DEVICES_MAX;
	case PROBE_PROCESSES:
		return reply->processes.count <= PROBE_PROCESSES_MAX &&
		       reply->processes.count <= reply->processes.total;
	case PROBE_RECOVERY:
		return reply->recovery.action <= PROBE_ACTION_DRAIN_AND_RESET ||
		       reply->recovery.action == PROBE_ACTION_UNKNOWN;
	case PROBE_XID:
		return ENDS(reply->xid.pci) && (reply->xid.device < PROBE_DEVICES_MAX ||
						reply->xid.device == PROBE_DEVICE_UNKNOWN);
	case PROBE_MEMORY:
	case PROBE_WATCH:
		break;
	}
	return true;
}

static bool error_is_sound(const struct gw_error *error)
{
	return error->code <= 0 && error->domain <= GW_DOMAIN_NVML && ENDS(error->msg);
}

int probe_take_reply(const void *message, size_t bytes, struct probe_reply *ret_reply)
{
	struct probe_reply reply = {0};

	if (bytes < BODY || bytes > sizeof(reply))
		return GW_EPROTOCOL;
	memcpy(&reply, message, bytes);
	if (reply.magic != PROBE_MAGIC)
		return GW_EPROTOCOL;
	if (reply.layout != PROBE_LAYOUT)
		return GW_EVERSION;
	if (bytes != probe_reply_bytes(reply.kind) || !error_is_sound(&reply.error) ||
	    !body_is_sound(&reply) || (reply.ticket == 0) != (reply.kind == PROBE_XID))
		return GW_EPROTOCOL;
	*ret_reply = reply;
	return 0;
}
