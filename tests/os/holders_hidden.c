/* SPDX-License-Identifier: MIT */
/*
 * Description: a scan finds references that are in no process's ordinary table of descriptors: tables of single
 * threads, descriptors in flight, files of an io_uring, mappings; it takes nothing away by looking, and says what
 * it could not look at.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stage.h"

static int set_up_emulated(void **state)
{
	(void)state;
	stage_begin(STAGE_EMULATED);
	return 0;
}

static int set_up_numbers(void **state)
{
	(void)state;
	stage_begin(STAGE_NUMBERS);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	stage_finish();
	return 0;
}

static void *report_and_wait(void *argument)
{
	(void)argument;
	stage_ready((int32_t)syscall(SYS_gettid));
	stage_wait_end();
	_exit(0);
}

/* The first thread ends when it has started another, which lives. */
static int32_t leave_a_thread(void *argument)
{
	pthread_t thread;

	(void)argument;
	if (stage_open() < 0 || pthread_create(&thread, NULL, report_and_wait, NULL))
		return -EAGAIN;
	syscall(SYS_exit, 0);
	return 0;
}

/* The state of PID as /proc shows it. */
static char state_of(pid_t pid)
{
	char path[64], text[512];
	FILE *stream;
	size_t got;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	stream = fopen(path, "re");
	assert_non_null(stream);
	got = fread(text, 1, sizeof(text) - 1, stream);
	text[got] = '\0';
	(void)fclose(stream);
	return strrchr(text, ')')[2];
}

static void a_living_thread_of_a_zombie_leader_is_found(void **state)
{
	struct stage_child child = stage_child(leave_a_thread, NULL);
	const struct scan_process *process;

	(void)state;
	while (state_of(child.pid) != 'Z')
		sched_yield();
	stage_scan();
	process = scan_find(&stage.scan, child.pid);
	assert_non_null(process);
	assert_int_equal(stage_count(child.pid, SCAN_FD_OF_THREAD), 1);
	assert_int_equal(stage_count_all(child.pid), 1);
	assert_int_equal(stage_reference(child.pid, SCAN_FD_OF_THREAD)->tid, child.value);
	assert_int_equal(process->state, 'Z');
	assert_true(process->flags & SCAN_ZOMBIE_LEADER);
	assert_int_equal(process->wchan_tid, child.value);
	stage_end(&child);
}

static void *open_in_own_table(void *argument)
{
	int32_t *value = argument;

	if (unshare(CLONE_FILES) < 0)
		*value = -errno;
	else
		*value = stage_open();
	return report_and_wait(NULL);
}

static int32_t hold_in_a_thread(void *argument)
{
	pthread_t thread;
	int32_t value;

	(void)argument;
	if (pthread_create(&thread, NULL, open_in_own_table, &value))
		return -EAGAIN;
	(void)pthread_join(thread, NULL);
	return -EAGAIN;
}

static void a_table_of_a_single_thread_is_found(void **state)
{
	struct stage_child child = stage_child(hold_in_a_thread, NULL);
	const struct scan_reference *reference;

	(void)state;
	stage_scan();
	assert_int_equal(stage_count_all(child.pid), 1);
	reference = stage_reference(child.pid, SCAN_FD_OF_THREAD);
	assert_non_null(reference);
	assert_int_equal(reference->tid, child.value);
	assert_true(reference->fd >= 0);
	stage_end(&child);
}

static void *wait_for_end(void *argument)
{
	stage_wait_end();
	return argument;
}

static int32_t hold_with_threads(void *argument)
{
	pthread_t thread;
	int32_t count = *(const int32_t *)argument;

	for (int32_t i = 0; i < count; i++) {
		pthread_attr_t attributes;

		(void)pthread_attr_init(&attributes);
		(void)pthread_attr_setstacksize(&attributes, 16384);
		if (pthread_create(&thread, &attributes, wait_for_end, NULL))
			return -EAGAIN;
		(void)pthread_attr_destroy(&attributes);
	}
	return stage_open();
}

