#pragma once
// The all-reduce of the library below, MPI_Allreduce for instance, and which other collectives it has. What it costs, and whether all runs give the same bits, is that
// library's affair; our time limits and named errors end at its door.

#include <cairn/comm/reduction.hpp>

#include <concepts>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace cairn {

/// Element types that a native all-reduce takes.
template <class T>
concept NativeElement = std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, bfloat16> ||
    std::same_as<T, float16> || std::same_as<T, std::int32_t>;

/// Whether c has an all-reduce of its own for elements of type T.
template <class T, Communicator C>
bool has_native_all_reduce(const C& c) {
    if constexpr (!NativeElement<T>)
        return false;
    else if constexpr (requires { c.has_native(); })
        return c.has_native();
    else
        return requires(C & other, std::span<T> data) { other.native_all_reduce(data, reduction::sum); };
}

/// Whether c has a broadcast of its own.
template <Communicator C>
bool has_native_broadcast(const C& c) {
    if constexpr (requires { c.has_native_broadcast(); })
        return c.has_native_broadcast();
    else
        return requires(C & other, std::span<std::byte> data) { other.native_broadcast(data, 0); };
}

/// Whether c has an all-gather of its own for parts of any sizes.
template <Communicator C>
bool has_native_all_gather(const C& c) {
    if constexpr (requires { c.has_native_all_gather(); })
        return c.has_native_all_gather();
    else
        return requires(C & other, std::span<std::byte> data, const std::vector<shard>& parts) {
            other.native_all_gather_parts(data, parts);
        };
}

/// Whether c has a reduce-scatter of its own, for parts of any sizes and elements of type T.
template <class T, Communicator C>
bool has_native_reduce_scatter(const C& c) {
    if constexpr (!NativeElement<T>)
        return false;
    else if constexpr (requires { c.has_native_reduce_scatter(); })
        return c.has_native_reduce_scatter();
    else
        return requires(C & other, std::span<T> data, const std::vector<shard>& parts) {
            other.native_reduce_scatter_parts(data, parts, reduction::sum);
        };
}

/// data ← reduction over all ranks, in place. Throws where the communicator has none of its own.
template <Communicator C, class T>
void native_all_reduce(C& c, std::span<T> data, reduction r = reduction::sum, std::string_view subject = {}) {
    [[maybe_unused]] const auto scope =
        enter(c, {"native all-reduce", type_name<T>(), static_cast<index>(data.size()), -1, subject});
    require(has_native_all_reduce<T>(c), c.name(), ": has no all-reduce of its own for ", type_name<T>(),
            "; ask for another algorithm");
    if constexpr (NativeElement<T> && requires { c.native_all_reduce(data, r); }) c.native_all_reduce(data, r);
}

}  // namespace cairn
