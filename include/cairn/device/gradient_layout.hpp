#pragma once
// Where the numbers of a weight's gradient lie, and of its bias's, seen as one matrix: what K-FAC multiplies by its
// factors; and how long the directions that come of it may be.

#include <cairn/core/host_device.hpp>
#include <cairn/core/shape.hpp>

#include <cmath>

namespace cairn {

/// A matrix (rows, in), row-major: weights (rows, width), and where there is a bias its numbers (rows, in − width)
/// behind them: one a row; or of scale and shift, which are one row, as many as scales.
template <class T>
struct gradient_layout {
    T* weight = nullptr;
    T* bias = nullptr;
    index_t in = 0, width = 0;
    index_t rows = 0;
    bool transposed = false;  // the weight is stored (width, rows)
};

/// How long a layer's direction V is: as it comes, as long as the gradient, or of root mean square 1.
enum class direction_length { own, of_gradient, unit };

/// How long directions V may be. Limits of 0, and all of them where the rate is 0, are off.
struct direction_limits {
    double kl_clip = 0;     // κ: lr² ⟨V, ∇W⟩ ≤ κ
    double norm_limit = 0;  // lr ‖V‖ is at most this
    double lr = 0;
    direction_length length = direction_length::own;  // of each layer; the others are not clipped

    bool grafts() const { return length != direction_length::own; }
    bool clips() const { return lr > 0 && kl_clip > 0; }
    bool limits_norm() const { return lr > 0 && norm_limit > 0; }
    /// Whether products of directions are asked for.
    bool measures() const { return grafts() || clips() || limits_norm(); }

    /// Common factor of all directions, from products (count, 3): ⟨V, ∇W⟩, ‖V‖² and the square of the length to have,
    /// added up in the order of layers; or from the first two of the whole model, where of_model is not null.
    CAIRN_HD double scale(index_t count, const double* products, const double* of_model) const {
        double decrease = of_model ? of_model[0] : 0, square = of_model ? of_model[1] : 0, scale = 1;
        for (index_t i = 0; i < count && !of_model; ++i) decrease += products[3 * i], square += products[3 * i + 1];
        if (kl_clip > 0 && lr > 0 && decrease > 0) {
            const double most = std::sqrt(kl_clip / (lr * lr * decrease));
            scale = most < scale ? most : scale;
        }
        if (norm_limit > 0 && lr > 0 && square > 0) {
            const double most = norm_limit / (lr * std::sqrt(square));
            scale = most < scale ? most : scale;
        }
        return scale;
    }
    /// Factor of one layer's direction.
    CAIRN_HD double factor(double scale, const double* products) const {
        return length == direction_length::own ? scale : products[1] > 0 ? std::sqrt(products[2] / products[1]) : 1;
    }
};

}  // namespace cairn
