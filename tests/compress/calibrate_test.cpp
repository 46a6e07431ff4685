#include "catch.hpp"

#include <cairn/compress/any.hpp>
#include <cairn/compress/calibrate.hpp>

using namespace cairn;

TEST_CASE("calibrate times a compressor and knows its bytes", "[calibrate]") {
    const auto s = calibrate([] { return sign(); }, {"all_gather"}, 2, 10000, 2);
    CHECK(s.compressor == "sign");
    CHECK(s.bytes(100) == 4 + 13);  // exact, where the format is
    CHECK(s.encode_per_value > 0);
    CHECK(s.decode_per_value > 0);
    CHECK(s.algorithms == std::vector<std::string>{"all_gather"});
    const auto t = calibrate([] { return make_compressor("topk:0.1+ef"); }, {"all_gather"}, 1, 10000, 1);
    CHECK(t.compressor == "topk+ef");
    CHECK(t.bytes(1000) > 400);  // by measurement, where it is not: 4 bytes and some bits a value
    CHECK(t.bytes(1000) < 520);
    CHECK(dense_candidate({"ring"}).bytes(3) == 12);
    CHECK_THROWS_AS(calibrate([] { return sign(); }, {}, 0), error);
}
