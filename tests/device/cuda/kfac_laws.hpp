#pragma once
// K-FAC on a grid device: an explicit solve of each block, batches that are not finite, saved states, and what is
// refused. The twins of tests/optim/kfac_test.cpp. Included after the device's products, convolutions and
// decompositions.

#include "device/cuda/kernel_laws.hpp"
#include "optim/kfac_oracle.hpp"

#include <cairn/device/grid/batch_norm.hpp>
#include <cairn/device/grid/curvature.hpp>
#include <cairn/device/grid/layer_norm.hpp>
#include <cairn/nn/activation.hpp>
#include <cairn/nn/batch_norm.hpp>
#include <cairn/nn/conv.hpp>
#include <cairn/nn/layer_norm.hpp>
#include <cairn/nn/linear.hpp>
#include <cairn/optim/precondition/kfac.hpp>

#include <cstring>
#include <tuple>
#include <vector>

namespace cairn::kfac_laws {

using namespace kfac_oracle;

/// Of a solve whose condition is about 1e4.
template <class T>
constexpr double rounding = std::is_same_v<T, double> ? 1e-9 : 2e-3;

template <class D, class T>
void linear_layers() {
    for (const bool bias : {true, false})
        for (const index_t positions : {1, 3})
            for (const index_t examples : {1, 2, 9}) {
                CAPTURE(bias, positions, examples);
                const index_t in = 4, out = 3;
                const shape s = positions == 1 ? shape{examples, in} : shape{examples, positions, in};
                const tensor<double> x = random_tensor(s, 1), dy = random_tensor(s.with(-1, out), 2);
                std::vector<double> gradient;
                const auto got = preconditioned<T, D>(linear<T, D>({.in = in, .out = out, .bias = bias}), x, dy,
                                                      exact(0.03), gradient);
                const auto rows = rows_of_linear(x, dy, in, out, bias);
                CHECK(distance(got, solve_block(rows, double(examples), double(positions), 0.03, gradient)) <
                      rounding<T>);
            }
}

template <class D, class T>
void convolutions() {
    for (const auto& p : convolutions_of_all_kinds<conv<T, D>>()) {
        conv<T, D> layer(p.c);
        const conv_geometry g = layer.geometry(p.in);
        const tensor<double> x = random_tensor(p.in, 1), dy = random_tensor(layer.output_shape(p.in), 2);
        std::vector<double> gradient;
        const auto got = preconditioned<T, D>(conv<T, D>(p.c), x, dy, exact(0.05), gradient);
        const index_t row = g.c_in / g.groups * g.kernel_points() + (p.c.bias ? 1 : 0),
                      size = row * (g.c_out / g.groups);
        for (index_t q = 0; q < g.groups; ++q) {
            CAPTURE(layer.describe(), q);
            const auto part = [&](const std::vector<double>& v) {
                return std::vector<double>(v.begin() + q * size, v.begin() + (q + 1) * size);
            };
            const auto rows = rows_of_conv(x, dy, g, p.c.bias, q);
            CHECK(distance(part(got), solve_block(rows, double(g.n), double(g.out_points()), 0.05, part(gradient))) <
                  rounding<T>);
        }
    }
}

/// All layers are scaled by one number.
template <class D, class T>
void kl_clip() {
    const tensor<double> x = random_tensor({6, 4}, 1), dy = random_tensor({6, 3}, 2);
    std::vector<double> gradient, ignored;
    const auto layer = [] { return linear<T, D>({.in = 4, .out = 3}); };
    const auto whole = preconditioned<T, D>(layer(), x, dy, exact(0.01), gradient);
    kfac_config c = exact(0.01);
    c.kl_clip = 1e-4;
    const auto clipped = preconditioned<T, D>(layer(), x, dy, c, ignored);
    double product = 0;
    for (std::size_t i = 0; i < whole.size(); ++i) product += whole[i] * gradient[i];
    const double scale = std::sqrt(1e-4 / (0.1 * 0.1 * product));
    REQUIRE(scale < 1);
    std::vector<double> expected;
    for (const double v : whole) expected.push_back(scale * v);
    CHECK(distance(clipped, expected) < (std::is_same_v<T, double> ? 1e-10 : 1e-5));
}

template <class D, class T>
void zeros_and_refusals() {
    const tensor<double> zero = tensor<double>::zeros({4, 3}), none = tensor<double>::zeros({4, 2}),
                         dy = random_tensor({4, 2}, 2);
    std::vector<double> gradient;
    const auto with = [&](const kfac_config& c, const tensor<double>& arriving) {
        return preconditioned<T, D>(linear<T, D>({.in = 3, .out = 2}), zero, arriving, c, gradient);
    };
    for (const kfac_form form : {kfac_form::eigen, kfac_form::inverse}) {
        kfac_config c = exact(1e-3);
        c.form = form;
        for (const double v : with(c, dy)) CHECK(std::isfinite(v));
        for (const double v : with(c, none)) CHECK(v == 0);
    }
    kfac_config c = exact(1);
    c.skip = {"layer"};
    CHECK(with(c, dy) == gradient);
    CHECK_THROWS_WITH(with(exact(0), dy), Catch::Contains("damping 0"));
}

/// Each example's gradient of scale and shift, and a diagonal of their squares: tests/optim/kfac_test.cpp has the
/// formula.
template <class D, class T>
void scale_and_shift() {
    kfac_config c = exact(0.1);
    c.norm_layers = true;
    std::vector<double> gradient, of_host;
    const auto check = [&](auto&& on, const shape& s) {
        const tensor<double> x = random_tensor(s, 1), dy = random_tensor(s, 2);
        for (const kfac_form form : {kfac_form::eigen, kfac_form::inverse}) {
            CAPTURE(s, form == kfac_form::eigen);
            c.form = form;
            const auto expected = preconditioned<double, cpu>(on(cpu{}, double{}), x, dy, c, of_host);
            const auto got = preconditioned<T, D>(on(D{}, T{}), x, dy, c, gradient);
            CHECK(distance(got, expected) < (std::is_same_v<T, double> ? 1e-10 : 1e-4));
            CHECK(distance(got, gradient) > 0.1);
        }
    };
    for (const shape& s : {shape{6, 3, 5}, shape{4, 8}, shape{2, 3, 3, 16}}) {  // 5: no whole packs of lanes
        for (const activation act : {activation::none, activation::relu, activation::leaky_relu})
            check(
                [&](auto device, auto number) {
                    return batch_norm<decltype(number), decltype(device)>({.channels = s.back(), .act = act});
                },
                s);
        check([&](auto device,
                  auto number) { return layer_norm<decltype(number), decltype(device)>({.features = s.back()}); },
              s);
    }
}

/// Two linear layers, or `equal` of one size, and steps that depend on their number alone.
template <class D, class T>
struct small_curved {
    sequential<T, D> net;
    std::unique_ptr<arena<T, D>> weights;
    std::unique_ptr<kfac<T, D>> curvature;
    index_t out = 3;

