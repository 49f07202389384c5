/* SPDX-License-Identifier: MIT */
/*
 * Turns requests of the wire into calls of NVML and back: units, validity and errors.
 *
 * Runs in: probe. Every function here can hang with the driver. NVML is loaded and initialised at the
 * first request, so that a failure is an answer; after a failure the next request tries again, since
 * the driver may have been put right in between.
 *
 * Invariant: an amount that NVML does not say is GW_UNKNOWN, never 0. Read next: ../gpu/nvml.h.
 */
#ifndef GPUWARD_PROBE_ANSWER_H
#define GPUWARD_PROBE_ANSWER_H

#include <stdbool.h>

#include "gpu/nvml.h"
#include "probe/probe_wire.h"

/* All zero is its beginning. */
struct answer {
	bool ready;
	struct nvml_door door;
	struct nvml_event_set *events;
};

/* Fills the body of REPLY, or its error; the body is all zero then. */
void answer_request(struct answer *answer, const struct probe_request *request,
		    struct probe_reply *reply);

/* Gets ready for events. Returns 0 or a negative code. */
int answer_watch(struct answer *answer, struct gw_error *ret_error);

/* Waits for the next event, in the thread for events. One with an error is the last. */
void answer_next_event(struct answer *answer, struct probe_reply *ret_event);

#endif
