/* SPDX-License-Identifier: MIT */
#include "cli/source.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <gpuward.h>

struct words {
	const char *name;
	const char *id;
};

static const struct words words[GW_SOURCES] = {
	[GW_SOURCE_UNKNOWN] = {"unknown", "unknown"},
	[GW_SOURCE_RESULT] = {"its result", "result"},
	[GW_SOURCE_DEATH] = {"its death", "death"},
	[GW_SOURCE_DEADLINE] = {"a deadline", "deadline"},
	[GW_SOURCE_REQUEST] = {"a request", "request"},
	[GW_SOURCE_KERNEL_LOG] = {"the kernel log", "kernel_log"},
	[GW_SOURCE_NVML] = {"an NVML event", "nvml_event"},
	[GW_SOURCE_PROTOCOL] = {"the ward's checks", "protocol"},
	[GW_SOURCE_ERROR_LOG] = {"CUDA's error log", "error_log"},
	[GW_SOURCE_HEARTBEAT] = {"no heartbeat", "heartbeat"},
};

const char *source_name(uint32_t source)
{
	return words[source < GW_SOURCES ? source : GW_SOURCE_UNKNOWN].name;
}

const char *source_id(uint32_t source)
{
	return words[source < GW_SOURCES ? source : GW_SOURCE_UNKNOWN].id;
}

static const char *known_reason(uint32_t source, int32_t code)
{
	switch (code) {
	case 0:
		return "listened to";
	case GW_ENOTUSED:
		return source == GW_SOURCE_NVML
			       ? "not used: switched off, or the kernel log is better"
			       : "not used: switched off";
	case -EPERM:
	case -EACCES:
		return source == GW_SOURCE_KERNEL_LOG
			       ? "not allowed: the ward needs root or CAP_SYSLOG"
			       : "not allowed";
	case -EXDEV:
		return "its pids are those of another pid namespace";
	case -ENOENT:
		return "not there";
	case -EOPNOTSUPP:
		return "this driver has none";
	case GW_EDRIVER:
		return "the driver is missing, too old, or does not answer";
	default:
		return NULL;
	}
}

void source_error(uint32_t source, int32_t code, char text[SOURCE_TEXT_MAX])
{
	const char *reason = known_reason(source, code);

	if (reason)
		(void)snprintf(text, SOURCE_TEXT_MAX, "%s", reason);
	else if (code < 0 && code > -4096)
		(void)snprintf(text, SOURCE_TEXT_MAX, "failed: %s", strerror(-code));
	else
		(void)snprintf(text, SOURCE_TEXT_MAX, "failed with code %d", code);
}
