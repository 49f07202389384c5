/* SPDX-License-Identifier: MIT */
/*
 * Modules: PTX text, of which only the names and parameters of the entries are read; and launches.
 *
 * Runs in: a process that uses CUDA, with the process's lock held.
 * Invariant: a launch copies the parameters, so the program may reuse them at once.
 * Read next: kernels.h, engine.h.
 */
#include <ctype.h>
#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "export.h"
#include "kernels.h"
#include "limit.h"
#include "machine.h"
#include "process.h"
#include "stream.h"

/* What the compiler in the driver of CUDA 13.0 knows: sm_121, and PTX 9 (CUDA 12: PTX 8). */
#define NEWEST_TARGET		  121
#define ptx_version(cuda_version) ((cuda_version) / 1000 - 4)

struct cuda_function {
	struct cuda_function *next;
	const struct kernel *kernel; /* NULL: there is no C function of this name */
	bool loaded;
	uint64_t loaded_after; /* the order of the work that runs before it is (engine.h) */
	char name[128];
	uint8_t parameters[KERNEL_PARAMETERS]; /* as the PTX declares them */
};

struct cuda_module {
	struct cuda_module *next;
	const struct cuda_context *context;
	struct cuda_function *functions;
};

/* Guarded by the process's lock. */
static struct cuda_module *modules;

/* Behind white space and comments. */
static const char *skip_blank(const char *text)
{
	for (;;) {
		const char *end = NULL;

		while (isspace((unsigned char)*text))
			text++;
		if (strncmp(text, "//", 2) == 0)
			end = strchr(text, '\n');
		else if (strncmp(text, "/*", 2) == 0)
			end = strstr(text + 2, "*/");
		else
			return text;
		if (!end)
			return text + strlen(text);
		text = end + (*end == '*' ? 2 : 1);
	}
}

/* The next ".entry" that is not in a comment, or NULL. */
static const char *next_entry(const char *text)
{
	while (*(text = skip_blank(text))) {
		if (strncmp(text, ".entry", 6) == 0 && isspace((unsigned char)text[6]))
			return skip_blank(text + 6);
		text++;
	}
	return NULL;
}

/* Reads ".param .u64 name" and so on up to the closing parenthesis. Returns false on other text. */
static bool parse_parameters(const char *text, struct cuda_function *function)
{
	int count = 0;

	text = skip_blank(text);
	if (*text != '(')
		return true;
	for (text = skip_blank(text + 1); *text && *text != ')'; text = skip_blank(text)) {
		int bits;

		if (*text == ',')
			text = skip_blank(text + 1);
		if (strncmp(text, ".param", 6) != 0 || count == KERNEL_PARAMETERS)
			return false;
		text = skip_blank(text + 6);
		if (*text != '.' || !isalpha((unsigned char)text[1]))
			return false;
		bits = atoi(text + 2);
		if (bits != 32 && bits != 64)
			return false;
		function->parameters[count++] = (uint8_t)(bits / 8);
		text += strcspn(text, ",)");
	}
	return *text == ')';
}

static int add_function(struct cuda_module *module, const char *text)
{
	size_t length = 0;
	struct cuda_function *function;

	while (isalnum((unsigned char)text[length]) || text[length] == '_' || text[length] == '$')
		length++;
	if (length == 0 || length >= sizeof(function->name))
		return CUDA_ERROR_INVALID_PTX;
	function = calloc(1, sizeof(*function));
	if (!function)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(function->name, text, length);
	function->kernel = kernel_find(text, length);
	function->next = module->functions;
	module->functions = function;
	/* Only a kernel that can be run must have parameters that are understood. */
	if (!parse_parameters(text + length, function) && function->kernel)
		return CUDA_ERROR_INVALID_PTX;
	return CUDA_SUCCESS;
}

static void free_module(struct cuda_module *module)
{
	while (module->functions) {
		struct cuda_function *first = module->functions;

		module->functions = first->next;
		free(first);
	}
	free(module);
}

/* More than the first bytes are only looked at where these are right: IMAGE may be a short text. */
static bool is_elf(const char *image)
{
	return strncmp(image, ELFMAG, SELFMAG) == 0 && image[EI_CLASS] == ELFCLASS64;
}

/* Whether every block of TEXT is closed. */
static bool is_complete(const char *text)
{
	int open = 0;

	while (*(text = skip_blank(text)) && open >= 0) {
		open += (*text == '{') - (*text == '}');
		text++;
	}
	return open == 0;
}

/* The text behind ".version". The bodies of entries are not read: they are not what runs here. */
static int check_text(const char *text)
{
	uint64_t cuda_version = process.machine.settings.cuda_version;
	const char *target = strstr(text, ".target");

	if (strtoul(skip_blank(text), NULL, 10) > ptx_version(cuda_version))
		return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
	if (!target || !is_complete(target))
		return CUDA_ERROR_INVALID_PTX;
	target = skip_blank(target + strlen(".target"));
	if (strncmp(target, "sm_", 3) != 0 || strtoul(target + 3, NULL, 10) > NEWEST_TARGET)
		return CUDA_ERROR_INVALID_PTX;
	return CUDA_SUCCESS;
}

static int check_image(const char *image)
{
	const char *text;

	if (!image)
		return CUDA_ERROR_INVALID_VALUE;
	if (is_elf(image)) {
		machine_say("cubin images cannot be run here: give cuModuleLoadData PTX text");
		return CUDA_ERROR_NO_BINARY_FOR_GPU;
	}
	text = skip_blank(image);
	if (strncmp(text, ".version", 8) != 0)
		return CUDA_ERROR_INVALID_IMAGE;
	return check_text(text + 8);
}

