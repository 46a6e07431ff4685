#pragma once
// The pixels of each sample from itself. Loss: binary cross-entropy of each pixel, summed over the image, of logits.
// Figure: squared error an image.

#include <cairn/core/for_each.hpp>
#include <cairn/device/cpu/label_sampling.hpp>
#include <cairn/device/cpu/reduce.hpp>
#include <cairn/nn/loss/binary_cross_entropy.hpp>
#include <cairn/objectives/objective.hpp>

#include <cmath>

namespace cairn {

namespace functors {

/// error = (sigmoid(y) − x)².
struct squared_pixel_error {
    CAIRN_HD void operator()(double& error, const float& y, const float& x) const {
        const double difference = 1 / (1 + std::exp(-static_cast<double>(y))) - static_cast<double>(x);
        error = difference * difference;
    }
};

}  // namespace functors

struct reconstruction {
    template <Device D>
    loss_result<float, D> loss(tensor<float, D> y, const samples<D>& s) const {
        return summed_over_pixels(std::move(y), s.x);
    }
    /// Pixels from sigmoid(y).
    template <Device D>
    tensor<float, D> sampled_gradient(tensor<float, D> y, const random_stream& random, index_t first) const {
        tensor<float, D> drawn(y.shape(), memory_category::workspace);
        sample_pixels(D{}, y.size(), y.data(), random, drawn.data(), first * (y.size() / y.extent(0)));
        return summed_over_pixels(std::move(y), drawn).gradient;
    }

    evaluation start() const { return {.sums = {{"squared_error", {0}}}}; }
    template <Device D>
    void add(evaluation& e, const tensor<float, D>& y, const device_batch<D>& b) const {
        tensor<double, D> errors({y.size()}, memory_category::workspace), sum({1}, memory_category::workspace);
        for_each(D{}, y.size(), functors::squared_pixel_error{}, errors.data(), y.data(), b.there.x.data());
        sum_into(D{}, y.size(), errors.data(), sum.data());
        e.sums["squared_error"][0] += static_cast<double>(scalar_of(std::move(sum)));
    }
    metric_list metrics(const evaluation& e) const { return {{"squared_error", e.mean("squared_error")}}; }

private:
    // Mean over the batch of the sum over the pixels.
    template <Device D>
    static loss_result<float, D> summed_over_pixels(tensor<float, D> y, const tensor<float, D>& x) {
        const index_t pixels = y.size() / y.extent(0);
        const tensor<float, D> target = x.reshaped(y.shape());
        auto result = binary_cross_entropy{}(std::move(y), target);
        result.value *= static_cast<double>(pixels);
        for_each(functors::times<float>{static_cast<float>(pixels)}, result.gradient);
        return result;
    }
};

}  // namespace cairn