static void threads_that_share_a_table_are_one_holder(void **state)
{
	int32_t threads = 200;
	struct stage_child child = stage_child(hold_with_threads, &threads);

	(void)state;
	stage_scan();
	assert_int_equal(stage_count_all(child.pid), 1);
	assert_int_equal(stage_count(child.pid, SCAN_FD), 1);
	assert_int_equal(scan_find(&stage.scan, child.pid)->threads, threads + 1);
	stage_kill(&child);
}

/* Sends COUNT descriptors FD in one message to SOCKET. */
static int send_fds(int socket, int fd, int count)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(16 * sizeof(int))];
	} control = {0};
	char byte = 'x';
	struct iovec data = {.iov_base = &byte, .iov_len = 1};
	struct msghdr message = {.msg_iov = &data,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = CMSG_SPACE((size_t)count * sizeof(int))};

	control.header.cmsg_level = SOL_SOCKET;
	control.header.cmsg_type = SCM_RIGHTS;
	control.header.cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
	for (int i = 0; i < count; i++)
		memcpy(CMSG_DATA(&control.header) + (size_t)i * sizeof(int), &fd, sizeof(int));
	return sendmsg(socket, &message, 0) == 1 ? 0 : -errno;
}

struct flight {
	int type;
	int fds; /* in each message */
	int messages;
	int plain_bytes; /* sent before, without descriptors */
	bool close_sender;
};

/* Descriptors that nobody has but the socket that they were sent to. */
static int32_t hold_in_flight(void *argument)
{
	const struct flight *flight = argument;
	int pair[2];
	int fd = stage_open();

	if (fd < 0 || socketpair(AF_UNIX, flight->type | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	if (flight->plain_bytes && write(pair[0], "0123456789", (size_t)flight->plain_bytes) < 0)
		return -errno;
	for (int i = 0; i < flight->messages; i++) {
		if (send_fds(pair[0], fd, flight->fds) < 0)
			return -errno;
	}
	(void)close(fd);
	if (flight->close_sender)
		(void)close(pair[0]);
	return pair[1];
}

/* How many descriptors are in flight to FD of PID, as the kernel says. */
static unsigned int flying(pid_t pid, int fd)
{
	char path[64], line[128];
	unsigned int count = 0;
	FILE *stream;

	(void)snprintf(path, sizeof(path), "/proc/%d/fdinfo/%d", pid, fd);
	stream = fopen(path, "re");
	assert_non_null(stream);
	while (fgets(line, sizeof(line), stream))
		(void)sscanf(line, "scm_fds: %u", &count);
	(void)fclose(stream);
	return count;
}

static void in_flight(struct flight flight, unsigned int seen)
{
	unsigned int all = (unsigned int)(flight.fds * flight.messages);
	struct stage_child child = stage_child(hold_in_flight, &flight);
	const struct scan_reference *reference;

	stage_scan();
	stage_scan();
	reference = stage_reference(child.pid, SCAN_IN_FLIGHT);
	assert_non_null(reference);
	assert_int_equal(reference->fd, child.value);
	assert_int_equal(reference->count, seen);
	assert_int_equal(stage_count_all(child.pid), 1);
	assert_int_equal(stage_count_all(getpid()), 0);
	assert_true(stage.scan.unseen.in_flight_hidden >= all - seen);
	assert_int_equal(flying(child.pid, child.value), all);
	stage_end(&child);
}

static void descriptors_in_flight_are_found(void **state)
{
	(void)state;
	in_flight((struct flight){.type = SOCK_STREAM, .fds = 1, .messages = 1}, 1);
	in_flight((struct flight){.type = SOCK_STREAM, .fds = 3, .messages = 1, .plain_bytes = 9},
		  3);
	in_flight((struct flight){.type = SOCK_DGRAM, .fds = 2, .messages = 1}, 2);
	in_flight((struct flight){.type = SOCK_SEQPACKET, .fds = 1, .messages = 1}, 1);
}

static void descriptors_in_flight_are_found_when_the_sender_is_gone(void **state)
{
	(void)state;
	in_flight(
		(struct flight){.type = SOCK_STREAM, .fds = 2, .messages = 1, .close_sender = true},
		2);
	in_flight(
		(struct flight){
			.type = SOCK_SEQPACKET, .fds = 1, .messages = 1, .close_sender = true},
		1);
}

static void what_is_behind_the_first_message_is_counted_as_hidden(void **state)
{
	(void)state;
	in_flight((struct flight){.type = SOCK_STREAM, .fds = 2, .messages = 3}, 2);
}

/* A device in flight in a socket that is in flight itself. */
static int32_t hold_in_flight_in_flight(void *argument)
{
	int inner[2], outer[2];
	int fd = stage_open();

	(void)argument;
	if (fd < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, inner) < 0 ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, outer) < 0)
		return -errno;
	if (send_fds(inner[0], fd, 1) < 0 || send_fds(outer[0], inner[1], 1) < 0)
		return -EIO;
	(void)close(fd);
	(void)close(inner[0]);
	(void)close(inner[1]);
	return outer[1];
}

