#pragma once
// Attention of Transformer-XL by plain loops, in double, as the paper writes it (Dai et al. 2019, section 3.3): a
// vector R_{i−j} for every pair of a position and a key, no shift. Loss: Σ dy · y; its gradients by the chain rule.

#include <cmath>
#include <cstddef>
#include <vector>

namespace oracle {

using numbers = std::vector<double>;

struct relative_attention_case {
    std::size_t batch, length, memory, begin, heads, dim;  // of the memory, [0, begin) is empty
    std::size_t width() const { return heads * dim; }
};

struct relative_attention_weights {
    numbers q, k, v, r, u, bias;  // (width, width) each; u and the paper's v (width)
};

struct relative_attention_result {
    numbers y, dx;
    relative_attention_weights d;
};

/// R_t, (width).
inline numbers encoding(std::size_t distance, std::size_t width) {
    numbers r(width);
    for (std::size_t c = 0; c < width / 2; ++c) {
        const double angle = double(distance) / std::pow(10000.0, double(2 * c) / double(width));
        r[c] = std::sin(angle);
        r[width / 2 + c] = std::cos(angle);
    }
    return r;
}

/// x (batch, length, width); memory (batch, memory, width).
inline relative_attention_result relative_attention(const relative_attention_case& a, const numbers& x,
                                                    const numbers& memory, const relative_attention_weights& w,
                                                    const numbers& dy) {
    const std::size_t width = a.width(), keys = a.memory + a.length;
    relative_attention_result out{numbers(x.size()), numbers(x.size()), {}};
    for (numbers* d : {&out.d.q, &out.d.k, &out.d.v, &out.d.r}) d->assign(width * width, 0);
    for (numbers* d : {&out.d.u, &out.d.bias}) d->assign(width, 0);
    const auto h = [&](std::size_t n, std::size_t j, std::size_t c) {
        return j < a.memory ? memory[(n * a.memory + j) * width + c] : x[(n * a.length + j - a.memory) * width + c];
    };
    const auto mapped = [&](const numbers& matrix, std::size_t row, auto&& in) {
        double sum = 0;
        for (std::size_t c = 0; c < width; ++c) sum += matrix[row * width + c] * in(c);
        return sum;
    };
    const double scale = 1 / std::sqrt(double(a.dim));
    for (std::size_t n = 0; n < a.batch; ++n)
        for (std::size_t i = 0; i < a.length; ++i)
            for (std::size_t head = 0; head < a.heads; ++head) {
                const std::size_t last = a.memory + i;  // the row's own key
                const auto row_in = [&](std::size_t c) { return h(n, last, c); };
                numbers q(a.dim), p(keys);
                for (std::size_t e = 0; e < a.dim; ++e) q[e] = mapped(w.q, head * a.dim + e, row_in);
                std::vector<numbers> k(keys, numbers(a.dim)), v = k, r = k;
                double most = -INFINITY, total = 0;
                for (std::size_t j = a.begin; j <= last; ++j) {
                    const numbers place = encoding(last - j, width);
                    for (std::size_t e = 0; e < a.dim; ++e) {
                        const std::size_t row = head * a.dim + e;
                        k[j][e] = mapped(w.k, row, [&](std::size_t c) { return h(n, j, c); });
                        v[j][e] = mapped(w.v, row, [&](std::size_t c) { return h(n, j, c); });
                        r[j][e] = mapped(w.r, row, [&](std::size_t c) { return place[c]; });
                        p[j] += scale * (q[e] * k[j][e] + q[e] * r[j][e] + w.u[row] * k[j][e] + w.bias[row] * r[j][e]);
                    }
                    most = std::max(most, p[j]);
                }
                for (std::size_t j = a.begin; j <= last; ++j) total += p[j] = std::exp(p[j] - most);
                const std::size_t at = (n * a.length + i) * width + head * a.dim;
                double mean = 0;
                numbers dp(keys);
                for (std::size_t j = a.begin; j <= last; ++j) {
                    p[j] /= total;
                    for (std::size_t e = 0; e < a.dim; ++e) {
                        out.y[at + e] += p[j] * v[j][e];
                        dp[j] += dy[at + e] * v[j][e];
                    }
                    mean += p[j] * dp[j];
                }
                numbers dq(a.dim);
                for (std::size_t j = a.begin; j <= last; ++j) {
                    const double ds = scale * p[j] * (dp[j] - mean);
                    const numbers place = encoding(last - j, width);
                    for (std::size_t e = 0; e < a.dim; ++e) {
                        const std::size_t row = head * a.dim + e;
                        const double dk = ds * (q[e] + w.u[row]), dv = p[j] * dy[at + e],
                                     dr = ds * (q[e] + w.bias[row]);
                        dq[e] += ds * (k[j][e] + r[j][e]);
                        out.d.u[row] += ds * k[j][e];
                        out.d.bias[row] += ds * r[j][e];
                        for (std::size_t c = 0; c < width; ++c) {
                            out.d.k[row * width + c] += dk * h(n, j, c);
                            out.d.v[row * width + c] += dv * h(n, j, c);
                            out.d.r[row * width + c] += dr * place[c];
                            if (j >= a.memory)
                                out.dx[(n * a.length + j - a.memory) * width + c] +=
                                    dk * w.k[row * width + c] + dv * w.v[row * width + c];
                        }
                    }
                }
                for (std::size_t e = 0; e < a.dim; ++e)
                    for (std::size_t c = 0; c < width; ++c) {
                        const std::size_t row = head * a.dim + e;
                        out.d.q[row * width + c] += dq[e] * h(n, last, c);
                        out.dx[(n * a.length + i) * width + c] += dq[e] * w.q[row * width + c];
                    }
            }
    return out;
}

}  // namespace oracle
