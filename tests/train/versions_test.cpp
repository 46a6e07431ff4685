// Versions of a run's state: when they are taken and kept, what replaces a damaged one, branches and transfers.

#include "catch.hpp"
#include "train/saved_states.hpp"
#include "train/thread_runs.hpp"

#include <cairn/train/lineage.hpp>
#include <cairn/train/run_versions.hpp>

#include <bit>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

namespace cairn::versions_test {

using test::losses;
using test::settings_list;

// Four epochs of three steps.
const std::string maps =
    "name = 'maps'\n[data]\nformat = 'cosmology'\ncosmology.size = 8\ncosmology.volumes = 12\n"
    "cosmology.test_volumes = 4\n[model]\nkind = 'cosmoflow'\nfilters = 2\nblocks = 1\nnormalise = true\n"
    "[optimizer]\nkind = 'adam'\nlr = 1e-3\n[train]\nbatch = 4\nepochs = 4\nlog_every = 2\n";

nlohmann::json train(int ranks, const session_options& options, const settings_list& set = {},
                     const std::string& workload = maps) {
    return test::train(ranks, options, set, workload);
}
std::vector<std::int64_t> steps_of(const std::filesystem::path& run) {
    std::vector<std::int64_t> steps;
    for (const stored_version& v : list_versions(run / "states")) steps.push_back(v.step);
    return steps;
}
std::uint64_t digest_of(const std::filesystem::path& run) { return read_manifest(test::newest_version(run)).digest; }

TEST_CASE("versions: taken and kept as the settings say", "[session]") {
    const temporary_folder folder;
    const auto run = [&](const char* name, const settings_list& set) {
        train(1, {.out = folder / name, .resume = {}, .max_steps = -1}, set);
        return steps_of(folder / name);
    };
    using steps = std::vector<std::int64_t>;
    CHECK(run("default", {}) == steps{12, 9});
    CHECK(run("all", {"state.keep=['every 1 epoch']"}) == steps{12, 9, 6, 3});
    const steps fives = run("fives", {"state.every='5 steps'", "state.keep=['last 9']"});
    CHECK(fives.front() == 12);
    CHECK(fives.size() >= 2);  // one that falls due while another is in flight waits
    CHECK(run("old", {"train.save_every=2", "state.keep=['last 9']"}) == steps{12, 6});
    const steps best = run("best", {"state.keep=['best 1']"});
    CHECK(best.front() == 12);
    CHECK(best.size() <= 2);
    const nlohmann::json record = nlohmann::json::parse(test::text_of(folder / "all" / "record.json"));
    CHECK(record["states"]["versions"] == 4);
    CHECK(record["states"]["failed"] == 0);
    CHECK(record["states"]["durable_s"] > 0);
    const std::string why = test::why(1, {"state.every='3 fortnights'"}, maps, 1);
    CHECK_THAT(why,
               Catch::Contains("state.every = \"3 fortnights\"") && Catch::Contains("epochs, steps, s, min, h or d"));
    CHECK_THAT(test::why(1, {"state.keep=['first 2']"}, maps, 1), Catch::Contains("\"first 2\" is no rule"));
    CHECK_THAT(test::why(2, {"state.staging_mb=0.01"}, maps, 1), Catch::Contains("MB are missing"));
}

TEST_CASE("versions: a time limit and an automatic interval", "[session]") {
    const temporary_folder folder;
    for (const int ranks : {1, 2}) {
        const auto run = folder / concat("limited", ranks);
        const nlohmann::json end =
            train(ranks, {.out = run, .resume = {}, .max_steps = -1}, {"train.time_limit='1 s'"});
        CHECK(end["finished"] == false);  // the process has run for longer
        CHECK(end["steps"] == 1);
        CHECK(steps_of(run) == std::vector<std::int64_t>{1});
        CHECK(train(ranks, {.out = {}, .resume = run, .max_steps = -1}, {"train.time_limit=none"})["finished"] == true);
    }
    train(1, {.out = folder / "auto", .resume = {}, .max_steps = -1},
          {"state.every=auto", "state.mtbf='1 h'", "train.epochs=40"});
    CHECK(!steps_of(folder / "auto").empty());
}

TEST_CASE("versions: a damaged one is set aside, and the one before is taken", "[session]") {
    const temporary_folder folder;
    for (const int ranks : {1, 2}) {
        const auto run = folder / concat("run", ranks), whole = folder / concat("whole", ranks);
        train(ranks, {.out = whole, .resume = {}, .max_steps = -1});
        train(ranks, {.out = run, .resume = {}, .max_steps = 7});
        REQUIRE(steps_of(run) == std::vector<std::int64_t>{7, 6});
        const auto pack = test::newest_version(run) / concat("rank-000", ranks - 1, ".pack");
        std::string bytes = test::text_of(pack);
        bytes[bytes.size() / 2] ^= 4;
        std::ofstream(pack, std::ios::binary) << bytes;
        train(ranks, {.out = {}, .resume = run, .max_steps = -1});
        CHECK(losses(run) == losses(whole));
        CHECK(digest_of(run) == digest_of(whole));
        CHECK(std::ranges::any_of(std::filesystem::directory_iterator(run / "states"), [](const auto& entry) {
            return entry.path().filename().string().starts_with(".damaged-00000007");
        }));
        for (const stored_version& v : list_versions(run / "states")) std::ofstream(v.directory / "manifest") << "gone";
        std::filesystem::remove(run / "record.json");
        CHECK_THAT(test::message_of([&] { train(ranks, {.out = {}, .resume = run, .max_steps = -1}); }),
                   Catch::Contains("no saved state can be read") && Catch::Contains("manifest"));
    }
}

TEST_CASE("versions: those on the hosts' disks are gone on from where they are newer", "[session]") {
    const temporary_folder folder;
    for (const int ranks : {1, 2}) {
        const auto run = folder / concat("run", ranks), whole = folder / concat("whole", ranks);
        const settings_list set{"state.local='" + (folder / "disk{rank}").string() + "'", "state.local_every='1 step'",
                                "state.every='2 epochs'"};
        train(ranks, {.out = whole, .resume = {}, .max_steps = -1});
        train(ranks, {.out = run, .resume = {}, .max_steps = 8}, set);
        std::filesystem::remove_all(run / "states");  // as if the run's directory had been too slow
        train(ranks, {.out = {}, .resume = run, .max_steps = 9}, set);
        CHECK(std::ranges::count(steps_of(run), 8) == 1);  // brought to the run's directory
        // Another number of ranks finds them all the same, if it sees the disks.
        train(3 - ranks, {.out = {}, .resume = run, .max_steps = -1}, {});
        CHECK(steps_of(run).front() == 12);
        if (ranks == 1) continue;
        const std::string why = test::why(2, {"state.redundancy=xor"}, maps, 1);
        CHECK_THAT(why, Catch::Contains("set state.local"));
        CHECK_THAT(test::why(2, {"state.redundancy=xor", "state.local='" + (folder / "d").string() + "'"}, maps, 1),
                   Catch::Contains("groups of 4 hosts"));
    }
}

TEST_CASE("versions: one bit of one replica's parameters is named at the next capture", "[session]") {
    for (std::uint32_t trial = 0; trial < 20; ++trial) {
        const temporary_folder folder;
        const int ranks = trial % 2 ? 4 : 2, of = static_cast<int>(trial / 2) % ranks;
        std::string damaged;
        const std::string text = test::message_of([&] {
            run_ranks(ranks, {.kernel_threads = 1, .time_limit = 30}, [&](threads_communicator& c) {
                run_parts<> run(configuration::from_text(maps), {.out = {}, .resume = {}, .max_steps = 9},
                                any_communicator(c.split(0, c.rank())));
                discover_layers(run);
                std::optional<run_directory> directory;
                if (c.rank() == 0) directory.emplace(folder / "run");
                run_progress progress;
                run_versions<cpu, float> versions(run, directory ? &*directory : nullptr, progress);
                const auto& parameters = run.model.weights->parameters();
                const auto& [path, p] = parameters[7 * trial % parameters.size()];
                float& value = p->value[31 * trial % p->value.size()];
                if (c.rank() == of) {
                    damaged = path;
                    value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) ^ 1u << trial);
                }
                versions.finish();
            });
        });
        CAPTURE(trial, ranks, of, damaged, text);
        CHECK_THAT(text, Catch::Contains("have drifted apart: model/" + damaged + ' ') &&
                             Catch::Contains("go on with --resume"));
        // Of two, the higher one is named, whichever it was.
        CHECK_THAT(text, Catch::Contains(concat(" of rank ", ranks == 2 ? 1 : of, " is not that of rank")));
        CHECK(list_versions(folder / "run" / "states").empty());
    }
}

