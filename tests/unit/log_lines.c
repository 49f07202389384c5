/* SPDX-License-Identifier: MIT */
/*
 * Description: pieces of the kernel log that are cut anywhere give the same reports; long and broken lines
 * cost nothing but themselves; what programs wrote is no report; missing records are counted; an Xid
 * says what it implies and no more.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/xid_result.h"
#include "ward/kernel_log.h"
#include "ward/log_lines.h"

static struct xid_line got[8];
static unsigned int n_got;

static void keep(void *owner, const struct xid_line *line)
{
	(void)owner;
	assert_true(n_got < sizeof(got) / sizeof(got[0]));
	got[n_got++] = *line;
}

static struct log_lines lines;

static int set_up(void **state)
{
	(void)state;
	memset(&lines, 0, sizeof(lines));
	lines.give = keep;
	n_got = 0;
	return 0;
}

#define HEAD	  "NVRM: Xid (PCI:0000:00:06): "
#define STOPPED	  HEAD "43, pid=648, name=c, channel 0x0000000a"
#define WARP	  HEAD "13, Graphics SM Warp Exception on (GPC 1, TPC 4, SM 0): "
#define REGISTERS HEAD "13, Graphics Exception: ESR 0x50ce48=0x10000f"
#define NAMED	  HEAD "13, pid=502, name=a, Graphics Exception: channel 0x0000000b"

static void feed(const char *text, uint64_t now_ns)
{
	log_lines_bytes(&lines, text, strlen(text), now_ns);
}

static const char whole[] = "6,1,10,-;usb 1-1: new device\n"
			    " SUBSYSTEM=usb\n"
			    "\n"
			    "3,2,20,-;" STOPPED "\n"
			    "3,3,30,-;" WARP "Misaligned Address\n"
			    "3,4,31,-;" REGISTERS "\n"
			    "3,5,32,-;" NAMED "\n";

static void any_cut_gives_the_same_reports(void **state)
{
	for (size_t piece = 1; piece <= sizeof(whole); piece++) {
		(void)set_up(state);
		for (size_t at = 0; at < strlen(whole); at += piece) {
			size_t left = strlen(whole) - at;

			log_lines_bytes(&lines, whole + at, left < piece ? left : piece, 7);
		}
		assert_int_equal(n_got, 2);
		assert_int_equal(got[0].number, 43);
		assert_int_equal(got[0].pid, 648);
		assert_int_equal(got[1].number, 13);
		assert_int_equal(got[1].pid, 502);
		assert_non_null(strstr(got[1].rest, "Misaligned Address"));
		assert_int_equal(lines.broken, 0);
		assert_int_equal(log_lines_lost(&lines), 0);
	}
}

static void half_a_line_is_no_report(void **state)
{
	(void)state;
	feed("3,2,20,-;" HEAD "43, pid=64", 1);
	assert_int_equal(n_got, 0);
	feed("8, name=c, channel 0x0000000a\n", 2);
	assert_int_equal(n_got, 1);
	assert_int_equal(got[0].pid, 648);
	assert_int_equal(got[0].at_ns, 2);
}

static void a_line_that_is_too_long_costs_only_itself(void **state)
{
	static char junk[1000];

	(void)state;
	memset(junk, 'x', sizeof(junk));
	for (int i = 0; i < 20; i++)
		log_lines_bytes(&lines, junk, sizeof(junk), 1);
	feed("3,1,1,-;" STOPPED "\n", 1);
	assert_int_equal(n_got, 0);
	assert_int_equal(lines.broken, 1);
	feed("3,2,2,-;" STOPPED "\n", 1);
	assert_int_equal(n_got, 1);
}

static void broken_lines_are_counted(void **state)
{
	(void)state;
	feed(STOPPED "\n3,x;" STOPPED "\n;\n3,2,2,-;" STOPPED "\n", 1);
	assert_int_equal(lines.broken, 3);
	assert_int_equal(n_got, 1);
}

static void what_programs_wrote_is_no_report(void **state)
{
	(void)state;
	feed("12,1,1,-;" STOPPED "\n", 1);
	feed("3,2,2,-;program: " STOPPED "\n", 1);
	assert_int_equal(n_got, 0);
}

static void missing_records_are_counted(void **state)
{
	(void)state;
	log_lines_overrun(&lines);
	assert_int_equal(log_lines_lost(&lines), 1);
	feed("6,10,1,-;a\n6,11,1,-;b\n6,15,1,-;c\n", 1);
	log_lines_overrun(&lines);
	assert_int_equal(log_lines_lost(&lines), 4);
	feed("6,18,1,-;d\n", 1);
	assert_int_equal(log_lines_lost(&lines), 6);
	/* A file that begins anew is another count of records. */
	log_lines_restart(&lines);
	feed("6,100,1,-;e\n", 1);
	assert_int_equal(log_lines_lost(&lines), 6);
}

