#pragma once
// The seam of gradient compression. A compressor turns the n floats of a gradient bucket into a message, and a message
// back into n floats:
//   c.encode(values, out, at);               // out: the bytes that travel, nothing else does
//   c.decode(out.bytes(), into, at);         // into[i] = decoded value
//   c.decode_add(out.bytes(), into, at, s);  // into[i] += s · decoded value: a mean over ranks adds with s = 1/ranks
// What may be relied on is said by contract(n) and tested as a law for every compressor
// (tests/compress/compressor_laws.hpp).
//
// - One object serves one bucket: state is sized by the first bucket it sees, and belongs to the checkpoint
//   (tensors_of).
// - Each file's head gives the wire format; all numbers are little-endian. max_bytes(n) is the format's arithmetic.
// - n = 0 is a bucket like any other.
// - A NaN or Inf among the values: encode throws an error naming the element, and the parameter where at.layout is
//   given, and leaves state as it was, so that the caller may skip the step on all ranks. Only casts (bf16, fp16) pass
//   them on.
// - decode of a message that is cut short, too long or damaged throws an error naming the byte; it never reads or
//   writes outside the message and `into`.
// - The same bits for the same (values, state, at), whatever the number of threads.
//
// Schemes that need an exchange in the middle know no communicator: they are handed a function, see powersgd.hpp
// (ReducingCompressor) and two_phase.hpp.

#include <cairn/core/error.hpp>
#include <cairn/core/for_each.hpp>
#include <cairn/core/random.hpp>
#include <cairn/core/tensor.hpp>
#include <cairn/device/cpu/reduce.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace cairn {

/// Values that a thread encodes or decodes at a time, in formats whose pieces are independent: 256 KiB of floats.
inline constexpr index_t compress_grain = index_t{1} << 16;

/// A parameter's elements in a bucket.
struct bucket_slice {
    std::string name;
    index_t offset = 0;
    cairn::shape shape;
};
/// The parameters of a bucket by rising offset. Gaps between them belong to nobody and hold zeros.
using bucket_layout = std::vector<bucket_slice>;

