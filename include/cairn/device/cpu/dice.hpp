#pragma once
// The passes of the Dice loss (nn/loss/dice.hpp) on the host. Sums over blocks of positions in double, in order: the
// same bits on any number of threads. device/grid/dice.hpp has the same names.

#include <cairn/core/kernel_call.hpp>
#include <cairn/core/parallel.hpp>
#include <cairn/core/tensor.hpp>
#include <cairn/device/cpu/widen.hpp>
#include <cairn/device/dice.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace cairn {

namespace detail {

inline constexpr index_t dice_grain = 4096;  // positions

/// Of positions [begin, end) of one sample, added to `sums`.
template <class T>
void add_dice_sums(index_t begin, index_t end, index_t classes, const T* x, const std::int32_t* labels, T* p,
                   double* sums) {
    for (index_t v = begin; v < end; ++v) {
        const index_t label = labels[v];
        require(label >= 0 && label < classes, "dice: label ", label, " of position ", v, " is not in [0, ", classes,
                ')');
        const T* const row = x + v * classes;
        T* const q = p + v * classes;
        const T at_label = row[label], most = *std::max_element(row, row + classes);
        T sum = 0;
        for (index_t c = 0; c < classes; ++c) sum += q[c] = std::exp(row[c] - most);
        for (index_t c = 0; c < classes; ++c) sums[classes + c] += static_cast<double>(q[c] /= sum);
        sums[label] += static_cast<double>(q[label]);
        sums[2 * classes + label] += 1;
        sums[3 * classes] += static_cast<double>(most + std::log(sum) - at_label);
    }
}

}  // namespace detail

/// p = softmax of each row of x (samples, positions, classes), p may be x; sums (samples, dice_sums_each). Throws on a
/// label out of range.
template <class T>
void dice_sums(cpu, index_t samples, index_t positions, index_t classes, const T* x, const std::int32_t* labels, T* p,
               double* sums) {
    const double elements = static_cast<double>(samples * positions * classes);
    const kernel_call call("dice sums", format_name<T>, 7 * elements, 2 * elements * sizeof(T),
                           {samples, positions, classes});
    if (on_phantom_rank()) return;
    const index_t each = dice_sums_each(classes), blocks = (positions + detail::dice_grain - 1) / detail::dice_grain;
    for (index_t n = 0; n < samples; ++n) {
        std::vector<double> parts(static_cast<std::size_t>(blocks * each));
        const index_t first = n * positions;
        parallel_chunks(positions, detail::dice_grain, [&](index_t block, index_t begin, index_t end) {
            detail::add_dice_sums(begin, end, classes, x + first * classes, labels + first, p + first * classes,
                                  parts.data() + block * each);
        });
        double* const all = sums + n * each;
        std::fill_n(all, each, 0.0);
        for (index_t i = 0; i < blocks * each; ++i) all[i % each] += parts[static_cast<std::size_t>(i)];
    }
}

/// Calls rule(n) for each sample.
template <class Rule>
void for_each_sample(cpu, index_t samples, const Rule& rule) {
    const double sums = static_cast<double>(samples * rule.classes);
    const kernel_call call("dice losses", "f64", 8 * sums, (3 * sizeof(double) + 2 * sizeof(*rule.factors)) * sums,
                           {samples, rule.classes});
    if (on_phantom_rank()) return;
    for (index_t n = 0; n < samples; ++n) rule(n);
}

/// Makes of the softmax p the gradient.
template <class T>
void dice_gradient(cpu, index_t samples, index_t positions, index_t classes, const std::int32_t* labels,
                   const T* factors, T entropy, T* p) {
    const double elements = static_cast<double>(samples * positions * classes);
    const kernel_call call("dice gradient", format_name<T>, 7 * elements, 2 * elements * sizeof(T),
                           {samples, positions, classes});
    parallel_for(samples * positions, detail::dice_grain, [&](index_t begin, index_t end) {
        for (index_t v = begin; v < end; ++v) {
            const T* const everywhere = factors + v / positions * 2 * classes;
            dice_gradient_of_row(classes, labels[v], everywhere, everywhere + classes, entropy, p + v * classes);
        }
    });
}

}  // namespace cairn
