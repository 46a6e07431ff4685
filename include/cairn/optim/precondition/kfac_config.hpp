#pragma once
// Settings of K-FAC (kfac.hpp) and their ranges.

#include <cairn/core/error.hpp>
#include <cairn/device/gradient_layout.hpp>
#include <cairn/optim/precondition/factor.hpp>
#include <cairn/optim/precondition/kronecker.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace cairn {

/// kfac_pytorch: as that package has it. Gradients are those of the mean loss, rows of a convolution (of no other
/// layer) are divided by S, the block is A ⊗ G, and averages start from the identity: its damping means something else.
enum class kfac_scaling { kfc, kfac_pytorch };

/// Whether the points of a convolution's kernel have one large factor together, or one small one for each alike
/// (factor.hpp).
enum class kfac_spatial { full, uncorrelated };

struct kfac_config {
    double damping = 1e-2;                     // γ
    double factor_decay = 0.95;                // ρ
    std::int64_t factor_update_interval = 10;  // steps
    std::int64_t inverse_update_interval = 100;
    // steps between the start of decompositions and their use; 0: they are waited for
    std::int64_t inverse_staleness = 0;
    double kl_clip = 1e-3;                            // κ; 0: none
    double norm_limit = 0;                            // of lr · V over all layers; 0: none
    direction_length length = direction_length::own;  // of V; only an own one is clipped
    bool norm_layers = false;                         // normalisation layers too
    kfac_form form = kfac_form::inverse;
    weight_sharing sharing = weight_sharing::expand;
    kfac_scaling scaling = kfac_scaling::kfc;
    kfac_spatial spatial = kfac_spatial::full;
    // Rows that statistics are made of. Positions 0: of the first batch all of them, and of others so many that a batch
    // has about `rows_per_dimension` rows for each dimension of a layer's larger factor, or all that it has.
    sample_strides sample = {.positions = 0};
    index_t rows_per_dimension = 2;
    // Of a factor; larger ones are diagonal, and where one is of a kernel's points, these are taken as uncorrelated.
    index_t max_size = 2048;
    std::vector<std::string> skip = {};  // parts of names of weights that are left alone
};

/// One position in how many is taken of a layer with factors of at most `size`, in a batch of `examples` of all ranks;
/// 0 examples: of every one.
inline index_t position_stride(const kfac_config& c, index_t examples, index_t positions, index_t size) {
    if (c.sample.positions > 0) return c.sample.positions;
    const index_t rows = examples / c.sample.examples * positions;
    return std::clamp<index_t>(rows / (c.rows_per_dimension * size), 1, std::max<index_t>(positions, 1));
}

/// Throws on settings that make no sense.
inline void check(const kfac_config& c) {
    require(c.damping > 0, "kfac: damping ", c.damping,
            "; it must be positive, or directions without curvature become infinite");
    require(c.factor_decay >= 0 && c.factor_decay < 1, "kfac: factor_decay ", c.factor_decay, "; it must be in [0, 1)");
    require(c.factor_update_interval >= 1 && c.inverse_update_interval >= 1, "kfac: factors every ",
            c.factor_update_interval, " steps, decompositions every ", c.inverse_update_interval,
            "; both must be at least 1");
    require(c.inverse_staleness >= 0 && c.inverse_staleness < c.inverse_update_interval, "kfac: inverse_staleness ",
            c.inverse_staleness, " steps; it must be at least 0 and less than ", c.inverse_update_interval,
            ", the steps between decompositions");
    require(c.kl_clip >= 0 && c.norm_limit >= 0, "kfac: kl_clip ", c.kl_clip, ", norm_limit ", c.norm_limit,
            "; they must be 0 (off) or positive");
    require(c.sample.examples >= 1 && c.sample.positions >= 0 && c.rows_per_dimension >= 1,
            "kfac: statistics of every ", c.sample.examples, "th sample, every ", c.sample.positions,
            "th position (0: by the size of factors), ", c.rows_per_dimension,
            " rows a dimension; sample and rows must be at least 1");
    require(c.spatial == kfac_spatial::full || c.sharing == weight_sharing::expand,
            "kfac: kernel points that are uncorrelated have no rows to join; weight sharing must be expand");
    require(c.max_size >= 1, "kfac: max_size ", c.max_size);
}

}  // namespace cairn
