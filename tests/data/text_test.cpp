#include "catch.hpp"
#include "data/writers.hpp"

#include <cairn/data/loader.hpp>
#include <cairn/data/text.hpp>

#include <set>

namespace cairn::test {
namespace {

using Catch::Matchers::Contains;

// Byte i is i mod 251.
std::shared_ptr<const text> text_of(index_t n) {
    text t{.bytes = {}, .name = "counting"};
    for (index_t i = 0; i < n; ++i) t.bytes.push_back(static_cast<std::uint8_t>(i % 251));
    return std::make_shared<const text>(std::move(t));
}

struct window {
    std::vector<float> x;
    std::vector<std::int32_t> next;
};
window read(const text_windows& d, index_t i, augment_key key = {}) {
    const auto n = static_cast<std::size_t>(d.sample_shape()[0]);
    window w{std::vector<float>(n), std::vector<std::int32_t>(n)};
    REQUIRE(d.read(i, key, {w.x.data(), w.next.data(), nullptr}));
    return w;
}

}  // namespace

TEST_CASE("text: windows follow each other, labels are the bytes behind", "[text]") {
    const text_windows d(text_of(101), 10, false, 5, 101);
    REQUIRE(d.size() == 9);  // 96 bytes: the last label needs one more
    CHECK(d.sample_shape() == shape{10});
    CHECK(d.targets().count() == 256);
    CHECK(d.targets().labels_each == 10);
    CHECK(d.sample_name(2) == "counting from byte 25");
    for (index_t i = 0; i < d.size(); ++i)
        for (index_t k = 0; k < 10; ++k) {
            CHECK(read(d, i).x[static_cast<std::size_t>(k)] == static_cast<float>(5 + 10 * i + k));
            CHECK(read(d, i).next[static_cast<std::size_t>(k)] == 6 + 10 * i + k);
        }
    CHECK(text_windows(text_of(101), 10, false).size() == 10);
    CHECK(text_windows(text_of(100), 10, false).size() == 9);
    CHECK(text_windows(text_of(11), 10, false).size() == 1);
}

TEST_CASE("text: shifted windows begin at a byte that the epoch chooses, and stay within the text", "[text]") {
    for (const index_t n : {20, 100, 109, 110}) {
        const text_windows d(text_of(n), 10, true);
        std::set<float> firsts;
        for (std::uint32_t epoch = 0; epoch < 200; ++epoch) {
            const float first = read(d, 0, {7, epoch}).x[0];
            firsts.insert(first);
            CHECK(first == read(d, 0, {7, epoch}).x[0]);
            const window last = read(d, d.size() - 1, {7, epoch});
            CHECK(last.x[0] == first + static_cast<float>(10 * (d.size() - 1)));
            CHECK(last.next[9] <= n - 1);
        }
        CHECK(firsts.size() == 10);
        CHECK(*firsts.begin() == 0);
        CHECK(*firsts.rbegin() == 9);
    }
}

TEST_CASE("text: windows that are not augmented are as many, and the same in every epoch", "[text]") {
    for (const index_t n : {20, 100, 109, 110}) {
        const text_windows d(text_of(n), 10, true), still = d.unaugmented();
        REQUIRE(still.size() == d.size());
        for (index_t i = 0; i < d.size(); ++i) {
            CHECK(read(still, i, {1, 1}).x == read(still, i, {2, 2}).x);
            CHECK(read(still, i).x[0] == static_cast<float>(10 * i + 9));
        }
        CHECK(read(still.unaugmented(), 0).x == read(still, 0).x);
    }
}

TEST_CASE("text: a loader deals windows with a label for each byte", "[text]") {
    loader<text_windows> batches(text_windows(text_of(101), 10, false), {.batch = 4, .workers = 1, .shuffle = false});
    index_t next = 0;
    while (const auto b = batches.next()) {
        CHECK(b->x.shape() == shape{b->count, 10});
        CHECK(b->labels.shape() == shape{b->count, 10});
        for (index_t i = 0; i < b->count * 10; ++i, ++next) {
            CHECK(b->x[i] == static_cast<float>(next));
            CHECK(b->labels[i] == next + 1);
        }
    }
    CHECK(next == 100);
}

TEST_CASE("text: files, packed and broken", "[text]") {
    const temporary_folder folder;
    const bytes line{'t', 'o', ' ', 'b', 'e'};
    folder.write("plain", line);
    folder.write("packed", gzipped(line));
    CHECK(read_text(folder.path() / "plain")->bytes == line);
    CHECK(read_text(folder.path() / "packed")->bytes == line);
    CHECK_THROWS_WITH(read_text(folder.path() / "none"), Contains("none") && Contains("no such file"));
    const auto t = read_text(folder.path() / "plain");
    CHECK_THROWS_WITH(text_windows(t, 5, false), Contains("plain") && Contains("5 bytes") && Contains("need 6"));
    CHECK_THROWS_WITH(text_windows(t, 3, true), Contains("need 6"));
    CHECK(text_windows(t, 4, false).size() == 1);
    CHECK_THROWS_WITH(text_windows(t, 0, false), Contains("windows of 0 bytes"));
    CHECK_THROWS_WITH(text_windows(t, 1, false, 3, 9), Contains("no bytes 3 to 9"));
}

}  // namespace cairn::test
