// Code of course/compression.md: why error feedback is there, in one page.

#include <cairn/compress/feedback.hpp>
#include <cairn/compress/topk.hpp>

#include <cmath>
#include <cstdio>
#include <vector>

using namespace cairn;

namespace {

// --8<-- [start:descent]
// Two workers minimise f(x) = ½ Σ x_i². On the first half of the values, what one worker sees is large and opposite to
// what the other sees: it cancels in the sum, as the noise of different samples does.
template <Compressor K>
double distance_after(K prototype, int steps) {
    std::vector<K> workers{prototype, prototype};
    std::vector<float> x(100, 1.0f), gradient(100), sum(100);
    message<> out;
    for (int step = 0; step < steps; ++step) {
        std::fill(sum.begin(), sum.end(), 0.0f);
        for (std::size_t w = 0; w < 2; ++w) {
            for (std::size_t i = 0; i < x.size(); ++i) gradient[i] = 0.5f * x[i] + (i < 50 ? (w ? -2.0f : 2.0f) : 0.0f);
            workers[w].encode(gradient, out, {.step = step});
            workers[w].decode_add(std::as_const(out).bytes(), sum, {.step = step}, 1.0f);
        }
        for (std::size_t i = 0; i < x.size(); ++i) x[i] -= 0.01f * sum[i];
    }
    double square = 0;
    for (const float v : x) square += double(v) * double(v);
    return std::sqrt(square);
}
// --8<-- [end:descent]

/// A compressor by value: error feedback keeps state, so each worker is given its own.
struct with_feedback : error_feedback<topk<>> {
    explicit with_feedback(topk<> k) : error_feedback<topk<>>(k) {}
    with_feedback(const with_feedback& other) : error_feedback<topk<>>(other.inner()) {}
    with_feedback(with_feedback&&) = default;
    with_feedback& operator=(with_feedback&&) = default;
};

}  // namespace

int main() {
    // --8<-- [start:compare]
    const topk ten({.ratio = 0.1});
    std::printf("topk, 400 steps                  distance %.3f\n", distance_after(ten, 400));
    std::printf("topk, 400 steps, error feedback  distance %.3f\n", distance_after(with_feedback(ten), 400));
    // --8<-- [end:compare]
    // --8<-- [start:bytes]
    topk one_percent({.ratio = 0.01});
    message<> out;
    const std::vector<float> gradient(1'000'000, 0.5f);
    one_percent.encode(gradient, out, {});
    std::printf("1,000,000 gradients: %td bytes dense, %td of topk\n", std::ptrdiff_t{4'000'000}, out.size());
    // --8<-- [end:bytes]
}
