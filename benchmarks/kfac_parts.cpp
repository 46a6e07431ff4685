// Cost of K-FAC in a training step, part by part, next to the arithmetic and byte floors of each part.
//
//   kfac_parts [--model resnet18] [--batch 128] [--form inverse] [--spatial full] [--factor-update-interval 10]
//              [--inverse-update-interval 100] …
//   mpirun -np 2 kfac_parts …
//
// Steps with all parts and steps without K-FAC, and without the all-reduce of gradients, are run in turn; a part's time
// is the median over the steps, of the slowest rank.
// ms: once; a step: divided by how often it is due; share: of the step without K-FAC. Floors: flops over the measured
// matrix peak, or bytes over the measured bandwidth, for what travels over the link measured at the start; the larger
// counts. roofline: floor / time.
// The last line is one JSON object.

#include <cairn/comm/any.hpp>
#include <cairn/comm/mpi.hpp>
#include <cairn/optim/optimizer.hpp>
#include <cairn/optim/precondition/kfac.hpp>
#include <cairn/optim/sgd.hpp>
#include <cairn/parallel/kfac_ranks.hpp>
#include <cairn/perf/machine.hpp>
#include <cairn/train/record.hpp>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kfac_model.hpp"

namespace {

using namespace cairn;

struct options {
    std::string model = "resnet18";
    cairn::index_t batch = 128;
    int steps = 5;
    kfac_config kfac{};
    kfac_ranks_config ranks{};
};

struct part {
    const char* name;
    const char* scope;  // of the trace
    double every = 1;   // steps
    double flops = 0, bytes = 0, sent = 0;
    std::vector<double> seconds = {};
};

double real(std::int64_t n) { return static_cast<double>(n); }

class bench {
public:
    bench(any_communicator& world, const options& o)
        : world_(world),
          options_(o),
          net_(kfac_model(o.model)),
          weights_(net_.parameters(), 1),
          optimizer_(sgd{{.momentum = 0.9}}, weights_) {
        const cairn::index_t mine = shard_of(o.batch, world.size(), world.rank()).count;
        x_ = kfac_input(o.model, mine, world.rank());
        kfac_config c = o.kfac;
        c.factor_update_interval = c.inverse_update_interval = 1;
        auto roles = std::make_unique<kfac_work_assignment<float>>();
        if (world.size() > 1) {
            auto several = std::make_unique<kfac_ranks<any_communicator>>(world, o.ranks);
            several_ = several.get();
            roles = std::move(several);
        }
        curvature_ = std::make_unique<kfac<float>>(weights_, c, std::move(roles));
        forward_backward(curvature_->discover());
    }

    int run() {
        step(true);  // kernels are chosen, memory is touched
        step(false);
        count_floors();
        std::vector<double> plain;
        for (int i = 0; i < options_.steps; ++i) {
            plain.push_back(slowest(step(false)));
            trace::global().clear();
            trace::global().enable(true);
            step(true);
            trace::global().enable(false);
            take_times();
        }
        return report(median(plain));
    }

private:
    double step(bool second_order) {
        const stopwatch watch;
        weights_.zero_grad();
        curvature_listener* const listener = second_order ? curvature_->begin_step() : nullptr;
        if (second_order) curvature_->last_micro_batch();
        forward_backward(listener);
        const double seconds = watch.seconds();
        if (world_.size() > 1) all_reduce(world_, weights_.grads().span());
        const stopwatch update;
        if (second_order) curvature_->precondition(static_cast<double>(options_.batch), 0.01);
        optimizer_.step(0.0);
        return seconds + update.seconds();
    }
    void forward_backward(curvature_listener* listener) {
        pass_context p{.random = {.step = 1}, .input_gradient = false};
        p.curvature = listener;
        saved_tensors<float> saved;
        tensor<float> y = net_.forward(x_.share(), saved, p);
        const float scale = 1e-3f / static_cast<float>(options_.batch);
        for_each([scale](float& v) { v *= scale; }, y);  // some gradient
        net_.backward(std::move(y), saved, p);
    }

