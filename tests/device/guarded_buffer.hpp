#pragma once
// An array between pages that must not be touched, for kernels that may go beyond their operands.

#include <sys/mman.h>
#include <unistd.h>
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <type_traits>
#include <vector>

namespace kernel_tests {

/// `values` as numbers of T, at a multiple of 64 bytes. Reading or writing more than 63 bytes behind the end is a
/// segmentation fault, and so is a page or more before the start. What lies between is NaN, and intact() says whether
/// it still is.
template <class T>
class guarded_buffer {
public:
    explicit guarded_buffer(const std::vector<float>& values) : size_(values.size()) {
        const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
        const std::size_t room = (size_ * sizeof(T) + 63) / 64 * 64;
        open_ = (room + page - 1) / page * page + page;  // a page of NaN before the start, at least
        bytes_ = open_ + 2 * page;
        void* at = mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) throw std::runtime_error("guarded_buffer: mmap failed");
        map_ = static_cast<char*>(at);
        if (mprotect(map_ + page, open_, PROT_READ | PROT_WRITE) != 0) throw std::runtime_error("mprotect failed");
        first_ = reinterpret_cast<T*>(map_ + page);
        data_ = reinterpret_cast<T*>(map_ + page + open_ - room);
        for (T* p = first_; p < end(); ++p) *p = guard();
        std::transform(values.begin(), values.end(), data_, [](float v) { return static_cast<T>(v); });
    }
    ~guarded_buffer() { munmap(map_, bytes_); }
    guarded_buffer(const guarded_buffer&) = delete;
    guarded_buffer& operator=(const guarded_buffer&) = delete;

    T* data() const { return data_; }
    std::vector<float> values() const { return {data_, data_ + size_}; }

    /// Whether all that surrounds the array is as it was.
    bool intact() const {
        const T expected = guard();
        const auto is_guard = [&](const T* p) { return std::memcmp(p, &expected, sizeof(T)) == 0; };
        for (const T* p = first_; p < end(); ++p)
            if ((p < data_ || p >= data_ + size_) && !is_guard(p)) return false;
        return true;
    }

private:
    static T guard() {
        using bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint16_t>;
        return std::bit_cast<T>(static_cast<bits>(sizeof(T) == 4 ? 0x7fc0cafe : 0x7fca));  // no arithmetic makes them
    }
    const T* end() const { return first_ + open_ / sizeof(T); }

    std::size_t size_, open_ = 0, bytes_ = 0;
    char* map_ = nullptr;
    T *first_ = nullptr, *data_ = nullptr;
};

}  // namespace kernel_tests
