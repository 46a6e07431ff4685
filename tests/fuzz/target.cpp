// libFuzzer target of all parsers; CAIRN_FUZZ_FORMAT says which. tests/fuzz/run builds it, writes the seeds and runs
// it.
#include "data/fuzz_formats.hpp"

#include <cstdio>
#include <cstdlib>

namespace {

const cairn::test::fuzz_format* chosen = nullptr;

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
    static const auto formats = cairn::test::fuzz_formats();
    const char* name = std::getenv("CAIRN_FUZZ_FORMAT");
    for (const auto& format : formats)
        if (name && format.name == name) chosen = &format;
    if (!chosen) {
        std::fprintf(stderr, "CAIRN_FUZZ_FORMAT is to be one of:");
        for (const auto& format : formats) std::fprintf(stderr, " %s", format.name.c_str());
        std::fprintf(stderr, "\n");
        std::exit(2);
    }
    if (const char* folder = std::getenv("CAIRN_FUZZ_SEEDS")) {
        for (std::size_t i = 0; i < chosen->seeds.size(); ++i) {
            const auto& seed = chosen->seeds[i];
            const auto path = std::filesystem::path(folder) / cairn::concat("seed-", i);
            std::ofstream(path, std::ios::binary)
                .write(reinterpret_cast<const char*>(seed.data()), static_cast<std::streamsize>(seed.size()));
        }
    }
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    try {
        chosen->parse(cairn::test::bytes(data, data + size));
    } catch (const cairn::error&) {}
    return 0;
}
