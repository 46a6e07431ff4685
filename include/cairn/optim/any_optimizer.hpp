#pragma once
// Any optimizer over the parameters of one arena behind one type, for the training loop.

#include <cairn/optim/optimizer.hpp>

#include <memory>
#include <span>

namespace cairn {

template <class T = float, Device D = cpu>
class any_optimizer {
public:
    template <class O>
    any_optimizer(bound_optimizer<O, T, D> o) : self_(std::make_unique<model<O>>(std::move(o))) {}

    /// One update with the gradients in the arena; returns their norm.
    double step(double lr) { return self_->step(lr); }
    /// The same in parts, for steps that are recorded (bound_optimizer).
    bool capturable() const { return self_->capturable(); }
    void collect(double lr, launch_parameters& numbers) { self_->collect(lr, numbers); }
    void launch(launch_parameters& numbers, std::span<const device_scalar<D>> losses = {}) {
        self_->launch(numbers, losses);
    }
    device_scalar<D> norm_of_update() const { return self_->norm_of_update(); }
    double finish(double norm) { return self_->finish(norm); }
    std::int64_t& steps() { return self_->steps(); }
    std::vector<named_tensor<T, D>> tensors() { return self_->tensors(); }
    range owned() const { return self_->owned(); }
    std::vector<named_tensor<T, D>> flat_state() { return self_->flat_state(); }

private:
    struct interface {
        virtual ~interface() = default;
        virtual double step(double lr) = 0;
        virtual bool capturable() const = 0;
        virtual void collect(double lr, launch_parameters& numbers) = 0;
        virtual void launch(launch_parameters& numbers, std::span<const device_scalar<D>> losses) = 0;
        virtual device_scalar<D> norm_of_update() const = 0;
        virtual double finish(double norm) = 0;
        virtual std::int64_t& steps() = 0;
        virtual std::vector<named_tensor<T, D>> tensors() = 0;
        virtual range owned() const = 0;
        virtual std::vector<named_tensor<T, D>> flat_state() = 0;
    };
    template <class O>
    struct model final : interface {
        explicit model(bound_optimizer<O, T, D> optimizer) : o(std::move(optimizer)) {}
        double step(double lr) override { return o.step(lr); }
        bool capturable() const override { return o.capturable(); }
        void collect(double lr, launch_parameters& numbers) override { o.collect(lr, numbers); }
        void launch(launch_parameters& numbers, std::span<const device_scalar<D>> losses) override {
            o.launch(numbers, losses);
        }
        device_scalar<D> norm_of_update() const override { return o.norm_of_update(); }
        double finish(double norm) override { return o.finish(norm); }
        std::int64_t& steps() override { return o.steps(); }
        std::vector<named_tensor<T, D>> tensors() override { return o.tensors(); }
        range owned() const override { return o.owned(); }
        std::vector<named_tensor<T, D>> flat_state() override { return o.flat_state(); }
        bound_optimizer<O, T, D> o;
    };
    std::unique_ptr<interface> self_;
};

}  // namespace cairn
