#pragma once
// Costs that are counted, not timed: an element type that counts arithmetic and the cache lines that it moves, and the
// bytes that the program allocates. Include it in one file of a program: it replaces operator new.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <vector>

namespace lab {

/// A cache of 64 lines of 64 bytes that throws out the line that was used longest ago. A line that is not there when an
/// element is read or written is moved.
class model_cache {
public:
    static constexpr std::size_t lines = 64, line_bytes = 64;

    void touch(const void* p) {
        const std::uintptr_t line = reinterpret_cast<std::uintptr_t>(p) / line_bytes;
        const auto found = std::find(held_.rbegin(), held_.rend(), line);  // the last one is the latest
        if (found == held_.rend()) {
            ++moved;
            if (held_.size() == lines) held_.erase(held_.begin());
            held_.push_back(line);
        } else {
            std::rotate(found.base() - 1, found.base(), held_.end());
        }
    }
    void empty() { held_.clear(), moved = 0; }

    std::int64_t moved = 0;

private:
    std::vector<std::uintptr_t> held_;
};

inline model_cache cache;
inline std::int64_t operations = 0, allocated = 0;  // bytes, since `reset_counts`

inline void reset_counts() { cache.empty(), operations = 0, allocated = 0; }

/// A double that counts; to become a double is an operation too. What lies on the stack is taken for a register: it
/// moves no lines.
class counted {
public:
    counted() = default;
    counted(double v) : value_(v) {}
    counted(const counted& other) : value_(other.read()) { touch(); }
    counted& operator=(const counted& other) {
        value_ = other.read();
        touch();
        return *this;
    }
    explicit operator double() const { return one(read()).value_; }

    counted& operator+=(const counted& o) { return *this = *this + o; }
    counted& operator-=(const counted& o) { return *this = *this - o; }
    counted& operator*=(const counted& o) { return *this = *this * o; }
    counted& operator/=(const counted& o) { return *this = *this / o; }
    friend counted operator+(const counted& a, const counted& b) { return one(a.read() + b.read()); }
    friend counted operator-(const counted& a, const counted& b) { return one(a.read() - b.read()); }
    friend counted operator*(const counted& a, const counted& b) { return one(a.read() * b.read()); }
    friend counted operator/(const counted& a, const counted& b) { return one(a.read() / b.read()); }
    friend counted operator-(const counted& a) { return one(-a.read()); }
    friend counted sqrt(const counted& a) { return one(std::sqrt(a.read())); }
    friend counted exp(const counted& a) { return one(std::exp(a.read())); }
    friend counted abs(const counted& a) { return one(std::abs(a.read())); }
    friend counted pow(const counted& a, const counted& b) { return one(std::pow(a.read(), b.read())); }
    friend bool operator==(const counted& a, const counted& b) { return a.read() == b.read(); }
    friend auto operator<=>(const counted& a, const counted& b) { return a.read() <=> b.read(); }

private:
    static counted one(double v) {
        ++operations;
        return counted(v);
    }
    double read() const {
        touch();
        return value_;
    }
    void touch() const {
        const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)),
                   mine = reinterpret_cast<std::uintptr_t>(this);
        if (mine - here > std::uintptr_t{1} << 20) cache.touch(this);
    }

    double value_;
};

}  // namespace lab

// All forms of new come here. Not inlined: the compiler would find that free does not go with new.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
    lab::allocated += static_cast<std::int64_t>(bytes);
    if (void* p = std::malloc(bytes ? bytes : 1)) return p;
    throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }
