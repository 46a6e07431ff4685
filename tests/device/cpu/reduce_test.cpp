#include "catch.hpp"
#include "device/cuda/sum_laws.hpp"

#include <cairn/device/cpu/reduce.hpp>

#include "device/cpu/kernel_numbers.hpp"
#include "sanitized.hpp"

namespace cairn {

using namespace kernel_tests;

namespace {

const std::vector<index_t> sizes{0, 1, 5, 16, 31, 32, 33, 1000, 65536, 65537, 200003};

}  // namespace

TEMPLATE_TEST_CASE("reduce: sums against long double", "[reduce]", float, double) {
    using T = TestType;
    for (const index_t n : sizes) {
        CAPTURE(n);
        const auto x = draw<T>(n, 1, 1, 0.5), y = draw<T>(n, 2);
        long double s = 0, q = 0, d = 0, scale = 0;
        for (std::size_t i = 0; i < x.size(); ++i) {
            s += x[i];
            q += static_cast<long double>(x[i]) * x[i];
            d += static_cast<long double>(x[i]) * y[i];
            scale += std::abs(static_cast<long double>(x[i])) * (1 + std::abs(static_cast<long double>(x[i]) + y[i]));
        }
        const double bound = 1e-14 * static_cast<double>(scale);  // double sums, whatever T is
        CHECK(std::abs(sum(cpu{}, n, x.data()) - static_cast<double>(s)) <= bound);
        CHECK(std::abs(sum_of_squares(cpu{}, n, x.data()) - static_cast<double>(q)) <= bound);
        CHECK(std::abs(dot(cpu{}, n, x.data(), y.data()) - static_cast<double>(d)) <= bound);
    }
    const std::vector<float> large(100, 1e30f);
    CHECK(sum_of_squares(cpu{}, 100, large.data()) == Approx(1e62));  // float squares would be infinite
}

TEMPLATE_TEST_CASE("reduce: max_abs and count_nonfinite", "[reduce]", float, double) {
    using T = TestType;
    constexpr T infinity = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
    for (const index_t n : sizes) {
        CAPTURE(n);
        auto x = draw<T>(n, 3);
        T expected = 0;
        for (const T v : x) expected = std::max(expected, std::abs(v));
        CHECK(max_abs(cpu{}, n, x.data()) == expected);
        CHECK(count_nonfinite(cpu{}, n, x.data()) == 0);
        if (n < 3) continue;
        x[1] = -infinity;
        CHECK(max_abs(cpu{}, n, x.data()) == infinity);
        CHECK(count_nonfinite(cpu{}, n, x.data()) == 1);
        x[std::size_t(n) - 1] = -nan;
        CHECK(std::isnan(max_abs(cpu{}, n, x.data())));
        CHECK(count_nonfinite(cpu{}, n, x.data()) == 2);
    }
}

TEMPLATE_TEST_CASE("reduce: column sums of odd shapes, set and accumulated", "[reduce]", float, double) {
    using T = TestType;
    for (const index_t columns : {1, 3, 16, 24, 64, 255, 1001, 4096})
        for (const index_t rows : {0, 1, 2, 8, 9, 100, 5000}) {
            CAPTURE(rows, columns);
            if (cairn::test::sanitized && rows * columns > 1'500'000) continue;
            const auto x = draw<T>(rows * columns, 4, 1, 0.25);
            std::vector<long double> expected(std::size_t(columns), 0.0L), twice(expected);
            for (std::size_t i = 0; i < x.size(); ++i) expected[i % std::size_t(columns)] += x[i];
            std::vector<T> out(std::size_t(columns), T(77));
            column_sums(cpu{}, rows, columns, x.data(), out.data(), false);
            const double bound = eps<T>(40) * (1 + std::sqrt(double(rows)));
            CHECK(distance(out, expected) <= bound);
            column_sums(cpu{}, rows, columns, x.data(), out.data(), true);
            for (std::size_t c = 0; c < expected.size(); ++c) twice[c] = 2 * expected[c];
            CHECK(distance(out, twice) <= bound);
        }
}

TEST_CASE("reduce: the same bits on any number of threads", "[reduce]") {
    const index_t n = 700001;
    const auto x = draw<float>(n, 6), y = draw<float>(n, 7);
    std::vector<double> first;
    std::vector<float> first_columns;
    on_several_threads([&](int threads) {
        const std::vector<double> all{sum(cpu{}, n, x.data()), sum_of_squares(cpu{}, n, x.data()),
                                      dot(cpu{}, n, x.data(), y.data())};
        std::vector<float> columns(7);
        column_sums(cpu{}, n / 7, 7, x.data(), columns.data(), false);
        if (threads == 1) first = all, first_columns = columns;
        CHECK(same_bits(all, first));
        CHECK(same_bits(columns, first_columns));
    });
}

TEST_CASE("reduce: argmax takes the first of equals and any NaN", "[reduce]") {
    constexpr float nan = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> x{1, 3, 3, 2, -1, -1, -1, -1, 0, nan, 5, nan};
    std::vector<std::int32_t> out(3);
    argmax_rows(cpu{}, 3, 4, x.data(), out.data());
    CHECK(out == std::vector<std::int32_t>{1, 0, 1});
}

TEST_CASE("sums of passes that change elements, weighted ones too, are plain loops") {
    sum_laws::sums_of_each<cpu>();
    sum_laws::weighted_sums<cpu>();
}

}  // namespace cairn
