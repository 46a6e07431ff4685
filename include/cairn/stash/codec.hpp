#pragma once
// Codecs of activations: what a tensor becomes between forward and backward.
//   pack(x, hints)    → packed_activation; x may be overwritten or let go afterwards
//   unpack()          → a tensor of x's shape; how far from x, the codec says
// Laws that every codec satisfies: tests/stash/codec_laws.hpp.

#include <cairn/core/random.hpp>
#include <cairn/core/tensor.hpp>

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
    random_stream random{};  // of this layer, slot and step
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

/// Bytes of the pool that wait for backward.
class packed_block {
public:
    explicit packed_block(index_t n) : t_({n}) { t_.hold(); }
    ~packed_block() { t_.let_go(); }
    packed_block(const packed_block&) = delete;
    packed_block& operator=(const packed_block&) = delete;
    std::uint8_t* data() { return t_.data(); }
    const std::uint8_t* data() const { return t_.data(); }
    index_t size() const { return t_.size(); }

private:
    tensor<std::uint8_t> t_;
};

/// A share in bits that another slot holds as well, or bits of one's own.
class saved_mask {
public:
    saved_mask() = default;
    explicit saved_mask(tensor<std::uint8_t> bits) : t_(std::move(bits)) { t_.hold(); }
    ~saved_mask() { t_.let_go(); }
    saved_mask(saved_mask&&) noexcept = default;
    saved_mask& operator=(saved_mask&& other) noexcept {
        t_.let_go();
        t_ = std::move(other.t_);
        return *this;
    }
    explicit operator bool() const { return !t_.empty(); }
    /// Bits of elements i to i + 32, i a multiple of 32; zeros behind the last.
    std::uint32_t word(index_t i) const {
        std::uint32_t bits = 0;
        std::memcpy(&bits, t_.data() + i / 8, static_cast<std::size_t>(std::min<index_t>(4, t_.size() - i / 8)));
        return bits;
    }

private:
    tensor<std::uint8_t> t_;
};

}  // namespace cairn
