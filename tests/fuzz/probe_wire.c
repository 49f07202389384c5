/* SPDX-License-Identifier: MIT */
/*
 * Fuzz target: taking in the probe's messages, with any bytes as a message.
 *
 * The first byte says from which kind of reply to start, so that inputs stay small: the rest is laid
 * over a sound reply of this kind, and also taken as it is. What is accepted must keep the promises of
 * probe_wire.h.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "probe/probe_wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void require(int condition)
{
	if (!condition)
		abort();
}

static void check_reply(const struct probe_reply *reply)
{
	require(reply->error.code <= 0);
	require(strlen(reply->error.msg) < sizeof(reply->error.msg));
	if (reply->kind == PROBE_DRIVER)
		require(strlen(reply->driver.driver) < sizeof(reply->driver.driver));
	if (reply->kind == PROBE_DEVICE)
		require(strlen(reply->device.uuid) < sizeof(reply->device.uuid) &&
			strlen(reply->device.pci) < sizeof(reply->device.pci));
	if (reply->kind == PROBE_PROCESSES)
		require(reply->processes.count <= PROBE_PROCESSES_MAX);
	if (reply->kind == PROBE_XID)
		require(strlen(reply->xid.pci) < sizeof(reply->xid.pci));
}

/* Takes in a copy of the exact size, so that a sanitizer sees a read past its end. */
static void take(const void *message, size_t bytes)
{
	struct probe_request request;
	struct probe_reply reply;
	void *copy = malloc(bytes ? bytes : 1);

	if (!copy)
		return;
	memcpy(copy, message, bytes);
	if (probe_take_reply(copy, bytes, &reply) == 0)
		check_reply(&reply);
	if (probe_take_request(copy, bytes, &request) == 0)
		require(request.ticket != 0 && request.kind <= PROBE_WATCH);
	free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static struct probe_reply base;
	size_t whole;
	size_t at;

	take(data, bytes);
	if (bytes < 3)
		return 0;
	base = (struct probe_reply){.magic = PROBE_MAGIC,
				    .layout = PROBE_LAYOUT,
				    .kind = data[0] % 8,
				    .ticket = data[0] % 8 != PROBE_XID};
	whole = probe_reply_bytes(base.kind);
	at = (size_t)(data[1] | data[2] << 8);
	if (whole == 0 || at >= whole)
		return 0;
	bytes -= 3;
	memcpy((uint8_t *)&base + at, data + 3, bytes < whole - at ? bytes : whole - at);
	take(&base, whole);
	return 0;
}
