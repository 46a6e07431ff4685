#pragma once
// What attention on every grid device obeys: the host's results, which are tested against plain loops; in bfloat16
// those of the rounded numbers.

#include "device/cuda/kernel_laws.hpp"

#include <cairn/device/cpu/attention.hpp>
#include <cairn/device/grid/attention.hpp>

namespace cairn::attention_laws {

using kernel_laws::check_close;
using kernel_laws::drawn;

/// y, lse and the three gradients side by side, of parts of one array (batch, length, 3, heads, head_dim), on the host.
template <class S>
struct results {
    tensor<S> y, lse, dqkv;
};

template <class To, class From>
tensor<To> converted(const tensor<From>& from) {
    tensor<To> to(from.shape());
    for (index_t i = 0; i < from.size(); ++i) to[i] = static_cast<To>(static_cast<float>(from[i]));
    return to;
}

template <class T, class S, class D>
results<S> run(attention_geometry g, const tensor<S>& qkv, const tensor<S>& dy, const tensor<std::int32_t>& lengths) {
    const auto at_device = [](const tensor<S>& host) {
        if constexpr (std::same_as<T, S>)
            return tensor<T, D>::copy_of(host);
        else
            return tensor<T, D>::copy_of(converted<T>(host));
    };
    const auto back = [](const tensor<T, D>& t) {
        if constexpr (std::same_as<T, S>)
            return t.on_host();
        else
            return converted<S>(t.on_host());
    };
    const index_t w = g.width();
    const auto x = at_device(qkv), gradient = at_device(dy);
    const auto valid = lengths.empty() ? tensor<std::int32_t, D>{} : tensor<std::int32_t, D>::copy_of(lengths);
    g.stride = 3 * w;
    g.lengths = valid.data();
    tensor<T, D> y(dy.shape()), dx(qkv.shape());
    tensor<S, D> lse({g.batch, g.heads, g.length});
    attention_forward(D{}, g, x.data(), x.data() + w, x.data() + 2 * w, y.data(), lse.data());
    attention_backward(D{}, g, x.data(), x.data() + w, x.data() + 2 * w, y.data(), lse.data(), gradient.data(),
                       dx.data(), dx.data() + w, dx.data() + 2 * w);
    return {back(y), lse.on_host(), back(dx)};
}

template <class T, class S, class D>
void same(const attention_geometry& g, double tolerance, const tensor<std::int32_t>& lengths = {}, double size = 1) {
    CAPTURE(g.batch, g.length, g.heads, g.head_dim, g.causal, size);
    const shape s{g.batch, g.length, g.heads, g.head_dim};
    tensor<S> qkv = drawn<S>({g.batch, g.length, 3, g.heads, g.head_dim}, 70), dy = drawn<S>(s, 71);
    for (index_t i = 0; i < qkv.size(); ++i) qkv[i] *= static_cast<S>(size);
    if constexpr (!std::same_as<T, S>) {  // what the device sees
        qkv = converted<S>(converted<T>(qkv));
        dy = converted<S>(converted<T>(dy));
    }
    const auto host = run<S, S, cpu>(g, qkv, dy, lengths);
    const auto device = run<T, S, D>(g, qkv, dy, lengths), again = run<T, S, D>(g, qkv, dy, lengths);
    check_close(device.y, host.y, tolerance);
    check_close(device.lse, host.lse, tolerance);
    check_close(device.dqkv, host.dqkv, 4 * tolerance * size * size);
    check_close(again.y, device.y, 0);
    check_close(again.dqkv, device.dqkv, 0);
}

/// T: of the arrays; S: of sums, and of the host.
template <class D, class T, class S = T>
void all_shapes() {
    // Eight binary digits in each weight, each dS and each result.
    const double tolerance = std::is_same_v<T, bfloat16> ? 0.02 : kernel_laws::rounding<S>;
    for (const bool causal : {false, true}) {
        for (const index_t length : {1, 15, 33, 70})
            for (const index_t head_dim : {1, 20})
                same<T, S, D>({.batch = 2, .length = length, .heads = 2, .head_dim = head_dim, .causal = causal},
                              tolerance);
        for (const index_t head_dim : {64, 130, 240})  // of tiles that become smaller
            if (head_dim * index_t{sizeof(T)} <= 960)
                same<T, S, D>({.batch = 1, .length = 35, .heads = 1, .head_dim = head_dim, .causal = causal},
                              tolerance);
        tensor<std::int32_t> lengths({4});
        lengths[0] = 40, lengths[1] = 0, lengths[2] = 1, lengths[3] = 33;
        same<T, S, D>({.batch = 4, .length = 40, .heads = 2, .head_dim = 6, .causal = causal, .scale = 0.3}, tolerance,
                      lengths);
        same<T, S, D>({.batch = 0, .length = 4, .heads = 2, .head_dim = 6, .causal = causal}, tolerance);
    }
    for (const bool causal : {false, true}) {
        const random_stream random{.seed = 3, .stream = 4, .step = 5};
        tensor<std::int32_t> lengths({3});
        lengths[0] = 37, lengths[1] = 40, lengths[2] = 2;
        for (const index_t head_dim : {6, 100})  // of tiles that become smaller
            same<T, S, D>({.batch = 3,
                           .length = 40,
                           .heads = 2,
                           .head_dim = head_dim,
                           .causal = causal,
                           .dropout = 0.4,
                           .random = random,
                           .first = 7},
                          2 * tolerance, lengths);
    }
    if constexpr (!std::same_as<T, bfloat16>)  // scores of hundreds: weights of 0 and 1
        same<T, S, D>({.batch = 1, .length = 50, .heads = 1, .head_dim = 8}, 20 * tolerance, {}, 15);
}

/// Shapes of which the GPU's library has kernels as well (device/cuda/attention_plans.hpp).
template <class D, class T>
void library_shapes() {
    const double tolerance = std::is_same_v<T, bfloat16> ? 0.02 : 0.003;
    for (const bool causal : {false, true}) {
        for (const index_t length : {1, 33})
            for (const index_t head_dim : {8, 64})
                same<T, float, D>({.batch = 1, .length = length, .heads = 2, .head_dim = head_dim, .causal = causal},
                                  tolerance);
        for (const double scale : {0.05, -0.05})
            same<T, float, D>({.batch = 1, .length = 20, .heads = 2, .head_dim = 128, .causal = causal, .scale = scale},
                              tolerance);
    }
}

/// A number that is none reaches all rows of its head, and no other; huge scores do not overflow.
template <class D>
void broken_numbers() {
    const attention_geometry g{.batch = 2, .length = 40, .heads = 2, .head_dim = 4, .scale = 1};
    const shape s{2, 40, 3, 2, 4}, out{2, 40, 2, 4};
    auto qkv = drawn<float>(s, 72);
    const auto dy = drawn<float>(out, 73);
    const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
    qkv[((39 * 3 + 1) * 2 + 1) * 4] = nan;  // a key of sequence 0, head 1
    const auto device = run<float, float, D>(g, qkv, dy, {}), host = run<float, float, cpu>(g, qkv, dy, {});
    check_close(device.y, host.y, 1e-5);
    check_close(device.dqkv, host.dqkv, 1e-4);
    CHECK(std::isnan(device.y[4]));
    CHECK(!std::isnan(device.y[0]));
    auto huge = drawn<float>(s, 74);
    for (index_t i = 0; i < huge.size(); ++i) huge[i] *= 300;
    const auto far = run<float, float, D>(g, huge, dy, {}), expected = run<float, float, cpu>(g, huge, dy, {});
    check_close(far.lse, expected.lse, 1e-5);
    check_close(far.y, expected.y, 0.2);  // scores of 10⁵ have errors of 10⁻²
    for (index_t i = 0; i < far.dqkv.size(); ++i) REQUIRE(std::isfinite(far.dqkv[i]));
    // Keys of weight zero first, then one that counts; then none.
    for (index_t i = 0; i < huge.size(); ++i) huge[i] = i / 8 % 3 == 1 ? -inf : 1;
    for (index_t c = 0; c < 8; ++c) huge[(35 * 3 + 1) * 8 + c] = 1, huge[(35 * 3 + 2) * 8 + c] = 5;
    const auto one = run<float, float, D>(g, huge, dy, {});
    for (index_t i = 0; i < 40 * 8; ++i) REQUIRE(one.y[i] == 5);
    for (index_t i = 40 * 8; i < 80 * 8; ++i) REQUIRE(std::isnan(one.y[i]));
}

/// A recorded step finds its number in memory.
template <class D>
void step_in_memory() {
    attention_geometry g{.batch = 1, .length = 20, .heads = 2, .head_dim = 4, .dropout = 0.5, .random = {1, 2, 9}};
    const shape s{1, 20, 2, 4};
    const auto x = drawn<float>(s, 76);
    const auto at_device = tensor<float, D>::copy_of(x);
    tensor<float> y(s);
    tensor<float, D> on_device(s);
    attention_forward(cpu{}, g, x.data(), x.data(), x.data(), y.data(), static_cast<float*>(nullptr));
    tensor<std::uint32_t> nine({1});
    nine[0] = 9;
    const auto step = tensor<std::uint32_t, D>::copy_of(nine);
    g.random.step = 1;
    g.step = step.data();
    const float* const in = at_device.data();
    attention_forward(D{}, g, in, in, in, on_device.data(), nullptr);
    check_close(on_device, y, 1e-5);
}

/// Addresses and widths that fit no packet.
template <class D>
void misaligned() {
    const attention_geometry g{.batch = 1, .length = 9, .heads = 2, .head_dim = 4};
    const auto x = drawn<float>({3 * 9 * 8 + 1}, 75);
    const auto at_device = tensor<float, D>::copy_of(x);
    tensor<float> y({9 * 8});
    tensor<float, D> on_device({9 * 8});
    const auto part = [](const auto& t, index_t which) { return t.data() + 1 + which * 72; };
    attention_forward(cpu{}, g, part(x, 0), part(x, 1), part(x, 2), y.data(), static_cast<float*>(nullptr));
    attention_forward(D{}, g, part(at_device, 0), part(at_device, 1), part(at_device, 2), on_device.data(), nullptr);
    check_close(on_device, y, 1e-5);
}

template <class D>
void errors() {
    tensor<double, D> x({1});
    const auto call = [&](const attention_geometry& g) {
        attention_forward(D{}, g, x.data(), x.data(), x.data(), x.data(), nullptr);
    };
    CHECK_THROWS_WITH(call({.batch = 1, .length = 1, .heads = 1, .head_dim = 4000}), Catch::Contains("heads of 4000"));
    CHECK_THROWS_WITH(call({.batch = 1, .length = 1, .heads = 0, .head_dim = 4}), Catch::Contains("0 heads"));
}

template <GridDevice D>
const std::vector<law>& all() {
    static const std::vector<law> laws{{"attention, float", all_shapes<D, float>},
                                       {"attention, double", all_shapes<D, double>},
                                       {"attention, bfloat16", all_shapes<D, bfloat16, float>},
                                       {"attention of library shapes, bfloat16", library_shapes<D, bfloat16>},
                                       {"attention of library shapes, float16", library_shapes<D, float16>},
                                       {"attention of numbers that are none", broken_numbers<D>},
                                       {"attention, addresses that fit no packet", misaligned<D>},
                                       {"attention, the step of a mask in memory", step_in_memory<D>},
                                       {"attention, errors", errors<D>}};
    return laws;
}

}  // namespace cairn::attention_laws
