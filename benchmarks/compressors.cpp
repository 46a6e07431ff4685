// Gradient compressors: GB of gradient that each encodes, decodes and adds a second, compared with the memory bandwidth
// of this machine, and what its messages weigh.
//
//   compressors [--only topk] [--sizes 1048576,16777216] [--threads 2] [--seconds 0.2]
//
// Values are normal with scales that differ by layers, as gradients are. Best of the repeats that fit the time; one
// object and one message are reused, as in training. PowerSGD has one column: reduce, without the exchanges.

#include <cairn/compress/bf16.hpp>
#include <cairn/compress/dgc.hpp>
#include <cairn/compress/error_bounded.hpp>
#include <cairn/compress/feedback.hpp>
#include <cairn/compress/fp16.hpp>
#include <cairn/compress/natural.hpp>
#include <cairn/compress/onebit.hpp>
#include <cairn/compress/powersgd.hpp>
#include <cairn/compress/powersgd_alternating.hpp>
#include <cairn/compress/qsgd.hpp>
#include <cairn/compress/randomk.hpp>
#include <cairn/compress/sign.hpp>
#include <cairn/compress/topk.hpp>
#include <cairn/core/clock.hpp>
#include <cairn/perf/machine.hpp>

#include <CLI/CLI.hpp>

#include <cstdio>
#include <string>
#include <vector>

namespace {

using namespace cairn;
using cairn::index_t;

struct settings {
    std::string only;
    std::vector<index_t> sizes{index_t{1} << 20, index_t{1} << 24};
    int threads = cairn::threads();
    double seconds = 0.2;
};

/// Parameters of 64 Ki values with scales from 1 to 1/16.
tensor<float> gradients(index_t n) {
    tensor<float> g({n}, memory_category::gradients);
    parallel_for(n, index_t{1} << 16, [&](index_t begin, index_t end) {
        const random_stream random{1, 2, 3};
        const float scale = std::ldexp(1e-3f, -static_cast<int>((begin >> 16) % 5));
        for (index_t i = begin; i < end; ++i)
            g[i] = scale * static_cast<float>(random.normal(static_cast<std::uint64_t>(i)));
    });
    return g;
}

/// Fastest seconds of f.
template <class F>
double fastest(double budget, F f) {
    f();
    double best = 1e300;
    const stopwatch all;
    do {
        const stopwatch one;
        f();
        best = std::min(best, one.seconds());
    } while (all.seconds() < budget);
    return best;
}

class table {
public:
    explicit table(const settings& s) : s_(s), bandwidth_(perf::measured_bandwidth()) {
        std::printf("%d threads, memory bandwidth %.1f GB/s (STREAM triad)\n", threads(), bandwidth_);
        std::printf("%-28s %9s %10s %6s   %s\n", "", "values", "bits/value", "ratio",
                    "GB/s of gradient and % of bandwidth: encode, decode, decode_add");
    }

    /// make() → a compressor.
    template <class Make>
    void add(Make make) {
        if (make().name().find(s_.only) == std::string::npos) return;
        for (const index_t n : s_.sizes) {
            auto c = make();
            const tensor<float> g = gradients(n);
            auto into = tensor<float>::zeros({n}, memory_category::workspace);
            message<> m;
            encode_step at{.seed = 1};
            const double encode = fastest(s_.seconds, [&] {
                ++at.step;
                c.encode(g.span(), m, at);
            });
            const auto bytes = std::as_const(m).bytes();
            const double decode = fastest(s_.seconds, [&] { c.decode(bytes, into.span(), at); });
            const double add = fastest(s_.seconds, [&] { c.decode_add(bytes, into.span(), at, 0.5f); });
            line(c.name(), n, static_cast<double>(m.size()), {encode, decode, add});
        }
    }

    template <ReducingCompressor C>
    void add_reducing(typename C::config config) {
        for (const index_t n : s_.sizes) {
            bucket_layout layout;  // layers of 512 3×3×512, as many as fit
            const shape layer{512, 3, 3, n < (index_t{1} << 22) ? 64 : 512};
            for (index_t at = 0; at + layer.size() <= n; at += layer.size()) layout.push_back({"layer", at, layer});
            const index_t used = static_cast<index_t>(layout.size()) * layer.size();
            C c(config, layout, used);
            if (c.name().find(s_.only) == std::string::npos) return;
            const tensor<float> g = gradients(used);
            auto mean = tensor<float>::zeros({used}, memory_category::workspace);
            encode_step at{.seed = 1};
            const double reduce = fastest(s_.seconds, [&] {
                ++at.step;
                c.reduce(g.span(), mean.span(), 1, at, [](std::span<float>) {});
            });
            line(c.name() + " (reduce)", used, 4.0 * static_cast<double>(c.exchanged()), {reduce});
        }
    }

private:
    void line(const std::string& name, index_t n, double bytes, const std::vector<double>& seconds) const {
        const auto count = static_cast<double>(n);
        std::printf("%-28s %9td %10.3f %6.1f   ", name.c_str(), n, 8 * bytes / count, 4 * count / bytes);
        for (const double t : seconds) {
            const double rate = 4e-9 * count / t;
            std::printf("%7.2f (%3.0f %%)", rate, 100 * rate / bandwidth_);
        }
        std::printf("\n");
        std::fflush(stdout);
    }

    settings s_;
    double bandwidth_;
};

}  // namespace

int main(int argc, char** argv) {
    settings s;
    CLI::App app("Speed and size of gradient compressors");
    app.add_option("--only", s.only, "only compressors whose name contains this");
    app.add_option("--sizes", s.sizes, "values of a bucket")->delimiter(',');
    app.add_option("--threads", s.threads, "threads that kernels use")->check(CLI::PositiveNumber);
    app.add_option("--seconds", s.seconds, "time for each measurement");
    CLI11_PARSE(app, argc, argv);
    set_threads(s.threads);

    try {
        table t(s);
        t.add([] { return bf16(); });
        t.add([] { return bf16_stochastic(); });
        t.add([] { return fp16(); });
        t.add([] { return fp16_stochastic(); });
        t.add([] { return topk(); });
        t.add([] { return topk({.ratio = 0.001, .values = sparse_value::bfloat16}); });
        t.add([] { return sampled_topk(); });
        t.add([] { return dgc({.ratio = 0.001}); });
        t.add([] { return randomk(); });
        t.add([] { return qsgd(); });
        t.add([] { return qsgd({1}); });
        t.add([] { return qsgd({127}); });
        t.add([] { return natural(); });
        t.add([] { return sign(); });
        t.add([] { return onebit(); });
        t.add([] { return error_bounded(); });
        t.add([] { return error_bounded({.bound = 1e-2}); });
        t.add([] { return error_feedback(bf16()); });
        t.add([] { return error_feedback(topk()); });
        t.add([] { return error_feedback(sign()); });
        t.add_reducing<powersgd<>>({2});
        t.add_reducing<powersgd<>>({4});
        t.add_reducing<powersgd_alternating<>>({2});
    } catch (const error& e) {
        std::fprintf(stderr, "compressors: %s\n", e.what());
        return 1;
    }
}
