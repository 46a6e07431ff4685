#pragma once
// Steps of group normalisation between those of batch normalisation, which run on one sample each (nn/group_norm.hpp):
// one text for the kernels of all devices. Each index is a pair of sample and group, or a position.

#include <cairn/core/host_device.hpp>
#include <cairn/core/parameter.hpp>
#include <cairn/core/shape.hpp>

#include <cmath>

namespace cairn {

/// Samples of `rows` positions with `channels` values each, in groups of `each` channels.
struct group_norm_geometry {
    index_t samples = 0, rows = 0, channels = 0, each = 1;
    CAIRN_HD index_t groups() const { return channels / each; }
};

/// Mean and variance of a group from those of its channels; each channel gets the group's mean and 1 / deviation.
template <class S>
struct merge_group_moments {
    group_norm_geometry g;
    double eps;
    const double* variances;  // (samples, channels)
    S *means, *invstd;        // likewise; means: of channels before

    CAIRN_HD void operator()(index_t group) const {
        const index_t first = group * g.each;
        double mean = 0, variance = 0;
        for (index_t c = first; c < first + g.each; ++c) mean += static_cast<double>(means[c]);
        mean /= static_cast<double>(g.each);
        for (index_t c = first; c < first + g.each; ++c) {
            const double off = static_cast<double>(means[c]) - mean;
            variance += variances[c] + off * off;
        }
        for (index_t c = first; c < first + g.each; ++c) {
            means[c] = static_cast<S>(mean);
            invstd[c] = static_cast<S>(1 / std::sqrt(variance / static_cast<double>(g.each) + eps));
        }
    }
};

/// Of a group: Σ gamma dgamma / n and Σ gamma dbeta / n over its channels, n its values, written for each channel.
template <class S>
struct average_group_sums {
    group_norm_geometry g;
    const S *gamma, *dgamma, *dbeta;  // (channels), and (samples, channels) of each sample
    S *of_scale, *of_shift;           // (samples, channels)

    CAIRN_HD void operator()(index_t group) const {
        const index_t first = group * g.each;
        const double n = static_cast<double>(g.rows * g.each);
        double scale = 0, shift = 0;
        for (index_t c = first; c < first + g.each; ++c) {
            const double weight = static_cast<double>(gamma[c % g.channels]);
            scale += weight * static_cast<double>(dgamma[c]);
            shift += weight * static_cast<double>(dbeta[c]);
        }
        for (index_t c = first; c < first + g.each; ++c) {
            of_scale[c] = static_cast<S>(scale / n);
            of_shift[c] = static_cast<S>(shift / n);
        }
    }
};

/// dx of a position:  invstd (gamma dy − Σ gamma dy / n − x̂ Σ gamma dy x̂ / n), sums over the group. dx may be dy.
template <class T, class S>
struct group_norm_gradient {
    group_norm_geometry g;
    const T *x, *dy;
    const S *mean, *invstd, *gamma, *of_scale, *of_shift;
    T* dx;

    CAIRN_HD void operator()(index_t position) const {
        const index_t sample = position / g.rows;
        for (index_t c = 0; c < g.channels; ++c) {
            const index_t at = position * g.channels + c, k = sample * g.channels + c;
            const S normal = (static_cast<S>(x[at]) - mean[k]) * invstd[k];
            dx[at] =
                static_cast<T>(invstd[k] * (gamma[c] * static_cast<S>(dy[at]) - of_shift[k] - normal * of_scale[k]));
        }
    }
};

}  // namespace cairn
