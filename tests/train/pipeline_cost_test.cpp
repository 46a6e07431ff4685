// Pipelines that are cut by the costs of a simulated machine, or where the settings say.

#include "catch.hpp"
#include "train/thread_runs.hpp"

#include <cairn/core/phantom_rank.hpp>
#include <cairn/models/lenet.hpp>
#include <cairn/parallel/pipeline/cut.hpp>

namespace pipeline_costs {

using namespace cairn;

namespace {

/// Kernels by operations and bytes; products and convolutions at a rate of their own.
class priced_machine final : public counted_machine {
public:
    priced_machine(double product_flops, double other_bandwidth, double link_bandwidth)
        : product_flops_(product_flops), other_bandwidth_(other_bandwidth), link_bandwidth_(link_bandwidth) {}

    void charge(const kernel_work& work) override { pass(kernel_seconds(work)); }
    double kernel_seconds(const kernel_work& work) override {
        const bool product = std::string_view(work.kind).starts_with("gemm");
        return 1e-9 + (product ? work.flops / product_flops_ : work.bytes / other_bandwidth_);
    }
    double message_seconds(double bytes) override { return 1e-9 + bytes / link_bandwidth_; }

private:
    double product_flops_, other_bandwidth_, link_bandwidth_;
};

const std::string workload =
    "[data]\nformat = 'mnist'\n[model]\nkind = 'lenet'\n[optimizer]\nlr = 0.1\n[train]\nbatch = 16\n"
    "micro_batches = 4\n[parallel]\npipeline = 2\ncut_by = 'machine'\n";
constexpr index_t samples = 4;  // of a micro-batch

/// Forward and backward of a chain in one piece.
double seconds_of_stage(sequential<float>& chain, const shape& in, bool first) {
    arena<float, cpu> weights(chain.parameters(), 1);
    const pass_context pass{.random = {.samples = in.front()}, .input_gradient = !first};
    saved_tensors<float, cpu> saved;
    tensor<float> x(in);
    const double begin = now();
    const tensor<float> y = chain.forward(std::move(x), saved, pass);
    chain.backward_input(tensor<float>(y.shape()), saved, pass);
    chain.backward_weight(saved, pass);
    return now() - begin;
}

/// Path of the first unit of the second of two stages, of all cuts the one whose slowest stage is fastest.
std::string best_of_all_cuts(priced_machine& machine) {
    const phantom_rank here(machine);
    const shape one{1, 28, 28, 1}, in = one.with(0, samples);
    sequential<float> whole = lenet();
    const std::vector<model_unit> units = units_of(whole, in);
    std::string best;
    double least = 0;
    for (std::size_t u = 1; u < units.size(); ++u) {
        sequential<float> model = lenet();
        std::vector<sequential<float>> stages = cut(model, one, {static_cast<int>(u)});
        const double crossing = 2 * machine.message_seconds(4.0 * static_cast<double>(units[u].in.size())),
                     slowest = std::max(seconds_of_stage(stages[0], in, true),
                                        crossing + seconds_of_stage(stages[1], units[u].in, false));
        if (!best.empty() && slowest >= least) continue;
        best = units[u].path;
        least = slowest;
    }
    return best;
}

/// What a run on two ranks of the machine prints as its plan.
std::string planned(const priced_machine& machine) {
    std::string plan;
    run_ranks(2, {.kernel_threads = 1, .time_limit = 30}, [&](threads_communicator& c) {
        priced_machine mine = machine;
        const phantom_rank here(mine);
        const session<> run(configuration::from_text(workload),
                            {.out = {}, .resume = {}, .max_steps = 1, .generated = true},
                            any_communicator(c.split(0, c.rank())));
        const std::string text = run.plan();
        if (c.rank() == 0) plan = text;
    });
    return plan;
}

}  // namespace

/// What a run on two real ranks prints as its plan, or why it does not start.
std::string planned(const std::string& pipeline_settings) {
    std::string plan;
    const std::string why = test::message_of([&] {
        run_ranks(2, {.kernel_threads = 1, .time_limit = 30}, [&](threads_communicator& c) {
            std::string text = workload.substr(0, workload.find("cut_by")) + pipeline_settings;
            const session<> run(configuration::from_text(text),
                                {.out = {}, .resume = {}, .max_steps = 1, .generated = true},
                                any_communicator(c.split(0, c.rank())));
            const std::string mine = run.plan();
            if (c.rank() == 0) plan = mine;
        });
    });
    return why.empty() ? plan : why;
}

TEST_CASE("stages begin in front of the layers that parallel.cut_before names", "[session]") {
    const auto says = [](const std::string& settings, const std::string& expected) {
        const std::string plan = planned(settings);
        INFO(settings << ": " << plan);
        CHECK(test::contains(plan, expected));
    };
    says("cut_before = ['fc2']\n", "stage 1 on pipeline rank 1: fc2");
    says("cut_before = ['conv2']\n", "stage 1 on pipeline rank 1: conv2");
    says("cut_before = ['conv2', 'fc2']\n", "parallel.cut_before names 2 layers; 2 stages");
    says("cut_before = ['fc9']\n", "begins with fc9");
    says("cut_before = ['conv1']\n", "conv1 does not come after");
    says("cut_by = 'machine'\n", "is for simulations");
    says("cut_by = 'ruler'\n", "cut_by");
}

TEST_CASE("a simulated pipeline is cut where an exhaustive search on its machine would cut it", "[session]") {
    std::set<std::string> cuts;
    for (const priced_machine& machine :
         {priced_machine{1e8, 1e13, 1e12}, priced_machine{1e13, 1e9, 1e12}, priced_machine{1e10, 1e10, 1e10}}) {
        priced_machine mine = machine;
        const std::string best = best_of_all_cuts(mine), plan = planned(machine);
        INFO(plan);
        const std::string second = concat("stage 1 on pipeline rank 1: ", best);
        CHECK((test::contains(plan, second + ';') || test::contains(plan, second + " to ")));
        cuts.insert(best);
    }
    CHECK(cuts.size() >= 2);  // products that are slow move it
}

}  // namespace pipeline_costs
