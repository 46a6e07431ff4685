#pragma once
// The passes of the Dice loss (nn/loss/dice.hpp) on a grid device: same names and meaning as device/cpu/dice.hpp. A
// label out of range cannot throw here: its sample's loss is NaN, and its position's gradient 0. Sums run in double,
// over chunks of positions and then over the chunks in order.

#include <cairn/core/flop_counter.hpp>
#include <cairn/device/dice.hpp>
#include <cairn/device/grid/array_sums.hpp>

#include <cmath>
#include <cstdint>
#include <limits>

namespace cairn {

namespace grid {

/// Position i of all samples: its softmax, and − log p_label.
template <class T>
struct dice_softmax_kernel {
    index_t classes;
    const T* x;
    const std::int32_t* labels;
    T *p, *losses;
    CAIRN_HD void operator()(index_t i) const {
        const T* const row = x + i * classes;
        T* const q = p + i * classes;
        const index_t label = labels[i];
        T most = row[0], sum = 0;
        for (index_t c = 1; c < classes; ++c) most = row[c] > most ? row[c] : most;
        const T at_label = label >= 0 && label < classes ? row[label] : std::numeric_limits<T>::quiet_NaN();
        for (index_t c = 0; c < classes; ++c) sum += q[c] = std::exp(row[c] - most);
        for (index_t c = 0; c < classes; ++c) q[c] /= sum;
        losses[i] = most + std::log(sum) - at_label;
    }
};

/// Block (n, chunk): partial (samples, chunks, dice_sums_each).
template <class T>
struct dice_chunk_kernel {
    index_t positions, classes, chunks, chunk;
    const T* p;
    const std::int32_t* labels;
    const T* losses;
    double* partial;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const index_t first = b.block() / chunks * positions, begin = b.block() % chunks * chunk,
                      end = begin + chunk < positions ? begin + chunk : positions;
        double* const out = partial + b.block() * dice_sums_each(classes);
        const auto total = [&](index_t at, double mine) {
            const double sum = block_sum(b, mine, b.template shared<double>());
            if (b.thread() == 0) out[at] = sum;
        };
        for (index_t c = 0; c < classes; ++c) {
            double both = 0, predicted = 0, labelled = 0;
            for (index_t v = first + begin + b.thread(); v < first + end; v += b.threads()) {
                const double q = static_cast<double>(p[v * classes + c]);
                predicted += q;
                if (labels[v] != c) continue;
                both += q;
                labelled += 1;
            }
            total(c, both);
            total(classes + c, predicted);
            total(2 * classes + c, labelled);
        }
        double loss = 0;
        for (index_t v = first + begin + b.thread(); v < first + end; v += b.threads())
            loss += static_cast<double>(losses[v]);
        total(3 * classes, loss);
    }
};

/// sums[i] of partial (samples, chunks, each).
struct dice_join_kernel {
    index_t chunks, each;
    const double* partial;
    double* sums;
    CAIRN_HD void operator()(index_t i) const {
        double sum = 0;
        for (index_t k = 0; k < chunks; ++k) sum += partial[(i / each * chunks + k) * each + i % each];
        sums[i] = sum;
    }
};

template <class T>
struct dice_gradient_kernel {
    index_t positions, classes;
    const std::int32_t* labels;
    const T* factors;
    T entropy;
    T* p;
    CAIRN_HD void operator()(index_t i) const {
        T* const row = p + i * classes;
        const T* const everywhere = factors + i / positions * 2 * classes;
        if (labels[i] >= 0 && labels[i] < classes)
            dice_gradient_of_row(classes, labels[i], everywhere, everywhere + classes, entropy, row);
        else
            for (index_t c = 0; c < classes; ++c) row[c] = T(0);
    }
};

}  // namespace grid

/// p = softmax of each row of x (samples, positions, classes), p may be x; sums (samples, dice_sums_each).
template <class T, GridDevice D>
void dice_sums(D d, index_t samples, index_t positions, index_t classes, const T* x, const std::int32_t* labels, T* p,
               double* sums) {
    constexpr index_t chunk = 4096;
    const index_t chunks = (positions + chunk - 1) / chunk, each = dice_sums_each(classes);
    tensor<T, D> losses({samples, positions}, memory_category::workspace);
    tensor<double, D> partial({samples, chunks, each}, memory_category::workspace);
    grid::for_indices(d, samples * positions, grid::dice_softmax_kernel<T>{classes, x, labels, p, losses.data()});
    D::launch({.blocks = samples * chunks, .threads = grid::reduce_threads, .shared = grid::sum_scratch},
              grid::dice_chunk_kernel<T>{positions, classes, chunks, chunk, p, labels, losses.data(), partial.data()});
    grid::for_indices(d, samples * each, grid::dice_join_kernel{chunks, each, partial.data(), sums}, 64);
    const double elements = static_cast<double>(samples * positions * classes);
    flop_counter::count(7 * elements, 3 * elements * sizeof(T));
}

/// Calls rule(n) for each sample.
template <GridDevice D, class Rule>
void for_each_sample(D d, index_t samples, const Rule& rule) {
    grid::for_indices(d, samples, rule, 32);
}

/// Makes of the softmax p the gradient.
template <class T, GridDevice D>
void dice_gradient(D d, index_t samples, index_t positions, index_t classes, const std::int32_t* labels,
                   const T* factors, T entropy, T* p) {
    grid::for_indices(d, samples * positions,
                      grid::dice_gradient_kernel<T>{positions, classes, labels, factors, entropy, p});
    const double elements = static_cast<double>(samples * positions * classes);
    flop_counter::count(7 * elements, 2 * elements * sizeof(T));
}

}  // namespace cairn
