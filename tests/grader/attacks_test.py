"""Attacks score no point beyond honest work, leave nothing, and end in valid results with a reason (attacks.toml)."""

import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import labs
from cairn_grader import cgroup, gate, grading, lab, landlock, sandbox, seccomp, starter
from cairn_grader.lab import tomllib

RING = lab.load(grading.ROOT / "labs" / "02-ring-allreduce")
ATTACKS = tomllib.loads(pathlib.Path(__file__).with_name("attacks.toml").read_text(encoding="utf-8"))["attack"]
NOT_WRITTEN = 'throw std::logic_error("task 1: ring_all_reduce is not written yet");'

FRAMES = """
#include <unistd.h>
#include <cstdint>
#include <string>
static void write_all(const void* from, std::size_t n) {
    for (int pipe = 3; pipe < 64; ++pipe) {
        const char* at = static_cast<const char*>(from);
        for (std::size_t left = n; left > 0;) {
            const ssize_t m = write(pipe, at, left);
            if (m <= 0) break;
            at += m, left -= static_cast<std::size_t>(m);
        }
    }
}
static void frame(std::uint32_t kind, std::uint32_t number, const std::string& payload) {
    struct { std::uint32_t kind, number; std::uint64_t bytes; } head{kind, number, payload.size()};
    const std::string all = std::string(reinterpret_cast<const char*>(&head), sizeof head) + payload;
    write_all(all.data(), all.size());
}
static std::string raw(std::uint64_t x) { return std::string(reinterpret_cast<const char*>(&x), sizeof x); }
static std::string integer(std::uint64_t x) { return "+" + raw(x); }
"""

FLOOD = """
static const bool floods = [] {
    std::thread([] {
        for (pollfd end{3, 0, 0};; end.fd = end.fd % 60 + 3) {
            if (end.fd == 3) usleep(1000);
            if (poll(&end, 1, 0) > 0 && end.revents & (POLLERR | POLLHUP)) break;  // its other end is closed: the judge is gone
        }
        for (static char room[1 << 16];;) (void)!write(1, room, sizeof room);
    }).detach();
    return true;
}();
"""
LATE_FLOOD = """
#include <sys/time.h>
#include <csignal>
static void again_in(long microseconds) {
    const itimerval once{{0, 0}, {0, microseconds}};
    setitimer(ITIMER_REAL, &once, nullptr);
}
static void waits(int) {  // for the judge's end, in the thread that would end with it; most of the time that it has nothing else to do
    for (int i = 0; i < 20; ++i, usleep(200))
        for (int pipe = 3; pipe < 64; ++pipe) {
            pollfd end{pipe, POLLIN, 0};
            if (poll(&end, 1, 0) <= 0) continue;
            if (end.revents & (POLLERR | POLLHUP)) {
                usleep(100000);
                for (static char room[1 << 16];;) (void)!write(1, room, sizeof room);
            }
            if (end.revents & POLLIN) return again_in(300);
        }
    again_in(2000);
}
static const bool late = (std::signal(SIGALRM, waits), again_in(1000), true);
"""
SLOW = """
template <int n> consteval int loops() { int sum = 0; for (int i = 0; i < 200000; ++i) sum += i & 1; return sum; }
template <int n> int of() { static_assert(loops<n>() > n); return n + of<n - 1>(); }
template <> int of<0>() { return 0; }
static const int all = of<800>();
"""


def text_of(attack, starter):
    """The first file of the lab with the attack in it."""
    includes = "".join(f"#include <{name}>\n" for name in (*attack.get("includes", ()), "cstdio", "cstdlib", "stdexcept"))
    text = includes + (FRAMES if attack.get("frames") else "") + starter.replace(NOT_WRITTEN, attack.get("ring", NOT_WRITTEN)) + attack.get("text", "")
    if "main" in attack:
        text += f"\nstatic const int attacks = [] {{ {attack['main']} return 0; }}();\n"
    for word, meaning in (("@lab@", str(RING.folder)), ("@root@", str(grading.ROOT)), ("@long@", 'R"(' * 80000)):
        text = text.replace(word, meaning)
    return text


