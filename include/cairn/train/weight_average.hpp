#pragma once
// A running mean of a model's weights, which is tested beside them: exponential, as in Tarvainen & Valpola, "Mean
// teachers are better role models", NeurIPS 2017.
//   m ← m + (1 − d) (θ − m)             behind update t = 0, 1, …
//   d = min(decay, (1 + t) / (10 + t))  so that the start is soon forgotten
// Of running statistics of normalisation likewise. m begins as the weights do, and is part of the run's state.

#include <cairn/core/arena.hpp>
#include <cairn/core/for_each.hpp>
#include <cairn/nn/layer.hpp>
#include <cairn/train/step_hook.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

namespace functors {

/// a and b change places.
template <class T>
struct exchange {
    CAIRN_HD void operator()(T& a, T& b) const {
        const T before = a;
        a = b;
        b = before;
    }
};

}  // namespace functors

/// See the top of the file. The arena and the buffers outlive it.
template <Device D>
class weight_average {
public:
    weight_average(double decay, arena<float, D>& weights, buffer_list<float, D> buffers)
        : decay_(decay), mean_(weights.values().clone(memory_category::optimizer)) {
        of_.push_back(&weights.values());
        for (auto& [path, t] : buffers) {
            statistics_.emplace_back(path, t->clone(memory_category::optimizer));
            of_.push_back(t);
        }
    }

    /// The mean is of the weights as they are.
    void restart() {
        each([](tensor<float, D>& mean, const tensor<float, D>& now) {
            D::copy_within(mean.data(), now.data(), mean.bytes());
        });
    }

    /// The weights have their values of after update `t`, counted from 0.
    void take(std::int64_t t) {
        const auto n = static_cast<double>(t);
        const auto part = static_cast<float>(1 - std::min(decay_, (1 + n) / (10 + n)));
        each([&](tensor<float, D>& mean, const tensor<float, D>& now) {
            for_each(functors::move_mean<float>{part, part}, mean, now);
        });
    }

    /// The model has the mean's values and the mean the model's, until it is called again.
    void exchange() {
        each([](tensor<float, D>& mean, tensor<float, D>& now) { for_each(functors::exchange<float>{}, mean, now); });
    }

    /// Of the parameters, laid out as the arena's values; and of the running statistics by their paths.
    tensor<float, D>& mean() { return mean_; }
    std::vector<std::pair<std::string, tensor<float, D>>>& statistics() { return statistics_; }

private:
    template <class F>
    void each(F&& f) {
        f(mean_, *of_[0]);
        for (std::size_t i = 0; i < statistics_.size(); ++i) f(statistics_[i].second, *of_[i + 1]);
    }

    double decay_;
    tensor<float, D> mean_;
    std::vector<std::pair<std::string, tensor<float, D>>> statistics_;
    std::vector<tensor<float, D>*> of_;
};

/// As long as it lives, the model has the values of the mean.
template <Device D>
class averaged_weights {
public:
    explicit averaged_weights(weight_average<D>& average) : average_(average) { average_.exchange(); }
    ~averaged_weights() { average_.exchange(); }
    averaged_weights(const averaged_weights&) = delete;
    averaged_weights& operator=(const averaged_weights&) = delete;

private:
    weight_average<D>& average_;
};

/// Takes the weights behind every update.
template <Device D, class T>
class weight_averaging final : public step_hook<D, T> {
public:
    explicit weight_averaging(weight_average<D>& average) : average_(average) {}
    void updated(const training_step<D, T>& now) override { average_.take(now.number); }

private:
    weight_average<D>& average_;
};

}  // namespace cairn
