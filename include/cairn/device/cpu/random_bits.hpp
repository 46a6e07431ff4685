#pragma once
// Randomness of compressors that round stochastically: 16 bits a value, from Philox blocks side by side, so that packs
// of bits need no shuffling. A probability is then a multiple of 2^-16; users add half a unit, which leaves a bias of
// at most 2^-17 of a rounding step.
//   bits of value i of group g = half (i/16 mod 2) of word (i/32) of Philox block 16 g + i mod 16,   0 ≤ i < 128
// Tested against the scalar philox() of core/random.hpp.

#include <cairn/device/codes.hpp>
#include <cairn/device/cpu/philox.hpp>

namespace cairn {

class group_bits {
public:
    explicit group_bits(const random_stream& random) : lanes_(random) {}

    /// 16 random bits in the low half of r[i], for the 128 values of a group.
    [[gnu::always_inline]] void fill(index_t group, std::uint32_t* r) const {
        std::uint32_t words[64];
        lanes_.blocks(static_cast<std::uint64_t>(group) * 16, words, 16);
        lanes_.blocks(static_cast<std::uint64_t>(group) * 16 + 8, words + 8, 16);
        for (int w = 0; w < 4; ++w) {
#pragma omp simd
            for (int j = 0; j < 16; ++j) {
                r[w * 32 + j] = words[w * 16 + j] & 0xffffu;
                r[w * 32 + 16 + j] = words[w * 16 + j] >> 16;
            }
        }
    }

private:
    philox_lanes lanes_;
};

}  // namespace cairn
