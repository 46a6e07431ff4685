#pragma once
// The collectives of the library below a communicator, NCCL's or MPI_Allreduce for instance, as one object: what a
// communicator's optional member vendor() returns. That library decides what they cost and whether all runs give the
// same bits; our time limits and named errors do not reach into it.

#include <cairn/comm/reduction.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

namespace cairn {

/// Element types that a library reduces.
template <class T>
concept VendorElement = std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, bfloat16> ||
    std::same_as<T, float16> || std::same_as<T, std::int32_t>;

using vendor_span =
    std::variant<std::span<float>, std::span<double>, std::span<bfloat16>, std::span<float16>, std::span<std::int32_t>>;

/// See the top of the file. All work in place and return when it is done; parts may have any sizes, equal on all ranks.
class vendor_collectives {
public:
    virtual ~vendor_collectives() = default;

    /// data ← reduction over all ranks.
    virtual void all_reduce(vendor_span data, reduction r = reduction::sum) = 0;
    /// The bytes of rank `root`, on all ranks.
    virtual void broadcast(std::span<std::byte> data, int root) = 0;
    /// Part r, of bytes, comes from rank r.
    virtual void all_gather(std::span<std::byte> data, const std::vector<range>& parts) {
        for (std::size_t r = 0; r < parts.size(); ++r) broadcast(subspan(data, parts[r]), static_cast<int>(r));
    }
    /// Part `rank` becomes the reduction over all ranks; the other parts hold anything afterwards.
    virtual void reduce_scatter(vendor_span data, const std::vector<range>& /*parts*/, reduction r) {
        all_reduce(data, r);
    }
};

/// The collectives of the library below c; null where it has none.
template <Communicator C>
vendor_collectives* vendor_of(C& c) {
    if constexpr (requires { c.vendor(); })
        return c.vendor();
    else
        return nullptr;
}

/// Those that collectives take in place of messages: of more than one rank whose buffers are on GPUs, where a message
/// waits for the host. Else null.
template <Communicator C>
vendor_collectives* vendor_on_gpus(C& c) {
    return c.size() > 1 && buffers_on_gpu(c) ? vendor_of(c) : nullptr;
}

/// Parts of elements of `size` bytes, in bytes.
inline std::vector<range> in_bytes(std::vector<range> parts, std::size_t size) {
    for (range& part : parts) part = {part.begin * static_cast<index_t>(size), part.count * static_cast<index_t>(size)};
    return parts;
}

}  // namespace cairn
