#pragma once
// A digest of a tensor that adds up over pieces, hence the same on every mesh:
//   d(T) = Σᵢ (bitsᵢ + 1) · K[i mod 1024] · M^⌊i/1024⌋ mod 2⁶⁴
// i: position in the whole tensor; bitsᵢ: the element as an unsigned number of 32 bits (those of 64 bits are two, low
// half first; smaller ones are widened); K: odd numbers of 32 bits from SplitMix64 (Steele et al. 2014) of seed 0;
// M = 0x9E3779B97F4A7C15. All factors are odd: one changed bit always shows. Linear, so it finds accidents, not
// attackers. Tested against the formula, over random splits, and by flipping bits.

#include <cairn/core/error.hpp>
#include <cairn/core/random.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace cairn {

namespace detail {

inline constexpr std::uint64_t digest_block = 1024, digest_base = 0x9E3779B97F4A7C15u;

/// The output function of SplitMix64: a permutation whose output bits depend on all input bits.
constexpr std::uint64_t splitmix(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/// K: the high halves of the first 1024 numbers of SplitMix64, made odd.
inline constexpr auto digest_factors = [] {
    std::array<std::uint32_t, digest_block> k{};
    for (std::uint64_t i = 0; i < digest_block; ++i)
        k[i] = static_cast<std::uint32_t>(splitmix((i + 1) * 0x9E3779B97F4A7C15u) >> 32) | 1;
    return k;
}();

/// Σ (bits + 1) · K over `count` consecutive words from `data`, at any alignment; k: factor of the first.
template <class Word>
std::uint64_t digest_words(const char* data, std::uint64_t count, const std::uint32_t* k) {
    std::uint64_t sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::uint64_t i = 0; i < count; ++i) {
        Word word;
        std::memcpy(&word, data + i * sizeof word, sizeof word);
        sum += std::uint64_t{word} * k[i] + k[i];
    }
    return sum;
}

}  // namespace detail

/// Adds up the digest of one tensor, or of a part of it.
class tensor_digest {
public:
    /// `count` elements of `element_bytes` (1, 2, 4 or 8) each from `data`, which in the whole tensor follow each other
    /// from position `first` on, too. Cheapest where `first` grows from call to call.
    void add(const void* data, std::size_t element_bytes, std::uint64_t first, std::uint64_t count) {
        const auto* bytes = static_cast<const char*>(data);
        switch (element_bytes) {
            case 1:
                return add_words<std::uint8_t>(bytes, first, count);
            case 2:
                return add_words<std::uint16_t>(bytes, first, count);
            case 4:
                return add_words<std::uint32_t>(bytes, first, count);
            case 8:
                return add_words<std::uint32_t>(bytes, 2 * first, 2 * count);
            default:
                fail("digest: elements of ", element_bytes, " bytes; 1, 2, 4 and 8 are known");
        }
    }

    std::uint64_t value() const { return sum_; }

private:
    template <class Word>
    void add_words(const char* data, std::uint64_t first, std::uint64_t count) {
        while (count > 0) {
            const std::uint64_t in_block = first % detail::digest_block;
            const std::uint64_t n = std::min(count, detail::digest_block - in_block);
            const std::uint64_t sum = detail::digest_words<Word>(data, n, detail::digest_factors.data() + in_block);
            sum_ += sum * power_of(first / detail::digest_block);
            data += n * sizeof(Word);
            first += n;
            count -= n;
        }
    }

    /// M^block, by squaring from the block before.
    std::uint64_t power_of(std::uint64_t block) {
        if (block < block_) block_ = 0, power_ = 1;
        std::uint64_t square = detail::digest_base;
        for (std::uint64_t left = block - block_; left > 0; left >>= 1, square *= square)
            if (left & 1) power_ *= square;
        block_ = block;
        return power_;
    }

    std::uint64_t sum_ = 0, block_ = 0, power_ = 1;  // power_ = M^block_
};

/// What a tensor called `name` contributes to the digest of a state, which is the sum over its tensors in any order.
inline std::uint64_t named_digest(std::string_view name, std::uint64_t digest) {
    return detail::splitmix(path_hash(name) + detail::splitmix(digest));
}

}  // namespace cairn
