#pragma once
// Error feedback (Seide et al. 2014; Karimireddy et al., ICML 2019): what a compressor loses in one step is sent in the next.
//   x = g + e;  send C(x);  e ← x − C(x)
// Over T steps Σ sent + e_T = Σ g + e_0: nothing is lost, only late. With it, any δ-contraction converges as SGD does.
//
// State: the residual e, n floats ("residual"), zero at the start. Scratch: x, n floats.
// Memory traffic beside C's: 5 reads and writes of 4 bytes a value, and one decode_add of C.

#include <cairn/compress/compressor.hpp>

namespace cairn {

/// C with error feedback, itself a Compressor with C's messages. Each step's gradient goes through encode once.
template <Compressor C>
class error_feedback {
public:
    explicit error_feedback(C inner = C{}) : inner_(std::move(inner)) {}

    std::string name() const { return concat(inner_.name(), "+ef"); }
    /// The contract of the messages: they are C's. What holds beyond one step is the sum above.
    compression_contract contract(index n) const {
        compression_contract c = inner_.contract(n);
        c.unbiased = false;  // of x, not of g
        return c;
    }
    index max_bytes(index n) const { return inner_.max_bytes(n); }
    const C& inner() const { return inner_; }

    void prepare(index n) {
        prepare_state(inner_, n);
        if (residual_.empty()) {
            residual_ = tensor<float>::zeros({n}, category::communication);
            corrected_ = tensor<float>({n}, category::communication);
        }
        require(residual_.size() == n, name(), ": a bucket of ", n, " values after one of ", residual_.size(),
                "; each bucket needs a compressor of its own");
    }

    /// The state is as before if C throws.
    void encode(std::span<const float> gradient, message& out, const encode_step& at) {
        const index n = static_cast<index>(gradient.size());
        prepare(n);
        const float* const g = gradient.data();
        float *const x = corrected_.data(), *const e = residual_.data();
        parallel_for(n, compress_grain, [=](index begin, index end) {
#pragma omp simd
            for (index i = begin; i < end; ++i) x[i] = g[i] + e[i];
        });
        require_finite(name(), corrected_.span(), at);
        inner_.encode(corrected_.span(), out, at);
        inner_.decode_add(std::as_const(out).bytes(), corrected_.span(), at, -1.0f);
        parallel_for(n, compress_grain, [=](index begin, index end) { std::copy(x + begin, x + end, e + begin); });
    }
    void decode(std::span<const std::byte> bytes, std::span<float> into, const encode_step& at) const {
        inner_.decode(bytes, into, at);
    }
    void decode_add(std::span<const std::byte> bytes, std::span<float> into, const encode_step& at, float scale) const {
        inner_.decode_add(bytes, into, at, scale);
    }

    std::vector<compressor_tensor> tensors() {
        std::vector<compressor_tensor> all = tensors_of(inner_);
        if (!residual_.empty()) all.push_back({"residual", residual_.share()});
        return all;
    }

private:
    C inner_;
    tensor<float> residual_, corrected_;  // (n)
};

}  // namespace cairn
