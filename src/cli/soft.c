/* SPDX-License-Identifier: MIT */
#include "cli/soft.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/soft_end.h"
#include "common/fd.h"
#include "linux/spawn.h"

#define INSIDE_ENV     "GPUWARD_SOFT_INSIDE"
#define KERNEL_LOG_ENV "GPUWARD_KERNEL_LOG"

/* The largest file that each emulated machine has: its table of processes and memory. */
#define FILE_SIZE_MIN (16U << 20)

/* A machine of our own behaves, in time too, as the one that was measured. */
static const char own_settings[] = "# An H200, as measured.\ndelays=measured\n";

bool soft_is_inside(void)
{
	return getenv(INSIDE_ENV) != NULL;
}

bool soft_is_measured(void)
{
	const char *folder = getenv(SOFT_DIR_ENV);
	char path[PATH_MAX], line[256];
	bool measured = false;
	FILE *settings;

	(void)snprintf(path, sizeof(path), "%s/settings", folder ? folder : "");
	settings = folder ? fopen(path, "re") : NULL;
	while (settings && fgets(line, sizeof(line), settings)) {
		if (strncmp(line, "delays=", 7) == 0)
			measured = strncmp(line + 7, "measured", 8) == 0;
	}
	if (settings)
		(void)fclose(settings);
	return measured;
}

/* The folder with the emulated driver: beside the program in a build, else where it was installed. */
static bool find_library(char folder[PATH_MAX])
{
	static const char *const places[] = {"softgpu", "../" GPUWARD_LIBDIR "/gpuward/softgpu"};
	char self[PATH_MAX], library[PATH_MAX + 32];
	ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	self[length > 0 ? length : 0] = '\0';
	slash = strrchr(self, '/');
	if (!slash)
		return false;
	*slash = '\0';
	for (size_t i = 0; i < 2; i++) {
		int bytes = snprintf(folder, PATH_MAX, "%s/%s", self, places[i]);

		(void)snprintf(library, sizeof(library), "%s/libcuda.so.1", folder);
		if (bytes < PATH_MAX && access(library, R_OK) == 0)
			return true;
	}
	return false;
}

static int write_settings(const char *folder)
{
	struct rlimit limit;
	char path[PATH_MAX];
	cleanup_fd int fd = -1;

	/* The emulated machine is made of files: under such a limit it could not work, and the kernel would end
	 * this process by SIGXFSZ at the first of them, with the folder left. */
	if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < FILE_SIZE_MIN)
		return -EFBIG;
	(void)snprintf(path, sizeof(path), "%s/settings", folder);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	if (write(fd, own_settings, sizeof(own_settings) - 1) != (ssize_t)sizeof(own_settings) - 1)
		return -ENOSPC;
	return 0;
}

/* Makes a machine's folder and names it in the environment. Returns 0 or -errno; FOLDER is empty where
 * there is nothing to remove. */
static int make_machine(char *folder, size_t bytes)
{
	const char *base = getenv("XDG_RUNTIME_DIR");
	int result;

	if (!base || access(base, W_OK) != 0)
		base = "/tmp";
	(void)snprintf(folder, bytes, "%s/gpuward-soft-XXXXXX", base);
	if (!mkdtemp(folder)) {
		int number = errno;

		folder[0] = '\0';
		return -number;
	}
	result = write_settings(folder);
	if (result == 0 && setenv(SOFT_DIR_ENV, folder, 1) < 0)
		result = -errno;
	return result;
}

/* Removes the folder NAME and what lies in it, one level deep at a time. */
static void remove_tree(int parent, const char *name)
{
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	DIR *folder = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	if (!folder) {
		fd_close(fd);
		return;
	}
	while ((entry = readdir(folder))) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		if (unlinkat(dirfd(folder), entry->d_name, 0) < 0 && errno == EISDIR)
			remove_tree(dirfd(folder), entry->d_name);
	}
	(void)closedir(folder);
	(void)unlinkat(parent, name, AT_REMOVEDIR);
}

/* Removes the machine's folder, which a process that is being killed may still use: from the first moment nobody
 * finds it any more, and so nobody makes a file in it while it is being emptied. */
