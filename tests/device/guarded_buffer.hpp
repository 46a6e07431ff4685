#pragma once
// An array between pages that must not be touched, for kernels that may go beyond their operands.

#include <sys/mman.h>
#include <unistd.h>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <vector>

namespace kernel_tests {

/// `values`, at a multiple of 64 bytes. Reading or writing more than 63 bytes behind the end is a segmentation fault,
/// and so is a page or more before the start. What lies between is NaN, and intact() says whether it still is.
class guarded_buffer {
public:
    explicit guarded_buffer(const std::vector<float>& values) : size_(values.size()) {
        const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
        const std::size_t room = (size_ * sizeof(float) + 63) / 64 * 64;
        open_ = (room + page - 1) / page * page + page;  // a page of NaN before the start, at least
        bytes_ = open_ + 2 * page;
        void* at = mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) throw std::runtime_error("guarded_buffer: mmap failed");
        map_ = static_cast<char*>(at);
        if (mprotect(map_ + page, open_, PROT_READ | PROT_WRITE) != 0) throw std::runtime_error("mprotect failed");
        first_ = reinterpret_cast<float*>(map_ + page);
        data_ = reinterpret_cast<float*>(map_ + page + open_ - room);
        for (float* p = first_; p < end(); ++p) *p = guard();
        std::copy(values.begin(), values.end(), data_);
    }
    ~guarded_buffer() { munmap(map_, bytes_); }
    guarded_buffer(const guarded_buffer&) = delete;
    guarded_buffer& operator=(const guarded_buffer&) = delete;

    float* data() const { return data_; }
    std::vector<float> values() const { return {data_, data_ + size_}; }

    /// Whether all that surrounds the array is as it was.
    bool intact() const {
        const float expected = guard();
        const auto is_guard = [&](const float* p) { return std::memcmp(p, &expected, sizeof(float)) == 0; };
        for (const float* p = first_; p < end(); ++p)
            if ((p < data_ || p >= data_ + size_) && !is_guard(p)) return false;
        return true;
    }

private:
    static float guard() {
        const std::uint32_t bits = 0x7fc0cafe;  // a quiet NaN that no arithmetic makes
        float f;
        std::memcpy(&f, &bits, sizeof f);
        return f;
    }
    const float* end() const { return first_ + open_ / sizeof(float); }

    std::size_t size_, open_ = 0, bytes_ = 0;
    char* map_ = nullptr;
    float *first_ = nullptr, *data_ = nullptr;
};

}  // namespace kernel_tests
