#pragma once
// The loss of a step's micro-batches as parts of the loss of the whole batch: its gradient over each output, and the
// sums of the parts. Also counts the training samples that are classified right.

#include <cairn/core/trace.hpp>
#include <cairn/data/micro_batches.hpp>
#include <cairn/objectives/objective.hpp>
#include <cairn/parallel/agreement.hpp>
#include <cairn/train/shared_layers.hpp>
#include <cairn/train/training_algorithm.hpp>

#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

namespace cairn {

/// See the top of the file.
template <Device D>
class micro_batch_loss {
public:
    micro_batch_loss(any_objective<D> goal, shared_layers over) : goal_(std::move(goal)), over_(std::move(over)) {}
    const any_objective<D>& goal() const { return goal_; }

    /// The gradient over output y of micro-batch m. Its loss and count enter `numbers`.
    tensor<float, D> gradient(const micro_batches<D>& batch, int m, tensor<float, D> y,
                              step_scalars<D>& numbers) const {
        const trace_scope scope("loss", "", "loss");
        const index_t count = batch[m].host.count;
        const samples<D> here = samples_of(batch[m].there, over_.outputs_of(count));
        scalar_on<D> correct = goal_.correct(y, here);
        auto [loss, dy] = goal_.loss(std::move(y), here);
        const double share = batch.share(count) * over_.weight_of_outputs(count);
        if (share != 1) for_each(functors::times<float>{static_cast<float>(share)}, dy);
        if (numbers.pieces.size() <= static_cast<std::size_t>(m))
            numbers.pieces.resize(static_cast<std::size_t>(m) + 1);
        numbers.pieces[static_cast<std::size_t>(m)] = {std::move(loss), std::move(correct)};
        return std::move(dy);
    }

    /// Sums over this rank's micro-batches. `not_finite(m, loss)` is called for each loss that is not.
    template <class NotFinite>
    step_totals totals(const micro_batches<D>& batch, const step_scalars<D>& numbers, NotFinite&& not_finite) {
        step_totals mine;
        for (int m = 0; m < batch.size(); ++m) {
            const auto& piece = numbers.pieces[static_cast<std::size_t>(m)];
            const double loss = piece.loss;
            if (!std::isfinite(loss))  // the sign of a NaN says nothing
                not_finite(m, std::isnan(loss) ? std::numeric_limits<double>::quiet_NaN() : loss);
            if (!over_.counts(batch[m].host.count)) continue;
            const index_t count = over_.outputs_of(batch[m].host.count).count;
            mine.samples += static_cast<double>(count);
            mine.loss += loss * static_cast<double>(count);
            correct_ += static_cast<index_t>(static_cast<double>(piece.correct));
            seen_ += count;
        }
        return mine;
    }

    /// Samples classified right, and seen, since the last call.
    std::pair<index_t, index_t> take_hits() { return {std::exchange(correct_, 0), std::exchange(seen_, 0)}; }

private:
    any_objective<D> goal_;
    shared_layers over_;
    index_t correct_ = 0, seen_ = 0;
};

}  // namespace cairn
