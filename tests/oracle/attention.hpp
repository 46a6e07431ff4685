#pragma once
// Scaled dot-product attention by plain loops over the full matrix, in double: the definition that kernels are compared with. Arrays are
// (batch, length, heads, head_dim). Rows and keys beyond a sequence's length do not exist.

#include <cmath>
#include <cstddef>
#include <vector>

namespace oracle {

struct attention_case {
    std::size_t batch, length, heads, dim;
    bool causal;
    double scale;
    std::vector<int> lengths;  // or none
};

struct attention_result {
    std::vector<double> y, lse, dq, dk, dv;  // lse (batch, heads, length)
};

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
                r.lse[(n * a.heads + h) * a.length + i] = most + std::log(sum);
                for (std::size_t j = 0; j < keys; ++j) {
                    p[j] /= sum;
                    for (std::size_t c = 0; c < a.dim; ++c) {
                        r.y[at(i, c)] += p[j] * v[at(j, c)];
                        r.dv[at(j, c)] += p[j] * dy[at(i, c)];
                        dp[j] += dy[at(i, c)] * v[at(j, c)];
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
