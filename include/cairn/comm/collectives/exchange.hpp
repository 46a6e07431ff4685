#pragma once
// The step that reducing collectives repeat: send one part of an array to a rank while adding a part received from
// another. In segments: each is added while it is in the cache and the next one is under way.

#include <cairn/comm/reduction.hpp>
#include <cairn/core/tensor.hpp>

#include <algorithm>
#include <span>
#include <utility>

namespace cairn {

inline constexpr index_t reduce_segment = index_t{1} << 18;  // bytes

/// The two segments that arrive and are added, for parts of up to `largest` elements of `data`. Phantom parts are one
/// segment, which takes no more room than others: nothing lies there, and a simulation takes a seventh of the time.
template <class T>
class segment_room {
public:
    segment_room(std::span<T> data, index_t largest)
        : step_(std::max<index_t>(1, reduce_segment / static_cast<index_t>(sizeof(T)))),
          room_(room_beside<T>(std::as_bytes(data), {2, std::min(step_, largest)})) {
        if (is_phantom(std::as_bytes(data))) step_ = std::max<index_t>(1, static_cast<index_t>(data.size()));
    }

    index_t step() const { return step_; }
    std::span<T> segment(index_t i, std::size_t count) { return {room_.data() + i % 2 * room_.extent(1), count}; }

private:
    index_t step_;
    tensor<T> room_;
};

/// in ← in ∘ the part from rank `from`, while `out` goes to rank `to`. The two may be one rank; out and in do not
/// overlap.
/// Time: segments α + nβ + nγ for parts of n bytes.
template <Communicator C, class T>
void exchange_and_combine(C& c, std::span<T> out, int to, std::span<T> in, int from, int tag, reduction r,
                          segment_room<T>& room) {
    const index_t step = room.step();
    const auto segments = [&](std::span<T> part) { return (static_cast<index_t>(part.size()) + step - 1) / step; };
    const auto segment = [&](std::span<T> part, index_t i) {
        return subspan(part, {i * step, std::min(step, static_cast<index_t>(part.size()) - i * step)});
    };
    const auto arriving = [&](index_t i) { return room.segment(i, segment(in, i).size()); };
    const index_t sends = segments(out), receives = segments(in);
    typename C::request next;
    if (receives) next = irecv(c, arriving(0), from, tag);
    for (index_t i = 0; i < std::max(sends, receives); ++i) {
        typename C::request sent;
        if (i < sends) sent = isend(c, segment(out, i), to, tag);
        if (i < receives) {
            typename C::request got = std::move(next);
            if (i + 1 < receives) next = irecv(c, arriving(i + 1), from, tag);
            got.wait();
            reduce_local(c, segment(in, i), std::span<const T>(arriving(i)), r);
        }
        sent.wait();
    }
}

}  // namespace cairn
