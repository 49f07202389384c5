/* SPDX-License-Identifier: MIT */
/*
 * Description: the paths of control groups of all container runtimes, Kubernetes, Slurm and systemd are understood;
 * what only looks like one is not; a group that was removed is marked.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "holders/cgroup.h"
#include "holders/groups.h"

#define ID "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static struct cgroup_place parse(const char *path)
{
	struct cgroup_place place = CGROUP_PLACE_NONE;

	cgroup_parse_path(path, strlen(path), &place);
	return place;
}

static void containers_are_found(void **state)
{
	static const struct {
		const char *path;
		enum cgroup_runtime runtime;
	} cases[] = {
		{"/system.slice/docker-" ID ".scope", CGROUP_DOCKER},
		{"/docker/" ID, CGROUP_DOCKER},
		{"/docker/" ID "/init", CGROUP_DOCKER},
		{"/system.slice:docker:" ID, CGROUP_DOCKER},
		{"/kubepods.slice/cri-containerd-" ID ".scope", CGROUP_CONTAINERD},
		{"/system.slice/containerd.service/kubepods-pod6d1b4a1c_8c4e_4d6b_9f1c_0a7d2b3c4d5e"
		 ".slice:cri-containerd:" ID,
		 CGROUP_CONTAINERD},
		{"/kubepods.slice/crio-" ID ".scope", CGROUP_CRIO},
		{"/kubepods.slice/crio-" ID ".scope/container", CGROUP_CRIO},
		{"/machine.slice/libpod-" ID ".scope", CGROUP_PODMAN},
		{"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" ID
		 ".scope/container",
		 CGROUP_PODMAN},
		{"/libpod_parent/libpod-" ID, CGROUP_PODMAN},
		{"/kubepods/besteffort/pod6d1b4a1c-8c4e-4d6b-9f1c-0a7d2b3c4d5e/" ID,
		 CGROUP_SOME_CONTAINER},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct cgroup_place place = parse(cases[i].path);

		assert_int_equal(place.runtime, cases[i].runtime);
		assert_string_equal(place.container_id, ID);
		assert_false(place.deleted);
	}
}

static void named_containers_are_found(void **state)
{
	struct cgroup_place place = parse("/lxc.payload.web1/system.slice/cron.service");

	(void)state;
	assert_int_equal(place.runtime, CGROUP_LXC);
	assert_string_equal(place.container_id, "web1");
	assert_string_equal(place.unit, "cron.service");
	place = parse("/lxc/web2");
	assert_int_equal(place.runtime, CGROUP_LXC);
	assert_string_equal(place.container_id, "web2");
	place = parse("/machine.slice/systemd-nspawn@box.service/payload");
	assert_int_equal(place.runtime, CGROUP_NSPAWN);
	assert_string_equal(place.container_id, "box");
	assert_string_equal(cgroup_runtime_name(CGROUP_NSPAWN), "nspawn");
}

static void pods_are_found(void **state)
{
	static const char *const paths[] = {
		"/kubepods.slice/kubepods-burstable.slice/"
		"kubepods-burstable-pod6d1b4a1c_8c4e_4d6b_9f1c_0a7d2b3c4d5e.slice/"
		"cri-containerd-" ID ".scope",
		"/kubepods.slice/kubepods-pod6d1b4a1c_8c4e_4d6b_9f1c_0a7d2b3c4d5e.slice/crio-" ID
		".scope",
		"/kubepods/pod6d1b4a1c-8c4e-4d6b-9f1c-0a7d2b3c4d5e/" ID,
		"/kubelet.slice/kubelet-kubepods.slice/"
		"kubelet-kubepods-pod6d1b4a1c_8c4e_4d6b_9f1c_0a7d2b3c4d5e.slice/cri-containerd-" ID
		".scope",
		"/system.slice/containerd.service/kubepods-pod6d1b4a1c_8c4e_4d6b_9f1c_0a7d2b3c4d5e"
		".slice:cri-containerd:" ID,
	};

	(void)state;
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		struct cgroup_place place = parse(paths[i]);

		assert_string_equal(place.pod_uid, "6d1b4a1c-8c4e-4d6b-9f1c-0a7d2b3c4d5e");
		assert_string_equal(place.container_id, ID);
	}
	assert_string_equal(
		parse("/kubepods/burstable/pod0123456789abcdef0123456789abcdef").pod_uid,
		"0123456789abcdef0123456789abcdef");
}

static void batch_jobs_are_found(void **state)
{
	struct cgroup_place place =
		parse("/system.slice/slurmstepd.scope/job_123/step_0/user/task_2");

	(void)state;
	assert_int_equal(place.slurm_job_id, 123);
	assert_string_equal(place.slurm_step, "0");
	assert_int_equal(place.slurm_uid, -1);
	place = parse("/system.slice/node7_slurmstepd.scope/job_9/step_batch/user");
	assert_int_equal(place.slurm_job_id, 9);
	assert_string_equal(place.slurm_step, "batch");
	place = parse("/slurm/uid_1000/job_77/step_extern/task_0");
	assert_int_equal(place.slurm_job_id, 77);
	assert_string_equal(place.slurm_step, "extern");
	assert_int_equal(place.slurm_uid, 1000);
	place = parse("/slurm_node3/uid_0/job_4294967295 (deleted)");
	assert_int_equal(place.slurm_job_id, 4294967295U);
	assert_true(place.deleted);
	assert_string_equal(place.slurm_step, "");
}

static void units_are_found(void **state)
{
	(void)state;
	assert_string_equal(parse("/system.slice/ssh.service").unit, "ssh.service");
	assert_string_equal(parse("/user.slice/user-0.slice/session-3.scope").unit,
			    "session-3.scope");
	assert_string_equal(
		parse("/user.slice/user-1.slice/user@1.service/app.slice/x.service").unit,
		"x.service");
	assert_string_equal(parse("/").unit, "");
}

static void imitations_are_not_taken(void **state)
{
	static const char *const paths[] = {
		"/",
		"",
		"//",
		("/docker/" ID "0"),
		"/docker/0123456789ABCDEF0123456789ABCDEF0123456789ABCDEF0123456789ABCDEF",
		("/docker-" ID "x.scope"),
		"/docker-.scope",
		("/crio-conmon-" ID ".scope"),
		("/somewhere/" ID),
		"/pod6d1b4a1c-8c4e-4d6b-9f1c",
		"/podpodpod",
		"/a/slurm/uid_1/job_5",
		"/slurm/job_",
		"/slurm/job_12x",
		"/slurm/job_99999999999999999999",
		"/lxc.payload.",
		"/machine.slice/systemd-nspawn@.service",
		"/job_5/step_0",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		struct cgroup_place place = parse(paths[i]);

		assert_int_equal(place.runtime, CGROUP_NO_CONTAINER);
		assert_string_equal(place.container_id, "");
		assert_string_equal(place.pod_uid, "");
		assert_true(place.slurm_job_id == GW_UNKNOWN);
		assert_false(place.deleted);
	}
}

static void lines_are_taken_apart(void **state)
{
	struct cgroup_line line;

	(void)state;
	assert_true(cgroup_parse_line("0::/a:b/c", 9, &line));
	assert_true(line.unified);
	assert_int_equal(line.path_bytes, 6);
	assert_memory_equal(line.path, "/a:b/c", 6);
	assert_true(cgroup_parse_line("12:cpu,freezer:/x", 17, &line));
	assert_false(line.unified);
	assert_true(cgroup_line_has(&line, "freezer"));
	assert_true(cgroup_line_has(&line, "cpu"));
	assert_false(cgroup_line_has(&line, "cpu,freezer"));
	assert_false(cgroup_line_has(&line, "free"));
	assert_true(cgroup_parse_line("1:name=systemd:/", 16, &line));
	assert_false(cgroup_parse_line("1:cpu", 5, &line));
	assert_false(cgroup_parse_line("0::", 3, &line));
	assert_false(cgroup_parse_line("0::x", 4, &line));
	assert_false(cgroup_parse_line("", 0, &line));
}

static void mounts_are_found(void **state)
{
	struct groups groups = {0};

	(void)state;
	groups_parse_mounts(
		"24 1 0:22 / /proc rw,nosuid - proc proc rw,hidepid=invisible\n"
		"25 1 0:23 / /sys/fs/cgroup/memory rw shared:7 master:1 - cgroup cgroup rw,memory\n"
		"26 1 0:24 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n"
		"27 1 0:25 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
		"nonsense\n28 1\n",
		&groups);
	assert_string_equal(groups.unified, "/sys/fs/cgroup/unified");
	assert_string_equal(groups.freezer, "/sys/fs/cgroup/freezer");
}

static void hidden_processes_are_known_of(void **state)
{
	const char *old = "24 1 0:22 / /proc rw - proc proc rw,hidepid=2,gid=4\n";
	const char *twice = "24 1 0:22 / /proc rw - proc proc rw\n"
			    "29 1 0:29 / /proc rw - proc proc rw,hidepid=ptraceable\n";

	(void)state;
	assert_int_equal(groups_parse_hidepid(old, "/proc"), 2);
	assert_int_equal(groups_parse_hidepid(twice, "/proc"), 4);
	assert_int_equal(groups_parse_hidepid("24 1 0:22 / /proc rw - proc proc rw\n", "/proc"), 0);
	assert_int_equal(groups_parse_hidepid(old, "/other"), -1);
	assert_int_equal(groups_parse_hidepid("", "/proc"), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(containers_are_found),
		cmocka_unit_test(named_containers_are_found),
		cmocka_unit_test(pods_are_found),
		cmocka_unit_test(batch_jobs_are_found),
		cmocka_unit_test(units_are_found),
		cmocka_unit_test(imitations_are_not_taken),
		cmocka_unit_test(lines_are_taken_apart),
		cmocka_unit_test(mounts_are_found),
		cmocka_unit_test(hidden_processes_are_known_of),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
