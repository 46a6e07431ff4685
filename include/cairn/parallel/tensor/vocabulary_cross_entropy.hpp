#pragma once
// Cross-entropy of logits that are cut over the vocabulary (Shoeybi et al. 2019, "Megatron-LM", section 3): rank r has
// the logits x of the classes V_r, no rank ever has all of them. Of each row, with label y and label smoothing ε,
//   m = max_r max_{k∈V_r} x_k                                                 all-reduce of 1 number
//   (s, h, u) = Σ_r (Σ_{V_r} exp(x_k − m), [y ∈ V_r] (x_y − m), Σ_{V_r} (x_k − m))    all-reduce of 3; 2 where ε = 0
//   loss = log s − (1 − ε) h − ε u / classes
//   d loss / d x_k = exp(x_k − m) / s − (1 − ε) [k = y] − ε / classes         of this rank's classes
// The value is the mean over rows, the same bits on each rank. Bytes sent by a rank on a ring: 2 (p-1)/p · 8 · 3 rows,
// in double, where gathered logits would be (p-1)/p · classes numbers a row.
// Tested against cross_entropy, on one rank.

#include <cairn/core/for_each.hpp>
#include <cairn/device/cpu/reduce.hpp>
#include <cairn/device/cpu/split_softmax.hpp>
#include <cairn/nn/loss/loss.hpp>
#include <cairn/parallel/tensor/tensor_axis.hpp>

#include <cstdint>

namespace cairn {

namespace functors {

/// A rank's largest logit becomes its class, counted from 0 in all, where no rank has a larger one; else `none`.
struct candidate_class {
    double first, none;
    CAIRN_HD void operator()(double& mine, const double& most, const std::int32_t& guess) const {
        mine = mine == most ? first + guess : none;
    }
};

}  // namespace functors

/// Loss of classification. Logits (…, classes of this rank, as shard_of cuts them); labels: int32 in [0, classes), one
/// for each row of logits, the same on each rank.
template <Communicator C>
struct vocabulary_cross_entropy {
    tensor_axis<C>* axis = nullptr;
    index_t classes = 0;         // of all ranks
    double label_smoothing = 0;  // ε in [0, 1]

    /// Throws on logits that are not this rank's part, and on the host on a label out of range (naming row, label and
    /// classes), which makes the value NaN elsewhere.
    template <class T, Device D>
    loss_result<T, D> operator()(tensor<T, D> logits, const tensor<std::int32_t, D>& labels) const {
        tensor<T, D> gradient = gradient_over(logits);
        scalar_on<D> value = run(logits, labels, gradient.data());
        return {std::move(value), std::move(gradient)};
    }

    /// The value alone, for evaluation.
    template <class T, Device D>
    double value(const tensor<T, D>& logits, const tensor<std::int32_t, D>& labels) const {
        return run(logits, labels, static_cast<T*>(nullptr));
    }

    /// Of each row of logits the largest of all classes, the first where several are equal: an all-reduce of 1 number a
    /// row for the values and one for the classes.
    template <class T, Device D>
    tensor<std::int32_t, D> predicted_classes(const tensor<T, D>& logits) const {
        const range here = axis->part_of(classes, "argmax over the vocabulary: classes");
        const index_t rows = logits.size() / here.count;
        tensor<std::int32_t, D> guesses({rows}, memory_category::workspace);
        argmax_rows(D{}, rows, here.count, logits.data(), guesses.data());
        tensor<double, D> mine({rows}, memory_category::workspace);
        values_at(D{}, rows, here.count, logits.data(), guesses.data(), mine.data());
        tensor<double, D> most = mine.clone(memory_category::workspace);
        axis->sum(most, "largest logits", reduction::max);
        const functors::candidate_class candidate{static_cast<double>(here.begin), static_cast<double>(classes)};
        for_each(D{}, rows, candidate, mine.data(), most.data(), guesses.data());
        axis->sum(mine, "their classes", reduction::min);
        for_each(D{}, rows, functors::convert<std::int32_t, double>{}, guesses.data(), mine.data());
        return guesses;
    }

    /// What a rank sends in training of so many rows: of the loss, and of predicted_classes.
    sent_messages sends(index_t rows) const {
        sent_messages sum = axis->template sum_sends<double>((label_smoothing > 0 ? 3 : 2) * rows);
        for (int i = 0; i < 3; ++i)  // largest logits of the loss, and of predictions, with their classes
            sum += axis->template sum_sends<double>(rows);
        return sum;
    }

private:
    template <class T, Device D>
    scalar_on<D> run(const tensor<T, D>& logits, const tensor<std::int32_t, D>& labels, T* gradient) const {
        const range here = check(logits.shape(), labels.shape());
        const index_t rows = labels.size();
        tensor<double, D> top({rows}, memory_category::workspace);
        row_maxima(D{}, rows, here.count, logits.data(), top.data());
        axis->sum(top, "largest logits", reduction::max);

        const bool smooth = label_smoothing > 0;
        tensor<double, D> all({smooth ? 3 : 2, rows}, memory_category::workspace);
        const split_softmax_sums sums{all.data(), all.data() + rows, smooth ? all.data() + 2 * rows : nullptr};
        const split_softmax_labels of{labels.data(), here.begin, classes, label_smoothing};
        split_softmax(D{}, rows, here.count, logits.data(), of, top.data(), sums, gradient);
        axis->sum(all, "sums of exponentials");

        if (gradient) split_softmax_gradient(D{}, rows, here.count, of, sums.exponentials, gradient);
        tensor<double, D> total({1}, memory_category::workspace);
        split_softmax_loss(D{}, rows, of, sums, total.data());
        scalar_on<D> value = scalar_of(std::move(total));
        value *= 1 / static_cast<double>(rows);
        return value;
    }

    range check(const shape& logits, const shape& labels) const {
        require(axis, "vocabulary_cross_entropy: the tensor axis is not set");
        require(label_smoothing >= 0 && label_smoothing <= 1, "vocabulary_cross_entropy: label smoothing ",
                label_smoothing, " is not in [0, 1]");
        const range here = axis->part_of(classes, "vocabulary_cross_entropy: classes");
        require(logits.rank() >= 2 && logits.size() > 0 && logits.back() == here.count,
                "vocabulary_cross_entropy: logits have shape ", logits, "; rank ", axis->rank(), " of ", axis->size(),
                " has ", here.count, " of ", classes, " classes: expected (rows…, ", here.count, ')');
        require(labels.size() == logits.size() / here.count, "vocabulary_cross_entropy: ", labels.size(), " labels ",
                labels, " for logits ", logits);
        return here;
    }
};

}  // namespace cairn
