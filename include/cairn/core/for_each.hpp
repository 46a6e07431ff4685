#pragma once
// Fused elementwise passes: one functor over any number of equally long arrays, threaded and vectorised.
//   for_each(cpu{}, n, [](float& theta, float g) { theta -= lr * g; }, theta, g);
// Bytes moved: each array once. A device is chosen by its tag; the functor is the same text on all of them, where it
// has a name and its operator() is CAIRN_HD.

#include <cairn/core/host_device.hpp>
#include <cairn/core/kernel_call.hpp>
#include <cairn/core/parallel.hpp>
#include <cairn/core/tensor.hpp>

#include <algorithm>
#include <array>
#include <string_view>

namespace cairn {

class launch_parameters;

/// Common functors. They have names because a GPU cannot take every lambda.
namespace functors {

/// sum += other.
struct add {
    template <class T>
    CAIRN_HD void operator()(T& sum, const T& other) const {
        sum += other;
    }
};

/// x *= factor, rounded once where x is narrower than S.
template <class T, class S = T>
struct times {
    S factor;
    CAIRN_HD void operator()(T& x) const { x = static_cast<T>(x * factor); }
};

/// x += factor · y.
template <class T>
struct add_scaled {
    T factor;
    CAIRN_HD void operator()(T& x, const T& y) const { x += factor * y; }
};

/// mean += of_batch · sum − part · mean.
template <class T>
struct move_mean {
    T part, of_batch;
    CAIRN_HD void operator()(T& mean, const T& sum) const { mean += of_batch * sum - part * mean; }
};

/// x = value.
template <class T>
struct assign {
    T value;
    CAIRN_HD void operator()(T& x) const { x = value; }
};

/// x = max(x, 0).
template <class T>
struct at_least_zero {
    CAIRN_HD void operator()(T& x) const { x = x < T{} ? T{} : x; }
};

/// to = from, of another type.
template <class To, class From>
struct convert {
    CAIRN_HD void operator()(To& to, const From& from) const { to = static_cast<To>(from); }
};

/// result = a + b.
struct sum {
    template <class T>
    CAIRN_HD void operator()(T& result, const T& a, const T& b) const {
        result = a + b;
    }
};

}  // namespace functors

/// f itself, or the result of its member at_hand(): f with its numbers read from the device's memory. Called on the
/// device.
template <class F>
CAIRN_HD auto at_hand(const F& f) {
    if constexpr (requires { f.at_hand(); })
        return f.at_hand();
    else
        return f;
}

namespace functors {

/// The functor that lies in the device's memory when the kernel runs (core/launch_parameters.hpp).
template <class F>
struct functor_in_memory {
    const F* there;
    CAIRN_HD auto at_hand() const { return cairn::at_hand(*there); }
};

}  // namespace functors

/// Two sums taken in one pass.
struct sum_pair {
    double first = 0, second = 0;
    sum_pair& operator+=(const sum_pair& other) {
        first += other.first;
        second += other.second;
        return *this;
    }
};

/// Several sums taken in one pass.
template <int Count>
struct sums_of {
    double at[Count] = {};
    sums_of& operator+=(const sums_of& other) {
        for (int k = 0; k < Count; ++k) at[k] += other.at[k];
        return *this;
    }
};

/// Which two of several arrays are multiplied.
struct pair_of_arrays {
    int first, second;
};

/// A value of an array, and where it is.
template <class T>
struct element_of {
    index_t at = 0;
    T value{};
};

/// Items a thread takes at a time: two or three arrays of it fit the first-level cache.
inline constexpr index_t elementwise_grain = 4096;

namespace detail {

/// The name of a functor's type without namespaces and arguments, "elementwise" for a lambda: its kernel's kind.
template <class F>
struct functor_name {
    static constexpr std::string_view whole() {
        std::string_view name = __PRETTY_FUNCTION__;  // … [with F = cairn::functors::times<float>; …
        name.remove_prefix(name.find("F = ") + 4);
        const bool lambda = name.substr(0, name.find(';')).find("lambda") != name.npos;
        name = name.substr(0, name.find_first_of("<;]("));
        if (const auto colon = name.rfind(':'); colon != name.npos) name.remove_prefix(colon + 1);
        return name.empty() || lambda ? "elementwise" : name;
    }
    static constexpr auto characters = [] {
        std::array<char, whole().size() + 1> copy{};
        std::copy(whole().begin(), whole().end(), copy.begin());
        return copy;
    }();
    static constexpr const char* value = characters.data();
};

}  // namespace detail

/// Calls f(a[i], b[i], …) for i in [0, n). Arrays may be equal, but must not overlap otherwise. f must not throw: no
/// exception leaves a simd loop, the program ends.
template <class F, class... Elements>
void for_each(cpu, index_t n, F f, Elements*... arrays) {
    constexpr index_t bytes = (index_t{0} + ... + index_t{sizeof(Elements)});  // of an element of each
    const kernel_call call(detail::functor_name<F>::value, "any", static_cast<double>(n) * sizeof...(Elements),
                           static_cast<double>(n) * bytes, {n, bytes});
    if (on_phantom_rank()) return;  // numbers at hand may lie in its memory
    auto ready = at_hand(f);
    parallel_for(n, elementwise_grain * 4, [&](index_t begin, index_t end) {
#pragma omp simd
        for (index_t i = begin; i < end; ++i) ready(arrays[i]...);
    });
}

/// The same, of an update on a device that may be told later whether the norm of the gradients is finite, by numbers
/// that are placed in its memory. The host knows it before, and its update is not recorded.
template <class F, class... Elements>
void for_each_if_finite(cpu d, const double*, launch_parameters*, index_t n, F f, Elements*... arrays) {
    for_each(d, n, f, arrays...);
}

/// Calls f(i) for i in [0, n). What it moves its caller alone knows.
template <class F>
void for_indices(cpu, index_t n, const F& f) {
    const kernel_call call("indices", "any", static_cast<double>(n), 0, {n});
    parallel_for(n, elementwise_grain, [&](index_t begin, index_t end) {
        for (index_t i = begin; i < end; ++i) f(i);
    });
}

/// Calls f on the elements of tensors of equal size. Throws if the sizes differ.
template <class F, class T, class D, class... Others>
void for_each(F f, tensor<T, D>& first, Others&... others) {
    require(((others.size() == first.size()) && ...), "for_each: tensors of different size, the first has ",
            first.shape());
    for_each(D{}, first.size(), f, first.data(), others.data()...);
}

/// All elements become 0: on the host by all threads.
template <class T, Device D>
void set_to_zero(D, tensor<T, D>& t) {
    D::set_bytes(t.data(), 0, t.bytes());
}
template <class T>
void set_to_zero(cpu, tensor<T>& t) {
    for_each([](T& x) { x = T{}; }, t);
}

}  // namespace cairn
