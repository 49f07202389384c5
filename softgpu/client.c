/* SPDX-License-Identifier: MIT */
#include "client.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/fd.h"

#define DEFAULT_CONNECTIONS 8

/* A shared lock: any number of open file descriptions can keep the same range alive. */
static int lock_range(int fd, uint64_t start, uint64_t bytes)
{
	struct flock range = {
		.l_type = F_RDLCK,
		.l_whence = SEEK_SET,
		.l_start = (off_t)start,
		.l_len = (off_t)bytes,
	};

	return fcntl(fd, F_OFD_SETLK, &range) < 0 ? -errno : 0;
}

static int open_locked(const struct machine *machine, int device, uint32_t index)
{
	int fd = machine_device_file(machine, device, O_RDWR);
	int result;

	if (fd < 0)
		return fd;
	result = lock_range(fd, index, 1);
	if (result < 0) {
		fd_close(fd);
		return result;
	}
	return fd;
}

static int open_all(struct client *client, const struct machine *machine)
{
	client->control_fd = open_locked(machine, -1, client->index);
	if (client->control_fd < 0)
		return client->control_fd;
	client->uvm_fd = open_locked(machine, -2, client->index);
	if (client->uvm_fd < 0)
		return client->uvm_fd;
	client->data_fd = machine_device_file(machine, -1, O_RDWR);
	if (client->data_fd < 0)
		return client->data_fd;
	for (int i = 0; i < (int)machine->settings.devices; i++) {
		client->device_fds[i] = open_locked(machine, i, client->index);
		if (client->device_fds[i] < 0)
			return client->device_fds[i];
	}
	return 0;
}

static void close_all(struct client *client)
{
	fd_closep(&client->control_fd);
	fd_closep(&client->uvm_fd);
	fd_closep(&client->data_fd);
	for (int i = 0; i < SOFT_DEVICES_MAX; i++)
		fd_closep(&client->device_fds[i]);
}

/*
 * The kernel log names pids of the initial pid namespace. A process cannot ask for that number; the
 * first one of NSpid is its number where /proc was mounted, which is as far out as it can see.
 */
static int outer_pid(void)
{
	FILE *file = fopen("/proc/self/status", "re");
	char line[256];
	int pid = getpid();

	if (!file)
		return pid;
	while (fgets(line, sizeof(line), file)) {
		if (strncmp(line, "NSpid:", 6) == 0 && atoi(line + 6) > 0)
			pid = atoi(line + 6);
	}
	(void)fclose(file);
	return pid;
}

static void read_name(char *name, size_t bytes)
{
	int fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? -1 : read(fd, name, bytes - 1);

	fd_close(fd);
	name[got > 0 ? got : 0] = '\0';
	name[strcspn(name, "\n")] = '\0';
}

/* How many hardware queues a context has. The variable counts at cuInit alone. */
static uint64_t read_connections(void)
{
	const char *text = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
	unsigned long number = text ? strtoul(text, NULL, 10) : 0;

	return number >= 1 && number <= 32 ? number : DEFAULT_CONNECTIONS;
}

static int write_entry(struct client *client, struct table *table)
{
	const struct settings *settings = &table->machine->settings;
	struct table_client *entry = &table->clients[client->index];
	struct stat pid_namespace = {0};
	uint32_t memory;

	(void)stat("/proc/self/ns/pid", &pid_namespace);
	*entry = (struct table_client){
		.used = 1,
		.pid = outer_pid(),
		.inner_pid = getpid(),
		.devices = (uint32_t)settings->devices,
		.pid_namespace = pid_namespace.st_ino,
		.connections = read_connections(),
	};
	read_name(entry->name, sizeof(entry->name));
	if (table_put_client(table, client->index) < 0)
		return -EIO;
	if (settings->primed_bytes == 0)
		return 0;
	return table_new_memory(table, client->index, 0, TABLE_OVERHEAD, settings->primed_bytes,
				&memory);
}

int client_join(struct client *client, struct table *table)
{
	int result;

	*client = (struct client){.control_fd = -1, .uvm_fd = -1, .data_fd = -1};
	for (int i = 0; i < SOFT_DEVICES_MAX; i++)
		client->device_fds[i] = -1;
	client->index = table_new_client(table);
	if (client->index == TABLE_NONE) {
		machine_say("more than %d processes use %s", TABLE_CLIENTS, table->machine->dir);
		return -EAGAIN;
	}
	result = open_all(client, table->machine);
	if (result < 0)
		machine_say("cannot open or lock a device of %s/dev: %s", table->machine->dir,
			    strerror(-result));
	else
		result = write_entry(client, table);
	if (result < 0)
		close_all(client);
	return result;
}

int client_export(const struct machine *machine, uint64_t offset, uint64_t bytes)
{
	cleanup_fd int fd = machine_device_file(machine, -1, O_RDWR);
	int result;

	if (fd < 0)
		return fd;
	result = lock_range(fd, offset, bytes);
	if (result < 0)
		return result;
	if (lseek(fd, (off_t)offset, SEEK_SET) < 0)
		return -errno;
	return fd_steal(&fd);
}

void *client_map(const struct client *client, uint64_t offset, uint64_t bytes)
{
	return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
		    client->data_fd, (off_t)offset);
}
