#include "catch.hpp"

#include <cairn/core/random.hpp>
#include <cairn/state/streaming_copy.hpp>

#include <string>
#include <vector>

namespace cairn::test {

TEST_CASE("streaming copy equals memcpy for all sizes and alignments") {
    std::string from(1200, ' ');
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<char>(i * 31 + 5);
    for (std::size_t shift = 0; shift < 70; shift += 3)
        for (std::size_t bytes : {0u, 1u, 63u, 64u, 65u, 255u, 256u, 300u, 319u, 320u, 512u, 999u, 1100u}) {
            std::string to(1300, '#'), expected = to;
            const memory_copy copy{to.data() + shift, from.data() + 7, bytes};
            streaming_copy({&copy, 1});
            std::memcpy(expected.data() + shift, from.data() + 7, bytes);
            REQUIRE(to == expected);
        }
}

TEST_CASE("streaming copy of many tensors at once on several threads") {
    const random_stream random{11, 0, 0};
    for (const int count : {1, 3}) {
        const threads_for_now threads(count);
        std::string from(3 << 20, ' '), to(4 << 20, '#'), expected;
        for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<char>(i * 2654435761u >> 13);
        std::vector<memory_copy> copies;
        std::size_t at = 0, room = 1;
        expected = to;
        for (std::uint64_t i = 0; at < from.size(); ++i) {  // tensors of no bytes, few bytes, and more than a chunk
            const std::size_t bytes =
                std::min<std::size_t>(from.size() - at, i % 5 == 0 ? 0 : random.below(i % 7 == 0 ? 900'000 : 3000, i));
            copies.push_back({bytes ? to.data() + room : nullptr, bytes ? from.data() + at : nullptr, bytes});
            if (bytes) std::memcpy(expected.data() + room, from.data() + at, bytes);
            at += bytes;
            room += bytes + i % 65;
            if (room + 900'000 > to.size()) break;
        }
        streaming_copy(copies);
        CHECK(to == expected);
    }
    streaming_copy({});
}

}  // namespace cairn::test
