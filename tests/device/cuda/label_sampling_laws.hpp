#pragma once
// Laws of draws from a model's outputs and sums of products on every device: plain loops, and frequencies.

#include "device/cuda/kernel_laws.hpp"

#include <cairn/core/random.hpp>
#include <cairn/device/cpu/label_sampling.hpp>
#include <cairn/device/grid/label_sampling.hpp>
#include <cairn/device/grid/reduce.hpp>

#include <cmath>
#include <cstdint>
#include <vector>

namespace cairn::label_sampling_laws {

using kernel_laws::check_close;
using kernel_laws::drawn;
using kernel_laws::on_device;

/// The class whose part of [0, 1) the uniform number lies in.
template <class D>
void classes() {
    for (const auto& [rows, count] : {std::pair<index_t, index_t>{1, 1}, {7, 10}, {300, 3}, {5, 1000}}) {
        CAPTURE(rows, count);
        const auto y = drawn<float>({rows, count}, 600);
        const random_stream random{4, 2, 9};
        const auto there = on_device<D>(y);
        const index_t first = rows - 1;  // of the whole batch
        tensor<std::int32_t, D> labels({rows});
        sample_classes(D{}, rows, count, there.data(), random, labels.data(), first);
        const auto got = labels.on_host();
        for (index_t r = 0; r < rows; ++r) {
            double total = 0, below = 0;
            for (index_t k = 0; k < count; ++k) total += std::exp(static_cast<double>(y[r * count + k]));
            const double u = random.uniform(static_cast<std::uint64_t>(first + r));
            index_t k = 0;
            while (k + 1 < count && u >= (below += std::exp(static_cast<double>(y[r * count + k])) / total)) ++k;
            CHECK(got[r] == k);
        }
    }
    // A third, a half and a sixth; and what cannot be.
    constexpr index_t many = 60000;
    tensor<float> y({many, 4});
    for (index_t r = 0; r < many; ++r)
        for (index_t k = 0; k < 4; ++k)
            y[r * 4 + k] = k == 3 ? -1e30f : 50 + std::log(k == 0 ? 2.0f : k == 1 ? 3.0f : 1.0f);
    const auto there = on_device<D>(y);
    tensor<std::int32_t, D> labels({many});
    sample_classes(D{}, many, 4, there.data(), {1, 2, 3}, labels.data());
    const auto got = labels.on_host();
    std::vector<double> share(4);
    for (index_t r = 0; r < many; ++r) share[static_cast<std::size_t>(got[r])] += 1.0 / many;
    CHECK(std::abs(share[0] - 1.0 / 3) < 0.01);  // five standard deviations
    CHECK(std::abs(share[1] - 1.0 / 2) < 0.01);
    CHECK(std::abs(share[2] - 1.0 / 6) < 0.01);
    CHECK(share[3] == 0);
}

template <class D>
void normals_and_pixels() {
    for (const index_t n : {1, 255, 5000}) {
        CAPTURE(n);
        const random_stream random{6, 1, 2};
        const auto y = drawn<float>({n}, 601);
        tensor<float> normals({n}), pixels({n});
        for (index_t i = 0; i < n; ++i) {
            const auto at = static_cast<std::uint64_t>(17 + i);
            normals[i] = static_cast<float>(0.25 * random.normal(at));
            pixels[i] = random.uniform(at) * (1 + std::exp(-static_cast<double>(y[i]))) < 1 ? 1.0f : 0.0f;
        }
        tensor<float, D> got({n});
        sample_normals(D{}, n, 0.25f, random, got.data(), 17);
        check_close(got.on_host(), normals, 1e-6);
        const auto there = on_device<D>(y);
        sample_pixels(D{}, n, there.data(), random, got.data(), 17);
        check_close(got.on_host(), pixels, 0);
    }
}

template <class D>
void products() {
    for (const index_t n : {1, 300, 5000}) {
        CAPTURE(n);
        const auto a = drawn<float>({n}, 602), b = drawn<float>({n}, 603), c = drawn<float>({n}, 604),
                   d = drawn<float>({n}, 605);
        double expected[4] = {};
        for (index_t i = 0; i < n; ++i) {
            const double w = a[i], x = b[i], y = c[i], z = d[i];
            expected[0] += w * x, expected[1] += y * y, expected[2] += z * w, expected[3] += y * z;
        }
        const auto d_a = on_device<D>(a), d_b = on_device<D>(b), d_c = on_device<D>(c), d_d = on_device<D>(d);
        tensor<double, D> sums({4});
        pair_products_into(D{}, n, d_a.data(), d_b.data(), d_c.data(), d_d.data(), {{0, 1}, {2, 2}, {3, 0}, {2, 3}},
                           sums.data());
        const tensor<double> got = sums.on_host();
        for (int k = 0; k < 4; ++k) CHECK(got[k] == Approx(expected[k]).epsilon(1e-12).margin(1e-10));
    }
}

template <GridDevice D>
const std::vector<law>& all() {
    static const std::vector<law> laws{
        {"classes", classes<D>}, {"normals and pixels", normals_and_pixels<D>}, {"sums of products", products<D>}};
    return laws;
}

}  // namespace cairn::label_sampling_laws
