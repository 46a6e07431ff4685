#pragma once
// The values that a numeric setting may have. Neither nan nor an infinity lies in any interval.

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>

namespace cairn {

/// From `least` to `most`, ends included unless they are open.
struct interval {
    double least, most = std::numeric_limits<double>::infinity();
    bool least_open = false, most_open = false;

    bool contains(double x) const {
        return std::isfinite(x) && (least_open ? x > least : x >= least) && (most_open ? x < most : x <= most);
    }
};

/// Any finite number.
inline constexpr interval any_number{-std::numeric_limits<double>::infinity()};

constexpr interval at_least(double least) { return {least}; }
constexpr interval above(double least) { return {.least = least, .least_open = true}; }
constexpr interval from_to(double least, double most) { return {least, most}; }                  // [least, most]
constexpr interval from_below(double least, double most) { return {least, most, false, true}; }  // [least, most)
constexpr interval above_to(double least, double most) { return {least, most, true, false}; }    // (least, most]

/// The shortest text that reads as `x`.
inline std::string text_of(double x) {
    std::array<char, 32> text{};
    return {text.data(), std::to_chars(text.data(), text.data() + text.size(), x).ptr};
}

/// "at least 0 and below 1"
inline std::string text_of(const interval& i) {
    std::string text;
    if (std::isfinite(i.least)) text = (i.least_open ? "above " : "at least ") + text_of(i.least);
    if (std::isfinite(i.most))
        text += (text.empty() ? "" : " and ") + std::string(i.most_open ? "below " : "at most ") + text_of(i.most);
    return text.empty() ? "a finite number" : text;
}

}  // namespace cairn
