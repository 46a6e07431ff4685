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
