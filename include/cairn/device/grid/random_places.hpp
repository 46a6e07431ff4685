#pragma once
// The values of an array at random places on a grid device (device/selection.hpp).

#include <cairn/core/flop_counter.hpp>
#include <cairn/device/grid/for_each.hpp>
#include <cairn/device/selection.hpp>

namespace cairn {

namespace grid {

/// f(i, place i, size of its stratum).
template <class F>
struct each_place {
    random_places places;
    F f;

    CAIRN_HD void operator()(index_t i) const {
        const auto words = places.random.bits4(static_cast<std::uint64_t>(i / 4));
        places.at(i, words[static_cast<std::size_t>(i % 4)], [&](index_t place, index_t size) { f(i, place, size); });
    }
};
struct take_place {
    const float* x;
    float* values;
    CAIRN_HD void operator()(index_t i, index_t place, index_t) const { values[i] = x[place]; }
};
template <class Put>
struct put_place {
    const float* values;
    bool unbiased;
    float* into;
    Put put;
    CAIRN_HD void operator()(index_t i, index_t place, index_t stratum) const {
        put(into[place], unbiased ? values[i] * static_cast<float>(stratum) : values[i]);
    }
};

/// A thread for each of k values.
template <GridDevice D, class Body>
void launch_few(D d, index_t k, const Body& body) {
    flop_counter::count(0, 16.0 * static_cast<double>(k));
    for_indices(d, k, body);
}

}  // namespace grid

template <GridDevice D>
void take_at_places(D d, const random_places& places, const float* x, std::byte* out) {
    grid::launch_few(d, places.k, grid::each_place<grid::take_place>{places, {x, reinterpret_cast<float*>(out)}});
}

template <GridDevice D, class Put>
void put_at_places(D d, const random_places& places, const std::byte* values, bool unbiased, float* into, Put put) {
    using one = grid::put_place<Put>;
    grid::launch_few(d, places.k,
                     grid::each_place<one>{places, {reinterpret_cast<const float*>(values), unbiased, into, put}});
}

}  // namespace cairn
