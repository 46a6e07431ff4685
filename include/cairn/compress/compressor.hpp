#pragma once
// The seam of gradient compression. A compressor turns the n floats of a gradient bucket, in the memory of its device
// D, into a message there, and a message back into n floats:
//   c.prepare(n);                            // makes all memory: later calls may come from a thread that may make none
//   c.encode(values, out, at);               // out: the bytes that travel, nothing else does
//   c.decode(out.bytes(), into, at);         // into[i] = decoded value
//   c.decode_add(out.bytes(), into, at, s);  // into[i] += s · decoded value: a mean over ranks adds with s = 1/ranks
// It is one text over D: template <Device D = cpu> class topk. What depends on the device is a kernel, a free function
// with D's tag (device/cpu/codecs.hpp, select.hpp, low_rank.hpp; device/cuda has the same, to be included where a
// compressor is made for such a device). contract(n) says what may be relied on; the laws of every compressor test it
// (tests/compress/compressor_laws.hpp).
//
// One object serves one bucket: prepare sizes its state, encode calls it too, and a checkpoint keeps the state
// (tensors). Each file's head gives the wire format; all numbers are little-endian; max_bytes(n) is the format's
// arithmetic. n = 0 is a bucket like any other. The same (values, state, at) give the same bits, whatever the number
// of threads.
//
// On the host, encode of a NaN or Inf throws an error that names the element, and the parameter where at.layout is
// given, and leaves state as it was, so that the caller may skip the step on all ranks; only casts (bf16, fp16) pass
// them on. decode of a message that is cut short, too long or damaged throws an error that names the byte; it never
// reads or writes outside the message and `into`.
// On other devices nothing waits: the caller looks for NaN and Inf before, and messages come from an encoder.
//
// Schemes that need an exchange in the middle know no communicator: they are handed a function, see powersgd.hpp
// (ReducingCompressor) and two_phase.hpp.

#include <cairn/core/error.hpp>
#include <cairn/core/for_each.hpp>
#include <cairn/core/message_reader.hpp>
#include <cairn/core/random.hpp>
#include <cairn/core/tensor.hpp>
#include <cairn/device/codes.hpp>
#include <cairn/device/cpu/reduce.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace cairn {

/// A parameter's elements in a bucket.
struct bucket_slice {
    std::string name;
    index_t offset = 0;
    cairn::shape shape;
};
/// The parameters of a bucket by rising offset. Gaps between them hold zeros.
using bucket_layout = std::vector<bucket_slice>;

/// Arguments of an encoding besides the values. For decode: those of the sender.
struct encode_step {
    std::uint64_t seed = 0;  // of the run, equal on all ranks
    int rank = 0;
    std::int64_t step = 0;
    std::uint32_t bucket = 0;               // tells buckets apart: each has random numbers of its own
    const bucket_layout* layout = nullptr;  // names for errors; may be missing

    /// Random numbers that all ranks share, and those of this rank alone. `use` keeps two users of one step apart.
    random_stream shared_random(std::string_view use) const {
        return {seed, stream_of(use) + bucket * 0x9E3779B9u, static_cast<std::uint32_t>(step)};
    }
    random_stream own_random(std::string_view use) const {
        random_stream random = shared_random(use);
        random.seed += 0x9E3779B97F4A7C15ull * (static_cast<std::uint64_t>(rank) + 1);
        return random;
    }
};

/// Contract of a compressor for a bucket of n finite values x, x̂ = decode(encode(x)).
struct compression_contract {
    bool unbiased = false;             // E x̂ = x over seeds
    bool deterministic = true;         // x̂ does not depend on seed, rank and step
    summand summable = summand::none;  // whole messages are arrays of this type
    bool fixed_bytes = true;           // every message has max_bytes(n) bytes
    // δ: ‖x − x̂‖² ≤ (1 − δ) ‖x‖², in expectation over seeds if not deterministic. Below 0 it only says how far off x̂
    // may be.
    double contraction = -std::numeric_limits<double>::infinity();
    double variance = std::numeric_limits<double>::infinity();        // ω: E‖x̂ − x‖² ≤ ω ‖x‖²
    double absolute_error = std::numeric_limits<double>::infinity();  // |x − x̂| ≤ this, each element
};

/// The bytes of one message, in D's memory. Reused from step to step: memory only grows. Category communication.
template <Device D = cpu>
class message {
public:
    message() = default;
    /// In memory that is there: a slot of a mailbox.
    explicit message(tensor<std::byte, D> room) : memory_(std::move(room)) {}

    /// Makes the message `bytes` long and returns it; the contents are undefined.
    std::span<std::byte> prepare(index_t bytes) {
        require(bytes >= 0, "message: of ", bytes, " bytes");
        if (memory_.size() < bytes) memory_ = tensor<std::byte, D>({bytes}, memory_category::communication);
        size_ = bytes;
        return this->bytes();
    }
    index_t size() const { return size_; }
    std::span<std::byte> bytes() { return {memory_.data(), static_cast<std::size_t>(size_)}; }
    std::span<const std::byte> bytes() const { return {memory_.data(), static_cast<std::size_t>(size_)}; }

private:
    tensor<std::byte, D> memory_;
    index_t size_ = 0;
};

