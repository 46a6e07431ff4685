// Whole runs whose layers compute in bfloat16 on the host: beside float32, stopped and gone on, on ranks.

#include "catch.hpp"
#include "train/thread_runs.hpp"

#include <map>

namespace bfloat16_sessions {

using namespace cairn;
using test::losses;
using test::settings_list;
using test::train;
using test::why;

namespace {

const std::string volumes =
    "[data]\nformat = 'cosmology'\ncosmology.size = 8\ncosmology.volumes = 24\ncosmology.test_volumes = "
    "7\n[model]\nkind = 'cosmoflow'\nfilters = 4\n"
    "blocks = 2\nnormalise = true\ndropout = 0.2\n[optimizer]\nkind = 'sgd'\nlr = 1e-2\nclip_norm = 0.3\n[train]\n"
    "batch = 8\nepochs = 2\nlog_every = 1\nmicro_batches = 2\n";
const std::string images =
    "[data]\nformat = 'cifar10'\n[model]\nkind = 'resnet-cifar'\ndepth = 8\n[optimizer]\nlr = 0.05\n[train]\nbatch = "
    "12\n"
    "log_every = 1\nmicro_batches = 2\n";
const std::string text =
    "[data]\nformat = 'text'\ntext.length = 12\n[model]\nkind = 'transformer'\nembedding_dim = 12\nheads = 3\nblocks = "
    "2\n"
    "dropout = 0.1\n[optimizer]\nkind = 'sgd'\nlr = 1e-1\n[train]\nbatch = 8\nlog_every = 1\nmicro_batches = 2\n";

const std::string bf16 = "train.precision=bf16";

struct float_alone_entry {
    static constexpr const char* name = "test-float-alone";
    template <class T, Device D>
    static sequential<T, D> make(configuration&, const model_ends&) {
        return {};
    }
};
const register_model<float_alone_entry, target<cpu, float>> float_alone_is_known;

/// Losses of a run on random samples.
std::vector<double> run(const std::filesystem::path& out, int ranks, const settings_list& set,
                        const std::string& workload, std::int64_t steps = 4) {
    train(ranks, {.out = out, .resume = {}, .max_steps = steps, .generated = true}, set, workload);
    return losses(out);
}

void check_near(const std::vector<double>& a, const std::vector<double>& b, double tolerance) {
    REQUIRE(a.size() == b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
        CAPTURE(i, a[i], b[i]);
        CHECK(std::abs(a[i] - b[i]) <= tolerance * (1 + std::abs(b[i])));
    }
}

}  // namespace

TEST_CASE("session: layers in bfloat16 train beside those in float, and their bits repeat", "[session]") {
    for (const std::string& workload : {volumes, images, text}) {
        CAPTURE(workload);
        const temporary_folder folder;
        const auto wide = run(folder / "wide", 1, {}, workload), narrow = run(folder / "narrow", 1, {bf16}, workload),
                   again = run(folder / "again", 1, {bf16}, workload);
        CHECK(narrow == again);
        CHECK(narrow != wide);  // it does round
        check_near(narrow, wide, 0.03);
        CHECK(run(folder / "recompute", 1, {bf16, "train.activation_memory=recompute"}, workload) == narrow);
    }
}

TEST_CASE("session: a run in either precision goes on with the state of the other", "[session]") {
    const temporary_folder folder;
    const auto go_on = [&](const char* name, const std::string& first, const std::string& then) {
        const session_options begin{.out = folder / name, .resume = {}, .max_steps = 2, .generated = true},
            rest{.out = {}, .resume = folder / name, .max_steps = 4, .generated = true};
        train(1, begin, {first}, images);
        train(1, rest, {then}, images);
        return losses(folder / name);
    };
    const std::string float32 = "train.precision=float32";
    const auto wide = run(folder / "wide", 1, {}, images), narrow = run(folder / "narrow", 1, {bf16}, images);
    CHECK(go_on("stopped", bf16, bf16) == narrow);
    check_near(go_on("widened", bf16, float32), wide, 0.03);
    check_near(go_on("narrowed", float32, bf16), narrow, 0.03);
}

TEST_CASE("session: ranks, meshes, shards and K-FAC in bfloat16", "[session]") {
    struct way {
        int ranks;
        const std::string& workload;
        settings_list set;
    };
    std::map<std::pair<std::string, settings_list>, std::vector<double>> alone;  // of one rank
    for (const way& w :
         std::vector<way>{{2, images, {}},
                          {2, images, {"parallel.zero_stage=1"}},
                          {2, images, {"compress.kind=bf16"}},
                          {2, images, {"parallel.pipeline=2"}},
                          {2, images, {"parallel.tensor=2"}},
                          {2, text, {"parallel.tensor=2", "parallel.sequence_parallel=true"}},
                          {2, text, {"parallel.pipeline=2"}},
                          {2, volumes, {"parallel.spatial=[2, 1, 1]"}},
                          {2, images, {"optimizer.kind=kfac", "optimizer.lr=1e-3", "kfac.norm_layers=true"}}}) {
        CAPTURE(w.ranks, w.workload, w.set);
        const temporary_folder folder;
        settings_list set = w.set;
        set.push_back(bf16);
        const auto some = run(folder / "ranks", w.ranks, set, w.workload, 3);
        CHECK(some == run(folder / "again", w.ranks, set, w.workload, 3));
        settings_list one{bf16};
        for (const std::string& s : w.set)
            if (s.starts_with("optimizer.") || s.starts_with("kfac.")) one.push_back(s);
        std::vector<double>& of_one = alone[{w.workload, one}];
        if (of_one.empty()) of_one = run(folder / "one", 1, one, w.workload, 3);
        check_near(some, of_one, 0.05);
    }
}

TEST_CASE("session: what bfloat16 on the host cannot do is refused with a word of what can", "[session]") {
    CHECK(test::contains(why(1, {bf16, "train.activation_memory=compress"}, volumes), "take keep, recompute"));
    CHECK(test::contains(why(1, {bf16, "train.algorithm=dladmm"}, volumes), "train.precision = float32"));
    CHECK(test::contains(why(1, {bf16, "model.kind=test-float-alone"}, volumes), "test-float-alone is entered for"));
}

}  // namespace bfloat16_sessions
