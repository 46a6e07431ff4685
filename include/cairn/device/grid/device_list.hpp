#pragma once
// Descriptions that the kernels of a grid device read.

#include <cairn/core/tensor.hpp>

#include <cstdint>
#include <vector>

namespace cairn::grid {

/// A list that kernels read, in device memory.
template <class T, Device D>
class device_list {
public:
    void fill(const std::vector<T>& all) {
        count_ = static_cast<index_t>(all.size());
        bytes_ = tensor<std::uint8_t, D>({count_ * static_cast<index_t>(sizeof(T))}, memory_category::communication);
        if (count_) D::copy_to_device(bytes_.data(), all.data(), bytes_.bytes());
    }
    const T* data() const { return reinterpret_cast<const T*>(bytes_.data()); }
    index_t size() const { return count_; }

private:
    tensor<std::uint8_t, D> bytes_;
    index_t count_ = 0;
};

}  // namespace cairn::grid
