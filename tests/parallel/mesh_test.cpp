// Meshes: order of ranks, lines of every axis, and what is refused.

#include "catch.hpp"
#include "messages.hpp"

#include <cairn/comm/collectives/all_gather.hpp>
#include <cairn/comm/threads.hpp>
#include <cairn/parallel/mesh.hpp>

namespace mesh_tests {

using namespace cairn;

// World ranks of the line to which a channel leads, as everyone there sees them.
std::vector<int> members(threads_communicator& c, int world_rank) {
    std::vector<int> all(static_cast<std::size_t>(c.size()));
    all[static_cast<std::size_t>(c.rank())] = world_rank;
    all_gather(c, std::span<int>(all));
    return all;
}

TEST_CASE("mesh: lines of every axis, the last varies fastest", "[mesh]") {
    run_ranks(8, [](threads_communicator& c) {
        mesh<threads_communicator> all(c, {{"pipeline", 2}, {"data", 2}, {"tensor", 2}});
        const int r = c.rank(), stage = r / 4, replica = r / 2 % 2, slice = r % 2;
        require(all.coordinate("pipeline") == stage && all.coordinate("data") == replica &&
                    all.coordinate("tensor") == slice && all.coordinate("spatial") == 0,
                "coordinates of rank ", r);
        require(all.size("data") == 2 && all.size("spatial") == 1 && all.size() == 8, "sizes");
        const auto is = [&](channel<threads_communicator>& line, std::vector<int> expected, int at) {
            require(members(line.host, r) == expected && members(line.device, r) == expected && line.rank() == at,
                    "rank ", r, " has another line");
        };
        is(all["pipeline"], {r % 4, r % 4 + 4}, stage);
        is(all["data"], {4 * stage + slice, 4 * stage + slice + 2}, replica);
        is(all["tensor"], {r - slice, r - slice + 1}, slice);
        is(all.everyone(), {0, 1, 2, 3, 4, 5, 6, 7}, r);
        channel<threads_communicator> model = all.across(c, {"pipeline", "tensor", "spatial"});
        is(model, {2 * replica, 2 * replica + 1, 2 * replica + 4, 2 * replica + 5}, 2 * stage + slice);
        const std::string text = all.describe();
        require(test::contains(text, "pipeline 2 x data 2 x tensor 2, the last varies fastest") &&
                    test::contains(text, "rank 6: pipeline 1 data 1 tensor 0  host "),
                text);
        require(test::contains(test::message_of([&] { all["spatial"]; }), "no axis \"spatial\" in pipeline 2"),
                "an axis that is missing");
    });
}

TEST_CASE("mesh: uneven axes, an axis of one, one rank", "[mesh]") {
    run_ranks(6, [](threads_communicator& c) {
        mesh<threads_communicator> all(c, {{"pipeline", 3}, {"data", 1}, {"tensor", 2}});
        require(all["data"].size() == 1 && all["pipeline"].size() == 3, "sizes");
        require(all.coordinate("pipeline") == c.rank() / 2, "coordinate");
    });
    run_ranks(1, [](threads_communicator& c) {
        mesh<threads_communicator> alone(c, {});
        require(alone.everyone().size() == 1 && test::contains(alone.describe(), "no axes"), "one rank");
    });
}

TEST_CASE("mesh: what does not fit is refused on every rank", "[mesh]") {
    const auto why = [](std::vector<mesh_axis> of_rank_0, std::vector<mesh_axis> of_others) {
        return test::message_of([&] {
            run_ranks(4, [&](threads_communicator& c) {
                mesh<threads_communicator> all(c, c.rank() == 0 ? of_rank_0 : of_others);
            });
        });
    };
    const std::vector<mesh_axis> right{{"data", 2}, {"tensor", 2}};
    CHECK(why(right, right).empty());
    CHECK(test::contains(why({{"data", 3}}, {{"data", 3}}), "data 3 is a grid of 3 ranks, but there are 4"));
    CHECK(test::contains(why({{"data", 4}}, right), "ranks differ in the mesh"));
    CHECK(test::contains(why({{"tensor", 2}, {"data", 2}}, right), "ranks differ in the mesh"));
    CHECK(test::contains(why({{"data", 0}}, {{"data", 0}}), "axis data has size 0"));
    const std::vector<mesh_axis> twice{{"data", 2}, {"data", 2}};
    CHECK(test::contains(why(twice, twice), "two axes are called data"));
}

}  // namespace mesh_tests
