// Kernels of the GPU compared with two ceilings measured in the same run: bytes per second of a copy, and operations
// per second of a large matrix product of the same type. One line of JSON a kernel.
//
//   build/cuda/benchmarks/gpu_kernels [ROUNDS] > kernels.jsonl

#include "timing.hpp"

#include <cairn/compress/bf16.hpp>
#include <cairn/compress/feedback.hpp>
#include <cairn/compress/fp16.hpp>
#include <cairn/compress/natural.hpp>
#include <cairn/compress/qsgd.hpp>
#include <cairn/compress/sign.hpp>
#include <cairn/core/arena.hpp>
#include <cairn/device/cuda/attention_plans.hpp>
#include <cairn/device/cuda/conv.hpp>
#include <cairn/device/cuda/gemm.hpp>
#include <cairn/device/cuda/linalg.hpp>
#include <cairn/device/grid/activation.hpp>
#include <cairn/device/grid/batch_norm.hpp>
#include <cairn/device/grid/codecs.hpp>
#include <cairn/device/grid/crop_flip.hpp>
#include <cairn/device/grid/dropout.hpp>
#include <cairn/device/grid/layer_norm.hpp>
#include <cairn/device/grid/pool.hpp>
#include <cairn/device/grid/reduce.hpp>
#include <cairn/device/grid/softmax.hpp>
#include <cairn/optim/adam.hpp>
#include <cairn/optim/sgd.hpp>
#include <cairn/stash/bounded_codec.hpp>
#include <cairn/stash/simple_codecs.hpp>

#include <algorithm>
#include <cstdio>
#include <string>

