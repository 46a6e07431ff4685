#include "catch.hpp"

#include <cairn/device/cpu/philox.hpp>

namespace cairn {

TEST_CASE("philox_lanes: the bits of the scalar generator, words apart by the stride", "[philox]") {
    for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{0xfedcba9876543210}})
        for (const std::uint64_t first :
             {std::uint64_t{0}, std::uint64_t{12345}, std::uint64_t{0xfffffffc}, std::uint64_t{1} << 40}) {
            const random_stream random{seed, 0x80000001u, 0xffffffffu};
            for (const int stride : {8, 16}) {
                std::uint32_t bits[4 * 16] = {};
                philox_lanes(random).blocks(first, bits, stride);
                for (std::uint64_t i = 0; i < 8; ++i)
                    for (std::size_t w = 0; w < 4; ++w)
                        CHECK(bits[w * static_cast<std::size_t>(stride) + i] == random.bits4(first + i)[w]);
            }
        }
}

}  // namespace cairn
