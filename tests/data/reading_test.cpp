// Strategies of reading: every sample once an epoch, the bytes of the file, whatever ranks, workers and disks.

#include "catch.hpp"
#include "data/synthetic.hpp"

#include <cairn/data/loader.hpp>
#include <cairn/data/packed.hpp>
#include <cairn/data/split.hpp>

#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace cairn::test {

namespace {

/// Sample i is (i, i², −i) with the label i mod 7, or the values (i, −i).
struct plain_dataset {
    index_t n;
    target_kind kind = target_kind::classes;

    index_t size() const { return n; }
    shape sample_shape() const { return {3}; }
    target_info targets() const { return counting_dataset{.n = n, .kind = kind}.targets(); }
    std::string sample_name(index_t i) const { return concat("plain #", i); }
    bool read(index_t i, augment_key, sample_slot slot) const {
        const auto x = static_cast<float>(i);
        slot.x[0] = x, slot.x[1] = x * x, slot.x[2] = -x;
        if (slot.label) *slot.label = static_cast<std::int32_t>(i % 7);
        if (slot.values) slot.values[0] = x, slot.values[1] = -x;
        return true;
    }
};

/// A folder with train.packed, and one for copies.
struct packed_folder {
    explicit packed_folder(index_t n, target_kind kind = target_kind::classes) {
        write_packed(plain_dataset{n, kind}, shared.path() / "train.packed");
    }
    temporary_folder shared, local;
};

packed_format format_of(const packed_folder& f, reading_strategy reading) {
    packed_format format;
    format.reading = reading;
    format.local = f.local.path().string();
    format.window = {4, 3};
    format.kept = 0.4;
    return format;
}

using any_loader = loader<any_dataset>;

/// A rank's loader; all on one node.
std::unique_ptr<any_loader> loader_of(const packed_folder& f, const packed_format& format, loader_config c) {
    const data_parts parts = format.load(f.shared.path());
    c.reading = parts.reading;
    c.reading->start({c.batch, c.rank, c.world, c.seed, c.rank, c.world});
    return std::make_unique<any_loader>(parts.train, c);
}

constexpr reading_strategy all_strategies[] = {reading_strategy::shared, reading_strategy::staged,
                                               reading_strategy::windowed};

/// The samples of an epoch; each is the file's.
std::vector<index_t> epoch_of(any_loader& l) {
    std::vector<index_t> order;
    while (auto b = l.next())
        for (index_t k = 0; k < b->count; ++k) {
            const auto i = static_cast<index_t>(b->x(k, 0));
            REQUIRE(b->x(k, 1) == static_cast<float>(i) * static_cast<float>(i));
            REQUIRE(b->x(k, 2) == -static_cast<float>(i));
            REQUIRE(b->labels[k] == i % 7);
            order.push_back(i);
        }
    return order;
}

}  // namespace

TEST_CASE("reading: an order of windows has every sample once, and each rank its own", "[reading]") {
    for (const index_t n : {1, 13, 96, 250})
        for (const int world : {1, 3, 4})
            for (const index_t batch : {index_t{4}, index_t{10}}) {
                if (batch > n) continue;
                std::vector<std::set<index_t>> of_rank(static_cast<std::size_t>(world));
                for (index_t epoch = 0; epoch < 3; ++epoch) {
                    const window_config c{5, 3};
                    const std::vector<index_t> order = window_order(n, batch, world, 7, epoch, c);
                    CHECK(order == window_order(n, batch, world, 7, epoch, c));
                    if (n > 13) CHECK(order != window_order(n, batch, world, 8, epoch, c));
                    if (n > 13) CHECK(order != window_order(n, batch, world, 7, epoch + 1, c));
                    std::vector<index_t> sorted = order;
                    std::ranges::sort(sorted);
                    for (index_t i = 0; i < n; ++i) REQUIRE(sorted[static_cast<std::size_t>(i)] == i);
                    std::vector<std::set<index_t>> now(of_rank.size());
                    for (index_t begin = 0; begin < n; begin += batch)
                        for (int r = 0; r < world; ++r) {
                            const range part = shard_of(std::min(batch, n - begin), world, r);
                            for (index_t k = part.begin; k < part.end(); ++k)
                                now[static_cast<std::size_t>(r)].insert(order[static_cast<std::size_t>(begin + k)]);
                        }
                    if (epoch > 0) CHECK(now == of_rank);
                    of_rank = now;
                }
            }
}

TEST_CASE("reading: windows hold whole runs", "[reading]") {
    // One rank, 12 runs of 5 samples, 3 of them shuffled together: 15 samples in a row are 3 whole runs.
    const std::vector<index_t> order = window_order(60, 4, 1, 3, 1, {5, 3});
    for (std::size_t first = 0; first < 60; first += 15) {
        std::map<index_t, int> runs;
        for (std::size_t k = first; k < first + 15; ++k) ++runs[order[k] / 5];
        CHECK(runs.size() == 3);
        for (const auto& [run, count] : runs) CHECK(count == 5);
    }
}

