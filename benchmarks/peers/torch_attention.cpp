// libtorch's side of benchmarks/compare_attention: softmax(scale Q Kᵀ) V and its gradients by two batched products and
// a softmax, which is what libtorch 1.13 has on CPUs (its scaled_dot_product_attention is the same chain).
//
//   torch_attention --batch 4 --length 512 --heads 12 --head-dim 64 [--causal] --threads 2 --seconds 2 --layout packed
//
// Layouts: packed, q, k and v are parts of one projection (batch, length, 3, heads, head_dim) and y is (batch, length,
// heads, head_dim), as in a transformer; heads, four dense arrays (batch, heads, length, head_dim), which no projection
// leaves. The last line of the output is JSON.
#include "process.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

struct options {
    int64_t batch = 4, length = 512, heads = 12, head_dim = 64, threads = 2;
    bool causal = false;
    double seconds = 1;
    std::string layout = "packed", allocator = "best";
};

options parse(int argc, char** argv) {
    options o;
    for (int i = 1; i < argc; ++i) {
        const std::string key = argv[i];
        if (key == "--causal") {
            o.causal = true;
            continue;
        }
        const char* const value = i + 1 < argc ? argv[++i] : nullptr;
        if (value == nullptr) throw std::runtime_error(key + " wants a value");
        if (key == "--batch")
            o.batch = std::stoll(value);
        else if (key == "--length")
            o.length = std::stoll(value);
        else if (key == "--heads")
            o.heads = std::stoll(value);
        else if (key == "--head-dim")
            o.head_dim = std::stoll(value);
        else if (key == "--threads")
            o.threads = std::stoll(value);
        else if (key == "--seconds")
            o.seconds = std::stod(value);
        else if (key == "--layout")
            o.layout = value;
        else if (key == "--allocator")
            o.allocator = value;
        else
            throw std::runtime_error("unknown option " + key);
    }
    if (o.layout != "packed" && o.layout != "heads")
        throw std::runtime_error("--layout " + o.layout + ": packed or heads");
    return o;
}

/// Milliseconds of the fastest call, after two that are not counted.
template <class F>
double fastest(double seconds, F&& f) {
    using clock = std::chrono::steady_clock;
    f(), f();
    double best = std::numeric_limits<double>::infinity();
    for (const auto begin = clock::now(); std::chrono::duration<double>(clock::now() - begin).count() < seconds;) {
        const auto start = clock::now();
        f();
        best = std::min(best, std::chrono::duration<double, std::milli>(clock::now() - start).count());
    }
    return best;
}

void run(const options& o) {
    at::set_num_threads(static_cast<int>(o.threads));
    at::manual_seed(1);
    const bool packed = o.layout == "packed";
    const double scale = 1 / std::sqrt(static_cast<double>(o.head_dim));
    std::vector<at::Tensor> inputs;
    if (packed) {
        inputs.push_back(at::randn({o.batch, o.length, 3, o.heads, o.head_dim}));
    } else {
        for (int i = 0; i < 3; ++i) inputs.push_back(at::randn({o.batch, o.heads, o.length, o.head_dim}));
    }
    for (at::Tensor& t : inputs) t.requires_grad_(true);
    const at::Tensor hidden = at::ones({o.length, o.length}, at::kBool).triu(1);
    const auto forward = [&] {
        const auto part = [&](int64_t i) {
            return packed ? inputs[0].select(2, i).transpose(1, 2) : inputs[std::size_t(i)];
        };
        at::Tensor scores = at::matmul(part(0) * scale, part(1).transpose(2, 3));
        if (o.causal) scores = scores.masked_fill_(hidden, -std::numeric_limits<float>::infinity());
        const at::Tensor y = at::matmul(at::softmax(scores, -1), part(2));
        return packed ? y.transpose(1, 2).contiguous() : y;
    };
    const double forward_ms = fastest(o.seconds, forward);
    const at::Tensor y = forward(), dy = at::randn_like(y);
    const double backward_ms =
        fastest(o.seconds, [&] { return torch::autograd::grad({y}, inputs, {dy}, /*retain_graph=*/true); });
    std::printf(
        "{\"forward_ms\": %.6g, \"backward_ms\": %.6g, \"threads\": %d, \"layout\": \"%s\", \"allocator\": \"%s\", "
        "\"peak_bytes\": %lld}\n",
        forward_ms, backward_ms, at::get_num_threads(), o.layout.c_str(), peer::allocator_in_use().c_str(),
        static_cast<long long>(peer::status_bytes("VmHWM")));
}

}  // namespace

int main(int argc, char** argv) {
    try {
        const options o = parse(argc, argv);
        peer::restart_with_environment(static_cast<int>(o.threads), o.allocator == "best", argv);
        run(o);
        return 0;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "torch_attention: %s\n", e.what());
        return 1;
    }
}