static int load(struct cuda_module **ret_module, const char *image)
{
	struct cuda_module *module;
	int result = check_image(image);

	if (result)
		return result;
	module = calloc(1, sizeof(*module));
	if (!module)
		return CUDA_ERROR_OUT_OF_MEMORY;
	module->context = context_current();
	for (const char *entry = next_entry(image); entry && !result; entry = next_entry(entry))
		result = add_function(module, entry);
	if (result) {
		free_module(module);
		return result;
	}
	process_delay(2);
	module->next = modules;
	modules = module;
	*ret_module = module;
	return CUDA_SUCCESS;
}

SOFT_EXPORT int cuModuleLoadData(struct cuda_module **module, const void *image)
{
	int result = process_enter(NEED_CONTEXT);

	if (!result)
		result = module ? load(module, image) : CUDA_ERROR_INVALID_VALUE;
	return process_leave("cuModuleLoadData", result);
}

static struct cuda_module **find_module(const struct cuda_module *module)
{
	struct cuda_module **link = &modules;

	while (*link && *link != module)
		link = &(*link)->next;
	return link;
}

SOFT_EXPORT int cuModuleUnload(struct cuda_module *module)
{
	int result = process_enter(NEED_CONTEXT);
	struct cuda_module **link;

	if (!result) {
		link = find_module(module);
		if (*link) {
			*link = module->next;
			free_module(module);
		} else {
			result = CUDA_ERROR_INVALID_HANDLE;
		}
	}
	return process_leave("cuModuleUnload", result);
}

static int get_function(struct cuda_function **ret_function, const struct cuda_module *module,
			const char *name)
{
	struct cuda_function *one;

	if (!ret_function || !name || !*name)
		return CUDA_ERROR_INVALID_VALUE;
	if (!*find_module(module))
		return CUDA_ERROR_INVALID_HANDLE;
	one = module->functions;
	while (one && strcmp(one->name, name) != 0)
		one = one->next;
	if (!one)
		return CUDA_ERROR_NOT_FOUND;
	/*
	 * Measured: a function is loaded when it is first asked for, behind all work of the context. So
	 * one that is asked for while an endless kernel runs never runs, in no stream.
	 */
	if (!one->loaded)
		one->loaded_after = engine_newest(context_current());
	one->loaded = true;
	*ret_function = one;
	return CUDA_SUCCESS;
}

SOFT_EXPORT int cuModuleGetFunction(struct cuda_function **function, struct cuda_module *module,
				    const char *name)
{
	int result = process_enter(NEED_CONTEXT);

	if (!result)
		result = get_function(function, module, name);
	return process_leave("cuModuleGetFunction", result);
}

static bool function_exists(const struct cuda_function *function)
{
	for (const struct cuda_module *module = modules; module; module = module->next) {
		for (const struct cuda_function *one = module->functions; one; one = one->next) {
			if (one == function)
				return true;
		}
	}
	return false;
}

static int check_function(const struct cuda_function *function)
{
	if (!function_exists(function))
		return CUDA_ERROR_INVALID_HANDLE;
	if (!function->kernel) {
		machine_say("no kernel named %s here: softgpu/README.md lists those that there are",
			    function->name);
		return CUDA_ERROR_NOT_FOUND;
	}
	if (memcmp(function->parameters, function->kernel->parameters, KERNEL_PARAMETERS) != 0) {
		machine_say("the PTX gives %s other parameters than this GPU's kernel has",
			    function->name);
		return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}

static int copy_arguments(struct work *work, void **parameters)
{
	const uint8_t *sizes = work->kernel->parameters;

	for (int i = 0; i < KERNEL_PARAMETERS && sizes[i]; i++) {
		if (!parameters || !parameters[i])
			return CUDA_ERROR_INVALID_VALUE;
		memcpy(&work->arguments[i], parameters[i], sizes[i]);
	}
	return CUDA_SUCCESS;
}

static int launch(const struct cuda_function *function, struct cuda_stream *stream,
		  void **parameters)
{
	struct work work = {.kind = WORK_KERNEL};
	struct engine *engine;
	uint64_t ticket;
	int result = check_function(function);

	if (result)
		return result;
	work.kernel = function->kernel;
	work.after = function->loaded_after;
	result = copy_arguments(&work, parameters);
	if (!result)
		result = stream_engine(stream, &engine);
	if (!result)
		result = limit_note_launch(engine->context, work.kernel);
	if (result)
		return result;
	work.stack_bytes = engine->context->limits[CUDA_LIMIT_STACK_SIZE];
	result = engine_add(engine, &work, &ticket);
	if (!result)
		stream_note(stream, ticket);
	return result;
}

SOFT_EXPORT int cuLaunchKernel(struct cuda_function *function, unsigned int grid_x,
			       unsigned int grid_y, unsigned int grid_z, unsigned int block_x,
			       unsigned int block_y, unsigned int block_z,
			       unsigned int shared_bytes, struct cuda_stream *stream,
			       void **parameters, void **extra)
{
	int result = process_enter(NEED_CONTEXT);
	uint64_t threads = (uint64_t)block_x * block_y * block_z;

	if (!result && extra)
		result = CUDA_ERROR_NOT_SUPPORTED;
	if (!result && (!grid_x || !grid_y || !grid_z || grid_x > INT32_MAX || grid_y > 65535 ||
			grid_z > 65535 || threads == 0 || threads > 1024 || block_x > 1024 ||
			block_y > 1024 || shared_bytes > 227 * 1024))
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result)
		result = launch(function, stream, parameters);
	return process_leave("cuLaunchKernel", result);
}
