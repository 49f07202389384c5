/* SPDX-License-Identifier: MIT */
/*
 * A worker as the tests of the ward need it: it speaks common/wire.h by hand, and misbehaves as its first
 * argument says. It knows nothing of GPUs.
 *
 * Runs in: worker. Waits for the ward's STOP or end of file in the end, whatever it did before, unless
 * the behaviour is to stay. Read next: ward.c, which names the behaviours.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "common/channel.h"
#include "common/fd.h"
#include "common/wire.h"

static unsigned int incarnation;

/* The search for leaks traces a process at its end by another one, which outlives it when it is killed just
 * then: neither is the ward's doing. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "detect_leaks=0";
}

static void send_ready(const char *first, const char *second)
{
	struct wire_ready ready = {0};

	wire_header_init(&ready.header, WIRE_READY, sizeof(ready));
	ready.n_functions = second ? 2 : 1;
	(void)snprintf(ready.functions[0], GW_NAME_MAX, "%s", first);
	if (second)
		(void)snprintf(ready.functions[1], GW_NAME_MAX, "%s", second);
	if (wire_send(WIRE_WORKER_SOCKET, &ready, NULL, 0) < 0)
		_exit(90);
}

/* Returns when the ward asks to stop, or is gone. */
static int obey(void)
{
	union wire_any message;
	int fds[WIRE_FDS_MAX];
	int result = wire_receive(WIRE_WORKER_SOCKET, &message, fds);

	return result > 0 && message.header.type != WIRE_STOP ? 91 : 0;
}

static _Noreturn void stay(void)
{
	for (;;)
		(void)pause();
}

static int ready(void)
{
	send_ready("echo", NULL);
	return obey();
}

static int dies(void)
{
	return 3;
}

static int crashes(void)
{
	send_ready("echo", NULL);
	(void)signal(SIGSEGV, SIG_DFL);
	(void)raise(SIGSEGV);
	return 92;
}

static int crashes_once(void)
{
	return incarnation == 0 ? crashes() : ready();
}

static void send_fault(void)
{
	struct wire_fault fault = {.cuda = 700, .source = GW_SOURCE_RESULT, .task = 17};

	wire_header_init(&fault.header, WIRE_FAULT, sizeof(fault));
	(void)wire_send(WIRE_WORKER_SOCKET, &fault, NULL, 0);
}

static int faults(void)
{
	send_ready("echo", NULL);
	send_fault();
	_exit(1);
}

static int faults_and_stays(void)
{
	send_ready("echo", NULL);
	send_fault();
	stay();
}

static int mute(void)
{
	stay();
}

static int cannot_start(int32_t code, uint32_t domain, int64_t native, const char *text)
{
	struct wire_start_failed failed = {
		.error = {.code = code, .domain = domain, .native = native}};

	wire_header_init(&failed.header, WIRE_START_FAILED, sizeof(failed));
	(void)snprintf(failed.error.msg, sizeof(failed.error.msg), "%s", text);
	(void)wire_send(WIRE_WORKER_SOCKET, &failed, NULL, 0);
	return 125;
}

static int no_driver(void)
{
	return cannot_start(GW_EDRIVER, GW_DOMAIN_CUDA, 803, "the driver does not match");
}

static int no_library(void)
{
	return cannot_start(GW_EDRIVER, GW_DOMAIN_OS, ENOENT, "libcuda.so.1 is not here");
}

static int no_memory(void)
{
	return cannot_start(-ENOMEM, GW_DOMAIN_CUDA, 2, "no device memory is left");
}

static int garbage(void)
{
	char bytes[100];

	memset(bytes, 0x5a, sizeof(bytes));
	(void)send(WIRE_WORKER_SOCKET, bytes, sizeof(bytes), MSG_NOSIGNAL);
	stay();
}

static int garbage_lengths(void)
{
	struct wire_ready message = {0};

	wire_header_init(&message.header, WIRE_READY, sizeof(message));
	message.n_functions = 0xffffffffU;
	(void)wire_send(WIRE_WORKER_SOCKET, &message, NULL, 0);
	stay();
}

