#pragma once
// Cross-entropy of logits that are cut over the vocabulary (Shoeybi et al. 2019, "Megatron-LM", section 3): rank r has
// the logits x of the classes V_r, no rank ever has all of them. Of each row, with label y and label smoothing ε,
//   m = max_r max_{k∈V_r} x_k                                                 all-reduce of 1 number
//   (s, h, u) = Σ_r (Σ_{V_r} exp(x_k − m), [y ∈ V_r] (x_y − m), Σ_{V_r} (x_k − m))    all-reduce of 3; 2 where ε = 0
//   loss = log s − (1 − ε) h − ε u / classes
//   d loss / d x_k = exp(x_k − m) / s − (1 − ε) [k = y] − ε / classes         of this rank's classes
// The value is the mean over rows, the same bits on each rank. Bytes sent by a rank on a ring: 2 (p-1)/p · 8 · 3 rows,
// in double, where gathered logits would be (p-1)/p · classes numbers a row.
// Tested against cross_entropy, on one rank. On the host.

#include <cairn/device/cpu/reduce.hpp>
#include <cairn/device/cpu/softmax.hpp>
#include <cairn/nn/loss/loss.hpp>
#include <cairn/parallel/tensor/tensor_axis.hpp>

#include <cmath>
#include <cstdint>

namespace cairn {

/// Loss of classification. Logits (…, classes of this rank, as shard_of cuts them); labels: int32 in [0, classes), one
/// for each row of logits, the same on each rank.
template <Communicator C>
struct vocabulary_cross_entropy {
    tensor_axis<C>* axis = nullptr;
    index_t classes = 0;         // of all ranks
    double label_smoothing = 0;  // ε in [0, 1]

    /// Throws on a label out of range (naming row, label and classes), and on logits that are not this rank's part.
    template <class T>
    loss_result<T> operator()(tensor<T> logits, const tensor<std::int32_t>& labels) const {
        tensor<T> gradient = gradient_over(logits);
        const double value = run(logits, labels, gradient.data());
        return {value, std::move(gradient)};
    }

    /// The value alone, for evaluation.
    template <class T>
    double value(const tensor<T>& logits, const tensor<std::int32_t>& labels) const {
        return run(logits, labels, static_cast<T*>(nullptr));
    }

    /// Of each row of logits the largest of all classes, the first where several are equal: an all-reduce of 1 number a
    /// row for the values and one for the classes.
    template <class T>
    tensor<std::int32_t> predicted_classes(const tensor<T>& logits) const {
        const range here = axis->part_of(classes, "vocabulary_cross_entropy: classes");
        const index_t rows = logits.size() / here.count;
        tensor<std::int32_t> guesses({rows}, memory_category::workspace);
        argmax_rows(cpu{}, rows, here.count, logits.data(), guesses.data());
        tensor<double> top({rows}, memory_category::workspace), first({rows}, memory_category::workspace);
        const auto value = [&](index_t i) { return static_cast<double>(logits[i * here.count + guesses[i]]); };
        for (index_t i = 0; i < rows; ++i) top[i] = value(i);
        axis->sum(top, "largest logits", reduction::max);
        for (index_t i = 0; i < rows; ++i)
            first[i] = static_cast<double>(value(i) == top[i] ? here.begin + guesses[i] : classes);
        axis->sum(first, "their classes", reduction::min);
        for (index_t i = 0; i < rows; ++i) guesses[i] = static_cast<std::int32_t>(first[i]);
        return guesses;
    }

private:
    template <class T>
    double run(const tensor<T>& logits, const tensor<std::int32_t>& labels, T* gradient) const {
        const range here = check(logits.shape(), labels);
        const index_t rows = labels.size();
        const auto each_row = [&](auto&& row) {
            parallel_for(rows, detail::softmax_grain(here.count), [&](index_t begin, index_t end) {
                for (index_t i = begin; i < end; ++i) row(i, logits.data() + i * here.count);
            });
        };
        tensor<double> top({rows}, memory_category::workspace);
        each_row([&](index_t i, const T* x) { top[i] = static_cast<double>(detail::row_max(here.count, x)); });
        axis->sum(top, "largest logits", reduction::max);

        const bool smooth = label_smoothing > 0;
        tensor<double> sums({smooth ? 3 : 2, rows}, memory_category::workspace);
        double *const s = sums.data(), *const h = s + rows, *const u = h + rows;
        each_row([&](index_t i, const T* x) {
            const T m = static_cast<T>(top[i]);
            const index_t label = labels[i] - here.begin;
            h[i] = label >= 0 && label < here.count ? static_cast<double>(x[label] - m) : 0;
            if (smooth) {
                T spread = 0;
                for (index_t k = 0; k < here.count; ++k) spread += x[k] - m;
                u[i] = static_cast<double>(spread);
            }
            T e = 0;
            if (gradient) {
                e = detail::row_exp(here.count, x, m, gradient + i * here.count);
            } else {
#pragma omp simd reduction(+ : e)
                for (index_t k = 0; k < here.count; ++k) e += vector_math::exp(x[k] - m);
            }
            s[i] = static_cast<double>(e);
        });
        axis->sum(sums, "sums of exponentials");

        const double share = label_smoothing / static_cast<double>(classes), mean = 1 / static_cast<double>(rows);
        if (gradient)
            each_row([&](index_t i, const T*) {
                T* const g = gradient + i * here.count;
                const T factor = static_cast<T>(mean / s[i]), spread = static_cast<T>(mean * share);
#pragma omp simd
                for (index_t k = 0; k < here.count; ++k) g[k] = g[k] * factor - spread;
                const index_t label = labels[i] - here.begin;
                if (label >= 0 && label < here.count) g[label] -= static_cast<T>(mean * (1 - label_smoothing));
            });
        double all = 0;
        for (index_t i = 0; i < rows; ++i)
            all += std::log(s[i]) - (1 - label_smoothing) * h[i] - (smooth ? share * u[i] : 0);
        return all * mean;
    }

    range check(const shape& logits, const tensor<std::int32_t>& labels) const {
        require(axis, "vocabulary_cross_entropy: the tensor axis is not set");
        require(label_smoothing >= 0 && label_smoothing <= 1, "vocabulary_cross_entropy: label smoothing ",
                label_smoothing, " is not in [0, 1]");
        const range here = axis->part_of(classes, "vocabulary_cross_entropy: classes");
        require(logits.rank() >= 2 && logits.size() > 0 && logits.back() == here.count,
                "vocabulary_cross_entropy: logits have shape ", logits, "; rank ", axis->rank(), " of ", axis->size(),
                " has ", here.count, " of ", classes, " classes: expected (rows…, ", here.count, ')');
        require(labels.size() == logits.size() / here.count, "vocabulary_cross_entropy: ", labels.size(), " labels ",
                labels.shape(), " for logits ", logits);
        for (index_t i = 0; i < labels.size(); ++i)
            require(labels[i] >= 0 && labels[i] < classes, "vocabulary_cross_entropy: label ", labels[i], " of row ", i,
                    " is not in [0, ", classes, ')');
        return here;
    }
};

}  // namespace cairn
