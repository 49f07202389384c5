/* SPDX-License-Identifier: MIT */
/*
 * The first fault of a program, and its recovery: a kernel writes to address 0, which poisons the whole
 * process; gw_isolate() reports it and runs the function again in a fresh process, where it succeeds.
 *
 *	first_fault [--devices D] [--processes P]
 *
 * With D devices and P processes for each, D times P such programs fault and recover at the same time.
 *
 * Uses gpuward's public header and the CUDA driver, but no CUDA toolkit: the driver is opened by its
 * name, with the few prototypes that are needed. Only the isolated function does so: a process that
 * forks must not have loaded it. Exit status: 0 all recovered, 1 some did not, 125 gpuward failed.
 * Read next: first_fault.cu, the same with the runtime API.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gpuward.h>

#define WORDS 1024

/* ---- the part of the driver's interface that is used; a CUresult is an int ---- */

struct driver {
	int (*init)(unsigned int flags);
	int (*device)(int *device, int ordinal);
	int (*retain)(void **context, int device);
	int (*set_current)(void *context);
	int (*load)(void **module, const void *image);
	int (*function)(void **function, void *module, const char *name);
	int (*launch)(void *function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
		      unsigned int block_x, unsigned int block_y, unsigned int block_z,
		      unsigned int shared_bytes, void *stream, void **parameters, void **extra);
	int (*synchronize)(void);
	int (*alloc)(uint64_t *address, size_t bytes);
	int (*copy_in)(uint64_t to, const void *from, size_t bytes);
	int (*copy_out)(void *to, uint64_t from, size_t bytes);
};

static const struct symbol {
	const char *name;
	size_t slot;
} symbols[] = {
	{"cuInit", offsetof(struct driver, init)},
	{"cuDeviceGet", offsetof(struct driver, device)},
	{"cuDevicePrimaryCtxRetain", offsetof(struct driver, retain)},
	{"cuCtxSetCurrent", offsetof(struct driver, set_current)},
	{"cuModuleLoadData", offsetof(struct driver, load)},
	{"cuModuleGetFunction", offsetof(struct driver, function)},
	{"cuLaunchKernel", offsetof(struct driver, launch)},
	{"cuCtxSynchronize", offsetof(struct driver, synchronize)},
	{"cuMemAlloc_v2", offsetof(struct driver, alloc)},
	{"cuMemcpyHtoD_v2", offsetof(struct driver, copy_in)},
	{"cuMemcpyDtoH_v2", offsetof(struct driver, copy_out)},
};

/* A kernel that adds two vectors, and one that writes to address 0. */
static const char ptx[] =
	".version 6.0\n"
	".target sm_50\n"
	".address_size 64\n"
	".visible .entry vector_add(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 n)\n"
	"{\n"
	"	.reg .pred %end;\n"
	"	.reg .f32 %x, %y;\n"
	"	.reg .b32 %t, %w, %i;\n"
	"	.reg .b64 %a, %b, %c, %n, %at;\n"
	"	ld.param.u64 %a, [a];\n"
	"	ld.param.u64 %b, [b];\n"
	"	ld.param.u64 %c, [c];\n"
	"	ld.param.u64 %n, [n];\n"
	"	cvta.to.global.u64 %a, %a;\n"
	"	cvta.to.global.u64 %b, %b;\n"
	"	cvta.to.global.u64 %c, %c;\n"
	"	mov.u32 %t, %tid.x;\n"
	"	mov.u32 %w, %ntid.x;\n"
	"	mov.u32 %i, %ctaid.x;\n"
	"	mad.lo.u32 %t, %i, %w, %t;\n"
	"	cvt.u64.u32 %at, %t;\n"
	"	setp.ge.u64 %end, %at, %n;\n"
	"	@%end bra DONE;\n"
	"	shl.b64 %at, %at, 2;\n"
	"	add.u64 %a, %a, %at;\n"
	"	add.u64 %b, %b, %at;\n"
	"	add.u64 %c, %c, %at;\n"
	"	ld.global.f32 %x, [%a];\n"
	"	ld.global.f32 %y, [%b];\n"
	"	add.f32 %x, %x, %y;\n"
	"	st.global.f32 [%c], %x;\n"
	"DONE:\n"
	"	ret;\n"
	"}\n"
	".visible .entry fault_null()\n"
	"{\n"
	"	.reg .b32 %one;\n"
	"	.reg .b64 %p;\n"
	"	mov.u64 %p, 0;\n"
	"	mov.u32 %one, 1;\n"
	"	st.global.u32 [%p], %one;\n"
	"	ret;\n"
	"}\n";

