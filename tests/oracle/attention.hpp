#pragma once
// Scaled dot-product attention by plain loops over the full matrix, in double: the definition that kernels are compared
// with. Arrays are (batch, length, heads, head_dim). Rows and keys beyond a sequence's length do not exist. Dropout:
// the weights are multiplied by a given mask.

#include <cmath>
#include <cstddef>
#include <vector>

namespace oracle {

struct attention_case {
    std::size_t batch, length, heads, dim;
    bool causal;
    double scale;
    std::vector<int> lengths;    // or none
    std::vector<double> mask{};  // (batch, heads, length, length), or none
};

struct attention_result {
    std::vector<double> y, lse, dq, dk, dv;  // lse (batch, heads, length)
};

/// The mask of dropout as include/cairn/device/attention_geometry.hpp describes it, of sequences before which the whole
/// batch has `first` others. `bits(block)[word]`: random numbers of 32 bits.
template <class Bits>
std::vector<double> attention_mask(const attention_case& a, double dropout, Bits&& bits, std::size_t first = 0) {
    std::vector<double> mask;
    const std::size_t groups = (a.length + 3) / 4, columns = (a.length + 15) / 16 * 16;
    for (std::size_t of = first * a.heads; of < (first + a.batch) * a.heads; ++of)
        for (std::size_t i = 0; i < a.length; ++i)
            for (std::size_t j = 0; j < a.length; ++j)
                mask.push_back(double(bits((of * groups + i / 4) * columns + j)[i % 4]) < std::floor(dropout * 0x1p32)
                                   ? 0
                                   : 1 / (1 - dropout));
    return mask;
}

inline attention_result attention(const attention_case& a, const std::vector<double>& q, const std::vector<double>& k,
                                  const std::vector<double>& v, const std::vector<double>& dy) {
    attention_result r;
    r.y.assign(q.size(), 0);
    r.dq = r.dk = r.dv = r.y;
    r.lse.assign(a.batch * a.heads * a.length, -INFINITY);
    for (std::size_t n = 0; n < a.batch; ++n)
        for (std::size_t h = 0; h < a.heads; ++h) {
            const auto at = [&](std::size_t i, std::size_t c) {
                return ((n * a.length + i) * a.heads + h) * a.dim + c;
            };
            const std::size_t known = a.lengths.empty() ? a.length : std::size_t(a.lengths[n]);
            for (std::size_t i = 0; i < known; ++i) {
                const std::size_t keys = a.causal ? i + 1 : known;
                std::vector<double> p(keys), dp(keys);
                double most = -INFINITY, sum = 0, dot = 0;
                for (std::size_t j = 0; j < keys; ++j) {
                    for (std::size_t c = 0; c < a.dim; ++c) p[j] += q[at(i, c)] * k[at(j, c)];
                    p[j] *= a.scale;
                    if (p[j] > most) most = p[j];
                }
                for (double& s : p) sum += s = std::exp(s - most);
                const auto kept = [&](std::size_t j) {
                    return a.mask.empty() ? 1.0 : a.mask[((n * a.heads + h) * a.length + i) * a.length + j];
                };
                r.lse[(n * a.heads + h) * a.length + i] = most + std::log(sum);
                for (std::size_t j = 0; j < keys; ++j) {
                    p[j] /= sum;
                    for (std::size_t c = 0; c < a.dim; ++c) {
                        r.y[at(i, c)] += kept(j) * p[j] * v[at(j, c)];
                        r.dv[at(j, c)] += kept(j) * p[j] * dy[at(i, c)];
                        dp[j] += kept(j) * dy[at(i, c)] * v[at(j, c)];
                    }
                    dot += p[j] * dp[j];
                }
                for (std::size_t j = 0; j < keys; ++j)
                    for (std::size_t c = 0; c < a.dim; ++c) {
                        const double ds = a.scale * p[j] * (dp[j] - dot);
                        r.dq[at(i, c)] += ds * k[at(j, c)];
                        r.dk[at(j, c)] += ds * q[at(i, c)];
                    }
            }
        }
    return r;
}

}  // namespace oracle