TEST_CASE("versions: a branch goes on where another run was, in a directory of its own", "[session]") {
    const temporary_folder folder;
    train(2, {.out = folder / "run", .resume = {}, .max_steps = -1}, {"state.keep=['every 1 epoch']"});
    const std::uint64_t before = digest_of(folder / "run");
    const auto branch = [&](const char* name, const std::string& from, const settings_list& set) {
        return train(
            2, {.out = folder / name, .resume = {}, .from = locate_version(from).version.directory, .max_steps = -1},
            set);
    };
    const std::string run = (folder / "run").string();
    branch("same", run + "@6", {});
    CHECK(digest_of(folder / "same") == before);
    branch("other", run + "@6", {"optimizer.lr=1e-2"});
    CHECK(digest_of(folder / "other") != before);
    CHECK(digest_of(folder / "run") == before);
    const version_description other = read_description(test::newest_version(folder / "other"));
    CHECK(other.how == "branch");
    CHECK(other.parent_run == run);
    CHECK(other.parent_version.starts_with("00000006-"));
    CHECK(settings_of_version(test::newest_version(folder / "other")).has("optimizer.lr"));
    train(
        2,
        {.out = folder / "early", .resume = {}, .from = locate_version(run + "@6").version.directory, .max_steps = 7});
    CHECK(steps_of(folder / "early") == std::vector<std::int64_t>{7, 6});  // its beginning, too: for a kill before 7
    CHECK_THAT(test::message_of([&] { branch("done", run, {}); }), Catch::Contains("nothing is left to do"));
    CHECK_THAT(test::message_of([&] { branch("deep", run + "@6", {"model.filters=4"}); }),
               Catch::Contains("saved by another model"));
    CHECK_THAT(test::message_of([&] { locate_version(run + "@5"); }), Catch::Contains("there are steps 12, 9, 6, 3"));
    CHECK_THAT(test::message_of([&] { locate_version((folder / "none").string()); }),
               Catch::Contains("no saved state"));
}

