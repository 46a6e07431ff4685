// Runs whose layers are shared by ranks: losses and tests of one rank on every mesh, and states that any mesh reads.

#include "catch.hpp"
#include "train/thread_runs.hpp"

namespace mesh_sessions {

using namespace cairn;
using test::losses;
using test::settings_list;
using test::train;
using test::why;

namespace {

const std::string volumes =
    "[data]\nformat = 'cosmology'\ncosmology.size = 8\ncosmology.volumes = 24\ncosmology.test_volumes = "
    "7\n[model]\nkind = 'cosmoflow'\nfilters = "
    "2\nblocks = 2\nnormalise = true\ndropout = 0.2\n[optimizer]\nkind = 'sgd'\nlr = 1e-2\nclip_norm = 0.3\n"
    "[train]\nbatch = 8\nepochs = 2\nlog_every = 1\nmicro_batches = 2\n";

/// Characters of a small alphabet, in an order that can be learnt.
std::string text_file(const temporary_folder& folder) {
    const std::filesystem::path path = folder / "text.txt";
    std::ofstream out(path);
    for (int i = 0; i < 4000; ++i) out << static_cast<char>('a' + (i * i + i / 7) % 11);
    return path.string();
}

std::string sentences(const temporary_folder& folder) {
    return "[data]\nformat = 'text'\npath = '" + text_file(folder) +
           "'\ntext.length = 12\n[model]\nkind = 'transformer'\nembedding_dim = 12\nheads = 3\nblocks = 2\ndropout = "
           "0.1\nattention_dropout = 0.1\n[optimizer]\nkind = 'sgd'\nlr = 1e-1\nclip_norm = 0.5\n[loss]\n"
           "label_smoothing = 0.1\n[train]\nbatch = 32\nepochs = 1\nlog_every = 1\nmicro_batches = 2\n";
}

const std::string images =
    "[data]\nformat = 'cifar10'\n[model]\nkind = 'resnet-cifar'\ndepth = 8\n[optimizer]\nlr = 0.05\n[train]\n"
    "batch = 12\nlog_every = 1\nmicro_batches = 2\n";

struct mesh {
    int ranks;
    settings_list set;
};

/// Each mesh has the losses and the test of one rank. `generated`: on random samples.
void check_meshes(const std::string& text, const std::vector<mesh>& meshes, std::int64_t steps, double tolerance,
                  const settings_list& common = {}, bool generated = false) {
    const temporary_folder folder;
    const auto one =
        train(1, {.out = folder / "one", .resume = {}, .max_steps = steps, .generated = generated}, common, text);
    const std::vector<double> expected = losses(folder / "one");
    REQUIRE(static_cast<std::int64_t>(expected.size()) == steps);
    int number = 0;
    for (const mesh& m : meshes) {
        settings_list set = m.set;
        set.insert(set.end(), common.begin(), common.end());
        CAPTURE(m.ranks, m.set);
        const std::filesystem::path out = folder / concat("mesh", ++number);
        const auto got =
            train(m.ranks, {.out = out, .resume = {}, .max_steps = steps, .generated = generated}, set, text);
        const std::vector<double> mine = losses(out);
        REQUIRE(mine.size() == expected.size());
        for (std::size_t i = 0; i < mine.size(); ++i) CHECK(mine[i] == Approx(expected[i]).epsilon(tolerance));
        for (const auto& [name, value] : one.items())
            if (name.starts_with("test_"))
                CHECK(got[name].get<double>() == Approx(value.get<double>()).epsilon(tolerance).margin(tolerance));
    }
}

}  // namespace

TEST_CASE("mesh session: a transformer whose tensors are cut has the losses of one rank", "[session]") {
    const temporary_folder folder;
    check_meshes(sentences(folder),
                 {{2, {"parallel.tensor=2"}},
                  {3, {"parallel.tensor=3", "parallel.sequence_parallel=true"}},
                  {4, {"parallel.tensor=2", "parallel.data=2"}},
                  {4, {"parallel.tensor=2", "parallel.pipeline=2", "parallel.sequence_parallel=true"}},
                  {8, {"parallel.tensor=2", "parallel.pipeline=2", "parallel.data=2"}}},
                 6, 1e-4);
    check_meshes(sentences(folder), {{2, {"parallel.tensor=2"}}, {4, {"parallel.tensor=2", "parallel.pipeline=2"}}}, 6,
                 1e-4, {"model.tied_embedding=true"});
}

TEST_CASE("mesh session: volumes that are cut in space have the losses of one rank", "[session]") {
    check_meshes(volumes,
                 {{2, {"parallel.spatial=[2, 1, 1]"}},
                  {4, {"parallel.spatial=[1, 2, 2]"}},
                  {4, {"parallel.spatial=[1, 1, 2]", "parallel.pipeline=2"}}},
                 6, 1e-3);
    check_meshes(volumes,
                 {{4, {"parallel.spatial=[2, 1, 1]", "parallel.data=2"}},
                  {8, {"parallel.spatial=[1, 2, 1]", "parallel.data=2", "parallel.pipeline=2"}},
                  {8, {"parallel.spatial=[2, 1, 1]", "parallel.tensor=2", "parallel.data=2"}},
                  {8, {"parallel.spatial=[2, 1, 1]", "parallel.tensor=2", "parallel.pipeline=2"}}},
                 6, 1e-3, {"model.normalise=false"});
}

TEST_CASE("mesh session: convolutions by output channels have the losses of one rank", "[session]") {
    check_meshes(volumes, {{2, {"parallel.tensor=2"}}}, 6, 1e-3);
    check_meshes(images, {{2, {"parallel.tensor=2"}}, {4, {"parallel.tensor=2", "parallel.pipeline=2"}}}, 4, 1e-3, {},
                 true);
}

TEST_CASE("mesh session: optimizers that need norms, shared state and compression on a mesh", "[session]") {
    const temporary_folder folder;
    const std::string text = sentences(folder);
    const settings_list grid{"parallel.data=2", "parallel.pipeline=2", "parallel.tensor=2"};
    const auto on_grid = [&](settings_list more) {
        more.insert(more.end(), grid.begin(), grid.end());
        return std::vector<mesh>{{8, more}};
    };
    check_meshes(text, on_grid({"parallel.zero_stage=1"}), 4, 1e-3, {"optimizer.kind=adam", "optimizer.lr=1e-3"});
    check_meshes(text, on_grid({}), 4, 1e-3, {"optimizer.kind=lamb", "optimizer.lr=1e-2"});
    check_meshes(text, on_grid({"parallel.zero_stage=2"}), 4, 1e-3, {"optimizer.kind=lars", "optimizer.lr=1"});
    check_meshes(text, on_grid({"compress.kind=bf16"}), 4, 2e-2);
}

TEST_CASE("mesh session: a state of one mesh goes on at another", "[session]") {
    const temporary_folder folder;
    const std::string text = sentences(folder);
    const settings_list adam{"optimizer.kind=adam", "optimizer.lr=1e-3"};
    const auto with = [&](settings_list more) {
        more.insert(more.end(), adam.begin(), adam.end());
        return more;
    };
    train(1, {.out = folder / "whole", .resume = {}, .max_steps = 10}, adam, text);
    const std::vector<double> expected = losses(folder / "whole");
    const std::filesystem::path run = folder / "there";
    train(4, {.out = run, .resume = {}, .max_steps = 2},
          with({"parallel.pipeline=2", "parallel.data=2", "parallel.zero_stage=1"}), text);
    const auto go_on = [&](int ranks, std::int64_t steps, const settings_list& set) {
        settings_list all{"parallel.pipeline=1", "parallel.data=0", "parallel.zero_stage=0"};
        all.insert(all.end(), set.begin(), set.end());
        train(ranks, {.out = {}, .resume = run, .max_steps = steps}, all, text);
    };
    go_on(2, 4, {"parallel.tensor=2"});
    go_on(4, 6, {"parallel.tensor=2", "parallel.pipeline=2"});
    go_on(6, 8, {"parallel.tensor=3", "parallel.data=2", "parallel.zero_stage=1"});
    go_on(1, 10, {"parallel.tensor=1"});
    const std::vector<double> got = losses(run);
    REQUIRE(got.size() == expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i] == Approx(expected[i]).epsilon(1e-3));
    const std::string why = test::message_of([&] { go_on(2, 10, {"parallel.tensor=2", "train.batch=16"}); });
    CAPTURE(why);
    CHECK(test::contains(why, "saved with 299 training samples, train.batch = 32, 10 batches an epoch"));
}

