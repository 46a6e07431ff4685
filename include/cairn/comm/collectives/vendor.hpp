#pragma once
// The all-reduce of the library below, MPI_Allreduce for instance, and which other collectives it has. What it costs,
// and whether all runs give the same bits, is that library's affair; our time limits and named errors end at its door.

#include <cairn/comm/reduction.hpp>

#include <concepts>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace cairn {

/// Element types that a vendor all-reduce takes.
template <class T>
concept VendorElement = std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, bfloat16> ||
    std::same_as<T, float16> || std::same_as<T, std::int32_t>;

/// Whether c has an all-reduce of its own for elements of type T.
template <class T, Communicator C>
bool has_vendor_all_reduce(const C& c) {
    if constexpr (!VendorElement<T>)
        return false;
    else if constexpr (requires { c.has_vendor(); })
        return c.has_vendor();
    else
        return requires(C & other, std::span<T> data) { other.vendor_all_reduce(data, reduction::sum); };
}

/// Whether c has a broadcast of its own.
template <Communicator C>
bool has_vendor_broadcast(const C& c) {
    if constexpr (requires { c.has_vendor_broadcast(); })
        return c.has_vendor_broadcast();
    else
        return requires(C & other, std::span<std::byte> data) { other.vendor_broadcast(data, 0); };
}

/// Whether c has an all-gather of its own for parts of any sizes.
template <Communicator C>
bool has_vendor_all_gather(const C& c) {
    if constexpr (requires { c.has_vendor_all_gather(); })
        return c.has_vendor_all_gather();
    else
        return requires(C & other, std::span<std::byte> data, const std::vector<range>& parts) {
            other.vendor_all_gather_v(data, parts);
        };
}

/// Whether c has a reduce-scatter of its own, for parts of any sizes and elements of type T.
template <class T, Communicator C>
bool has_vendor_reduce_scatter(const C& c) {
    if constexpr (!VendorElement<T>)
        return false;
    else if constexpr (requires { c.has_vendor_reduce_scatter(); })
        return c.has_vendor_reduce_scatter();
    else
        return requires(C & other, std::span<T> data, const std::vector<range>& parts) {
            other.vendor_reduce_scatter_v(data, parts, reduction::sum);
        };
}

/// data ← reduction over all ranks, in place. Throws where the communicator has none of its own.
template <Communicator C, class T>
void vendor_all_reduce(C& c, std::span<T> data, reduction r = reduction::sum, std::string_view label = {}) {
    [[maybe_unused]] const auto scope =
        enter(c, {"native all-reduce", type_name<T>(), static_cast<index_t>(data.size()), -1, label});
    require(has_vendor_all_reduce<T>(c), c.name(), ": has no all-reduce of its own for ", type_name<T>(),
            "; ask for another algorithm");
    if constexpr (VendorElement<T> && requires { c.vendor_all_reduce(data, r); }) c.vendor_all_reduce(data, r);
}

}  // namespace cairn
