#pragma once
// This machine: its fingerprint and its ceilings. These are measured, once for each number of threads, and kept for the
// life of the process; a kernel's percent of peak refers to them.
//
//   matrix peak      the better of (a) multiply-adds in registers only and (b) the best GEMM on large matrices, GFLOP/s
//   bandwidth        STREAM triad a = b + s c on arrays far larger than the caches, 12 bytes an element, GB/s
//   region latency   an empty parallel region, seconds
//
// (a) is the limit of this program's own code, so it is low in a program built for plain x86-64; (b) includes libraries
// that detect the processor at run time. The matrix peak names its source.

#include <cairn/core/clock.hpp>
#include <cairn/core/parallel.hpp>
#include <cairn/core/tensor.hpp>
#include <cairn/device/cpu/gemm.hpp>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace cairn::perf {

/// Description of the machine and the program.
struct machine_info {
    std::string cpu;        ///< model name with family, model and stepping, which tell processors of one name apart
    unsigned cores = 0;     ///< cores that this process may use
    std::string isa;        ///< vector instructions of the processor
    std::string built_for;  ///< vector instructions that this program was compiled for
    std::string compiler;
    std::string libraries;  ///< "oneDNN 2.6.3, OpenBLAS 0.3.21 …"
};

namespace detail {

inline std::string vector_instructions() {
    std::string list;
#if defined(__x86_64__)
    __builtin_cpu_init();
    const auto add = [&](bool has, const char* name) {
        if (has) list += (list.empty() ? "" : " ") + std::string(name);
    };
    add(__builtin_cpu_supports("sse4.2"), "sse4.2");
    add(__builtin_cpu_supports("avx"), "avx");
    add(__builtin_cpu_supports("avx2"), "avx2");
    add(__builtin_cpu_supports("fma"), "fma");
    add(__builtin_cpu_supports("avx512f"), "avx512f");
    add(__builtin_cpu_supports("avx512bf16"), "avx512_bf16");
#endif
    return list.empty() ? "scalar" : list;
}

inline std::string library_versions() {
    std::string list = onednn::version();
#if CAIRN_HAS_CBLAS
    list += ", " + gemm_detail::blas_version();
#else
    list += ", no CBLAS";
#endif
    return list;
}

/// What /proc/cpuinfo says of the first processor, and how many there are.
struct cpuinfo {
    std::map<std::string, std::string> first;
    int processors = 0;
};

inline cpuinfo read_cpuinfo() {
    cpuinfo found;
    std::ifstream in("/proc/cpuinfo");
    for (std::string line; std::getline(in, line);) {
        const auto colon = line.find(':');
        if (colon == std::string::npos) continue;
        const std::string name = line.substr(0, line.find_last_not_of(" \t:", colon) + 1);
        const auto value = line.find_first_not_of(' ', colon + 1);
        found.processors += name == "processor";
        found.first.try_emplace(name, value == std::string::npos ? "" : line.substr(value));
    }
    return found;
}

inline machine_info read_machine_info() {
    machine_info info;
    auto first = read_cpuinfo().first;
    info.cpu = first.count("model name") ? concat(first["model name"], " family ", first["cpu family"], " model ",
                                                  first["model"], " stepping ", first["stepping"])
                                         : "unknown processor";
    info.cores = std::thread::hardware_concurrency();
    info.isa = vector_instructions();
    info.built_for = builtin::vector_bytes == 64 ? "avx512" : builtin::vector_bytes == 32 ? "avx" : "128-bit vectors";
#if defined(__clang__)
    info.compiler = concat("clang ", __clang_major__, '.', __clang_minor__, '.', __clang_patchlevel__);
#else
    info.compiler = concat("g++ ", __GNUC__, '.', __GNUC_MINOR__, '.', __GNUC_PATCHLEVEL__);
#endif
    info.libraries = library_versions();
    return info;
}

/// Repeats work() for at least `seconds` and three times; returns the seconds of the fastest run.
template <class Work>
double fastest(double seconds, Work&& work) {
    const stopwatch all;
    double best = 1e300;
    for (int run = 0; run < 3 || all.seconds() < seconds; ++run) {
        const stopwatch one;
        work();
        best = std::min(best, one.seconds());
    }
    return best;
}

inline constexpr int fma_sums = 12;  // at least latency × units of the processors of today

/// `steps` times fma_sums vector multiply-adds in registers; returns a number that depends on all of them.
[[gnu::noinline]] inline float multiply_add(int steps, float start) {
    using vector = builtin::vec<float>;
    vector sum[fma_sums];
#pragma GCC unroll 16
    for (int s = 0; s < fma_sums; ++s) sum[s] = vector{} + start * static_cast<float>(s);
    const vector factor = vector{} + 0.999f * start, term = vector{} + 1e-3f * start;
    for (int step = 0; step < steps; ++step) {
#pragma GCC unroll 16
        for (int s = 0; s < fma_sums; ++s) sum[s] = sum[s] * factor + term;
    }
    vector total = sum[0];
#pragma GCC unroll 16
    for (int s = 1; s < fma_sums; ++s) total += sum[s];
    return total[0];
}

#if defined(__AVX512BF16__)
/// The same of pairs of bfloat16, added up in float.
[[gnu::noinline]] inline float multiply_add_bfloat16(int steps, float start) {
    __m512 sum[fma_sums];
#pragma GCC unroll 16
    for (int s = 0; s < fma_sums; ++s) sum[s] = _mm512_set1_ps(start * static_cast<float>(s));
    const __m512bh factor = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.5f * start), _mm512_set1_ps(0.25f * start));
    for (int step = 0; step < steps; ++step) {
#pragma GCC unroll 16
        for (int s = 0; s < fma_sums; ++s) sum[s] = _mm512_dpbf16_ps(sum[s], factor, factor);
    }
    __m512 total = sum[0];
