#include "compress/compressor_laws.hpp"

#include <cairn/compress/feedback.hpp>
#include <cairn/compress/topk.hpp>

#include <algorithm>
#include <numeric>

namespace laws {

namespace {

// The definition: positions sorted by magnitude, the first k of them by position.
std::vector<std::uint32_t> largest(const floats& x, index_t k) {
    std::vector<std::uint32_t> order(x.size());
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return std::abs(x[a]) > std::abs(x[b]); });
    order.resize(static_cast<std::size_t>(k));
    std::sort(order.begin(), order.end());
    return order;
}

floats kept(const floats& x, const std::vector<std::uint32_t>& where) {
    floats y(x.size());
    for (auto p : where) y[p] = x[p];
    return y;
}

// Bytes by the format's text: a group of 128 gaps takes one byte and the bits of its largest gap for each.
index_t code_bytes(const std::vector<std::uint32_t>& positions) {
    index_t bytes = 0;
    for (std::size_t g = 0; g < positions.size(); g += 128) {
        std::uint32_t most = 0;
        const std::size_t end = std::min(positions.size(), g + 128);
        for (std::size_t i = g; i < end; ++i)
            most = std::max(most, i ? positions[i] - positions[i - 1] - 1 : positions[i]);
        index_t width = 0;
        while ((std::uint64_t{most} >> width) > 0) ++width;
        bytes += 1 + (static_cast<index_t>(end - g) * width + 7) / 8;
    }
    return bytes;
}

}  // namespace

TEST_CASE("topk keeps the contract laws", "[topk]") {
    check_laws([] { return topk(); });
    check_laws([] { return topk({.ratio = 0.3, .values = sparse_value::bfloat16}); });
    check_laws([] { return topk({.ratio = 1}); });
    check_laws([] { return sampled_topk({.ratio = 0.02}); });
    check_laws([] { return error_feedback(topk({.ratio = 0.05})); });
}

TEST_CASE("topk sends the k largest, of equal ones the first, in the bytes of its format", "[topk]") {
    const double ratio = GENERATE(0.001, 0.01, 0.25, 1.0);
    for (const index_t n : sizes)
        for (const std::string& distribution : distributions) {
            CAPTURE(n, distribution, ratio);
            const floats x = numbers(distribution, n);
            topk c({.ratio = ratio});
            const auto bytes = encoded(c, x);
            const index_t k = std::min(n, static_cast<index_t>(std::ceil(ratio * static_cast<double>(n))));
            const auto expected = largest(x, k);
            REQUIRE(decoded(c, bytes, n) == kept(x, expected));
            REQUIRE(c.chosen().positions == expected);
            REQUIRE(static_cast<index_t>(bytes.size()) == 4 + code_bytes(expected) + 4 * k);
            topk half({.ratio = ratio, .values = sparse_value::bfloat16});
            REQUIRE(static_cast<index_t>(encoded(half, x).size()) == 4 + code_bytes(expected) + 2 * k);
        }
}

TEST_CASE("topk: a sample that misleads costs time, not correctness", "[topk]") {
    // The sample meets positions 0, 5, 10, …: put all that is large, or all that is small, there.
    floats x = numbers("normal", 65537);
    const std::size_t stride = 5;
    for (std::size_t i = 0; i < x.size(); i += stride) x[i] *= 1e3f;
    topk c;
    REQUIRE(decoded(c, encoded(c, x), 65537) == kept(x, largest(x, c.count(65537))));
    for (std::size_t i = 0; i < x.size(); i += stride) x[i] *= 1e-9f;
    REQUIRE(decoded(c, encoded(c, x), 65537) == kept(x, largest(x, c.count(65537))));
}

TEST_CASE("topk, sampled: 0.8 to 1.3 k of the largest", "[topk]") {
    for (const index_t n : {index_t{1000}, index_t{65537}, index_t{1} << 20})
        for (const std::string& distribution : distributions) {
            CAPTURE(n, distribution);
            const floats x = numbers(distribution, n);
            sampled_topk c({.ratio = 0.01});
            const floats y = decoded(c, encoded(c, x), n);
            const auto sent = static_cast<double>(c.chosen().size());
            REQUIRE(sent >= 0.8 * static_cast<double>(c.count(n)));
            REQUIRE(sent <= 1.3 * static_cast<double>(c.count(n)));
            if (n < index_t{1} << 20) REQUIRE(y == kept(x, largest(x, static_cast<index_t>(sent))));
        }
}

TEST_CASE("positions at 1 % cost less than 10 bits each", "[topk]") {
    const floats x = numbers("normal", 1 << 20);
    topk c;
    const auto bytes = encoded(c, x);
    const auto k = static_cast<double>(c.chosen().size());
    CHECK(static_cast<double>(index_code_bytes(c.chosen().positions)) * 8 / k < 10);
    CHECK(static_cast<double>(bytes.size()) < k * (4 + 10.0 / 8) + 4);
}

}  // namespace laws
