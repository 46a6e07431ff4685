// Kernels that memory limits: normalisation, pooling, activations, softmax, reductions, embedding, dropout, on the
// shapes of ResNet-18/CIFAR, ResNet-50/224 and CosmoFlow. The bytes are those that the kernels count
// (core/flop_counter.hpp), each operand read or written once a pass. GB/s and % of copy are of the fastest iteration;
// copy is a plain vectorised copy that moves as many bytes, so that arrays which fit a cache are compared with a copy
// that fits it too.

#include <benchmark/benchmark.h>

#include "copy_seconds.hpp"

#include <cairn/core/clock.hpp>
#include <cairn/device/cpu/activation.hpp>
#include <cairn/device/cpu/batch_norm.hpp>
#include <cairn/device/cpu/dropout.hpp>
#include <cairn/device/cpu/embedding.hpp>
#include <cairn/device/cpu/layer_norm.hpp>
#include <cairn/device/cpu/pool.hpp>
#include <cairn/device/cpu/softmax.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace {

using namespace cairn;
using cairn::index_t;

tensor<float> random_numbers(const shape& s, std::uint32_t stream) {
    tensor<float> t(s);
    const random_stream random{1, stream, 0};
    for (index_t i = 0; i < t.size(); ++i) t[i] = random.uniform(static_cast<std::uint64_t>(i)) * 4 - 2;
    return t;
}

/// Runs `call` for as long as the library wants, counts its bytes once, reports the fastest iteration.
void measure(benchmark::State& run, const std::function<void()>& call) {
    double bytes = 0;
    {
        const flop_counter::scope counting;
        call();
        bytes = static_cast<double>(flop_counter::total().bytes);
    }
    double best = 1e300;
    for (auto _ : run) {
        const stopwatch watch;
        call();
        const double seconds = watch.seconds();
        best = std::min(best, seconds);
        run.SetIterationTime(seconds);
    }
    run.counters["MB"] = bytes * 1e-6;
    run.counters["GB/s"] = bytes / best * 1e-9;
    run.counters["%_of_copy"] = 100 * copy_seconds(bytes) / best;
}

/// A kernel by name; what it needs is allocated when it runs, and freed after it.
void add(const std::string& name, const std::function<std::function<void()>()>& prepare) {
    benchmark::RegisterBenchmark(name.c_str(), [prepare](benchmark::State& run) { measure(run, prepare()); })
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
}

struct norm_data {
    index_t rows, channels;
    tensor<float> x, skip, y, dy, coefficients;
    tensor<std::uint8_t> bits;

    norm_data(index_t r, index_t c)
        : rows(r),
          channels(c),
          x(random_numbers({r, c}, 1)),
          skip(random_numbers({r, c}, 2)),
          y(shape{r, c}),
          dy(random_numbers({r, c}, 3)),
          coefficients(tensor<float>::filled({6, c}, 1.0f)),
          bits(shape{simd::mask_bytes<float>(r * c)}) {
        apply(nullptr);
    }
    float* row(index_t i) { return coefficients.data() + i * channels; }

    void statistics() { batch_statistics(cpu{}, rows, channels, x.data(), row(4), row(5)); }
    void apply(const float* added) {
        batch_norm_apply(cpu{}, rows, channels, x.data(), added, row(0), row(1), row(2), row(3), activation::relu, 0.0f,
                         y.data(), bits.data());
    }
    void sums() {
        batch_norm_sums(cpu{}, rows, channels, dy.data(), bits.data(), activation::relu, 0.0f, x.data(), row(0), row(1),
                        row(4), row(5));
    }
    void gradient(float* dskip) {
        batch_norm_gradient(cpu{}, rows, channels, dy.data(), bits.data(), activation::relu, 0.0f, x.data(), row(0),
                            row(1), row(2), row(3), row(3), dskip ? x.data() : dy.data(), dskip);
    }
};