TEST_CASE("mesh session: what does not fit is refused with what to do", "[session]") {
    const temporary_folder folder;
    const std::string text = sentences(folder);
    const auto refused = [](const std::string& message, const char* part) {
        CAPTURE(message);
        CHECK(test::contains(message, part));
    };
    refused(why(2, {"parallel.tensor=2", "model.kind=mlp"}, volumes), "no layer whose tensors are cut");
    refused(why(2, {"parallel.spatial=[2, 1, 1]", "model.kind=mlp"}, volumes), "is not made for samples that are cut");
    refused(why(2, {"parallel.spatial=[2, 1]"}, volumes), "give one number for each");
    refused(why(2, {"parallel.spatial=[2, 1, 1, 1]"}, volumes), "one for each spatial axis");
    refused(why(8, {"parallel.spatial=[8, 1, 1]"}, volumes), "axis depth");
    refused(why(2, {"parallel.sequence_parallel=true"}, text), "there is no tensor axis");
    refused(why(4, {"parallel.tensor=4"}, text), "heads: 3 cannot be cut over 4 ranks");
    refused(why(2, {"parallel.tensor=2", "optimizer.kind=kfac"}, text), "needs whole layers on every rank");
    refused(why(3, {"parallel.tensor=2"}, text), "does not divide the number of ranks, 3");
    refused(why(2, {"parallel.tensor=2", "optimizer.lr=1e30", "optimizer.clip_norm=0"}, text, 4), "step ");
}

