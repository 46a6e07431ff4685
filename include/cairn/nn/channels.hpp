#pragma once
// Joining tensors on their last axis and cutting pieces out again. Rows are contiguous, so both are copies of row
// pieces.

#include <cairn/core/kernel_call.hpp>
#include <cairn/core/parallel.hpp>
#include <cairn/core/tensor.hpp>
#include <cairn/device/cpu/widen.hpp>

#include <algorithm>
#include <vector>

namespace cairn {

/// `width` neighbouring columns of `rows` rows, which begin from_stride and to_stride elements apart. Devices have
/// their own.
template <class T>
void copy_columns(cpu, index_t rows, index_t width, const T* from, index_t from_stride, T* to, index_t to_stride) {
    const double n = static_cast<double>(rows) * static_cast<double>(width);
    const kernel_call call("copy columns", format_name<T>, 0, 2 * n * sizeof(T), {rows, width, from_stride, to_stride});
    parallel_for(rows, std::max<index_t>(1, 16384 / std::max<index_t>(width, 1)), [&](index_t begin, index_t end) {
        for (index_t r = begin; r < end; ++r) std::copy_n(from + r * from_stride, width, to + r * to_stride);
    });
}

/// (…, C1), (…, C2), … → (…, C1 + C2 + …). Throws unless all axes but the last agree.
template <class T, class D>
tensor<T, D> join_channels(const std::vector<tensor<T, D>>& parts) {
    index_t channels = 0;
    for (const auto& part : parts) {
        require(part.shape().with(-1, 0) == parts.front().shape().with(-1, 0), "joining channels: shapes ",
                parts.front().shape(), " and ", part.shape(), " differ in more than the last axis");
        channels += part.extent(-1);
    }
    tensor<T, D> all(parts.front().shape().with(-1, channels));
    index_t at = 0;
    for (const auto& part : parts) {
        const index_t width = part.extent(-1), rows = width ? part.size() / width : 0;
        copy_columns(D{}, rows, width, part.data(), width, all.data() + at, channels);
        at += width;
    }
    return all;
}

/// Channels [begin, begin + width) of t as a new tensor (…, width).
template <class T, class D>
tensor<T, D> cut_channels(const tensor<T, D>& t, index_t begin, index_t width) {
    const index_t channels = t.extent(-1), rows = channels ? t.size() / channels : 0;
    require(begin >= 0 && begin + width <= channels, "cutting channels ", begin, " to ", begin + width, " of ",
            t.shape());
    tensor<T, D> part(t.shape().with(-1, width));
    copy_columns(D{}, rows, width, t.data() + begin, channels, part.data(), width);
    return part;
}

}  // namespace cairn
