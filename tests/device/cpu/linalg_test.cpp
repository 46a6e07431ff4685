#include "catch.hpp"

#include <cairn/device/autotune.hpp>
#include <cairn/device/cpu/gemm.hpp>
#include <cairn/device/cpu/linalg.hpp>

#include "device/cpu/kernel_numbers.hpp"

namespace cairn {

using namespace kernel_tests;
using Catch::Matchers::Contains;

namespace {

template <class T>
tensor<T> matrix(index_t rows, index_t columns, std::uint32_t stream) {
    tensor<T> a({rows, columns});
    const auto values = draw<T>(rows * columns, stream);
    std::copy(values.begin(), values.end(), a.data());
    return a;
}

/// a b, or a bᵀ with `transposed`, by plain loops.
template <class T>
tensor<T> product(const tensor<T>& a, const tensor<T>& b, bool transposed = false) {
    const index_t n = a.extent(0), inner = a.extent(1), m = b.extent(transposed ? 0 : 1);
    tensor<T> c({n, m});
    for (index_t i = 0; i < n; ++i)
        for (index_t j = 0; j < m; ++j) {
            double s = 0;
            for (index_t k = 0; k < inner; ++k) s += double(a(i, k)) * double(transposed ? b(j, k) : b(k, j));
            c(i, j) = static_cast<T>(s);
        }
    return c;
}

template <class T>
tensor<T> scaled_columns(const tensor<T>& a, const tensor<T>& s) {
    tensor<T> b = a.clone();
    for (index_t i = 0; i < b.size(); ++i) b[i] *= s[i % s.size()];
    return b;
}

template <class T>
tensor<T> identity(index_t n) {
    auto a = tensor<T>::zeros({n, n});
    for (index_t i = 0; i < n; ++i) a(i, i) = 1;
    return a;
}

template <class T>
double difference(const tensor<T>& a, const tensor<T>& b) {
    REQUIRE(a.shape() == b.shape());
    return distance(a.span(), b.span());
}

}  // namespace

TEST_CASE("linalg: eigenvectors have the same bits on every run, whatever is measured on the way", "[linalg]") {
    const threads_for_now two(2);
    const tensor<float> x = matrix<float>(40, 160, 3);
    tensor<float> a({160, 160});  // of rank 40
    gemm(cpu{}, true, false, 160, 160, 40, 1.0f, x.data(), 160, x.data(), 160, 0.0f, a.data(), 160);
    mirror_upper(cpu{}, 160, a.data(), 160);
    std::vector<tensor<float>> vectors(12);
    autotune_cache& choices = autotune_cache::global();
    for (const char* name : {"syevd", "syevr"}) {  // as if this one had been faster
        choices.force("eigh", name);
        parallel_tasks(6, [&](index_t i) {
            vectors[static_cast<std::size_t>(i + (name[4] == 'r' ? 6 : 0))] = eigh(cpu{}, a).vectors;
        });
    }
    choices.force("eigh", "");
    for (const tensor<float>& v : vectors) CHECK(std::ranges::equal(v.span(), vectors[0].span()));
    for (const auto& [key, entry] : choices.entries()) CHECK_FALSE(key.starts_with("eigh"));
}

TEMPLATE_TEST_CASE("linalg: a 2 x 2 case by hand", "[linalg]", float, double) {
    using T = TestType;
    tensor<T> a({2, 2});
    a[0] = 2, a[1] = 1, a[2] = 1, a[3] = 2;
    const auto e = eigh(cpu{}, a);
    CHECK(e.values[0] == Approx(1));
    CHECK(e.values[1] == Approx(3));
    CHECK(e.vectors(0, 1) * e.vectors(1, 1) == Approx(0.5));   // (1, 1) / √2
    CHECK(e.vectors(0, 0) * e.vectors(1, 0) == Approx(-0.5));  // (1, -1) / √2
    const auto l = cholesky(cpu{}, a);
    CHECK(l(0, 0) == Approx(std::sqrt(2.0)));
    CHECK(l(0, 1) == 0);
    CHECK(l(1, 0) == Approx(1 / std::sqrt(2.0)));
    CHECK(l(1, 1) == Approx(std::sqrt(1.5)));
    tensor<T> b({2});
    b[0] = 3, b[1] = 0;
    const auto x = solve(cpu{}, a, b);
    CHECK(x.shape() == shape{2});
    CHECK(x[0] == Approx(2));
    CHECK(x[1] == Approx(-1));
    CHECK(svd(cpu{}, a).values[0] == Approx(3));
    CHECK(a[1] == 1);  // arguments are not changed
}

TEMPLATE_TEST_CASE("linalg: factors multiply back", "[linalg]", float, double) {
    using T = TestType;
    for (const index_t n : {1, 2, 5, 40, 120}) {
        CAPTURE(n);
        const double bound = eps<T>(60) * double(n);
        const tensor<T> any = matrix<T>(n, n, 1);
        tensor<T> spd = product(any, any, true);
        for (index_t i = 0; i < n; ++i) spd(i, i) += static_cast<T>(n);

        for (const char* const solver : {"syevd", "syevr"}) {
            CAPTURE(solver);
            autotune_cache::global().force("eigh", solver);
            const auto e = eigh(cpu{}, spd);
            CHECK(std::is_sorted(e.values.data(), e.values.data() + n));
            // Relatively robust representations: residuals some times those of divide and conquer (LAPACK Working Note
            // 163).
            const double here = solver == std::string_view("syevr") ? 4 * bound : bound;
            CHECK(difference(product(scaled_columns(e.vectors, e.values), e.vectors, true), spd) <= here);
            CHECK(difference(product(e.vectors, e.vectors, true), identity<T>(n)) <= here);
        }
        autotune_cache::global().force("eigh", "");

        const auto l = cholesky(cpu{}, spd);
        for (index_t i = 0; i < n; ++i)
            for (index_t j = i + 1; j < n; ++j) CHECK(l(i, j) == 0);
        CHECK(difference(product(l, l, true), spd) <= bound);

        const tensor<T> b = matrix<T>(n, 3, 2);
        CHECK(difference(product(spd, solve(cpu{}, spd, b)), b) <= 10 * bound);
    }
    for (const index_t n : {1, 3, 64, 65, 130}) {  // copied from one triangle to the other in tiles of 64
        CAPTURE(n);
        const tensor<T> any = matrix<T>(n, n, 4);
        tensor<T> spd = product(any, any, true);
        for (index_t i = 0; i < n; ++i) spd(i, i) += static_cast<T>(n);
        const tensor<T> inverse = inverse_of_positive(cpu{}, spd);
        CHECK(difference(product(spd, inverse), identity<T>(n)) <= eps<T>(60) * double(n));
        for (index_t i = 0; i < n; ++i)
            for (index_t j = 0; j < i; ++j) REQUIRE(inverse(i, j) == inverse(j, i));
    }
    for (const auto& [rows, columns] : {std::pair<index_t, index_t>{7, 3}, {3, 7}, {30, 30}, {1, 5}}) {
        CAPTURE(rows, columns);
        const tensor<T> a = matrix<T>(rows, columns, 3);
        const auto s = svd(cpu{}, a);
        const index_t k = std::min(rows, columns);
        CHECK(s.u.shape() == shape{rows, k});
        CHECK(s.values.shape() == shape{k});
        CHECK(s.vt.shape() == shape{k, columns});
        CHECK(std::is_sorted(s.values.data(), s.values.data() + k, std::greater<>{}));
        CHECK(difference(product(scaled_columns(s.u, s.values), s.vt), a) <= eps<T>(1000));
    }
}

TEMPLATE_TEST_CASE("linalg: what cannot be done is said", "[linalg]", float, double) {
    using T = TestType;
    const tensor<T> wide = matrix<T>(2, 3, 1), vector = matrix<T>(2, 1, 1).reshaped({2});
    CHECK_THROWS_WITH(eigh(cpu{}, wide), Contains("square") && Contains("(2, 3)"));
    CHECK_THROWS_WITH(cholesky(cpu{}, vector), Contains("square") && Contains("(2)"));
    CHECK_THROWS_WITH(svd(cpu{}, vector), Contains("a matrix"));
    CHECK_THROWS_WITH(solve(cpu{}, identity<T>(3), vector), Contains("(2)") && Contains("(3, 3)"));
    tensor<T> bad = identity<T>(3);
    bad(1, 1) = -1;
    CHECK_THROWS_WITH(cholesky(cpu{}, bad), Contains("(3, 3)") && Contains("not positive definite"));
    CHECK_THROWS_WITH(inverse_of_positive(cpu{}, bad), Contains("(3, 3)") && Contains("not positive definite"));
    bad(1, 1) = 0;
    CHECK_THROWS_WITH(solve(cpu{}, bad, matrix<T>(3, 1, 1)), Contains("(3, 3)") && Contains("singular"));
    bad(2, 0) = std::numeric_limits<T>::quiet_NaN();
    CHECK_THROWS_WITH(eigh(cpu{}, bad), Contains("element (2, 0)") && Contains("nan"));
    CHECK_THROWS_WITH(svd(cpu{}, bad), Contains("element (2, 0)"));
    bad(2, 0) = std::numeric_limits<T>::infinity();
    CHECK_THROWS_WITH(cholesky(cpu{}, bad), Contains("element (2, 0)") && Contains("inf"));
}

}  // namespace cairn

// Of a program before whose main it chose again, too. Triangular solvers of a Prescott crash on newer processors.
TEST_CASE("OpenBLAS runs kernels of this processor") { CHECK(cairn::detail::openblas_core_instead() == nullptr); }
