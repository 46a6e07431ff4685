// Objectives on another device (the emulated GPU): a U-Net by Dice and a graph's nodes have the host's losses, figures
// and memory.

#include "train/device_runs.hpp"

#include <map>

namespace cairn {

using namespace device_runs;

namespace {

constexpr std::array compared{memory_category::parameters, memory_category::gradients, memory_category::optimizer,
                              memory_category::saved};

struct tested_run {
    run_figures figures;
    std::map<std::string, double> tests;
    std::vector<index_t> peaks;  // of `compared`
};

template <Device D, class T = float>
tested_run train_and_test(const std::string& workload, const std::vector<const char*>& more) {
    const folder dir;
    const session_options options{.out = dir.path / D::name, .resume = {}, .max_steps = 3, .generated = true};
    std::vector<index_t> before;
    D::memory().reset_peaks();
    for (const auto use : compared) before.push_back(D::memory().use_of(use).live);
    session<D, T> s(settings_of(workload, more), options);
    tested_run run;
    const nlohmann::json result = s.train();
    for (const auto& [name, value] : result.items())
        if (name.starts_with("test_")) run.tests[name] = value.template get<double>();
    for (std::size_t i = 0; i < compared.size(); ++i)
        run.peaks.push_back(D::memory().use_of(compared[i]).peak - before[i]);
    run.figures = {losses_of(options), weights_of(s)};
    return run;
}

const std::string unet_on_volumes =
    "[data]\nformat = 'segmentation'\nsegmentation.size = [4, 4, 4]\n[model]\nkind = 'unet'\nfilters = 2\nlevels = 2\n"
    "[optimizer]\nlr = 0.05\n[loss]\nkind = ";
const std::string graph =
    "[data]\nformat = 'graph'\n[model]\nkind = 'gcn'\nhidden = [4]\ndropout = 0.3\n[optimizer]\nlr = 0.1\n"
    "[train]\nepochs = 3\n";

}  // namespace

TEST_CASE("session: volumes by Dice and nodes of graphs train and are tested on another device as on the host",
          "[train]") {
    for (const auto& [workload, more] : std::vector<std::pair<std::string, std::vector<const char*>>>{
             {unet_on_volumes + "'dice_cross_entropy'\n", {"train.batch=4", "train.test_every=1"}},
             {unet_on_volumes + "'dice'\ndice_smooth = 0.5\n",
              {"train.batch=4", "train.cuda_graph=on", "train.micro_batches=1"}},
             {unet_on_volumes + "'cross_entropy'\n", {"train.batch=4", "train.test_every=1"}},
             {graph, {"train.batch=1", "train.micro_batches=1", "train.test_every=1"}}}) {
        CAPTURE(workload);
        std::vector<const char*> of_host = more;
        if (more.size() > 2 && more[1] == std::string("train.cuda_graph=on")) of_host[1] = "train.cuda_graph=off";
        const tested_run host = train_and_test<cpu>(workload, of_host),
                         there = train_and_test<emulated_gpu>(workload, more);
        CHECK(host.figures.losses.size() == 3);
        CHECK(distance(there.figures, host.figures) < 1e-4);
        CHECK(there.tests.size() == host.tests.size());
        for (const auto& [name, value] : host.tests) {
            CAPTURE(name);
            CHECK(there.tests.at(name) == Approx(value).epsilon(1e-3).margin(1e-4));
        }
        for (std::size_t i = 0; i < compared.size(); ++i) {
            CAPTURE(memory_category_names[static_cast<std::size_t>(compared[i])]);
            if (compared[i] == memory_category::optimizer)  // beside it numbers that the host has in registers
                CHECK(there.peaks[i] <= host.peaks[i] + 1024);
            else
                CHECK(there.peaks[i] == host.peaks[i]);
        }
    }
}

TEST_CASE("session: a graph's layers in bfloat16 train weights in float", "[train]") {
    const std::vector<const char*> more{"train.batch=1", "train.micro_batches=1"};
    const tested_run host = train_and_test<cpu>(graph, more),
                     there = train_and_test<emulated_gpu, bfloat16>(graph, more);
    CHECK(distance(there.figures, host.figures) < 0.05);
    CHECK(distance(there.figures, host.figures) > 0);
}

}  // namespace cairn
