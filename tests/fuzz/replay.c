/* SPDX-License-Identifier: MIT */
/*
 * Runs a fuzz target over folders of kept inputs, and over simple changes of each: cut at every place,
 * and every byte changed in turn. So the target runs with any compiler and in the quick suite.
 *
 * Usage: fuzz-NAME FOLDER...   Exits 77 where there is no input, so that an empty corpus is seen.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#define INPUT_MAX 4096

static void run_changes(uint8_t *data, size_t bytes)
{
	static const uint8_t values[] = {0x00, 0x20, 0x27, 0x2c, 0x30, 0x39, 0x3a, 0x7f, 0xff};

	(void)LLVMFuzzerTestOneInput(data, bytes);
	for (size_t length = 0; length < bytes; length++)
		(void)LLVMFuzzerTestOneInput(data, length);
	for (size_t at = 0; at < bytes; at++) {
		uint8_t kept = data[at];

		for (size_t i = 0; i < sizeof(values); i++) {
			data[at] = values[i];
			(void)LLVMFuzzerTestOneInput(data, bytes);
		}
		data[at] = kept;
	}
}

static int run_file(const char *folder, const char *name)
{
	uint8_t data[INPUT_MAX];
	char path[4096];
	size_t bytes;
	FILE *file;

	(void)snprintf(path, sizeof(path), "%s/%s", folder, name);
	file = fopen(path, "re");
	if (!file) {
		perror(path);
		exit(1);
	}
	bytes = fread(data, 1, sizeof(data), file);
	(void)fclose(file);
	run_changes(data, bytes);
	return 1;
}

static int run_folder(const char *folder)
{
	DIR *stream = opendir(folder);
	struct dirent *entry;
	int count = 0;

	if (!stream) {
		perror(folder);
		exit(1);
	}
	while ((entry = readdir(stream)))
		count += entry->d_name[0] == '.' ? 0 : run_file(folder, entry->d_name);
	(void)closedir(stream);
	return count;
}

int main(int argc, char **argv)
{
	int count = 0;

	for (int i = 1; i < argc; i++)
		count += run_folder(argv[i]);
	printf("%d inputs\n", count);
	return count > 0 ? 0 : 77;
}
