#include "compress/compressor_laws.hpp"

#include <cairn/compress/huffman.hpp>

#include <algorithm>

namespace laws {

namespace {

using counts_list = std::vector<std::uint64_t>;

std::uint64_t cost(const counts_list& counts, const huffman::lengths& lengths) {
    std::uint64_t bits = 0;
    for (std::size_t s = 0; s < counts.size(); ++s) bits += counts[s] * lengths[s];
    return bits;
}

// Huffman's own algorithm: the two smallest become one, until one is left; the cost is the sum of all sums.
std::uint64_t huffman_cost(counts_list weights) {
    std::erase(weights, 0u);
    std::uint64_t total = 0;
    while (weights.size() > 1) {
        std::sort(weights.begin(), weights.end(), std::greater<>());
        const std::uint64_t sum = weights.back() + weights[weights.size() - 2];
        weights.resize(weights.size() - 2);
        weights.push_back(sum);
        total += sum;
    }
    return total;
}

counts_list random_counts(std::size_t n, std::uint32_t stream, double power) {
    counts_list counts(n);
    for (std::size_t s = 0; s < n; ++s)
        counts[s] = static_cast<std::uint64_t>(std::pow(random_stream{1, stream, 0}.uniform(s) * 100, power));
    return counts;
}

}  // namespace

TEST_CASE("huffman: lengths cost what Huffman's tree costs, where the limit does not bind", "[huffman]") {
    for (std::uint32_t stream = 0; stream < 20; ++stream) {
        const counts_list counts = random_counts(40, stream, 1.5);
        const auto lengths = huffman::optimal_lengths(counts);
        REQUIRE(huffman::complete(lengths));
        REQUIRE(cost(counts, lengths) == huffman_cost(counts));
        for (std::size_t s = 0; s < counts.size(); ++s) REQUIRE((lengths[s] > 0) == (counts[s] > 0));
    }
}

TEST_CASE("huffman: lengths stay under the limit and the code complete", "[huffman]") {
    counts_list fibonacci{1, 1};
    while (fibonacci.size() < 60) fibonacci.push_back(fibonacci.back() + fibonacci[fibonacci.size() - 2]);
    for (const counts_list& counts : {fibonacci, random_counts(1024, 1, 6), counts_list(4096, 1)}) {
        const auto lengths = huffman::optimal_lengths(counts);
        REQUIRE(*std::max_element(lengths.begin(), lengths.end()) <= huffman::limit);
        REQUIRE(huffman::complete(lengths));
        REQUIRE(cost(counts, lengths) >= huffman_cost(counts));
    }
    // Literal: counts 1, 1, 2, 4 have lengths 3, 3, 2, 1, and codes in order of (length, symbol).
    const auto lengths = huffman::optimal_lengths(counts_list{1, 4, 0, 2, 1});
    REQUIRE(lengths == huffman::lengths{3, 1, 0, 2, 3});
    const auto codes = huffman::codes_of(lengths);
    REQUIRE(codes[1].bits == 0b0);
    REQUIRE(codes[3].bits == 0b01);   // 10, reversed
    REQUIRE(codes[0].bits == 0b011);  // 110
    REQUIRE(codes[4].bits == 0b111);
    REQUIRE_THROWS_AS(huffman::optimal_lengths(counts_list(4097, 1)), error);
    REQUIRE_FALSE(huffman::complete(huffman::lengths{1, 2}));
    REQUIRE_FALSE(huffman::complete(huffman::lengths{1, 1, 1}));
}

TEST_CASE("huffman: what is written is read, and never beyond the end", "[huffman]") {
    for (const std::size_t used : {1u, 2u, 3u, 40u, 1000u}) {
        const counts_list counts = random_counts(used, 5, 3);
        counts_list shifted(counts);
        for (auto& c : shifted) ++c;
        const auto lengths = huffman::optimal_lengths(shifted);
        const auto codes = huffman::codes_of(lengths);
        const huffman::decoder decoder(lengths, 0);
        for (const std::size_t n : {0u, 1u, 3u, 4u, 5u, 1000u}) {
            std::vector<std::uint16_t> symbols(n), read(n);
            std::uint64_t bits = 0;
            for (std::size_t i = 0; i < n; ++i) {
                symbols[i] = static_cast<std::uint16_t>(random_stream{2, 3, 4}.below(used, i));
                bits += lengths[symbols[i]];
            }
            std::vector<std::byte> bytes((bits + 7) / 8);
            huffman::writer write(bytes.data());
            for (auto s : symbols) write.put(codes[s]);
            REQUIRE(write.finish() == bytes.data() + bytes.size());
            REQUIRE(decoder.decode(bytes, static_cast<index_t>(n), read.data()) == static_cast<index_t>(bits));
            REQUIRE(read == symbols);
            if (used <= 256) {  // four at a time
                std::vector<std::uint8_t> narrow(n + 4, 255);
                std::vector<std::uint8_t> half(n / 2 + 4, 255);  // of the same stream: the two end at other times
                huffman::byte_decoder(lengths, 0)
                    .decode({bytes, static_cast<index_t>(n), narrow.data()},
                            {bytes, static_cast<index_t>(n / 2), half.data()});
                REQUIRE(std::equal(symbols.begin(), symbols.end(), narrow.begin()));
                REQUIRE(std::equal(half.begin(), half.end() - 4, narrow.begin()));
                std::vector<std::byte> again(bytes.size());
                huffman::writer put(again.data());
                put.put(narrow.data(), n, codes, again.data() + again.size());
                REQUIRE(put.finish() == again.data() + again.size());
                REQUIRE(again == bytes);
            }
            if (bits > 16) {
                bytes.resize(bytes.size() - 2);
                REQUIRE(decoder.decode(std::vector(bytes), static_cast<index_t>(n), read.data()) == -1);
            }
        }
    }
}

}  // namespace laws
