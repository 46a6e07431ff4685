#pragma once
// The all-reduce of 1-bit Adam and 1-bit LAMB (Tang et al., ICML 2021; Li et al. 2021): C(x) = (‖x‖₂ / √n) sign(x), one
// bit a value, over the two exchanges of two_phase.hpp with error feedback of workers and servers. sign(0) = +1.
// C keeps the norm, but is no contraction: ‖x − C(x)‖² = 2‖x‖² − 2‖x‖₁‖x‖₂/√n, twice ‖x‖² where few values carry the
// norm. What is reduced should be dense: the momentum, after 15 to 20 % of the steps, with a variance that is frozen
// from then on. Momenta that are always zero are to be masked by the caller, or noise of ±scale enters them.
// One scale a chunk (the paper has one a worker). Wire format, bytes and traffic: device/cpu/sign_bits.hpp.

#include <cairn/compress/two_phase.hpp>
#include <cairn/device/cpu/sign_bits.hpp>

namespace cairn {

/// C alone, on the host.
class onebit : public stateless<cpu> {
public:
    std::string name() const { return "onebit"; }
    compression_contract contract(index_t) const { return {.contraction = -1}; }
    index_t max_bytes(index_t n) const { return sign_bytes(n); }

    void encode(std::span<const float> values, message<>& out, const encode_step& at) const {
        const index_t n = static_cast<index_t>(values.size());
        std::byte* const target = out.prepare(sign_bytes(n)).data();
        if (n == 0) return;
        const magnitude_sums sums = pack_signs(values, target + 4);
        if (!std::isfinite(sums.absolute)) require_finite(name(), values, at);
        const auto scale = static_cast<float>(std::sqrt(sums.squared / static_cast<double>(n)));
        cpu::copy_within(target, &scale, 4);
    }
    void decode(std::span<const std::byte> bytes, std::span<float> into, const encode_step&) const {
        decode_signs("onebit", bytes, into, assign{});
    }
    void decode_add(std::span<const std::byte> bytes, std::span<float> into, const encode_step&, float scale) const {
        decode_signs("onebit", bytes, into, add_scaled{scale});
    }
};

/// The whole scheme.
using onebit_all_reduce = two_phase<onebit>;

}  // namespace cairn