/// What an encoding depends on beside the values. For decode: what the sender encoded with.
struct encode_step {
    std::uint64_t seed = 0;  // of the run, equal on all ranks
    int rank = 0;
    std::int64_t step = 0;
    std::uint32_t bucket = 0;               // number of the bucket: each has random numbers of its own
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

/// As what messages of one step may be added element by element, so that the sum decodes to the sum.
enum class summand { none, float32, bfloat16, float16 };

/// What a compressor promises for a bucket of n finite values x, x̂ = decode(encode(x)).
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

/// The bytes of one message. Reused from step to step: memory only grows. Category communication.
class message {
public:
    /// Makes the message `bytes` long and returns it; the contents are undefined.
    std::span<std::byte> prepare(index_t bytes) {
        require(bytes >= 0, "message: of ", bytes, " bytes");
        if (memory_.size() < bytes) memory_ = tensor<std::byte>({bytes}, memory_category::communication);
        size_ = bytes;
        return this->bytes();
    }
    index_t size() const { return size_; }
    std::span<std::byte> bytes() { return {memory_.data(), static_cast<std::size_t>(size_)}; }
    std::span<const std::byte> bytes() const { return {memory_.data(), static_cast<std::size_t>(size_)}; }

private:
    tensor<std::byte> memory_;
    index_t size_ = 0;
};

/// A tensor of a compressor's state and its name, "residual".
template <Device D>
struct compressor_tensor_on {
    std::string name;
    tensor<float, D> t;
};
using compressor_tensor = compressor_tensor_on<cpu>;

/// A method that sends one message a bucket and step.
/// Optional, of those that keep state:
///   prepare(n)          makes the state of a bucket of n values, zeros, if there is none: before a checkpoint is read
///                       into it
///   tensors()           → vector<compressor_tensor>: handles to the state that a checkpoint keeps
///   release(gradient)   gradient += what earlier steps kept back, which is zero then: before a step that is sent dense
/// prepare_state, tensors_of and flush_residual_of call them where they are there.
template <class C>
concept Compressor = std::movable<C> &&
    requires(C& c, const C& constant, index_t n, std::span<const float> values, std::span<float> into, message& out,
             std::span<const std::byte> bytes, const encode_step& at, float scale) {
    { constant.name() } -> std::convertible_to<std::string>;
    { constant.contract(n) } -> std::same_as<compression_contract>;
    { constant.max_bytes(n) } -> std::same_as<index_t>;
    c.encode(values, out, at);
    constant.decode(bytes, into, at);
    constant.decode_add(bytes, into, at, scale);
};

/// A method that is an all-reduce itself, of less than the bucket, with work in between (powersgd.hpp).
///   reduce(gradient, mean, ranks, at, sum)   sum(span<float>) is the caller's exact all-reduce, in place
///   exchanged()                              floats that are summed in a step
template <class C>
concept ReducingCompressor = std::movable<C> &&
    requires(C& c, const C& constant, std::span<const float> gradient, std::span<float> mean, int ranks,
             const encode_step& at, void (*sum)(std::span<float>)) {
    { constant.name() } -> std::convertible_to<std::string>;
    { constant.exchanged() } -> std::same_as<index_t>;
    c.reduce(gradient, mean, ranks, at, sum);
};

template <class C>
void prepare_state(C& c, index_t n) {
    if constexpr (requires { c.prepare(n); }) c.prepare(n);
}

/// Handles to the state of a compressor; empty before its first bucket, and for one that has none.
template <class C>
std::vector<compressor_tensor> tensors_of(C& c) {
    if constexpr (requires { c.tensors(); })
        return c.tensors();
    else
        return {};
}

/// Adds what earlier steps kept back to a gradient that is about to be sent dense, and forgets it.
template <class C>
void flush_residual_of(C& c, std::span<float> gradient) {
    if constexpr (requires { c.flush_residual(gradient); }) c.flush_residual(gradient);
}

namespace functors {

struct take_residual {
    CAIRN_HD void operator()(float& gradient, float& residual) const {
        gradient += residual;
        residual = 0;
    }
};

}  // namespace functors

/// gradient += residual; residual = 0. Does nothing where there is no residual yet. The n values are on the residual's
/// device.
template <Device D>
void flush_into(tensor<float, D>& residual, index_t n, float* gradient) {
    if (residual.empty()) return;
    require(residual.size() == n, "release: a bucket of ", n, " values, a residual of ", residual.size());
    for_each(D{}, n, functors::take_residual{}, gradient, residual.data());
}
inline void flush_into(tensor<float>& residual, std::span<float> gradient) {
    flush_into(residual, static_cast<index_t>(gradient.size()), gradient.data());
}

/// How decoded values enter an array: what decode and decode_add differ by.
struct assign {
    [[gnu::always_inline]] void operator()(float& into, float value) const { into = value; }
};
struct add_scaled {
    float scale = 1;
    [[gnu::always_inline]] void operator()(float& into, float value) const { into += scale * value; }
};

/// "element 7 of conv1/weight (16, 3, 3, 3)", or "element 7 of the bucket" where no layout says whose it is.
inline std::string place_in_bucket(const bucket_layout* layout, index_t i) {
    if (layout)
        for (const bucket_slice& s : *layout)
            if (i >= s.offset && i < s.offset + s.shape.size())
                return concat("element ", i - s.offset, " of ", s.name, ' ', s.shape);
    return concat("element ", i, " of the bucket");
}

/// Position of the first NaN or Inf, or nothing. 1 read per element.
inline std::optional<index_t> first_non_finite(std::span<const float> values) {
    const index_t n = static_cast<index_t>(values.size());
    if (count_nonfinite(cpu{}, n, values.data()) == 0) return std::nullopt;
    index_t i = 0;
    while (std::isfinite(values[static_cast<std::size_t>(i)])) ++i;
    return i;
}

/// Throws error naming the first NaN or Inf; does nothing if there is none. `who` starts the message.
inline void require_finite(std::string_view who, std::span<const float> values, const encode_step& at) {
    if (const auto i = first_non_finite(values)) [[unlikely]]
        fail(who, ": rank ", at.rank, ", step ", at.step, ": ", place_in_bucket(at.layout, *i), " is ",
             values[static_cast<std::size_t>(*i)]);
}

/// Reads a message from front to back; every error names the byte.
class message_reader {
public:
    message_reader(std::string_view who, std::span<const std::byte> bytes) : who_(who), bytes_(bytes) {}

    index_t position() const { return position_; }
    index_t left() const { return static_cast<index_t>(bytes_.size()) - position_; }

    /// The next `count` bytes. `what` names them in the error if the message ends before.
    const std::byte* take(index_t count, std::string_view what) {
        if (count < 0 || count > left()) [[unlikely]]
            damaged(count, " bytes of ", what, " expected, ", left(), " left");
        const std::byte* here = bytes_.data() + position_;
        position_ += count;
        return here;
    }
    template <class T>
    T number(std::string_view what) {
        T value;
        std::memcpy(&value, take(sizeof value, what), sizeof value);
        return value;
    }
    /// Throws if bytes are left.
    void finish() const {
        if (left() != 0) [[unlikely]]
            damaged(left(), " bytes too many");
    }
    /// Throws error "who: message of n bytes: byte position: …".
    template <class... Parts>
    [[noreturn]] void damaged(const Parts&... parts) const {
        fail(who_, ": message of ", bytes_.size(), " bytes: byte ", position_, ": ", parts...);
    }

private:
    std::string_view who_;
    std::span<const std::byte> bytes_;
    index_t position_ = 0;
};

/// into = 0, in parallel.
inline void fill_zero(std::span<float> into) {
    parallel_for(static_cast<index_t>(into.size()), compress_grain,
                 [p = into.data()](index_t begin, index_t end) { std::fill(p + begin, p + end, 0.0f); });
}

}  // namespace cairn
