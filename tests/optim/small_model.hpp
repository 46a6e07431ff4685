#pragma once
// Parameters without a network: shapes that leave gaps in the arena, one beyond the grain of a launch, decay flags that
// alternate, and gradients that depend on the step alone. On another device: the same numbers, drawn on the host.

#include <cairn/core/arena.hpp>
#include <cairn/core/parallel.hpp>
#include <cairn/optim/optimizer.hpp>

#include "oracle/optimizers.hpp"

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

template <class T, cairn::Device D = cairn::cpu>
struct small_model {
    std::vector<std::unique_ptr<cairn::parameter<T, D>>> owned;
    std::unique_ptr<cairn::arena<T, D>> memory;
    cairn::tensor<T> sine, cosine;
    static constexpr cairn::index_t rows = std::same_as<D, cairn::cpu> ? 140 : 24;  // emulated devices take their time

    small_model() {
        const auto add = [&](cairn::shape s, bool decay) {
            owned.push_back(std::make_unique<cairn::parameter<T, D>>());
            owned.back()->shape = s;
            owned.back()->decay = decay;
            owned.back()->init = {cairn::initializer::distribution::normal, 0.5, 0.1};
        };
        add({3, 3, 5, 7}, true);
        add({7}, false);
        add({1}, false);
        add({rows, 131}, true);
        add({2, 3}, true);
        add({0}, true);
        add({131}, false);
        add({33}, true);
        cairn::parameter_list<T, D> list;
        for (std::size_t i = 0; i < owned.size(); ++i) list.push_back({cairn::concat("p", i), owned[i].get()});
        memory = std::make_unique<cairn::arena<T, D>>(list, 7);
        for (cairn::tensor<T>* wave : {&sine, &cosine}) {
            *wave = cairn::tensor<T>({memory->grads().size()});
            cairn::fill(wave->span(), {cairn::initializer::distribution::normal, 1.0, 0.0},
                        {11, wave == &sine ? 0u : 1u, 0});
        }
    }

    /// Sets the gradients of step `step`: every value swings around 0.05 with its own phase.
    void set_gradients(int step) {
        const T a = static_cast<T>(std::sin(step)), b = static_cast<T>(std::cos(step));
        cairn::index_t next = 0;
        for (auto& p : owned) {
            cairn::tensor<T> of_p(p->shape);
            for (T& g : of_p.span()) {
                g = a * sine[next] + b * cosine[next] + static_cast<T>(0.05);
                ++next;
            }
            set(p->grad, of_p);
        }
    }

    /// Writes `values` into a tensor of this model.
    static void set(cairn::tensor<T, D>& to, const cairn::tensor<T>& values) {
        if constexpr (std::same_as<D, cairn::cpu>)
            std::copy_n(values.data(), values.size(), to.data());
        else
            D::copy_to_device(to.data(), values.data(), values.bytes());
    }

    std::vector<oracle::trained> oracle_start() const {
        std::vector<oracle::trained> all;
        for (const auto& p : owned) all.push_back({numbers(p->value), p->decay});
        return all;
    }
    std::vector<oracle::gradient> oracle_gradients() const {
        std::vector<oracle::gradient> all;
        for (const auto& p : owned) all.push_back(numbers(p->grad));
        return all;
    }
    static std::vector<double> numbers(const cairn::tensor<T, D>& t) {
        const cairn::tensor<T> here = t.on_host();
        return {here.data(), here.data() + here.size()};
    }

    /// Sum over everything between the parameters.
    double gaps(const cairn::tensor<T, D>& whole) const {
        const cairn::tensor<T> flat = whole.on_host();
        double all = 0, used = 0;
        for (T value : flat.span()) all += std::abs(static_cast<double>(value));
        for (const auto& p : owned) {
            const auto begin = p->value.data() - memory->values().data();
            for (cairn::index_t i = 0; i < p->shape.size(); ++i) used += std::abs(static_cast<double>(flat[begin + i]));
        }
        return all - used;
    }
};

template <class T>
bool same_bits(const cairn::tensor<T>& a, const cairn::tensor<T>& b) {
    return a.shape() == b.shape() && std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.bytes())) == 0;
}

/// Largest difference between parameters and oracle, in units of the largest value of the parameter.
template <class T, class D>
double distance(const small_model<T, D>& model, const std::vector<oracle::trained>& expected) {
    double worst = 0;
    for (std::size_t k = 0; k < expected.size(); ++k) {
        const auto values = model.numbers(model.owned[k]->value);
        double largest = 1e-30;
        for (double value : expected[k].theta) largest = std::max(largest, std::abs(value));
        for (std::size_t i = 0; i < expected[k].theta.size(); ++i) {
            const double difference = std::abs(values[i] - expected[k].theta[i]);
            if (!(difference / largest <= worst)) worst = difference / largest;  // also when it is NaN
        }
    }
    return worst;
}

/// Distance after `steps` updates with a rate that changes; `reference` updates all parameters of the oracle.
template <class T, class D = cairn::cpu, class O>
double distance_after(
    O o, int steps, double lr,
    const std::function<void(std::vector<oracle::trained>&, std::vector<oracle::gradient>, double, int)>& reference) {
    const cairn::threads_for_now one(1);
    small_model<T, D> model;
    cairn::bound_optimizer opt(o, *model.memory);
    auto expected = model.oracle_start();
    for (int t = 1; t <= steps; ++t) {
        model.set_gradients(t);
        const double rate = lr * (1 + 0.5 * std::sin(t));
        reference(expected, model.oracle_gradients(), rate, t);
        opt.step(rate);
    }
    return distance(model, expected);
}