/* ---- what runs in the child ---- */

/* What the child leaves for the parent in the shared region. */
struct result {
	double sum;
	char message[200]; /* why the driver could not be loaded */
};

/* Which of the D times P programs this is. */
struct place {
	int device;
	const char *label;   /* what its lines begin with */
	unsigned int failed; /* attempts so far that did not succeed */
};

/* Returns 0, -1 with a message, or 36: a function is missing (CALL_REQUIRES_NEWER_DRIVER). */
static int open_driver(struct driver *driver, struct result *result)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

	if (!library) {
		(void)snprintf(result->message, sizeof(result->message), "%s", dlerror());
		return -1;
	}
	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		void *symbol = dlsym(library, symbols[i].name);

		if (!symbol)
			return 36;
		memcpy((char *)driver + symbols[i].slot, &symbol, sizeof(symbol));
	}
	return 0;
}

/* A context on the device of this ORDINAL, and the kernels in it. */
static int prepare(const struct driver *cuda, int ordinal, void **module)
{
	void *context;
	int device;
	int error = cuda->init(0);

	if (!error)
		error = cuda->device(&device, ordinal);
	if (!error)
		error = cuda->retain(&context, device);
	if (!error)
		error = cuda->set_current(context);
	if (!error)
		error = cuda->load(module, ptx);
	return error;
}

static int launch(const struct driver *cuda, void *module, const char *name, void **parameters)
{
	void *function;
	int error = cuda->function(&function, module, name);

	if (!error)
		error = cuda->launch(function, WORDS / 256, 1, 1, 256, 1, 1, 0, NULL, parameters,
				     NULL);
	if (!error)
		error = cuda->synchronize();
	return error;
}

/* Adds i and 2 i for all i, on the device. */
static int add_vectors(const struct driver *cuda, void *module, double *sum)
{
	static float values[3][WORDS];
	uint64_t address[3];
	uint64_t n = WORDS;
	void *parameters[] = {&address[0], &address[1], &address[2], &n};
	int error = 0;

	for (int i = 0; i < WORDS; i++) {
		values[0][i] = (float)i;
		values[1][i] = 2.0F * (float)i;
	}
	for (int i = 0; i < 3 && !error; i++)
		error = cuda->alloc(&address[i], sizeof(values[i]));
	for (int i = 0; i < 2 && !error; i++)
		error = cuda->copy_in(address[i], values[i], sizeof(values[i]));
	if (!error)
		error = launch(cuda, module, "vector_add", parameters);
	if (!error)
		error = cuda->copy_out(values[2], address[2], sizeof(values[2]));
	for (int i = 0; i < WORDS && !error; i++)
		*sum += (double)values[2][i];
	return error;
}

static int work(const struct gw_isolated *run)
{
	const struct place *place = run->argument;
	struct result *result = run->shared;
	struct driver cuda;
	void *module;
	int error = open_driver(&cuda, result);

	if (!error)
		error = prepare(&cuda, place->device, &module);
	if (!error && run->attempt == 0)
		error = launch(&cuda, module, "fault_null", NULL);
	if (!error)
		error = add_vectors(&cuda, module, &result->sum);
	return error; /* a CUresult: one that poisons the process gets a fresh one */
}

