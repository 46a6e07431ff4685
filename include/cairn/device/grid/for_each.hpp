#pragma once
// Fused elementwise passes on a grid device, as core/for_each.hpp has them on the host: one launch, each array moves
// once, in pieces of 16 bytes. Written back are only arrays that the functor takes by reference to non-const, to a
// type that it names: T& of a template would be deduced const too. Functors are named, their operator() CAIRN_HD.
// A functor that needs numbers of the device's memory has them fetched once a thread (at_hand).

#include <cairn/core/flop_counter.hpp>
#include <cairn/core/for_each.hpp>
#include <cairn/core/launch_parameters.hpp>
#include <cairn/device/grid/grid.hpp>

#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

namespace cairn {

namespace grid {

/// Several elements that are read and written at once.
template <class T, int Lanes>
struct alignas(Lanes * sizeof(T)) packet {
    T v[Lanes];
};

/// Whether f changes argument K of (E&…): it does not take a const one.
template <std::size_t K, class F, class... E>
struct changes {
    template <std::size_t... I>
    static constexpr bool of(std::index_sequence<I...>) {
        return !std::is_invocable_v<const F&, std::conditional_t<I == K, const E&, E&>...>;
    }
    static constexpr bool value = of(std::index_sequence_for<E...>{});
};

/// Whether a number, which the device has computed, is finite; null: not asked.
CAIRN_HD inline bool finite_or_none(const double* number) { return !number || *number - *number == 0; }

template <class F, class... E>
struct each {
    static constexpr std::size_t widest = std::max({sizeof(E)...});
    static constexpr int lanes = widest >= 16 ? 1 : static_cast<int>(16 / widest);

    index_t n;
    F f;
    std::tuple<E*...> arrays;
    bool aligned;
    const double* only_if_finite = nullptr;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        if (finite_or_none(only_if_finite)) run(b, at_hand(f), std::index_sequence_for<E...>{});
    }

    template <class Block, class Ready, std::size_t... I>
    CAIRN_HD void run(Block& b, const Ready& ready, std::index_sequence<I...>) const {
        const index_t first = b.block() * b.threads() + b.thread(), stride = b.blocks() * b.threads();
        index_t done = 0;
        if (aligned) {
            const index_t packets = n / lanes;
            for (index_t p = first; p < packets; p += stride) {
                std::tuple<packet<E, lanes>...> here{
                    reinterpret_cast<const packet<E, lanes>*>(std::get<I>(arrays))[p]...};
                for (int j = 0; j < lanes; ++j) ready(std::get<I>(here).v[j]...);
                (store<changes<I, Ready, E...>::value>(std::get<I>(arrays), p, std::get<I>(here)), ...);
            }
            done = packets * lanes;
        }
        for (index_t i = done + first; i < n; i += stride) ready(std::get<I>(arrays)[i]...);
    }

    template <bool Changed, class T>
    CAIRN_HD static void store(T* to, index_t p, const packet<T, lanes>& values) {
        if constexpr (Changed) reinterpret_cast<packet<T, lanes>*>(to)[p] = values;
    }
};

/// f(i), as many threads as blocks_for gives.
template <class F>
struct index_kernel {
    index_t n;
    F f;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const index_t stride = b.blocks() * b.threads();
        const auto ready = at_hand(f);
        for (index_t i = b.block() * b.threads() + b.thread(); i < n; i += stride) ready(i);
    }
};

/// Calls f(i) for i in [0, n) in one launch, a thread for each as far as there are so many; blocks of fewer threads for
/// few i with much work.
template <GridDevice D, class F>
void for_indices(D, index_t n, const F& f, int threads = 256) {
    if (n > 0) D::launch({.blocks = blocks_for<D>(n, threads), .threads = threads}, index_kernel<F>{n, f});
}

template <class... E>
bool aligned_for_packets(int lanes, E*... arrays) {
    return ((reinterpret_cast<std::uintptr_t>(arrays) % (static_cast<std::size_t>(lanes) * sizeof(E)) == 0) && ...);
}

}  // namespace grid

using grid::for_indices;

/// As for_each, but nothing is done where `number`, which the device has computed, is not finite. Null: always.
template <GridDevice D, class F, class... Elements>
void for_each_if_finite(D, const double* number, index_t n, F f, Elements*... arrays) {
    if (n <= 0) return;
    using body = grid::each<F, std::remove_const_t<Elements>...>;
    D::launch({.blocks = grid::blocks_for<D>(n, 256, body::lanes * 2), .threads = 256},
              body{n,
                   f,
                   {const_cast<std::remove_const_t<Elements>*>(arrays)...},
                   grid::aligned_for_packets(body::lanes, arrays...),
                   number});
}

/// The same as a part of a step: where `numbers` is not null, f goes to the device by way of them, and is launched
/// where they say so.
template <GridDevice D, class F, class... Elements>
void for_each_if_finite(D d, const double* number, launch_parameters* numbers, index_t n, F f, Elements*... arrays) {
    if (!numbers) return for_each_if_finite(d, number, n, f, arrays...);
    const F* const there = numbers->place(f);
    if (numbers->launching()) for_each_if_finite(d, number, n, functors::functor_in_memory<F>{there}, arrays...);
}

/// Calls f(a[i], b[i], …) for i in [0, n). Arrays may be equal, but must not overlap otherwise.
template <GridDevice D, class F, class... Elements>
void for_each(D d, index_t n, F f, Elements*... arrays) {
    for_each_if_finite(d, nullptr, n, f, arrays...);
}

}  // namespace cairn
