#pragma once
// The axes along which a run's ranks share the model and the batch:
//   [parallel] data, pipeline, tensor, spatial, sequence_parallel, schedule, virtual_stages
// They become the axes of the run's mesh (parallel/mesh.hpp).

#include <cairn/parallel/mesh.hpp>
#include <cairn/train/configuration.hpp>

#include <string>
#include <vector>

namespace cairn {

/// See the top of the file.
struct parallel_axes {
    int data = 1, pipeline = 1, tensor = 1;
    std::vector<int> spatial;        // ranks along each spatial axis of a sample; empty: samples are whole
    bool sequence_parallel = false;  // of a tensor axis: norms and dropout of 1 / tensor of the positions on each rank
    std::string schedule = "1f1b";
    int virtual_stages = 0;
    std::vector<std::string> cut_before;  // layers in front of which a stage of the pipeline begins; empty: balanced
    std::string cut_by = "declared";      // costs by which stages are balanced: declared, or a simulated machine's

    int spatial_ranks() const {
        int product = 1;
        for (const int n : spatial) product *= n;
        return product;
    }
    /// Whether layers communicate: a rank cannot run them by itself.
    bool share_layers() const { return tensor > 1 || spatial_ranks() > 1; }

    /// In the order of a mesh. Pipeline and data are always there, the others where they have several ranks.
    std::vector<mesh_axis> axes() const {
        std::vector<mesh_axis> all{{"pipeline", pipeline}, {"data", data}};
        if (spatial_ranks() > 1) all.push_back({"spatial", spatial_ranks()});
        if (tensor > 1) all.push_back({"tensor", tensor});
        return all;
    }
};

/// Throws, saying what to change, unless the axes make up `ranks` ranks.
inline parallel_axes read_parallel_axes(configuration& settings, int ranks) {
    constexpr double most = 1 << 20;
    parallel_axes a;
    a.data = settings.get("parallel.data", 0, from_to(0, most));  // 0: the ranks that the other axes leave
    a.pipeline = settings.get("parallel.pipeline", 1, from_to(1, most));
    a.tensor = settings.get("parallel.tensor", 1, from_to(1, most));
    double others = static_cast<double>(a.pipeline) * a.tensor;
    for (const index_t n : settings.get("parallel.spatial", std::vector<index_t>{}, from_to(1, most))) {
        a.spatial.push_back(static_cast<int>(n));
        others *= static_cast<double>(n);
    }
    a.sequence_parallel = settings.get("parallel.sequence_parallel", false);
    a.schedule = settings.get("parallel.schedule", "1f1b");
    a.virtual_stages = settings.get("parallel.virtual_stages", 0, from_to(0, 1024));
    a.cut_before = settings.get("parallel.cut_before", std::vector<std::string>{});
    a.cut_by = settings.choice("parallel.cut_by", {"declared", "machine"}, "declared");
    require(a.spatial.size() <= 3, "parallel.spatial has ", a.spatial.size(),
            " numbers; it has one for each spatial axis of a sample, [2, 1, 1] for example");
    require(!a.sequence_parallel || a.tensor > 1,
            "parallel.sequence_parallel: there is no tensor axis; set parallel.tensor, or leave it out");
    const std::string product =
        concat("parallel.pipeline x parallel.spatial x parallel.tensor = ", static_cast<long long>(others));
    require(others <= ranks && ranks % static_cast<int>(others) == 0, product, " does not divide the number of ranks, ",
            ranks, "; start ", static_cast<long long>(others), " ranks or a multiple of them (mpirun -np ",
            static_cast<long long>(others), " ...)");
    if (a.data == 0) a.data = ranks / static_cast<int>(others);
    require(a.data * others == ranks, "parallel.data = ", a.data, " x ", product, " need ",
            static_cast<long long>(a.data * others), " ranks, there are ", ranks,
            "; parallel.data = 0 takes the ranks that the other axes leave");
    return a;
}

}  // namespace cairn
