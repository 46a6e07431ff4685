#pragma once
// The test part of a run, judged by the network as it is, and by the mean of its weights where the run keeps one.

#include <cairn/comm/collectives/text.hpp>
#include <cairn/train/evaluate.hpp>
#include <cairn/train/predictions.hpp>
#include <cairn/train/run_messages.hpp>
#include <cairn/train/run_parts.hpp>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// Sums over this rank's part of a test set; `change` as in evaluate().
template <Device D, class T, class Loader, class Change>
evaluation pass_over_tests(run_parts<D, T>& run, Loader& tests, Change&& change) {
    return evaluate(run.update.algorithm->stages(), run.update.algorithm->goal(), tests, run.model.over,
                    run.mesh.axes.pipeline, change, run.streams.test.get());
}

/// What a test found, on all ranks alike.
struct test_outcome {
    evaluation sums;
    metric_list metrics;     // "ema_" in front of those of the mean of the weights
    std::string unreadable;  // why some rank cannot read its part of the test set; then there is nothing else
};

/// Collective: tests the run. The predictions that it is asked for are those of its last step.
template <Device D, class T>
test_outcome test_run(run_parts<D, T>& run) {
    auto& algorithm = *run.update.algorithm;
    run.average_buffers();
    run.batches.test()->reset_stats();
    evaluation sums = algorithm.goal().start(), of_mean = algorithm.goal().start();
    std::optional<prediction_file> file;
    if (algorithm.steps() == run.batches.last_step) file = predictions_of(run);
    std::string mine;
    try {
        sums = pass_over_tests(run, *run.batches.test(), [&](tensor<float, D> y, const batch& b) {
            if (file) file->add(y.on_host(memory_category::workspace), b);
            return y;
        });
        if (run.update.average) {
            const averaged_weights<D> while_tested(*run.update.average);
            run.average_buffers();
            of_mean = pass_over_tests(run, *run.batches.test(), unchanged_outputs{});
        }
    } catch (const error& e) {
        if (run.world.size() > run.mesh.axes.data) throw;  // ranks that share the model wait in it
        mine = e.what();
    }
    const std::vector<std::string> all = all_gather_text(run.world, mine);
    test_outcome out;
    for (std::size_t r = 0; r < all.size() && out.unreadable.empty(); ++r)
        if (!all[r].empty()) out.unreadable = concat(all.size() > 1 ? concat("rank ", r, ": ") : "", all[r]);
    if (!out.unreadable.empty()) return out;
    if (file) file->write(run.world, run.task.data.test);
    if (run.replicas.ranks)
        for (evaluation* part : {&sums, &of_mean}) add_over_ranks(run.replicas.ranks->everyone, *part);
    out.metrics = algorithm.goal().metrics(sums);
    if (run.update.average)
        for (const auto& [figure, value] : algorithm.goal().metrics(of_mean))
            out.metrics.emplace_back("ema_" + figure, value);
    out.sums = std::move(sums);
    return out;
}

}  // namespace cairn
