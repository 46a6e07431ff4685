#pragma once
// Joining tensors on their last axis and cutting pieces out again. Rows are contiguous, so both are copies of row
// pieces.

#include <cairn/core/parallel.hpp>
#include <cairn/core/tensor.hpp>

#include <vector>

namespace cairn {

/// (…, C1), (…, C2), … → (…, C1 + C2 + …). Throws unless all axes but the last agree.
template <class T>
tensor<T> join_channels(const std::vector<tensor<T>>& parts) {
    index channels = 0;
    for (const auto& part : parts) {
        require(part.shape().with(-1, 0) == parts.front().shape().with(-1, 0), "joining channels: shapes ",
                parts.front().shape(), " and ", part.shape(), " differ in more than the last axis");
        channels += part.extent(-1);
    }
    tensor<T> all(parts.front().shape().with(-1, channels));
    index at = 0;
    for (const auto& part : parts) {
        const index width = part.extent(-1), rows = width ? part.size() / width : 0;
        parallel_for(rows, std::max<index>(1, 16384 / std::max<index>(width, 1)), [&](index begin, index end) {
            for (index r = begin; r < end; ++r)
                std::copy_n(part.data() + r * width, width, all.data() + r * channels + at);
        });
        at += width;
    }
    return all;
}

/// Channels [begin, begin + width) of t as a new tensor (…, width).
template <class T>
tensor<T> cut_channels(const tensor<T>& t, index begin, index width) {
    const index channels = t.extent(-1), rows = channels ? t.size() / channels : 0;
    require(begin >= 0 && begin + width <= channels, "cutting channels ", begin, " to ", begin + width, " of ",
            t.shape());
    tensor<T> part(t.shape().with(-1, width));
    parallel_for(rows, std::max<index>(1, 16384 / std::max<index>(width, 1)), [&](index first, index last) {
        for (index r = first; r < last; ++r)
            std::copy_n(t.data() + r * channels + begin, width, part.data() + r * width);
    });
    return part;
}

}  // namespace cairn
