#pragma once
// A number that a device computes, such as the loss of a batch. It is read when somebody asks for it: until then the host goes on launching
// what comes after.

#include <cairn/core/tensor.hpp>

#include <concepts>
#include <type_traits>

namespace cairn {

/// A number in the memory of D, times a factor that the host knows.
template <Device D>
class number_on {
public:
    number_on(double known = 0) : factor_(known) {}
    /// `at` holds one element, which what was launched before this writes.
    explicit number_on(tensor<double, D> at) : at_(std::move(at)), factor_(1) {}
    number_on(const number_on& other) : at_(other.at_.share()), factor_(other.factor_) {}
    number_on(number_on&&) noexcept = default;
    number_on& operator=(number_on&&) noexcept = default;

    /// The number; waits for what was launched until now.
    operator double() const { return at_.empty() ? factor_ : factor_ * at_.on_host(category::workspace)[0]; }

    number_on& operator*=(double by) {
        factor_ *= by;
        return *this;
    }

private:
    tensor<double, D> at_;
    double factor_;
};

/// What a computation on D gives back as a number: on the host the number itself.
template <Device D>
using number = std::conditional_t<std::same_as<D, cpu>, double, number_on<D>>;

}  // namespace cairn
