// Simulated training with the stages of a pipeline slowed where others wait: joules and time of runs as train builds
// them.

#include "simgrid/simulated.hpp"
#include "train/compiled_session.hpp"

#include <cairn/comm/any.hpp>

#include <sstream>
#include <vector>

namespace pipeline_slack {

using namespace cairn;

namespace {

/// A linear chain of four products of 512 × 512 by samples, of which the last is a fifth wider.
const std::string workload =
    "[data]\nformat = 'cosmology'\ncosmology.size = 8\ncosmology.volumes = 64\ncosmology.test_volumes = 4\n"
    "[model]\nkind = 'mlp'\nhidden = [512, 512, 512, 614]\n[optimizer]\nlr = 1e-2\n[train]\nbatch = 64\n"
    "micro_batches = 16\n[parallel]\npipeline = 4\n";

machine_description powered() {
    machine_description m = test::star(4, 1e-7, 1e-11);
    m.power = host_power{100, 250, {{1, 700}, {0.9, 578}, {0.8, 480}, {0.7, 404}}};
    m.kernels[{"gemm", "any"}] = {.flops = 1e9};
    m.other = kernel_rate{.bandwidth = 1e12};
    return m;
}

struct simulated_steps {
    double seconds, joules;
};

/// Of three training steps.
simulated_steps steps_of(const machine_description& m, bool on_slack, const std::vector<std::string>& set = {}) {
    std::istringstream in(test::simulated(
        m, 4,
        [&](simgrid_communicator& c) {
            configuration settings = configuration::from_text(workload);
            for (const std::string& one : set) settings.set(one);
            session_options options{.out = {}, .resume = {}, .max_steps = 3, .generated = true};
            if (on_slack) options.slack = m.power;
            session<>(std::move(settings), options, any_communicator(c.split(0, c.rank()))).needs(3);
        },
        [](const simulation& s) { return concat(text_of(s.seconds), ' ', text_of(s.host_joules)); }));
    simulated_steps all{};
    in >> all.seconds >> all.joules;
    return all;
}

}  // namespace

TEST_CASE("train: stages that wait for a heavier one slow down, and save 5 % of the joules at 1 % more time",
          "[simgrid][energy]") {
    const simulated_steps full = steps_of(powered(), false), slow = steps_of(powered(), true);
    INFO("seconds " << full.seconds << " and " << slow.seconds << ", joules " << full.joules << " and " << slow.joules);
    CHECK(slow.joules <= 0.95 * full.joules);
    CHECK(slow.seconds <= 1.01 * full.seconds);
    machine_description slowest = powered();  // all kernels at the frequency that stages with slack may have
    slowest.power->state = 1;
    CHECK(steps_of(slowest, false).seconds >= 1.05 * full.seconds);
}

TEST_CASE("train: frequency on slack is refused where no slack is known, or ranks share a processor",
          "[simgrid][energy]") {
    const auto why = [](const machine_description& m, const std::vector<std::string>& set) {
        return test::message_of([&] { steps_of(m, true, set); });
    };
    CHECK(test::contains(why(powered(), {"parallel.pipeline=1"}), "--p-state slack"));
    CHECK(test::contains(why(powered(), {"parallel.pipeline=2", "parallel.tensor=2"}), "--p-state slack"));
    machine_description shared = powered();
    shared.hosts = 2, shared.ranks_per_host = 2, shared.inside = shared.between;
    CHECK(test::contains(why(shared, {}), "shares its processor"));
}

}  // namespace pipeline_slack