#pragma GCC unroll 16
    for (int s = 1; s < fma_sums; ++s) total = _mm512_add_ps(total, sum[s]);
    return _mm512_cvtss_f32(total);
}
#endif

/// GFLOP/s of multiply-adds that never leave the registers, on all threads together, of a function that does so many
/// flops a step. Each thread takes its fastest of many short slices, so that another program on the machine disturbs
/// the sum little.
inline double register_gflops(float (*multiply_add)(int steps, float start), int flops_a_step) {
    constexpr int slices = 300, steps = 40'000;
    std::vector<double> rate(static_cast<std::size_t>(threads()));
    std::atomic<float> sink{1.0f};
    parallel_for(threads(), 1, [&](index_t begin, index_t end) {
        for (index_t i = begin; i < end; ++i) {
            double best = 1e300;
            for (int slice = 0; slice < slices; ++slice) {
                const stopwatch watch;
                sink = multiply_add(steps, sink > 0.0f ? 1.0f : 0.5f);
                best = std::min(best, watch.seconds());
            }
            rate[static_cast<std::size_t>(i)] = 1e-9 * flops_a_step * steps / best;
        }
    });
    double total = 0;
    for (double r : rate) total += r;
    return total;
}

/// Of float, or of bfloat16, where 0 says that this program was built without instructions for it.
template <class T>
double register_gflops() {
    if constexpr (std::is_same_v<T, float>)
        return register_gflops(multiply_add, 2 * fma_sums * builtin::vector_bytes / 4);
#if defined(__AVX512BF16__)
    return register_gflops(multiply_add_bfloat16, 2 * fma_sums * 32);
#else
    return 0;
#endif
}

}  // namespace detail

/// Read once.
inline const machine_info& this_machine() {
    static const machine_info info = detail::read_machine_info();
    return info;
}

/// One line without tabs that changes when measured choices no longer hold: processor, build, libraries.
inline std::string fingerprint() {
    const machine_info& m = this_machine();
    return concat(m.cpu, "; ", m.cores, " cores; built for ", m.built_for, " by ", m.compiler, "; ", m.libraries);
}

/// A measured matrix peak and where it was reached.
struct matrix_peak {
    double gflops = 0;       ///< the higher of the two below
    std::string reached_by;  ///< "registers", "onednn", "builtin", "cblas" or "widened"
    double registers = 0, gemm = 0;
};

/// Peak of multiply-adds of T, float or bfloat16, whose sums are float, on the current number of threads. First call:
/// about 0.5 s and 13 MB.
template <class T = float>
const matrix_peak& measured_matrix_peak() {
    static std::mutex mutex;
    static std::map<int, matrix_peak> known;
    const std::scoped_lock lock(mutex);
    matrix_peak& peak = known[threads()];
    if (peak.gflops > 0) return peak;
    peak.registers = peak.gflops = detail::register_gflops<T>();
    peak.reached_by = "registers";
    constexpr index_t n = 1024;
    const auto a = tensor<T>::filled({n * n}, 0.5f, memory_category::workspace);
    const auto b = tensor<T>::filled({n * n}, 0.25f, memory_category::workspace);
    tensor<T> c({n * n}, memory_category::workspace);
    const gemm_size size{false, false, n, n, n, n, n, n};
    for (gemm_detail::kernel k : gemm_detail::candidates<T, T>(true, size)) {
        const double seconds =
            detail::fastest(0.1, [&] { gemm_detail::run(k, true, size, 1.0f, a.data(), b.data(), 0.0f, c.data()); });
        const double gflops = 2e-9 * n * n * n / seconds;
        peak.gemm = std::max(peak.gemm, gflops);
        if (gflops <= peak.gflops) continue;
        peak.gflops = gflops;
        peak.reached_by = gemm_detail::kernel_names[k];
    }
    return peak;
}

/// STREAM triad bandwidth, GB/s, on the current number of threads. First call: about 0.2 s, and 192 MB that go back to
/// the system; so call it apart from a measurement of peak memory.
inline double measured_bandwidth() {
    static std::mutex mutex;
    static std::map<int, double> known;
    const std::scoped_lock lock(mutex);
    double& gb_per_s = known[threads()];
    if (gb_per_s > 0) return gb_per_s;
    constexpr index_t n = index_t{1} << 24;
    {
        tensor<float> a({n}, memory_category::workspace), b({n}, memory_category::workspace),
            c({n}, memory_category::workspace);
        float *pa = a.data(), *pb = b.data(), *pc = c.data();
        const index_t grain = std::max<index_t>(1 << 16, n / threads());
        parallel_for(n, grain, [&](index_t begin, index_t end) {
            for (index_t i = begin; i < end; ++i) pa[i] = 0.0f, pb[i] = 1.0f, pc[i] = 2.0f;
        });
        const double seconds = detail::fastest(0.1, [&] {
            parallel_for(n, grain, [&](index_t begin, index_t end) {
                for (index_t i = begin; i < end; ++i) pa[i] = pb[i] + 3.0f * pc[i];
            });
        });
        gb_per_s = 12e-9 * static_cast<double>(n) / seconds;
    }
    memory_pool::host().trim();
    return gb_per_s;
}

}  // namespace cairn::perf
