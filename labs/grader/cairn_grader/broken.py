"""Submissions that are not what a lab asks for: each is a lab's solution with something behind its first file, scores 0, and is told why.

What the inspection of the text would refuse is graded without it here, for the grader must withstand both: `inspected` says which."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Broken:
    what: str
    text: str  # behind the first file; None: the file is replaced by `instead`
    says: str  # must stand in the reason of every test
    inspected: bool = True  # False: graded as if the inspection had not noticed
    instead: bytes | None = None


def before_main(what, body, says, includes=("cstdlib",), inspected=True):
    """Runs `body` before main does."""
    text = "".join(f"\n#include <{name}>" for name in includes) + f"\nnamespace student {{\nstatic const int breaks = [] {{ {body} return 0; }}();\n}}\n"
    return Broken(what, text, says, inspected)


def inspected(what, text, says):
    return Broken(what, f"\n{text}\n", says)


FORGED = r'''"{\"passed\": true, \"checks\": 9, \"failures\": 0, \"message\": \"\"}\n"'''

# What `grade --gate` tries with every lab.
COMMON = (
    inspected("does not compile", "this is no C++", "does not compile"),
    Broken("is empty", "", "is empty", instead=b""),
    before_main("loops for ever", "volatile int i = 0; for (;;) i = i + 1;", "it was stopped after"),
    before_main("calls exit(0)", "std::exit(0);", "does something call exit?"),
    before_main("crashes", "volatile int* volatile p = nullptr; *p = 1;", "segmentation fault"),
)

# What the grader's own tests try on top.
HOSTILE = (
    before_main("calls _exit(0)", "_exit(0);", "does something call exit?", ["unistd.h"]),
    before_main("calls abort", "std::abort();", "abort"),
    before_main("throws before main", "throw 1;", "came before main"),
    before_main("sleeps for ever", "for (;;) sleep(1);", "does not come", ["unistd.h"]),
    before_main("eats memory slowly", "for (int i = 0; i < 4000; ++i) { std::memset(std::malloc(1 << 20), 1, 1 << 20); usleep(2000); }",
                "over its memory limit", ["cstdlib", "cstring", "unistd.h"]),
    before_main("eats memory at once", "for (;;) { char* p = new char[1 << 24]; std::memset(p, 1, 1 << 24); }", "", ["cstring"]),
    before_main("forks and waits", "for (int i = 0; i < 20; ++i) if (fork() <= 0) break; for (;;) sleep(1);", "does not come", ["unistd.h"]),
    before_main("forks without end", "for (;;) fork();", "it was stopped after", ["unistd.h"]),
    before_main("leaves a process behind", "if (fork() == 0) { setsid(); if (fork() == 0) for (;;) sleep(1); } _exit(0);", "does something call exit?", ["unistd.h"]),
    before_main("fills the disk", "for (int i = 0;; ++i) { std::ofstream f(std::to_string(i)); f << std::string(1 << 24, 'x'); }", "MB of files", ["fstream", "string"]),
    before_main("writes one endless file", "std::ofstream f(\"x\"); for (;;) f << std::string(1 << 20, 'x') << std::flush;", "", ["fstream", "string"]),
    before_main("prints without end", "for (;;) std::puts(\"All tests passed (9 assertions in 1 test case)\");", "printed without end", ["cstdio"]),
    before_main("prints a forged verdict", f"std::puts(\"All tests passed (9 assertions in 1 test case)\"); std::puts({FORGED}); std::fflush(stdout); std::_Exit(0);",
                "does something call exit?", ["cstdio", "cstdlib"]),
    before_main("writes a verdict into every descriptor", f"for (int i = 0; i < 64; ++i) (void)!write(i, {FORGED}, sizeof({FORGED}) - 1); _exit(0);",
                "does something call exit?", ["unistd.h"]),
    before_main("reads the token from a descriptor", "char t[99]; for (int i = 3; i < 64; ++i) { fcntl(i, F_SETFL, O_NONBLOCK); if (auto n = read(i, t, 32); n == 32) { "
                f"for (int j = 3; j < 64; ++j) {{ (void)!write(j, t, 32); (void)!write(j, \" \", 1); (void)!write(j, {FORGED}, sizeof({FORGED}) - 1); }} _exit(0); }} }} _exit(3);",
                "status 3", ["unistd.h", "fcntl.h"]),
    before_main("reads the token from /proc", "std::ifstream maps(\"/proc/self/maps\"), memory(\"/proc/self/mem\"), program(\"/proc/self/exe\"), fd(\"/dev/fd/4\"); "
                "std::_Exit(maps.good() || memory.good() || program.good() || fd.good() ? 7 : 3);", "status 3", ["cstdlib", "fstream"]),
    before_main("traces its parent", "std::_Exit(ptrace(PTRACE_ATTACH, getppid(), 0, 0) == 0 ? 7 : 3);", "status 3", ["cstdlib", "sys/ptrace.h", "unistd.h"]),
    before_main("kills the grader", "std::_Exit(kill(getppid(), SIGTERM) == 0 ? 7 : 3);", "status 3", ["cstdlib", "csignal", "unistd.h"]),
    before_main("reads the grader's environment", "std::ifstream f(\"/proc/\" + std::to_string(getppid()) + \"/environ\"); char c; std::_Exit(f.get(c) ? 7 : 3);",
                "status 3", ["cstdlib", "fstream", "string", "unistd.h"]),
    before_main("finds a secret in its environment", "std::_Exit(std::getenv(\"CAIRN_LAB_SECRET\") || std::getenv(\"CAIRN_GRADED\") ? 7 : 3);", "status 3"),
    before_main("writes outside its folder", "std::ofstream a(\"@outside@/escape\"), b(\"/tmp/cairn-escape\"), c(\"/dev/shm/cairn-escape\"); std::_Exit(a.good() || b.good() || c.good() ? 7 : 3);",
                "status 3", ["cstdlib", "fstream"]),
    before_main("reads the hidden tests", "std::ifstream a(\"@hidden@\"); std::_Exit(a.good() ? 7 : 3);", "status 3", ["cstdlib", "fstream"]),
    Broken("replaces write", "\n#include <unistd.h>\nssize_t write(int, const void*, size_t n) { return static_cast<ssize_t>(n); }\n", "defines write"),
    Broken("replaces write inline", "\n#include <unistd.h>\n#include <cstdlib>\ninline ssize_t write(int, const void*, size_t n) { return static_cast<ssize_t>(n); }\n"
           "namespace student {\nstatic ssize_t (*volatile used)(int, const void*, size_t) = &::write;\n}\n", "defines write"),
    Broken("replaces operator new", "\n#include <cstdlib>\nvoid* operator new(std::size_t n) { return std::malloc(n); }\n", "defines operator new"),
    Broken("runs in a constructor", "\n__attribute__((constructor(101))) static void early() { _exit(0); }\n", "does something call exit?", inspected=False),
    inspected("redefines CHECK", "#undef CHECK\n#define CHECK(x) (void)0", "#undef: not allowed"),
    inspected("defines a keyword", "#define float double", "no macros"),
    inspected("defines a macro by a splice", "#def\\\nine REQUIRE(x)", "no macros"),
    inspected("pretends another line", "#line 1 \"/usr/include/stdio.h\"", "#line"),
    inspected("compiles its own way", "#pragma GCC optimize(\"Ofast\")", "#pragma"),
    inspected("has a constructor", "__attribute__((constructor)) static void f() {}", "__attribute__"),
    inspected("speaks to the assembler", "namespace student { inline void f() { asm(\"nop\"); } }", "asm"),
    inspected("speaks to the test framework", "static auto& hub = Catch::getMutableRegistryHub();", "Catch"),
    inspected("asks the tests for the seed", "namespace student { inline auto s = lab::seed(); }", "lab::"),
    inspected("opens namespace std", "namespace\nstd {\ninline int f() { return 0; }\n}", "namespace std"),
    inspected("specialises a function of std", "template <> inline void std::swap(student::x&, student::x&) {}", "template <>"),
    inspected("includes a file of the system", "#include \"/etc/passwd\"", "includes /etc/passwd"),
    inspected("includes the hidden tests", "#include \"../grading/hidden.cpp\"", "without .."),
    inspected("includes the hidden tests by a macro", "#define A_HPP \"../grading/hidden.cpp\"\n#include A_HPP", "plainly"),
    inspected("embeds a file", "#embed \"/etc/passwd\"", "#embed"),
    inspected("brings 100 MB", "// " + "x" * (1 << 20), "more than 256 kB"),  # of one MB: the reason is the same, the test quicker
    Broken("is no UTF-8", "", "no UTF-8", instead=b"// caf\xe9\n"),
    Broken("contains a zero", "", "zero byte", instead=b"int x;\0\n"),
)
