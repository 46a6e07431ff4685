// GEMM: every kernel against three plain loops, on odd sizes, transposes, leading dimensions, alpha and beta.
#include "oracle/gemm.hpp"
#include "catch.hpp"
#include "device/cpu/kernel_numbers.hpp"
#include "device/refusals.hpp"

#include <cairn/core/random.hpp>
#include <cairn/device/cpu/gemm_bias.hpp>

#include <cmath>
#include <cstring>
#include <vector>

namespace {

using ix = cairn::index_t;

// |error| of one element against what k products of numbers below 1 can lose.
template <class T>
void check_close(const std::vector<T>& got, const std::vector<T>& expected, ix k) {
    const double tolerance = static_cast<double>(std::numeric_limits<T>::epsilon()) * (static_cast<double>(k) + 4);
    double worst = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
        const double difference = std::abs(static_cast<double>(got[i]) - static_cast<double>(expected[i]));
        worst = difference <= worst ? worst : difference;  // a NaN becomes the worst
    }
    CHECK(worst <= tolerance);
}

template <class T>
void compare(const char* kernel, bool ta, bool tb, ix m, ix n, ix k, T alpha, T beta, ix extra) {
    INFO(kernel << ' ' << m << " x " << n << " x " << k << (ta ? " T" : " N") << (tb ? 'T' : 'N') << " alpha " << alpha
                << " beta " << beta << " extra " << extra << " bytes " << sizeof(T));
    const kernel_tests::forced f("gemm", kernel);
    const ix lda = (ta ? m : k) + extra, ldb = (tb ? k : n) + extra, ldc = n + extra;
    const auto a = kernel_tests::draw_uniform<T>((ta ? k : m) * lda, 1),
               b = kernel_tests::draw_uniform<T>((tb ? n : k) * ldb, 2);
    auto c = kernel_tests::draw_uniform<T>(m * ldc, 3);
    auto expected = c;
    if (beta == T{})  // must not be read
        for (ix i = 0; i < m; ++i) std::fill_n(c.begin() + i * ldc, n, T(NAN));
    oracle::gemm(ta, tb, m, n, k, alpha, a.data(), lda, b.data(), ldb, beta, expected.data(), ldc);
    cairn::gemm(cairn::cpu{}, ta, tb, m, n, k, alpha, a.data(), lda, b.data(), ldb, beta, c.data(), ldc);
    check_close(c, expected, k);
}

constexpr const char* kernels[] = {"onednn", "builtin", "cblas"};

}  // namespace

TEST_CASE("gemm: each kernel equals plain loops", "[gemm]") {
    const std::vector<std::array<ix, 3>> sizes{{1, 1, 1},     {1, 37, 5},      {37, 1, 5},   {5, 7, 1},
                                               {14, 32, 3},   {15, 33, 17},    {64, 64, 64}, {100, 31, 257},
                                               {13, 300, 40}, {130, 270, 520}, {3, 2100, 9}, {57, 10, 600}};
    for (const auto& [m, n, k] : sizes)
        for (const char* kernel : kernels)
            for (const bool ta : {false, true})
                for (const bool tb : {false, true}) {
                    compare<float>(kernel, ta, tb, m, n, k, 1.0f, 0.0f, 0);
                    compare<float>(kernel, ta, tb, m, n, k, -0.5f, 1.0f, 3);
                    compare<double>(kernel, ta, tb, m, n, k, 1.0, 0.5, 1);
                }
}

TEST_CASE("gemm: the built-in kernel takes any arithmetic type", "[gemm]") {
    const std::vector<std::int32_t> a{1, 2, 3, 4, 5, 6}, b{1, 0, -1, 2, 3, 1};
    std::vector<std::int32_t> c(4, 7);
    cairn::gemm<std::int32_t>(cairn::cpu{}, false, false, 2, 2, 3, 1, a.data(), 3, b.data(), 2, 0, c.data(), 2);
    CHECK(c == std::vector<std::int32_t>{8, 7, 17, 16});
}

TEST_CASE("gemm: empty sizes", "[gemm]") {
    std::vector<float> a(6, 1.0f), c{1, 2, 3, 4};
    const auto run = [&](ix m, ix n, ix k, float beta) {
        cairn::gemm(cairn::cpu{}, false, false, m, n, k, 1.0f, a.data(), k, a.data(), n, beta, c.data(), n);
    };
    run(0, 2, 3, 0.0f);
    run(2, 0, 3, 0.0f);
    CHECK(c == std::vector<float>{1, 2, 3, 4});
    run(2, 2, 0, 2.0f);
    CHECK(c == std::vector<float>{2, 4, 6, 8});
    c[1] = NAN;
    run(2, 2, 0, 0.0f);
    CHECK(c == std::vector<float>{0, 0, 0, 0});
}