    explicit small_curved(const kfac_config& c, int equal = 0) {
        for (int i = 0; i < equal; ++i) net.add(concat(i), linear<T, D>({.in = 5, .out = out = 5, .bias = false}));
        if (equal == 0) {
            net.add("first", linear<T, D>({.in = 5, .out = 4}));
            net.add("tanh", activation_layer<T, D>(activation::tanh));
            net.add("second", linear<T, D>({.in = 4, .out = 3, .bias = false}));
        }
        weights = std::make_unique<arena<T, D>>(net.parameters(), 5);
        weights->zero_grad();
        curvature = std::make_unique<kfac<T, D>>(*weights, c);
    }

    void pass_over(std::uint32_t step, curvature_listener* to, bool spoilt = false, bool gradients = true) {
        tensor<double> x = random_tensor({6, 5}, 100 + step);
        if (spoilt) x[7] = std::numeric_limits<double>::quiet_NaN();
        pass_context p{.weight_gradient = gradients};
        p.curvature = to;
        saved_tensors<T, D> saved;
        net.forward(as<T, D>(x), saved, p);
        net.backward(as<T, D>(random_tensor({6, out}, 200 + step)), saved, p);
    }

    /// The step's directions for gradients of ones.
    tensor<T> step_on_ones(std::uint32_t number, bool spoilt = false) {
        pass_over(number, curvature->begin_step(), spoilt);
        for (const auto& [name, p] : weights->parameters()) {
            const auto ones = tensor<T, D>::filled(p->shape, T{1});
            D::copy_within(p->grad.data(), ones.data(), ones.bytes());
        }
        curvature->precondition(6, 0.1);
        return weights->grads().on_host();
    }

