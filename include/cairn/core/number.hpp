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

/// A device that copies to the host beside what it is given next.
///   D::begin_copy_to_host(to, from, bytes)    to: of host_memory(); behind what was launched before. The host has it after finish() of that.
template <class D>
concept CopiesOut = Device<D> && requires(void* to) {
    D::host_memory();
    D::begin_copy_to_host(to, to, index{1}).finish();
};

/// A number of D's memory that goes to the host while D goes on.
template <CopiesOut D>
class number_to_host {
public:
    /// Memory for it, on both sides.
    number_to_host(category use)
        : there_(tensor<double, D>::zeros({1}, use)), here_({1}, category::workspace, D::host_memory()) {}

    /// What kernels write it to, and read it from.
    double* there() { return there_.data(); }

    /// Sends what was launched before this leaves there; what is called between is done beside it. Waits, and returns the number.
    template <class Meanwhile>
    double sent(Meanwhile&& between) {
        const auto copy = D::begin_copy_to_host(here_.data(), there_.data(), there_.bytes());
        between();
        copy.finish();
        return here_[0];
    }

private:
    tensor<double, D> there_;
    tensor<double, cpu> here_;
};

/// What a computation on D gives back as a number: on the host the number itself.
template <Device D>
using number = std::conditional_t<std::same_as<D, cpu>, double, number_on<D>>;

}  // namespace cairn
