#pragma once
// Groups of device/symbol_groups.hpp packed on a grid device, with the host's bytes: a warp has a group, a thread eight
// neighbouring values.

#include <cairn/device/grid/channels.hpp>
#include <cairn/device/symbol_groups.hpp>

#include <cstdint>

namespace cairn {

namespace grid {

struct pack_groups_kernel {
    symbol_groups groups;
    index_t n;
    const float* x;
    bool aligned;
    random_stream random;
    std::uint64_t first_number;
    std::uint8_t* body;
    std::uint32_t* broken;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const index_t warps = b.threads() / warp_threads, lane = b.thread() % warp_threads;
        for (index_t first = b.block() * warps; first < groups.count(n); first += b.blocks() * warps) {
            const index_t g = first + b.thread() / warp_threads, i = g * symbol_groups::size + 8 * lane;
            const int count = n - i >= 8 ? 8 : n > i ? static_cast<int>(n - i) : 0;
            float v[packet_lanes], none = 0;
            load_packet(x + i, aligned && count == 8, count, v);
            symbol_groups::head h{huge, -huge};
            for (int j = 0; j < packet_lanes; ++j)
                if (j < count) {
                    if (v[j] - v[j] != 0) none = 1;
                    h.least = v[j] < h.least ? v[j] : h.least;
                    h.most = v[j] > h.most ? v[j] : h.most;
                }
            for (int mask = warp_threads / 2; mask > 0; mask /= 2) {
                const float least = b.shuffle_xor(h.least, mask), most = b.shuffle_xor(h.most, mask);
                h = {least < h.least ? least : h.least, most > h.most ? most : h.most};
            }
            none = warp_sum(b, none);
            if (i - 8 * lane >= n) continue;
            h = {h.least + 0.0f, h.most + 0.0f};  // −0 is 0
            std::uint8_t* const to = body + groups.place(g);
            if (lane == 0) *reinterpret_cast<symbol_groups::head*>(to) = h;
            if (none > 0) {
                if (lane == 0) b.add(broken, 1);
                continue;
            }
            groups.encode(v, count, h, random, first_number + static_cast<std::uint64_t>(i),
                          to + 8 + lane * groups.bits);
        }
    }

private:
    static constexpr float huge = 3.402823466e38f;
};

}  // namespace grid

/// The same on a device; waits for whether all are finite.
template <GridDevice D>
bool pack_groups(D, symbol_groups groups, index_t n, const float* x, const random_stream& random,
                 std::uint64_t first_number, std::uint8_t* body) {
    if (n == 0) return true;
    auto broken = tensor<std::uint32_t, D>::zeros({1}, memory_category::workspace);
    D::launch({.blocks = grid::blocks_for<D>(n, 256, 8), .threads = 256},
              grid::pack_groups_kernel{groups, n, x, grid::packets_fit(x), random, first_number, body, broken.data()});
    std::uint32_t found = 0;
    D::copy_to_host(&found, broken.data(), sizeof found);
    return found == 0;
}

}  // namespace cairn
