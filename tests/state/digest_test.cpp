#include "catch.hpp"

#include <cairn/core/random.hpp>
#include <cairn/state/digest.hpp>

#include <numeric>
#include <string>
#include <vector>

namespace {

using cairn::named_digest;
using cairn::random_stream;
using cairn::tensor_digest;

// The formula, word by word, without tables of powers.
std::uint64_t digest_by_formula(const std::vector<unsigned char>& bytes, std::size_t element_bytes) {
    std::uint64_t state = 0;
    std::vector<std::uint64_t> k;
    for (int i = 0; i < 1024; ++i) {  // SplitMix64 as published
        state += 0x9E3779B97F4A7C15u;
        std::uint64_t z = state;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        k.push_back(((z ^ (z >> 31)) >> 32) | 1);
    }
    const std::size_t word = std::min<std::size_t>(element_bytes, 4);
    std::uint64_t sum = 0, power = 1;
    for (std::size_t i = 0; i < bytes.size() / word; ++i) {
        if (i > 0 && i % 1024 == 0) power *= 0x9E3779B97F4A7C15u;
        std::uint64_t bits = 0;
        for (std::size_t b = 0; b < word; ++b) bits |= std::uint64_t{bytes[i * word + b]} << 8 * b;
        sum += (bits + 1) * k[i % 1024] * power;
    }
    return sum;
}

std::vector<unsigned char> random_bytes(std::size_t count, std::uint32_t stream) {
    std::vector<unsigned char> bytes(count);
    for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<unsigned char>(random_stream{7, stream, 0}.bits(i));
    return bytes;
}

std::uint64_t digest_at_once(const std::vector<unsigned char>& bytes, std::size_t element_bytes) {
    tensor_digest d;
    d.add(bytes.data(), element_bytes, 0, bytes.size() / element_bytes);
    return d.value();
}

}  // namespace

TEST_CASE("digest equals its formula for elements of every size") {
    for (const std::size_t element_bytes : {1u, 2u, 4u, 8u})
        for (const std::size_t count : {0u, 1u, 7u, 511u, 512u, 513u, 1024u, 1025u, 3000u}) {
            const auto bytes = random_bytes(count * element_bytes, static_cast<std::uint32_t>(count));
            INFO(count << " elements of " << element_bytes << " bytes");
            CHECK(digest_at_once(bytes, element_bytes) == digest_by_formula(bytes, element_bytes));
        }
    const std::vector<unsigned char> ones(4 * 2050, 0xFF);  // bits + 1 = 2^32
    CHECK(digest_at_once(ones, 4) == digest_by_formula(ones, 4));
    CHECK_THROWS_WITH(digest_at_once(ones, 3), Catch::Matchers::Contains("elements of 3 bytes"));
}

TEST_CASE("digest adds up over pieces in any order") {
    const random_stream random{8, 0, 0};
    std::uint64_t draw = 0;
    for (int trial = 0; trial < 200; ++trial) {
        const std::size_t element_bytes = std::size_t{1} << random.below(4, draw++);
        const std::uint64_t count = random.below(6000, draw++);
        auto bytes = random_bytes(count * element_bytes, static_cast<std::uint32_t>(trial));
        bytes.insert(bytes.begin(), 0);  // no alignment
        std::vector<std::uint64_t> cuts{0, count};
        for (int i = 0; i < 5; ++i) cuts.push_back(random.below(count + 1, draw++));
        std::sort(cuts.begin(), cuts.end());
        std::vector<std::size_t> order(cuts.size() - 1);
        std::iota(order.begin(), order.end(), std::size_t{0});
        for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i, draw++)]);
        tensor_digest one;
        std::uint64_t sum = 0;
        for (const std::size_t i : order) {
            const unsigned char* begin = bytes.data() + 1 + cuts[i] * element_bytes;
            one.add(begin, element_bytes, cuts[i], cuts[i + 1] - cuts[i]);
            tensor_digest piece;
            piece.add(begin, element_bytes, cuts[i], cuts[i + 1] - cuts[i]);
            sum += piece.value();
        }
        bytes.erase(bytes.begin());
        REQUIRE(sum == digest_at_once(bytes, element_bytes));
        REQUIRE(one.value() == sum);
    }
}

TEST_CASE("digest of an element far behind") {
    // M^⌊i/1024⌋ by repeated multiplication.
    const std::uint64_t first = 123'456'789;
    std::uint64_t power = 1;
    for (std::uint64_t block = 0; block < first / 1024; ++block) power *= 0x9E3779B97F4A7C15u;
    const std::uint32_t value = 41;
    tensor_digest far, near;
    far.add(&value, 4, first, 1);
    near.add(&value, 4, first % 1024, 1);
    CHECK(far.value() == near.value() * power);
}

TEST_CASE("digest finds every flipped bit, and elements that changed places") {
    const random_stream random{9, 0, 0};
    auto bytes = random_bytes(20'000, 1);
    const std::uint64_t before = digest_at_once(bytes, 4);
    for (std::uint64_t trial = 0; trial < 2000; ++trial) {
        const std::uint64_t bit = random.below(8 * bytes.size(), trial);
        bytes[bit / 8] = static_cast<unsigned char>(bytes[bit / 8] ^ (1u << bit % 8));
        REQUIRE(digest_at_once(bytes, 4) != before);
        bytes[bit / 8] = static_cast<unsigned char>(bytes[bit / 8] ^ (1u << bit % 8));
    }
    for (std::uint64_t trial = 0; trial < 200; ++trial) {
        const std::uint64_t a = random.below(5000, 10'000 + 2 * trial), b = random.below(5000, 10'001 + 2 * trial);
        if (a == b || std::equal(&bytes[4 * a], &bytes[4 * a] + 4, &bytes[4 * b])) continue;
        std::swap_ranges(&bytes[4 * a], &bytes[4 * a] + 4, &bytes[4 * b]);
        REQUIRE(digest_at_once(bytes, 4) != before);
        std::swap_ranges(&bytes[4 * a], &bytes[4 * a] + 4, &bytes[4 * b]);
    }
    CHECK(digest_at_once(std::vector<unsigned char>(40, 0), 4) != digest_at_once(std::vector<unsigned char>(44, 0), 4));
}

TEST_CASE("digest of a state tells names apart") {
    CHECK(named_digest("a", 1) + named_digest("b", 2) == named_digest("b", 2) + named_digest("a", 1));
    CHECK(named_digest("a", 1) + named_digest("b", 2) != named_digest("a", 2) + named_digest("b", 1));
    CHECK(named_digest("a", 0) != named_digest("b", 0));
}
