/* SPDX-License-Identifier: MIT */
/*
 * The dynamic linker, as far as the driver doors need it.
 *
 * Runs in: worker and probe; dl_cuda_is_loaded() in every process. Never dlopens without RTLD_LOCAL and
 * RTLD_NOW: a symbol that is missing must show here, not in the middle of a task.
 * Read next: dl.h, cuda.c.
 */
#include "gpu/dl.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <string.h>

#include "common/err.h"

/* dlerror() says "SONAME: cannot open ..." when it is SONAME itself that was not found; a library that
 * SONAME needs would stand there under its own name. */
static bool is_missing(const char *soname, const char *reason)
{
	size_t length = strlen(soname);

	return strncmp(reason, soname, length) == 0 &&
	       strncmp(reason + length, ": cannot open shared object file: No such file",
		       strlen(": cannot open shared object file: No such file")) == 0;
}

int dl_open(const char *soname, const char *install, void **ret_library, struct gw_error *ret_error)
{
	void *library = dlopen(soname, RTLD_NOW | RTLD_LOCAL);
	const char *reason;

	if (library) {
		*ret_library = library;
		return 0;
	}
	reason = dlerror();
	if (!reason)
		reason = "no reason given";
	if (is_missing(soname, reason))
		return err_set(ret_error, GW_EDRIVER, GW_DOMAIN_OS, ENOENT,
			       "%s is not on this machine: %s", soname, install);
	return err_own(ret_error, GW_EDRIVER, "%s cannot be loaded: %s", soname, reason);
}

void dl_close(void *library)
{
	if (library)
		(void)dlclose(library);
}

const struct dl_symbol *dl_resolve(void *library, const struct dl_symbol *table, size_t count,
				   void *door)
{
	const struct dl_symbol *missing = NULL;

	for (size_t i = 0; i < count; i++) {
		void *address = dlsym(library, table[i].name);

		memcpy((char *)door + table[i].slot, &address, sizeof(address));
		if (!address && table[i].required && !missing)
			missing = &table[i];
	}
	return missing;
}

static int is_cuda(struct dl_phdr_info *info, size_t bytes, void *data)
{
	static const char prefix[] = "libcuda.so";
	const char *slash = strrchr(info->dlpi_name, '/');
	const char *name = slash ? slash + 1 : info->dlpi_name;
	char next = '\0';

	(void)bytes;
	(void)data;
	if (strncmp(name, prefix, sizeof(prefix) - 1) == 0)
		next = name[sizeof(prefix) - 1];
	else
		return 0;
	return next == '\0' || next == '.';
}

bool dl_cuda_is_loaded(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);

	if (library) {
		(void)dlclose(library); /* takes back the reference that dlopen just added */
		return true;
	}
	return dl_iterate_phdr(is_cuda, NULL) != 0;
}
