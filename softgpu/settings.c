/* SPDX-License-Identifier: MIT */
#include "settings.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (1ULL << 20)

/* Words that stand for numbers. */
struct word {
	const char *key;
	const char *text;
	uint64_t value;
};

static const struct word words[] = {
	{"delays", "zero", 0},
	{"delays", "measured", 1},
	{"lost", "none", SOFT_DEVICES_MAX},
};

struct number {
	const char *key;
	size_t offset;
	uint64_t max;
	uint64_t scale;
};

#define NUMBER(key, field, max, scale)                                                             \
	{                                                                                          \
		key, offsetof(struct settings, field), max, scale                                  \
	}

static const struct number numbers[] = {
	NUMBER("devices", devices, SOFT_DEVICES_MAX, 1),
	NUMBER("reserved_mib", reserved_bytes, 1U << 20, MIB),
	NUMBER("context_mib", context_bytes, 1U << 20, MIB),
	NUMBER("context_small_mib", context_small_bytes, 1U << 20, MIB),
	NUMBER("primed_mib", primed_bytes, 1U << 20, MIB),
	NUMBER("delays", delays, 1, 1),
	NUMBER("nvml_hang", nvml_hang, 1, 1),
	NUMBER("cuda_hang", cuda_hang, 1, 1),
	NUMBER("nvml_error", nvml_error, 999, 1),
	NUMBER("mismatch", mismatch, 1, 1),
	NUMBER("lost", lost, SOFT_DEVICES_MAX, 1),
	NUMBER("recovery_action", recovery_action, 4, 1),
	NUMBER("xid_lines", xid_lines, 1, 1),
	NUMBER("xid_early_pid", xid_early_pid, 1, 1),
	NUMBER("xid_events", xid_events, 1, 1),
	NUMBER("pinnable_mib", pinnable_bytes, 1U << 24, MIB),
	NUMBER("host_register", host_register, 1, 1),
	NUMBER("read_only_register", read_only_register, 1, 1),
	NUMBER("cuda_version", cuda_version, 99999, 1),
};

void settings_init(struct settings *settings)
{
	*settings = (struct settings){
		.devices = 1,
		.reserved_bytes = 615 * MIB,
		.context_bytes = 527 * MIB,
		.context_small_bytes = 329 * MIB,
		.primed_bytes = 3 * MIB,
		.lost = SOFT_DEVICES_MAX,
		.xid_lines = 1,
		.xid_events = 1,
		.pinnable_bytes = (1U << 24) * MIB,
		.host_register = 1,
		.read_only_register = 1,
		.cuda_version = 13000,
		.driver_version = "580.159.04",
	};
	for (int i = 0; i < SOFT_DEVICES_MAX; i++)
		settings->memory_bytes[i] = 143771 * MIB;
}

uint64_t settings_usable_bytes(const struct settings *settings, uint32_t device)
{
	uint64_t bytes = settings->memory_bytes[device];

	return settings->reserved_bytes < bytes ? bytes - settings->reserved_bytes : 0;
}

/* A decimal number up to MAX and nothing else. */
static bool parse_number(const char *text, uint64_t max, uint64_t *ret_value)
{
	char *end;
	unsigned long long value;

	if (!isdigit((unsigned char)*text))
		return false;
	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno || *end || value > max)
		return false;
	*ret_value = value;
	return true;
}

/* One amount for every device, or a list whose last amount counts for the rest. */
static bool parse_memory(struct settings *settings, char *text)
{
	uint64_t mib = 0;
	char *save = NULL;
	char *part = strtok_r(text, ",", &save);

	for (int i = 0; i < SOFT_DEVICES_MAX; i++) {
		if (part && (!parse_number(part, 1U << 24, &mib) || mib == 0))
			return false;
		if (!part && i == 0)
			return false;
		settings->memory_bytes[i] = mib * MIB;
		if (part)
			part = strtok_r(NULL, ",", &save);
	}
	return part == NULL;
}

static bool parse_version(struct settings *settings, const char *text)
{
	size_t length = strlen(text);

	if (length == 0 || length >= sizeof(settings->driver_version) ||
	    strspn(text, "0123456789.") != length)
		return false;
	memcpy(settings->driver_version, text, length + 1);
	return true;
}

static bool parse_word(const char *key, const char *text, uint64_t *ret_value)
{
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		if (strcmp(words[i].key, key) == 0 && strcmp(words[i].text, text) == 0) {
			*ret_value = words[i].value;
			return true;
		}
	}
	return false;
}

/* Returns 1 when KEY is a number of the table and VALUE fits, 0 when it does not fit, -1 no such key. */
static int parse_keyed(struct settings *settings, const char *key, const char *value)
{
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		uint64_t parsed;

		if (strcmp(numbers[i].key, key) != 0)
			continue;
		if (!parse_word(key, value, &parsed) &&
		    !parse_number(value, numbers[i].max, &parsed))
			return 0;
		parsed *= numbers[i].scale;
		memcpy((char *)settings + numbers[i].offset, &parsed, sizeof(parsed));
		return 1;
	}
	return -1;
}

static char *trim(char *text)
{
	size_t length;

	while (isspace((unsigned char)*text))
		text++;
	length = strlen(text);
	while (length > 0 && isspace((unsigned char)text[length - 1]))
		text[--length] = '\0';
	return text;
}

/* Returns NULL, or what is wrong with the line. */
static const char *parse_line(struct settings *settings, char *line)
{
	char *value;
	int found;

	line[strcspn(line, "#")] = '\0';
	line = trim(line);
	if (!*line)
		return NULL;
	value = strchr(line, '=');
	if (!value)
		return "is not key=value";
	*value++ = '\0';
	line = trim(line);
	value = trim(value);
	if (strcmp(line, "memory_mib") == 0)
		found = parse_memory(settings, value);
	else if (strcmp(line, "driver_version") == 0)
		found = parse_version(settings, value);
	else
		found = parse_keyed(settings, line, value);
	if (found < 0)
		return "has a key that is not known";
	return found ? NULL : "has a value that is not allowed";
}

int settings_parse(struct settings *settings, char *text, char *why, size_t why_bytes)
{
	struct settings parsed;
	int number = 0;

	settings_init(&parsed);
	while (text) {
		char *next = strchr(text, '\n');
		char shown[64];
		const char *wrong;

		if (next)
			*next++ = '\0';
		number++;
		(void)snprintf(shown, sizeof(shown), "%.60s", text);
		wrong = parse_line(&parsed, text);
		if (wrong) {
			(void)snprintf(why, why_bytes, "settings line %d (%s) %s", number, shown,
				       wrong);
			return -EINVAL;
		}
		text = next;
	}
	*settings = parsed;
	return 0;
}
