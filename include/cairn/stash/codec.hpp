#pragma once
// Codecs of activations: what a tensor becomes between forward and backward.
//   pack(x, hints)    → packed_activation; x may be overwritten or let go afterwards
//   unpack()          → a tensor of x's shape; how far from x, the codec says
// Laws that every codec satisfies: tests/stash/codec_test.cpp.

#include <cairn/core/random.hpp>
#include <cairn/nn/saved_tensors.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>

namespace cairn {

/// An activation in packed form. Its memory counts as memory_category::saved.
struct packed_activation {
    virtual ~packed_activation() = default;
    virtual tensor<float> unpack() const = 0;
    /// Of the pool, shared masks left out.
    virtual index_t bytes() const = 0;
};

/// What a policy knows beside x.
struct pack_hints {
    random_stream random{};           // of this layer, slot and step
    std::uint64_t first_element = 0;  // which number of that stream is element 0's: that of the batch of all ranks
    // Bits of the same layer, one an element: where they are 0 the gradient is masked, and x matters less. Or null.
    const tensor<std::uint8_t>* gradient_mask = nullptr;
    // Bits that other slots hold: one that says where x is not 0 need not be stored again.
    std::span<const tensor<std::uint8_t>* const> zero_masks{};
};

struct activation_codec {
    virtual ~activation_codec() = default;
    virtual std::unique_ptr<packed_activation> pack(const tensor<float>& x, const pack_hints& hints) const = 0;
    /// For example "error-bounded 1e-3".
    virtual std::string describe() const = 0;
};

/// Bytes that wait for backward.
using waiting_bytes = detail::saved_tensor<std::uint8_t, cpu>;

/// Bits i to i + 32 of an activation function's or a codec's mask, i a multiple of 32; zeros behind the last.
inline std::uint32_t mask_word(const tensor<std::uint8_t>& bits, index_t i) {
    std::uint32_t word = 0;
    std::memcpy(&word, bits.data() + i / 8, static_cast<std::size_t>(std::min<index_t>(4, bits.size() - i / 8)));
    return word;
}

}  // namespace cairn