namespace cairn {

namespace {

using gpu_benchmark::seconds_of;

/// Other numbers each time.
template <class T>
tensor<T, cuda> some(index_t n) {
    static std::uint32_t stream = 0;
    return gpu_benchmark::random_numbers<T>(n, ++stream);
}

struct ceilings {
    double copy = 0;                                        // bytes read and written, per second
    double product32 = 0, product_tf32 = 0, product16 = 0;  // operations per second
};

ceilings measured;
int rounds = 15;

/// Prints one kernel; `matrix_rate`: ceiling of its arithmetic, 0 where bytes alone count.
template <class Work>
void report(const std::string& name, double matrix_rate, Work&& work) {
    flop_counter::reset();
    flop_counter::enable(true);
    work();
    flop_counter::enable(false);
    const flop_counter::totals total = flop_counter::total();
    const double seconds = seconds_of(work, rounds), bytes = static_cast<double>(total.bytes),
                 flops = static_cast<double>(total.flops);
    const double bytes_floor = bytes / measured.copy, flops_floor = matrix_rate > 0 ? flops / matrix_rate : 0;
    std::printf(
        "{\"kernel\":\"%s\",\"seconds\":%.4g,\"gigabytes\":%.4g,\"gigaflops\":%.4g,\"bandwidth_share\":%.3f,"
        "\"arithmetic_share\":%.3f,\"roofline_share\":%.3f}\n",
        name.c_str(), seconds, bytes / 1e9, flops / 1e9, bytes_floor / seconds, flops_floor / seconds,
        std::max(bytes_floor, flops_floor) / seconds);
    std::fflush(stdout);
}

void measure_ceilings() {
    using gpu_benchmark::product_rate;
    measured.copy = gpu_benchmark::copy_rate();
    measured.product32 = product_rate<float>();
    gpu_float_products() = float_products::tf32;
    measured.product_tf32 = product_rate<float>();
    gpu_float_products() = float_products::exact;
    measured.product16 = product_rate<bfloat16>();
    std::printf(
        "{\"gpu\":\"%s\",\"copy_gigabytes_per_s\":%.1f,\"float_teraflops\":%.1f,\"tf32_teraflops\":%.1f,\"bf16_"
        "teraflops\":%.1f}\n",
        cuda::properties().name, measured.copy / 1e9, measured.product32 / 1e12, measured.product_tf32 / 1e12,
        measured.product16 / 1e12);
}

void optimizers() {
    constexpr index_t n = 25'000'000;
    parameter<float, cuda> all;
    all.shape = {n};
    arena<float, cuda> weights({{"all", &all}}, 1);
    float *const theta = weights.values().data(), *const g = weights.grads().data();
    auto v = tensor<float, cuda>::zeros({n}), m = tensor<float, cuda>::zeros({n});
    const update_context at{.number = 10, .lr = 1e-3};
    report("sgd, 25 M parameters", 0, [&] {
        flop_counter::count(0, 5 * 4.0 * n);
        for_each(cuda{}, n, sgd{{.momentum = 0.9}}.rule<float>(at), theta, g, v.data());
    });
    report("adam, 25 M parameters", 0, [&] {
        flop_counter::count(0, 7 * 4.0 * n);
        for_each(cuda{}, n, adam{}.rule<float>(at), theta, g, m.data(), v.data());
    });
    report("norm of gradients", 0, [&] {
        tensor<double, cuda> result({1}, memory_category::workspace);
        sum_of_squares_into(cuda{}, n, g, result.data());
    });
}

/// Messages of a bucket far beyond the second-level cache: made, read, and made with error feedback.
template <class C>
void codec_speed(const C& c) {
    constexpr index_t n = index_t{1} << 27;
    const auto x = some<float>(n);
    auto into = tensor<float, cuda>::zeros({n});
    message<cuda> m;
    m.prepare(c.max_bytes(n));
    const encode_step at{.seed = 1, .rank = 2, .step = 3};
    const std::string name = c.name() + ", 2^27 values";
    report("encode " + name, 0, [&] { c.encode(x.span(), m, at); });
    report("decode " + name, 0, [&] { c.decode_add(m.bytes(), into.span(), at, 0.125f); });
    error_feedback<C> feedback(c);
    feedback.prepare(n);
    report("encode with error feedback " + name, 0, [&] { feedback.encode(x.span(), m, at); });
}

void codecs() {
    codec_speed(bf16<cuda>{});
    codec_speed(fp16<cuda>{});
    codec_speed(bf16_stochastic<cuda>{});
    codec_speed(fp16_stochastic<cuda>{});
    codec_speed(natural<cuda>{});
    codec_speed(sign<cuda>{});
    codec_speed(qsgd<cuda>{});
}

/// Activations packed between forward and backward: a ReLU's output, half of it 0, whose bits its layer holds, and the
/// input of a batch norm. The floor: values once, and what is packed once.
void activations() {
    constexpr index_t rows = index_t{1} << 18, channels = 256, n = rows * channels;
    const auto before = some<float>(n);
    tensor<float, cuda> x({rows, channels}), relu({rows, channels});
    cuda::copy_within(x.data(), before.data(), x.bytes());
    tensor<std::uint8_t, cuda> bits({simd::mask_bytes<float>(n)});
    sign_activation_forward(cuda{}, n, 0.0f, x.data(), relu.data(), bits.data());
    const tensor<std::uint8_t, cuda>* const held[] = {&bits};
    const auto both_ways = [&](const std::string& name, const activation_codec<cuda>& codec,
                               const tensor<float, cuda>& values, const pack_hints<cuda>& hints) {
        const auto packed = codec.pack(values, hints);
        const double bytes = 4.0 * n + static_cast<double>(packed->bytes());
        const auto work = [&](const std::string& what, auto&& run) {
            report(concat(what, ' ', name, ", 2^26 values"), 0, [&] {
                run();
                flop_counter::reset();  // the floor alone
                flop_counter::count(0, bytes);
            });
        };
        work("pack", [&] { codec.pack(values, hints); });
        work("unpack", [&] { packed->unpack(); });
    };
    const bounded_codec_config planes{.bound = 0.1f, .huffman = false};
    bounded_codec_config deviations = planes;
    deviations.normalise = true, deviations.masked_bound = 1;
    both_ways("relu by error bounds", bounded_codec<cuda>(planes), relu, {.zero_masks = held});
    both_ways("batch norm's input by error bounds", bounded_codec<cuda>(deviations), x, {.gradient_mask = &bits});
    both_ways("to bf16", bf16_codec<cuda>(), x, {});
    both_ways("in groups of 4 bits", group_codec<cuda>(4), x, {});
}

template <class T>
void normalisation(const std::string& type) {
    constexpr index_t rows = 256 * 56 * 56, channels = 256;
    const auto x = some<T>(rows * channels), dy = some<T>(rows * channels);
    tensor<T, cuda> y({rows * channels}), dx({rows * channels});
    const auto mean = some<float>(channels), invstd = some<float>(channels), gamma = some<float>(channels),
               beta = some<float>(channels);
    tensor<float, cuda> first({channels}), second({channels});
    tensor<std::uint8_t, cuda> bits({rows * channels / 8 + 64});
    report("batch statistics, " + type, 0,
           [&] { batch_statistics(cuda{}, rows, channels, x.data(), first.data(), second.data()); });
    report("batch norm + relu, " + type, 0, [&] {
        batch_norm_apply(cuda{}, rows, channels, x.data(), static_cast<const T*>(nullptr), mean.data(), invstd.data(),
                         gamma.data(), beta.data(), activation::relu, 0.0f, y.data(), bits.data());
    });
    report("batch norm + skip + relu, " + type, 0, [&] {
        batch_norm_apply(cuda{}, rows, channels, x.data(), dy.data(), mean.data(), invstd.data(), gamma.data(),
                         beta.data(), activation::relu, 0.0f, y.data(), bits.data());
    });
    report("batch norm sums, " + type, 0, [&] {
        batch_norm_sums(cuda{}, rows, channels, dy.data(), bits.data(), activation::relu, 0.0f, x.data(), mean.data(),
                        invstd.data(), first.data(), second.data());
    });
    report("batch norm gradient, " + type, 0, [&] {
        batch_norm_gradient(cuda{}, rows, channels, dy.data(), bits.data(), activation::relu, 0.0f, x.data(),
                            mean.data(), invstd.data(), gamma.data(), first.data(), second.data(), dx.data(),
                            static_cast<T*>(nullptr));
    });
    report("column sums, " + type, 0, [&] { column_sums(cuda{}, rows, channels, x.data(), y.data(), false); });
    report("bias, " + type, 0, [&] { add_to_rows(cuda{}, rows, channels, x.data(), y.data()); });
    report("gelu, " + type, 0,
           [&] { activation_forward(cuda{}, activation::gelu, rows * channels, x.data(), y.data()); });
    report("dropout, " + type, 0, [&] { dropout_apply(cuda{}, rows * channels, 0.1, {1, 2, 3}, x.data(), y.data()); });
}

template <class T>
void others(const std::string& type) {
    constexpr index_t rows = index_t{1} << 17, columns = 1024;  // far beyond the second-level cache
    const auto x = some<T>(rows * columns), dy = some<T>(rows * columns);
    tensor<T, cuda> y({rows * columns});
    const auto gamma = some<float>(columns), beta = some<float>(columns), mean = some<float>(rows),
               invstd = some<float>(rows);
    tensor<float, cuda> dgamma({columns}), dbeta({columns}), loss({rows});
    const auto labels = tensor<std::int32_t, cuda>::zeros({rows});
    report("softmax cross-entropy, " + type, 0, [&] {
        softmax_cross_entropy(cuda{}, rows, columns, x.data(), labels.data(), 0.1f, loss.data(), y.data(), 1.0f);
    });
    report("layer norm, " + type, 0, [&] {
        layer_norm_forward(cuda{}, rows, columns, x.data(), gamma.data(), beta.data(), 1e-5f, y.data(), nullptr,
                           nullptr);
    });
    report("layer norm backward, " + type, 0, [&] {
        layer_norm_backward(cuda{}, rows, columns, dy.data(), x.data(), mean.data(), invstd.data(), gamma.data(),
                            y.data(), dgamma.data(), dbeta.data());
    });
}

/// The pooling of ResNet-50 and the first ones of CosmoFlow.
template <class T>
void poolings(const std::string& type) {
    const auto both = [&](const std::string& name, const pool_geometry& g) {
        const auto x = some<T>(g.x_elements()), dy = some<T>(g.y_elements());
        tensor<T, cuda> y({g.y_elements()}), dx({g.x_elements()});
        tensor<std::uint8_t, cuda> code({g.y_elements()});
        report(name + " forward, " + type, 0, [&] { max_pool_forward(cuda{}, g, x.data(), y.data(), code.data()); });
        report(name + " backward, " + type, 0,
               [&] { max_pool_backward(cuda{}, g, dy.data(), code.data(), dx.data()); });
    };
    const auto plane = pool_axis::sliding(112, 3, 2, 1), volume = pool_axis::sliding(128, 2, 2, 0);
    both("max pooling 3x3 of 112x112, 64 channels",
         {.n = 256, .channels = 64, .axis = {pool_axis::sliding(1, 1, 1, 0), plane, plane}});
    both("max pooling 2x2x2 of 128x128x128, 16 channels", {.n = 8, .channels = 16, .axis = {volume, volume, volume}});
}

/// Beside torch_attention.py, of the same shapes.
template <class T>
void attentions(const std::string& type, double rate) {
    for (const bool causal : {false, true})
        for (const index_t length : {256, 1024, 4096}) {
            const attention_geometry g{
                .batch = 65536 / length, .length = length, .heads = 12, .head_dim = 64, .causal = causal};
            const index_t n = g.batch * g.length * g.width();
            const auto q = some<T>(n), k = some<T>(n), v = some<T>(n), dy = some<T>(n);
            tensor<T, cuda> y({n}), dq({n}), dk({n}), dv({n});
            tensor<float, cuda> lse({g.batch * g.heads * g.length});
            const std::string name = concat(causal ? "causal " : "", "attention of ", length);
            const auto both = [&](const std::string& by) {
                report(name + " forward, " + type + by, rate,
                       [&] { attention_forward(cuda{}, g, q.data(), k.data(), v.data(), y.data(), lse.data()); });
                report(name + " backward, " + type + by, rate, [&] {
                    attention_backward(cuda{}, g, q.data(), k.data(), v.data(), y.data(), lse.data(), dy.data(),
                                       dq.data(), dk.data(), dv.data());
                });
            };
            both("");
            if (sizeof(T) == 2 && length == 256) {  // where cuDNN does not take it; a second a kernel for longer ones
                autotune_cache::global().force("attention_gpu", "own");
                both(", own");
                autotune_cache::global().force("attention_gpu", "");
            }
        }
}

/// Batches of 8-bit images made into inputs: as resampling leaves photographs, and small ones padded, cropped and
/// turned.
template <class T>
void inputs(const std::string& type) {
    const auto run = [&](const std::string& name, const shape& images, bool moved) {
        tensor<std::uint8_t> host({images.size()});
        tensor<crop_flip> host_moves({images[0]});
        const random_stream random{1, 2, 3};
        for (index_t i = 0; i < host.size(); ++i)
            host[i] = static_cast<std::uint8_t>(random.bits(static_cast<std::uint64_t>(i)));
        for (index_t i = 0; i < images[0]; ++i) {
            const auto at = static_cast<std::uint64_t>(i) * 2;
            host_moves[i] = {};
            if (moved)
                host_moves[i] = {static_cast<std::int32_t>(random.below(9, at)) - 4,
                                 static_cast<std::int32_t>(random.below(9, at + 1)) - 4,
                                 static_cast<std::int32_t>(i % 2)};
        }
        const auto pixels = tensor<std::uint8_t, cuda>::copy_of(host);
        const auto moves = tensor<crop_flip, cuda>::copy_of(host_moves);
        const auto table = some<T>(images[3] * pixel_values);
        tensor<T, cuda> x(images);
        report(name + ", " + type, 0,
               [&] { inputs_of_pixels(cuda{}, cuda{}, images, pixels.data(), moves.data(), table.data(), x.data()); });
    };
    run("inputs of pixels 224x224x3", {1024, 224, 224, 3}, false);
    run("inputs of pixels 32x32x3, moved", {1 << 16, 32, 32, 3}, true);
}

template <class T>
void convolutions(const std::string& type, double rate) {
    const auto run = [&](const std::string& name, conv_geometry g) {
        g = g.with_output();
        const auto x = some<T>(g.x_elements()), w = some<T>(g.w_elements()), dy = some<T>(g.y_elements());
        tensor<T, cuda> y({g.y_elements()}), dx({g.x_elements()}), dw = some<T>(g.w_elements());
        report(name + " forward, " + type, rate,
               [&] { conv_forward(cuda{}, g, x.data(), w.data(), static_cast<const T*>(nullptr), y.data()); });
        report(name + " backward input, " + type, rate,
               [&] { conv_backward_input(cuda{}, g, dy.data(), w.data(), dx.data()); });
        report(name + " backward weight, " + type, rate,
               [&] { conv_backward_weight(cuda{}, g, x.data(), dy.data(), dw.data(), static_cast<T*>(nullptr)); });
    };
    run("3x3 of 64, 56x56",
        {.n = 256, .in = {1, 56, 56}, .c_in = 64, .c_out = 64, .kernel = {1, 3, 3}, .pad = {0, 1, 1}});
    run("1x1 256 to 64, 56x56", {.n = 256, .in = {1, 56, 56}, .c_in = 256, .c_out = 64});
    run("3x3 of 512, 7x7",
        {.n = 256, .in = {1, 7, 7}, .c_in = 512, .c_out = 512, .kernel = {1, 3, 3}, .pad = {0, 1, 1}});
    run("3x3x3 16 to 32, 64x64x64",
        {.n = 8, .in = {64, 64, 64}, .c_in = 16, .c_out = 32, .kernel = {3, 3, 3}, .pad = {1, 1, 1}});
}

}  // namespace

}  // namespace cairn

int main(int argc, char** argv) {
    using namespace cairn;
    try {
        rounds = argc > 1 ? std::stoi(argv[1]) : rounds;
        require(rounds >= 1, "ROUNDS is at least 1");
        cuda::choose(0);
        measure_ceilings();
        optimizers();
        codecs();
        activations();
        normalisation<float>("float");
        normalisation<bfloat16>("bf16");
        inputs<float>("float");
        inputs<bfloat16>("bf16");
        poolings<float>("float");
        poolings<bfloat16>("bf16");
        others<float>("float");
        others<bfloat16>("bf16");
        convolutions<bfloat16>("bf16", measured.product16);
        attentions<float>("float", measured.product32);
        attentions<bfloat16>("bf16", measured.product16);
        gpu_float_products() = float_products::tf32;
        convolutions<float>("tf32", measured.product_tf32);
        return 0;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "gpu_kernels: %s\n", e.what());
        return 1;
    }
}
