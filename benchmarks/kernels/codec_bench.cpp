// Codecs of activations on what ResNet-20 leaves: a ReLU's output, half of it zeros, and the input of a batch norm,
// with bounds as audits set them. GB/s of float32 packed and unpacked, compared with a copy of the same array, and the
// ratio. OMP_NUM_THREADS=1 shows one core.

#include <benchmark/benchmark.h>

#include "copy_seconds.hpp"

#include <cairn/core/clock.hpp>
#include <cairn/stash/bounded_codec.hpp>
#include <cairn/stash/simple_codecs.hpp>

#include <algorithm>
#include <memory>
#include <string>

namespace {

using namespace cairn;
using cairn::index_t;

constexpr index_t channels = 16;

/// 8 MB of normal numbers; `relu`: negative ones are 0.
tensor<float> activation(bool relu) {
    tensor<float> x({128, 32, 32, channels});
    const random_stream random{1, 0, 0};
    for (index_t i = 0; i < x.size(); ++i) {
        const auto normal = static_cast<float>(random.normal(static_cast<std::uint64_t>(i)));
        x[i] = relu && normal < 0 ? 0 : normal;
    }
    return x;
}

void measure(benchmark::State& run, std::shared_ptr<const activation_codec<>> codec, bool relu) {
    const tensor<float> x = activation(relu);
    double pack = 1e300, unpack = 1e300, packed_bytes = 0;
    for (auto _ : run) {
        const stopwatch packing;
        const auto packed = codec->pack(x, {});
        pack = std::min(pack, packing.seconds());
        packed_bytes = static_cast<double>(packed->bytes());
        const stopwatch unpacking;
        const tensor<float> back = packed->unpack();
        unpack = std::min(unpack, unpacking.seconds());
        benchmark::DoNotOptimize(back.data());
    }
    const auto bytes = static_cast<double>(x.bytes());
    run.counters["pack GB/s"] = bytes / pack / 1e9;
    run.counters["unpack GB/s"] = bytes / unpack / 1e9;
    run.counters["copy GB/s"] = bytes / copy_seconds(2 * bytes) / 1e9;
    run.counters["ratio"] = bytes / packed_bytes;
}

void bounded(benchmark::State& run, bool relu, bool huffman) {
    measure(
        run,
        std::make_shared<bounded_codec<>>(bounded_codec_config{.bound = 0.17f, .normalise = !relu, .huffman = huffman}),
        relu);
}

BENCHMARK_CAPTURE(bounded, relu_planes, true, false);
BENCHMARK_CAPTURE(bounded, norm_planes, false, false);
BENCHMARK_CAPTURE(bounded, relu_huffman, true, true);
BENCHMARK_CAPTURE(bounded, norm_huffman, false, true);
BENCHMARK_CAPTURE(measure, bf16, std::make_shared<bf16_codec<>>(), false);
BENCHMARK_CAPTURE(measure, group_4_bits, std::make_shared<group_codec<>>(4), false);
BENCHMARK_CAPTURE(measure, group_2_bits, std::make_shared<group_codec<>>(2), false);

}  // namespace
