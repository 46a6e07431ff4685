#pragma once
// One training step and one evaluation:
//   y = forward(x);  {loss, dy} = loss(y, target);  gradients = 0;  backward(dy);  parameters ← optimizer(gradients, lr(step))

#include <cairn/core/finite.hpp>
#include <cairn/nn/sequential.hpp>
#include <cairn/optim/schedule.hpp>
#include <cairn/train/any_optimizer.hpp>
#include <cairn/train/task.hpp>

#include <cmath>
#include <cstdint>

namespace cairn {

/// A model with what trains it.
class trainer {
public:
    trainer(sequential<float>& model, arena<float>& weights, any_optimizer<float> optimizer, schedule rate, task goal,
            std::uint64_t seed)
        : model_(model),
          weights_(weights),
          optimizer_(std::move(optimizer)),
          rate_(std::move(rate)),
          goal_(std::move(goal)),
          seed_(seed) {}

    /// One step on batch b. Returns the loss before the update. Throws when it is not finite, naming the step and the first layer whose
    /// output is not.
    double step(const batch& b) {
        const pass p{.mode = mode::train,
                     .seed = seed_,
                     .step = static_cast<std::uint32_t>(steps()),
                     .repeated = false,
                     .input_gradient = false};
        tensor<float> y;
        {
            const trace_scope scope("", "forward", "phase");
            y = model_.forward(b.x.share(), tape_, p);
        }
        correct_ += goal_.correct(y, b);
        seen_ += b.count;
        auto [loss, dy] = [&] {
            const trace_scope scope("loss", "", "loss");
            return goal_.loss(std::move(y), b.x, b);
        }();
        if (!std::isfinite(loss)) throw_non_finite(b, p, loss);
        weights_.zero_grad();
        {
            const trace_scope scope("", "backward", "phase");
            model_.backward(std::move(dy), tape_, p);
        }
        optimizer_.step(rate_(steps()));
        return loss;
    }

    /// Runs the model over all batches of one epoch of `data`, in evaluation mode.
    template <class Loader>
    score evaluate(Loader& data) {
        score s;
        const pass p{.mode = mode::evaluate};
        while (auto b = data.next()) {
            tape<float> nothing;
            const tensor<float> y = model_.forward(b->x.share(), nothing, p);
            goal_.add(s, y, b->x, *b);
        }
        return s;
    }

    /// Updates done so far.
    std::int64_t steps() { return optimizer_.steps(); }
    double learning_rate() { return rate_(steps()); }
    any_optimizer<float>& optimizer() { return optimizer_; }
    const task& goal() const { return goal_; }

    /// Share of training samples classified right since the last call.
    double take_training_accuracy() {
        const double share = seen_ ? static_cast<double>(correct_) / static_cast<double>(seen_) : 0;
        correct_ = seen_ = 0;
        return share;
    }

private:
    [[noreturn]] void throw_non_finite(const batch& b, pass p, double loss) {
        const std::string where = concat("step ", steps() + 1, ": loss is ", loss, "; ");
        const std::string advice = "; lower the learning rate, warm up, or clip gradients";
        if (first_non_finite(b.x))
            fail(where, "the input batch holds a value that is not finite (sample data, not training)");
        for (const auto& [name, parameter] : weights_.parameters())
            if (first_non_finite(parameter->value)) fail(where, "parameter ", name, " is not finite", advice);
        p.repeated = true;
        tape<float> scratch;
        tensor<float> x = b.x.share();
        for (int i = 0; i < model_.size(); ++i) {
            x = model_[i].forward(std::move(x), scratch.child(i), p);
            if (first_non_finite(x))
                fail(where, "the first layer with a non-finite output is ", model_.name(i), " (", model_[i].describe(),
                     ')', advice);
        }
        fail(where, "all layers give finite outputs: the loss itself overflows", advice);
    }

    sequential<float>& model_;
    arena<float>& weights_;
    any_optimizer<float> optimizer_;
    schedule rate_;
    task goal_;
    std::uint64_t seed_;
    tape<float> tape_;
    index correct_ = 0, seen_ = 0;
};

}  // namespace cairn
