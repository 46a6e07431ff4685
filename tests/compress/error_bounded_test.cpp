#include "compress/compressor_laws.hpp"

#include <cairn/compress/error_bounded.hpp>
#include <cairn/compress/feedback.hpp>

#include <map>

namespace laws {

namespace {

using kind = error_bounded::kind;

floats waves(index_t n) {
    floats x(static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < x.size(); ++i)
        x[i] = static_cast<float>(3 * std::sin(0.002 * static_cast<double>(i)) + 5);
    return x;
}

/// Checks every value against the bound, in double.
void check_bound(const floats& x, double bound, error_bounded c) {
    const auto n = static_cast<index_t>(x.size());
    const floats y = decoded(c, encoded(c, x), n);
    std::size_t worst = 0;
    const auto off = [&](std::size_t i) { return std::abs(double{x[i]} - double{y[i]}); };
    for (std::size_t i = 0; i < x.size(); ++i)
        if (!(off(i) <= off(worst))) worst = i;
    CAPTURE(worst, x[worst], y[worst], bound);
    REQUIRE(off(worst) <= bound);
}

}  // namespace

TEST_CASE("error_bounded keeps the contract laws", "[error_bounded]") {
    check_laws([] { return error_bounded(); });
    check_laws([] { return error_bounded({.bound = 0.01, .of = kind::absolute}); });
    check_laws([] { return error_feedback(error_bounded({.bound = 0.1})); });
    REQUIRE_THROWS_AS(error_bounded({.bound = 0}), error);
}

TEST_CASE("error_bounded: the bound holds, always", "[error_bounded]") {
    const random_stream random{1, 2, 3};
    floats any_bits, tiny, mixed = numbers("normal", 20000);
    for (std::uint64_t i = 0; i < 40000; ++i) {
        const auto v = std::bit_cast<float>(random.bits(i));
        if (std::isfinite(v)) any_bits.push_back(v);
        tiny.push_back(std::bit_cast<float>(random.bits(i) & 0x80ffffffu));  // denormal, and just above
    }
    for (std::size_t i = 0; i < mixed.size(); i += 97) mixed[i] = std::ldexp(mixed[i], static_cast<int>(i % 250) - 125);
    mixed[5] = std::numeric_limits<float>::max();
    mixed[6] = -std::numeric_limits<float>::max();
    mixed[7] = std::numeric_limits<float>::denorm_min();
    // A bound of a few units in the last place: the rounding of x̂ itself counts.
    floats narrow = numbers("normal", 20000);
    for (float& v : narrow) v = 5 + 2e-4f * v;
    for (const floats& x :
         {any_bits, tiny, mixed, numbers("heavy tail", 40000), numbers("normal", 20000), waves(20000), narrow}) {
        double largest = 0;
        for (float v : x) largest = std::max(largest, std::abs(double{v}));
        for (const double bound : {1e-45, 1e-40, 1e-30, 1e-6, 1.25e-6, 0.1, 1e10, 1e38, 3e38, 1e300})
            check_bound(x, bound, error_bounded({.bound = bound, .of = kind::absolute}));
        for (const double bound : {1e-30, 1e-7, 1e-3, 0.3, 2.0})
            check_bound(x, bound * largest, error_bounded({.bound = bound}));
    }
}

TEST_CASE("error_bounded: every value is a multiple of 2 eb, or itself", "[error_bounded]") {
    for (const std::string& distribution : distributions) {
        const floats x = numbers(distribution, 30000);
        error_bounded c({.bound = 0.01, .of = kind::absolute});
        const floats y = decoded(c, encoded(c, x), 30000);
        const float eb = 0.01f <= 0.01 ? 0.01f : std::nextafter(0.01f, 0.0f);
        for (std::size_t i = 0; i < x.size(); ++i) {
            const float quantised = static_cast<float>(std::nearbyint(x[i] * (1 / (2 * eb)))) * (2 * eb);
            REQUIRE((y[i] == quantised || y[i] == x[i]));
        }
    }
}

// The entropy of the symbols is what a code cannot beat; Huffman's is within a bit, here within 3 %.
TEST_CASE("error_bounded: bytes are close to the entropy of the residuals", "[error_bounded]") {
    const index_t n = 65536;
    const auto check = [&](const floats& x, double eb, bool lorenzo) {
        std::map<long, double> counts;
        long before = 0;
        for (float v : x) {
            const long q = std::lround(v / (2 * eb));
            counts[q - (lorenzo ? before : 0)] += 1;
            before = q;
        }
        double entropy = 0;
        for (const auto& [d, count] : counts) entropy -= count * std::log2(count / static_cast<double>(n));
        error_bounded c({.bound = eb, .of = kind::absolute});
        const auto bytes = static_cast<double>(encoded(c, x).size());
        CHECK(bytes > 0.97 * entropy / 8);
        CHECK(bytes < 1.03 * entropy / 8 + 8 * 4 + 520 + 8);
    };
    check(numbers("normal", n), 0.02, false);
    check(numbers("normal", n), 0.3, false);
    check(waves(n), 1e-4, true);
    // Constants cost no bits at all, zeros likewise: the head, one symbol and the blocks' entries.
    error_bounded c;
    REQUIRE(encoded(c, floats(65536, 0.0f)).size() == 8 + 1 + 4 * 8);
    REQUIRE(encoded(c, floats{}).empty());
}

TEST_CASE("error_bounded: smooth data shrinks by prediction", "[error_bounded]") {
    error_bounded c({.bound = 1e-4});
    CHECK(encoded(c, waves(1 << 16)).size() < 4 * (1 << 16) / 9);
}

}  // namespace laws
