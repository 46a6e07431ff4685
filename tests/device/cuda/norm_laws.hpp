#pragma once
// Laws of batch and layer normalisation of every grid device, besides kernel_laws.hpp: columns that are summed in
// several parts, rows of every width of block, results over their operands, numbers far from zero and numbers that are
// none. Compared with plain loops.

#include "device/cuda/law_numbers.hpp"
#include "oracle/norm.hpp"

#include <cairn/device/cpu/per_example_gradients.hpp>
#include <cairn/device/grid/per_example_gradients.hpp>

namespace cairn::norm_laws {

using namespace kernel_laws;

/// Growth of a rounding error of x in normalisation: largest (|mean| + deviation) / sqrt(var + eps).
inline double condition(const std::vector<double>& mean, const std::vector<double>& var) {
    double worst = 1;
    for (std::size_t c = 0; c < mean.size(); ++c)
        worst = std::max(worst, (std::abs(mean[c]) + std::sqrt(var[c])) / std::sqrt(var[c] + 1e-5));
    return worst;
}

/// Growth of rounding errors of the variance where it is a difference of moments around row 0 of x, which may lie
/// several deviations from the mean: largest E[(x - x₀)²] / var = 1 + (mean - x₀)² / var.
inline double condition_of_moments(const std::vector<double>& x, const std::vector<double>& mean,
                                   const std::vector<double>& var) {
    double worst = 1;
    for (std::size_t c = 0; c < mean.size(); ++c)
        worst = std::max(worst, 1 + (mean[c] - x[c]) * (mean[c] - x[c]) / var[c]);
    return worst;
}

/// All kernels of one batch norm on D, as the layer calls them, on arrays `off` elements behind a packet.
template <class D, class T>
struct batch_norm_run {
    index_t rows, channels, off;
    tensor<T, D> mean, invstd, gamma, beta, dgamma, dbeta;
    tensor<double, D> var;
    tensor<std::uint8_t, D> bits;
    placed<T, D> y, dx, dskip;

