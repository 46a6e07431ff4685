// Codecs of activations on a phantom rank: the work and memory of a real one where the size does not depend on numbers,
// a declared size where it does, and no element touched.

#include "phantom_run.hpp"

#include <cairn/stash/bounded_codec.hpp>
#include <cairn/stash/simple_codecs.hpp>

TEST_CASE("phantom: codecs of activations announce their work and touch nothing", "[phantom]") {
    using namespace cairn;
    const auto check = [](const activation_codec<cpu>& codec, bool fixed) {
        test::phantom_is_real(
            codec.describe(),
            [&] {
                const auto x = test::some({300, 1100});
                const auto mask = test::some<std::uint8_t>({simd::mask_bytes<float>(x.size())});
                const auto packed = codec.pack(x, {.gradient_mask = &mask});
                CHECK(packed->bytes() < x.bytes());
                CHECK(packed->unpack().shape() == x.shape());
            },
            fixed);
    };
    check(bf16_codec<>{}, true);
    check(group_codec<>(3), true);
    for (const bool huffman : {false, true})
        for (const bool normalise : {false, true}) {
            check(bounded_codec<>({.bound = 0.1f, .normalise = normalise, .huffman = huffman}), false);
            check(bounded_codec<>({.bound = 0.1f, .masked_bound = 0.2f, .huffman = huffman}), false);
        }
}
