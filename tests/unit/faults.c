/* SPDX-License-Identifier: MIT */
/*
 * Description: every CUDA result and every Xid has the class or action that the design gives it, with
 * a text; the tables are sorted and hold each number once; unknown numbers stay unknown; exit codes
 * tell "try elsewhere" from "repair the node".
 *
 * The lists here are written a second time, by class and as ranges, so that a slip in a table shows.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/faults.h"

/* Is NUMBER in LIST, a text such as "3 39-41 75-77"? */
static int listed(const char *list, unsigned int number)
{
	char *end;

	while (*list) {
		unsigned long first = strtoul(list, &end, 10);
		unsigned long last = *end == '-' ? strtoul(end + 1, &end, 10) : first;

		assert_ptr_not_equal(list, end);
		if (number >= first && number <= last)
			return 1;
		list = *end ? end + 1 : end;
	}
	return 0;
}

static const char *const classes[] = {
	[GW_FAULT_NONE] = "0 600 909",
	[GW_FAULT_CALLER] =
		("1 5-8 101 200-202 205-213 215-219 221-225 300-304 400-402 500 703-705 "
		 "708-709 711-713 720 800-801 811-812 900-908 910 912-915"),
	[GW_FAULT_RESOURCES] = "2 701",
	[GW_FAULT_POISONED] = "226 700 702 710 714-719 721 911",
	[GW_FAULT_DEVICE] = "46 214 220 916 999",
	[GW_FAULT_NODE] = "3 4 34 36 100 102 802-804",
	[GW_FAULT_MPS] = "805-810",
};

static void every_result_has_its_class(void **state)
{
	unsigned int known = 0;

	(void)state;
	for (unsigned int number = 0; number < 1100; number++) {
		int found = 0;

		for (int kind = GW_FAULT_NONE; kind <= GW_FAULT_MPS; kind++) {
			if (!listed(classes[kind], number))
				continue;
			found++;
			assert_int_equal(gw_cuda_class((int)number), kind);
			assert_non_null(gw_cuda_name((int)number));
		}
		assert_in_range(found, 0, 1);
		known += (unsigned int)found;
		if (!found)
			assert_null(gw_cuda_name((int)number));
	}
	assert_int_equal(known, 101);
}

static void result_table_is_sorted_and_worded(void **state)
{
	size_t count;
	const struct cuda_fault *rows = cuda_fault_table(&count);

	(void)state;
	assert_int_equal(count, 101);
	for (size_t i = 0; i < count; i++) {
		assert_true(i == 0 || rows[i - 1].number < rows[i].number);
		assert_ptr_equal(cuda_fault_find(rows[i].number), &rows[i]);
		assert_true(strncmp(rows[i].name, "CUDA_", 5) == 0);
		assert_string_equal(gw_cuda_name(rows[i].number), rows[i].name);
		assert_string_equal(gw_cuda_text(rows[i].number), rows[i].text);
		assert_true(strlen(rows[i].text) > 5 && strlen(rows[i].text) < 140);
		for (size_t k = 0; k < i; k++)
			assert_string_not_equal(rows[k].name, rows[i].name);
	}
}

static void unknown_results_stay_unknown(void **state)
{
	const int numbers[] = {-1, 9, 203, 706, 1000, INT32_MAX, INT32_MIN};

	(void)state;
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		assert_null(gw_cuda_name(numbers[i]));
		assert_non_null(gw_cuda_text(numbers[i]));
		assert_int_equal(gw_cuda_class(numbers[i]), GW_FAULT_CALLER);
	}
}

static const struct {
	char letter;
	const char *list;
} xid_lists[] = {
	{'A', "8 11 13 25 31 32 39-41 60 68-72 75-77 80 82-86 88-89 94 96-105 126-135 139"},
	{'I', "14 37-38 43-44 63 66-67 92-93 106-108 121 137 141 152-153 157 160-161"},
	{'R', "46 62 64 95 109-110 119-120 136 140 143 155-156 158"},
	{'B', "79 151"},
	{'N', "74 144-150"},
	{'W', "45 48 54 78 154 159 171-172"},
	{'S', "1-7 9-10 12 15-24 26-30 33-36 42 47 49-53 55-59 61 65 73 81 87 90-91 111-118 "
	      "122-125 138 142 162-170"},
};

static void every_xid_has_its_action(void **state)
{
	(void)state;
	for (unsigned int number = 1; number <= 172; number++) {
		const struct xid_info *row = xid_find(number);
		int found = 0;

		assert_non_null(row);
		for (size_t i = 0; i < sizeof(xid_lists) / sizeof(xid_lists[0]); i++) {
			if (!listed(xid_lists[i].list, number))
				continue;
			found++;
			assert_int_equal(xid_action_letter(row->action), xid_lists[i].letter);
		}
		assert_int_equal(found, 1);
	}
}