static void descriptors_in_flight_in_flight_are_found(void **state)
{
	struct stage_child child = stage_child(hold_in_flight_in_flight, NULL);

	(void)state;
	stage_scan();
	assert_int_equal(stage_count_all(child.pid), 1);
	assert_int_equal(stage_count(child.pid, SCAN_IN_FLIGHT), 1);
	assert_int_equal(stage_reference(child.pid, SCAN_IN_FLIGHT)->fd, child.value);
	stage_end(&child);
}

/* A socket with a peek offset is left alone: a peek would move it. */
static int32_t hold_in_a_peeked_socket(void *argument)
{
	int zero = 0;
	int32_t fd = hold_in_flight(argument);

	if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &zero, sizeof(zero)) < 0)
		return -errno;
	return fd;
}

static void a_socket_with_a_peek_offset_is_left_alone(void **state)
{
	struct flight flight = {.type = SOCK_STREAM, .fds = 1, .messages = 1};
	struct stage_child child = stage_child(hold_in_a_peeked_socket, &flight);

	(void)state;
	stage_scan();
	assert_int_equal(stage_count_all(child.pid), 0);
	assert_true(stage.scan.unseen.in_flight_hidden >= 1);
	stage_end(&child);
}

/* An io_uring that has the device registered, and no descriptor for it. */
static int32_t hold_in_a_ring(void *argument)
{
	struct io_uring_params parameters = {0};
	int fds[3] = {-1, -1, -1};
	int ring = (int)syscall(SYS_io_uring_setup, 4, &parameters);

	(void)argument;
	if (ring < 0)
		return 0; /* not allowed here */
	fds[1] = stage_open();
	fds[2] = fds[1];
	if (fds[1] < 0 || syscall(SYS_io_uring_register, ring, IORING_REGISTER_FILES, fds, 3) < 0)
		return -errno;
	(void)close(fds[1]);
	return ring;
}

/* Among so many that the kernel's list of them is longer than any buffer. */
static int32_t hold_in_a_large_ring(void *argument)
{
	enum {
		FILES = 9000
	};
	struct io_uring_params parameters = {0};
	static int fds[FILES];
	int ring = (int)syscall(SYS_io_uring_setup, 4, &parameters);

	(void)argument;
	if (ring < 0)
		return 0; /* not allowed here */
	fds[0] = open("/etc/passwd", O_RDONLY | O_CLOEXEC);
	for (int i = 1; i < FILES; i++)
		fds[i] = fds[0];
	fds[FILES - 1] = stage_open();
	if (syscall(SYS_io_uring_register, ring, IORING_REGISTER_FILES, fds, FILES) < 0)
		return errno == EMFILE ? 0 : -errno;
	(void)close(fds[FILES - 1]);
	return ring;
}