static void remove_machine(const char *folder)
{
	char aside[PATH_MAX + 8];

	(void)snprintf(aside, sizeof(aside), "%s-gone", folder);
	if (rename(folder, aside) == 0)
		remove_tree(AT_FDCWD, aside);
}

/* What is left of a process that only waits for its parent's end. */
static _Noreturn void tidy(const char *folder, int parent_pidfd)
{
	struct pollfd parent = {.fd = parent_pidfd, .events = POLLIN};

	(void)prctl(PR_SET_NAME, "gpuward-tidy");
	/* A pipe that the program was given ends when the program does. */
	if (parent_pidfd > 0)
		(void)close_range(0, (unsigned int)parent_pidfd - 1, 0);
	(void)close_range((unsigned int)parent_pidfd + 1, ~0U, 0);
	while (poll(&parent, 1, -1) < 0 && errno == EINTR)
		continue;
	remove_machine(folder);
	_exit(0);
}

/*
 * Starts a process that removes FOLDER if this one is killed. Its end makes no SIGCHLD, and waits for any
 * child do not see it (without __WALL): so it is no orphan that is waited for. Where it cannot be had, only
 * the tidiness after a SIGKILL is missing.
 */
static void start_tidying(const char *folder, struct procref *tidying)
{
	struct procref self = PROCREF_NONE;
	sigset_t all, before;

	if (procref_open(&self, getpid(), NULL) < 0)
		return;
	/* No signal but SIGKILL reaches it, and none that is meant for the group of this process. */
	(void)sigfillset(&all);
	(void)sigprocmask(SIG_SETMASK, &all, &before);
	/* Flags, stack and the place for the pidfd are the first three everywhere but on s390. */
	tidying->pid = (int32_t)syscall(SYS_clone, CLONE_PIDFD, NULL, &tidying->pidfd, NULL, NULL);
	if (tidying->pid == 0)
		tidy(folder, self.pidfd);
	if (tidying->pid > 0)
		(void)setpgid(tidying->pid, tidying->pid);
	(void)sigprocmask(SIG_SETMASK, &before, NULL);
	procref_done(&self);
}

static void stop_tidying(struct procref *tidying)
{
	siginfo_t end;

	if (tidying->pid <= 0)
		return;
	(void)procref_signal(tidying, SIGKILL);
	while (waitid(P_PIDFD, (id_t)tidying->pidfd, &end, WEXITED | __WALL) < 0 && errno == EINTR)
		continue;
	procref_done(tidying);
}

static int set_library_path(void)
{
	const char *old = getenv("LD_LIBRARY_PATH");
	char folder[PATH_MAX], path[2 * PATH_MAX];

	if (access("/proc/self/exe", F_OK) < 0) {
		(void)fprintf(stderr, "gpuward: --soft: /proc is not mounted\n");
		return -ENOSYS;
	}
	if (!find_library(folder)) {
		(void)fprintf(stderr,
			      "gpuward: --soft: the emulated driver is not installed beside "
			      "this program (softgpu/libcuda.so.1)\n");
		return -ENOENT;
	}
	(void)snprintf(path, sizeof(path), "%s%s%.*s", folder, old && *old ? ":" : "", PATH_MAX,
		       old ? old : "");
	if (setenv("LD_LIBRARY_PATH", path, 1) < 0 || setenv(INSIDE_ENV, "1", 1) < 0)
		return -errno;
	return 0;
}

/*
 * What a supervisor sends is for the program. What the terminal sends (Ctrl-C) comes from the kernel, and
 * has reached the program by itself: both are in the foreground.
 */
static void pass_signal(const struct procref *process, int signal_fd)
{
	struct signalfd_siginfo info;

	if (read(signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info) &&
	    info.ssi_signo != SIGCHLD && info.ssi_code != SI_KERNEL)
		(void)procref_signal(process, (int)info.ssi_signo);
}

static int wait_for(const struct procref *process, int signal_fd, struct procref_end *ret_end)
{
	struct pollfd fds[] = {{.fd = process->pidfd, .events = POLLIN},
			       {.fd = signal_fd, .events = POLLIN}};

	for (;;) {
		int result = procref_reap(process, ret_end);

		if (result != 0)
			return result;
		if (poll(fds, 2, -1) < 0 && errno != EINTR)
			return -errno;
		if (fds[1].revents & POLLIN)
			pass_signal(process, signal_fd);
	}
}

