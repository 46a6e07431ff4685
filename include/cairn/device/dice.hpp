#pragma once
// The Dice loss of one sample and the gradient of a position, from the sample's sums: one text for the kernels
// of all devices (cpu/dice.hpp, grid/dice.hpp). Formulas: nn/loss/dice.hpp.

#include <cairn/core/host_device.hpp>
#include <cairn/core/shape.hpp>

namespace cairn {

/// Sums of a sample: I, P and G of each class, and Σ_v − log p_label.
CAIRN_HD constexpr index_t dice_sums_each(index_t classes) { return 3 * classes + 1; }

/// losses[n], and factors (n, 2, classes): d loss / d p_vc = factors[n, 0, c] + g_vc factors[n, 1, c].
template <class T>
struct dice_of_sample {
    index_t samples, positions, classes, first_class;
    double smooth, dice_weight, cross_entropy_weight;
    const double* sums;  // (samples, dice_sums_each)
    double* losses;
    T* factors;

    CAIRN_HD void operator()(index_t n) const {
        const double *const both = sums + n * dice_sums_each(classes), *const predicted = both + classes,
                            *const labelled = predicted + classes;
        T *const everywhere = factors + n * 2 * classes, *const at_label = everywhere + classes;
        double mean = 0;
        for (index_t c = 0; c < classes; ++c) {
            everywhere[c] = at_label[c] = T(0);
            if (c < first_class) continue;
            const double overlap = 2 * both[c] + smooth, all = predicted[c] + labelled[c] + smooth,
                         share = 1 / static_cast<double>(classes - first_class),
                         weight = dice_weight * share / static_cast<double>(samples);
            mean += share * overlap / all;
            everywhere[c] = static_cast<T>(weight * overlap / (all * all));
            at_label[c] = static_cast<T>(-2 * weight / all);
        }
        losses[n] =
            dice_weight * (1 - mean) + cross_entropy_weight * both[3 * classes] / static_cast<double>(positions);
    }
};

/// Row p of the softmax becomes the gradient. `entropy`: the weight of cross-entropy, of a position.
template <class T>
CAIRN_HD void dice_gradient_of_row(index_t classes, index_t label, const T* everywhere, const T* at_label, T entropy,
                                   T* p) {
    const T extra = at_label[label];
    T dot = p[label] * extra;  // Σ_c p_c d loss / d p_c
    for (index_t c = 0; c < classes; ++c) dot += p[c] * everywhere[c];
    const T at = p[label] * extra - entropy;
    for (index_t c = 0; c < classes; ++c) p[c] *= everywhere[c] - dot + entropy;
    p[label] += at;
}

}  // namespace cairn
