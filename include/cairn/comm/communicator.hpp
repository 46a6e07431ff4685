#pragma once
// The seam between ranks. A communicator moves bytes between `size()` ranks that are numbered from 0:
//   auto sent = c.isend(bytes, peer, tag);      auto got = c.irecv(room, peer, tag);      got.wait(); sent.wait();
// Messages between two ranks with equal tags arrive in the order in which they were sent; a receive names its peer, its
// tag and the exact number of bytes. Any number of bytes, 0 and more than 2 GiB included, is one message.
// All collectives are written over these few functions, with one text for the library, a student and the simulator; see
// comm/collectives/.

#include <cairn/core/environment.hpp>
#include <cairn/core/error.hpp>
#include <cairn/core/shape.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace cairn {

/// Tags that users may pass: [0, user_tags). The collectives use the tags from there to max_tag.
inline constexpr int user_tags = 1 << 13;
inline constexpr int max_tag = (1 << 15) - 1;  // the highest that every MPI has

/// A transfer in flight. Default-constructed: already complete. Move-only; the destructor of one in flight cancels it
/// if possible and never blocks for long, because errors unwind through it.
///   wait()  returns when the transfer is complete: the buffer may be reused, or holds the message. Throws error naming
///           rank, peer, tag and bytes when the peer is gone, sent another number of bytes, or the time limit is over.
///   test()  the same without blocking: whether the transfer is complete. Makes progress.
template <class R>
concept Request = std::movable<R> && !std::copyable<R> && std::default_initializable<R> && requires(R & r) {
    r.wait();
    { r.test() } -> std::same_as<bool>;
};

/// Moves bytes between ranks. Calls of one communicator object come from one thread at a time.
/// Buffers stay alive and untouched until their request is complete.
///   split(colour, key)  collective: ranks of equal colour ≥ 0 form a new communicator, ordered by key, then by old
///                       rank. Ranks with colour < 0 take part and get a communicator of themselves alone.
/// Optional members, used where present:
///   enter(collective_call) → any RAII object    called at the start of each collective: errors, checks and counters
///                                               name it
///   compute(bytes)                              a reduction over `bytes` is about to run here: models charge its time
///   vendor() → vendor_collectives*              the collectives of the library below, see vendor_collectives.hpp
///   split_node() → communicator                 the ranks on this rank's machine
///   buffers_on_gpu() → bool                     the host cannot read its buffers: only vendor() can reduce
template <class C>
concept Communicator = std::movable<C> &&
    requires(C& c, const C& constant, std::span<const std::byte> out, std::span<std::byte> in, int number) {
    requires Request<typename C::request>;
    { constant.rank() } -> std::same_as<int>;
    { constant.size() } -> std::same_as<int>;
    { constant.name() } -> std::convertible_to<std::string>;  // "threads", "mpi", … for tables and errors
    { c.isend(out, number, number) } -> std::same_as<typename C::request>;
    { c.irecv(in, number, number) } -> std::same_as<typename C::request>;
    { c.split(number, number) } -> std::same_as<C>;
};

/// Whether the host cannot read c's buffers.
template <Communicator C>
bool buffers_on_gpu(const C& c) {
    if constexpr (requires { c.buffers_on_gpu(); })
        return c.buffers_on_gpu();
    else
        return false;
}

/// The time limit of waits in seconds that the environment sets (CAIRN_COMM_TIMEOUT; 0: none), else 60.
inline double default_time_limit() {
    return environment_number("CAIRN_COMM_TIMEOUT", 60.0, 0.0, 1e9, "seconds, a number from 0 (no limit) to 1e9");
}

/// The arguments of a collective: equal on all ranks, or the program is wrong. Without a name it is no collective: it
/// says why the messages are sent that follow.
struct collective_call {
    std::string_view name = {};   // "ring all-reduce"
    std::string_view type = {};   // "float"
    index_t count = 0;            // elements
    int root = -1;                // of rooted ones
    std::string_view label = {};  // what is reduced, where the caller said: "gradients, bucket 3"

    bool operator==(const collective_call&) const = default;
};

/// Notifies c that a collective begins; keep the result until it ends.
template <Communicator C>
[[nodiscard]] auto enter(C& c, const collective_call& call) {
    if constexpr (requires { c.enter(call); })
        return c.enter(call);
    else
        return std::false_type{};
}

/// All messages on c are sent for this cause until the result goes: collectives inside are counted under it. The
/// caller keeps the text.
template <Communicator C>
[[nodiscard]] auto because(C& c, std::string_view cause) {
    return enter(c, {.label = cause});
}

/// Typed front of isend and irecv. T must be trivially copyable.
template <Communicator C, class T>
[[nodiscard]] typename C::request isend(C& c, std::span<T> data, int peer, int tag) {
    return c.isend(std::as_bytes(data), peer, tag);
}
template <Communicator C, class T>
[[nodiscard]] typename C::request irecv(C& c, std::span<T> room, int peer, int tag) {
    return c.irecv(std::as_writable_bytes(room), peer, tag);
}

namespace detail {
inline bool overlap(std::span<const std::byte> a, std::span<const std::byte> b) {
    const std::less<const std::byte*> before;
    return !a.empty() && !b.empty() && before(a.data(), b.data() + b.size()) && before(b.data(), a.data() + a.size());
}
}  // namespace detail

/// Sends and returns when the buffer may be reused.
template <Communicator C, class T>
void send(C& c, std::span<T> data, int peer, int tag) {
    isend(c, data, peer, tag).wait();
}

/// Receives exactly room.size() elements.
template <Communicator C, class T>
void recv(C& c, std::span<T> room, int peer, int tag) {
    irecv(c, room, peer, tag).wait();
}

/// Sends to one rank while receiving from another: the step that most collectives repeat. Throws if the two buffers
/// overlap.
template <Communicator C, class T, class U>
void sendrecv(C& c, std::span<T> data, int to, std::span<U> room, int from, int tag) {
    require(!detail::overlap(std::as_bytes(data), std::as_bytes(room)), "rank ", c.rank(), " of ", c.size(),
            ": sendrecv of ", data.size_bytes(), " bytes to rank ", to, " and ", room.size_bytes(), " from rank ", from,
            ", tag ", tag, ": the buffers overlap; receive into another one");
    auto got = irecv(c, room, from, tag);
    auto sent = isend(c, data, to, tag);
    got.wait();
    sent.wait();
}

}  // namespace cairn
