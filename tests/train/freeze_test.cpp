// optimizer.freeze in whole runs: frozen parameters and statistics have the bits they began with, whatever trains the
// others on whatever mesh; nothing else is kept of them; ranks train the others as one does.

#include "catch.hpp"
#include "train/saved_states.hpp"
#include "train/thread_runs.hpp"

#include <cmath>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace cairn::freeze_test {

using test::settings_list;
using digests = std::map<std::string, std::uint64_t>;

const std::string
    resnet =
        "[data]\nformat='cifar10'\n[model]\nkind='resnet-cifar'\ndepth=8\n[train]\nbatch=12\nmicro_batches=2\n"
        "test_every=0\n[optimizer]\nlr=1e-2\n",
    transformer =
        "[data]\nformat='text'\npath='TEXT'\ntext.length=8\n[model]\nkind='transformer'\nembedding_dim=12\nheads=2\n"
        "blocks=2\ntied_embedding=true\n[train]\nbatch=12\nmicro_batches=2\ntest_every=0\nlog_every=1\n[optimizer]\n"
        "kind='adam'\n";

settings_list operator+(settings_list a, const settings_list& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}
digests digests_of(const std::filesystem::path& version) {
    digests all;
    for (const auto& t : read_manifest(version).tensors) all[t.name] = t.digest;
    return all;
}
std::vector<float> values_of(const std::filesystem::path& version, const std::string& name) {
    const manifest m = read_manifest(version);
    const auto at = std::ranges::find(m.tensors, name, &manifest::tensor::name);
    REQUIRE(at != m.tensors.end());
    tensor<float> t(at->extents);
    state_view view;
    view.add(name, t);
    saved_state::of_packs(version, own_packs(m)).load(view);
    return {t.data(), t.data() + t.size()};
}

/// Runs of one workload in folders of their own.
class runs {
public:
    explicit runs(std::string text, bool generated = true) : text_(std::move(text)), generated_(generated) {
        if (generated) return;
        text_.replace(text_.find("TEXT"), 4, (folder_ / "text.txt").string());
        std::ofstream out(folder_ / "text.txt");
        for (int i = 0; i < 4000; ++i) out << static_cast<char>('a' + (i * i + i / 7) % 11);
    }
    /// The directory of a run of so many steps.
    std::filesystem::path train(int ranks, const settings_list& set, std::int64_t steps = 3, session_options o = {}) {
        o.out = folder_ / concat("run", ++number_);
        o.max_steps = steps;
        o.generated = generated_;
        test::train(ranks, o, set, text_);
        return o.out;
    }
    /// Digests of the values that runs begin with: a step of length zero leaves them.
    digests begin() { return digests_of(test::newest_version(train(1, {"optimizer.kind=sgd", "optimizer.lr=0"}, 1))); }
    std::string why(const settings_list& set) {
        return test::message_of([&] { train(1, set, 1); });
    }

private:
    const temporary_folder folder_;
    std::string text_;
    bool generated_;
    int number_ = 0;
};

bool is_frozen(const std::string& path, const std::vector<std::string>& fronts) {
    return std::ranges::any_of(fronts, [&](const std::string& front) { return path.starts_with(front); });
}

/// Frozen parameters are those of `begin`, all others changed, and there is no state of the former.
void check_frozen(const std::filesystem::path& run, const digests& begin, const std::vector<std::string>& fronts) {
    int frozen = 0, changed = 0;
    for (const auto& [name, digest] : digests_of(test::newest_version(run))) {
        if (name.starts_with("model/")) {
            CAPTURE(name);
            const bool stays = is_frozen(name.substr(6), fronts);
            CHECK((digest == begin.at(name)) == stays);
            (stays ? frozen : changed) += 1;
        }
        for (const std::string kind : {"optimizer/", "compression/"})
            if (name.starts_with(kind)) CHECK_FALSE(is_frozen(name.substr(name.find('/', kind.size()) + 1), fronts));
        if (name.starts_with("kfac/")) CHECK_FALSE(is_frozen(name.substr(5), fronts));
    }
    CHECK(frozen > 0);
    CHECK(changed > 0);
}

TEST_CASE("freeze: every optimizer leaves frozen parameters and statistics as they are", "[session]") {
    runs all(resnet);
    const digests begin = all.begin();
    const std::vector<std::string> fronts{"conv1/", "bn1/", "layer1/", "layer3/"};
    const settings_list freeze{"optimizer.freeze=['conv1*', 'bn1*', 'layer1*', 'layer3*']"};
    std::vector<settings_list> ways;
    for (const std::string kind : {"sgd", "adam", "lamb", "lars", "muon", "kfac", "shampoo", "soap"})
        ways.push_back({"optimizer.kind=" + kind});
    ways.push_back({"optimizer.weight_decay=0.1", "optimizer.clip_norm=0.01"});
    ways.push_back({"optimizer.weight_decay=0.1", "optimizer.decay_all=true", "train.activation_memory=recompute"});
    ways.push_back({"train.precision=bf16"});
    for (const settings_list& set : ways) {
        CAPTURE(set);
        const auto run = all.train(1, set + freeze);
        check_frozen(run, begin, fronts);
        const auto version = test::newest_version(run);
        for (const std::string path : {"bn1/", "layer1/0/bn1/", "layer1/0/bn2/", "layer3/0/bn1/"}) {
            for (const float mean : values_of(version, "buffers/" + path + "running_mean")) CHECK(mean == 0);
            for (const float var : values_of(version, "buffers/" + path + "running_var")) CHECK(var == 1);
        }
        CHECK(values_of(version, "buffers/layer2/0/bn1/running_mean").front() != 0);
    }
    CHECK_THAT(all.why({"optimizer.freeze=['stem*']"}),
               Catch::Contains("\"stem*\" matches no parameter") && Catch::Contains("layer1/0/conv1/weight"));
    CHECK_THAT(all.why({"optimizer.freeze=['*']"}), Catch::Contains("nothing is left to train"));
}