TEST_CASE("versions: a transfer takes what fits, by path and shape", "[session]") {
    const temporary_folder folder;
    const auto begin_with = [&](const char* name, const settings_list& set, const std::string& workload = maps) {
        return train(2,
                     {.out = folder / name,
                      .resume = {},
                      .init = locate_version((folder / "run").string()).version.directory,
                      .max_steps = 1},
                     set, workload);
    };
    train(1, {.out = folder / "run", .resume = {}, .max_steps = 6});
    begin_with("wide", {"data.cosmology.size=16"});
    const nlohmann::json record = nlohmann::json::parse(test::text_of(folder / "wide" / "record.json"));
    const std::string told = record["initialised"];
    CHECK_THAT(told, Catch::Contains("model/conv1/weight") && Catch::Contains("; not there: model/"));
    CHECK(read_description(test::newest_version(folder / "wide")).how == "init");
    CHECK_THAT(test::message_of([&] {
                   begin_with("none", {},
                              "[data]\nformat = 'cosmology'\ncosmology.size = 8\ncosmology.volumes = 12\n"
                              "cosmology.test_volumes = 4\n[model]\nkind = 'mlp'\nhidden = [5]\n[train]\nbatch = 4\n");
               }),
               Catch::Contains("no parameter of this network is there"));
}

TEST_CASE("versions: have the choices of kernels, with which a run goes on", "[session]") {
    const temporary_folder folder;
    autotune_cache& kernels = autotune_cache::global();
    const auto text_of_choices = [](const std::filesystem::path& run) {
        std::string text;
        state_view view;
        view.add("machine/kernels", text);
        const auto version = test::newest_version(run);
        saved_state::of_packs(version, own_packs(read_manifest(version))).load(view);
        return text;
    };
    kernels.clear();
    train(1, {.out = folder / "usual", .resume = {}, .max_steps = -1});
    const std::string usual = text_of_choices(folder / "usual");
    CHECK(machine_of_choices(usual) == perf::fingerprint());
    // A convolution that another kernel can do, too.
    std::string key, first, other;
    for (const auto& [known, entry] : kernels.entries())
        for (const char* const name : {"im2col", "tiled", "winograd2", "direct", "plain"}) {
            if (!known.starts_with("conv/") || !other.empty() || name == entry.choice) continue;
            kernels.clear();
            kernels.set(known, {name, {}});
            train(
                1,
                {.out = folder / concat("try ", name, std::hash<std::string>()(known)), .resume = {}, .max_steps = 1});
            if (kernels.entries().at(known).choice == name) key = known, first = entry.choice, other = name;
        }
    REQUIRE(!other.empty());

    for (const int ranks : {1, 2}) {
        const auto run = folder / concat("run", ranks), whole = folder / concat("whole", ranks);
        for (const auto& [out, steps] : {std::pair(whole, -1), std::pair(run, 6)}) {
            kernels.clear();
            kernels.set(key, {other, {}});
            kernels.set("conv/forward of no layer", {"direct", {}});
            train(ranks, {.out = out, .resume = {}, .max_steps = steps});
        }
        CHECK(text_of_choices(run).find("of no layer") == std::string::npos);
        CHECK_FALSE(std::filesystem::exists(run / "autotune.tsv"));
        const bool is_used = text_of_choices(run).find(key + '\t' + other) != std::string::npos;
        CHECK(is_used == (ranks == 1));  // two ranks have smaller batches
        kernels.clear();                 // as in another process
        train(ranks, {.out = {}, .resume = run, .max_steps = -1});
        CHECK(losses(run) == losses(whole));
        CHECK(digest_of(run) == digest_of(whole));
        if (ranks == 1) CHECK(kernels.entries().at(key).choice == other);
        // A branch too.
        kernels.clear();
        train(ranks, {.out = folder / concat("branch", ranks), .from = test::newest_version(whole), .max_steps = -1},
              {"train.epochs=5"});
        if (ranks == 1) CHECK(kernels.entries().at(key).choice == other);
    }
    // Those of another machine are not taken, nor what is no candidate.
    kernels.clear();
    kernels.set(key, {"a kernel of another program", {}});
    train(1, {.out = folder / "unknown", .resume = {}, .max_steps = 3});
    CHECK(kernels.entries().at(key).choice == first);
    kernels.clear();
}

}  // namespace cairn::versions_test
