#pragma once
// OpenBLAS 0.3.21 (Debian 12) takes Intel processors newer than itself for a Prescott of 2004, whose triangular solver
// crashes on them. It chooses its kernels when it is loaded; here, before main, it is made to choose once more.
// See course/decisions/0005-openblas-and-the-environment.md.

#include <cstdlib>
#include <string_view>

// Another BLAS does not have these, nor has an OpenBLAS that was built for one kind of processor.
extern "C" char* openblas_get_corename(void) __attribute__((weak));
extern "C" void gotoblas_dynamic_quit(void) __attribute__((weak));
extern "C" void gotoblas_dynamic_init(void) __attribute__((weak));

namespace cairn::detail {

/// The kind of processor whose OpenBLAS kernels run on this one, where OpenBLAS itself has found none that fits; null
/// where its choice stands.
inline const char* openblas_core_instead() {
#if defined(__x86_64__)
    if (std::getenv("OPENBLAS_CORETYPE") || !openblas_get_corename || !gotoblas_dynamic_quit || !gotoblas_dynamic_init)
        return nullptr;
    if (openblas_get_corename() != std::string_view("Prescott")) return nullptr;
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) return "SkylakeX";
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "Haswell";
#endif
    return nullptr;
}

/// Before main no code uses BLAS, so none sees OpenBLAS between two choices.
inline const bool openblas_chose_again = [] {
    const char* core = openblas_core_instead();
    if (!core) return false;
    setenv("OPENBLAS_CORETYPE", core, 1);
    gotoblas_dynamic_quit();
    gotoblas_dynamic_init();
    unsetenv("OPENBLAS_CORETYPE");  // programs that this one starts choose for themselves
    return true;
}();

}  // namespace cairn::detail
