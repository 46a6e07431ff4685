// Phantom ranks hold and do what real ranks do: bytes by category, operations, bytes of traffic, for whole training
// steps of workloads that ship. Their range has no rights here: a kernel that touched an element would end the program.

#include "catch.hpp"
#include "train/compiled_session.hpp"

#include <cairn/comm/threads.hpp>
#include <cairn/core/phantom_rank.hpp>

#include <string>
#include <vector>

namespace {

using namespace cairn;

struct phantom_case {
    const char* workload;
    std::vector<std::string> set = {};
    int ranks = 1;
    bool narrow = false;  // layers in bfloat16
    bool timing = false;  // messages pass while a rank computes: what a real one holds at once depends on the moment
};

std::string name_of(const phantom_case& c) {
    std::string name = concat(c.workload, c.narrow ? " in bf16" : "", " on ", c.ranks);
    for (const std::string& s : c.set) name += ' ' + s;
    return name;
}

configuration settings_of(const phantom_case& c) {
    configuration s = configuration::from_file(concat("benchmarks/workloads/", c.workload, ".toml"));
    for (const std::string& one : c.set) s.set(one);
    if (c.ranks > 1) s.set("parallel.overlap=false");
    return s;
}

constexpr int steps = 3;

template <class T>
nlohmann::json needs_of(const phantom_case& c, any_communicator world) {
    session<cpu, T> run(settings_of(c), {.out = {}, .resume = {}, .max_steps = steps, .generated = true},
                        std::move(world));
    return run.needs(steps);
}

nlohmann::json needs_of(const phantom_case& c, any_communicator world) {
    return c.narrow ? needs_of<bfloat16>(c, std::move(world)) : needs_of<float>(c, std::move(world));
}

std::vector<nlohmann::json> on_ranks(const phantom_case& c, bool phantom) {
    std::vector<nlohmann::json> all(static_cast<std::size_t>(c.ranks));
    run_ranks(c.ranks, {.kernel_threads = 1, .time_limit = 60}, [&](threads_communicator& world) {
        const auto rank = static_cast<std::size_t>(world.rank());
        if (!phantom) {
            all[rank] = needs_of(c, world.split(0, world.rank()));
            return;
        }
        counted_machine machine;
        const phantom_rank here(machine);
        all[rank] = needs_of(c, world.split(0, world.rank()));
    });
    return all;
}

std::vector<phantom_case> cases() {
    const std::string small = "train.batch=8";
    return {{"lenet-mnist", {small}},
            {"lenet-mnist", {small, "optimizer.kind=kfac"}},
            {"lenet-mnist", {small, "optimizer.kind=shampoo"}},
            {"lenet-mnist", {small, "optimizer.kind=soap"}},
            {"lenet-mnist", {small, "optimizer.kind=muon"}},
            {"lenet-mnist", {small, "optimizer.kind=lamb"}},
            {"lenet-mnist", {small}, 1, true},
            {"transformer-text", {small}, 1, true},
            {"autoencoder-mnist", {small}},
            {"cosmology-quickstart", {small}},
            {"quijote", {small}},
            {"gcn-cora", {}},
            {"unet-hippocampus", {"train.batch=2"}},
            {"darcy", {small, "model.norm=group", "model.upsample=linear", "model.periodic_axes=[1]"}},
            {"resnet20-cifar", {small}},
            {"transformer-text", {small}},
            {"transformer-text", {small, "optimizer.kind=kfac"}},
            {"transformer-xl-text", {small, "train.micro_batches=2"}, 2},
            {"cosmoflow", {"train.batch=1", "data.cosmology.size=32"}},
            {"lenet-mnist", {small, "train.micro_batches=3"}},
            {"resnet20-cifar", {small, "train.activation_memory=recompute"}},
            {"lenet-mnist", {small}, 3},
            {"lenet-mnist", {small, "parallel.zero_stage=1"}, 2},
            {"lenet-mnist", {small, "parallel.zero_stage=2", "optimizer.kind=lamb"}, 3},
            {"lenet-mnist", {small, "optimizer.kind=kfac"}, 2},
            {"resnet20-cifar", {small, "optimizer.kind=kfac", "kfac.grad_worker_fraction=0.5"}, 4},
            {"lenet-mnist", {small, "compress.kind=bf16"}, 2},
            {"lenet-mnist", {small, "compress.kind=powersgd"}, 2},
            {"lenet-mnist", {small, "compress.kind=qsgd"}, 2},
            {"lenet-mnist", {small, "compress.kind=sign"}, 2},
            {"lenet-mnist", {small, "compress.kind=onebit"}, 2},
            {"lenet-mnist", {small, "compress.kind=randomk"}, 2},
            {"resnet20-cifar", {small, "parallel.sync_batch_norm=true"}, 2},
            {"resnet20-cifar", {small, "parallel.pipeline=2", "train.micro_batches=2"}, 2, false, true},
            {"transformer-text",
             {small, "parallel.pipeline=2", "train.micro_batches=4", "parallel.schedule='zb_h1'"},
             4,
             false,
             true},
            {"transformer-text", {small, "parallel.tensor=2"}, 2, false, true},
            {"transformer-text", {small, "parallel.tensor=2", "parallel.sequence_parallel=true"}, 4, false, true},
            {"cosmology-quickstart", {small, "parallel.spatial=[2,1,1]"}, 2},
            {"cosmology-quickstart", {small, "parallel.spatial=[2,1,1]", "parallel.tensor=2"}, 4, false, true}};
}

}  // namespace

TEST_CASE("a phantom rank holds the bytes of a real one, and counts its work") {
    autotune_cache::global().set_policy(autotune_policy::first);
    phantom_range::reserve(false);
    for (const phantom_case& c : cases()) {
        DYNAMIC_SECTION(name_of(c)) {
            const auto phantom = on_ranks(c, true), real = on_ranks(c, false);
            for (std::size_t r = 0; r < real.size(); ++r) {
                for (const auto& [use, bytes] : real[r].at("memory").items()) {
                    CAPTURE(r, use);
                    if (!c.timing || (use != "communication" && use != "workspace" && use != "activations"))
                        CHECK(phantom[r].at("memory").at(use) == bytes);
                }
                if (c.timing) continue;
                CHECK(phantom[r].at("peak_bytes") == real[r].at("peak_bytes"));
                if (c.ranks > 1) continue;  // the counter of real ranks is one for the process
                CHECK(phantom[r].at("flops").get<double>() == Approx(real[r].at("flops").get<double>()).epsilon(1e-6));
                CHECK(phantom[r].at("bytes").get<double>() ==
                      Approx(real[r].at("bytes").get<double>()).epsilon(1e-6));  // counters are whole
            }
        }
    }
    autotune_cache::global().set_policy(autotune_policy::measure);
}
