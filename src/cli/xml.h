/* SPDX-License-Identifier: MIT */
/*
 * Text for XML. Runs in: command line. Names of devices and of files can have any bytes: what comes out is
 * well-formed whatever goes in. Bytes that are no UTF-8, and characters that XML does not allow, become U+FFFD.
 */
#ifndef GPUWARD_CLI_XML_H
#define GPUWARD_CLI_XML_H

#include <stddef.h>
#include <stdio.h>

/* How wide TEXT is: one for each character, two for those that take two columns in a terminal. */
size_t xml_width(const char *text);

/* Writes TEXT, escaped for content and for attributes in double quotes. What is wider than MAX is cut, and ends with
 * an ellipsis. */
void xml_put(FILE *to, const char *text, size_t max);

#endif