void add_batch_norm(const std::string& where, index_t rows, index_t channels) {
    const auto with = [=](const char* what, auto call) {
        add("batch_norm/" + std::string(what) + where, [=]() -> std::function<void()> {
            const auto d = std::make_shared<norm_data>(rows, channels);
            return [=] { call(*d); };
        });
    };
    with("statistics", [](norm_data& d) { d.statistics(); });
    with("apply+relu", [](norm_data& d) { d.apply(nullptr); });
    with("apply+skip+relu", [](norm_data& d) { d.apply(d.skip.data()); });
    with("sums", [](norm_data& d) { d.sums(); });
    with("gradient", [](norm_data& d) { d.gradient(nullptr); });
    with("gradient+dskip", [](norm_data& d) { d.gradient(d.dy.data()); });
    with("forward", [](norm_data& d) {
        d.statistics();
        d.apply(nullptr);
    });
    with("backward", [](norm_data& d) {
        d.sums();
        d.gradient(nullptr);
    });
}

void add_max_pool(const std::string& where, index_t n, std::array<index_t, 3> in, index_t channels,
                  std::array<index_t, 3> kernel, std::array<index_t, 3> stride, std::array<index_t, 3> pad) {
    const auto prepare = [=](bool forward) -> std::function<void()> {
        pool_geometry g;
        g.n = n;
        g.channels = channels;
        for (std::size_t a = 0; a < 3; ++a) g.axis[a] = pool_axis::sliding(in[a], kernel[a], stride[a], pad[a]);
        struct data {
            pool_geometry g;
            tensor<float> x, y;
            tensor<std::uint8_t> code;
        };
        const auto d =
            std::make_shared<data>(data{g, random_numbers({g.x_elements()}, 1), tensor<float>({g.y_elements()}),
                                        tensor<std::uint8_t>({g.y_elements()})});
        max_pool_forward(cpu{}, g, d->x.data(), d->y.data(), d->code.data());
        if (forward) return [=] { max_pool_forward(cpu{}, d->g, d->x.data(), d->y.data(), d->code.data()); };
        return [=] { max_pool_backward(cpu{}, d->g, d->y.data(), d->code.data(), d->x.data()); };
    };
    add("max_pool/forward" + where, [=] { return prepare(true); });
    add("max_pool/backward" + where, [=] { return prepare(false); });
}

void add_elementwise(index_t n) {
    struct data {
        tensor<float> x, y, dy;
        tensor<std::uint8_t> bits;
    };
    const auto with = [=](const std::string& name, auto call) {
        add(name, [=]() -> std::function<void()> {
            const auto d =
                std::make_shared<data>(data{random_numbers({n}, 1), random_numbers({n}, 2), random_numbers({n}, 3),
                                            tensor<std::uint8_t>({simd::mask_bytes<float>(n)})});
            return [=] { call(*d); };
        });
    };
    with("relu/forward, in place",
         [=](data& d) { sign_activation_forward(cpu{}, n, 0.0f, d.x.data(), d.x.data(), d.bits.data()); });
    with("relu/backward, in place",
         [=](data& d) { sign_activation_backward(cpu{}, n, 0.0f, d.dy.data(), d.bits.data(), d.dy.data()); });
    for (const activation act :
         {activation::sigmoid, activation::tanh, activation::silu, activation::gelu, activation::gelu_tanh}) {
        with(name_of(act) + std::string("/forward"),
             [=](data& d) { activation_forward(cpu{}, act, n, d.x.data(), d.y.data()); });
        with(name_of(act) + std::string("/backward, in place"),
             [=](data& d) { activation_backward(cpu{}, act, n, d.x.data(), d.dy.data(), d.dy.data()); });
    }
    with("dropout, in place", [=](data& d) {
        dropout_apply(cpu{}, n, 0.1, random_stream{1, 2, 3}, d.x.data(), d.x.data());
    });
    with("reduce/sum", [=](data& d) { benchmark::DoNotOptimize(sum(cpu{}, n, d.x.data())); });
    with("reduce/sum_of_squares", [=](data& d) { benchmark::DoNotOptimize(sum_of_squares(cpu{}, n, d.x.data())); });
    with("reduce/dot", [=](data& d) { benchmark::DoNotOptimize(dot(cpu{}, n, d.x.data(), d.y.data())); });
    with("reduce/max_abs", [=](data& d) { benchmark::DoNotOptimize(max_abs(cpu{}, n, d.x.data())); });
    with("reduce/count_nonfinite", [=](data& d) { benchmark::DoNotOptimize(count_nonfinite(cpu{}, n, d.x.data())); });
    for (const index_t columns : {10, 64, 512})
        with("reduce/column_sums " + std::to_string(columns),
             [=](data& d) { column_sums(cpu{}, n / columns, columns, d.x.data(), d.y.data(), false); });
    for (const index_t classes : {10, 1000})
        with("softmax_cross_entropy " + std::to_string(classes), [=](data& d) {
            static const std::vector<std::int32_t> labels(static_cast<std::size_t>(n), 3);
            softmax_cross_entropy(cpu{}, n / classes, classes, d.x.data(), labels.data(), 0.1f, d.dy.data(), d.y.data(),
                                  1.0f);
        });
}

