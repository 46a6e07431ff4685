#pragma once
// Laws of reductions of every grid device, besides kernel_laws.hpp: nothing to sum, as many blocks as there are at
// most, squares beyond float, the forms that leave their result on the device, sums down many columns. Compared with
// long double.

#include "device/cuda/law_numbers.hpp"

#include <cairn/optim/norm.hpp>

namespace cairn::sum_laws {

using namespace kernel_laws;

template <class D, class Into>
double left_by(Into into) {
    const auto result = on_device<D>(tensor<double>::filled({1}, -7));
    tensor<double, D> out = result.share();
    into(out.data());
    return on_host(out)[0];
}

struct sum_and_halve {
    CAIRN_HD void operator()(double& first, double& second, float& x, const double& y) const {
        first += static_cast<double>(x);
        second += static_cast<double>(x) * y;
        x *= 0.5f;
    }
};

struct weighted_product {
    CAIRN_HD void operator()(double& sum, double& sizes, double w, const double& x, double& y) const {
        y = w * x;
        sum += y;
        sizes += y < 0 ? -y : y;
    }
};

/// All sums of n numbers, where y has every third element of x.
template <class D, class T>
void check_sums(index_t n) {
    CAPTURE(n);
    const tensor<T> x = spread<T>({n});
    tensor<T> y = x.clone();
    long double s = 0, squares = 0, product = 0, scale = 0;
    double equal = 0, most = 0;
    for (index_t i = 0; i < n; ++i) {
        if (i % 3) y[i] = -y[i] - T(2);
        const long double v = x[i], w = y[i];
        s += v, squares += v * v, product += v * w, scale += std::abs(v) * (1 + std::abs(w));
        equal += i % 3 ? 0 : 1;
        most = std::max(most, static_cast<double>(std::abs(v)));
    }
    const auto d_x = on_device<D>(x), d_y = on_device<D>(y);
    const double bound = 1e-14 * static_cast<double>(scale);  // sums run in double, whatever T is
    const auto near = [&](double got, long double expected) {
        CHECK(std::abs(got - static_cast<double>(expected)) <= bound);
    };
    near(sum(D{}, n, d_x.data()), s);
    near(sum_of_squares(D{}, n, d_x.data()), squares);
    near(dot(D{}, n, d_x.data(), d_y.data()), product);
    near(left_by<D>([&](double* out) { sum_into(D{}, n, d_x.data(), out); }), s);
    near(left_by<D>([&](double* out) { sum_of_squares_into(D{}, n, d_x.data(), out); }), squares);
    CHECK(left_by<D>([&](double* out) { count_equal_into(D{}, n, d_x.data(), d_y.data(), out); }) == equal);
    CHECK(static_cast<double>(max_abs(D{}, n, d_x.data())) == most);
    CHECK(count_nonfinite(D{}, n, d_x.data()) == 0);
}

template <class D, class T>
void sums() {
    for (const index_t n : {0, 1, 33, 2049}) check_sums<D, T>(n);
    const auto large = on_device<D>(tensor<float>::filled({100}, 1e30f));
    CHECK(sum_of_squares(D{}, 100, large.data()) == Approx(1e62));  // float squares would be infinite
    CHECK(left_by<D>([&](double* out) { sum_of_squares_into(D{}, 100, large.data(), out); }) == Approx(1e62));
}

/// 293 blocks, whose results 256 threads add; and all 1024 blocks, whose threads come round again.
template <class D>
void long_sums() {
    for (const index_t n : {600001, 2200001}) {
        const tensor<float> x = spread<float>({n});
        REQUIRE(grid::reduce_blocks_for(n) > grid::reduce_threads);
        long double expected = 0;
        for (const float v : x.span()) expected += v;
        const auto d_x = on_device<D>(x);
        CHECK(std::abs(sum(D{}, n, d_x.data()) - static_cast<double>(expected)) <= 1e-14 * static_cast<double>(n));
    }
    CHECK(grid::reduce_blocks_for(2200001) == grid::reduce_blocks);
}

/// Norms of a model by parameter: the sum of a parameter has the bits that it has by itself, and the norm is that of
/// the sums in their order.
template <class D>
void sums_by_parameter() {
    const std::vector<range> parts{{0, 17}, {32, 0}, {32, 20'000}, {20'048, 1}, {20'064, 16'384}, {36'500, 300}};
    const index_t n = 36'800;
    const tensor<float> x = spread<float>({n});
    const auto d_x = on_device<D>(x);
    const std::vector<double> sums = squares_by_parameter<D>(parts)(d_x.data());
    REQUIRE(sums.size() == parts.size());
    for (std::size_t p = 0; p < parts.size(); ++p) {
        CAPTURE(p);
        long double expected = 0;
        for (index_t i = parts[p].begin; i < parts[p].end(); ++i) expected += static_cast<long double>(x[i]) * x[i];
        CHECK(std::abs(sums[p] - static_cast<double>(expected)) <= 1e-14 * static_cast<double>(expected));
        const range moved{0, parts[p].count};
        CHECK(sums[p] == squares_by_parameter<D>(std::span(&moved, 1))(d_x.data() + parts[p].begin)[0]);
    }
    tensor<double, D> norm({1});
    squares_by_parameter<D>(parts).norm_into(d_x.data(), norm.data());
    CHECK(norm.on_host()[0] == std::sqrt(sum_in_path_order(sums)));
    // More parameters than threads of the block that adds them.
    std::vector<range> many;
    for (index_t i = 0; i < 600; ++i) many.push_back({16 * i, 1 + i % 16});
    squares_by_parameter<D>(many).norm_into(d_x.data(), norm.data());
    CHECK(norm.on_host()[0] == std::sqrt(sum_in_path_order(squares_by_parameter<D>(many)(d_x.data()))));
}

/// Two sums in one pass that changes its elements.
template <class D>
void sums_of_each() {
    for (const index_t n : {0, 1, 1000, 5001}) {
        CAPTURE(n);
        const tensor<float> x = spread<float>({n});
        const tensor<double> y = drawn<double>({n}, 2);
        auto d_x = on_device<D>(x);
        const auto d_y = on_device<D>(y);
        tensor<double, D> sums({2});
        sum_each_into(D{}, n, sum_and_halve{}, sums.data(), d_x.data(), d_y.data());
        const tensor<double> got = sums.on_host();
        long double first = 0, second = 0;
        std::vector<double> halves;
        for (index_t i = 0; i < n; ++i) {
            first += static_cast<long double>(x[i]), second += static_cast<long double>(x[i]) * y[i];
            halves.push_back(static_cast<double>(x[i]) / 2);
        }
        CHECK(std::abs(got[0] - static_cast<double>(first)) <= 1e-14 * static_cast<double>(n));
        CHECK(std::abs(got[1] - static_cast<double>(second)) <= 1e-13 * static_cast<double>(n));
        check_near(d_x, halves, 0);
    }
}

/// Weights of rows and of columns, either or none.
template <class D>
void weighted_sums() {
    for (const auto& [rows, columns] : std::vector<std::pair<index_t, index_t>>{{0, 3}, {1, 1}, {5, 7}, {100, 33}})
        for (const int which : {0, 1, 2, 3}) {
            CAPTURE(rows, columns, which);
            const tensor<double> x = drawn<double>({rows, columns}, 5), of_row = drawn<double>({rows}, 6),
                                 of_column = drawn<double>({columns}, 7);
            std::vector<double> expected;
            long double first = 0, second = 0;
            for (index_t i = 0; i < x.size(); ++i) {
                const double w = (which & 1 ? of_row[i / columns] : 1) * (which & 2 ? of_column[i % columns] : 1);
                expected.push_back(w * x[i]);
                first += expected.back(), second += std::abs(expected.back());
            }
            const auto d_x = on_device<D>(x), d_rows = on_device<D>(of_row), d_columns = on_device<D>(of_column);
            tensor<double, D> y(x.shape()), sums({2});
            sum_each_weighted_into(D{}, rows, columns, which & 1 ? d_rows.data() : nullptr,
                                   which & 2 ? d_columns.data() : nullptr, weighted_product{}, sums.data(), d_x.data(),
                                   y.data());
            check_near(y, expected, 1e-15);
            const tensor<double> got = sums.on_host();
            CHECK(got[0] == Approx(static_cast<double>(first)).epsilon(1e-12).margin(1e-12));
            CHECK(got[1] == Approx(static_cast<double>(second)).epsilon(1e-12));
        }
}

/// Largest and broken numbers at every place of a block.
template <class D>
void places() {
    for (const index_t n : {1, 40, 2100})
        for (const index_t at : {index_t{0}, n / 2, n - 1}) {
            CAPTURE(n, at);
            tensor<double> x = spread<double>({n});
            const auto with = [&](double v) {
                x[at] = v;
                return on_device<D>(x);
            };
            CHECK(max_abs(D{}, n, with(-3).data()) == 3);
            CHECK(max_abs(D{}, n, with(-infinity).data()) == infinity);
            CHECK(count_nonfinite(D{}, n, with(-infinity).data()) == 1);
            CHECK(std::isnan(max_abs(D{}, n, with(-not_a_number).data())));
            CHECK(count_nonfinite(D{}, n, with(not_a_number).data()) == 1);
        }
}

/// How far a sum down a column of x may be off. One by one a thread adds its elements of a part of the rows, then one
/// thread those of its block, so that an element goes through at most `adds` additions in T, each off by half a unit:
/// adds u Σ|x| (Higham 2002, section 4.2). Sums of parts in double and the last rounding are u |Σx| more.
template <class T>
std::vector<double> bounds_of_column_sums(index_t rows, index_t columns, const tensor<T>& x) {
    const grid::column_cut cut = grid::column_cut::of(rows, columns);
    const index_t lanes = cut.threads / cut.across, part = (rows + cut.parts - 1) / cut.parts;
    const double adds = static_cast<double>((part + lanes - 1) / lanes + lanes);
    std::vector<double> bounds(static_cast<std::size_t>(columns), 0.0);
    for (index_t i = 0; i < x.size(); ++i)
        bounds[static_cast<std::size_t>(i % columns)] +=
            (adds + 1) * std::numeric_limits<T>::epsilon() / 2 * std::abs(static_cast<double>(x[i]));
    return bounds;
}

template <class D, class T>
void check_column_sums(const tensor<T, D>& out, const std::vector<long double>& expected,
                       const std::vector<double>& bounds) {
    const tensor<T> got = on_host(out);
    for (std::size_t c = 0; c < expected.size(); ++c) {
        CAPTURE(c, got[static_cast<index_t>(c)], static_cast<double>(expected[c]), bounds[c]);
        REQUIRE(std::abs(static_cast<double>(got[static_cast<index_t>(c)] - expected[c])) <= bounds[c]);
    }
}

template <class D, class T>
void sums_down_columns() {
    for (const auto& [rows, columns] : std::vector<std::pair<index_t, index_t>>{
             {0, 1}, {0, 24}, {1, 3}, {2, 255}, {9, 16}, {100, 64}, {5000, 1}, {100, 1001}, {40, 4096}}) {
        if (sizeof(T) == 8 && rows * columns > 50000) continue;
        CAPTURE(rows, columns);
        const tensor<T> x = spread<T>({rows, columns});
        std::vector<long double> expected(static_cast<std::size_t>(columns), 0.0L), twice(expected);
        for (index_t i = 0; i < x.size(); ++i) expected[static_cast<std::size_t>(i % columns)] += x[i];
        for (std::size_t c = 0; c < expected.size(); ++c) twice[c] = 2 * expected[c];
        const auto d_x = on_device<D>(x);
        auto out = on_device<D>(tensor<T>::filled({columns}, T(77)));
        std::vector<double> bounds = bounds_of_column_sums(rows, columns, x);
        column_sums(D{}, rows, columns, d_x.data(), out.data(), false);
        check_column_sums(out, expected, bounds);
        for (double& bound : bounds) bound *= 2;
        column_sums(D{}, rows, columns, d_x.data(), out.data(), true);
        check_column_sums(out, twice, bounds);
    }
}

/// 5,000 rows of 1,001 and of 4,096 columns: for a processor with thousands of threads. Down 4,096 columns spread()
/// steps evenly, so that roundings have one sign for long: they add up to tens of times what independent ones would.
template <class D>
void sums_down_many_long_columns() {
    constexpr index_t rows = 5000;
    for (const index_t columns : {1001, 4096}) {
        const tensor<float> x = spread<float>({rows, columns});
        std::vector<long double> expected(static_cast<std::size_t>(columns), 0.0L);
        for (index_t r = 0; r < rows; ++r)
            for (index_t c = 0; c < columns; ++c) expected[static_cast<std::size_t>(c)] += x[r * columns + c];
        const auto d_x = on_device<D>(x);
        tensor<float, D> out({columns});
        column_sums(D{}, rows, columns, d_x.data(), out.data(), false);
        check_column_sums(out, expected, bounds_of_column_sums(rows, columns, x));
    }
}

template <GridDevice D>
const std::vector<law>& all() {
    static const std::vector<law> laws{{"sums, float", sums<D, float>},
                                       {"sums, double", sums<D, double>},
                                       {"sums and changes in one pass", sums_of_each<D>},
                                       {"weighted sums and changes in one pass", weighted_sums<D>},
                                       {"sums by parameter", sums_by_parameter<D>},
                                       {"largest and broken numbers anywhere", places<D>},
                                       {"sums down columns, float", sums_down_columns<D, float>},
                                       {"sums down columns, double", sums_down_columns<D, double>}};
    return laws;
}

/// Of as much as takes an emulated device seconds.
template <GridDevice D>
const std::vector<law>& of_long_arrays() {
    static const std::vector<law> laws{{"long sums", long_sums<D>},
                                       {"sums down many long columns", sums_down_many_long_columns<D>}};
    return laws;
}

}  // namespace cairn::sum_laws
