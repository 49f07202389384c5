/* SPDX-License-Identifier: MIT */
#include "xid.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/fd.h"

struct xid_bus xid_bus(uint32_t device)
{
	unsigned int place = device + 6;

	return (struct xid_bus){.bus = place / 32, .device = place % 32};
}

/* Writes TEXT to OUT with the words that begin with @ replaced. */
static void expand(char *out, size_t bytes, const char *text, const struct table_client *client,
		   uint32_t channel)
{
	size_t at = 0;

	while (*text && at + 1 < bytes) {
		char word[24] = "";
		size_t skip = 1;

		if (strncmp(text, "@PID", 4) == 0) {
			(void)snprintf(word, sizeof(word), "%d", client->pid);
			skip = 4;
		} else if (strncmp(text, "@NAME", 5) == 0) {
			(void)snprintf(word, sizeof(word), "%.15s", client->name);
			skip = 5;
		} else if (strncmp(text, "@CHANNEL", 8) == 0) {
			(void)snprintf(word, sizeof(word), "0x%08x", channel);
			skip = 8;
		} else {
			word[0] = *text;
		}
		at += (size_t)snprintf(out + at, bytes - at, "%s", word);
		text += skip;
	}
	out[at < bytes ? at : bytes - 1] = '\0';
}

static int append(const struct machine *machine, const char *name, const void *data, size_t bytes)
{
	cleanup_fd int fd = machine_file(machine, name, O_WRONLY | O_APPEND);

	if (fd < 0)
		return fd;
	return write(fd, data, bytes) == (ssize_t)bytes ? 0 : -EIO;
}

int xid_log(struct table *table, uint32_t client, uint32_t device, const char *text)
{
	static const struct table_client nobody = {.name = "<unknown>"};
	struct xid_bus place = xid_bus(device);
	char body[512];
	char record[640];
	int length;

	expand(body, sizeof(body), text, client == TABLE_NONE ? &nobody : &table->clients[client],
	       8 + (client == TABLE_NONE ? 0 : client));
	length = snprintf(record, sizeof(record),
			  "3,%" PRIu64 ",%" PRIu64 ",-;NVRM: Xid (PCI:0000:%02x:%02x): %s\n",
			  ++table->header.kmsg_sequence, now_ns() / 1000, place.bus, place.device,
			  body);
	if (table_put_header(table) < 0)
		return -EIO;
	return append(table->machine, "kmsg", record, (size_t)length);
}

int xid_announce(const struct machine *machine, uint32_t device, uint64_t type, uint64_t data)
{
	struct xid_event event = {
		.type = type,
		.data = data,
		.device = device,
		.time_ns = now_ns(),
	};

	return append(machine, "events", &event, sizeof(event));
}
