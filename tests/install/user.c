/* SPDX-License-Identifier: MIT */
/*
 * A user's program, for the install test: compiled as C11 and as C++17 against the installed copy.
 * Its result is the line "42". Without a library of its own version it does not get there.
 */
#include <gpuward.h>

#include <stdio.h>
#include <string.h>

int main(void)
{
	struct gw_pool_options pool = GW_OPTIONS(struct gw_pool_options);
	struct gw_task_options task = GW_OPTIONS(struct gw_task_options);

	if (pool.size != sizeof(pool) || pool.devices || task.size != sizeof(task) || task.user)
		return 3;
	if (strcmp(gw_version(), GW_VERSION_TEXT) != 0 || !GW_CHECK_VERSION(0, 1))
		return 1;
	if (gw_cuda_class(719) != GW_FAULT_POISONED || gw_cuda_class(2) != GW_FAULT_RESOURCES)
		return 2;
	return printf("42\n") < 0;
}
