#pragma once
// Compressors' messages made and read on a grid device, in device memory: the formats of the compressors' own files,
// byte for byte, with the same random bits, so that a host reads what a device has made and the other way round.
// Nothing is copied to the host and nothing waits.
//
//   encode_on(cuda{}, natural{}, n, values, out, at);             // out: max_bytes(n) bytes
//   decode_add_on(cuda{}, natural{}, n, out, into, at, scale);    // into[i] += scale · decoded value
//   device_error_feedback<natural, cuda> c;  c.encode(n, gradient, out, at);
//
// For bf16, fp16, bf16_stochastic, fp16_stochastic, natural, sign, qsgd. `values`, `gradient` and `into` may begin at
// any float: 16 bytes are moved at a time where their address is a multiple of that. Messages begin at a multiple of 4
// bytes; of 8 is faster for casts.
//
// Equal bytes: casts and natural always. sign and qsgd sum magnitudes and squares in double, but in another order than
// the host does: the last bit of a scale or norm may differ. qsgd's ξ may then differ by 1 where it is within a
// rounding of the next one, also where only one of the two compilers makes a product and a sum one operation. For the
// last reason decode_add_on may differ from decode_add by a rounding.
//
// Bytes a value, each moved once (m: those of the message; sums never leave registers, random words never shared
// memory):
//   encode 4 + m, decode_add 8 + m, device_error_feedback's encode 12 + m: it reads gradient and residual once and
//   writes the residual once
//   m = 2 casts, 1.125 natural, 0.129 sign, 0.53 qsgd of 7 levels
//
// NaN and Inf: no error is thrown here; the caller looks for them before. Otherwise, casts pass them on; natural sends
// ±2^127 (a NaN as +); sign sends a block's scale as NaN or Inf, qsgd a bucket's norm as NaN with codes of 0: the host
// refuses both, decode_add_on adds them.
// With error feedback what must be finite is gradient + residual: else a value of a cast, a block of sign, a bucket of
// qsgd loses its residual for good. Messages are not checked: they come from an encoder. Random numbers are drawn for
// the step of the call: not inside a recording (core/captured_graph.hpp). One thread makes all calls of an object, or
// somebody waits between two threads' (core/event.hpp).

#include <cairn/compress/device_formats.hpp>
#include <cairn/core/flop_counter.hpp>

namespace cairn {

/// A compressor whose messages D makes and reads.
template <class C, class D>
concept CompressorOn = GridDevice<D> && requires(D d, const C& c, index_t n, grid::values_alone values,
                                                 std::uint8_t* bytes, float* into, const encode_step& at) {
    grid::encode(d, c, values, n, bytes, at);
    grid::decode_add(d, c, n, bytes, into, 1.0f);
};

namespace grid {

template <class C>
void require_place(const C& c, const std::byte* bytes) {
    if (!aligned_as<float>(bytes)) [[unlikely]]
        fail(c.name(), " on a device: a message must begin at a multiple of 4 bytes");
}

}  // namespace grid

/// The message of n values to `out`, max_bytes(n) bytes.
template <class D, CompressorOn<D> C>
void encode_on(D d, const C& compressor, index_t n, const float* values, std::byte* out, const encode_step& at) {
    grid::require_place(compressor, out);
    flop_counter::count(0, 4.0 * static_cast<double>(n) + static_cast<double>(compressor.max_bytes(n)));
    if (n > 0) grid::encode(d, compressor, grid::values_alone{values}, n, reinterpret_cast<std::uint8_t*>(out), at);
}

/// into[i] += scale · decoded value i of a message of n values.
template <class D, CompressorOn<D> C>
void decode_add_on(D d, const C& compressor, index_t n, const std::byte* bytes, float* into, const encode_step&,
                   float scale) {
    grid::require_place(compressor, bytes);
    flop_counter::count(0, 8.0 * static_cast<double>(n) + static_cast<double>(compressor.max_bytes(n)));
    if (n > 0) grid::decode_add(d, compressor, n, reinterpret_cast<const std::uint8_t*>(bytes), into, scale);
}

/// C with error feedback, as error_feedback<C> on the host, its residual in device memory. One pass: each thread knows
/// what it sends.
template <class C, GridDevice D>
    requires CompressorOn<C, D>
class device_error_feedback {
public:
    explicit device_error_feedback(C inner = C{}) : inner_(std::move(inner)) {}

    const C& inner() const { return inner_; }
    index_t max_bytes(index_t n) const { return inner_.max_bytes(n); }

    /// Makes the residual of a bucket of n values, zeros, if there is none.
    void prepare(index_t n) {
        if (residual_.empty()) residual_ = tensor<float, D>::zeros({n}, memory_category::communication);
        require(residual_.size() == n, inner_.name(), "+ef: a bucket of ", n, " values after one of ", residual_.size(),
                "; each bucket needs a compressor of its own");
    }

    /// The message of gradient + residual; the residual becomes what it leaves out.
    void encode(index_t n, const float* gradient, std::byte* out, const encode_step& at) {
        grid::require_place(inner_, out);
        prepare(n);
        flop_counter::count(0, 12.0 * static_cast<double>(n) + static_cast<double>(inner_.max_bytes(n)));
        if (n > 0)
            grid::encode(D{}, inner_, grid::values_with_residual{gradient, residual_.data()}, n,
                         reinterpret_cast<std::uint8_t*>(out), at);
    }

    /// gradient += residual, which is zero then: before a step that is sent dense.
    void flush_residual(index_t n, float* gradient) { flush_into(residual_, n, gradient); }

    /// As error_feedback's, in device memory.
    std::vector<compressor_tensor_on<D>> tensors() {
        std::vector<compressor_tensor_on<D>> all;
        if (!residual_.empty()) all.push_back({"residual", residual_.share()});
        return all;
    }

private:
    C inner_;
    tensor<float, D> residual_;  // (n)
};

}  // namespace cairn
