#pragma once
// The predictions for the test part as a CSV file (train --predictions FILE): a row a sample, in the order of the data.
//   classes   sample, class, predicted, p_NAME …      p: probability of the class
//   values    sample, NAME …, predicted_NAME …        physical units
//   answers   sample, NAME …, p_NAME …                1, 0 or, where it is not known, nothing; p: probability of 1
// What a network says of each place of a text or an image is no row of a table, and refused.

#include <cairn/comm/any.hpp>
#include <cairn/comm/collectives/text.hpp>
#include <cairn/core/atomic_file.hpp>
#include <cairn/core/comma_separated.hpp>
#include <cairn/core/interval.hpp>
#include <cairn/data/batch.hpp>
#include <cairn/train/mean_prediction.hpp>
#include <cairn/train/run_parts.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// See the top of the file. Takes the batches of one pass over the test part, of ranks with the whole network.
class prediction_file {
public:
    /// Throws where a sample is no row.
    prediction_file(std::filesystem::path path, target_info info) : path_(std::move(path)), info_(std::move(info)) {
        require(info_.labels_each == 1, "--predictions writes a row a sample; each sample of these data has ",
                info_.labels_each, " labels");
    }

    /// Outputs for the samples of a batch: scores of the classes, values, or scores of the answers.
    void add(const tensor<float>& y, const batch& b) {
        for (index_t i = 0; i < b.count; ++i) {
            const index_t at = i * info_.count();
            rows_.emplace_back(b.samples[static_cast<std::size_t>(i)],
                               info_.kind == target_kind::classes ? classes(b.labels[i], y.data() + at)
                                                                  : values(b.targets.data() + at, y.data() + at));
        }
    }

    /// Collective over ranks that each have samples of their own, of `data`: rank 0 writes the file. Throws there where
    /// it cannot be written.
    template <Dataset Data>
    void write(any_communicator& world, const Data& data) const {
        std::string mine, all = head() + '\n';
        for (const auto& [sample, row] : rows_)
            mine += concat(sample, '\t', quoted_cell(data.sample_name(sample)), row, '\n');
        std::vector<std::pair<index_t, std::string>> lines;
        for (const std::string& text : all_gather_text(world, mine))
            for (std::size_t at = 0; at < text.size();) {
                const std::size_t tab = text.find('\t', at), end = text.find('\n', tab);
                lines.emplace_back(std::stoll(text.substr(at, tab - at)), text.substr(tab + 1, end - tab));
                at = end + 1;
            }
        if (world.rank() != 0) return;
        std::ranges::sort(lines);
        for (const auto& [sample, line] : lines) all += line;
        write_atomically(path_, all);
    }

private:
    std::string head() const {
        const bool of_classes = info_.kind == target_kind::classes;
        std::string text = of_classes ? "sample,class,predicted" : "sample";
        if (!of_classes)
            for (const std::string& n : info_.names) text += ',' + quoted_cell(n);
        for (const std::string& n : info_.names)
            text += ',' + quoted_cell((info_.kind == target_kind::values ? "predicted_" : "p_") + n);
        return text;
    }

    std::string classes(std::int32_t label, const float* scores) const {
        const std::ptrdiff_t guess = std::max_element(scores, scores + info_.count()) - scores;
        std::string row;
        for (const std::ptrdiff_t k : {std::ptrdiff_t{label}, guess})
            row += ',' + quoted_cell(info_.names[static_cast<std::size_t>(k)]);
        for (const double p : class_probabilities(scores, info_.count())) row += ',' + text_of(p);
        return row;
    }

    std::string values(const float* truth, const float* out) const {
        std::string of_truth, of_output;
        for (std::size_t k = 0; k < info_.names.size(); ++k) {
            const double t = static_cast<double>(truth[k]), y = static_cast<double>(out[k]);
            if (info_.kind == target_kind::answers) {
                of_truth += t < 0 ? "," : t > 0 ? ",1" : ",0";
                of_output += ',' + text_of(1 / (1 + std::exp(-y)));
            } else {
                const double mean = static_cast<double>(info_.mean[k]), scale = static_cast<double>(info_.scale[k]);
                of_truth += ',' + text_of(mean + scale * t);
                of_output += ',' + text_of(mean + scale * y);
            }
        }
        return of_truth + of_output;
    }

    std::filesystem::path path_;
    target_info info_;
    std::vector<std::pair<index_t, std::string>> rows_;  // sample, row without its name
};

/// The file that the run is asked for, if it is. Throws where its ranks share the network or a sample is no row.
template <Device D, class T>
std::optional<prediction_file> predictions_of(const run_parts<D, T>& run) {
    const std::filesystem::path& path = run.task.options.predictions;
    if (path.empty()) return std::nullopt;
    require(run.batches.test() != nullptr,
            "--predictions: there is no test; set train.test_every above 0, or take data that have a test part");
    require(run.world.size() == run.mesh.axes.data, "--predictions: the ranks share the network; evaluate the run's ",
            "state by one rank, or by ranks that each have it whole: train --evaluate RUN --predictions ",
            path.string());
    return prediction_file(path, run.task.data.info);
}

}  // namespace cairn