TEST_CASE("freeze: on meshes, with shared states and compressed gradients", "[session]") {
    runs all(resnet);
    const digests begin = all.begin();
    const settings_list freeze{"optimizer.freeze=['conv1*', 'bn1*', 'layer1*']"};
    const std::vector<std::pair<int, settings_list>> meshes{
        {2, {"parallel.sync_batch_norm=true"}},
        {2, {"optimizer.kind=adam", "parallel.zero_stage=1"}},
        {3, {"optimizer.kind=adam", "parallel.zero_stage=2"}},
        {2, {"optimizer.kind=kfac"}},
        {2, {"compress.kind=topk", "compress.ratio=0.1"}},
        {2, {"compress.kind=powersgd"}},
        {4, {"optimizer.kind=lamb", "parallel.pipeline=2", "parallel.data=2"}}};
    for (const auto& [ranks, set] : meshes) {
        CAPTURE(ranks, set);
        check_frozen(all.train(ranks, set + freeze), begin, {"conv1/", "bn1/", "layer1/"});
    }
}

TEST_CASE("freeze: ranks train the others as one does, a frozen table that the last layer uses too", "[session]") {
    runs all(transformer, false);
    const digests begin = all.begin();
    for (const std::vector<std::string>& fronts : {std::vector<std::string>{"tokens/", "positions/"},
                                                   std::vector<std::string>{"block1/attention/", "block2/"}}) {
        std::string list;
        for (const std::string& front : fronts) list += concat(list.empty() ? "" : ", ", '\'', front, "*'");
        const settings_list freeze{"optimizer.freeze=[" + list + "]", "optimizer.clip_norm=0.5"};
        const std::vector<double> one = test::losses(all.train(1, freeze, 5));
        REQUIRE(one.size() == 5);
        const std::vector<std::pair<int, settings_list>> meshes{{2, {}},
                                                                {2, {"parallel.zero_stage=2"}},
                                                                {2, {"parallel.pipeline=2"}},
                                                                {3, {"parallel.pipeline=3"}},
                                                                {2, {"parallel.tensor=2"}},
                                                                {4, {"parallel.tensor=2", "parallel.pipeline=2"}}};
        for (const auto& [ranks, set] : meshes) {
            CAPTURE(list, ranks, set);
            const auto run = all.train(ranks, freeze + set, 5);
            check_frozen(run, begin, fronts);
            const std::vector<double> several = test::losses(run);
            REQUIRE(several.size() == one.size());
            for (std::size_t i = 0; i < one.size(); ++i) CHECK(std::abs(several[i] - one[i]) < 1e-5 * one[i]);
        }
    }
}

TEST_CASE("freeze: a further version has only what is trained", "[session]") {
    runs all(resnet);
    const auto run = all.train(1,
                               {"optimizer.freeze=['layer2*', 'layer3*']", "state.every='4 steps'",
                                "state.keep=['last 9']", "optimizer.kind=adam"},
                               24);
    const std::vector<stored_version> versions = list_versions(run / "states");
    REQUIRE(versions.size() >= 3);
    const auto own = [](const stored_version& v) { return std::filesystem::file_size(v.directory / "rank-0000.pack"); };
    std::uintmax_t frozen = 0;
    for (const auto& t : read_manifest(versions[0].directory).tensors)
        if (t.name.starts_with("model/layer") && !t.name.starts_with("model/layer1") && t.extents.size() * 4 >= 4096)
            frozen += static_cast<std::uintmax_t>(t.extents.size()) * 4;
    for (std::size_t i = 0; i + 1 < versions.size(); ++i) {
        CHECK(own(versions[i]) + frozen <= own(versions.back()) + 4096);
        CHECK(verify_version(versions[i].directory, true).tensors.size() > 0);
    }
}

TEST_CASE("freeze: a branch with other patterns", "[session]") {
    runs all(resnet);
    const auto from = test::newest_version(
        all.train(2, {"optimizer.kind=adam", "optimizer.freeze=['conv1*', 'bn1*', 'layer1*']"}, 4));
    const digests before = digests_of(from);
    for (const int ranks : {1, 2}) {
        const auto run = all.train(ranks, {"optimizer.kind=adam", "optimizer.freeze=['layer3*']"}, 6, {.from = from});
        check_frozen(run, before, {"layer3/"});  // thawed layers move, others are frozen now
        const digests after = digests_of(test::newest_version(run));
        CHECK(after.contains("optimizer/m/conv1/weight"));
        CHECK_FALSE(after.contains("optimizer/m/layer3/0/conv1/weight"));
    }
    // Of a field that is nowhere, nothing is assumed.
    CHECK_THAT(test::message_of([&] { all.train(1, {"optimizer.kind=sgd"}, 6, {.from = from}); }),
               Catch::Contains("saved by another model or set-up"));
}

}  // namespace cairn::freeze_test