    double slowest(double seconds) {
        all_reduce(world_, std::span<double>(&seconds, 1), {.op = reduction::max});
        return seconds;
    }

    void count_floors() {
        const double each = real(options_.kfac.factor_update_interval),
                     rarely = real(options_.kfac.inverse_update_interval), size = sizeof(float);
        part factors{"factors", "factors", each}, average{"average", "average", each},
            reduce{"reduce factors", "reduce factors", each}, decompose{"decompose", "decompose", rarely},
            share{"share decompositions", "share decompositions", rarely},
            precondition{"precondition", "precondition", 1}, pass_on{"share directions", "share directions", 1},
            apply{"clip and apply", "clip", 1};
        const bool eigen = options_.kfac.form == kfac_form::eigen;
        const double p = world_.size();
        auto& blocks = curvature_->blocks();
        const auto& roles = curvature_->roles();
        double directions = 0, decompositions = 0, triangles = 0;
        for (std::size_t i = 0; i < blocks.size(); ++i) {
            auto& b = blocks[i];
            const double in = real(b.in), out = real(b.out), groups = real(b.groups()), a = in / real(b.taps);
            const double examples = real(x_.extent(0)) / real(options_.kfac.sample.examples);
            const index_t stride =
                position_stride(options_.kfac, options_.batch, b.positions, std::max(b.in / b.taps, b.out));
            const double rows = examples * real(b.positions) / real(stride);
            b.each_factor([&](kfac_factor<float>& f, char side) {
                const double n = real(f.statistics.size()), triangle = n * (n + 1) / 2;
                factors.flops += rows * n * (n + 1);
                factors.bytes += size * (rows * (side == 'a' ? a : out) + triangle);
                average.flops += 3 * triangle;
                average.bytes += 3 * size * triangle;
                triangles += triangle;
                decompositions += eigen ? n * n + n : triangle;
                if (!roles.decomposes(i, side)) return;
                decompose.flops += (eigen ? 9 : 1) * n * n * n;
                decompose.bytes += 3 * size * n * n;
            });
            directions += real(b.size());
            apply.bytes += 4 * size * real(b.size());
            if (!roles.preconditions(i)) continue;
            precondition.flops += groups * (eigen ? 4 : 2) * out * in * (out + a);
            precondition.bytes += groups * size * (3 * out * in + out * out + a * a);
        }
        const double m = several_ ? several_->place().rows() : 1;
        reduce.sent = 2 * (p - 1) / p * size * triangles;
        share.sent = (m - 1) / p * size * decompositions;
        pass_on.sent = m * (p / m - 1) / p * size * directions;
        parts_ = {factors, average, decompose, precondition, apply};
        if (p > 1) parts_ = {factors, reduce, average, decompose, share, precondition, pass_on, apply};
    }

    void take_times() {
        std::map<std::string, double> sums;
        for (const trace_event& e : trace::global().events())
            if (const std::string_view kind = e.kind; kind == "kfac" || kind == "communication") {
                std::string name = e.path.substr(e.path.rfind('/') + 1);
                if (name.starts_with("reduce factors")) name = "reduce factors";
                sums[name] += e.end - e.begin;
            }
        for (part& p : parts_) p.seconds.push_back(slowest(sums[p.scope]));
    }

