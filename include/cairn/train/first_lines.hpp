#pragma once
// What a run prints before its first step: its data, network, processors and directory.

#include <cairn/data/data_format.hpp>
#include <cairn/train/run_parts.hpp>

#include <cstdio>
#include <filesystem>
#include <string>

namespace cairn {

template <Device D, class T>
void print_first_lines(const run_parts<D, T>& run, const std::filesystem::path& directory) {
    const data_parts& data = run.task.data;
    std::fprintf(stderr, "%s: %td training and %td test samples of %s, %td parameters, %.2f GFLOP a training sample\n",
                 run.task.name.c_str(), data.train.size(), data.test ? data.test.size() : 0,
                 concat(data.sample).c_str(), run.model.parameters, run.model.training_flops / 1e9);
    print_learned(data);
    std::fprintf(stderr, "%s, on %s, %s, seed %llu, results in %s\n", run.batches.train->describe().c_str(), D::name,
                 run.processors().c_str(), static_cast<unsigned long long>(run.task.seed), directory.c_str());
    const std::string scope = run.update.curvature ? run.update.curvature->scope() : "";
    const bool whole = run.world.size() == run.mesh.axes.data;
    if (!scope.empty()) std::fprintf(stderr, "%s%s\n", whole ? "" : "rank 0: ", scope.c_str());
}

}  // namespace cairn
