#pragma once
// pdADMM's messages between the ranks of neighbouring layers, once an iteration and boundary:
//   q forward, to the rank of the layer behind      p back, to the rank of the layer in front
// The dual u of a boundary does not travel: both ranks have p and q, and take the same step to the same bits.
//   bytes of an iteration = Σ over boundaries between ranks of bytes(q) + bytes(p) = 2 N · width · sizeof(T) each
// Sends do not block; receives are posted when an iteration begins. A codec makes messages shorter: a compressor
// without state (compress/), whose decoded values both ranks then take, so that they go on with the same numbers. The
// values of one rank go through it too: quantised training gives the same bits on any number of ranks.

#include <cairn/comm/communicator.hpp>
#include <cairn/compress/compressor.hpp>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace cairn::admm {

/// A compressor of any type. Empty: values travel as they are.
struct exchange_codec {
    std::string name = "none";
    std::function<void(std::span<const float>, message<cpu>&, const encode_step&)> encode = {};
    std::function<void(std::span<const std::byte>, std::span<float>, const encode_step&)> decode = {};
    std::function<index_t(index_t)> max_bytes = {};

    explicit operator bool() const { return static_cast<bool>(encode); }
};

/// Throws where the compressor keeps residuals: p and q are no gradients, what is left out of one is not owed to the
/// next.
template <Compressor K>
exchange_codec codec_of(K compressor) {
    struct shared {  // by ranks that are threads: compressors have scratch memory
        K compressor;
        std::mutex mutex = {};
    };
    const std::shared_ptr<shared> k(new shared{std::move(compressor)});
    k->compressor.prepare(1);
    require(k->compressor.tensors().empty(), "admm: compressor ", k->compressor.name(),
            " keeps a residual; p and q are states, not gradients: take one without state");
    return {k->compressor.name(),
            [k](auto values, auto& out, const encode_step& at) {
                const std::scoped_lock lock(k->mutex);
                k->compressor.encode(values, out, at);
            },
            [k](auto bytes, auto into, const encode_step& at) {
                const std::scoped_lock lock(k->mutex);
                k->compressor.decode(bytes, into, at);
            },
            [k](index_t n) { return k->compressor.max_bytes(n); }};
}

/// A tensor on its way between two ranks. `T` is float where there is a codec.
template <class T, Communicator C>
class boundary_link {
public:
    /// One rank has both sides.
    boundary_link() = default;
    boundary_link(C& over, int peer, int tag, std::string what)
        : over_(&over), peer_(peer), tag_(tag), what_(std::move(what)) {}
    boundary_link(boundary_link&&) = default;
    boundary_link& operator=(boundary_link&&) = default;

    /// Encodes and decodes `values` in place where there is a codec, and sends them where a peer waits for them. They
    /// stay as they are until the next call.
    void send(tensor<T>& values, const exchange_codec& codec, const encode_step& at) {
        finish();
        if (!codec) {
            if (over_) under_way_ = isend(*over_, std::span<const T>(values.span()), peer_, tag_);
            bytes_ += over_ ? values.bytes() : 0;
            return;
        }
        if constexpr (std::same_as<T, float>) {
            codec.encode(values.span(), out_, at);
            codec.decode(out_.bytes(), values.span(), at);
            if (!over_) return;
            size_ = out_.size();
            size_sent_ = isend(*over_, std::span<const index_t>(&size_, 1), peer_, tag_);
            under_way_ = isend(*over_, std::span<const std::byte>(out_.bytes()), peer_, tag_);
            bytes_ += size_ + static_cast<index_t>(sizeof size_);
        } else {
            fail("admm: compressors are for float");
        }
    }

    /// The peer's message, into `values`.
    void receive(tensor<T>& values, const exchange_codec& codec, const encode_step& at) {
        if (!over_) return;
        with_context(concat("waiting for ", what_, " from rank ", peer_), [&] {
            if (!codec) return recv(*over_, values.span(), peer_, tag_);
            if constexpr (std::same_as<T, float>) {
                index_t size = 0;
                recv(*over_, std::span<index_t>(&size, 1), peer_, tag_);
                require(size >= 0 && size <= codec.max_bytes(values.size()), "a message of ", size, " bytes");
                recv(*over_, in_.prepare(size), peer_, tag_);
                codec.decode(in_.bytes(), values.span(), at);
            }
        });
    }

    /// Waits until the peer has the message.
    void finish() {
        with_context(concat("sending ", what_, " to rank ", peer_), [&] {
            size_sent_.wait();
            under_way_.wait();
        });
    }

    /// Sent so far.
    index_t bytes() const { return bytes_; }
    bool is_remote() const { return over_ != nullptr; }

private:
    C* over_ = nullptr;
    int peer_ = 0, tag_ = 0;
    std::string what_;
    index_t size_ = 0, bytes_ = 0;
    message<cpu> out_, in_;
    typename C::request size_sent_, under_way_;  // go before what they send
};

}  // namespace cairn::admm
