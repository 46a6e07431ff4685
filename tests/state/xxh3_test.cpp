#include "catch.hpp"

#include <cairn/state/xxh3.hpp>

#include <utility>
#include <vector>

TEST_CASE("XXH3 gives the values that xxHash publishes") {
    // cli/xsum_sanity_check.c: the buffer that it fills, and lengths with results for seed 0.
    std::vector<unsigned char> buffer(2367);
    std::uint64_t generator = 2654435761u;
    for (unsigned char& byte : buffer) {
        byte = static_cast<unsigned char>(generator >> 56);
        generator *= 11400714785074694797u;
    }
    const std::vector<std::pair<std::size_t, std::uint64_t>> published{
        {0, 0x2D06800538D394C2u},   {1, 0xC44BDFF4074EECDBu},    {6, 0x27B56A84CD2D7325u},
        {12, 0xA713DAF0DFBB77E7u},  {24, 0xA3FE70BF9D3510EBu},   {48, 0x397DA259ECBA1F11u},
        {80, 0xBCDEFBBB2C47C90Au},  {195, 0xCD94217EE362EC3Au},  {403, 0xCDEB804D65C6DEA4u},
        {512, 0x617E49599013CB6Bu}, {2048, 0xDD59E2C3A5F038E0u}, {2240, 0x6E73A90539CF2948u},
        {2367, 0xCB37AEB9E5D361EDu}};
    for (const auto& [bytes, result] : published) {
        INFO(bytes << " bytes");
        CHECK(cairn::xxh3(buffer.data(), bytes) == result);
        for (const std::size_t piece : {1u, 100u, 1024u}) {
            cairn::xxh3_stream stream;
            for (std::size_t at = 0; at < bytes; at += piece)
                stream.add(buffer.data() + at, std::min(piece, bytes - at));
            CHECK(stream.value() == result);
        }
    }
}
