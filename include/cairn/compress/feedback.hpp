#pragma once
// Error feedback (Seide et al. 2014; Karimireddy et al., ICML 2019): what a compressor loses in one step is sent in the
// next.
//   x = g + e;  send C(x);  e ← x − C(x)
// Over T steps Σ sent + e_T = Σ g + e_0: nothing is lost, only late. With it, any δ-contraction converges as SGD does.
//
// State: the residual e, n floats ("residual"), zero at the start. C works on it in place: e is x until the message is
// made. Memory traffic besides C's encode: 4 reads and 1 write of 4 bytes a value, and one decode_add of C. Where a
// device has encode_with_residual for C's code (device/grid/codecs.hpp), each thread knows what it sends: one pass of
// 12 bytes a value and the message.

#include <cairn/compress/compressor.hpp>

namespace cairn {

/// C with error feedback, itself a Compressor with C's messages. Each step's gradient goes through encode once.
template <Compressor C>
class error_feedback {
public:
    using device = typename C::device;
    using D = device;

    explicit error_feedback(C inner = C{}) : inner_(std::move(inner)) {}

    std::string name() const { return concat(inner_.name(), "+ef"); }
    /// The contract of the messages: they are C's. What holds beyond one step is the sum above.
    compression_contract contract(index_t n) const {
        compression_contract c = inner_.contract(n);
        c.unbiased = false;  // of x, not of g
        return c;
    }
    index_t max_bytes(index_t n) const { return inner_.max_bytes(n); }
    const C& inner() const { return inner_; }

    void prepare(index_t n) {
        inner_.prepare(n);
        prepare_zeros(residual_, n, name());
    }

    /// On the host, on a NaN or Inf in g + e: throws, and the state is as before.
    void encode(std::span<const float> gradient, message<D>& out, const encode_step& at) {
        const auto n = static_cast<index_t>(gradient.size());
        prepare(n);
        const float* const g = gradient.data();
        float* const e = residual_.data();
        require_finite<D>(name(), gradient, at, e);
        if constexpr (requires {
                          encode_with_residual(D{}, inner_.code(), n, g, e, out.prepare(0).data(), random_stream{});
                      }) {
            encode_with_residual(D{}, inner_.code(), n, g, e, out.prepare(max_bytes(n)).data(),
                                 at.own_random(inner_.code().stream()));
        } else {
            for_each(D{}, n, functors::add{}, e, g);
            inner_.encode(residual_.span(), out, at);
            inner_.decode_add(std::as_const(out).bytes(), residual_.span(), at, -1.0f);
        }
    }
    void decode(std::span<const std::byte> bytes, std::span<float> into, const encode_step& at) const {
        inner_.decode(bytes, into, at);
    }
    void decode_add(std::span<const std::byte> bytes, std::span<float> into, const encode_step& at, float scale) const {
        inner_.decode_add(bytes, into, at, scale);
    }

    void flush_residual(std::span<float> gradient) { flush_into(residual_, gradient); }
    std::vector<compressor_tensor_on<D>> tensors() {
        std::vector<compressor_tensor_on<D>> all = inner_.tensors();
        if (!residual_.empty()) all.push_back({"residual", residual_.share()});
        return all;
    }

private:
    C inner_;
    tensor<float, D> residual_;  // (n)
};

}  // namespace cairn
