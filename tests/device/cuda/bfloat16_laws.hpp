#pragma once
// Laws of bfloat16 kernels of every grid device, besides kernel_laws.hpp: each result is the float kernel's on the
// same numbers, rounded once; what they leave in float is the float kernel's.

#include "device/cuda/law_numbers.hpp"

namespace cairn::bfloat16_laws {

using namespace kernel_laws;

/// The same numbers in both types.
template <class D>
struct two_of {
    tensor<bfloat16, D> half;
    tensor<float, D> wide;
};

template <class D>
two_of<D> drawn_two(shape s, std::uint32_t stream) {
    const tensor<float> x = drawn<float>(s, stream);
    tensor<bfloat16> half(s);
    tensor<float> wide(s);
    for (index_t i = 0; i < x.size(); ++i) half[i] = bfloat16(x[i]), wide[i] = static_cast<float>(half[i]);
    return {on_device<D>(half), on_device<D>(wide)};
}

template <class D>
two_of<D> empty_two(shape s) {
    return {tensor<bfloat16, D>(s), tensor<float, D>(s)};
}

/// Half a unit in the last of eight binary digits, and what the float results of two compilations may differ by.
template <class D>
void check_rounded(const two_of<D>& t) {
    const tensor<bfloat16> half = t.half.on_host();
    const tensor<float> wide = t.wide.on_host();
    for (index_t i = 0; i < half.size(); ++i) {
        const double got = static_cast<double>(static_cast<float>(half[i])), exact = static_cast<double>(wide[i]);
        if (std::abs(got - exact) <= 0x1p-8 * std::abs(exact) + 1e-6) continue;
        FAIL_CHECK("element " << i << " of " << half.size() << " is " << got << ", of float " << exact);
        return;
    }
}

/// Calls f with the bfloat16 members and with the float ones.
template <class F, class... Two>
void in_both(F f, Two&... t) {
    f(t.half...);
    f(t.wide...);
    (check_rounded(t), ...);
}

template <class D>
void norms() {
    constexpr index_t rows = 300;  // several packets a thread
    for (const index_t channels : {5, 16})
        for (const activation act : {activation::none, activation::relu, activation::leaky_relu})
            for (const bool with_skip : {false, true}) {
                CAPTURE(channels, name_of(act), with_skip);
                const shape s{rows, channels};
                auto x = drawn_two<D>(s, 1), skip = drawn_two<D>(s, 2), dy = drawn_two<D>(s, 3), y = empty_two<D>(s),
                     dx = empty_two<D>(s), dskip = empty_two<D>(s);
                const auto gamma = on_device<D>(drawn<float>({channels}, 4)),
                           beta = on_device<D>(drawn<float>({channels}, 5)),
                           mean = on_device<D>(drawn<float>({channels}, 6, 0.1)),
                           invstd = on_device<D>(drawn<float>({channels}, 7, 0.1, 1));
                auto bits = tensor<std::uint8_t, D>::zeros({simd::mask_bytes<float>(rows * channels)});
                in_both(
                    [&](const auto& from, const auto& added, auto& to) {
                        batch_norm_apply(D{}, rows, channels, from.data(), with_skip ? added.data() : nullptr,
                                         mean.data(), invstd.data(), gamma.data(), beta.data(), act, 0.25f, to.data(),
                                         act == activation::none ? nullptr : bits.data());
                    },
                    x, skip, y);
                in_both(
                    [&](const auto& g, const auto& from, auto& to, auto& added) {
                        batch_norm_gradient(D{}, rows, channels, g.data(), bits.data(), act, 0.25f, from.data(),
                                            mean.data(), invstd.data(), gamma.data(), beta.data(), gamma.data(),
                                            to.data(), with_skip ? added.data() : nullptr);
                        if (!with_skip) D::set_bytes(added.data(), 0, added.bytes());
                    },
                    dy, x, dx, dskip);
                const auto sums_of = [&](const auto& from, const auto& g) {
                    tensor<float, D> sums({4, channels});
                    float* const to = sums.data();
                    batch_statistics(D{}, rows, channels, from.data(), to, to + channels);
                    batch_norm_sums(D{}, rows, channels, g.data(), bits.data(), act, 0.25f, from.data(), mean.data(),
                                    invstd.data(), to + 2 * channels, to + 3 * channels);
                    return sums.on_host();
                };
                CHECK(same_bits(sums_of(x.half, dy.half), sums_of(x.wide, dy.wide)));
            }
}

template <class D>
void layer_norms() {
    for (const shape& s : {shape{30, 17}, shape{4, 200}}) {
        const index_t rows = s[0], features = s[1];
        CAPTURE(features);
        auto x = drawn_two<D>(s, 8), dy = drawn_two<D>(s, 9), y = empty_two<D>(s), dx = empty_two<D>(s);
        const auto gamma = on_device<D>(drawn<float>({features}, 10)),
                   beta = on_device<D>(drawn<float>({features}, 11));
        tensor<float, D> mean({2, rows}), invstd({2, rows}), dgamma({2, features}), dbeta({2, features});
        index_t which = 0;
        in_both(
            [&](const auto& from, const auto& g, auto& to, auto& back) {
                const index_t row = which * rows, column = which * features;
                which = 1;
                layer_norm_forward(D{}, rows, features, from.data(), gamma.data(), beta.data(), 1e-5f, to.data(),
                                   mean.data() + row, invstd.data() + row);
                layer_norm_backward(D{}, rows, features, g.data(), from.data(), mean.data() + row, invstd.data() + row,
                                    gamma.data(), back.data(), dgamma.data() + column, dbeta.data() + column);
            },
            x, dy, y, dx);
        for (const auto* t : {&mean, &invstd, &dgamma, &dbeta}) {
            const tensor<float> both = t->on_host();
            const index_t n = both.extent(1);
            check_close(both.slice(0, {n}), both.slice(n, {n}), 1e-6);
        }
    }
}

template <class D>
void activations() {
    constexpr index_t n = 1003;
    auto x = drawn_two<D>({n}, 12), dy = drawn_two<D>({n}, 13), y = empty_two<D>({n}), dx = empty_two<D>({n});
    for (const activation act :
         {activation::sigmoid, activation::tanh, activation::silu, activation::gelu, activation::gelu_tanh}) {
        CAPTURE(name_of(act));
        in_both([&](const auto& from, auto& to) { activation_forward(D{}, act, n, from.data(), to.data()); }, x, y);
        in_both([&](const auto& saved, const auto& g,
                    auto& to) { activation_backward(D{}, act, n, saved.data(), g.data(), to.data()); },
                x, dy, dx);
    }
    for (const float slope : {0.0f, 0.3f}) {
        auto bits = tensor<std::uint8_t, D>::zeros({simd::mask_bytes<float>(n)});
        in_both(
            [&](const auto& from, const auto& g, auto& to, auto& back) {
                D::set_bytes(bits.data(), 0, bits.bytes());
                sign_activation_forward(D{}, n, slope, from.data(), to.data(), bits.data());
                sign_activation_backward(D{}, n, slope, g.data(), bits.data(), back.data());
            },
            x, dy, y, dx);
    }
    in_both(
        [&](const auto& from, auto& to) {
            dropout_apply(D{}, n, 0.3, random_stream{1, 2, 3}, from.data(), to.data());
        },
        x, y);
}

template <class D>
void pools() {
    for (const pool_geometry& g : pool_geometries()) {
        CAPTURE(g.channels);
        auto x = drawn_two<D>({g.x_elements()}, 14), dy = drawn_two<D>({g.y_elements()}, 15),
             y = empty_two<D>({g.y_elements()}), dx = empty_two<D>({g.x_elements()});
        in_both(
            [&](const auto& from, const auto& gradient, auto& to, auto& back) {
                tensor<std::uint8_t, D> code({g.y_elements()});
                max_pool_forward(D{}, g, from.data(), to.data(), code.data());
                max_pool_backward(D{}, g, gradient.data(), code.data(), back.data());
            },
            x, dy, y, dx);
        in_both(
            [&](const auto& from, const auto& gradient, auto& to, auto& back) {
                average_pool_forward(D{}, g, from.data(), to.data());
                average_pool_backward(D{}, g, gradient.data(), back.data());
            },
            x, dy, y, dx);
    }
    for (const index_t channels : {5, 40}) {
        constexpr index_t points = 45;
        auto x = drawn_two<D>({2, points, channels}, 16), dy = drawn_two<D>({2, channels}, 17),
             y = empty_two<D>({2, channels}), dx = empty_two<D>({2, points, channels});
        in_both(
            [&](const auto& from, const auto& gradient, auto& to, auto& back) {
                global_average_forward(D{}, 2, points, channels, from.data(), to.data());
                global_average_backward(D{}, 2, points, channels, gradient.data(), back.data());
            },
            x, dy, y, dx);
    }
}

template <class D>
void matrices() {
    for (const shape& s : {shape{40, 10}, shape{500, 24}, shape{4, 1100}}) {
        const index_t rows = s[0], columns = s[1];
        CAPTURE(rows, columns);
        auto x = drawn_two<D>(s, 18), dy = drawn_two<D>(s, 19), v = drawn_two<D>({columns}, 20), y = empty_two<D>(s);
        in_both(
            [&](const auto& row, const auto& from, auto& to) {
                D::copy_within(to.data(), from.data(), to.bytes());
                add_to_rows(D{}, rows, columns, row.data(), to.data());
            },
            v, x, y);
        const auto start = on_device<D>(drawn<float>({columns}, 21));
        for (const bool accumulate : {false, true}) {
            auto of_half = start.clone(), of_wide = start.clone();
            column_sums(D{}, rows, columns, x.half.data(), of_half.data(), accumulate);
            column_sums(D{}, rows, columns, x.wide.data(), of_wide.data(), accumulate);
            check_close(of_half, on_host(of_wide), 1e-6);
        }
        auto part = empty_two<D>({rows, 3});
        in_both([&](const auto& from, auto& to) { copy_columns(D{}, rows, 3, from.data() + 2, columns, to.data(), 3); },
                x, part);
        if (rows > 100) continue;
        auto p = empty_two<D>(s);
        in_both([&](const auto& from, auto& to) { softmax_forward(D{}, rows, columns, from.data(), to.data()); }, x, p);
        in_both([&](const auto& saved, const auto& g,
                    auto& to) { softmax_backward(D{}, rows, columns, saved.data(), g.data(), to.data()); },
                x, dy, y);  // x for a softmax: any numbers do
    }
}

template <GridDevice D>
const std::vector<law>& all() {
    static const std::vector<law> laws{{"batch norm", norms<D>},
                                       {"layer norm", layer_norms<D>},
                                       {"activations and dropout", activations<D>},
                                       {"pooling", pools<D>},
                                       {"matrices", matrices<D>}};
    return laws;
}

}  // namespace cairn::bfloat16_laws
