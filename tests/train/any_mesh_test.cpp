// Any mesh reads what any other has saved: what its ranks hold then has the digests of the version, tensor by tensor.

#include "catch.hpp"
#include "train/saved_states.hpp"
#include "train/thread_runs.hpp"

#include <cairn/state/pack.hpp>
#include <cairn/train/read_versions.hpp>
#include <cairn/train/run_parts.hpp>
#include <cairn/train/shared_kernels.hpp>

#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace cairn::any_mesh_test {

using test::settings_list;
using digests = std::map<std::string, std::uint64_t>;

struct mesh_case {
    int ranks;
    settings_list set;
};
struct model_case {
    std::string text;
    std::vector<mesh_case> meshes;
};

const std::vector<mesh_case> replicas{
    {1, {}}, {2, {}}, {2, {"parallel.zero_stage=1"}}, {3, {"parallel.zero_stage=2"}}, {4, {"parallel.zero_stage=1"}}};
const std::vector<mesh_case> no_zero{
    {1, {}}, {2, {}}, {4, {"parallel.pipeline=2", "parallel.data=2"}}, {2, {"parallel.pipeline=2"}}};

std::vector<mesh_case> with(std::vector<mesh_case> meshes, const std::vector<mesh_case>& more) {
    meshes.insert(meshes.end(), more.begin(), more.end());
    return meshes;
}
const mesh_case pipelines{4, {"parallel.pipeline=2", "parallel.data=2", "parallel.zero_stage=1"}},
    tensors{4, {"parallel.tensor=2", "parallel.pipeline=2"}},
    tensors_zero{4, {"parallel.tensor=2", "parallel.data=2", "parallel.zero_stage=1"}},
    volumes_cut{2, {"parallel.spatial=[2, 1, 1]"}};

const std::string
    mlp = "[data]\nformat='mnist'\n[model]\nkind='mlp'\nhidden=[9,7]\n[train]\nbatch=12\nmicro_batches=2\n",
    resnet = "[data]\nformat='cifar10'\n[model]\nkind='resnet-cifar'\ndepth=8\n[train]\nbatch=12\nmicro_batches=2\n",
    transformer =
        "[data]\nformat='text'\npath='TEXT'\ntext.length=8\n[model]\nkind='transformer'\nembedding_dim=12\nheads="
        "2\nblocks=2\n"
        "dropout=0.1\ntied_embedding=true\n[train]\nbatch=12\nmicro_batches=2\n",
    cosmoflow =
        "[data]\nformat='cosmology'\ncosmology.size=8\ncosmology.volumes=24\n[model]\nkind='cosmoflow'\nfilters=2\n"
        "blocks=2\nnormalise=true\n[train]\nbatch=12\nmicro_batches=2\n";

std::vector<model_case> cases() {
    std::vector<model_case> all;
    const auto add = [&](const std::string& text, const std::string& optimizer, std::vector<mesh_case> meshes) {
        all.push_back({text + "test_every=0\n[optimizer]\n" + optimizer, std::move(meshes)});
    };
    const std::string adam = "kind='adam'\n", lamb = "kind='lamb'\n", sgd = "momentum=0.9\n", kfac = "kind='kfac'\n";
    add(mlp, adam, with(replicas, {pipelines}));
    add(resnet, sgd, with(replicas, {pipelines}));
    add(transformer, adam, with(replicas, {pipelines, tensors, tensors_zero}));
    add(transformer, lamb, with(replicas, {pipelines, tensors}));
    add(cosmoflow, adam, with(replicas, {pipelines, volumes_cut}));
    add(resnet, kfac, no_zero);
    add(mlp, "momentum=0.9\n[compress]\nkind='topk'\nratio=0.1\n", {{2, {}}, {3, {}}, {4, {"parallel.pipeline=2"}}});
    return all;
}

/// What is the same on every mesh, of a version.
digests of_version(const std::filesystem::path& version) {
    digests all;
    for (const auto& t : read_manifest(version).tensors)
        if (!t.name.starts_with("machine/") && !t.name.starts_with("buffers/") && !t.name.starts_with("compression/") &&
            !t.name.starts_with("progress/"))
            all[t.name] = t.digest;
    return all;
}

/// The same of what the ranks of a mesh hold after they have read it.
digests after_reading(const std::filesystem::path& version, const mesh_case& to, const std::string& text,
                      bool generated) {
    digests all;
    std::mutex adding;
    run_ranks(to.ranks, {.kernel_threads = 1, .time_limit = 60}, [&](threads_communicator& c) {
        configuration settings = configuration::from_text(text);
        for (const std::string& s : to.set) settings.set(s);
        run_parts<> run(std::move(settings), {.out = {}, .resume = {}, .max_steps = 9, .generated = generated},
                        any_communicator(c.split(0, c.rank())));
        discover_layers(run);
        run_progress progress;
        const std::string failure = version_reader<cpu, float>(run, progress).load(version);
        require(failure.empty(), failure);
        const run_state<cpu, float> state(run, progress, state_use::save);
        pack_layout layout({{1, {1, 1}}, c.rank(), to.ranks}, state.view());
        std::vector<std::byte> image(layout.bytes());
        layout.fill(image.data());
        layout.seal(image.data());
        const std::scoped_lock lock(adding);
        for (const packed_piece& p : layout.pieces())
            if (!p.name.starts_with("machine/") && !p.name.starts_with("buffers/") &&
                !p.name.starts_with("compression/") && !p.name.starts_with("progress/"))
                all[p.name] += p.digest;
    });
    return all;
}

void check_moves(const model_case& of, int every) {
    const temporary_folder folder;
    std::string text = of.text;  // of a text of its own, which is short; else generated
    const bool generated = text.find("TEXT") == std::string::npos;
    if (!generated) text.replace(text.find("TEXT"), 4, (folder / "text.txt").string());
    std::ofstream out(folder / "text.txt");
    for (int i = 0; i < 4000; ++i) out << static_cast<char>('a' + (i * i + i / 7) % 11);
    out.close();
    int number = 0, move = 0;
    for (const mesh_case& from : of.meshes) {
        const auto run = folder / concat("run", ++number);
        std::filesystem::path version;
        digests expected;
        for (const mesh_case& to : of.meshes) {
            if (move++ % every) continue;
            if (version.empty()) {
                test::train(from.ranks, {.out = run, .resume = {}, .max_steps = 2, .generated = generated}, from.set,
                            text);
                version = test::newest_version(run);
                expected = of_version(version);
            }
            CAPTURE(of.text, from.ranks, from.set, to.ranks, to.set);
            CHECK(after_reading(version, to, text, generated) == expected);
        }
    }
}

TEST_CASE("any mesh reads what any other has saved", "[session]") {
    for (const model_case& of : cases()) check_moves(of, 13);
}
TEST_CASE("any mesh reads what any other has saved, all pairs", "[.exhaustive]") {
    for (const model_case& of : cases()) check_moves(of, 1);
}

}  // namespace cairn::any_mesh_test
