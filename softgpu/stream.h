/* SPDX-License-Identifier: MIT */
/*
 * Streams and events.
 *
 * Runs in: a process that uses CUDA, with the process's lock held.
 * Invariant: a handle is only believed when it is found in a list; NULL and the two special handles 1 and
 * 2 mean the default stream of the current context.
 * Read next: engine.h.
 */
#ifndef SOFTGPU_STREAM_H
#define SOFTGPU_STREAM_H

#include <stdint.h>

struct engine;
struct cuda_event;
struct cuda_stream;

/* The engine that serves STREAM. Returns a CUresult. */
int stream_engine(struct cuda_stream *stream, struct engine **ret_engine);

/* TICKET is now the newest work of STREAM. */
void stream_note(struct cuda_stream *stream, uint64_t ticket);

/* The mark of EVENT with this ticket was reached. The event may be gone. */
void event_reached(struct cuda_event *event, uint64_t ticket, const struct engine *engine);

#endif
