/* SPDX-License-Identifier: MIT */
/*
 * Description: what the kernel writes about a process is read whole, whatever the process calls itself; and what
 * came from a process is made printable: one line, valid UTF-8, no control character.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "holders/look.h"
#include "holders/parts.h"
#include "holders/text.h"

static struct scan_process process;

static bool parse_stat(const char *text)
{
	process_init(&process);
	return process_parse_stat(text, strlen(text), &process);
}

static void a_process_is_read_from_stat(void **state)
{
	(void)state;
	assert_true(
		parse_stat("4711 (python3) S 12 13 14 34816 15 4194304 1 2 3 4 5 6 7 8 20 0 9 0 "
			   "123456 1000 200 18446744073709551615\n"));
	assert_string_equal(process.comm, "python3");
	assert_int_equal(process.state, 'S');
	assert_int_equal(process.ppid, 12);
	assert_int_equal(process.pgid, 13);
	assert_int_equal(process.sid, 14);
	assert_int_equal(process.tty, 34816);
	assert_int_equal(process.threads, 9);
	assert_int_equal(process.start_ticks, 123456);
	assert_int_equal(process.flags, 0);
}

static void a_name_can_be_anything(void **state)
{
	(void)state;
	assert_true(
		parse_stat("1 (a) Z 9 (b\n) (c)) S 2 3 4 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 77 0\n"));
	assert_int_equal(process.state, 'S');
	assert_int_equal(process.ppid, 2);
	assert_int_equal(process.start_ticks, 77);
	assert_true(process.flags & SCAN_PF_EXITING);
	assert_string_equal(process.comm, "a) Z 9 (b\n) (c)");
}

static void ends_of_processes_are_told_apart(void **state)
{
	(void)state;
	assert_true(parse_stat("1 (x) Z 2 3 4 0 -1 4228108 0 0 0 0 0 0 0 0 20 0 2 0 77 0\n"));
	assert_true(process.flags & SCAN_ZOMBIE_LEADER);
	assert_true(parse_stat("1 (x) Z 2 3 4 0 -1 4228108 0 0 0 0 0 0 0 0 20 0 1 0 77 0\n"));
	assert_false(process.flags & SCAN_ZOMBIE_LEADER);
	assert_true(parse_stat("1 (x) I 2 0 0 0 -1 69238880 0 0 0 0 0 0 0 0 20 0 1 0 7 0\n"));
	assert_true(process.flags & SCAN_PF_KTHREAD);
}

static void what_is_no_stat_is_refused(void **state)
{
	static const char *const texts[] = {
		"",	   "1",
		"1 (x",	   "1 x) S 1",
		"1 (x)",   "1 (x) ",
		"1 (x) S", "1 (x) S 1 2 3",
		")(",	   "1 (x) S a b c d e f g h i j k l m n o p q r s t\n",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		assert_false(parse_stat(texts[i]));
}

static void a_process_is_read_from_status(void **state)
{
	(void)state;
	process_init(&process);
	process_parse_status("Name:\tx\nUid:\t1000\t0\t0\t0\nTracerPid:\t55\nNSpid:\t300\t7\t1\n"
			     "VmLck:\t       4 kB\nVmPin:\t  16777216 kB\nVmRSS:\t    1234 kB\n"
			     "SigPnd:\t0000000000000100\nShdPnd:\t0000000000004100\n"
			     "SigBlk:\tfffffffe7ffbfeff\nSigIgn:\t0000000000000000\n"
			     "SigCgt:\t0000000180000002\n",
			     &process);
	assert_int_equal(process.uid, 1000);
	assert_int_equal(process.effective_uid, 0);
	assert_int_equal(process.tracer_pid, 55);
	assert_int_equal(process.nspid_count, 3);
	assert_int_equal(process.nspid[1], 7);
	assert_int_equal(process.nspid[2], 1);
	assert_int_equal(process.locked_bytes, 4096);
	assert_int_equal(process.pinned_bytes, 16ULL << 30);
	assert_int_equal(process.signals.pending_thread, 0x100);
	assert_int_equal(process.signals.pending, 0x4100);
	assert_int_equal(process.signals.caught, 0x180000002);
}

static void what_status_leaves_out_is_unknown(void **state)
{
	(void)state;
	process_init(&process);
	process_parse_status(
		"Name:\tkworker\nUid:\t0\t0\t0\t0\nNSpid:\t7\nVmRSS:\nSigPnd:\tx\n\n:\n", &process);
	assert_int_equal(process.nspid_count, 1);
	assert_int_equal(process.nspid[0], 7);
	assert_true(process.rss_bytes == GW_UNKNOWN);
	assert_true(process.pinned_bytes == GW_UNKNOWN);
	assert_true(process.signals.pending_thread == GW_UNKNOWN);
	assert_int_equal(process.tracer_pid, -1);
}

#define shows(from, expected) check_shown(from, sizeof(from) - 1, expected)

static void check_shown(const char *from, size_t from_bytes, const char *expected)
{
	char text[128];

	assert_int_equal(text_printable(text, sizeof(text), from, from_bytes), strlen(expected));
	assert_string_equal(text, expected);
}

static void text_of_a_process_is_made_printable(void **state)
{
	(void)state;
	shows("plain", "plain");
	shows("", "");
	shows("a\0b c\0\0", "a b c");
	shows("\033[2J\r\n\tx\x7f", "?[2J???x?");
	shows("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x9a\x80",
	      "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x9a\x80");
	/* C1 control, right-to-left override, line separator, zero width space, byte order mark */
	shows("a\xc2\x9b"
	      "1m\xe2\x80\xae"
	      "b\xe2\x80\xa8"
	      "c\xe2\x80\x8b"
	      "d\xef\xbb\xbf",
	      "a?1m?b?c?d?");
	/* no UTF-8: a lone byte, too long a form of "/", half of a pair, too large, cut */
	shows("\x80x\xc0\xafy\xed\xa0\x80z\xf4\x90\x80\x80\xe2\x82", "?x??y???z??????");
}

