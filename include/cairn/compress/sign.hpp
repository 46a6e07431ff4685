#pragma once
// sign: C(x) = (‖x‖₁ / n) sign(x), one bit a value (signSGD with the scale of EF-SIGNSGD: Karimireddy et al., "Error
// feedback fixes SignSGD and other gradient compression schemes", ICML 2019), for each block of 1,024 values by itself:
// layers whose gradients differ in size share a bucket, and one scale for all would drown the small ones. sign(0) = +1.
//   ‖x − C(x)‖² = ‖x‖² − ‖x‖₁²/n of a block, so δ = ‖x‖₁² / (n ‖x‖²): 2/π for normal values, at least 1/n (n ≤ 1,024)
// Without error feedback it may not converge: use error_feedback<sign>, or two_phase<sign>.
// Wire format, bytes (132 for 1,024 values) and traffic: device/cpu/sign_bits.hpp. State: none.

#include <cairn/compress/codec.hpp>

namespace cairn {

struct sign_code : sign_format {
    static std::string name() { return "sign"; }
    static std::string_view stream() { return "sign"; }
    static compression_contract contract(index_t n) {
        return {.contraction = n ? 1 / static_cast<double>(std::min(n, block)) : 1};
    }
};

template <Device D = cpu>
struct sign : codec<sign_code, D> {};

}  // namespace cairn