TEST_CASE("gemm: bad sizes are refused with the sizes named", "[gemm]") { cairn::refusals::bad_products<cairn::cpu>(); }

TEST_CASE("gemm_batched: few and many products, strided", "[gemm]") {
    for (const ix batch : {ix{0}, ix{1}, ix{3}, ix{20}}) {
        const ix m = 9, n = 11, k = 13, sa = m * k + 2, sb = n * k + 5, sc = m * n + 1;
        const auto a = kernel_tests::draw_uniform<float>(batch * sa, 1),
                   b = kernel_tests::draw_uniform<float>(batch * sb, 2);
        auto c = kernel_tests::draw_uniform<float>(batch * sc, 3);
        auto expected = c;
        for (ix i = 0; i < batch; ++i)
            oracle::gemm(false, true, m, n, k, 2.0f, a.data() + i * sa, k, b.data() + i * sb, k, 1.0f,
                         expected.data() + i * sc, n);
        cairn::gemm_batched(cairn::cpu{}, false, true, m, n, k, 2.0f, a.data(), k, sa, b.data(), k, sb, 1.0f, c.data(),
                            n, sc, batch);
        check_close(c, expected, 2 * k);
    }
}

TEST_CASE("gemm: the same bits again; the built-in kernel's on any number of threads", "[gemm]") {
    const ix m = 200, n = 150, k = 3000;
    const auto a = kernel_tests::draw_uniform<float>(m * k, 1), b = kernel_tests::draw_uniform<float>(n * k, 2);
    const auto run = [&](const char* kernel, int threads) {
        const kernel_tests::forced f("gemm", kernel);
        const kernel_tests::threads_for_now t(threads);
        std::vector<float> c(static_cast<std::size_t>(m * n));
        cairn::gemm(cairn::cpu{}, false, true, m, n, k, 1.0f, a.data(), k, b.data(), k, 0.0f, c.data(), n);
        return c;
    };
    for (const char* kernel : kernels)
        for (const int threads : {1, 2}) CHECK((run(kernel, threads) == run(kernel, threads)));
    CHECK((run("builtin", 1) == run("builtin", 2)));
    CHECK((run("builtin", 1) == run("builtin", 3)));
}

TEST_CASE("gemm: counts 2 m n k operations and each operand once", "[gemm]") {
    std::vector<float> v(64);
    const cairn::flop_counter::scope counting;
    cairn::gemm(cairn::cpu{}, false, false, 2, 3, 4, 1.0f, v.data(), 4, v.data(), 3, 0.0f, v.data() + 32, 3);
    CHECK(cairn::flop_counter::total().flops == 48);
    CHECK(cairn::flop_counter::total().bytes == 4 * (8 + 12 + 6));
}

TEST_CASE("gemm: leaves no workspace behind", "[gemm]") {
    const auto before = cairn::memory_pool::host().use_of(cairn::memory_category::workspace).live;
    std::vector<float> a(300 * 300, 1.0f), c(300 * 300);
    for (const char* kernel : kernels) {
        const kernel_tests::forced f("gemm", kernel);
        cairn::gemm(cairn::cpu{}, true, true, 300, 300, 300, 1.0f, a.data(), 300, a.data(), 300, 0.0f, c.data(), 300);
    }
    CHECK(cairn::memory_pool::host().use_of(cairn::memory_category::workspace).live == before);
}

TEST_CASE("gemm: products in parallel regions are measured on one thread, and have one entry", "[gemm]") {
    using namespace cairn;
    autotune_cache& registry = autotune_cache::global();
    const autotune_policy usual = registry.policy();
    registry.set_policy(autotune_policy::measure);
    std::vector<bfloat16> a(16 * 16), b(16 * 16);
    std::vector<float> c(16 * 16);
    std::vector<std::string> keys[2];
    for (const int n : {1, 2}) {
        registry.clear();
        const threads_for_now so_many(n);
        gemm_detail::choose<bfloat16, float>(false, {false, false, 16, 16, 16, 16, 16, 16}, a.data(), b.data(),
                                             c.data());
        for (const auto& [key, entry] : registry.entries()) keys[n - 1].push_back(key);
    }
    registry.set_policy(usual);
    CHECK(keys[0] == keys[1]);
    CHECK(!keys[0].empty());
}
