/* SPDX-License-Identifier: MIT */
#include "visible.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void visible_uuid_bytes(uint32_t device, uint8_t bytes[16])
{
	static const uint8_t base[16] = {0x50, 0xf7, 0x60, 0x75, 0x6e, 0x76, 0x40, 0x70,
					 0x80, 0x00, 0,	   0,	 0,    0,    0,	   0};

	memcpy(bytes, base, sizeof(base));
	/* Near the front, so that a short prefix can tell devices apart. */
	bytes[2] = (uint8_t)(bytes[2] + device);
	bytes[15] = (uint8_t)device;
}

void visible_uuid_text(uint32_t device, char text[41])
{
	uint8_t bytes[16];
	int at = snprintf(text, 41, "GPU-");

	visible_uuid_bytes(device, bytes);
	for (int i = 0; i < 16; i++) {
		bool dash = i == 4 || i == 6 || i == 8 || i == 10;

		at += snprintf(text + at, 41 - (size_t)at, "%s%02x", dash ? "-" : "", bytes[i]);
	}
}

/* A UUID may be cut short, if what is left names one device alone. */
static int find_uuid(const char *entry, size_t length, uint32_t devices)
{
	int found = -1;

	for (uint32_t i = 0; i < devices; i++) {
		char text[41];

		visible_uuid_text(i, text);
		if (length > strlen("GPU-") && strncmp(text, entry, length) == 0) {
			if (found >= 0)
				return -1;
			found = (int)i;
		}
	}
	return found;
}

static int find_device(const char *entry, size_t length, uint32_t devices)
{
	unsigned long number;

	/* What follows the digits is not looked at: "0x" names device 0. */
	if (length > 0 && isdigit((unsigned char)*entry)) {
		number = strtoul(entry, NULL, 10);
		return number < devices ? (int)number : -1;
	}
	return find_uuid(entry, length, devices);
}

int visible_devices(const char *list, uint32_t devices, uint32_t *index)
{
	int count = 0;

	if (!list) {
		for (uint32_t i = 0; i < devices; i++)
			index[i] = i;
		return (int)devices;
	}
	for (;;) {
		size_t length;
		int device;

		list += strspn(list, " \t");
		length = strcspn(list, ", \t");
		device = find_device(list, length, devices);
		if (device < 0)
			return count;
		for (int i = 0; i < count; i++) {
			if (index[i] == (uint32_t)device)
				return -1;
		}
		index[count++] = (uint32_t)device;
		list += length;
		list += strspn(list, " \t");
		if (*list++ != ',')
			return count;
	}
}