static void xid_table_is_sorted_and_worded(void **state)
{
	size_t count;
	const struct xid_info *rows = xid_table(&count);

	(void)state;
	assert_int_equal(count, 172);
	for (size_t i = 0; i < count; i++) {
		assert_true(i == 0 || rows[i - 1].number < rows[i].number);
		assert_ptr_equal(xid_find(rows[i].number), &rows[i]);
		assert_true(strlen(rows[i].text) > 5);
		assert_int_not_equal(rows[i].alone, XID_NOTE);
		assert_int_not_equal(rows[i].alone, XID_UNKNOWN);
		if (rows[i].action != XID_NOTE)
			assert_int_equal(rows[i].alone, rows[i].action);
		assert_int_equal(xid_advise(rows[i].number, 5), rows[i].alone);
	}
}

static void xids_of_a_dead_process_are_told_from_reports(void **state)
{
	const unsigned int dead[] = {13, 31, 43, 45, 79, 94, 119};
	const unsigned int report[] = {14, 63, 92, 106, 154, 156, 160, 162};

	(void)state;
	for (size_t i = 0; i < sizeof(dead) / sizeof(dead[0]); i++)
		assert_true(xid_find(dead[i])->ends_process);
	for (size_t i = 0; i < sizeof(report) / sizeof(report[0]); i++)
		assert_false(xid_find(report[i])->ends_process);
}

static void unknown_xid_restarts_once_then_resets(void **state)
{
	const unsigned int numbers[] = {0, 173, 999, UINT32_MAX};

	(void)state;
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		assert_null(xid_find(numbers[i]));
		assert_int_equal(xid_advise(numbers[i], 0), XID_RESTART);
		assert_int_equal(xid_advise(numbers[i], 1), XID_RESET);
		assert_int_equal(xid_advise(numbers[i], 7), XID_RESET);
	}
	assert_int_equal(xid_action_letter(XID_UNKNOWN), '?');
	assert_int_equal(xid_action_letter((enum xid_action)99), '?');
}

static void exit_codes_tell_elsewhere_from_repair(void **state)
{
	(void)state;
	assert_int_equal(xid_exit_code(XID_RESET), 75);
	assert_int_equal(xid_exit_code(XID_NVLINK), 75);
	assert_int_equal(xid_exit_code(XID_REBOOT), 76);
	assert_int_equal(xid_exit_code(XID_RESTART), FAULT_EXIT_OWN);
	assert_int_equal(xid_exit_code(XID_IGNORE), FAULT_EXIT_OWN);
	assert_int_equal(cuda_exit_code(GW_FAULT_NODE), 76);
	assert_int_equal(cuda_exit_code(GW_FAULT_DEVICE), 75);
	assert_int_equal(cuda_exit_code(GW_FAULT_POISONED), FAULT_EXIT_OWN);
	assert_int_equal(cuda_exit_code(GW_FAULT_CALLER), FAULT_EXIT_OWN);
}

static void every_class_and_action_has_words(void **state)
{
	(void)state;
	for (int kind = GW_FAULT_NONE; kind <= GW_FAULT_MPS; kind++) {
		assert_non_null(cuda_remedy((enum gw_fault_class)kind));
		for (int other = GW_FAULT_NONE; other < kind; other++)
			assert_string_not_equal(cuda_remedy((enum gw_fault_class)kind),
						cuda_remedy((enum gw_fault_class)other));
	}
	for (int action = XID_UNKNOWN; action <= XID_SUPPORT; action++)
		assert_true(strlen(xid_action_text((enum xid_action)action)) > 4);
	assert_string_equal(xid_action_text((enum xid_action) - 1), "unknown");
}

/* Workers and gw_isolate() ask the same question. */
static void what_ends_a_process_is_one_answer(void **state)
{
	const int ends[] = {700, 710, 716, 719, 214, 999, 806, 810};
	const int stays[] = {0, 1, 2, 201, 600, 802, 807, 808, 42, -5};

	(void)state;
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		assert_true(cuda_ends_process(ends[i]));
	for (size_t i = 0; i < sizeof(stays) / sizeof(stays[0]); i++)
		assert_false(cuda_ends_process(stays[i]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_ends_a_process_is_one_answer),
		cmocka_unit_test(every_result_has_its_class),
		cmocka_unit_test(result_table_is_sorted_and_worded),
		cmocka_unit_test(unknown_results_stay_unknown),
		cmocka_unit_test(every_xid_has_its_action),
		cmocka_unit_test(xid_table_is_sorted_and_worded),
		cmocka_unit_test(xids_of_a_dead_process_are_told_from_reports),
		cmocka_unit_test(unknown_xid_restarts_once_then_resets),
		cmocka_unit_test(exit_codes_tell_elsewhere_from_repair),
		cmocka_unit_test(every_class_and_action_has_words),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
