// The process around a measurement: environment that the runtime libraries read before main, and memory counters.
#pragma once

#include <dlfcn.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace peer {

/// Bytes of a "Vm..." line of /proc/self/status (the kernel prints kB); 0 where there is no such line.
inline int64_t status_bytes(const std::string& key) {
    std::ifstream in("/proc/self/status");
    for (std::string line; std::getline(in, line);) {
        if (line.rfind(key + ":", 0) == 0) {
            return std::stoll(line.substr(key.size() + 1)) * 1024;
        }
    }
    return 0;
}

/// Debian's folder name of this machine's libraries.
inline std::string multiarch() {
#if defined(__aarch64__)
    return "aarch64-linux-gnu";
#else
    return "x86_64-linux-gnu";
#endif
}

/// Sets what the runtime libraries read while the program is loaded, and starts the program once more. Measured here
/// (2 cores of a Zen 5, libtorch 1.13 of Debian 12), each of the four is worth 5 % to a factor of 2:
///  - one bound OpenMP thread a core;
///  - OpenBLAS's own choice of kernels: an inherited OPENBLAS_CORETYPE may name an older core;
///  - OpenBLAS on OpenMP where it is installed: its own threads would compete with libtorch's for the same cores;
///  - memory that is kept and used again instead of mapped and faulted in anew at every step: jemalloc where it is
///    installed (which needs least memory, too), else glibc without mmap and trimming.
/// `tuned_allocator` false leaves the last one out; CAIRN_PEER_ENVIRONMENT=1 leaves everything as it is.
inline void restart_with_environment(int threads, bool tuned_allocator, char** argv) {
    if (std::getenv("CAIRN_PEER_ENVIRONMENT") != nullptr) {
        return;
    }
    const auto set = [](const char* key, const std::string& value) { setenv(key, value.c_str(), 1); };
    const auto set_in_front = [&](const char* key, const std::string& value) {
        const char* old = std::getenv(key);
        set(key, old != nullptr && *old != 0 ? value + ":" + old : value);
    };
    set("CAIRN_PEER_ENVIRONMENT", "1");
    set("OMP_NUM_THREADS", std::to_string(threads));
    set("OPENBLAS_NUM_THREADS", std::to_string(threads));
    if (threads > 1) {  // a single thread is better left to the scheduler: bound, it would share core 0 with others
        set("OMP_PROC_BIND", "close");
        set("OMP_PLACES", "cores");
    }
    unsetenv("OPENBLAS_CORETYPE");
    unsetenv("OPENBLAS_L2_SIZE");
    const std::string libraries = "/usr/lib/" + multiarch();
    if (std::filesystem::exists(libraries + "/openblas-openmp/libblas.so.3")) {
        set_in_front("LD_LIBRARY_PATH", libraries + "/openblas-openmp");
    }
    const std::string jemalloc = libraries + "/libjemalloc.so.2";
    if (tuned_allocator && std::filesystem::exists(jemalloc)) {
        set_in_front("LD_PRELOAD", jemalloc);
        set("MALLOC_CONF", "metadata_thp:auto,dirty_decay_ms:-1,muzzy_decay_ms:-1");
    } else if (tuned_allocator) {
        set("GLIBC_TUNABLES",
            "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=1099511627776:"
            "glibc.malloc.top_pad=67108864:glibc.malloc.hugetlb=1");
    }
    execv("/proc/self/exe", argv);
    // Only reached where /proc is missing: go on with what the libraries have found by themselves.
}

/// For the record: which allocator this process runs on.
inline std::string allocator_in_use() {
    if (dlsym(RTLD_DEFAULT, "mallctl") != nullptr) {
        return "jemalloc";
    }
    return std::getenv("GLIBC_TUNABLES") != nullptr ? "glibc, tuned" : "glibc";
}

}  // namespace peer
