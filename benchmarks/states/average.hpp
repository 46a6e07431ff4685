#pragma once
// The mean of several versions' weights as a version of a new run (stochastic weight averaging, Izmailov et al. 2018;
// model soups, Wortsman et al. 2022), for train --evaluate and --init. Batch norm's statistics are the mean of theirs,
// which are not those of the averaged weights: train --evaluate RUN --fresh-statistics computes them anew.

#include "states/exchange.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

namespace cairn::states {

/// Makes `run`, whose version 0 has the means of parameters and statistics of `versions`, with the settings of the
/// first. Throws where they are of different networks, naming the tensor, or `run` has versions.
inline std::string average_versions(const std::vector<located_version>& versions, const std::filesystem::path& run) {
    require(versions.size() >= 2, "average: at least two versions are needed");
    std::vector<version_tensors> all;
    nlohmann::json parents = nlohmann::json::array();
    for (const located_version& v : versions) {
        all.emplace_back(v.version.directory);
        parents.push_back({{"run", std::filesystem::absolute(v.run).lexically_normal().string()},
                           {"version", v.version.name},
                           {"digest", cairn::detail::hexadecimal(all.back().all().digest)},
                           {"how", "average"}});
    }
    const auto is_averaged = [](const std::string& name) {
        return name.starts_with("model/") || name.starts_with("buffers/");
    };
    state_view means;
    for (const manifest::tensor& t : all.front().all().tensors) {
        if (!is_averaged(t.name)) continue;
        require(t.type == element_type::float32, versions.front().text(), ": ", t.name, " is not of float32");
        const bool is_statistic = t.name.starts_with("buffers/");  // of each rank
        const shape extents = is_statistic ? version_tensors::row_of(t.extents) : t.extents;
        tensor<double> sum = tensor<double>::zeros(extents, memory_category::workspace);
        for (std::size_t v = 0; v < all.size(); ++v) {
            const auto& there = all[v].all().tensors;
            const auto found = std::ranges::find(there, t.name, &manifest::tensor::name);
            const bool fits = found != there.end() && found->type == t.type &&
                              (is_statistic ? version_tensors::row_of(found->extents) : found->extents) == extents;
            require(fits, versions[v].text(), ": ", t.name, " of shape ", extents, ", which ", versions.front().text(),
                    " has, is not there: versions of one network alone have a mean");
            const std::vector<std::byte> bytes = all[v].read(*found, is_statistic);
            for (index_t i = 0; i < sum.size(); ++i) {
                float value;
                std::memcpy(&value, bytes.data() + static_cast<std::size_t>(i) * sizeof value, sizeof value);
                sum[i] += static_cast<double>(value);
            }
        }
        tensor<float> mean(extents, memory_category::workspace);
        for (index_t i = 0; i < sum.size(); ++i) mean[i] = static_cast<float>(sum[i] / static_cast<double>(all.size()));
        piece_info info;
        if (is_statistic) info.where = piece::whole(extents).in_row(0, 1);
        means.add(t.name, mean, info);
    }
    require(!means.entries().empty(), versions.front().text(), ": has no parameters");
    const std::string settings = read_description(versions.front().version.directory).settings;
    nlohmann::json lineage{{"parent", parents.front()}, {"averaged", parents}};
    if (!settings.empty()) lineage["settings"] = settings;
    return make_run(run, means, std::move(lineage));
}

}  // namespace cairn::states