    /// Sums of this step's rows.
    std::vector<T> sums() {
        std::vector<T> all;
        for (auto& b : curvature->blocks())
            b.each_factor([&](kfac_factor<T, D>& f, char) {
                const tensor<T> s = f.statistics.batch().on_host();
                all.insert(all.end(), s.data(), s.data() + s.size());
            });
        return all;
    }
};

inline kfac_config every_step() {
    return {.damping = 0.05, .factor_update_interval = 1, .inverse_update_interval = 2, .form = kfac_form::eigen};
}

/// Sums that are not finite are counted and left out of the averages.
template <class D, class T>
void spoilt_batches() {
    small_curved<D, T> device(every_step());
    for (std::uint32_t s = 0; s < 2; ++s) device.step_on_ones(s);
    const auto averages = [&] {
        std::vector<tensor<T>> all;
        for (auto& b : device.curvature->blocks())
            b.each_factor([&](kfac_factor<T, D>& f, char) { all.push_back(f.statistics.average().on_host()); });
        return all;
    };
    const auto before = averages();
    const tensor<T> spoilt = device.step_on_ones(2, true);
    const auto after = averages();
    // The inputs of both layers, and what arrives at the first one through tanh; not what arrives at the second.
    CHECK(device.curvature->rejected() == 3);
    REQUIRE(after.size() == 4);  // A and G of the second layer, then of the first one
    for (const std::size_t i : {0u, 2u, 3u}) kernel_laws::check_close(after[i], before[i], 0);
    CHECK(std::memcmp(after[1].data(), before[1].data(), static_cast<std::size_t>(after[1].bytes())) != 0);
    for (index_t i = 0; i < spoilt.size(); ++i) CHECK(std::isfinite(spoilt[i]));
    device.step_on_ones(3);
    CHECK(device.curvature->rejected() == 3);
}

/// Factors of equal size, which are decomposed together: the host's steps, also where one of them cannot be decomposed
/// with its damping, or at all.
template <class D, class T>
void equal_sizes() {
    for (const kfac_form form : {kfac_form::eigen, kfac_form::inverse})
        for (const double spoilt : {0.0, -4.0, -1e3, std::numeric_limits<double>::infinity()}) {
            CAPTURE(form == kfac_form::eigen, spoilt);
            kfac_config c = every_step();
            c.form = form, c.factor_update_interval = 8, c.inverse_update_interval = 1;
            const auto steps = [&]<class Where, class U>(Where, U) {
                small_curved<Where, U> k(c, 4);
                std::vector<tensor<U>> all;
                all.push_back(k.step_on_ones(0));
                kfac_factor<U, Where>& g = k.curvature->blocks()[1].g[0];
                const tensor<U> before = g.inverse.matrix.on_host();
                if (spoilt != 0) {
                    tensor<U> other = tensor<U>::zeros({5, 5});
                    for (index_t i = 0; i < 5; ++i) other(i, i) = static_cast<U>(spoilt * std::sqrt(c.damping));
                    Where::copy_to_device(g.statistics.average().data(), other.data(), other.bytes());
                }
                all.push_back(k.step_on_ones(1));
                const tensor<U> after = g.inverse.matrix.on_host();
                const bool kept =
                    std::memcmp(before.data(), after.data(), static_cast<std::size_t>(after.bytes())) == 0;
                CHECK(kept == (std::isinf(spoilt) || (spoilt == -1e3 && form == kfac_form::inverse) || spoilt == 0));
                return all;
            };
            const auto got = steps(D{}, T{}), expected = steps(cpu{}, T{});
            for (std::size_t i = 0; i < got.size(); ++i) kernel_laws::check_close(got[i], expected[i], 1e-9);
        }
}

/// Each step's directions for gradients of ones, where decompositions are used `inverse_staleness` steps after their
/// start.
template <class D, class T>
void lagged() {
    for (const kfac_form form : {kfac_form::eigen, kfac_form::inverse})
        for (const std::int64_t lag : {1, 2, 3}) {
            CAPTURE(lag, form == kfac_form::eigen);
            kfac_config c = every_step();
            c.form = form;
            c.inverse_update_interval = 4;
            c.kl_clip = 0;
            small_curved<D, T> prompt(c);
            c.inverse_staleness = lag;
            small_curved<D, T> late(c);
            std::vector<tensor<T>> at_once, later;
            for (std::uint32_t s = 0; s < 12; ++s) {
                at_once.push_back(prompt.step_on_ones(s));
                later.push_back(late.step_on_ones(s));
            }
            const auto until = static_cast<std::size_t>(lag);
            for (const std::size_t due : {std::size_t{4}, std::size_t{8}}) {
                for (std::size_t s = due + 1; s < due + until; ++s) kernel_laws::check_close(later[s], later[due], 0);
                kernel_laws::check_close(later[due + until], at_once[due], 0);
                const tensor<T>&now = later[due + until], &before = later[due + until - 1];
                CHECK(std::memcmp(now.data(), before.data(), static_cast<std::size_t>(now.bytes())) != 0);
            }
        }
}

/// A fresh one with the tensors and counters of another goes on with the same bits; also when decompositions were begun
/// that are used later.
template <class D, class T>
void resumed() {
    for (const auto& [form, every, lag] : {std::tuple<kfac_form, int, int>{kfac_form::eigen, 2, 0},
                                           {kfac_form::inverse, 2, 0},
                                           {kfac_form::eigen, 4, 2},
                                           {kfac_form::inverse, 4, 3}}) {
        kfac_config c = every_step();
        c.form = form, c.inverse_update_interval = every, c.inverse_staleness = lag;
        const auto until = static_cast<std::uint32_t>(every + 1);  // one step after a begin
        small_curved<D, T> first(c), second(c);
        for (std::uint32_t s = 0; s < until; ++s) first.step_on_ones(s);
        second.pass_over(0, second.curvature->discover());
        const auto from = first.curvature->tensors(), to = second.curvature->tensors();
        REQUIRE(from.size() == to.size());
        for (std::size_t i = 0; i < from.size(); ++i) {
            REQUIRE(from[i].name == to[i].name);
            D::copy_within(const_cast<T*>(to[i].t.data()), from[i].t.data(), from[i].t.bytes());
        }
        const auto counted = first.curvature->counters(), counters = second.curvature->counters();
        REQUIRE(counted.size() == counters.size());
        for (std::size_t i = 0; i < counted.size(); ++i) *counters[i].second = *counted[i].second;
        second.curvature->release();
        for (std::uint32_t s = until; s < until + 4; ++s)
            kernel_laws::check_close(second.step_on_ones(s), first.step_on_ones(s), 0);
    }
}

/// A pass for statistics alone leaves gradients as they are.
template <class D, class T>
void statistics_only() {
    std::vector<std::vector<T>> sums;
    for (const bool gradients : {true, false}) {
        small_curved<D, T> one(every_step());
        one.pass_over(0, one.curvature->begin_step(), false, gradients);
        sums.push_back(one.sums());
        const tensor<T> g = one.weights->grads().on_host();
        CHECK(std::any_of(g.data(), g.data() + g.size(), [](T v) { return v != 0; }) == gradients);
    }
    CHECK(sums[0] == sums[1]);
    CHECK(sums[0].size() == 36 + 16 + 16 + 9);
}

/// T: what the device has convolutions for.
template <GridDevice D, class T>
const std::vector<law>& all() {
    static const std::vector<law> laws{{"linear layers, float", linear_layers<D, float>},
                                       {"linear layers, double", linear_layers<D, double>},
                                       {"convolutions", convolutions<D, T>},
                                       {"KL clip, float", kl_clip<D, float>},
                                       {"KL clip, double", kl_clip<D, double>},
                                       {"zeros and refusals", zeros_and_refusals<D, double>},
                                       {"scale and shift, float", scale_and_shift<D, float>},
                                       {"scale and shift, double", scale_and_shift<D, double>},
                                       {"batches that are not finite", spoilt_batches<D, float>},
                                       {"equal sizes", equal_sizes<D, double>},
                                       {"lag", lagged<D, double>},
                                       {"resumed", resumed<D, float>},
                                       {"statistics only", statistics_only<D, double>}};
    return laws;
}

}  // namespace cairn::kfac_laws
