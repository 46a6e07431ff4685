#pragma once
// sign: C(x) = (‖x‖₁ / n) sign(x), one bit a value (signSGD with the scale of EF-SIGNSGD: Karimireddy et al., "Error feedback
// fixes SignSGD and other gradient compression schemes", ICML 2019). sign(0) = +1.
//   ‖x − C(x)‖² = ‖x‖² − ‖x‖₁²/n, so δ = ‖x‖₁² / (n ‖x‖²): 2/π for normal values, at least 1/n.
// Without error feedback it may not converge: use error_feedback<sign>.
// Wire format, bytes and traffic: sign_bits.hpp. State: none.

#include <cairn/compress/sign_bits.hpp>

namespace cairn {

class sign {
public:
    std::string name() const { return "sign"; }
    compression_contract contract(index n) const { return {.contraction = n ? 1 / static_cast<double>(n) : 1}; }
    index max_bytes(index n) const { return sign_bytes(n); }

    void encode(std::span<const float> values, message& out, const encode_step& at) const {
        const index n = static_cast<index>(values.size());
        std::byte* const target = out.prepare(sign_bytes(n)).data();
        if (n == 0) return;
        const magnitude_sums sums = pack_signs(values, target + 4);
        if (!std::isfinite(sums.absolute)) require_finite(name(), values, at);
        const auto scale = static_cast<float>(sums.absolute / static_cast<double>(n));
        std::memcpy(target, &scale, 4);
    }
    void decode(std::span<const std::byte> bytes, std::span<float> into, const encode_step&) const {
        decode_signs("sign", bytes, into, assign{});
    }
    void decode_add(std::span<const std::byte> bytes, std::span<float> into, const encode_step&, float scale) const {
        decode_signs("sign", bytes, into, add_scaled{scale});
    }
};

}  // namespace cairn
