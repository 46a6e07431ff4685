// Runs the checks of benchmarks/fetch_data, which need no internet: fetch_data_check.py serves the files itself.
#include "catch.hpp"

#include <cstdlib>
#include <filesystem>
#include <string>

TEST_CASE("fetch_data: fetch, checksum, resume, unpack, fail clearly", "[fetch_data]") {
    if (std::system("python3 -c 'import http.server' > /dev/null 2>&1") != 0) {
        WARN("skipped: no python3");
        return;
    }
    const auto script = std::filesystem::path(CAIRN_SOURCE_DIR) / "tests" / "data" / "fetch_data_check.py";
    REQUIRE(std::system(("timeout 120 python3 '" + script.string() + "'").c_str()) == 0);
}
