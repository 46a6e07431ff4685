#pragma once
// Local reduction of two arrays in a collective: element by element, vectorised, in a fixed order.

#include <cairn/comm/communicator.hpp>
#include <cairn/core/bfloat16.hpp>
#include <cairn/core/float16.hpp>
#include <cairn/core/kernel_call.hpp>
#include <cairn/core/parallel.hpp>
#include <cairn/core/range.hpp>
#include <cairn/core/tensor.hpp>

#include <span>

namespace cairn {

/// The operation of a reducing collective. Commutative but for NaN and the sign of zero.
enum class reduction { sum, max, min };

inline constexpr const char* name_of(reduction r) {
    return r == reduction::sum ? "sum" : r == reduction::max ? "max" : "min";
}

/// The name of an element type in calls and errors.
template <class T>
constexpr std::string_view type_name() {
    if constexpr (std::same_as<T, float>)
        return "float";
    else if constexpr (std::same_as<T, double>)
        return "double";
    else if constexpr (std::same_as<T, bfloat16>)
        return "bf16";
    else if constexpr (std::same_as<T, float16>)
        return "fp16";
    else if constexpr (std::integral<T>)
        return sizeof(T) == 1 ? "int8" : sizeof(T) == 4 ? "int32" : sizeof(T) == 8 ? "int64" : "int16";
    else
        return "bytes";
}

/// into[i] = into[i] ∘ from[i]. bf16 and fp16 add in float and round once. Throws on unequal sizes.
/// 2 reads and 1 write per element; not threaded below 64 Ki elements. A phantom rank adds only what is not phantom.
template <Communicator C, class T>
void reduce_local(C& c, std::span<T> into, std::span<const T> from, reduction r = reduction::sum) {
    require(into.size() == from.size(), "combine: ", into.size(), " elements and ", from.size());
    require(!buffers_on_gpu(c), c.name(),
            ": its buffers are on a GPU, where the host cannot add them; use its own collectives (native)");
    if constexpr (requires { c.compute(index_t{}); }) c.compute(static_cast<index_t>(into.size_bytes()));
    const kernel_call call("reduce", type_name<T>().data(), static_cast<double>(into.size()),
                           3.0 * static_cast<double>(into.size_bytes()), {static_cast<index_t>(into.size())});
    T* const a = into.data();
    const T* const b = from.data();
    const auto add = [&](index_t begin, index_t end) {
        const auto each = [&](auto f) {
#pragma omp simd
            for (index_t i = begin; i < end; ++i) a[i] = f(a[i], b[i]);
        };
        switch (r) {
            case reduction::sum:
                return each([](T x, T y) { return static_cast<T>(x + y); });
            case reduction::max:
                return each([](T x, T y) { return x < y ? y : x; });
            case reduction::min:
                return each([](T x, T y) { return y < x ? y : x; });
        }
    };
    const auto n = static_cast<index_t>(into.size());
    if (!on_phantom_rank()) return parallel_for(n, index_t{1} << 16, add);
    if (is_phantom(std::as_bytes(into))) return;
    require(!is_phantom(std::as_bytes(from)), "numbers of the host cannot be reduced with a phantom rank's");
    add(0, n);
}

/// Room of `s` elements beside `data`, for what is reduced with it: real where that is real.
template <class T>
tensor<T> room_beside(std::span<const std::byte> data, shape s) {
    if (!on_phantom_rank() || is_phantom(data)) return tensor<T>(s, memory_category::communication);
    const memory_pool::real_blocks real;
    return tensor<T>(s, memory_category::communication);
}

}  // namespace cairn
