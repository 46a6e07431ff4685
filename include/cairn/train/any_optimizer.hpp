#pragma once
// Any optimizer over the parameters of one arena, behind one type: what the training loop holds.

#include <cairn/optim/optimizer.hpp>

#include <memory>

namespace cairn {

template <class T = float, Device D = cpu>
class any_optimizer {
public:
    template <class O>
    any_optimizer(optimizer_over<O, T, D> o) : self_(std::make_unique<model<O>>(std::move(o))) {}

    /// One update with the gradients in the arena; returns their norm.
    double step(double lr) { return self_->step(lr); }
    std::int64_t& steps() { return self_->steps(); }
    std::vector<named_tensor<T, D>> tensors() { return self_->tensors(); }
    shard owned() const { return self_->owned(); }
    std::vector<named_tensor<T, D>> flat_state() { return self_->flat_state(); }

private:
    struct interface {
        virtual ~interface() = default;
        virtual double step(double lr) = 0;
        virtual std::int64_t& steps() = 0;
        virtual std::vector<named_tensor<T, D>> tensors() = 0;
        virtual shard owned() const = 0;
        virtual std::vector<named_tensor<T, D>> flat_state() = 0;
    };
    template <class O>
    struct model final : interface {
        explicit model(optimizer_over<O, T, D> optimizer) : o(std::move(optimizer)) {}
        double step(double lr) override { return o.step(lr); }
        std::int64_t& steps() override { return o.steps(); }
        std::vector<named_tensor<T, D>> tensors() override { return o.tensors(); }
        shard owned() const override { return o.owned(); }
        std::vector<named_tensor<T, D>> flat_state() override { return o.flat_state(); }
        optimizer_over<O, T, D> o;
    };
    std::unique_ptr<interface> self_;
};

}  // namespace cairn
