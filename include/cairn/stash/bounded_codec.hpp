#pragma once
// Error-bounded codec of activations: |x − x̂| ≤ bound for every value, always; the error is uniform and independent of
// x. In blocks of 8192 elements, packed and unpacked in parallel:
//   zeros     where many elements are 0, one bit each says which: they stay 0 and have no symbol. A ReLU has left these
//             bits with its own layer: then they are shared
//   masked    elements whose gradient an activation function masks get `masked_bound`, and a stream of their own
//   symbols   q, the quantised values, by planes of bits (device/packed_symbols.hpp), or by a Huffman code for each
//             stream (compress/huffman.hpp), on the host alone
//   escapes   values that no symbol fits, in full
// `normalise`: bounds are in units of each channel's deviation, of 1e-6 at least, as batch norm's backward sees its
// input.
//
// Of each block: symbols of the fine stream, its escapes in full, then the same of the other stream. By planes, the
// bytes are the same on every device.

#include <cairn/stash/bounded_activation.hpp>
#include <cairn/stash/bounded_activation_on_grid.hpp>

#include <cmath>

namespace cairn {

struct bounded_codec_config {
    float bound = 1e-3f;      // of the error, above 0
    float masked_bound = 0;   // where the gradient is masked; 0: the same
    bool normalise = false;   // bounds × the deviation of each channel, the last axis
    bool huffman = true;      // else planes of bits: larger, and faster
    double zeros_from = 0.1;  // share of zeros from which they get a bit each
};

/// See the top of the file.
template <Device D = cpu>
class bounded_codec : public activation_codec<D> {
public:
    using config = bounded_codec_config;
    explicit bounded_codec(config c) : config_(c) {
        require(c.bound > 0 && std::isfinite(c.bound), "error-bounded codec: bound ", c.bound,
                "; it must be above 0: without error, activations are kept, or packed without loss");
        require(c.masked_bound >= 0 && std::isfinite(c.masked_bound), "error-bounded codec: masked bound ",
                c.masked_bound);
    }

    std::unique_ptr<packed_activation<D>> pack(const tensor<float, D>& x, const pack_hints<D>& hints) const override {
        const bool two_bounds = hints.gradient_mask && config_.masked_bound > 0;
        detail::bounded_input<D> how{.bounds = {two_bounds ? config_.masked_bound : config_.bound, config_.bound},
                                     .random = hints.random,
                                     .first_element = hints.first_element,
                                     .huffman = config_.huffman};
        if (two_bounds) {
            how.kinds = hints.gradient_mask->share();
        } else {
            detail::zero_pattern<D> found = detail::zeros_of(x, hints.zero_masks);
            if (double(x.size() - found.non_zero) > config_.zeros_from * double(x.size())) {
                if (!found.same) how.own_mask_bytes = found.bits.bytes();
                how.zeros = found.same ? found.same->share() : std::move(found.bits);
            }
        }
        if (config_.normalise) how.moments = detail::moments_of(x);
        return std::make_unique<detail::bounded_activation<D>>(x, std::move(how));
    }

    std::string describe() const override {
        return concat("error-bounded ", config_.bound, config_.normalise ? " deviations" : "",
                      config_.huffman ? "" : ", planes");
    }

private:
    config config_;
};

}  // namespace cairn
