#pragma once
// Finding the first number that is infinite or not a number, and saying in whose tensor it is.

#include <cairn/core/parallel.hpp>
#include <cairn/core/parameter.hpp>

#include <cmath>
#include <optional>
#include <string>

namespace cairn {

/// Position of the first element that is not finite, or nothing. 1 read per element.
template <class T>
std::optional<index_t> first_non_finite(const tensor<T, cpu>& t) {
    constexpr index_t grain = 1 << 16;
    const index_t none = t.size();
    struct first {
        index_t at = -1;
        first& operator+=(const first& later) {
            if (at < 0) at = later.at;
            return *this;
        }
    };
    const T* data = t.data();
    const first found = parallel_sum<first>(none, grain, [&](index_t begin, index_t end) {
        for (index_t i = begin; i < end; ++i)
            if (!std::isfinite(static_cast<double>(data[i]))) return first{i};
        return first{};
    });
    if (found.at < 0) return std::nullopt;
    return found.at;
}

/// The same of another device's memory, copied to the host: for messages.
template <class T, Device D>
    requires(!std::same_as<D, cpu>)
std::optional<index_t> first_non_finite(const tensor<T, D>& t) {
    return first_non_finite(t.on_host(memory_category::workspace));
}

/// "conv1/weight (3, 3, 16, 32): element 7 is nan" for the first non-finite element of the tensor called `name`, else
/// "".
template <class T>
std::string first_non_finite(const std::string& name, const tensor<T, cpu>& t) {
    const auto at = first_non_finite(t);
    if (!at) return {};
    return concat(name, ' ', t.shape(), ": element ", *at, " is ", static_cast<double>(t[*at]));
}

/// The same of another device's memory, copied to the host.
template <class T, Device D>
    requires(!std::same_as<D, cpu>)
std::string first_non_finite(const std::string& name, const tensor<T, D>& t) {
    return first_non_finite(name, t.on_host(memory_category::workspace));
}

/// The same, "value of conv1/weight …", for the first non-finite value or gradient in a model's parameters, else "".
template <class T>
std::string first_non_finite(const parameter_list<T, cpu>& parameters) {
    for (const auto& [name, p] : parameters) {
        if (auto found = first_non_finite("value of " + name, p->value); !found.empty()) return found;
        if (auto found = first_non_finite("gradient of " + name, p->grad); !found.empty()) return found;
    }
    return {};
}

}  // namespace cairn