    batch_norm_run(const tensor<T>& x, const tensor<T>& skip, const tensor<T>& g, const tensor<T>& b, activation act,
                   T slope, const tensor<T>& dy, index_t behind = 0)
        : rows(x.extent(0)),
          channels(x.extent(1)),
          off(behind),
          mean({channels}),
          invstd({channels}),
          gamma(on_device<D>(g)),
          beta(on_device<D>(b)),
          dgamma({channels}),
          dbeta({channels}),
          var({channels}),
          bits({simd::mask_bytes<T>(x.size())}),
          y(x.shape(), off),
          dx(x.shape(), off),
          dskip(x.shape(), off) {
        const placed<T, D> d_x(x, off), d_skip(skip, off), d_dy(dy, off);
        std::uint8_t* const kept = act == activation::none ? nullptr : bits.data();
        batch_statistics(D{}, rows, channels, d_x.data(), mean.data(), var.data());
        const tensor<double> variance = var.on_host();
        tensor<T> inverse({channels});
        for (index_t c = 0; c < channels; ++c) inverse[c] = static_cast<T>(1 / std::sqrt(variance[c] + 1e-5));
        invstd = on_device<D>(inverse);
        batch_norm_apply(D{}, rows, channels, d_x.data(), d_skip.data(), mean.data(), invstd.data(), gamma.data(),
                         beta.data(), act, slope, y.data(), kept);
        batch_norm_sums(D{}, rows, channels, d_dy.data(), kept, act, slope, d_x.data(), mean.data(), invstd.data(),
                        dgamma.data(), dbeta.data());
        batch_norm_gradient(D{}, rows, channels, d_dy.data(), kept, act, slope, d_x.data(), mean.data(), invstd.data(),
                            gamma.data(), dgamma.data(), dbeta.data(), dx.data(), dskip.data());
    }
};

/// Shapes whose columns are summed in several parts, in blocks of every width.
template <class T>
std::vector<shape> shapes_in_parts() {
    if (sizeof(T) == 8) return {{5000, 1}, {2500, 24}};  // the same blocks: a look at the formulas is enough
    return {{5000, 1}, {5000, 3}, {2500, 24}, {300, 256}, {300, 257}};
}

template <class D, class T>
void batch_norm_in_parts() {
    for (const shape& s : shapes_in_parts<T>())
        for (const index_t off : {0, 1}) {
            CAPTURE(s[0], s[1], off);
            const index_t per_thread = off == 0 && s[1] % grid::packet_lanes == 0 ? grid::packet_lanes : 1;
            REQUIRE(grid::column_cut::of(s[0], s[1] / per_thread).parts > 1);
            const tensor<T> x = drawn<T>(s, 1, 2, 3), skip = drawn<T>(s, 2), dy = drawn<T>(s, 3),
                            gamma = drawn<T>({s[1]}, 4, 0.3, 1), beta = drawn<T>({s[1]}, 5);
            // In float a v near 0 may round to its other side.
            const activation act = sizeof(T) == 8 ? activation::leaky_relu : activation::none;
            const batch_norm_run<D, T> k(x, skip, gamma, beta, act, T(0.25), dy, off);
            const auto o = oracle::batch_norm(static_cast<std::size_t>(s[0]), static_cast<std::size_t>(s[1]),
                                              doubles(x), doubles(skip), doubles(gamma), doubles(beta), 1e-5,
                                              sizeof(T) == 8 ? 0.25 : 1, doubles(dy));
            const double bound = eps<T>(30) * condition(o.mean, o.var),
                         sums = bound * (1 + std::sqrt(static_cast<double>(s[0])));
            check_near(k.mean, o.mean, bound);
            check_near(k.var, o.var, bound * condition_of_moments(doubles(x), o.mean, o.var));
            check_near(k.y.on_host(), o.y, 4 * bound);  // and the mean's, which is 3
            check_near(k.dgamma, o.dgamma, sums);
            check_near(k.dbeta, o.dbeta, sums);
            check_near(k.dx.on_host(), o.dx, 10 * bound);
            check_near(k.dskip.on_host(), o.dskip, bound);
        }
}

/// More groups of eight channels than a block has threads, and as many channels that are no multiple of eight.
template <class D, class T>
void batch_norm_of_many_channels() {
    for (const index_t channels : {2056, 4100}) {
        const shape s{3, channels};
        CAPTURE(channels);
        const tensor<T> x = drawn<T>(s, 6), skip = drawn<T>(s, 7), dy = drawn<T>(s, 8),
                        gamma = drawn<T>({channels}, 9, 0.3, 1), beta = drawn<T>({channels}, 10);
        const batch_norm_run<D, T> k(x, skip, gamma, beta, activation::none, T(0), dy);
        const auto o = oracle::batch_norm(3, static_cast<std::size_t>(channels), doubles(x), doubles(skip),
                                          doubles(gamma), doubles(beta), 1e-5, 1, doubles(dy));
        const double bound = eps<T>(30) * condition(o.mean, o.var);
        check_near(k.y.on_host(), o.y, bound);
        check_near(k.dgamma, o.dgamma, 3 * bound);
        check_near(k.dbeta, o.dbeta, 3 * bound);
        check_near(k.dx.on_host(), o.dx, 100 * bound);  // dx is a difference of numbers that are larger
    }
}

/// Mean 1000, deviation 1: E[x²] - mean² in float would be off by 6 % and more. Of equal numbers the variance is 0.
template <class D, class T>
void statistics_far_from_zero() {
    constexpr index_t rows = 20000, channels = 3;
    const tensor<T> x = drawn<T>({rows, channels}, 11, 1, 1000);
    tensor<T, D> mean({channels}), var({channels});
    const auto d_x = on_device<D>(x);
    batch_statistics(D{}, rows, channels, d_x.data(), mean.data(), var.data());
    const auto all = doubles(x);
    const tensor<T> m = mean.on_host(), v = var.on_host();
    for (index_t c = 0; c < channels; ++c) {
        const auto expected = oracle::moments_of(all, static_cast<std::size_t>(c), channels, rows);
        CHECK(std::abs(static_cast<double>(m[c]) - expected.mean) <= 1000 * eps<T>(8));
        CHECK(std::abs(static_cast<double>(v[c]) - expected.var) <= expected.var * eps<T>(500));
    }
    for (const index_t columns : {1, 8}) {
        const auto constant = on_device<D>(tensor<T>::filled({2000, columns}, T(1234.5)));
        tensor<T, D> same({columns}), none({columns});
        batch_statistics(D{}, 2000, columns, constant.data(), same.data(), none.data());
        check_close(same, tensor<T>::filled({columns}, T(1234.5)), 0);
        check_close(none, tensor<T>::zeros({columns}), 0);
    }
}

/// A NaN reaches its channel, through the activation, and no other.
template <class D, class T>
void batch_norm_passes_nan_on() {
    constexpr index_t rows = 40;
    for (const index_t channels : {5, 8}) {
        tensor<T> x = drawn<T>({rows, channels}, 12);
        x[channels + 2] = std::numeric_limits<T>::quiet_NaN();
        const batch_norm_run<D, T> k(x, tensor<T>::zeros(x.shape()), tensor<T>::filled({channels}, T(1)),
                                     tensor<T>::zeros({channels}), activation::relu, T(0),
                                     tensor<T>::filled(x.shape(), T(1)));
        const tensor<T> y = k.y.on_host();
        for (index_t i = 0; i < y.size(); ++i) CHECK(std::isnan(y[i]) == (i % channels == 2));
    }
}

/// Numbers whose squares overflow a float: y and dx · scale are those of x / scale, and no eps.
template <class D>
void norms_of_huge_numbers() {
    for (const double scale : {1e19, 1e30})
        for (const shape& s : {shape{40, 5}, shape{300, 24}}) {
            CAPTURE(scale, s[0], s[1]);
            const auto rows = static_cast<std::size_t>(s[0]), width = static_cast<std::size_t>(s[1]);
            const tensor<float> x = drawn<float>(s, 40, scale, scale / 2), none = tensor<float>::zeros(s),
                                dy = drawn<float>(s, 41), gamma = drawn<float>({s[1]}, 42, 0.3, 1),
                                beta = drawn<float>({s[1]}, 43);
            const auto times = [](const tensor<float>& t, double by) {
                auto all = doubles(t);
                for (double& v : all) v *= by;
                return all;
            };
            const auto near = [&](const tensor<float>& got, double by, const std::vector<double>& expected) {
                const auto values = times(got, by);
                for (std::size_t i = 0; i < values.size(); ++i) CHECK(values[i] == Approx(expected[i]).margin(1e-4));
            };
            const batch_norm_run<D, float> k(x, none, gamma, beta, activation::none, 0, dy);
            const auto o = oracle::batch_norm(rows, width, times(x, 1 / scale), doubles(none), doubles(gamma),
                                              doubles(beta), 0, 1, doubles(dy));
            near(k.y.on_host(), 1, o.y);
            near(k.dx.on_host(), scale, o.dx);
            near(k.dgamma.on_host(), 1, o.dgamma);
            const auto l =
                oracle::layer_norm(rows, width, times(x, 1 / scale), doubles(gamma), doubles(beta), 0, doubles(dy));
            tensor<float, D> y = on_device<D>(x), dx = on_device<D>(dy), mean({s[0]}), invstd({s[0]}), dgamma({s[1]}),
                             dbeta({s[1]});
            const tensor<float, D> d_x = on_device<D>(x);
            layer_norm_forward(D{}, s[0], s[1], y.data(), k.gamma.data(), k.beta.data(), 1e-5f, y.data(), mean.data(),
                               invstd.data());
            layer_norm_backward(D{}, s[0], s[1], dx.data(), d_x.data(), mean.data(), invstd.data(), k.gamma.data(),
                                dx.data(), dgamma.data(), dbeta.data());
            near(y.on_host(), 1, l.y);
            near(dx.on_host(), scale, l.dx);
            near(dgamma.on_host(), 1, l.dgamma);
        }
}

/// Elements that relu cuts off take no part in the gradients, whatever comes back.
template <class D>
void batch_norm_of_a_cut_nan() {
    for (const index_t channels : {5, 8}) {
        const shape s{40, channels};
        const tensor<float> x = drawn<float>(s, 30), zero = tensor<float>::zeros(s),
                            one = tensor<float>::filled({channels}, 1), none = tensor<float>::zeros({channels});
        tensor<float> dy = drawn<float>(s, 31);
        const batch_norm_run<D, float> plain(x, zero, one, none, activation::relu, 0, dy);
        const tensor<float> y = plain.y.on_host();
        index_t cut = 0;
        while (y[cut] > 0) ++cut;
        CHECK(!std::signbit(y[cut]));
        dy[cut] = std::numeric_limits<float>::quiet_NaN();
        const batch_norm_run<D, float> k(x, zero, one, none, activation::relu, 0, dy);
        CHECK(same_bits(k.dx.on_host(), plain.dx.on_host()));
        CHECK(same_bits(k.dskip.on_host(), plain.dskip.on_host()));
        CHECK(same_bits(k.dgamma, plain.dgamma));
    }
}

template <class D, class T>
void batch_norm_over_its_operands() {
    constexpr index_t rows = 333;
    for (const index_t channels : {20, 24}) {
        const shape s{rows, channels};
        const tensor<T> x = drawn<T>(s, 13), skip = drawn<T>(s, 14), dy = drawn<T>(s, 15),
                        gamma = drawn<T>({channels}, 16, 0.3, 1), beta = drawn<T>({channels}, 17);
        const batch_norm_run<D, T> k(x, skip, gamma, beta, activation::relu, T(0), dy);
        tensor<std::uint8_t, D> bits({simd::mask_bytes<T>(x.size())});
        const auto apply = [&](const T* from, const T* added, T* to) {
            batch_norm_apply(D{}, rows, channels, from, added, k.mean.data(), k.invstd.data(), k.gamma.data(),
                             k.beta.data(), activation::relu, T(0), to, bits.data());
        };
        const auto d_x = on_device<D>(x), d_skip = on_device<D>(skip), d_dy = on_device<D>(dy);
        auto over_x = d_x.clone(), over_skip = d_skip.clone();
        apply(over_x.data(), d_skip.data(), over_x.data());
        apply(d_x.data(), over_skip.data(), over_skip.data());
        CHECK(same_bits(over_x.on_host(), k.y.on_host()));
        CHECK(same_bits(over_skip.on_host(), k.y.on_host()));
        const auto gradient = [&](const T* g, const T* from, T* dx, T* dskip) {
            batch_norm_gradient(D{}, rows, channels, g, bits.data(), activation::relu, T(0), from, k.mean.data(),
                                k.invstd.data(), k.gamma.data(), k.dgamma.data(), k.dbeta.data(), dx, dskip);
        };
        auto over_dy = d_dy.clone();
        gradient(over_dy.data(), d_x.data(), over_dy.data(), nullptr);
        CHECK(same_bits(over_dy.on_host(), k.dx.on_host()));
        auto skip_over_dy = d_dy.clone(), dx_over_x = d_x.clone();
        gradient(skip_over_dy.data(), dx_over_x.data(), dx_over_x.data(), skip_over_dy.data());
        CHECK(same_bits(dx_over_x.on_host(), k.dx.on_host()));
        CHECK(same_bits(skip_over_dy.on_host(), k.dskip.on_host()));
    }
}

/// dgamma and dbeta of layer norm down columns in several parts; nobody wants dx.
template <class D, class T>
void layer_norm_in_parts() {
    for (const shape& s : shapes_in_parts<T>())
        for (const index_t off : {0, 1}) {
            if (s[1] == 1) continue;  // one feature is its mean
            CAPTURE(s[0], s[1], off);
            const tensor<T> x = drawn<T>(s, 18), dy = drawn<T>(s, 19);
            const tensor<T> one = tensor<T>::filled({s[1]}, T(1));
            const auto all = doubles(x);
            tensor<T> mean({s[0]}), invstd({s[0]});
            double worst = 1;
            for (index_t r = 0; r < s[0]; ++r) {
                const auto m =
                    oracle::moments_of(all, static_cast<std::size_t>(r * s[1]), 1, static_cast<std::size_t>(s[1]));
                mean[r] = static_cast<T>(m.mean);
                invstd[r] = static_cast<T>(1 / std::sqrt(m.var + 1e-5));
                worst = std::max(worst, static_cast<double>(invstd[r]));
            }
            const auto o =
                oracle::layer_norm(static_cast<std::size_t>(s[0]), static_cast<std::size_t>(s[1]), all, doubles(one),
                                   std::vector<double>(static_cast<std::size_t>(s[1])), 1e-5, doubles(dy));
            const placed<T, D> d_x(x, off), d_dy(dy, off);
            const auto d_mean = on_device<D>(mean), d_invstd = on_device<D>(invstd), d_one = on_device<D>(one);
            tensor<T, D> dgamma({s[1]}), dbeta({s[1]});
            layer_norm_backward(D{}, s[0], s[1], d_dy.data(), d_x.data(), d_mean.data(), d_invstd.data(), d_one.data(),
                                static_cast<T*>(nullptr), dgamma.data(), dbeta.data());
            const double bound = eps<T>(30) * worst * (1 + std::sqrt(static_cast<double>(s[0])));
            check_near(dgamma, o.dgamma, bound);
            check_near(dbeta, o.dbeta, bound);
        }
}

/// Rows of a warp, of a block, and of more sums than its shared memory holds, far from zero; y over x; without
/// statistics and dx.
template <class D, class T>
void layer_norm_of_every_width() {
    for (const shape& s : {shape{600, 17}, shape{6, 64}, shape{5, 65}, shape{4, 768}, shape{3, 1001}, shape{20, 1500},
                           shape{20, 13000}}) {
        if (sizeof(T) == 8 && (s[0] > 100 || s[1] < 1000)) continue;
        CAPTURE(s[0], s[1]);
        const index_t rows = s[0], features = s[1];
        const tensor<T> x = drawn<T>(s, 20, 2, 5), dy = drawn<T>(s, 21), gamma = drawn<T>({features}, 22, 0.3, 1),
                        beta = drawn<T>({features}, 23);
        const auto o =
            oracle::layer_norm(static_cast<std::size_t>(rows), static_cast<std::size_t>(features), doubles(x),
                               doubles(gamma), doubles(beta), static_cast<double>(static_cast<T>(1e-5)), doubles(dy));
        const auto all = doubles(x);
        double worst = 1;  // what a rounding error of x grows by when it is normalised
        for (index_t r = 0; r < rows; ++r) {
            const auto m =
                oracle::moments_of(all, static_cast<std::size_t>(r * features), 1, static_cast<std::size_t>(features));
            worst = std::max(worst, (std::abs(m.mean) + std::sqrt(m.var)) / std::sqrt(m.var + 1e-5));
        }
        const double bound = eps<T>(30) * worst, sums = bound * (1 + std::sqrt(static_cast<double>(rows)));
        const auto d_x = on_device<D>(x), d_dy = on_device<D>(dy), d_gamma = on_device<D>(gamma),
                   d_beta = on_device<D>(beta);
        tensor<T, D> y(s), mean({rows}), invstd({rows}), dx(s), dgamma({features}), dbeta({features});
        layer_norm_forward(D{}, rows, features, d_x.data(), d_gamma.data(), d_beta.data(), T(1e-5), y.data(),
                           mean.data(), invstd.data());
        layer_norm_backward(D{}, rows, features, d_dy.data(), d_x.data(), mean.data(), invstd.data(), d_gamma.data(),
                            dx.data(), dgamma.data(), dbeta.data());
        check_near(y, o.y, bound);
        check_near(dx, o.dx, 20 * bound);
        check_near(dgamma, o.dgamma, sums);
        check_near(dbeta, o.dbeta, sums);
        if (rows > 100) continue;
        auto in_place = d_x.clone(), dx_over_dy = d_dy.clone();
        layer_norm_forward(D{}, rows, features, in_place.data(), d_gamma.data(), d_beta.data(), T(1e-5),
                           in_place.data(), nullptr, nullptr);
        CHECK(same_bits(in_place, y));
        tensor<T, D> dgamma_again({features}), dbeta_again({features});
        layer_norm_backward(D{}, rows, features, dx_over_dy.data(), d_x.data(), mean.data(), invstd.data(),
                            d_gamma.data(), dx_over_dy.data(), dgamma_again.data(), dbeta_again.data());
        CHECK(same_bits(dx_over_dy, dx));
        CHECK(same_bits(dgamma_again, dgamma));
        layer_norm_backward(D{}, rows, features, d_dy.data(), d_x.data(), mean.data(), invstd.data(), d_gamma.data(),
                            static_cast<T*>(nullptr), dgamma_again.data(), dbeta_again.data());
        CHECK(same_bits(dgamma_again, dgamma));
        CHECK(same_bits(dbeta_again, dbeta));
        // With a gradient that comes another way; coefficients and data that lie elsewhere.
        const tensor<T> more = drawn<T>(s, 24);
        auto summed = o.dx;
        for (std::size_t i = 0; i < summed.size(); ++i) summed[i] += static_cast<double>(more[static_cast<index_t>(i)]);
        for (const index_t off : {0, 1}) {
            const placed<T, D> p_dy(dy, off), p_x(x, off), p_gamma(gamma, 1), p_more(more, off);
            placed<T, D> p_dx(s, off);
            layer_norm_backward(D{}, rows, features, p_dy.data(), p_x.data(), mean.data(), invstd.data(),
                                p_gamma.data(), p_dx.data(), dgamma_again.data(), dbeta_again.data(), p_more.data());
            check_near(p_dx.on_host(), summed, 20 * bound);
        }
    }
}

/// Numbers a channel may lie anywhere, as parameters in an arena do: the same bits.
template <class D, class T>
void batch_norm_of_coefficients_anywhere() {
    for (const index_t channels : {8, 24, 64, 520}) {
        CAPTURE(channels);
        constexpr index_t rows = 50;
        const auto x = on_device<D>(drawn<T>({rows, channels}, 321)),
                   dy = on_device<D>(drawn<T>({rows, channels}, 322)),
                   numbers = on_device<D>(drawn<T>({6, channels}, 323));
        const auto run = [&](index_t off) {
            tensor<T, D> there({6 * channels + off}), y({2, rows, channels}), sums({2, channels});
            D::copy_within(there.data() + off, numbers.data(), numbers.bytes());
            const T* const at = there.data() + off;
            batch_norm_apply(D{}, rows, channels, x.data(), static_cast<const T*>(nullptr), at, at + channels,
                             at + 2 * channels, at + 3 * channels, activation::none, T{}, y.data(), nullptr);
            batch_norm_gradient(D{}, rows, channels, dy.data(), nullptr, activation::none, T{}, x.data(), at,
                                at + channels, at + 2 * channels, at + 4 * channels, at + 5 * channels,
                                y.data() + rows * channels, static_cast<T*>(nullptr));
            batch_norm_sums(D{}, rows, channels, dy.data(), nullptr, activation::none, T{}, x.data(), at, at + channels,
                            sums.data(), sums.data() + channels);
            return std::pair{y.on_host(), sums.on_host()};
        };
        const auto straight = run(0), off = run(1);
        CHECK(same_bits(straight.first, off.first));
        CHECK(same_bits(straight.second, off.second));
    }
}

/// What x̂ is multiplied with in the gradient of scale: of channels dy behind the activation, of rows dy / deviation.
template <class D, class T>
void output_gradients_of_norms() {
    const tensor<T> dy = drawn<T>({37, 21}, 1), invstd = spread<T>({37});
    const auto d_dy = on_device<D>(dy), d_invstd = on_device<D>(invstd);
    tensor<std::uint8_t> bits({simd::mask_bytes<T>(dy.size())});
    for (index_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<std::uint8_t>(37 * i);
    const auto d_bits = on_device<D>(bits);
    for (const bool of_rows : {true, false})
        for (const bool active : {false, true}) {
            if (of_rows && active) continue;  // no layer has both
            CAPTURE(of_rows, active);
            std::vector<double> expected;
            for (index_t i = 0; i < dy.size(); ++i) {
                const bool on = !active || (bits[i / 8] >> (i % 8) & 1) != 0;
                expected.push_back(static_cast<double>(dy[i]) * (on ? 1 : 0.25) *
                                   (of_rows ? static_cast<double>(invstd[i / 21]) : 1));
            }
            tensor<T, D> out(dy.shape());
            norm_output_gradient(D{}, 37, 21, of_rows ? normalised_by::row : normalised_by::channel, d_dy.data(),
                                 active ? d_bits.data() : nullptr, T(0.25), d_invstd.data(), out.data());
            check_near(out, expected, sizeof(T) == 8 ? 1e-15 : 1e-6);
        }
}

template <GridDevice D>
const std::vector<law>& all() {
    static const std::vector<law> laws{
        {"batch norm in parts, float", batch_norm_in_parts<D, float>},
        {"batch norm in parts, double", batch_norm_in_parts<D, double>},
        {"batch norm of more channels than threads", batch_norm_of_many_channels<D, float>},
        {"statistics far from zero, float", statistics_far_from_zero<D, float>},
        {"statistics far from zero, double", statistics_far_from_zero<D, double>},
        {"batch norm of a NaN", batch_norm_passes_nan_on<D, float>},
        {"norms of huge numbers", norms_of_huge_numbers<D>},
        {"batch norm of a NaN that relu cuts off", batch_norm_of_a_cut_nan<D>},
        {"batch norm of coefficients anywhere, float", batch_norm_of_coefficients_anywhere<D, float>},
        {"batch norm of coefficients anywhere, double", batch_norm_of_coefficients_anywhere<D, double>},
        {"output gradients of norms, float", output_gradients_of_norms<D, float>},
        {"output gradients of norms, double", output_gradients_of_norms<D, double>},
        {"batch norm over its operands", batch_norm_over_its_operands<D, float>},
        {"layer norm in parts, float", layer_norm_in_parts<D, float>},
        {"layer norm in parts, double", layer_norm_in_parts<D, double>},
        {"layer norm of every width of block, float", layer_norm_of_every_width<D, float>},
        {"layer norm of every width of block, double", layer_norm_of_every_width<D, double>}};
    return laws;
}

}  // namespace cairn::norm_laws
