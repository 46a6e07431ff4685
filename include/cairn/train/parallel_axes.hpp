#pragma once
// How a run's ranks share the model and the batch:
//   [parallel] data, pipeline, tensor, spatial, schedule, virtual_stages
// The one place where axes enter a training run: an axis that gets a builder is let through here, and becomes an axis
// of the run's mesh (parallel/mesh.hpp).

#include <cairn/parallel/mesh.hpp>
#include <cairn/train/configuration.hpp>

#include <string>
#include <vector>

namespace cairn {

/// See the top of the file.
struct parallel_axes {
    int data = 1, pipeline = 1;
    std::string schedule = "1f1b";
    int virtual_stages = 0;

    /// In the order of a mesh; axes of one rank too.
    std::vector<mesh_axis> axes() const { return {{"pipeline", pipeline}, {"data", data}}; }
};

/// Throws, saying what to change, unless the axes make up `ranks` ranks.
inline parallel_axes read_parallel_axes(configuration& settings, int ranks) {
    constexpr double most = 1 << 20;
    parallel_axes a;
    a.data = settings.get("parallel.data", 0, from_to(0, most));  // 0: the ranks that the other axes leave
    a.pipeline = settings.get("parallel.pipeline", 1, from_to(1, most));
    const int tensor = settings.get("parallel.tensor", 1, from_to(1, most));
    for (const index_t n : settings.get("parallel.spatial", std::vector<index_t>{}, from_to(1, most)))
        require(n == 1, "parallel.spatial: the models of this program are not cut in space; leave it out");
    require(tensor == 1, "parallel.tensor = ", tensor,
            ": the models of this program do not split their layers' tensors; set parallel.tensor = 1");
    a.schedule = settings.get("parallel.schedule", "1f1b");
    a.virtual_stages = settings.get("parallel.virtual_stages", 0, from_to(0, 1024));
    require(a.pipeline <= ranks && ranks % a.pipeline == 0, "parallel.pipeline = ", a.pipeline,
            " does not divide the number of ranks, ", ranks, "; start ", a.pipeline,
            " ranks or a multiple of them (mpirun -np ", a.pipeline, " ...)");
    if (a.data == 0) a.data = ranks / a.pipeline;
    require(a.data * a.pipeline == ranks, "parallel.data = ", a.data, " x parallel.pipeline = ", a.pipeline, " need ",
            static_cast<long long>(a.data) * a.pipeline, " ranks, there are ", ranks,
            "; parallel.data = 0 takes the ranks that the other axes leave");
    return a;
}

}  // namespace cairn
