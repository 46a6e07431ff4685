#pragma once
// sign: C(x) = (‖x‖₁ / n) sign(x), one bit a value (signSGD with the scale of EF-SIGNSGD: Karimireddy et al., "Error
// feedback fixes SignSGD and other gradient compression schemes", ICML 2019), for each block of 1,024 values by itself:
// layers whose gradients differ in size share a bucket, and one scale for all would drown the small ones. sign(0) = +1.
//   ‖x − C(x)‖² = ‖x‖² − ‖x‖₁²/n of a block, so δ = ‖x‖₁² / (n ‖x‖²): 2/π for normal values, at least 1/n, n at most
//   1,024.
// Without error feedback it may not converge: use error_feedback<sign>, or two_phase<sign>.
// Wire format, bytes (132 for 1,024 values) and traffic: sign_bits.hpp. State: none.

#include <cairn/compress/sign_bits.hpp>

#include <atomic>

namespace cairn {

class sign {
public:
    std::string name() const { return "sign"; }
    static constexpr index_t block = 1024;

    compression_contract contract(index_t n) const {
        return {.contraction = n ? 1 / static_cast<double>(std::min(n, block)) : 1};
    }
    index_t max_bytes(index_t n) const { return sign_bytes(n, block); }

    void encode(std::span<const float> values, message& out, const encode_step& at) const {
        const index_t n = static_cast<index_t>(values.size()), blocks = scale_count(n, block);
        std::byte *const target = out.prepare(sign_bytes(n, block)).data(), *const bits = target + 4 * blocks;
        std::atomic<bool> finite = true;
        parallel_for(blocks, compress_grain / block, [&](index_t begin, index_t end) {
            for (index_t b = begin; b < end; ++b) {
                const index_t count = std::min(block, n - b * block);
                const auto part = values.subspan(static_cast<std::size_t>(b * block), static_cast<std::size_t>(count));
                const magnitude_sums sums = pack_signs(part, bits + b * block / 8);
                const auto scale = static_cast<float>(sums.absolute / static_cast<double>(count));
                if (!std::isfinite(sums.absolute)) finite = false;
                std::memcpy(target + 4 * b, &scale, 4);
            }
        });
        if (!finite) require_finite(name(), values, at);
    }
    void decode(std::span<const std::byte> bytes, std::span<float> into, const encode_step&) const {
        decode_signs("sign", bytes, into, assign{}, block);
    }
    void decode_add(std::span<const std::byte> bytes, std::span<float> into, const encode_step&, float scale) const {
        decode_signs("sign", bytes, into, add_scaled{scale}, block);
    }
};

}  // namespace cairn