/// A tensor of a compressor's state and its name, "residual".
template <Device D>
struct compressor_tensor_on {
    std::string name;
    tensor<float, D> t;
};
using compressor_tensor = compressor_tensor_on<cpu>;

/// What every compressor says of its state.
///   prepare(n)                 makes the state of a bucket of n values, zeros; throws on another n than the first
///   tensors()                  handles to the state that a checkpoint keeps, none before it is made
///   flush_residual(gradient)   gradient += the residual, which is zero then: before a step that is sent dense
template <class C>
concept CompressorState = std::movable<C> && Device<typename C::device> &&
    requires(C& c, index_t n, std::span<float> gradient) {
    c.prepare(n);
    { c.tensors() } -> std::same_as<std::vector<compressor_tensor_on<typename C::device>>>;
    c.flush_residual(gradient);
};

/// Base of a compressor on D that keeps nothing between steps.
template <Device D>
struct stateless {
    using device = D;
    void prepare(index_t) {}
    std::vector<compressor_tensor_on<D>> tensors() { return {}; }
    void flush_residual(std::span<float>) {}
};

/// A method that sends one message a bucket and step.
template <class C>
concept Compressor = CompressorState<C> &&
    requires(C& c, const C& constant, index_t n, std::span<const float> values, std::span<float> into,
             message<typename C::device>& out, std::span<const std::byte> bytes, const encode_step& at, float scale) {
    { constant.name() } -> std::convertible_to<std::string>;
    { constant.contract(n) } -> std::same_as<compression_contract>;
    { constant.max_bytes(n) } -> std::same_as<index_t>;
    c.encode(values, out, at);
    constant.decode(bytes, into, at);
    constant.decode_add(bytes, into, at, scale);
};

/// A method that is an all-reduce itself, of less than the bucket, with work in between (powersgd.hpp).
///   reduce(gradient, total, ranks, at, sum)   total ≈ the sum over ranks; may be gradient. sum(span<float>): the
///                                             caller's exact all-reduce, in place
///   exchanged()                               floats that are summed in a step, at most
template <class C>
concept ReducingCompressor = CompressorState<C> &&
    requires(C& c, const C& constant, std::span<const float> gradient, std::span<float> total, int ranks,
             const encode_step& at, void (*sum)(std::span<float>)) {
    { constant.name() } -> std::convertible_to<std::string>;
    { constant.exchanged() } -> std::same_as<index_t>;
    c.reduce(gradient, total, ranks, at, sum);
};

namespace functors {

struct take_residual {
    CAIRN_HD void operator()(float& gradient, float& residual) const {
        gradient += residual;
        residual = 0;
    }
};

}  // namespace functors

/// gradient += residual; residual = 0. Does nothing where there is no residual yet. The values are on the residual's
/// device.
template <Device D>
void flush_into(tensor<float, D>& residual, std::span<float> gradient) {
    if (residual.empty()) return;
    const auto n = static_cast<index_t>(gradient.size());
    require(residual.size() == n, "flush_residual: a bucket of ", n, " values, a residual of ", residual.size());
    for_each(D{}, n, functors::take_residual{}, gradient.data(), residual.data());
}

/// Makes `t` n zeros if it is empty; throws where it has another size. `who` starts the message.
template <Device D>
void prepare_zeros(tensor<float, D>& t, index_t n, std::string_view who) {
    if (t.empty()) t = tensor<float, D>::zeros({n}, memory_category::communication);
    require(t.size() == n, who, ": a bucket of ", n, " values after one of ", t.size(),
            "; each bucket needs a compressor of its own");
}

/// "element 7 of conv1/weight (16, 3, 3, 3)", or "element 7 of the bucket" where no layout says whose it is.
inline std::string place_in_bucket(const bucket_layout* layout, index_t i) {
    if (layout)
        for (const bucket_slice& s : *layout)
            if (i >= s.offset && i < s.offset + s.shape.size())
                return concat("element ", i - s.offset, " of ", s.name, ' ', s.shape);
    return concat("element ", i, " of the bucket");
}

/// Throws error naming the first NaN or Inf; does nothing if there is none, or on a device where the caller has looked.
/// `who` starts the message. With `more`, of values[i] + more[i].
template <Device D = cpu, class... More>
void require_finite(std::string_view who, std::span<const float> values, const encode_step& at, const More*... more) {
    const auto n = static_cast<index_t>(values.size());
    if (const auto bad = non_finite_at_hand(D{}, n, values.data(), more...)) [[unlikely]]
        fail(who, ": rank ", at.rank, ", step ", at.step, ": ", place_in_bucket(at.layout, bad->at), " is ",
             bad->value);
}

/// into = 0.
template <Device D = cpu>
void fill_zero(std::span<float> into) {
    auto all = tensor<float, D>::view(into.data(), {static_cast<index_t>(into.size())});
    set_to_zero(D{}, all);
}

}  // namespace cairn