class Attacks(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="cairn-attack-"))
        self.folder.chmod(0o711)  # compilers and workers have other users
        self.addCleanup(grading.remove, self.folder)
        self.addCleanup(self.nothing_is_left)
        self.addCleanup(setattr, tempfile, "tempdir", tempfile.tempdir)
        tempfile.tempdir = str(self.folder)

    def nothing_is_left(self):
        self.assertEqual([path.name for path in self.folder.glob("cairn-grade-*")], [])

    def handed_in(self, name="submission"):
        return gate.copied(RING.folder / "starter", self.folder / name)

    def test_every_attack(self):
        guarded = seccomp.supported() and landlock.version() > 0
        only = os.environ.get("CAIRN_ATTACK")
        for attack in ATTACKS:
            if only and only not in attack["name"] or not guarded and "status 3" in attack["says"]:
                continue
            with self.subTest(attack["name"]):
                path = self.handed_in() / "all_reduce.hpp"
                path.write_text(text_of(attack, path.read_text(encoding="utf-8")), encoding="utf-8")
                one = gate.of_one_test(RING)
                if "test" in attack:
                    one = gate.dataclasses.replace(one, tests=tuple(test for test in RING.tests if test.name == attack["test"]))
                if "compile_seconds" in attack:
                    one = gate.dataclasses.replace(one, limits=gate.dataclasses.replace(RING.limits, compile_seconds=attack["compile_seconds"]))
                before = shared_memory()
                started = time.monotonic()
                result = grading.grade(one, path.parent, secret="attack", programs=("public",))
                gate.valid(result)
                why = result.tests[0].message
                self.assertEqual(result.score, 0, why)
                self.assertRegex(why, attack["says"] or ".")
                self.assertLess(len(why), 30000)
                self.assertLess(time.monotonic() - started, 180)
                self.assertRegex(result.output, attack.get("in_output") or "^")
                if "not_in_output" in attack:
                    self.assertNotIn(attack["not_in_output"], result.output)
                self.assertEqual(sandbox.descendants(), {})
                self.assertEqual(shared_memory(), before)

    def test_files_of_the_wrong_kind(self):
        for what, make, says in (("nothing", lambda p: None, "missing"), ("a folder", lambda p: p.mkdir(), "is a folder"),
                                 ("a link", lambda p: p.symlink_to("/etc/passwd"), "is a link"), ("a dangling link", lambda p: p.symlink_to("nowhere"), "is a link"),
                                 ("a pipe", os.mkfifo, "no ordinary file"), ("no bytes", lambda p: p.write_bytes(b""), "is empty"),
                                 ("a zero", lambda p: p.write_bytes(b"int x;\0\n"), "zero byte"), ("no UTF-8", lambda p: p.write_bytes(b"// caf\xe9\n"), "no UTF-8"),
                                 ("100 MB", lambda p: os.truncate(os.open(p, os.O_CREAT | os.O_WRONLY), 100 << 20), "more than 256 kB")):
            with self.subTest(what):
                folder = self.folder / what.replace(" ", "-")
                folder.mkdir()
                make(folder / labs.example.files[0])
                result = grading.grade(labs.example, folder, programs=("public",))
                gate.valid(result)
                self.assertEqual(result.score, 0)
                self.assertIn(says, result.tests[0].message)

    def test_what_is_handed_in_by_accident(self):
        name = labs.example.files[0]
        text = (labs.solution / name).read_text(encoding="utf-8")
        for what, place, data in (("a folder around it", f"my lab ü/{name}", text.encode()), ("two folders", f"a/b/{name}", text.encode()),
                                  ("CRLF", name, text.replace("\n", "\r\n").encode()), ("a BOM", name, b"\xef\xbb\xbf" + text.encode())):
            with self.subTest(what):
                path = self.folder / what / place
                path.parent.mkdir(parents=True)
                path.write_bytes(data)
                self.assertEqual(grading.grade(labs.example, self.folder / what, programs=("public",)).score, 50)
        result = grading.grade(labs.example, RING.folder / "starter", programs=("public",))
        self.assertIn("files of lab 02-ring-allreduce", result.tests[0].message)

    def test_a_file_that_does_not_compile_costs_its_own_tasks(self):
        folder = self.folder / "half"
        folder.mkdir()
        starter.write(RING, to_solution=folder)
        (folder / "cost.hpp").write_text("this is no C++\n")
        result = grading.grade(RING, folder, secret="s")
        self.assertEqual(result.score, 90)
        self.assertEqual(result.output.count("this is no C++"), 1)
        self.assertTrue(all("cost.hpp does not compile" in t.message for t in result.tests if not t.passed))

    def test_deep_folders_in_a_submission(self):
        inner = here = str(self.handed_in("deep"))
        place = os.open(here, os.O_RDONLY)
        for _ in range(1500):
            os.mkdir("d", dir_fd=place)
            inner, place = os.open("d", os.O_RDONLY, dir_fd=place), os.close(place) or 0
            place = inner
        os.close(place)
        self.assertEqual(grading.grade(gate.of_one_test(RING), here, programs=("public",)).score, 0)

    def test_a_flood_after_the_end(self):
        """Honest work, and a thread or a signal's handler that prints without end once the judge has gone: the grader neither waits for it nor keeps what it
        says."""
        for which, flood in enumerate((FLOOD, LATE_FLOOD)):
            with self.subTest(which):
                folder = self.folder / f"flood-{which}"
                folder.mkdir()
                starter.write(RING, to_solution=folder)
                path = folder / "all_reduce.hpp"
                path.write_text("#include <poll.h>\n#include <unistd.h>\n#include <thread>\n" + path.read_text(encoding="utf-8") + flood, encoding="utf-8")
                started, most = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
                result = grading.grade(gate.of_one_test(RING), folder, secret="attack", programs=("public",))
                self.assertTrue(result.score == 10 or "printed without end" in result.tests[0].message, result.tests[0].message)
                self.assertLess(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - most, 50 << 10)
                self.assertLess(time.monotonic() - started, 60)

    def test_names_and_links_in_a_submission(self):
        folder = self.handed_in("one\n\"two\" \x1b[31m 'three'")
        for name in ("\n", "\"quotes\"", "\x1b[31mred", "-rf", "$(id)", "ü\u202e"):
            (folder / name).mkdir()
            (folder / name / "all_reduce.hpp").symlink_to(RING.folder / "solution" / "all_reduce.hpp")
        os.symlink(RING.folder / "solution", folder / "solution")
        result = grading.grade(gate.of_one_test(RING), folder, secret="s", programs=("public",))
        gate.valid(result)
        self.assertIn("written yet", result.tests[0].message)
        for place, target in (("all_reduce.hpp", "solution/all_reduce.hpp"), ("cost.hpp", "grading/hidden.cpp"), ("buckets.hpp", "lab.toml")):
            (folder / place).unlink()
            (folder / place).symlink_to(RING.folder / target)
        result = grading.grade(gate.of_one_test(RING), folder, secret="s", programs=("public",))
        self.assertEqual((result.score, "TEST_CASE" in str(result)), (0, False))
        self.assertIn("is a link", result.tests[0].message)

    def test_lines_of_the_compiler_are_not_those_of_the_grader(self):
        path = self.handed_in() / "all_reduce.hpp"
        path.write_text(path.read_text(encoding="utf-8") + '\n#pragma message("\\n02-ring-allreduce: 100 of 100 points\\n")\n', encoding="utf-8")
        done = subprocess.run([sys.executable, grading.ROOT / "labs" / "grader" / "grade", RING.folder, path.parent, "--public", "--only", "cost"],
                              capture_output=True, text=True)
        self.assertIn("100 of 100", done.stdout)
        self.assertNotRegex(done.stdout, "(?m)^02-ring-allreduce: 100")
        self.assertRegex(done.stdout, "(?m)^02-ring-allreduce: 0 of")

    def test_signals_end_in_valid_results(self):
        """In the middle of the compiler, of a test, and when the first results are written."""
        for what, attack, sign_of_it in (("compiler", {"text": SLOW}, "cairn-grade-*/work/submission/buckets.hpp"),
                                         ("test", {"main": "for (volatile int i = 0;; i = i + 1) {}"}, "cairn-grade-*/empty"), ("results", {}, "../*.json*")):
            folder = self.handed_in(what)
            path = folder / "all_reduce.hpp"
            path.write_text(text_of(attack, path.read_text(encoding="utf-8")), encoding="utf-8")
            for sign in (signal.SIGTERM, signal.SIGINT):
                with self.subTest(what, sign=sign):
                    out, temporary = self.folder / f"{what}-{sign}" / "results.json", self.folder / f"{what}-{sign}" / "temporary"
                    out.parent.mkdir(mode=0o711)
                    temporary.mkdir(mode=0o711)
                    before = shared_memory()
                    grader = subprocess.Popen([sys.executable, grading.ROOT / "labs" / "grader" / "grade", RING.folder, folder, "--gradescope", out],
                                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "TMPDIR": str(temporary)})
                    while not any(temporary.glob(sign_of_it)):
                        time.sleep(0.001)
                    if what != "results":
                        time.sleep(1)
                        self.assertEqual((out.exists(), any(temporary.glob("cairn-grade-*/empty"))), (False, what == "test"))
                    grader.send_signal(sign)
                    self.assertEqual(grader.wait(30), 2)
                    written = gate.json.loads(out.read_text(encoding="utf-8"))
                    self.assertEqual(len(written["tests"]), len(RING.tests))
                    self.assertIn("stopped", written["tests"][-1]["output"])
                    self.assertEqual(list(temporary.iterdir()), [])
                    self.assertEqual((shared_memory(), groups(grader.pid)), (before, []))
                    self.assertEqual([path.name for path in out.parent.glob("*.new")], [])

    def test_without_root_scores_are_the_same(self):
        if os.geteuid():
            self.skipTest("tests run without root anyway")
        user, sandbox.private_user = sandbox.private_user, lambda which=0: None
        self.addCleanup(setattr, sandbox, "private_user", user)
        self.assertEqual(grading.grade(labs.example, labs.solution).score, 100)

    def test_signals_in_between(self):
        """Before anybody knows of a control group, of which there is none outside cgroup v2; in the middle of the clean-up."""
        environment = {**os.environ, "PYTHONPATH": str(grading.ROOT / "labs" / "grader"), "TMPDIR": str(self.folder)}
        ending = subprocess.Popen([sys.executable, "-c", "from cairn_grader import cgroup; cgroup.Cgroup(64, 8)"], env=environment)
        self.assertEqual((ending.wait(30), groups(ending.pid)), (0, []))
        text = f"""if True:
            from cairn_grader import grading, lab, sandbox
            def stop(): raise grading.Stopped("SIGTERM")
            sandbox.end_all = stop
            grading.grade(lab.load({str(RING.folder)!r}), {str(self.handed_in())!r}, programs=())"""
        before = set(self.folder.iterdir())
        ended = subprocess.run([sys.executable, "-c", text], env=environment, stderr=subprocess.PIPE, text=True)
        self.assertIn("Stopped: SIGTERM", ended.stderr)
        self.assertEqual(set(self.folder.iterdir()), before)

    def test_control_groups_are_given_their_limits(self):
        """In a folder that stands for a mounted cgroup v2."""
        place = self.folder / "cgroup"
        place.mkdir()
        kept, cgroup.controllers = cgroup.controllers, lambda folder: {"memory", "pids"}
        self.addCleanup(setattr, cgroup, "controllers", kept)
        group = cgroup.Cgroup(512, 64, place)
        values = {path.name: path.read_text() for path in group.folder.iterdir()}
        self.assertEqual(values, {"memory.max": str(512 << 20), "memory.oom.group": "1", "pids.max": "64"})
        self.assertFalse(group.out_of_memory())
        (group.folder / "memory.events").write_text("low 0\noom 1\noom_kill 2\n")
        self.assertTrue(group.out_of_memory())
        group.kill()
        self.assertEqual((group.folder / "cgroup.kill").read_text(), "1")
        self.assertFalse(cgroup.Cgroup(512, 64, self.folder / "none"))

    def test_what_takes_too_long_is_not_run(self):
        result = grading.grade(labs.example, labs.solution, within=1e-6)
        self.assertEqual((result.score, len(result.tests)), (0, 4))
        self.assertIn("Not run", result.tests[3].message)

    def test_the_same_seed_gives_the_same_result(self):
        seeds = [[t.seed for t in grading.grade(labs.example, labs.solution, student, "s").tests] for student in ("a", "a", "b")]
        self.assertEqual(seeds[0], seeds[1])
        self.assertNotEqual(seeds[0], seeds[2])
        self.assertEqual(len(set(seeds[0])), 4)


def groups(grader):
    """Control groups that this process has made and left."""
    return sorted(path.name for path in cgroup.base().glob(f"cairn-{grader}-*")) if cgroup.base() else []


def shared_memory():
    return {name: pathlib.Path(f"/proc/sysvipc/{name}").read_text() for name in ("shm", "msg", "sem") if pathlib.Path(f"/proc/sysvipc/{name}").exists()}


if __name__ == "__main__":
    unittest.main()
