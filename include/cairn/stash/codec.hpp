#pragma once
// Codecs of activations: the form of a tensor between forward and backward.
//   pack(x, hints)    → packed_activation; x may be overwritten or let go afterwards
//   unpack()          → a tensor of x's shape; how far from x, the codec says
// On a device (D) activations are packed there, into its memory. Laws: tests/stash/codec_test.cpp, on devices
// tests/device/cuda/stash_laws.hpp.

#include <cairn/core/random.hpp>
#include <cairn/nn/saved_tensors.hpp>

#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace cairn {

/// Bytes that wait for backward.
template <Device D = cpu>
using waiting_bytes = detail::saved_tensor<std::uint8_t, D>;

/// An activation in packed form. Its memory counts as memory_category::saved.
template <Device D = cpu>
class packed_activation {
public:
    virtual ~packed_activation() = default;
    virtual tensor<float, D> unpack() const = 0;
    /// Of the pool, shared masks left out.
    virtual index_t bytes() const { return body_.get().size(); }
    /// Its parts, without masks.
    const tensor<std::uint8_t, D>& body() const { return body_.get(); }

protected:
    explicit packed_activation(const shape& s, tensor<std::uint8_t, D> body = {}) : shape_(s), body_(std::move(body)) {}

    shape shape_;
    waiting_bytes<D> body_;
};

/// A policy's knowledge of x.
template <Device D = cpu>
struct pack_hints {
    random_stream random{};           // of this layer, slot and step
    std::uint64_t first_element = 0;  // which number of that stream is element 0's: that of the batch of all ranks
    // Bits of the same layer, one an element: where they are 0 the gradient is masked, and x matters less. Or null.
    const tensor<std::uint8_t, D>* gradient_mask = nullptr;
    // Bits that other slots hold: one that says where x is not 0 need not be stored again.
    std::span<const tensor<std::uint8_t, D>* const> zero_masks{};
};

/// A device may wait within pack(): where the size of what is packed follows from x.
template <Device D = cpu>
struct activation_codec {
    virtual ~activation_codec() = default;
    virtual std::unique_ptr<packed_activation<D>> pack(const tensor<float, D>& x, const pack_hints<D>& hints) const = 0;
    /// For example "error-bounded 1e-3".
    virtual std::string describe() const = 0;
};

/// Throws, naming the first element of x that is not finite.
template <Device D>
[[noreturn]] void fail_of_not_finite(const tensor<float, D>& x) {
    const tensor<float> values = host_side(x);
    index_t i = 0;
    while (i + 1 < x.size() && std::isfinite(values[i])) ++i;
    fail("an activation is ", values[i], " (element ", i, " of ", x.shape(), ')');
}

}  // namespace cairn