/* A message of the host, with descriptors that nobody asked for. */
static int foreign_message(void)
{
	struct wire_close message;
	const int fds[] = {0, 1, 2};

	wire_header_init(&message.header, WIRE_CLOSE, sizeof(message));
	(void)wire_send(WIRE_WORKER_SOCKET, &message, fds, 3);
	stay();
}

static int ready_twice(void)
{
	send_ready("echo", NULL);
	send_ready("echo", NULL);
	stay();
}

static int other_version(void)
{
	struct wire_ready message = {.n_functions = 0};

	wire_header_init(&message.header, WIRE_READY, sizeof(message));
	memcpy(message.header.version, "9.9.9", 6);
	(void)wire_send(WIRE_WORKER_SOCKET, &message, NULL, 0);
	stay();
}

static int hangs_up(void)
{
	send_ready("echo", NULL);
	(void)close(WIRE_WORKER_SOCKET);
	stay();
}

static int deaf(void)
{
	send_ready("echo", NULL);
	stay();
}

/* Shows its environment as the names of its functions. */
static int shows_environment(void)
{
	char name[GW_NAME_MAX];

	(void)snprintf(name, sizeof(name), "%s/%s",
		       getenv("CUDA_DEVICE_ORDER") ? getenv("CUDA_DEVICE_ORDER") : "-",
		       getenv("CUDA_VISIBLE_DEVICES") ? getenv("CUDA_VISIBLE_DEVICES") : "-");
	send_ready(getenv(WIRE_WORKER_ENV), name);
	return obey();
}

/* Serves tasks: function 0 is quick, function 1 never ends. */
static int works(void)
{
	atomic_bool stop = false;
	struct spin never = {0};
	struct channel_entry entry;
	struct channel_map map;

	if (channel_map(&map, WIRE_WORKER_CHANNEL, 0) < 0)
		return 93;
	send_ready("quick", "endless");
	for (uint32_t number = 0;; number++) {
		channel_wait_entry(map.shared, number, &stop, &never);
		if (!channel_claim(map.shared, number, &entry))
			return 94;
		atomic_store(&map.shared->running_since_ns, now_ns());
		if (entry.function == 1)
			stay();
		channel_complete(map.shared, number, WIRE_WORKER_EVENT);
	}
}

/* Moves its start time all the time, so as to be never late. */
static int postpones(void)
{
	struct channel_map map;

	if (channel_map(&map, WIRE_WORKER_CHANNEL, 0) < 0)
		return 93;
	send_ready("quick", "endless");
	for (;;) {
		const struct timespec moment = {.tv_nsec = 1000000};

		atomic_store(&map.shared->running_since_ns, now_ns());
		(void)nanosleep(&moment, NULL);
	}
}

static int lies(void)
{
	struct channel_map map;

	if (channel_map(&map, WIRE_WORKER_CHANNEL, 0) < 0)
		return 93;
	atomic_store(&map.shared->completed, 1000000);
	send_ready("echo", NULL);
	stay();
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(void);
	} behaviours[] = {
		{"ready", ready},
		{"dies", dies},
		{"crashes", crashes},
		{"crashes-once", crashes_once},
		{"faults", faults},
		{"faults-and-stays", faults_and_stays},
		{"mute", mute},
		{"no-driver", no_driver},
		{"no-library", no_library},
		{"no-memory", no_memory},
		{"garbage", garbage},
		{"garbage-lengths", garbage_lengths},
		{"foreign-message", foreign_message},
		{"ready-twice", ready_twice},
		{"other-version", other_version},
		{"hangs-up", hangs_up},
		{"deaf", deaf},
		{"shows-environment", shows_environment},
		{"works", works},
		{"postpones", postpones},
		{"lies", lies},
	};
	const char *told = getenv(WIRE_WORKER_ENV);

	if (!told || sscanf(told, "%*u:%*u:%u", &incarnation) != 1)
		return 95;
	for (size_t i = 0; i < sizeof(behaviours) / sizeof(behaviours[0]); i++) {
		if (argc > 1 && strcmp(argv[1], behaviours[i].name) == 0)
			return behaviours[i].run();
	}
	return 96;
}