namespace {

/// The data of one node: samples, the last of which has the label `last`; the first cannot be read.
struct copy_of_node {
    index_t samples = 0;
    std::int32_t last = 0;
    index_t size() const { return samples; }
    shape sample_shape() const { return {4}; }
    target_info targets() const { return {target_kind::classes, {"a", "b"}, {}, {}}; }
    std::string sample_name(index_t i) const { return concat("sample ", i); }
    bool read(index_t i, augment_key, sample_slot slot) const {
        require(i != 0, "sample 0 cannot be read");
        std::fill_n(slot.x, 4, static_cast<float>(i));
        *slot.label = i == samples - 1 ? last : 0;
        return true;
    }
};
thread_local copy_of_node train_here, test_here;  // of the rank that is this thread

struct node_format {
    static constexpr const char* name = "test-copy-of-node";
    template <class Table>
    void read(Table&) {}
    data_parts without_files(std::uint64_t) const { return load(); }
    data_parts load() const { return make_data_parts(train_here, test_here); }
};
const register_data_format<node_format> node_is_known;

}  // namespace

TEST_CASE("mesh session: ranks whose copies of the data differ are refused", "[session]") {
    using copies = std::array<copy_of_node, 2>;
    const auto message = [](const copies& training, const copies& testing) {
        return test::message_of([&] {
            run_ranks(2, {.kernel_threads = 1, .time_limit = 30}, [&](threads_communicator& c) {
                train_here = training[static_cast<std::size_t>(c.rank())];
                test_here = testing[static_cast<std::size_t>(c.rank())];
                session<>(
                    configuration::from_text("[data]\nformat = 'test-copy-of-node'\n[model]\nkind = 'mlp'\nhidden = "
                                             "[4]\n[train]\nbatch = 10\n"),
                    {.out = {}, .resume = {}, .max_steps = 1}, any_communicator(c.split(0, c.rank())));
            });
        });
    };
    const copy_of_node all{200, 1}, fewer{199, 1}, other{200, 0}, few{2, 1};
    CHECK(message({all, all}, {few, few}).empty());
    const std::string sizes = message({all, fewer}, {few, few});
    CAPTURE(sizes);
    CHECK(test::contains(sizes, "rank 0 200 training and 2 test samples of (4), 2 targets"));
    CHECK(test::contains(sizes, "rank 1 199 training and 2 test samples"));
    CHECK(test::contains(sizes, "Give every rank the same files"));
    CHECK(test::contains(message({all, all}, {all, fewer}), "rank 1 200 training and 199 test samples"));
    CHECK(test::contains(message({all, other}, {few, few}), "ranks have different data"));
    CHECK(test::contains(message({all, all}, {all, other}), "ranks have different data"));
}

}  // namespace mesh_sessions
