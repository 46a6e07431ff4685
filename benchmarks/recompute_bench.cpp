// Saving and cost of recomputation: for each model and plan the predicted and the measured peak of activation
// bytes and the time of a training step, relative to keeping everything. Steps of all plans are interleaved, the
// median counts.
//   recompute_bench [--model NAME] [--batch N] [--steps N] [--show]

#include <cairn/core/arena.hpp>
#include <cairn/models/cosmoflow.hpp>
#include <cairn/models/resnet.hpp>
#include <cairn/stash/plan.hpp>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <iostream>

namespace {

using namespace cairn;

struct workload {
    std::string name;
    sequential<float> net;
    shape in;
};

struct row {
    std::string plan_name;
    stash_plan plan;
    cairn::index_t measured_peak = 0;
    std::vector<double> seconds;

    double median() {
        std::nth_element(seconds.begin(), seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2),
                         seconds.end());
        return seconds[seconds.size() / 2];
    }
};

void step(sequential<float>& net, arena<float>& weights, const tensor<float>& x) {
    saved_tensors<float> saved;
    const pass_context p{.input_gradient = false};
    tensor<float> y = net.forward(x.share(), saved, p);
    weights.zero_grad();
    net.backward(std::move(y), saved, p);
}

void measure(workload& w, int steps, bool show) {
    arena<float> weights(w.net.parameters(), 1);
    tensor<float> x(w.in, memory_category::data);
    fill(x.span(), {initializer::distribution::normal, 1, 0}, random_stream{1, 2, 3});
    stash_planner<float> planner(w.net, w.in);
    std::vector<row> rows;
    rows.push_back({"keep", planner.keep_plan(), 0, {}});
    rows.push_back({"sqrt", planner.sqrt_plan(), 0, {}});
    rows.push_back({"smallest", planner.smallest_plan(), 0, {}});
    rows.push_back(
        {"halfway", planner.cheapest_plan((rows[0].plan.predicted_peak + rows[2].plan.predicted_peak) / 2), 0, {}});
    for (int i = -1; i < steps; ++i)
        for (row& r : rows) {
            apply(w.net, r.plan);
            const memory_pool& pool = memory_pool::host();
            const cairn::index_t before = pool.activations().live;
            memory_pool::host().reset_peaks();
            const stopwatch watch;
            step(w.net, weights, x);
            if (i < 0) continue;  // kernels are chosen and memory is touched in the first round
            r.seconds.push_back(watch.seconds());
            r.measured_peak = pool.activations().peak - before;
        }
    const double base = rows[0].median();
    for (row& r : rows) {
        const double mib = 1 << 20, predicted = double(r.plan.predicted_peak), measured = double(r.measured_peak);
        fmt::print("{:24} {:10} {:12.2f} {:12.2f} {:10.4f} {:10.2f} {:10.2f} {:10.1f}\n", w.name, r.plan_name,
                   predicted / mib, measured / mib, measured / predicted, measured / double(rows[0].measured_peak),
                   r.median() / base, 1e3 * r.median());
    }
    if (show)
        for (const row& r : rows) std::cout << r.plan_name << '\n' << r.plan;
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app{"Peak activation memory and step time of recomputation plans"};
    std::string model = "all";
    cairn::index_t batch = 0;
    int steps = 5;
    bool show = false;
    app.add_option("--model", model, "resnet20, resnet18, resnet50, cosmoflow or all")
        ->check(CLI::IsMember({"resnet20", "resnet18", "resnet50", "cosmoflow", "all"}));
    app.add_option("--batch", batch, "samples in a batch, 0: the model's default")->check(CLI::NonNegativeNumber);
    app.add_option("--steps", steps, "timed steps of each plan")->check(CLI::PositiveNumber);
    app.add_flag("--show", show, "print the plans");
    CLI11_PARSE(app, argc, argv);
    try {
        fmt::print("{:24} {:10} {:>12} {:>12} {:>10} {:>10} {:>10} {:>10}\n", "model", "plan", "predicted/MiB",
                   "measured/MiB", "ratio", "of keep", "step time", "ms");
        const auto run = [&](const char* name, auto make, cairn::index_t usual, shape sample) {
            if (model != "all" && model != name) return;
            const cairn::index_t n = batch ? batch : usual;
            shape in{n};
            for (cairn::index_t extent : sample) in.push_back(extent);
            workload w{cairn::concat(name, " batch ", n), make(), in};
            measure(w, steps, show);
        };
        run("resnet20", [] { return resnet_cifar(20); }, 32, {32, 32, 3});
        run("resnet18", [] { return resnet(18, resnet_config::stem::cifar, 10); }, 32, {32, 32, 3});
        run("resnet50", [] { return resnet(50); }, 2, {224, 224, 3});
        run("cosmoflow", [] { return cosmoflow({.size = 32}); }, 8, {32, 32, 32, 4});
    } catch (const cairn::error& e) {
        std::cerr << "recompute_bench: " << e.what() << '\n';
        return 1;
    }
}
