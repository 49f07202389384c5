/* SPDX-License-Identifier: MIT */
/*
 * What the host tells the ward. Each order arrives, or what it is for is reached in another way.
 *
 * Runs in: host, under the pool's lock; never blocks. A message needs memory of the kernel, and room in
 * the socket of a ward that may be stopped. A signal and the end of a stream need neither:
 *
 *	kill		SIGKILL by the host itself; the ward sees the death
 *	close		the end of the stream, at which the ward ends all workers at once
 *	kick		is tried again at the next look; wait.c looks every few milliseconds until then
 *
 * Read next: ../ward/ward.c for how the orders are taken.
 */
#include "lib/pool.h"

#include <sys/socket.h>

#include "linux/procref.h"

void orders_kill(struct gw_pool *pool, struct wire_kill kill, int pidfd)
{
	const struct procref worker = {.pid = -1, .pidfd = pidfd};

	wire_header_init(&kill.header, WIRE_KILL, sizeof(kill));
	if (wire_send(pool->ward_socket, &kill, NULL, 0) == 0 ||
	    procref_signal(&worker, SIGKILL) == 0)
		return;
	/* Nothing else is left to end it by. A ward that is gone already does not mind. */
	orders_close(pool);
}

void orders_close(struct gw_pool *pool)
{
	struct wire_close message;

	wire_header_init(&message.header, WIRE_CLOSE, sizeof(message));
	if (wire_send(pool->ward_socket, &message, NULL, 0) < 0)
		(void)shutdown(pool->ward_socket, SHUT_WR);
}

void orders_kick(struct gw_pool *pool)
{
	struct wire_kick kick;

	wire_header_init(&kick.header, WIRE_KICK, sizeof(kick));
	pool->kick_unsent = wire_send(pool->ward_socket, &kick, NULL, 0) < 0 && !pool->ward_lost;
	if (pool->kick_unsent)
		atomic_store(&pool->page->next_look_ns, GW_FOREVER);
}
