// A transformer whose embedding is tied to its head, trained on pipelines: the numbers and the states of one rank.

#include "catch.hpp"
#include "train/saved_states.hpp"
#include "train/thread_runs.hpp"

namespace pipeline_tied {

using namespace cairn;
using test::losses;
using test::settings_list;
using test::train;
using test::why;

namespace {

/// Settings that train a small language model on a text of its own in `folder`.
std::string tied_workload(const temporary_folder& folder) {
    std::ofstream text(folder / "text.txt");
    for (int i = 0; i < 40; ++i) text << "the quick brown fox " << i * i << " jumps over the lazy dog; ";
    return concat("[data]\nformat = 'text'\npath = '", (folder / "text.txt").string(), "'\ntext.length = 12\n",
                  "[model]\nkind = 'transformer'\nembedding_dim = 16\nheads = 2\nblocks = 2\ndropout = 0.1\n",
                  "tied_embedding = true\n[optimizer]\nkind = 'adam'\nlr = 3e-3\nclip_norm = 0.3\n",
                  "[train]\nbatch = 16\nepochs = 2\nlog_every = 1\nmicro_batches = 4\n");
}

}  // namespace

TEST_CASE("pipeline session: tied embeddings have the bits of one rank", "[session]") {
    const temporary_folder folder;
    const std::string text = tied_workload(folder);
    for (const char* optimizer : {"adam", "lamb"}) {
        const std::string rule = concat("optimizer.kind=", optimizer);
        const auto one =
            train(1, {.out = folder / concat("one", optimizer), .resume = {}, .max_steps = 8}, {rule}, text);
        const std::vector<double> expected = losses(folder / concat("one", optimizer));
        REQUIRE(expected.size() > 6);
        CHECK(expected.back() < expected.front());
        for (const settings_list& set : {settings_list{"parallel.pipeline=2"},
                                         {"parallel.pipeline=2", "parallel.schedule=zb_v"},
                                         {"parallel.pipeline=4", "parallel.schedule=zb_h1"}}) {
            const std::string name = concat(optimizer, set.back());
            CAPTURE(name);
            settings_list all = set;
            all.push_back(rule);
            const auto got =
                train(set.front().back() - '0', {.out = folder / name, .resume = {}, .max_steps = 8}, all, text);
            CHECK(losses(folder / name) == expected);
            CHECK(got["test_loss"] == one["test_loss"]);
        }
    }
}

TEST_CASE("pipeline session: tied embeddings beside a data axis", "[session]") {
    const temporary_folder folder;
    const std::string text = tied_workload(folder);
    for (const settings_list& more : {settings_list{}, {"parallel.zero_stage=1"}, {"parallel.zero_stage=2"}}) {
        const std::string name = more.empty() ? "plain" : more.front();
        CAPTURE(name);
        settings_list grid{"parallel.pipeline=2", "parallel.data=2"};
        grid.insert(grid.end(), more.begin(), more.end());
        train(2, {.out = folder / (name + "two"), .resume = {}, .max_steps = 5}, more, text);
        train(4, {.out = folder / (name + "grid"), .resume = {}, .max_steps = 5}, grid, text);
        CHECK(losses(folder / (name + "grid")) == losses(folder / (name + "two")));
    }
}

TEST_CASE("pipeline session: a state has a tied weight once, and goes on anywhere", "[session]") {
    const temporary_folder folder;
    const std::string text = tied_workload(folder);
    train(1, {.out = folder / "whole", .resume = {}, .max_steps = -1}, {}, text);
    train(2, {.out = folder / "cut", .resume = {}, .max_steps = 3}, {"parallel.pipeline=2"}, text);
    int tables = 0, heads = 0;
    for (const std::string& name : test::newest_entries(folder / "cut")) {
        tables += name == "model/tokens/weight";
        heads += name.find("head") != std::string::npos;
    }
    CHECK(tables == 1);
    CHECK(heads == 0);
    train(4, {.out = {}, .resume = folder / "cut", .max_steps = 5}, {"parallel.pipeline=4", "parallel.schedule=gpipe"},
          text);
    train(1, {.out = {}, .resume = folder / "cut", .max_steps = 6}, {"parallel.pipeline=1"}, text);
    train(2, {.out = {}, .resume = folder / "cut", .max_steps = -1}, {"parallel.pipeline=2"}, text);
    CHECK(losses(folder / "cut") == losses(folder / "whole"));
}

}  // namespace pipeline_tied
