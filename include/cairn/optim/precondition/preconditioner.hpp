#pragma once
// The seam of preconditioners, which change all gradients of an arena before an optimizer uses them. A training step is
//   context.curvature = p.begin_step();     // null: needs gradients alone
//   forward, loss, backward                 // layers announce their rows to the listener
//   p.precondition(batch, lr);              // gradients ← P⁻¹ gradients
//   optimizer.step(lr);
// kfac.hpp, shampoo.hpp, soap.hpp and muon.hpp are models of it; course/write-your-own-optimizer.md makes one more.

#include <cairn/device/cpu/reduce.hpp>
#include <cairn/device/curvature_samples.hpp>
#include <cairn/optim/optimizer.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// See the top of the file. The arena is on device D.
template <class T, Device D = cpu>
class preconditioner {
public:
    virtual ~preconditioner() = default;

    /// Starts a step: the listener that gets the rows of this step's layers, or null.
    virtual curvature_listener* begin_step() { return nullptr; }
    /// Before backward of the last micro-batch of the step.
    virtual void last_micro_batch() {}
    /// The rows of gradients that layers announce in the steps from now on are `scale` times too large, a power of two
    /// (train/loss_scaler.hpp): who uses them divides. The gradients of the arena are what they are.
    virtual void gradients_scaled_by(double /*scale*/) {}
    /// For one pass over anything, before the first step or to restore a state: layers make themselves known, their
    /// rows are not used.
    virtual curvature_listener* discover() { return nullptr; }
    /// Preconditions all gradients of the arena. `examples`: over which the loss was the mean; lr: of the step to come,
    /// 0 if it is not known. Numbers that are not finite: see require_finite_gradients.
    virtual void precondition(double examples, double lr) = 0;
    /// Forgets this step, which is not taken.
    virtual void skip_step() {}

    /// State for a restored run: tensors and numbers, by name, with room for all of it.
    virtual std::vector<named_tensor<T, D>> tensors() = 0;
    virtual std::vector<std::pair<std::string, std::int64_t*>> counters() = 0;
    /// After tensors() or its_tensors() was read or written: memory that this rank need not keep.
    virtual void release() {}
    /// Whether ranks with the same parameters have different parts of the state. its_tensors() and its_counters() are
    /// then what this rank is to save, each of them of one rank; else the state is the same on each.
    virtual bool divides_state() const { return false; }
    virtual std::vector<named_tensor<T, D>> its_tensors() { return tensors(); }
    virtual std::vector<std::pair<std::string, std::int64_t*>> its_counters() { return counters(); }
    /// What it changes, in a line, once layers have made themselves known; "" where that is all.
    virtual std::string scope() const { return {}; }
    /// How often each of its guards acted, by name, on this rank. May wait for the device.
    virtual std::vector<std::pair<std::string, std::int64_t>> guards() const { return {}; }
    /// Diagnostics of the run so far, a line each.
    virtual std::vector<std::string> diagnostics() const { return {}; }
};

/// Throws, naming the parameter, where a gradient is not finite: before a preconditioner takes it into averages, which
/// would never forget it. On a GPU, whose gradients the host does not read, the optimizer behind finds it, and the
/// averages have to be restored.
template <class T, Device D>
void require_finite_gradients(const char* who, const arena<T, D>& weights) {
    for (const auto& [name, p] : weights.parameters())
        if (const auto bad = non_finite_at_hand(D{}, p->grad.size(), p->grad.data()))
            fail_divergence(who, ": gradient of ", name, ' ', p->grad.shape(), ": element ", bad->at, " is ",
                            bad->value, "; nothing was updated. Lower the learning rate, warm up, or clip");
}

}  // namespace cairn