/* ---- the parent ---- */

static void report(const struct gw_exit *exit, uint32_t attempt, void *argument)
{
	struct place *place = argument;

	place->failed = attempt + 1;
	(void)printf("%sattempt %u: %s\n", place->label, attempt + 1, exit->text);
	(void)printf("%sstarting a fresh process\n", place->label);
	(void)fflush(stdout);
}

static int say_how_it_ended(const struct place *place, const struct gw_exit *end,
			    const struct result *result)
{
	const double expected = 3.0 * (WORDS - 1) * WORDS / 2;
	const char *name = gw_cuda_name(end->value);

	if (end->end != GW_END_RESULT)
		(void)printf("%sgiven up: %s\n", place->label, end->text);
	else if (end->value != 0 && result->message[0])
		(void)printf("%sno CUDA driver: %s\n", place->label, result->message);
	else if (end->value != 0)
		(void)printf("%sCUDA error %d %s: %s\n", place->label, end->value,
			     name ? name : "(unknown)", gw_cuda_text(end->value));
	else if (result->sum != expected)
		(void)printf("%swrong: sum = %.0f, not %.0f\n", place->label, result->sum,
			     expected);
	else
		(void)printf("%sattempt %u: ok, sum = %.0f\n", place->label, place->failed + 1,
			     result->sum);
	return end->end == GW_END_RESULT && end->value == 0 && result->sum == expected ? 0 : 1;
}

/* Faults, recovers and prints. Returns the exit status. */
static int fault_and_recover(struct place *place)
{
	struct gw_isolate_options options = GW_OPTIONS(struct gw_isolate_options);
	struct gw_error error;
	struct gw_exit end;
	void *shared;
	int status;

	options.shared_bytes = sizeof(struct result);
	options.argument = place;
	options.on_attempt = report;
	status = gw_isolate(work, &options, &shared, &end, &error);
	if (status < 0) {
		(void)fprintf(stderr, "first_fault: %s\n", error.msg);
		return 125;
	}
	status = say_how_it_ended(place, &end, shared);
	gw_isolate_free_shared(shared, sizeof(struct result));
	return status;
}

/* gw_isolate() waits for its process, so each of several gets a process that calls it. */
static int run_many(int devices, int processes)
{
	int status = 0;
	int worst = 0;

	for (int i = 0; i < devices * processes; i++) {
		char label[64];
		struct place place = {.device = i / processes, .label = label};
		pid_t pid;

		(void)snprintf(label, sizeof(label), "device %d, process %d: ", i / processes,
			       i % processes);
		(void)fflush(stdout);
		pid = fork();
		if (pid == 0)
			exit(fault_and_recover(&place));
		if (pid < 0) {
			perror("first_fault: fork");
			worst = 125;
			break;
		}
	}
	while (wait(&status) > 0) {
		int code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;

		worst = code > worst ? code : worst;
	}
	return worst;
}

/* A number from 1 to 64, or 0 where TEXT is none. */
static int number_of(const char *text)
{
	char *end = NULL;
	long value = text ? strtol(text, &end, 10) : 0;

	return text && !*end && value >= 1 && value <= 64 ? (int)value : 0;
}

int main(int argc, char **argv)
{
	struct place alone = {.label = ""};
	int devices = 1;
	int processes = 1;

	for (int i = 1; i < argc; i += 2) {
		int *option = NULL;

		if (strcmp(argv[i], "--devices") == 0)
			option = &devices;
		else if (strcmp(argv[i], "--processes") == 0)
			option = &processes;
		if (option)
			*option = number_of(argv[i + 1]);
		if (!option || !*option) {
			(void)fputs("usage: first_fault [--devices D] [--processes P]\n", stderr);
			return 2;
		}
	}
	return argc == 1 ? fault_and_recover(&alone) : run_many(devices, processes);
}
