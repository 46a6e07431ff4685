// main of every test executable, compiled once.

#if __has_include(<catch2/catch_session.hpp>)
#include <catch2/catch_session.hpp>
#else
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#endif

// Asked by LeakSanitizer, where it is linked: what OpenMP keeps for its threads until the process ends is no leak of
// ours.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libomp.so\nleak:libgomp.so\n"; }

int main(int argc, char** argv) { return Catch::Session().run(argc, argv); }