    int report(double plain) {
        const exchange_model link = world_.size() > 1 ? measure_link(world_) : exchange_model{};
        const double peak = 1e9 * perf::measured_matrix_peak().gflops, bandwidth = 1e9 * perf::measured_bandwidth();
        if (world_.rank() != 0) return 0;
        std::printf(
            "%s, batch %td, %d ranks of %d threads: step without K-FAC %.1f ms; peaks %.0f GFLOP/s, %.1f GB/s\n",
            options_.model.c_str(), options_.batch, world_.size(), threads(), 1e3 * plain, peak / 1e9, bandwidth / 1e9);
        std::printf("%-22s %9s %7s %9s %7s %9s %9s %9s %9s\n", "part", "ms", "every", "a step", "share", "GFLOP", "MB",
                    "floor ms", "roofline");
        nlohmann::json record{{"model", options_.model}, {"batch", options_.batch}, {"ranks", world_.size()},
                              {"threads", threads()},    {"step_ms", 1e3 * plain},  {"parts", nlohmann::json::array()}};
        double total = 0;
        for (const part& p : parts_) {
            const double seconds = median(p.seconds), here = seconds / p.every;
            const double floor = p.sent > 0 ? p.sent * link.beta : std::max(p.flops / peak, p.bytes / bandwidth);
            const double bytes = p.sent > 0 ? p.sent : p.bytes;
            total += here;
            std::printf("%-22s %9.2f %7.0f %9.3f %6.2f%% %9.3f %9.2f %9.3f %8.1f%%\n", p.name, 1e3 * seconds, p.every,
                        1e3 * here, 100 * here / plain, p.flops / 1e9, bytes / 1e6, 1e3 * floor,
                        seconds > 0 ? 100 * floor / seconds : 0.0);
            record["parts"].push_back({{"part", p.name},
                                       {"ms", 1e3 * seconds},
                                       {"every", p.every},
                                       {"flops", p.flops},
                                       {"bytes", bytes},
                                       {"floor_ms", 1e3 * floor}});
        }
        std::printf("%-22s %9s %7s %9.3f %6.2f%%\n", "all", "", "", 1e3 * total, 100 * total / plain);
        for (const std::string& line : curvature_->diagnostics()) std::printf("%s\n", line.c_str());
        record["share"] = total / plain;
        std::printf("%s\n", record.dump().c_str());
        return 0;
    }

    any_communicator& world_;
    options options_;
    sequential<float> net_;
    arena<float> weights_;
    bound_optimizer<sgd, float> optimizer_;
    std::unique_ptr<kfac<float>> curvature_;
    const kfac_ranks<any_communicator>* several_ = nullptr;  // its roles
    tensor<float> x_;
    std::vector<part> parts_;
};

}  // namespace

int main(int argc, char** argv) {
    options o;
    std::string form = "inverse", spatial = "full";
    CLI::App app{"Parts of a K-FAC step beside their floors."};
    app.add_option("--model", o.model)->check(CLI::IsMember(kfac_models));
    app.add_option("--batch", o.batch, "samples a step, of all ranks")->check(CLI::PositiveNumber);
    app.add_option("--steps", o.steps, "that are timed")->check(CLI::Range(1, 1000));
    app.add_option("--form", form)->check(CLI::IsMember({"eigen", "inverse"}));
    app.add_option("--spatial", spatial, "kernel points of convolutions")
        ->check(CLI::IsMember({"full", "uncorrelated"}));
    app.add_option("--factor-update-interval", o.kfac.factor_update_interval, "steps")->check(CLI::PositiveNumber);
    app.add_option("--inverse-update-interval", o.kfac.inverse_update_interval, "steps")->check(CLI::PositiveNumber);
    app.add_option("--example-stride", o.kfac.sample.examples, "statistics of one in so many")
        ->check(CLI::PositiveNumber);
    app.add_option("--position-stride", o.kfac.sample.positions, "of one in so many; 0: by the size of factors")
        ->check(CLI::NonNegativeNumber);
    app.add_option("--max-size", o.kfac.max_size, "of a factor that is not diagonal")->check(CLI::PositiveNumber);
    app.add_option("--fraction", o.ranks.place.grad_worker_fraction, "gradient workers / ranks")
        ->check(CLI::Range(0.0, 1.0));
    CLI11_PARSE(app, argc, argv);
    o.kfac.form = form == "eigen" ? kfac_form::eigen : kfac_form::inverse;
    o.kfac.spatial = spatial == "full" ? kfac_spatial::full : kfac_spatial::uncorrelated;
#if CAIRN_HAS_MPI
    if (started_by_mpi())
        return run_mpi(argc, argv, [&](mpi_communicator& world) {
            set_threads(1);
            any_communicator any(world.split(0, world.rank()));
            return bench(any, o).run();
        });
#endif
    try {
        any_communicator alone(self_communicator{});
        return bench(alone, o).run();
    } catch (const error& e) {
        std::fprintf(stderr, "kfac_parts: %s\n", e.what());
        return 1;
    }
}
