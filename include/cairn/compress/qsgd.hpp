#pragma once
// QSGD (Alistarh et al., NeurIPS 2017, section 3.1): in buckets of 128 values, each with its norm,
//   x̂_i = ‖x‖₂ · sign(x_i) · ξ_i / s,   ξ_i = ⌊s |x_i| / ‖x‖₂ + u_i⌋,  u_i uniform in [0, 1)
// so that E x̂ = x and E‖x̂ − x‖² ≤ min(128/s², √128/s) ‖x‖². u has 16 random bits: a bias of 2^-17 of a level.
//
// Wire, for each bucket of m ≤ 128: | ‖x‖₂, 4 bytes | m codes of b = 1 + ⌈log₂(s+1)⌉ bits: ξ, sign on top |,
// by planes (device/cpu/bit_planes.hpp). Bytes: 4 ⌈n/128⌉ + the planes; 4.25 bits a value for s = 7. State: none.
// Traffic: the bucket once.

#include <cairn/compress/codec.hpp>

namespace cairn {

struct qsgd_levels : qsgd_code {
    std::string name() const { return concat("qsgd", levels); }
    static std::string_view stream() { return "qsgd"; }
    compression_contract contract(index_t n) const {
        const double m = static_cast<double>(std::min(n, plane_group)), s = levels;
        const double variance = std::min(m / (s * s), std::sqrt(m) / s);
        return {.unbiased = true, .deterministic = false, .contraction = 1 - variance, .variance = variance};
    }
};

struct qsgd_config {
    int levels = 7;  // s, 1 … 255; 2^j − 1 wastes no code
};

template <Device D = cpu>
struct qsgd : codec<qsgd_levels, D> {
    using config = qsgd_config;
    explicit qsgd(config c = {})
        : codec<qsgd_levels, D>(
              qsgd_levels{{c.levels, 1 + static_cast<int>(std::bit_width(static_cast<unsigned>(c.levels)))}}) {
        require(c.levels >= 1 && c.levels <= 255, "qsgd: ", c.levels, " levels, expected 1 to 255");
    }
};

}  // namespace cairn
