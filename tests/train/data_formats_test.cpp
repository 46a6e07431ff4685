// Settings of data that are read and refused.

#include <cairn/train/data_formats.hpp>

#include "catch.hpp"
#include "messages.hpp"

using namespace cairn;

TEST_CASE("data: decoding by a GPU was withdrawn, and says so", "[settings]") {
    configuration settings = configuration::from_text("[data]\nformat = \"folder\"\nsize = 8\ndecode = \"gpu\"\n");
    CHECK(test::contains(test::message_of([&] { make_data(settings, true, 1); }),
                         "data.decode = gpu was withdrawn until a GPU has measured it"));
    configuration on_cpu = configuration::from_text("[data]\nformat = \"folder\"\nsize = 8\ndecode = \"cpu\"\n");
    CHECK(make_data(on_cpu, true, 1).train.sample_shape() == shape{8, 8, 3});
    CHECK_NOTHROW(on_cpu.check_all_used());
}

TEST_CASE("data: segmentation and graphs without files, and what they refuse", "[settings]") {
    const auto of = [](const std::string& text) {
        configuration settings = configuration::from_text(text);
        return make_data(settings, true, 1);
    };
    const data_parts volumes = of("[data]\nformat = 'segmentation'\nsize = [4, 6, 8]\nclasses = 4\n");
    CHECK(volumes.sample == shape{4, 6, 8, 1});
    CHECK(volumes.info.labels_each == 192);
    CHECK(volumes.info.count() == 4);
    std::vector<float> x(192);
    std::vector<std::int32_t> label(192, -1);
    volumes.train.read(3, {}, {x.data(), label.data(), nullptr});
    for (const std::int32_t l : label) CHECK((l >= 0 && l < 4));
    CHECK(test::contains(test::message_of([&] { of("[data]\nformat = 'segmentation'\nsize = [4, 6]\n"); }),
                         "data.size has 2 extents"));
    const data_parts nodes = of("[data]\nformat = 'graph'\n");
    REQUIRE(nodes.graph);
    CHECK(nodes.sample[0] == nodes.graph->rows);
    CHECK(nodes.info.labels == label_place::nodes);
    configuration missing = configuration::from_text("[data]\nformat = 'graph'\npath = '/nowhere'\n");
    CHECK(test::contains(test::message_of([&] { make_data(missing, false, 1); }), "benchmarks/fetch_data graph"));
}