static void a_file_of_a_large_io_uring_is_found(void **state)
{
	struct stage_child child = stage_child(hold_in_a_large_ring, NULL);

	(void)state;
	if (child.value == 0) {
		stage_end(&child);
		printf("such an io_uring is not allowed here\n");
		skip();
	}
	stage_scan();
	assert_int_equal(stage_count(child.pid, SCAN_IO_URING), 1);
	assert_int_equal(stage_reference(child.pid, SCAN_IO_URING)->count, 1);
	assert_int_equal(stage_count_all(child.pid), 1);
	stage_end(&child);
}

static void a_file_of_an_io_uring_is_found(void **state)
{
	struct stage_child child = stage_child(hold_in_a_ring, NULL);
	const struct scan_reference *reference;

	(void)state;
	if (child.value == 0) {
		stage_end(&child);
		printf("io_uring is not allowed here\n");
		skip();
	}
	stage_scan();
	reference = stage_reference(child.pid, SCAN_IO_URING);
	assert_non_null(reference);
	assert_int_equal(reference->fd, child.value);
	assert_int_equal(reference->count, 2);
	assert_int_equal(stage_count_all(child.pid), 1);
	stage_end(&child);
}

static int32_t hold_a_mapping(void *argument)
{
	int fd = open(stage.mappable, O_RDWR | O_CLOEXEC);

	(void)argument;
	if (fd < 0 || mmap(NULL, 8192, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED ||
	    mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) == MAP_FAILED)
		return -errno;
	return close(fd);
}

static void a_mapping_without_a_descriptor_is_found(void **state)
{
	struct stage_child child = stage_child(hold_a_mapping, NULL);
	const struct scan_reference *reference;
	const struct scan_process *process;

	(void)state;
	stage_scan();
	process = scan_find(&stage.scan, child.pid);
	assert_non_null(process);
	reference = stage_reference(child.pid, SCAN_MAPPING);
	assert_non_null(reference);
	assert_int_equal(reference->fd, -1);
	assert_int_equal(reference->count, 2);
	assert_int_equal(reference->bytes, 8192 + 4096);
	assert_int_equal(stage_count_all(child.pid), 1);
	assert_int_equal(process->ppid, getpid());
	assert_true(process->cmdline_bytes > 0);
	stage.options.without_maps = true;
	stage_scan();
	assert_int_equal(stage_count_all(child.pid), 0);
	stage_end(&child);
}

#define EMULATED(name) cmocka_unit_test_setup_teardown(name, set_up_emulated, tear_down)
#define NUMBERS(name)                                                                              \
	{                                                                                          \
#name " (device numbers)", name, set_up_numbers, tear_down, NULL                   \
	}

int main(void)
{
	const struct CMUnitTest tests[] = {
		EMULATED(a_living_thread_of_a_zombie_leader_is_found),
		NUMBERS(a_living_thread_of_a_zombie_leader_is_found),
		EMULATED(a_table_of_a_single_thread_is_found),
		NUMBERS(a_table_of_a_single_thread_is_found),
		EMULATED(threads_that_share_a_table_are_one_holder),
		EMULATED(descriptors_in_flight_are_found),
		NUMBERS(descriptors_in_flight_are_found),
		EMULATED(descriptors_in_flight_are_found_when_the_sender_is_gone),
		EMULATED(what_is_behind_the_first_message_is_counted_as_hidden),
		EMULATED(descriptors_in_flight_in_flight_are_found),
		EMULATED(a_socket_with_a_peek_offset_is_left_alone),
		EMULATED(a_file_of_an_io_uring_is_found),
		NUMBERS(a_file_of_an_io_uring_is_found),
		EMULATED(a_file_of_a_large_io_uring_is_found),
		EMULATED(a_mapping_without_a_descriptor_is_found),
		NUMBERS(a_mapping_without_a_descriptor_is_found),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
