#pragma once
// train --evaluate A B …: figures of the test set by saved versions of one network, and by the mean of their
// predictions (mean_prediction.hpp).

#include <cairn/train/mean_prediction.hpp>
#include <cairn/train/read_versions.hpp>
#include <cairn/train/run_messages.hpp>
#include <cairn/train/run_parts.hpp>
#include <cairn/train/shared_kernels.hpp>
#include <cairn/train/test_set.hpp>

#include <nlohmann/json.hpp>

#include <cstdio>
#include <optional>
#include <string>

namespace cairn {

namespace detail {

/// Collective: running statistics of batch norm as of one epoch of training samples under the present parameters. Each
/// batch moves them by the layer's momentum (0.1), so that after 50 batches what was there before counts 0.5 %.
template <Device D, class T>
void renew_statistics(run_parts<D, T>& run) {
    index_t samples = 0;
    while (auto b = run.batches.train->next()) {
        if (b->host.count == 0) continue;
        run.update.algorithm->stages().output(
            cast<T>(b->there.x, memory_category::data),
            {.mode = mode::train, .random = {.seed = run.task.seed, .samples = b->host.count}});
        samples += b->host.count;
    }
    require(samples > 0, "--fresh-statistics: the training set has no sample to compute them from");
    run.average_buffers();
}

/// Figures of an evaluation over all ranks.
template <Device D, class T>
nlohmann::json figures_of(run_parts<D, T>& run, evaluation sums) {
    if (run.replicas.ranks) add_over_ranks(run.replicas.ranks->everyone, sums);
    nlohmann::json figures{{"samples", sums.count}, {"test_loss", sums.loss()}};
    for (const auto& [figure, value] : run.update.algorithm->goal().metrics(sums)) figures["test_" + figure] = value;
    return figures;
}

inline void print_figures(const std::string& name, const nlohmann::json& figures) {
    std::fprintf(stderr, "%s:", name.c_str());
    for (const auto& [figure, value] : figures.items())
        if (figure.starts_with("test_") && !is_detail(figure.substr(5)))
            std::fprintf(stderr, "  %s %.5g", figure.substr(5).c_str(), value.template get<double>());
    std::fputc('\n', stderr);
}

}  // namespace detail

/// Collective. Returns {"versions": [figures of each], "mean": figures of the mean, of several}, figures on rank 0's
/// terminal too; options.predictions has the predictions of the one version, or their mean. Throws where a version is
/// of another network, or the data have no test set.
template <Device D, class T>
nlohmann::json evaluate_versions(run_parts<D, T>& run) {
    const session_options& options = run.task.options;
    require(run.batches.test() != nullptr,
            "--evaluate: there is no test set; set train.test_every = 1, or data that have one");
    choose_kernels_of_ranks(run);
    run_progress progress;
    version_reader<D, T> reader(run, progress);
    const auto test = [&](auto&& change) {
        return detail::figures_of(run, pass_over_tests(run, *run.batches.tests.back(), change));
    };
    std::optional<prediction_file> file = predictions_of(run);
    const auto note = [&](const tensor<float, D>& y, const batch& b) {
        if (file) file->add(y.on_host(memory_category::workspace), b);
    };
    std::optional<mean_prediction> mean;
    if (options.evaluate.size() > 1) mean.emplace(run.update.algorithm->goal().averages());
    nlohmann::json versions = nlohmann::json::array(), result;
    for (const std::filesystem::path& version : options.evaluate) {
        reader.load_network(version);
        run.average_buffers();
        if (options.fresh_statistics) detail::renew_statistics(run);
        nlohmann::json figures = test([&](tensor<float, D> y, const batch& b) {
            mean ? mean->add(y) : note(y, b);
            return y;
        });
        if (mean) mean->next_network();
        if (run.is_root()) detail::print_figures(version.string(), figures);
        figures["version"] = version.string();
        versions.push_back(std::move(figures));
    }
    result["versions"] = std::move(versions);
    if (mean) {  // the last network's outputs are replaced
        result["mean"] = test([&](const tensor<float, D>& y, const batch& b) {
            tensor<float, D> of_all = mean->template output<D>(y.shape());
            note(of_all, b);
            return of_all;
        });
        if (run.is_root()) detail::print_figures("mean of their predictions", result["mean"]);
    }
    if (file) file->write(run.world, run.task.data.test);
    return result;
}

}  // namespace cairn
