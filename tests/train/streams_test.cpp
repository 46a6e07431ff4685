// data.stream: each row of a batch is one running text, and the memory of Transformer-XL goes with it, over steps,
// micro-batches, ranks and a stop in the middle of an epoch.

#include "catch.hpp"
#include "train/saved_states.hpp"
#include "train/thread_runs.hpp"

namespace streams {

using namespace cairn;
using test::contains;
using test::losses;
using test::settings_list;
using test::train;
using test::why;

namespace {

std::string workload(const temporary_folder& folder) {
    const std::filesystem::path path = folder / "text.txt";
    std::ofstream out(path);
    for (int i = 0; i < 2600; ++i) out << static_cast<char>('a' + (i * i + i / 7) % 11);
    return "[data]\nformat='text'\npath='" + path.string() +
           "'\nstream=true\n[data.text]\nlength=12\n[model]\nkind='transformer-xl'\nembedding_dim=12\nheads=3\n"
           "blocks=2\ndropout=0.1\nmemory_length=20\nevaluation_memory_length=30\n[optimizer]\nkind='adam'\nlr=1e-2\n"
           "[train]\nbatch=8\nepochs=2\nlog_every=1\ntest_every=0.5\n";
}

/// Every number of a run's metrics but those of the clock.
std::vector<nlohmann::json> lines_of(const std::filesystem::path& run) {
    std::ifstream in(run / "metrics.jsonl");
    std::vector<nlohmann::json> all;
    for (std::string line; std::getline(in, line);) {
        auto entry = nlohmann::json::parse(line);
        nlohmann::json kept;
        for (const char* field : {"step", "loss", "test_loss", "test_bits_per_token"})
            if (entry.contains(field)) kept[field] = entry[field];
        all.push_back(std::move(kept));
    }
    return all;
}

}  // namespace

TEST_CASE("streams: rows go through the text side by side", "[data]") {
    constexpr index_t samples = 23, rows = 4;  // 6, 6, 6 and 5 of them
    for (const int world : {1, 2, 3}) {
        std::vector<std::vector<index_t>> seen(rows);
        for (int rank = 0; rank < world; ++rank) {
            batch_order order(samples, {.batch = rows, .stream = true, .rank = rank, .world = world});
            CHECK(order.batches() == 6);
            for (index_t b = 0; b < order.batches(); ++b) {
                const auto part = order({0, b});
                CHECK(part.global_count == (b < 5 ? 4 : 3));
                for (std::size_t k = 0; k < part.samples.size(); ++k)
                    seen[std::size_t(part.first_sample) + k].push_back(part.samples[k]);
            }
        }
        index_t next = 0;
        for (const auto& row : seen)
            for (const index_t sample : row) CHECK(sample == next++);
        CHECK(next == samples);
    }
    CHECK(batch_order(samples, {.batch = rows, .drop_last = true, .stream = true}).batches() == 5);
}

TEST_CASE("streams: ranks and micro-batches have the losses of one rank, the memory included", "[session]") {
    const temporary_folder folder;
    const std::string text = workload(folder);
    const auto one = train(1, {.out = folder / "one", .resume = {}, .max_steps = -1}, {}, text);
    const auto expected = losses(folder / "one");
    CHECK(expected.size() == 2 * (2340 - 12) / 12 / 8);
    struct mesh {
        int ranks;
        settings_list set;
    };
    for (const auto& [ranks, set] : {mesh{1, {"train.micro_batches=4"}}, mesh{2, {}}, mesh{4, {}}, mesh{3, {}},
                                     mesh{2, {"train.micro_batches=2", "train.activation_memory=recompute"}}}) {
        CAPTURE(ranks, set);
        const std::filesystem::path out = folder / concat("ranks", ranks, set.size());
        const auto got = train(ranks, {.out = out, .resume = {}, .max_steps = -1}, set, text);
        const auto mine = losses(out);
        REQUIRE(mine.size() == expected.size());
        for (std::size_t i = 0; i < mine.size(); ++i) CHECK(mine[i] == Approx(expected[i]).epsilon(1e-4));
        CHECK(got["test_loss"].get<double>() == Approx(one["test_loss"].get<double>()).epsilon(1e-4));
    }
    // Gradients of ranks are summed in an order of their own. Where weights stay as they are, the bits are those of one
    // rank that has as many micro-batches: every row remembers the same.
    const auto bits = [&](int ranks, const char* micro_batches) {
        const std::filesystem::path out = folder / concat("bits", ranks, micro_batches);
        train(ranks, {.out = out, .resume = {}, .max_steps = 30},
              {concat("train.micro_batches=", micro_batches), "optimizer.lr=1e-30"}, text);
        return losses(out);
    };
    CHECK(bits(2, "1") == bits(1, "2"));
    const auto four = bits(4, "1"), pieces = bits(1, "4");
    for (std::size_t i = 0; i < four.size(); ++i) CHECK(four[i] == Approx(pieces[i]).epsilon(1e-14));
    // What is remembered matters: another memory, other losses from the second step of an epoch on.
    train(1, {.out = folder / "none", .resume = {}, .max_steps = 3}, {"model.memory_length=0"}, text);
    const auto none = losses(folder / "none");
    CHECK(none[0] == Approx(expected[0]).epsilon(1e-6));
    CHECK(std::abs(none[1] - expected[1]) > 1e-5);
}

TEST_CASE("streams: stopped in the middle of a text, a run goes on with the same bits", "[session]") {
    const temporary_folder folder;
    const std::string text = workload(folder);
    for (const int ranks : {1, 2}) {
        CAPTURE(ranks);
        const auto at = [&](const char* name) { return folder / concat(name, ranks); };
        train(ranks, {.out = at("whole"), .resume = {}, .max_steps = -1}, {}, text);
        train(ranks, {.out = at("parts"), .resume = {}, .max_steps = 7}, {}, text);
        CHECK(test::newest_entries(at("parts")).contains("stream/block2/attention/attention"));
        train(ranks, {.out = {}, .resume = at("parts"), .max_steps = 31}, {}, text);  // in the second epoch
        train(ranks, {.out = {}, .resume = at("parts"), .max_steps = -1}, {}, text);
        const auto whole = lines_of(at("whole")), parts = lines_of(at("parts"));
        REQUIRE(losses(at("whole")) == losses(at("parts")));
        CHECK(whole.back() == parts.back());
    }
    // Rows of the batch are dealt out again: another number of ranks goes on with the memory of each row.
    train(2, {.out = folder / "dealt", .resume = {}, .max_steps = 7}, {}, text);
    train(4, {.out = {}, .resume = folder / "dealt", .max_steps = 12}, {}, text);
    const auto dealt = losses(folder / "dealt"), expected = losses(folder / "whole1");
    REQUIRE(dealt.size() == 12);
    for (std::size_t i = 0; i < dealt.size(); ++i) CHECK(dealt[i] == Approx(expected[i]).epsilon(1e-5));
}

TEST_CASE("streams: what does not fit is refused with what to do", "[session]") {
    const temporary_folder folder;
    const std::string text = workload(folder);
    const auto says = [&](int ranks, const settings_list& set, std::initializer_list<const char*> words) {
        const std::string message = why(ranks, set, text);
        CAPTURE(message, set);
        for (const char* word : words) CHECK(contains(message, word));
    };
    says(1, {"model.memory_length=400"}, {"model.memory_length = 400 is longer than a row's text, 288 bytes", "fewer"});
    says(1, {"model.evaluation_memory_length=40"}, {"model.evaluation_memory_length = 40", "36 bytes"});
    says(1, {"train.batch=2000"}, {"data.stream: train.batch = 2000 rows of a text of 194 segments of 12 bytes"});
    says(1, {"data.stream=false"}, {"model.memory_length = 20", "data.stream = true"});
    says(2, {"parallel.pipeline=2"}, {"data.stream", "parallel.pipeline"});
    says(2, {"parallel.tensor=2"}, {"parallel.tensor"});
    says(1, {"train.cuda_graph='on'"}, {"train.cuda_graph = on", "data.stream"});
    const std::filesystem::path run = folder / "run";
    train(1, {.out = run, .resume = {}, .max_steps = 3}, {}, text);
    const auto on = [&](const settings_list& set) {
        return test::message_of([&] { train(1, {.out = {}, .resume = run, .max_steps = 5}, set, text); });
    };
    CHECK(contains(on({"train.batch=4"}),
                   "stream/block1/attention/attention is float32 (8, 20, 12) there, float32 (4, 20, 12)"));
    CHECK(contains(on({"model.memory_length=10"}), "stream/block1/attention/attention"));
    CHECK(contains(on({"data.stream=false", "model.memory_length=0", "train.drop_last=true"}),
                   "only there: stream/block1/attention/attention"));
}

}  // namespace streams
