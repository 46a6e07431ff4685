#pragma once
// Finding the first number that is infinite or not a number, and saying in whose tensor it is.

#include <cairn/core/parallel.hpp>
#include <cairn/core/parameter.hpp>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <span>
#include <string>

namespace cairn {

/// Position of the first element that is not finite, or nothing. 1 read per element.
template <class T>
std::optional<index_t> first_non_finite(std::span<const T> data) {
    constexpr index_t grain = 1 << 16;
    const auto none = std::ssize(data);
    const auto first_of = [&](index_t begin, index_t end) {
        while (begin < end && std::isfinite(static_cast<double>(data[static_cast<std::size_t>(begin)]))) ++begin;
        return begin < end ? begin : none;
    };
    const index_t at = parallel_fold(none, grain, none, first_of,
                                     [](index_t& first, index_t later) { first = std::min(first, later); });
    return at < none ? std::optional(at) : std::nullopt;
}
/// The same of a tensor. Memory of a device is copied to the host, here and below: for messages.
template <class T, Device D>
std::optional<index_t> first_non_finite(const tensor<T, D>& there) {
    const tensor<T> t = host_side(there);
    return first_non_finite(std::span<const T>(t.data(), static_cast<std::size_t>(t.size())));
}

/// "conv1/weight (3, 3, 16, 32): element 7 is nan" for the first non-finite element of the tensor called `name`, else
/// "".
template <class T, Device D>
std::string first_non_finite(const std::string& name, const tensor<T, D>& there) {
    const tensor<T> t = host_side(there);
    const auto at = first_non_finite(t);
    if (!at) return {};
    return concat(name, ' ', t.shape(), ": element ", *at, " is ", static_cast<double>(t[*at]));
}

/// The same, "value of conv1/weight …", for the first non-finite value or gradient in a model's parameters, else "".
template <class T, Device D>
std::string first_non_finite(const parameter_list<T, D>& parameters) {
    for (const auto& [name, p] : parameters) {
        if (auto found = first_non_finite("value of " + name, p->value); !found.empty()) return found;
        if (auto found = first_non_finite("gradient of " + name, p->grad); !found.empty()) return found;
    }
    return {};
}

}  // namespace cairn