static void a_beginning_drops_half_a_line(void **state)
{
	(void)state;
	feed("3,2,20,-;" HEAD "43, pid=6", 1);
	log_lines_restart(&lines);
	feed("3,1,1,-;" STOPPED "\n", 1);
	assert_int_equal(n_got, 1);
	assert_int_equal(got[0].pid, 648);
}

static void a_pid_that_never_comes_is_waited_for_in_bounds(void **state)
{
	(void)state;
	assert_true(log_lines_oldest_ns(&lines) == GW_FOREVER);
	feed("3,1,1,-;" WARP "Misaligned Address\n", 100);
	feed("3,2,1,-;" REGISTERS "\n", 150);
	assert_true(log_lines_oldest_ns(&lines) == 100);
	log_lines_expire(&lines, 199, 100);
	assert_int_equal(n_got, 0);
	log_lines_expire(&lines, 200, 100);
	assert_int_equal(n_got, 1);
	assert_false(got[0].have & XID_HAVE_PID);
	assert_true(log_lines_oldest_ns(&lines) == GW_FOREVER);
}

/* As a stack overflow was reported. */
static void the_pid_can_come_with_xid_43(void **state)
{
	(void)state;
	feed("3,1,1,-;" WARP "Out Of Range Address\n", 100);
	feed("3,2,1,-;" REGISTERS "\n", 101);
	feed("3,3,1,-;" STOPPED "\n", 102);
	assert_int_equal(n_got, 1);
	assert_int_equal(got[0].number, 43);
	assert_int_equal(got[0].pid, 648);
	assert_int_equal(got[0].at_ns, 100);
	assert_int_equal(xid_result(got[0].number, got[0].rest), 700);
	assert_true(log_lines_oldest_ns(&lines) == GW_FOREVER);
}

static void xid_43_of_another_device_is_another_fault(void **state)
{
	(void)state;
	feed("3,1,1,-;" WARP "Out Of Range Address\n", 100);
	feed("3,2,1,-;NVRM: Xid (PCI:0000:00:07): 43, pid=9, name=c, channel 0x0000000a\n", 102);
	assert_int_equal(n_got, 1);
	assert_int_equal(xid_result(got[0].number, got[0].rest), -1);
	assert_true(log_lines_oldest_ns(&lines) == 100);
}

static const struct {
	const char *text;
	int32_t pid, xid, cuda;
	bool ends;
	const char *pci;
} meanings[] = {
	{STOPPED, 648, 43, -1, true, "0000:00:06"},
	{HEAD "31, pid=617, name=c, channel 0x0000000b, intr 00000000. MMU Fault: x", 617, 31, 700,
	 true, "0000:00:06"},
	{HEAD "31, pid='<unknown>', name=<unknown>, Ch 0000000b", -1, 31, 700, true, "0000:00:06"},
	{HEAD "63, pid=617, name=c, Row Remapper: x", 617, 63, -1, false, "0000:00:06"},
	{HEAD "4000, pid=617, name=c, x", 617, 4000, -1, true, "0000:00:06"},
	{"NVRM: Xid (PCI:0001:c1:1f): 79, GPU has fallen off the bus.", -1, 79, -1, true,
	 "0001:c1:1f"},
	{HEAD "13, pid=5, name=c, Illegal Instruction Parameter", 5, 13, 715, true, "0000:00:06"},
};

static void an_xid_says_what_it_implies(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(meanings) / sizeof(meanings[0]); i++) {
		struct xid_line line;
		struct kernel_log_xid xid;

		assert_true(xid_parse(meanings[i].text, strlen(meanings[i].text), &line) > 0);
		line.at_ns = 77;
		xid = kernel_log_read_line(&line, true);
		assert_int_equal(xid.pid, meanings[i].pid);
		assert_int_equal(xid.xid, meanings[i].xid);
		assert_int_equal(xid.cuda, meanings[i].cuda);
		assert_int_equal(xid.ends_process, meanings[i].ends);
		assert_string_equal(xid.pci, meanings[i].pci);
		assert_int_equal(xid.at_ns, 77);
		assert_int_equal(kernel_log_read_line(&line, false).pid, -1);
	}
}

#define CASE(name) cmocka_unit_test_setup(name, set_up)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(any_cut_gives_the_same_reports),
		CASE(half_a_line_is_no_report),
		CASE(a_line_that_is_too_long_costs_only_itself),
		CASE(broken_lines_are_counted),
		CASE(what_programs_wrote_is_no_report),
		CASE(missing_records_are_counted),
		CASE(a_beginning_drops_half_a_line),
		CASE(a_pid_that_never_comes_is_waited_for_in_bounds),
		CASE(the_pid_can_come_with_xid_43),
		CASE(xid_43_of_another_device_is_another_fault),
		CASE(an_xid_says_what_it_implies),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