static int signals_open(void)
{
	static const int passed[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD};
	sigset_t mask;

	(void)sigemptyset(&mask);
	for (size_t i = 0; i < sizeof(passed) / sizeof(passed[0]); i++)
		(void)sigaddset(&mask, passed[i]);
	(void)sigprocmask(SIG_BLOCK, &mask, NULL);
	return signalfd(-1, &mask, SFD_CLOEXEC);
}

static int exit_code(const struct procref_end *end)
{
	return end->by_signal ? 128 + end->value : end->value;
}

/* MACHINE is the folder that ends with the program, or ""; HELPER is no child of the program's. */
static int start_and_wait(const char *program, char **argv, const char *machine, pid_t helper)
{
	extern char **environ;
	struct spawn spec = {.program = program,
			     .program_fd = -1,
			     .argv = (const char *const *)argv,
			     .envp = (const char *const *)environ,
			     .flags = SPAWN_SEARCH_PATH | SPAWN_PDEATHSIG | SPAWN_INHERIT_FDS};
	struct spawned child = SPAWNED_NONE;
	struct procref_end end;
	struct gw_error error = {0};
	cleanup_fd int signal_fd = signals_open();
	int result;

	/* Nobody who ignores SIGCHLD can wait for a child; whoever started this program may have. */
	(void)signal(SIGCHLD, SIG_DFL);
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1);
	result = spawn(&spec, &child, &error);
	if (result < 0) {
		(void)fprintf(stderr, "gpuward: %s\n", error.msg);
		return result == -ENOENT ? 127 : 126;
	}
	result = wait_for(&child.process, signal_fd, &end);
	if (spawn_failure(&child, program, &error) < 0) {
		(void)fprintf(stderr, "gpuward: %s\n", error.msg);
		result = error.code == -ENOENT ? 127 : 126;
	} else {
		result = result == 1 ? exit_code(&end) : CLI_FAILED;
	}
	spawn_done(&child);
	soft_wait_for_orphans(signal_fd, machine, helper);
	return result;
}

/* The faults of this machine are in its own log. One that was named by hand stands. */
static int set_kernel_log(void)
{
	const char *folder = getenv(SOFT_DIR_ENV);
	char path[PATH_MAX + 8];

	(void)snprintf(path, sizeof(path), "%s/kmsg", folder ? folder : "");
	return setenv(KERNEL_LOG_ENV, path, 0) < 0 ? -errno : 0;
}

static int run(const char *program, char **argv)
{
	const char *given = getenv(SOFT_DIR_ENV);
	char folder[PATH_MAX] = "";
	struct procref tidying = PROCREF_NONE;
	int result = 0;

	if (set_library_path() < 0)
		return CLI_FAILED;
	if (!given || !*given)
		result = make_machine(folder, sizeof(folder));
	if (folder[0])
		start_tidying(folder, &tidying);
	if (result == 0)
		result = set_kernel_log();
	if (result < 0) {
		(void)fprintf(stderr,
			      "gpuward: --soft: cannot make a folder for the emulated machine: "
			      "%s\n",
			      strerror(-result));
		result = CLI_FAILED;
	} else {
		result = start_and_wait(program, argv, folder, tidying.pid);
	}
	if (folder[0])
		remove_machine(folder);
	stop_tidying(&tidying);
	return result;
}

int soft_run_program(char **argv)
{
	(void)fprintf(stderr, "gpuward: %s runs on an emulated GPU\n", argv[0]);
	return run(argv[0], argv);
}

int soft_run_self(int argc, char **argv)
{
	char **own = calloc((size_t)argc + 2, sizeof(*own));
	int result;

	if (!own) {
		(void)fprintf(stderr, "gpuward: no memory\n");
		return CLI_FAILED;
	}
	own[0] = (char *)(uintptr_t) "gpuward";
	memcpy(own + 1, argv, (size_t)argc * sizeof(*own));
	result = run("/proc/self/exe", own);
	free(own);
	return result;
}
