// A network that does not fit the memory of one rank trains on 8: benchmarks/mesh_memory on a small volume, in double.

#include "catch.hpp"
#include "cosmoflow_mesh.hpp"
#include "messages.hpp"
#include "state/temporary_folder.hpp"

#include <cairn/device/autotune.hpp>

#include <algorithm>
#include <vector>

namespace cairn::cosmoflow_mesh {

TEST_CASE("memory: CosmoFlow under a limit that one rank exceeds trains on 8 ranks with its losses; a state as well",
          "[parallel]") {
    autotune_cache::global().set_policy(autotune_policy::first);
    settings s{.net = {.size = 32, .filters = 8, .blocks = 3, .dense = {12, 7}}, .batch = 2, .steps = 2};
    const outcome alone = train<double>(s);
    s.memory_limit = 3 * alone.peaks[0] / 4;
    const std::string why = test::message_of([&] { train<double>(s); });
    CHECK(test::contains(why, "rank 0: "));
    CHECK(test::contains(why, concat(s.memory_limit,
                                     " allowed to this rank; use a smaller batch, recomputation, more "
                                     "ranks")));
    for (const auto& [pipeline, data, grid] :
         {std::tuple(2, 2, std::vector{2, 1, 1}), std::tuple(1, 1, std::vector{2, 2, 2})}) {
        s.pipeline = pipeline;
        s.data = data;
        s.grid = grid;
        CAPTURE(s.mesh());
        const outcome together = train<double>(s);
        CHECK(difference(together, alone) < 1e-12);
        CHECK(std::ranges::max(together.peaks) <= s.memory_limit);

        settings parts = s;
        const temporary_folder folder;
        parts.states = folder.path / "states";
        parts.steps = 1;
        CHECK(std::ranges::max(train<double>(parts).peaks) <= s.memory_limit);
        parts.steps = 2;
        const outcome resumed = train<double>(parts);
        CHECK(resumed.losses == std::vector{together.losses[1]});
        CHECK(std::ranges::max(resumed.peaks) <= s.memory_limit);
    }
}

}  // namespace cairn::cosmoflow_mesh
