// Whether the installed cuDNN takes our graphs of attention, asked without a GPU: cuDNN's heuristics answer for a
// described one, here an H100. That an engine is suggested means that cuDNN knows the graph as an attention and has
// made a kernel's text for it; nothing runs. Needs a libcuda.so.1: the driver's, or the toolkit's
// lib64/stubs/libcuda.so under that name in LD_LIBRARY_PATH. Ends
// with 77, which ctest counts as skipped, without one, or with a version of cuDNN that wants other words for a GPU.

#include <cairn/device/cuda/cudnn_attention.hpp>

#include <dlfcn.h>

#include <cstdio>
#include <string>

namespace cairn {

namespace {

constexpr const char* h100 =
    R"({"deviceName": "NVIDIA H100 80GB HBM3", "deviceVer": 900, "smVersion": 900, "driverVer": 13000,
    "cudartVer": 13000, "cudaDeviceId": 0, "pciDeviceId": 0, "isTccDriver": 0, "supportCoopLaunch": 1, "totalGlobalMem": 85000000000,
    "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64], "multiProcessorCount": 132, "warpSize": 32,
    "regsPerBlock": 65536, "maxRegistersPerSM": 65536, "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048,
    "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448, "reservedSharedMemoryPerBlock": 1024,
    "smClockRateKHz": 1980000, "memClockRateKHz": 2619000, "l2CacheSize": 52428800})";

/// Engines that cuDNN suggests for the graph on that GPU, and how many of them training may use.
struct answer {
    std::int64_t suggested = 0;
    int acceptable = 0;
};

answer ask(const cudnn::descriptor& graph, const cudnn::descriptor& gpu) {
    cudnn::descriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)
        .set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_A)
        .set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, gpu)
        .finalise("asking for engines");
    std::vector<cudnn::descriptor> configurations;
    std::vector<cudnnBackendDescriptor_t> raw;
    for (int i = 0; i < 16; ++i) {
        configurations.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
        raw.push_back(configurations.back().get());
    }
    answer a;
    cudnn::check(cudnnBackendGetAttribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                          static_cast<std::int64_t>(raw.size()), &a.suggested, raw.data()),
                 "asking for engines");
    for (std::int64_t i = 0; i < std::min<std::int64_t>(a.suggested, 16); ++i)
        a.acceptable += cudnn::acceptable(configurations[static_cast<std::size_t>(i)], true);
    return a;
}

template <class T>
int refused(const char* type, const attention_geometry& g, const cudnn::descriptor& gpu) {
    int bad = 0;
    const auto report = [&](const char* phase, const cudnn::descriptor& graph) {
        const answer a = ask(graph, gpu);
        std::printf("%-9s %s batch %ld, length %ld, %ld heads of %ld%s: %ld engines, %d that training may use\n", phase,
                    type, static_cast<long>(g.batch), static_cast<long>(g.length), static_cast<long>(g.heads),
                    static_cast<long>(g.head_dim), g.causal ? ", causal" : "", static_cast<long>(a.suggested),
                    a.acceptable);
        bad += a.acceptable == 0;
    };
    report("forward", cudnn::attention_graph<T>(g).forward(true, nullptr));
    report("no logs", cudnn::attention_graph<T>(g).forward(false, nullptr));
    report("backward", cudnn::attention_graph<T>(g).backward(nullptr));
    return bad;
}

int run() {
    if (!dlopen("libcuda.so.1", RTLD_LAZY)) {
        std::puts("skipped: no libcuda.so.1, neither the driver's nor the toolkit's stub");
        return 77;
    }
    cudnn::descriptor gpu(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    try {
        const std::string text = h100;
        gpu.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, text.c_str(), text.size() + 1)
            .finalise("describing a GPU");
    } catch (const error& e) {
        std::printf("skipped: cuDNN %zu wants another description of a GPU: %s\n", cudnnGetVersion(), e.what());
        return 77;
    }
    int bad = 0;
    for (const bool causal : {false, true})
        for (const index_t length : {1024, 200, 33})
            for (const index_t head_dim : {8, 64, 72, 128}) {
                const attention_geometry g{.batch = 4,
                                           .length = length,
                                           .heads = 12,
                                           .head_dim = head_dim,
                                           .causal = causal,
                                           .stride = 3 * 12 * head_dim};
                bad += refused<bfloat16>("bfloat16", g, gpu) + refused<float16>("float16", g, gpu);
            }
    std::printf("cuDNN %zu: %d graphs without an engine\n", cudnnGetVersion(), bad);
    return bad > 0;
}

}  // namespace

}  // namespace cairn

int main() {
    try {
        return cairn::run();
    } catch (const std::exception& e) {
        std::fprintf(stderr, "%s\n", e.what());
        return 1;
    }
}
