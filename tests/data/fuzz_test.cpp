// Mutates small valid files of every format, hundreds of times each, and lets the sanitizers watch. tests/fuzz holds
// the same parsers for libFuzzer.
#include "catch.hpp"
#include "data/fuzz_formats.hpp"

#include <cairn/core/clock.hpp>

namespace cairn::test {
namespace {

// One of: flipped bits, bytes set to telling values, a cut, a doubled piece, a removed piece; up to four of them.
bytes mutated(bytes b, std::uint64_t number) {
    sample_random random({number, 0}, 0);
    const index_t changes = 1 + random.below(4);
    for (index_t i = 0; i < changes && !b.empty(); ++i) {
        const auto n = static_cast<index_t>(b.size());
        // Headers are short and matter most.
        const index_t at = random.coin() ? random.below(n) : random.below(std::min<index_t>(n, 64));
        const auto position = b.begin() + at;
        switch (random.below(6)) {
            case 0:
                *position ^= static_cast<std::uint8_t>(1 << random.below(8));
                break;
            case 1:
                *position = static_cast<std::uint8_t>(random.below(256));
                break;
            case 2: {
                constexpr std::array<std::uint8_t, 6> telling{0x00, 0xff, 0x7f, 0x80, 0x01, 0xfe};
                const index_t count = std::min<index_t>(1 + random.below(8), n - at);
                std::fill_n(position, count, telling[static_cast<std::size_t>(random.below(6))]);
                break;
            }
            case 3:
                b.resize(static_cast<std::size_t>(at));
                break;
            case 4: {
                const bytes piece(position, position + std::min<index_t>(1 + random.below(16), n - at));
                b.insert(b.begin() + random.below(n), piece.begin(), piece.end());
                break;
            }
            default:
                b.erase(position, position + std::min<index_t>(1 + random.below(16), n - at));
        }
    }
    return b;
}

}  // namespace

TEST_CASE("fuzz: damaged files are read or refused, nothing else", "[fuzz]") {
    for (const fuzz_format& format : fuzz_formats()) {
        DYNAMIC_SECTION(format.name) {
            for (const bytes& seed : format.seeds) REQUIRE_NOTHROW(format.parse(seed));
            index_t refused = 0;
            const stopwatch watch;
            for (std::uint64_t number = 0; number < 1200; ++number) {
                const bytes file = mutated(format.seeds[number % format.seeds.size()], number);
                try {
                    format.parse(file);
                } catch (const error& e) {
                    ++refused;
                    if (std::string(e.what()).find("x.") != 0)
                        FAIL("mutation " << number << ": the message does not name the file: " << e.what());
                } catch (const std::exception& e) {
                    FAIL("mutation " << number << ": " << e.what());
                }
            }
            REQUIRE(refused > 300);
            REQUIRE(watch.seconds() < 120);  // seconds alone; nothing runs away
        }
    }
}

TEST_CASE("fuzz: every truncation of every format is read or refused", "[fuzz]") {
    for (const fuzz_format& format : fuzz_formats()) {
        DYNAMIC_SECTION(format.name) {
            for (const bytes& seed : format.seeds)
                for (std::size_t n = 0; n < seed.size(); n += 1 + seed.size() / 400) {
                    const bytes cut(seed.begin(), seed.begin() + static_cast<std::ptrdiff_t>(n));
                    try {
                        format.parse(cut);
                    } catch (const error&) {
                    } catch (const std::exception& e) {
                        FAIL("cut to " << n << " bytes: " << e.what());
                    }
                }
        }
    }
}

TEST_CASE("fuzz: damaged CIFAR files", "[fuzz]") {
    const temporary_folder folder;
    bytes seed = gzipped(bytes(3 * 3073, 1));
    for (std::uint64_t number = 0; number < 300; ++number) {
        const auto file = folder.write("x.bin", mutated(seed, number));
        try {
            read_cifar10({file});
        } catch (const error&) {}
    }
}

}  // namespace cairn::test
