/* SPDX-License-Identifier: MIT */
/*
 * Fills a struct gw_error and returns its code, so that a failure is one line:
 *
 *	return err_os(ret_error, errno, "cannot open %s", path);
 *
 * Runs in: every process. Allocates nothing, so it works when memory is gone.
 */
#ifndef GPUWARD_COMMON_ERR_H
#define GPUWARD_COMMON_ERR_H

#include <gpuward.h>

/* Sets *ERROR (which may be NULL) to CODE (negative) in DOMAIN with its NATIVE number. Returns CODE. */
int err_set(struct gw_error *error, int code, enum gw_domain domain, int64_t native,
	    const char *format, ...) __attribute__((format(printf, 5, 6)));

/* An operating system failure: the text gets ": ", the meaning of NUMBER, and which limit to raise if it is
 * one. Returns -NUMBER. */
int err_os(struct gw_error *error, int number, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* A failure of gpuward's own rules, with no native number. Returns CODE: as a value that compiler and
 * analysers can see, so that they know which way the caller goes. */
#define err_own(error, code, ...) (err_own_fill(error, code, __VA_ARGS__), (code))
void err_own_fill(struct gw_error *error, int code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif
