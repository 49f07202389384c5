/* SPDX-License-Identifier: MIT */
/*
 * Description: Xid lines of every known form give the right number, device, pid, name and channel, and
 * nothing that the text does not say for certain; cut and mixed lines never give a wrong pid; the lines
 * of one Xid 13 are joined; lost records are counted.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/xid.h"

#define UNKNOWN (-1)

struct expectation {
	const char *text;
	int64_t number; /* UNKNOWN where the text does not say it */
	int64_t pid;
	const char *name; /* NULL where the text does not say it */
	int64_t channel;
	const char *rest;
};

#define HEAD "NVRM: Xid (PCI:0000:00:06): "

/* clang-format off */
static const struct expectation lines[] = {
	{HEAD "43, pid=648, name=c, channel 0x0000000a", 43, 648, "c", 10, "channel 0x0000000a"},
	{HEAD "31, pid=617, name=c, channel 0x0000000b, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC1 "
	      "GPCCLIENT_T1_0 faulted @ 0x0_00000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_WRITE",
	 31, 617, "c", 11, NULL},
	{HEAD "13, Graphics SM Warp Exception on (GPC 1, TPC 4, SM 0): Misaligned Address",
	 13, UNKNOWN, NULL, UNKNOWN,
	 "Graphics SM Warp Exception on (GPC 1, TPC 4, SM 0): Misaligned Address"},
	{HEAD "13, Graphics Exception: ESR 0x50c730=0x10 0x50c734=0x4", 13, UNKNOWN, NULL, UNKNOWN, NULL},
	{HEAD "13, pid=502, name=a, Graphics Exception: channel 0x0000000b, Class 0000cbc0",
	 13, 502, "a", 11, NULL},
	{HEAD "31, pid='<unknown>', name=<unknown>, Ch 0000000c", 31, UNKNOWN, NULL, 12, NULL},
	{HEAD "31, pid=<unknown>, name=<unknown>, Ch 0000000c", 31, UNKNOWN, NULL, 12, NULL},
	{HEAD "31, pid='617', name=python3, Ch 0000000d, intr 10000000", 31, 617, "python3", 13, NULL},
	{HEAD "31, pid=\"617\", name=python3, Ch 0000000d", 31, 617, "python3", 13, NULL},
	{HEAD "31, pid=617, Ch 0000000d", 31, 617, NULL, 13, "Ch 0000000d"},
	{HEAD "43, pid=7, name='my app', channel 0x00000008", 43, 7, "my app", 8, NULL},
	{HEAD "43, pid=7, name=a, b 'c' \"d\", channel 0x00000008", 43, 7, "a, b 'c' \"d\"", 8, NULL},
	{HEAD "43, pid=7, name=x, pid=1, channel 0x00000008", 43, 7, "x, pid=1", 8, NULL},
	{HEAD "43, pid=7, name=a, channel 0x0, channel 0x00000008", 43, 7, "a, channel 0x0", 8, NULL},
	{HEAD "43, pid=7, name=fifteen-bytes-x, channel 0x00000008", 43, 7, "fifteen-bytes-x", 8, NULL},
	{HEAD "43, pid=7, name=\\xc3\\xa4b, channel 0x00000008", 43, 7, "??b", 8, NULL},
	{HEAD "43, pid=7, name=, channel 0x00000008", 43, 7, NULL, 8, NULL},
	{HEAD "79, GPU has fallen off the bus.", 79, UNKNOWN, NULL, UNKNOWN, "GPU has fallen off the bus."},
	{HEAD "63, pid='<unknown>', name=<unknown>, Row Remapper: New row marked for remapping",
	 63, UNKNOWN, NULL, UNKNOWN, "Row Remapper: New row marked for remapping"},
	{"NVRM: Xid (PCI:0000:00:06 GPU-I:05): 43, pid=9, name=m, Ch 00000001", 43, 9, "m", 1, NULL},
	{"NVRM: Xid (0000:00:06): 13, 0001 00000000", 13, UNKNOWN, NULL, UNKNOWN, "0001 00000000"},
	{"[  123.456789] NVRM: Xid (PCI:0000:00:06): 43, pid=648, name=c, channel 0x0000000a",
	 43, 648, "c", 10, NULL},
	{"Dec  1 03:45:35 node kernel: NVRM: Xid (PCI:0000:00:06): 43, pid=648, name=c, channel 0x0000000a",
	 43, 648, "c", 10, NULL},
	/* Numbers that are no pids. */
	{HEAD "43, pid=0, name=c, channel 0x0000000a", 43, UNKNOWN, "c", 10, NULL},
	{HEAD "43, pid=-5, name=c, channel 0x0000000a", 43, UNKNOWN, "c", 10, NULL},
	{HEAD "43, pid=4194305, name=c, channel 0x0000000a", 43, UNKNOWN, "c", 10, NULL},
	{HEAD "43, pid=99999999999999999999, name=c, channel 0x0000000a", 43, UNKNOWN, "c", 10, NULL},
	{HEAD "43, pid=12ab, name=c, channel 0x0000000a", 43, UNKNOWN, NULL, 10, NULL},
	{HEAD "43, pid=, name=c, channel 0x0000000a", 43, UNKNOWN, "c", 10, NULL},
	{HEAD "99999999999, pid=5, name=c", UNKNOWN, UNKNOWN, NULL, UNKNOWN, NULL},
	/* Cut. */
	{HEAD "4", UNKNOWN, UNKNOWN, NULL, UNKNOWN, "4"},
	{HEAD "43", UNKNOWN, UNKNOWN, NULL, UNKNOWN, "43"},
	{HEAD "43,", 43, UNKNOWN, NULL, UNKNOWN, ""},
	{HEAD "43, pid=64", 43, UNKNOWN, NULL, UNKNOWN, NULL},
	{HEAD "43, pid=648,", 43, 648, NULL, UNKNOWN, ""},
	{HEAD "43, pid=648, name=c", 43, 648, "c", UNKNOWN, ""},
	{HEAD "43, pid=648, name=c, channel 0x000", 43, 648, "c", UNKNOWN, "channel 0x000"},
};
/* clang-format on */

static void expect(const struct expectation *e, const struct xid_line *line)
{
	assert_int_equal(line->have & XID_HAVE_NUMBER ? (int64_t)line->number : UNKNOWN, e->number);
	assert_int_equal(line->have & XID_HAVE_PID ? line->pid : UNKNOWN, e->pid);
	assert_int_equal(line->have & XID_HAVE_CHANNEL ? (int64_t)line->channel : UNKNOWN,
			 e->channel);
	assert_int_equal(!!(line->have & XID_HAVE_NAME), e->name != NULL);
	assert_string_equal(line->name, e->name ? e->name : "");
	if (e->rest)
		assert_string_equal(line->rest, e->rest);
}

/* Parses a copy of the exact size, so that a sanitizer sees a read past its end. */
static size_t parse(const char *text, size_t bytes, struct xid_line *line)
{
	char *copy = malloc(bytes ? bytes : 1);
	size_t used;

	assert_non_null(copy);
	memcpy(copy, text, bytes);
	used = xid_parse(copy, bytes, line);
	free(copy);
	return used;
}

static void every_form_is_understood(void **state)
{
	const struct xid_pci pci = {0, 0, 6};

	(void)state;
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		struct xid_line line;

		assert_int_equal(parse(lines[i].text, strlen(lines[i].text), &line),
				 strlen(lines[i].text));
		expect(&lines[i], &line);
		assert_true(line.have & XID_HAVE_PCI);
		assert_true(xid_pci_equal(&line.pci, &pci));
	}
}

/* However a line is cut, what it still says is what the whole line says. */
static void a_cut_line_never_lies(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		const struct expectation *e = &lines[i];

		for (size_t bytes = 0; bytes < strlen(e->text); bytes++) {
			struct xid_line line = {0};

			if (parse(e->text, bytes, &line) == 0)
				continue;
			if (line.have & XID_HAVE_NUMBER)
				assert_int_equal(line.number, e->number);
			if (line.have & XID_HAVE_PID)
				assert_int_equal(line.pid, e->pid);
		}
	}
}

static void other_lines_are_no_reports(void **state)
{
	const char *const texts[] = {
		"",
		"NVRM: Xid",
		"NVRM: Xid (",
		"NVRM: Xid (PCI:",
		"NVRM: Xid (PCI:zzzz:00:06): 43, pid=1, name=c",
		"NVRM: GPU at PCI:0000:00:06: GPU-00000000-0000-0000-0000-000000000000",
		"usb 1-1: new device",
		"NVRM: loading NVIDIA UNIX Open Kernel Module",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct xid_line line;

		assert_int_equal(parse(texts[i], strlen(texts[i]), &line), 0);
	}
}

static void mixed_lines_give_each_report(void **state)
{
	const char text[] = HEAD "43, pid=6" HEAD "31, pid=617, name=c, channel 0x0000000b";
	struct xid_line line;
	size_t used;

	(void)state;
	used = parse(text, strlen(text), &line);
	assert_in_range(used, 1, strlen(text) - 1);
	assert_int_equal(line.number, 43);
	assert_false(line.have & XID_HAVE_PID);
	assert_int_equal(parse(text + used, strlen(text) - used, &line), strlen(text) - used);
	assert_int_equal(line.number, 31);
	assert_int_equal(line.pid, 617);
}

static void pci_forms(void **state)
{
	struct xid_pci pci = {0};
	const struct xid_pci expected = {0x10000, 0xc1, 0x1f};

	(void)state;
	assert_int_equal(xid_pci_parse("00010000:C1:1F.0", 16, &pci), 16);
	assert_true(xid_pci_equal(&pci, &expected));
	assert_int_equal(xid_pci_parse("0000:00:06", 10, &pci), 10);
	assert_int_equal(pci.device, 6);
	assert_int_equal(xid_pci_parse("0000:00:20", 10, &pci), 0);
	assert_int_equal(xid_pci_parse("0000:100:06", 11, &pci), 0);
	assert_int_equal(xid_pci_parse("0000-00-06", 10, &pci), 0);
}

#define RECORD(text) text, strlen(text)

static void records_carry_sequence_and_time(void **state)
{
	const char text[] =
		"4,1234,5678901,-,caller=T12;" HEAD
		"43, pid=648, name=c, channel 0x0000000a\n SUBSYSTEM=pci\n DEVICE=+pci:x\n";
	struct kmsg_record record;
	struct xid_line line;
	size_t offset = 0;

	(void)state;
	assert_int_equal(kmsg_parse(text, strlen(text), &record), 0);
	assert_int_equal(record.level, 4);
	assert_int_equal(record.facility, 0);
	assert_true(xid_parse_record(&record, &offset, &line));
	assert_int_equal(line.pid, 648);
	assert_int_equal(line.sequence, 1234);
	assert_int_equal(line.at_ns, 5678901000);
	assert_true(line.have & XID_HAVE_SEQUENCE && line.have & XID_HAVE_TIME);
	assert_string_equal(line.rest, "channel 0x0000000a");
	assert_false(xid_parse_record(&record, &offset, &line));
}

static void a_record_of_another_driver_is_no_report(void **state)
{
	const char text[] = "6,1,2,-;usb 1-1: Product: " HEAD "43, pid=1, name=c\n";
	struct kmsg_record record;
	struct xid_line line;
	size_t offset = 0;

	(void)state;
	assert_int_equal(kmsg_parse(text, strlen(text), &record), 0);
	assert_false(xid_parse_record(&record, &offset, &line));
}

static void broken_records_are_refused(void **state)
{
	struct kmsg_record record;

	(void)state;
	assert_int_equal(kmsg_parse(RECORD(""), &record), -EBADMSG);
	assert_int_equal(kmsg_parse(RECORD("4"), &record), -EBADMSG);
	assert_int_equal(kmsg_parse(RECORD("4,1,2,-"), &record), -EBADMSG);
	assert_int_equal(kmsg_parse(RECORD("4,1;x"), &record), -EBADMSG);
	assert_int_equal(kmsg_parse(RECORD("x,1,2,-;x"), &record), -EBADMSG);
	assert_int_equal(kmsg_parse(RECORD("4,99999999999999999999,2,-;x"), &record), -EBADMSG);
	assert_int_equal(kmsg_parse(RECORD("12,1,2,-;x"), &record), 0);
	assert_int_equal(record.facility, 1);
	assert_int_equal(record.text_bytes, 1);
}

static struct xid_line line_of(const char *text, uint64_t sequence, uint64_t at_ns)
{
	struct xid_line line;

	assert_true(parse(text, strlen(text), &line) > 0);
	line.sequence = sequence;
	line.at_ns = at_ns;
	line.have |= XID_HAVE_SEQUENCE | XID_HAVE_TIME;
	return line;
}

#define WARP  "13, Graphics SM Warp Exception on (GPC 1, TPC 4, SM 0): Misaligned Address"
#define NAMED "13, pid=502, name=a, Graphics Exception: channel 0x0000000b"
#define OTHER "NVRM: Xid (PCI:0000:00:07): "

