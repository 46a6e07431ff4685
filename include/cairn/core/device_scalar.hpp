#pragma once
// Lazy device scalar, such as the loss of a batch. The host continues to launch; conversion to double synchronises.

#include <cairn/core/tensor.hpp>

#include <concepts>
#include <span>
#include <type_traits>
#include <vector>

namespace cairn {

/// A number in the memory of D, times a factor that the host knows.
template <Device D>
class device_scalar {
public:
    device_scalar(double known = 0) : factor_(known) {}
    /// `at` holds one element, written by earlier launches.
    explicit device_scalar(tensor<double, D> at) : at_(std::move(at)), factor_(1) {}
    device_scalar(const device_scalar& other) : at_(other.at_.share()), factor_(other.factor_) {}
    device_scalar(device_scalar&&) noexcept = default;
    device_scalar& operator=(device_scalar&&) noexcept = default;

    /// The number. Synchronises with the launches until now.
    operator double() const { return at_.empty() ? factor_ : factor_ * at_.on_host(memory_category::workspace)[0]; }

    device_scalar& operator*=(double by) {
        factor_ *= by;
        return *this;
    }

    /// Address of the number without its factor in D's memory; null: the host knows it.
    const double* there() const { return at_.empty() ? nullptr : at_.data(); }
    /// From now on the host knows the number: `value`, without the factor.
    void arrived(double value) {
        factor_ *= value;
        at_ = {};
    }

private:
    tensor<double, D> at_;
    double factor_;
};

/// A device with asynchronous copies to the host.
///   D::begin_copy_to_host(to, from, bytes)    to: of host_memory(); in stream order. Complete after finish() of the
///                                             returned object.
template <class D>
concept CopiesOut = Device<D> && requires(void* to) {
    D::host_memory();
    D::begin_copy_to_host(to, to, index_t{1}).finish();
};

/// A number in D's memory that is copied to the host asynchronously.
template <CopiesOut D>
class scalar_to_host {
public:
    /// Memory for it, on both sides.
    scalar_to_host(memory_category use)
        : there_(tensor<double, D>::zeros({2}, use)), here_({1}, memory_category::workspace, D::host_memory()) {}

    /// The number in D's memory, for kernels.
    double* there() { return there_.data(); }
    device_scalar<D> number() const { return device_scalar<D>(there_.slice(0, {1})); }
    /// Room for a second number, which stays on D.
    double* beside() { return there_.data() + 1; }

    /// Copies the number as earlier launches leave it, calls `between` meanwhile, waits, and returns the number.
    template <class Meanwhile>
    double sent(Meanwhile&& between) {
        const auto copy = D::begin_copy_to_host(here_.data(), there_.data(), here_.bytes());
        between();
        copy.finish();
        return here_[0];
    }

private:
    tensor<double, D> there_;
    tensor<double, cpu> here_;
};

/// Numbers in D's memory that are copied to the host together, with one wait.
template <CopiesOut D>
class scalars_to_host {
public:
    /// Copies the numbers as earlier launches leave them, calls `between` meanwhile, and waits for them.
    template <class Meanwhile>
    void fetch(std::span<device_scalar<D>* const> numbers, Meanwhile&& between) {
        if (here_.size() < static_cast<index_t>(numbers.size()))
            here_ = tensor<double, cpu>({static_cast<index_t>(numbers.size())}, memory_category::workspace,
                                        D::host_memory());
        using copy = decltype(D::begin_copy_to_host(nullptr, nullptr, index_t{}));
        std::vector<copy> copies;
        for (std::size_t i = 0; i < numbers.size(); ++i)
            if (const double* const there = numbers[i]->there())
                copies.push_back(D::begin_copy_to_host(&here_[static_cast<index_t>(i)], there, sizeof(double)));
        between();
        for (const copy& c : copies) c.finish();
        for (std::size_t i = 0; i < numbers.size(); ++i)
            if (numbers[i]->there()) numbers[i]->arrived(here_[static_cast<index_t>(i)]);
    }

private:
    tensor<double, cpu> here_;
};

/// The numeric result of a computation on D: on the host, which has it when a call returns, the number itself.
template <Device D>
using scalar_on = std::conditional_t<std::same_as<D, cpu>, double, device_scalar<D>>;

/// The number that `at` holds; on a device, that it will hold.
template <Device D>
device_scalar<D> scalar_of(tensor<double, D> at) {
    return device_scalar<D>(std::move(at));
}
inline double scalar_of(const tensor<double, cpu>& at) { return at[0]; }

}  // namespace cairn