TEST_CASE("reading: every strategy delivers each sample once an epoch, on any number of ranks", "[reading]") {
    const packed_folder f(103);
    for (const reading_strategy reading : all_strategies)
        for (const int world : {1, 3})
            for (const int workers : {0, 2})
                for (const bool direct : {false, true}) {
                    packed_format format = format_of(f, reading);
                    format.direct = direct;
                    std::vector<std::unique_ptr<any_loader>> ranks;
                    for (int r = 0; r < world; ++r)
                        ranks.push_back(loader_of(
                            f, format, {.batch = 10, .workers = workers, .seed = 5, .rank = r, .world = world}));
                    std::vector<index_t> before;
                    for (int epoch = 0; epoch < 3; ++epoch) {
                        std::vector<index_t> all;
                        for (auto& rank : ranks) std::ranges::copy(epoch_of(*rank), std::back_inserter(all));
                        CHECK(all != before);
                        before = all;
                        std::ranges::sort(all);
                        REQUIRE(all.size() == 103);
                        for (index_t i = 0; i < 103; ++i) REQUIRE(all[static_cast<std::size_t>(i)] == i);
                    }
                }
}

TEST_CASE("reading: shared and staged reads have the order of a shuffle, which a resumed run goes on with",
          "[reading]") {
    const packed_folder f(50);
    const loader_config config{.batch = 8, .workers = 1, .seed = 3};
    any_loader plain(any_dataset(plain_dataset{50}), config);
    const std::vector<index_t> expected = epoch_of(plain);
    for (const reading_strategy reading : all_strategies) {
        const packed_format format = format_of(f, reading);
        const std::unique_ptr<any_loader> whole = loader_of(f, format, config);
        const std::vector<index_t> order = epoch_of(*whole), second = epoch_of(*whole);
        if (reading != reading_strategy::windowed) CHECK(order == expected);
        for (const index_t from : {0, 3, 6}) {
            const std::unique_ptr<any_loader> resumed =
                loader_of(f, format, {.batch = 8, .workers = static_cast<int>(from % 2), .prefetch = 3, .seed = 3});
            resumed->seek({1, from});
            CHECK(epoch_of(*resumed) == std::vector<index_t>(second.begin() + from * 8, second.end()));
        }
    }
}

TEST_CASE("reading: staged samples and kept runs are read from the node's disk", "[reading]") {
    const packed_folder f(40);
    for (const reading_strategy reading : {reading_strategy::staged, reading_strategy::windowed}) {
        packed_format format = format_of(f, reading);
        format.kept = 1;
        const std::unique_ptr<any_loader> l = loader_of(f, format, {.batch = 8, .workers = 0, .seed = 3});
        if (reading == reading_strategy::windowed) epoch_of(*l);
        // What lies in the shared file system no longer matters.
        std::filesystem::resize_file(f.shared.path() / "train.packed", packed_head::bytes);
        CHECK(epoch_of(*l).size() == 40);
        write_packed(plain_dataset{40}, f.shared.path() / "train.packed");
    }
}

TEST_CASE("reading: packed samples have the classes or values of the data set", "[reading]") {
    const packed_folder f(9, target_kind::values);
    const data_parts parts = format_of(f, reading_strategy::shared).load(f.shared.path());
    CHECK(parts.sample == shape{3});
    CHECK(parts.info.kind == target_kind::values);
    CHECK(parts.info.count() == 2);
    loader l(parts.train, {.batch = 9, .workers = 0, .shuffle = false});
    const auto b = l.next();
    for (index_t k = 0; k < 9; ++k) {
        CHECK(b->targets(k, 0) == static_cast<float>(k));
        CHECK(b->targets(k, 1) == -static_cast<float>(k));
    }
}

TEST_CASE("reading: files that are no packed samples, or too short, are named", "[reading]") {
    const packed_folder f(20);
    const auto error_of = [&] {
        return message_of([&] { format_of(f, reading_strategy::shared).load(f.shared.path()); });
    };
    std::filesystem::resize_file(f.shared.path() / "train.packed", packed_head::bytes + 100);
    CHECK(contains(error_of(), "train.packed: 4196 bytes; 20 records of 16 bytes behind 4096 need 4416"));
    std::ofstream(f.shared.path() / "train.packed") << "something else";
    CHECK(contains(error_of(), "no packed samples"));
    const packed_folder whole(20);
    const data_parts parts = format_of(whole, reading_strategy::windowed).load(whole.shared.path());
    CHECK(contains(message_of([&] {
                       any_loader(subset<any_dataset>(parts.train, {0, 1, 2}), {.batch = 2, .reading = parts.reading});
                   }),
                   "3 samples, of which 20 are read"));
}

}  // namespace cairn::test