static void printable_text_is_cut_between_characters(void **state)
{
	char text[8];

	(void)state;
	memset(text, 'x', sizeof(text));
	assert_int_equal(text_printable(text, 4, "ab\xe2\x82\xac", 5), 2);
	assert_string_equal(text, "ab");
	assert_int_equal(text_printable(text, 6,
					"ab\xe2\x82\xac"
					"c",
					6),
			 5);
	assert_int_equal(text_printable(text, 1, "ab", 2), 0);
	assert_string_equal(text, "");
}

static void the_driver_is_known_by_stack_and_function(void **state)
{
	(void)state;
	assert_true(exiting_is_driver_stack("[<0>] os_acquire_mutex+0x39/0x50 [nvidia]\n"));
	assert_true(exiting_is_driver_stack("[<0>] f+0x1/0x2\n[<0>] uvm_x+0x1/0x2 [nvidia_uvm]\n"));
	assert_false(exiting_is_driver_stack("[<0>] pipe_read+0x1/0x2\n[<0>] g+0x1/0x2 [fuse]\n"));
	assert_true(exiting_is_driver_function("os_acquire_rwlock_write"));
	assert_true(exiting_is_driver_function("uvm_va_space_destroy"));
	assert_false(exiting_is_driver_function("pipe_read"));
	assert_false(exiting_is_driver_function(""));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_process_is_read_from_stat),
		cmocka_unit_test(a_name_can_be_anything),
		cmocka_unit_test(ends_of_processes_are_told_apart),
		cmocka_unit_test(what_is_no_stat_is_refused),
		cmocka_unit_test(a_process_is_read_from_status),
		cmocka_unit_test(what_status_leaves_out_is_unknown),
		cmocka_unit_test(text_of_a_process_is_made_printable),
		cmocka_unit_test(printable_text_is_cut_between_characters),
		cmocka_unit_test(the_driver_is_known_by_stack_and_function),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
