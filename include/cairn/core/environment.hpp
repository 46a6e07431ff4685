#pragma once
// Numbers from environment variables. A value such as "4G" or "abc" is an error; atof and strtoll would read another
// number.

#include <cairn/core/error.hpp>

#include <charconv>
#include <cstdlib>
#include <string_view>
#include <type_traits>

namespace cairn {

/// The number that the environment variable `name` sets, `otherwise` where it sets none. Throws naming the variable,
/// its value and `allowed` ("seconds, at least 0") unless the whole value is a finite number from `least` to `most`.
template <class T>
T environment_number(const char* name, T otherwise, T least, T most, std::string_view allowed) {
    static_assert(std::is_arithmetic_v<T>);
    const char* const given = std::getenv(name);
    if (!given) return otherwise;
    const std::string_view text = given;
    T number{};
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool whole = failure == std::errc{} && end == text.data() + text.size();
    require(whole && number >= least && number <= most, "environment variable ", name, "='", text, "': expected ",
            allowed);
    return number;
}

}  // namespace cairn
