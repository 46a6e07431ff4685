#pragma once
// Error-bounded codec of activations: |x − x̂| ≤ bound for every value, always; the error is uniform and independent of
// x (device/cpu/dithered_quantiser.hpp). In blocks of 8192 elements, packed and unpacked in parallel:
//   zeros     where many elements are 0, one bit each says which: they stay 0 and have no symbol. A ReLU has left these
//             bits with its own layer: then they are shared
//   masked    elements whose gradient an activation function masks get `masked_bound`, and a stream of their own
//   symbols   q, the quantised values, by planes of bits (device/cpu/byte_planes.hpp), or by a Huffman code for each
//             stream (compress/huffman.hpp)
//   escapes   values that no symbol fits, in full
// `normalise`: bounds are in units of each channel's deviation, as batch norm's backward sees its input.
//
// Of each block: symbols of the fine stream, its escapes in full, then the same of the other stream.

#include <cairn/stash/bounded_activation.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace cairn {

/// See the top of the file.
class bounded_codec : public activation_codec {
public:
    struct config {
        float bound = 1e-3f;      // of the error, above 0
        float masked_bound = 0;   // where the gradient is masked; 0: the same
        bool normalise = false;   // bounds × the deviation of each channel, the last axis
        bool huffman = true;      // else planes of bits: larger, and faster
        double zeros_from = 0.1;  // share of zeros from which they get a bit each
    };

    explicit bounded_codec(config c) : config_(c) {
        require(c.bound > 0 && std::isfinite(c.bound), "error-bounded codec: bound ", c.bound,
                "; it must be above 0: without error, activations are kept, or packed without loss");
        require(c.masked_bound >= 0 && std::isfinite(c.masked_bound), "error-bounded codec: masked bound ",
                c.masked_bound);
    }

    std::unique_ptr<packed_activation> pack(const tensor<float>& x, const pack_hints& hints) const override {
        const bool two_bounds = hints.gradient_mask && config_.masked_bound > 0;
        tensor<std::uint8_t> zeros, kinds;
        index_t own = 0;
        if (two_bounds) {
            kinds = hints.gradient_mask->share();
        } else {
            tensor<std::uint8_t> bits = detail::non_zero_bits(x);
            if (double(x.size() - detail::count_bits(bits)) > config_.zeros_from * double(x.size())) {
                const auto same = std::ranges::find_if(hints.zero_masks, [&](const tensor<std::uint8_t>* other) {
                    return other->size() == bits.size() &&
                           std::memcmp(other->data(), bits.data(), static_cast<std::size_t>(bits.size())) == 0;
                });
                if (same == hints.zero_masks.end()) own = bits.bytes();
                zeros = same == hints.zero_masks.end() ? std::move(bits) : (*same)->share();
            }
        }
        detail::channel_moments m{{0}, {1}};
        if (config_.normalise) m = detail::moments_of(x);
        return std::make_unique<detail::bounded_activation>(
            x,
            dithered_quantiser({two_bounds ? config_.masked_bound : config_.bound, config_.bound}, m.mean, m.deviation,
                               hints.random, hints.first_element),
            std::move(zeros), own, std::move(kinds), config_.huffman);
    }

    std::string describe() const override {
        return concat("error-bounded ", config_.bound, config_.normalise ? " deviations" : "",
                      config_.huffman ? "" : ", planes");
    }

private:
    config config_;
};

}  // namespace cairn