void add_rows_kernels() {
    struct data {
        index_t rows, features;
        tensor<float> x, y, gamma, statistics, sums;
    };
    for (const bool forward : {true, false})
        add(forward ? "layer_norm/forward 8192x768" : "layer_norm/backward 8192x768, in place",
            [=]() -> std::function<void()> {
                const index_t r = 8192, f = 768;
                const auto d = std::make_shared<data>(data{r, f, random_numbers({r, f}, 1), random_numbers({r, f}, 2),
                                                           random_numbers({2, f}, 3), tensor<float>({2, r}),
                                                           tensor<float>({2, f})});
                float *const mean = d->statistics.data(), *const invstd = mean + r;
                const auto run = [=] {
                    layer_norm_forward(cpu{}, r, f, d->x.data(), d->gamma.data(), d->gamma.data() + f, 1e-5f,
                                       d->y.data(), mean, invstd);
                };
                run();
                if (forward) return run;
                return [=] {
                    layer_norm_backward(cpu{}, r, f, d->y.data(), d->x.data(), mean, invstd, d->gamma.data(),
                                        d->y.data(), d->sums.data(), d->sums.data() + f);
                };
            });
    for (const bool forward : {true, false})
        add(forward ? "embedding/forward 32768 of 50000x256" : "embedding/backward 32768 of 50000x256",
            [=]() -> std::function<void()> {
                const index_t rows = 32768, entries = 50000, width = 256;
                const auto table = std::make_shared<tensor<float>>(random_numbers({entries, width}, 1));
                const auto y = std::make_shared<tensor<float>>(random_numbers({rows, width}, 2));
                std::vector<std::int32_t> ids(static_cast<std::size_t>(rows));
                for (std::size_t i = 0; i < ids.size(); ++i)
                    ids[i] =
                        static_cast<std::int32_t>(random_stream{3, 4, 5}.below(static_cast<std::uint64_t>(entries), i));
                if (forward)
                    return
                        [=] { embedding_forward(cpu{}, rows, entries, width, ids.data(), table->data(), y->data()); };
                return [=] { embedding_backward(cpu{}, rows, entries, width, ids.data(), y->data(), table->data()); };
            });
}

const bool registered = [] {
    add_batch_norm(" cifar 128x32x32x64", 128 * 32 * 32, 64);
    add_batch_norm(" cifar 128x16x16x128", 128 * 16 * 16, 128);
    add_batch_norm(" cifar 128x8x8x256", 128 * 8 * 8, 256);
    add_batch_norm(" cifar 128x4x4x512", 128 * 4 * 4, 512);
    add_batch_norm(" cifar 128x32x32x16", 128 * 32 * 32, 16);
    add_batch_norm(" imagenet 32x56x56x256", 32 * 56 * 56, 256);
    add_batch_norm(" imagenet 32x7x7x2048", 32 * 7 * 7, 2048);
    add_max_pool(" 2x2 of 128x32x32x64", 128, {1, 32, 32}, 64, {1, 2, 2}, {1, 2, 2}, {0, 0, 0});
    add_max_pool(" 3x3 stride 2 of 32x112x112x64", 32, {1, 112, 112}, 64, {1, 3, 3}, {1, 2, 2}, {0, 1, 1});
    add_max_pool(" 2x2x2 of 4x64x64x64x16", 4, {64, 64, 64}, 16, {2, 2, 2}, {2, 2, 2}, {0, 0, 0});
    add_max_pool(" 2x2 of lenet 128x24x24x20", 128, {1, 24, 24}, 20, {1, 2, 2}, {1, 2, 2}, {0, 0, 0});
    add_elementwise(128 * 32 * 32 * 64);
    add_rows_kernels();
    return true;
}();

}  // namespace
