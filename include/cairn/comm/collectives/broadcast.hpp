#pragma once
// Broadcast by a binomial tree: in round k, ranks that have the data send it to the rank 2^k further. Ranks are counted
// from the root.
//   root 0 of 8:  0→1   0→2 1→3   0→4 1→5 2→6 3→7
// Time ⌈lg p⌉ (α + nβ). Large messages are cut into segments that follow each other down the tree, unless they are
// phantom: one then stands for all. For buffers on GPUs the vendor library's own, if there is one: a message from one
// GPU to another waits for the host.

#include <cairn/comm/vendor_collectives.hpp>
#include <cairn/core/phantom.hpp>

#include <algorithm>
#include <span>

namespace cairn {

inline constexpr int broadcast_tag = user_tags + 1;
inline constexpr std::size_t broadcast_segment = std::size_t{1} << 20;  // bytes

/// data of rank `root`, on all ranks.
template <Communicator C, class T>
void broadcast(C& c, std::span<T> data, int root) {
    [[maybe_unused]] const auto scope =
        enter(c, {"broadcast", type_name<T>(), static_cast<index_t>(data.size()), root});
    const int p = c.size(), me = (c.rank() - root + p) % p;  // counted from the root
    require(root >= 0 && root < p, "broadcast: root ", root, " of ", p, " ranks");
    if (auto* const vendor = vendor_on_gpus(c)) return vendor->broadcast(std::as_writable_bytes(data), root);
    int lowest = 1;  // the highest bit of `me` gives the sender; children are at higher bits
    while (lowest <= me) lowest *= 2;
    const std::size_t step = is_phantom(std::as_bytes(data)) ? std::max<std::size_t>(1, data.size())
                                                             : std::max<std::size_t>(1, broadcast_segment / sizeof(T));
    for (std::size_t at = 0; at < data.size(); at += step) {
        const std::span<T> segment = data.subspan(at, std::min(step, data.size() - at));
        if (me != 0) recv(c, segment, (me - lowest / 2 + root) % p, broadcast_tag);
        for (int bit = lowest; me + bit < p; bit *= 2) send(c, segment, (me + bit + root) % p, broadcast_tag);
    }
}

}  // namespace cairn
