/* SPDX-License-Identifier: MIT */
/*
 * A worker of another version: built with other_version.h, and started by the test of bad input.
 *
 * Runs in: worker. It would serve one function if anybody let it; never does anything else.
 */
#include <gpuward.h>

static int run_empty(struct gw_call *call)
{
	(void)call;
	return 0;
}

int main(void)
{
	static const struct gw_function functions[] = {
		{.name = "empty", .run = run_empty},
		{.name = NULL},
	};

	return gw_worker_run(functions);
}
