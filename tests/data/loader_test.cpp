#include "catch.hpp"
#include "data/synthetic.hpp"

#include <cairn/data/loader.hpp>

namespace cairn::test {
namespace {

using Catch::Matchers::Contains;

// Everything that a run sees, in order; ends of epochs as an empty vector.
template <class D>
std::vector<std::vector<float>> drain(loader<D>& l, int epochs) {
    std::vector<std::vector<float>> seen;
    for (int e = 0; e < epochs;) {
        auto b = l.next();
        seen.emplace_back();
        if (!b) {
            ++e;
            continue;
        }
        seen.back().assign(b->x.span().begin(), b->x.span().end());
        for (std::int32_t label : b->labels.span()) seen.back().push_back(static_cast<float>(label));
        for (float value : b->targets.span()) seen.back().push_back(value);
    }
    return seen;
}

}  // namespace

TEST_CASE("loader: every sample once an epoch, in another order each epoch") {
    for (int workers : {0, 1, 3}) {
        loader l(counting_dataset{.n = 103}, {.batch = 10, .workers = workers, .seed = 5});
        std::vector<std::vector<index_t>> orders;
        for (int epoch = 0; epoch < 3; ++epoch) {
            std::vector<index_t> order;
            index_t batches = 0;
            while (auto b = l.next()) {
                REQUIRE(b->at == cursor{epoch, batches});
                REQUIRE(b->x.shape() == shape{b->count, 3});
                REQUIRE(b->labels.shape() == shape{b->count});
                REQUIRE(b->targets.empty());
                REQUIRE(b->count == (batches < 10 ? 10 : 3));
                REQUIRE(b->global_count == b->count);
                for (index_t k = 0; k < b->count; ++k) {
                    REQUIRE(b->labels[k] == static_cast<std::int32_t>(b->x(k, 0)) % 7);
                    REQUIRE(b->x(k, 2) == static_cast<float>(epoch));
                    order.push_back(static_cast<index_t>(b->x(k, 0)));
                }
                ++batches;
            }
            REQUIRE(batches == 11);
            orders.push_back(order);
            std::sort(order.begin(), order.end());
            for (index_t i = 0; i < 103; ++i) REQUIRE(order[static_cast<std::size_t>(i)] == i);
        }
        REQUIRE(orders[0] != orders[1]);
        REQUIRE(orders[1] != orders[2]);
    }
}

TEST_CASE("loader: the number of workers, the depth of prefetch and the type change no bit") {
    loader reference(counting_dataset{.n = 97, .kind = target_kind::values}, {.batch = 8, .workers = 0, .seed = 11});
    const auto expected = drain(reference, 3);
    for (int workers : {1, 2, 5})
        for (index_t prefetch : {1, 2, 7}) {
            loader l(any_dataset(counting_dataset{.n = 97, .kind = target_kind::values}),
                     {.batch = 8, .workers = workers, .prefetch = prefetch, .seed = 11});
            REQUIRE(drain(l, 3) == expected);
        }
    loader other_seed(counting_dataset{.n = 97, .kind = target_kind::values}, {.batch = 8, .workers = 0, .seed = 12});
    REQUIRE(drain(other_seed, 3) != expected);
}

TEST_CASE("loader: a resumed run sees the rest of the same batches") {
    const loader_config config{.batch = 8, .workers = 2, .seed = 3};
    loader whole(counting_dataset{.n = 50}, config);
    const auto expected = drain(whole, 3);
    for (std::size_t taken = 0; taken < expected.size(); ++taken) {
        loader first(counting_dataset{.n = 50}, config);
        for (std::size_t i = 0; i < taken; ++i) first.next();
        const cursor saved = first.position();

        loader_config other = config;
        other.workers = static_cast<int>(taken % 3);
        loader second(counting_dataset{.n = 50}, other);
        second.next();
        second.seek(saved);
        auto rest = drain(second, 3 - static_cast<int>(saved.epoch));
        REQUIRE(rest == std::vector(expected.begin() + static_cast<std::ptrdiff_t>(taken), expected.end()));
    }
}

TEST_CASE("loader: ranks share every global batch without repeats, and the weights add up") {
    for (int world : {1, 2, 3, 4}) {
        const index_t n = 61, batch = 12;
        std::vector<std::unique_ptr<loader<counting_dataset>>> ranks;
        for (int rank = 0; rank < world; ++rank)
            ranks.push_back(std::make_unique<loader<counting_dataset>>(
                counting_dataset{.n = n},
                loader_config{.batch = batch, .workers = 1, .seed = 9, .rank = rank, .world = world}));
        loader alone(counting_dataset{.n = n}, {.batch = 12, .workers = 0, .seed = 9});
        while (auto whole = alone.next()) {
            std::vector<float> together;
            index_t count = 0;
            for (auto& l : ranks) {
                auto b = l->next();
                REQUIRE(b);
                REQUIRE(b->global_count == whole->count);
                REQUIRE(b->first_sample == count);
                REQUIRE(b->count <= batch);
                count += b->count;
                together.insert(together.end(), b->x.span().begin(), b->x.span().end());
            }
            REQUIRE(count == whole->count);
            REQUIRE(together == std::vector<float>(whole->x.span().begin(), whole->x.span().end()));
        }
        for (auto& l : ranks) REQUIRE_FALSE(l->next());
    }
}

TEST_CASE("loader: a short last batch may leave a rank without samples") {
    std::vector<index_t> counts;
    for (int rank = 0; rank < 4; ++rank)
        for (int workers : {0, 2}) {
            loader l(counting_dataset{.n = 10}, {.batch = 8, .workers = workers, .rank = rank, .world = 4});
            l.next();
            auto last = l.next();
            REQUIRE(last);
            REQUIRE(last->global_count == 2);
            REQUIRE(last->count == (rank < 2 ? 1 : 0));
            REQUIRE(last->x.shape() == shape{last->count, 3});
            REQUIRE_FALSE(l.next());
            REQUIRE(l.next());
        }
}

TEST_CASE("loader: drop_last, no shuffling") {
    loader l(counting_dataset{.n = 10}, {.batch = 4, .shuffle = false, .drop_last = true});
    REQUIRE(l.batches_per_epoch() == 2);
    REQUIRE(l.samples_per_epoch() == 8);
    index_t at = 0;
    while (auto b = l.next())
        for (index_t k = 0; k < b->count; ++k) REQUIRE(b->x(k, 0) == static_cast<float>(at++));
    REQUIRE(at == 8);
}

TEST_CASE("loader: ends after the last epoch", "[loader]") {
    for (int workers : {0, 2}) {
        loader l(counting_dataset{.n = 10}, {.batch = 4, .workers = workers, .epochs = 2});
        index_t batches = 0;
        for (int epoch = 0; epoch < 2; ++epoch)
            while (l.next()) ++batches;
        REQUIRE(batches == 6);
        for (int i = 0; i < 3; ++i) REQUIRE_FALSE(l.next());
        REQUIRE(l.position() == cursor{2, 0});
        l.seek({1, 2});
        REQUIRE(l.next());
        REQUIRE_FALSE(l.next());
        REQUIRE_FALSE(l.next());
    }
}

TEST_CASE("loader: skipped samples are left out and named") {
    for (int workers : {0, 2}) {
        loader l(counting_dataset{.n = 20, .corrupt = {0, 3, 4, 19}},
                 {.batch = 5, .workers = workers, .shuffle = false});
        std::vector<float> seen;
        std::vector<std::string> skipped;
        while (auto b = l.next()) {
            REQUIRE(b->global_count == 5);
            REQUIRE(b->count + static_cast<index_t>(b->skipped.size()) == 5);
            REQUIRE(b->x.shape() == shape{b->count, 3});
            for (index_t k = 0; k < b->count; ++k) {
                REQUIRE(b->labels[k] == static_cast<std::int32_t>(b->x(k, 0)) % 7);
                seen.push_back(b->x(k, 0));
            }
            skipped.insert(skipped.end(), b->skipped.begin(), b->skipped.end());
        }
        REQUIRE(seen == std::vector<float>{1, 2, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18});
        REQUIRE(skipped == std::vector<std::string>{"count #0", "count #3", "count #4", "count #19"});
        REQUIRE(l.stats().skipped == 4);
        REQUIRE(l.stats().samples == 16);
    }
    for (int workers : {0, 2}) {  // all of a batch: it is empty
        loader l(counting_dataset{.n = 4, .corrupt = {0, 1}}, {.batch = 2, .workers = workers, .shuffle = false});
        const auto none = l.next();
        REQUIRE(none);
        REQUIRE(none->count == 0);
        REQUIRE(none->skipped.size() == 2);
        REQUIRE(l.next()->count == 2);
        REQUIRE_FALSE(l.next());
    }
}

TEST_CASE("loader: a worker's error comes out of next() with the sample's name, at the right batch, every time") {
    for (int workers : {0, 1, 3}) {
        loader l(counting_dataset{.n = 40, .throwing = {13, 17}}, {.batch = 10, .workers = workers, .shuffle = false});
        REQUIRE(l.next());
        for (int i = 0; i < 3; ++i)
            REQUIRE_THAT(message_of([&] { l.next(); }),
                         Contains("sample 13 (count #13)") && Contains("byte 17: broken on purpose"));
        REQUIRE(l.position() == cursor{0, 1});
        l.seek({0, 2});
        auto b = l.next();
        REQUIRE(b);
        REQUIRE(b->x(0, 0) == 20);
    }
}

TEST_CASE("loader: impossible configurations") {
    const counting_dataset d{.n = 10};
    const auto message = [&](loader_config c) { return message_of([&] { loader l(d, c); }); };
    REQUIRE_THAT(message({.batch = 11}),
                 Contains("batch of 11") && Contains("data set of 10") && Contains("at most 10"));
    REQUIRE_THAT(message({.batch = 11, .world = 2}), Contains("at most 10"));
    REQUIRE_THAT(message({.batch = 0}), Contains("batch size 0"));
    REQUIRE_THAT(message({.batch = 1, .workers = -1}), Contains("-1 workers"));
    REQUIRE_THAT(message({.batch = 1, .prefetch = 0}), Contains("prefetch of 0"));
    REQUIRE_THAT(message({.batch = 1, .rank = 2, .world = 2}), Contains("rank 2 of 2"));
    REQUIRE_THAT(message_of([] { loader l(counting_dataset{.n = 0}, {.batch = 1}); }), Contains("empty"));
    loader l(d, {.batch = 3});
    REQUIRE_THAT(message_of([&] { l.seek({0, 5}); }), Contains("no batch 5") && Contains("4 an epoch"));
}

TEST_CASE("loader: buffers are used again; a caller that keeps batches keeps their contents") {
    const index_t before = memory_pool::host().use_of(memory_category::data).live;
    {
        loader l(counting_dataset{.n = 1000}, {.batch = 10, .workers = 2, .prefetch = 2, .shuffle = false});
        const index_t ring = memory_pool::host().use_of(memory_category::data).live - before;
        for (int i = 0; i < 50; ++i) {
            auto b = l.next();
            REQUIRE(b->count == 10);
        }
        REQUIRE(memory_pool::host().use_of(memory_category::data).live - before == ring);

        std::vector<batch> kept;
        for (int i = 0; i < 20; ++i) kept.push_back(*l.next());
        const tensor<float> alone = kept[3].x.share();
        kept.erase(kept.begin() + 3);
        for (int i = 0; i < 20; ++i) l.next();
        REQUIRE(alone(0, 0) == 530);
        for (int i = 0; i < 19; ++i)
            REQUIRE(kept[static_cast<std::size_t>(i)].x(9, 0) == static_cast<float>(509 + 10 * (i < 3 ? i : i + 1)));
    }
    REQUIRE(memory_pool::host().use_of(memory_category::data).live == before);
}

TEST_CASE("loader: may be destroyed at any moment; a batch outlives it") {
    batch last;
    for (int i = 0; i < 100; ++i) {
        loader l(counting_dataset{.n = 300}, {.batch = 7, .workers = i % 4, .prefetch = 1 + i % 3, .seed = 1});
        for (int k = 0; k < i % 5; ++k) last = *l.next();
    }
    REQUIRE(last.count == 7);
    REQUIRE(last.x(6, 0) >= 0);
}

TEST_CASE("loader: the statistics of a run") {
    loader l(counting_dataset{.n = 100}, {.batch = 10, .workers = 1});
    while (l.next()) {}
    const loader_stats s = l.stats();
    REQUIRE(s.batches == 10);
    REQUIRE(s.samples == 100);
    REQUIRE(s.seconds > 0);
    REQUIRE(s.stall_seconds <= s.seconds);
    REQUIRE(s.work_seconds > 0);
    l.reset_stats();
    REQUIRE(l.stats().samples == 0);
}

}  // namespace cairn::test
