#pragma once
// The laws of every compressor (compress/compressor.hpp). A compressor's own test calls
// check_laws with a function that makes one, and compares with a plain loop of its own.

#include "catch.hpp"

#include <cairn/compress/compressor.hpp>

#include <cmath>
#include <string>
#include <vector>

namespace laws {

using namespace cairn;
using cairn::index_t;
using floats = std::vector<float>;

inline const std::vector<index_t> sizes{0, 1, 2, 7, 31, 32, 33, 1000, 65537};
inline const std::vector<std::string> distributions{"normal", "heavy tail", "sparse", "constant", "zeros", "ramp"};

/// n numbers of a distribution, always the same.
inline floats numbers(const std::string& distribution, index_t n, std::uint32_t stream = 1) {
    floats x(static_cast<std::size_t>(n));
    const random_stream random{7, stream, 0};
    for (index_t i = 0; i < n; ++i) {
        const auto u = static_cast<std::uint64_t>(i);
        float& v = x[static_cast<std::size_t>(i)];
        if (distribution == "normal") v = static_cast<float>(random.normal(u));
        if (distribution == "heavy tail") v = static_cast<float>(std::pow(random.normal(u), 5));
        if (distribution == "sparse") v = random.uniform(u) < 0.02f ? static_cast<float>(random.normal(u + 1)) : 0.0f;
        if (distribution == "constant") v = -0.375f;
        if (distribution == "zeros") v = 0;
        if (distribution == "ramp") v = static_cast<float>(i - n / 2) * 0.01f;
    }
    return x;
}

inline std::vector<std::byte> bytes_of(const message<>& m) { return {m.bytes().begin(), m.bytes().end()}; }

template <class C>
std::vector<std::byte> encoded(C& c, const floats& x, const encode_step& at = {}) {
    message<> m;
    c.encode(x, m, at);
    return bytes_of(m);
}

template <class C>
floats decoded(const C& c, const std::vector<std::byte>& bytes, index_t n, const encode_step& at = {}) {
    floats y(static_cast<std::size_t>(n), 99.0f);
    c.decode(bytes, y, at);
    return y;
}

inline double squares(const floats& x) {
    double sum = 0;
    for (float v : x) sum += double{v} * v;
    return sum;
}
inline floats difference(const floats& x, const floats& y) {
    floats d(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) d[i] = x[i] - y[i];
    return d;
}

/// Runs f on 1 and on 2 threads.
template <class F>
void on_threads(F f) {
    const int before = threads();
    for (const int count : {1, 2}) {
        set_threads(count);
        f();
    }
    set_threads(before);
}

/// Message length, contraction, error bound, decode_add, equal bits.
template <class Make>
void check_values(Make make) {
    for (const index_t n : sizes)
        for (const std::string& distribution : distributions) {
            CAPTURE(n, distribution);
            const floats x = numbers(distribution, n);
            const encode_step at{.seed = 5, .rank = 1, .step = 3};
            auto c = make();
            const compression_contract contract = c.contract(n);
            const auto bytes = encoded(c, x, at);
            REQUIRE(static_cast<index_t>(bytes.size()) <= c.max_bytes(n));
            if (contract.fixed_bytes) REQUIRE(static_cast<index_t>(bytes.size()) == c.max_bytes(n));
            const floats y = decoded(c, bytes, n, at);
            for (float v : y) REQUIRE(std::isfinite(v));

            floats sum(x.size(), 1.0f);
            c.decode_add(bytes, sum, at, -0.5f);
            for (std::size_t i = 0; i < x.size(); ++i)
                REQUIRE(std::abs(sum[i] - (1.0f - 0.5f * y[i])) <= 1e-6f * (1 + std::abs(y[i])));

            const floats lost = difference(x, y);
            if (contract.deterministic && std::isfinite(contract.contraction))
                REQUIRE(squares(lost) <= (1 - contract.contraction) * squares(x) * (1 + 1e-5) + 1e-30);
            for (float v : lost) REQUIRE(double{std::abs(v)} <= contract.absolute_error);

            on_threads([&] {
                auto again = make();
                REQUIRE(encoded(again, x, at) == bytes);
                REQUIRE(decoded(again, bytes, n, at) == y);
            });
        }
}

/// Messages that are cut short, too long or damaged: an error, or numbers, but nothing outside `into`.
template <class Make>
void check_damage(Make make) {
    for (const index_t n : {index_t{1}, index_t{33}, index_t{300}, index_t{1000}}) {
        CAPTURE(n);
        auto c = make();
        const encode_step at{.seed = 5};
        const auto good = encoded(c, numbers("heavy tail", n), at);
        const auto attempt = [&](const std::vector<std::byte>& bytes, bool must_throw) {
            const std::vector<std::byte> exact(bytes);  // no room behind it: sanitizers see a read outside
            floats guarded(static_cast<std::size_t>(n) + 32, 4.25f);
            bool threw = false;
            try {
                c.decode(exact, std::span(guarded).subspan(16, static_cast<std::size_t>(n)), at);
            } catch (const error& e) {
                threw = true;
                REQUIRE(std::string(e.what()).find("byte") != std::string::npos);
            }
            for (std::size_t i = 0; i < 16; ++i)
                REQUIRE((guarded[i] == 4.25f && guarded[guarded.size() - 1 - i] == 4.25f));
            if (must_throw) REQUIRE(threw);
        };
        attempt(good, false);
        for (std::size_t length = 0; length < good.size(); length += 1 + good.size() / 60)
            attempt({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(length)}, true);
        auto longer = good;
        longer.push_back(std::byte{0});
        attempt(longer, true);
        const random_stream random{11, 12, 13};
        for (std::uint64_t trial = 0; trial < 400; ++trial) {
            auto bad = good;
            // The first bytes hold lengths: half of the flips hit them.
            const auto where = random.below(trial % 2 ? bad.size() : std::min<std::size_t>(bad.size(), 40), 3 * trial);
            bad[where] ^= static_cast<std::byte>(1 + random.below(255, 3 * trial + 1));
            attempt(bad, false);
        }
    }
}

/// A NaN or Inf is an error that names the element, its parameter, the rank and the step.
template <class Make>
void check_non_finite(Make make) {
    const bucket_layout layout{{"a/weight", 0, {10, 2}}, {"b/bias", 32, {500}}};
    for (const float bad :
         {std::nanf(""), std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
        floats x = numbers("normal", 600);
        x[35] = bad;
        auto c = make();
        message<> m;
        try {
            c.encode(x, m, {.rank = 2, .step = 17, .layout = &layout});
            FAIL("no error");
        } catch (const error& e) {
            const std::string what = e.what();
            CAPTURE(what);
            REQUIRE(what.find("element 3 of b/bias (500)") != std::string::npos);
            REQUIRE(what.find("rank 2, step 17") != std::string::npos);
        }
        x[35] = 0;
        x[580] = bad;
        REQUIRE_THROWS_AS(c.encode(x, m, {.layout = &layout}), error);
        x[580] = 1;
        REQUIRE_NOTHROW(c.encode(x, m, {.layout = &layout}));
    }
}

template <class Make>
void check_laws(Make make) {
    static_assert(Compressor<decltype(make())>);
    check_values(make);
    check_damage(make);
    check_non_finite(make);
}

/// E decode(encode(x)) = x. Weighted sums of the errors, over `trials` seeds, have means within 5.5 of their standard
/// errors (a chance of 4e-8 a sum); weights are all ones, the signs of x and random signs, also divided by |x|.
template <class Make>
void check_unbiased(Make make, int trials = 600, index_t n = 300) {
    constexpr int sums = 32;
    for (const std::string& distribution : {std::string("normal"), std::string("heavy tail"), std::string("ramp")}) {
        CAPTURE(distribution);
        const floats x = numbers(distribution, n);
        const double small = 1e-3 * std::sqrt(squares(x) / static_cast<double>(n));
        auto c = make();
        const compression_contract contract = c.contract(n);
        REQUIRE(contract.unbiased);
        std::vector<double> first(sums), second(sums);
        double lost = 0;
        for (int t = 0; t < trials; ++t) {
            const encode_step at{.seed = 1000 + static_cast<std::uint64_t>(t)};
            const floats y = decoded(c, encoded(c, x, at), n, at);
            lost += squares(difference(x, y)) / trials;
            for (int k = 0; k < sums; ++k) {
                const random_stream random{1, static_cast<std::uint32_t>(k / 2), 2};
                double s = 0;
                for (std::size_t i = 0; i < x.size(); ++i) {
                    double w = k < 2 ? 1 : k < 4 ? (x[i] < 0 ? -1 : 1) : (random.bits(i) & 1 ? -1 : 1);
                    if (k % 2) w /= std::abs(x[i]) + small;
                    s += w * (double{y[i]} - x[i]);
                }
                first[static_cast<std::size_t>(k)] += s / trials;
                second[static_cast<std::size_t>(k)] += s * s / trials;
            }
        }
        REQUIRE(lost <= contract.variance * squares(x) * 1.1);
        for (std::size_t k = 0; k < sums; ++k) {
            CAPTURE(k, first[k], second[k]);
            REQUIRE(second[k] > 0);
            REQUIRE(first[k] * first[k] <= 5.5 * 5.5 * (second[k] - first[k] * first[k]) / trials);
        }
    }
}

}  // namespace laws