static void lines_of_one_fault_are_joined(void **state)
{
	struct xid_join join = {0};
	struct xid_line event;
	struct xid_line first = line_of(HEAD WARP, 10, 1000);
	struct xid_line more = line_of(HEAD "13, Graphics Exception: ESR 0x1=0x2", 11, 1001);
	struct xid_line other = line_of(OTHER NAMED, 12, 1002);
	struct xid_line named = line_of(HEAD NAMED, 13, 1003);

	(void)state;
	assert_false(xid_join_feed(&join, &first, &event));
	assert_false(xid_join_feed(&join, &more, &event));
	assert_true(xid_join_feed(&join, &other, &event));
	assert_int_equal(event.sequence, 12);
	assert_true(xid_join_feed(&join, &named, &event));
	assert_int_equal(event.pid, 502);
	assert_int_equal(event.sequence, 10);
	assert_int_equal(event.at_ns, 1000);
	assert_non_null(strstr(event.rest, "Misaligned Address"));
	assert_false(xid_join_expire(&join, UINT64_MAX, 0, &event));
}

static void lines_without_a_pid_are_given_in_the_end(void **state)
{
	struct xid_join join = {0};
	struct xid_line event;
	struct xid_line first = line_of(HEAD WARP, 10, 1000);
	struct xid_line lost = line_of(HEAD "79, GPU has fallen off the bus.", 11, 1001);

	(void)state;
	assert_true(xid_join_feed(&join, &lost, &event));
	assert_int_equal(event.number, 79);
	assert_false(xid_join_feed(&join, &first, &event));
	assert_false(xid_join_expire(&join, 1499, 500, &event));
	assert_true(xid_join_expire(&join, 1500, 500, &event));
	assert_int_equal(event.sequence, 10);
	assert_false(event.have & XID_HAVE_PID);
	assert_false(xid_join_expire(&join, 1500, 500, &event));
}

static void more_devices_than_places_lose_nothing(void **state)
{
	struct xid_join join = {0};
	struct xid_line event;
	unsigned int given = 0;

	(void)state;
	for (unsigned int i = 0; i < XID_JOIN_MAX + 5; i++) {
		struct xid_line line = line_of(HEAD WARP, i, i);

		line.pci.bus = (uint8_t)i;
		given += xid_join_feed(&join, &line, &event);
	}
	assert_int_equal(given, 5);
	while (xid_join_expire(&join, UINT64_MAX, 0, &event))
		given++;
	assert_int_equal(given, XID_JOIN_MAX + 5);
}

static void lost_records_are_counted(void **state)
{
	struct xid_join join = {0};

	(void)state;
	xid_join_saw(&join, 100);
	xid_join_saw(&join, 101);
	assert_int_equal(join.lost, 0);
	xid_join_overrun(&join);
	xid_join_saw(&join, 151);
	assert_int_equal(join.lost, 49);
	assert_int_equal(join.overruns, 1);
	xid_join_saw(&join, 10);
	xid_join_saw(&join, 11);
	assert_int_equal(join.lost, 49);
}

static void recovery_action_is_the_new_one(void **state)
{
	(void)state;
	assert_int_equal(xid_recovery("GPU recovery action changed from 0x0 (None) to 0x1 (GPU "
				      "Reset Required)"),
			 XID_RECOVERY_RESET);
	assert_int_equal(xid_recovery("from 0x1 (GPU Reset Required) to 0x0 (None)"),
			 XID_RECOVERY_NONE);
	assert_int_equal(xid_recovery("to 0x2 (Node Reboot Required)"), XID_RECOVERY_REBOOT);
	assert_int_equal(xid_recovery("to 0x3 (Drain P2P)"), XID_RECOVERY_DRAIN_P2P);
	assert_int_equal(xid_recovery("to 0x4 (Drain and Reset)"), XID_RECOVERY_DRAIN_AND_RESET);
	assert_int_equal(xid_recovery("to 0x9 (Pray)"), XID_RECOVERY_UNKNOWN);
	assert_int_equal(xid_recovery(""), XID_RECOVERY_UNKNOWN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_form_is_understood),
		cmocka_unit_test(a_cut_line_never_lies),
		cmocka_unit_test(other_lines_are_no_reports),
		cmocka_unit_test(mixed_lines_give_each_report),
		cmocka_unit_test(pci_forms),
		cmocka_unit_test(records_carry_sequence_and_time),
		cmocka_unit_test(a_record_of_another_driver_is_no_report),
		cmocka_unit_test(broken_records_are_refused),
		cmocka_unit_test(lines_of_one_fault_are_joined),
		cmocka_unit_test(lines_without_a_pid_are_given_in_the_end),
		cmocka_unit_test(more_devices_than_places_lose_nothing),
		cmocka_unit_test(lost_records_are_counted),
		cmocka_unit_test(recovery_action_is_the_new_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
