// Whole runs whose steps are recorded, on the emulated GPU.

#include "train/device_runs.hpp"

namespace cairn {

using namespace device_runs;

TEST_CASE("session: recorded runs of several ranks, of micro-batches, and resumed ones have the bits of plain ones",
          "[train]") {
    const folder dir;
    int number = 0;
    const auto check = [&](int count, std::size_t w, std::vector<const char*> more, bool can = true) {
        CAPTURE(count, workloads[w], more);
        const std::string name = concat("run", number++);
        more.insert(more.end(), {"lr_schedule.warmup_epochs=0.02", "lr_schedule.kind=cosine"});
        const auto go = [&](const std::string& where, const char* graph, bool resume, int steps) {
            auto settings = more;
            settings.push_back(graph);
            const session_options options = in_run(dir.path / where, resume, steps);
            return count > 1 ? run_on<emulated_gpu>(count, workloads[w], options, settings)
                             : run<emulated_gpu>(workloads[w], options, settings);
        };
        const auto plain = go(name + "p", "train.cuda_graph=off", false, 8);
        const index_t before = emulated_gpu::graph::launched;
        CHECK(distance(go(name + "r", "train.cuda_graph=on", false, 8), plain) == 0);
        const index_t launched = emulated_gpu::graph::launched - before;
        if (can)
            CHECK(launched >= 3 * count);
        else
            CHECK(launched == (8 - 2) * count);  // updates alone
        go(name + "s", "train.cuda_graph=on", false, 3);
        CHECK(distance(go(name + "s", "train.cuda_graph=on", true, 8), plain) == 0);
    };
    check(1, 1, {"train.micro_batches=2", "optimizer.kind=lamb", "optimizer.clip_norm=0.5"});
    check(2, 1, {"optimizer.kind=lars", "compress.kind=natural"});
    check(2, 0, {"parallel.zero_stage=1"});
    // Statistics of all ranks are waited for: such steps run as they did, and the run says so.
    check(2, 2, {"parallel.sync_batch_norm=true"}, false);
}

}  // namespace cairn
