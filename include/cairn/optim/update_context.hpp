#pragma once
// What one update of an optimizer is told, and how it changes tensors: in one pass, on any device, also as part of a
// step that is recorded.

#include <cairn/core/device_scalar.hpp>
#include <cairn/core/for_each.hpp>
#include <cairn/core/launch_parameters.hpp>
#include <cairn/core/tensor.hpp>

#include <array>
#include <cstdint>
#include <functional>
#include <span>

namespace cairn {

/// Arguments of an update besides the tensors.
struct update_context {
    std::int64_t number = 1;     // 1 for the first update
    double lr = 0;               // learning rate of this update
    double gradient_norm = 0;    // ‖all gradients of the model‖₂
    bool decay = true;           // weight decay and trust ratios apply to this parameter
    bool unit_gradient = false;  // its gradient has the root mean square 1 already
    // Not null: gradient_norm is there, in the device's memory, and the host does not know it yet.
    const double* device_norm = nullptr;
    double* device_scratch = nullptr;  // of one number, in the device's memory, for as long as one parameter is updated
    // Not null: this parameter is a slice; adds sums over it to those over the other slices. Every rank calls it alike.
    const std::function<void(std::span<double>)>* over_slices = nullptr;
    // Not null: functors go to the device by way of these, and are launched where these say so.
    launch_parameters* numbers = nullptr;
};

/// An optimizer that finds the norm of the gradients at device_norm, or does without; and changes things by
/// change_each() and sum_each_into() of its update_context alone, whose functors hold no address but device_norm, and
/// what update_scratch gives.
///   static constexpr bool capturable = true;
template <class O>
concept Capturable = O::capturable;

/// A layer-wise optimizer that takes its sums on the host by whole_sums(), so that it updates slices as it does wholes.
///   static constexpr bool sums_over_slices = true;
template <class O>
concept SumsOverSlices = O::sums_over_slices;

/// Sums over the whole parameter, from those over the part on this rank.
inline sum_pair whole_sums(const update_context& at, sum_pair here) {
    if (!at.over_slices) return here;
    std::array<double, 2> sums{here.first, here.second};
    (*at.over_slices)(sums);
    return {sums[0], sums[1]};
}

/// for_each on tensors, as a part of this update: on a device nothing is changed if its norm of the gradients is not
/// finite.
template <class F, class T, class D, class... Others>
void change_each(const update_context& at, F f, tensor<T, D>& first, Others&... others) {
    require(((others.size() == first.size()) && ...), "change_each: tensors of different size, the first has ",
            first.shape());
    for_each_if_finite(D{}, at.device_norm, at.numbers, first.size(), f, first.data(), others.data()...);
}

/// On a device, as a part of this update: f(first, second, a[i], b[i], …) may change the elements and adds to two sums,
/// finish(first, second) goes to *out. Where the norm of the gradients is not finite f is not called.
template <class F, class Finish, class T, class D, class... Others>
void sum_each_into(const update_context& at, F f, Finish finish, double* out, tensor<T, D>& first, Others&... others) {
    const auto with = [&](const auto& functor, const auto& last) {
        sum_each_into(D{}, at.device_norm, first.size(), functor, last, out, first.data(), others.data()...);
    };
    if (!at.numbers) return with(f, finish);
    const F* const there = at.numbers->place(f);
    const Finish* const finish_there = at.numbers->place(finish);
    if (at.numbers->launching())
        with(functors::functor_in_memory<F>{there}, functors::functor_in_memory<Finish>{finish_there});
}

/// Room for one number on D while a parameter is updated: at.device_scratch, or its own.
template <Device D>
class update_scratch {
public:
    explicit update_scratch(const update_context& at) : at_(at.device_scratch) {
        if (at_) return;
        own_ = tensor<double, D>({1}, memory_category::workspace);
        at_ = own_.data();
    }
    double* data() const { return at_; }

private:
    tensor<double, D> own_;
    double* at_;
};

}  // namespace cairn
