// Runs whose layers are shared by ranks, or recomputed, on another device (the emulated GPU): losses, tests and memory
// of the host.

#include "catch.hpp"
#include "train/device_runs.hpp"

#include <cairn/comm/collectives/barrier.hpp>

#include <map>

namespace cairn {

using namespace device_runs;

namespace {

constexpr memory_category lasting[] = {memory_category::parameters, memory_category::gradients,
                                       memory_category::optimizer};

struct mesh_figures {
    std::vector<double> losses;
    std::map<std::string, double> tests;
    std::vector<index_t> bytes;  // of parameters, gradients and the optimizer, of all ranks together
    index_t saved = 0;           // peak of one rank alone
};

/// A run on ranks that are threads.
template <Device D, class T = float>
mesh_figures mesh_run(int count, const std::string& workload, std::vector<const char*> more, int steps = 3) {
    autotune_cache::global().set_policy(autotune_policy::first);
    const folder dir;
    session_options options{.out = dir.path / D::name, .resume = {}, .max_steps = steps, .generated = true};
    mesh_figures figures;
    std::map<memory_category, index_t> before, live;
    if constexpr (!std::same_as<D, cpu>)
        for (const auto use : lasting) before[use] = D::memory().use_of(use).live;
    run_ranks(count, {.kernel_threads = 1, .time_limit = 60}, [&](threads_communicator& c) {
        std::optional<any_communicator> device_channel;
        if constexpr (!std::same_as<D, cpu>)
            if (count > 1) device_channel = staged_communicator<D, threads_communicator>(c.split(0, c.rank()));
        session<D, T> s(settings_of(workload, more), options, c.split(0, c.rank()), std::move(device_channel));
        D::memory().reset_peaks();
        const nlohmann::json line = s.train();
        barrier(c);
        if (c.rank() == 0) {
            for (const auto& [name, value] : line.items())
                if (name.starts_with("test_")) figures.tests[name] = value.template get<double>();
            figures.saved = D::memory().use_of(memory_category::saved).peak;
        }
        static std::mutex mutex;
        if (const std::scoped_lock lock(mutex); std::same_as<D, cpu> || c.rank() == 0)
            for (const auto use : lasting) live[use] += D::memory().use_of(use).live;
        barrier(c);
    });
    for (const auto use : lasting) figures.bytes.push_back(live[use] - before[use]);
    figures.losses = losses_of(options);
    return figures;
}

void check_as_on_host(int count, const std::string& workload, const std::vector<const char*>& more,
                      double tolerance = 1e-4) {
    CAPTURE(count, workload, more);
    const mesh_figures host = mesh_run<cpu>(count, workload, more),
                       there = mesh_run<emulated_gpu>(count, workload, more);
    REQUIRE(host.losses.size() == 3);
    REQUIRE(there.losses.size() == 3);
    for (std::size_t i = 0; i < 3; ++i) CHECK(there.losses[i] == Approx(host.losses[i]).epsilon(tolerance));
    CHECK(there.tests.size() == host.tests.size());
    for (const auto& [name, value] : host.tests)
        CHECK(there.tests.at(name) == Approx(value).epsilon(tolerance).margin(tolerance));
    for (std::size_t use = 0; use < 2; ++use) CHECK(there.bytes[use] == host.bytes[use]);
    CHECK(there.bytes[2] >= host.bytes[2]);
    CHECK(there.bytes[2] <= host.bytes[2] + count * 1024);  // numbers that the host has in registers
}

const std::string sentences = workloads[3], volumes = workloads[2];
const std::string images =
    "[data]\nformat = 'cifar10'\n[model]\nkind = 'resnet-cifar'\ndepth = 8\n[optimizer]\nlr = 0.05\n";

}  // namespace

TEST_CASE("mesh on another device: recomputation saves what it saves on the host", "[train]") {
    for (const std::size_t w : {0u, 2u, 3u})
        for (const char* plan : {"train.activation_memory=recompute", "train.activation_memory=recompute_smallest"}) {
            CAPTURE(workloads[w], plan);
            check_as_on_host(1, workloads[w], {plan});
            const index_t kept = mesh_run<emulated_gpu>(1, workloads[w], {}).saved,
                          planned = mesh_run<emulated_gpu>(1, workloads[w], {plan}).saved;
            CHECK(planned == mesh_run<cpu>(1, workloads[w], {plan}).saved);
            CHECK(planned <= kept);
        }
}

TEST_CASE("mesh on another device: pipelines", "[train]") {
    for (const std::size_t w : {0u, 2u, 3u}) check_as_on_host(2, workloads[w], {"parallel.pipeline=2"});
    check_as_on_host(2, sentences, {"parallel.pipeline=2", "model.tied_embedding=true", "train.test_every=1"});
    check_as_on_host(
        2, sentences,
        {"parallel.pipeline=2", "parallel.virtual_stages=2", "parallel.schedule=interleaved", "model.blocks=4"});
    check_as_on_host(4, sentences, {"parallel.pipeline=2", "parallel.data=2", "train.activation_memory=recompute"});
    check_as_on_host(3, images, {"parallel.pipeline=3"}, 1e-3);  // stages that begin inside a residual block
}

TEST_CASE("mesh on another device: stages pack what waits as one device does", "[train]") {
    for (const std::string& workload : {sentences, images})
        for (const char* codec : {"activations.codec=bounded", "activations.codec=group"}) {
            CAPTURE(workload, codec);
            const std::vector<const char*> packed{"train.activation_memory=compress", "activations.coder=planes",
                                                  "activations.audit_interval=2", "train.micro_batches=2", codec};
            const auto staged = [&](std::vector<const char*> more, const char* stages) {
                more.push_back(stages);
                return more;
            };
            const auto alone = mesh_run<emulated_gpu>(1, workload, packed),
                       two = mesh_run<emulated_gpu>(2, workload, staged(packed, "parallel.pipeline=2"));
            REQUIRE(two.losses.size() == 3);
            CHECK(two.losses == alone.losses);
            CHECK(two.saved <
                  mesh_run<emulated_gpu>(2, workload, {"train.micro_batches=2", "parallel.pipeline=2"}).saved);
            check_as_on_host(2, workload, staged(packed, "parallel.pipeline=2"), 5e-3);  // a symbol in many is the next
        }
}

TEST_CASE("mesh on another device: K-FAC's clip, norm and quadratic model are of all stages", "[train]") {
    const auto with = [](std::vector<const char*> more) {
        more.insert(more.end(), {"optimizer.kind=kfac", "optimizer.lr=1e-2", "kfac.damping=1e-2",
                                 "kfac.factor_update_interval=1", "kfac.inverse_update_interval=2"});
        return more;
    };
    const char* const stages = "parallel.pipeline=2";
    for (const std::vector<const char*>& how : std::vector<std::vector<const char*>>{
             {"kfac.step_size=clip", "kfac.kl_clip=1e-6"},
             {"kfac.step_size=clip", "kfac.kl_clip=0", "kfac.norm_limit=1e-3", "kfac.form=inverse",
              "kfac.inverse_staleness=1"},
             {"kfac.step_size=quadratic_model", "train.micro_batches=1", "kfac.damping_interval=2"}}) {
        std::vector<const char*> cut = with(how);
        const std::vector<double> whole = mesh_run<emulated_gpu>(1, volumes, cut).losses;
        cut.push_back(stages);
        check_as_on_host(2, volumes, cut, 1e-3);
        const std::vector<double> got = mesh_run<emulated_gpu>(2, volumes, cut).losses;
        REQUIRE(got.size() == whole.size());
        for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i] == Approx(whole[i]).epsilon(1e-6));
    }
    check_as_on_host(4, volumes,
                     with({stages, "parallel.data=2", "model.normalise=false", "kfac.statistics=sharded",
                           "kfac.step_size=clip", "kfac.kl_clip=1e-6"}),
                     1e-3);
}

TEST_CASE("mesh on another device: layers whose tensors are cut", "[train]") {
    check_as_on_host(2, sentences, {"parallel.tensor=2", "train.test_every=1"});
    check_as_on_host(2, sentences,
                     {"parallel.tensor=2", "parallel.sequence_parallel=true", "model.tied_embedding=true"});
    check_as_on_host(2, volumes, {"parallel.tensor=2"});
    check_as_on_host(2, images, {"parallel.tensor=2"}, 1e-3);
}

TEST_CASE("mesh on another device: volumes that are cut in space", "[train]") {
    check_as_on_host(2, volumes, {"parallel.spatial=[2, 1, 1]", "train.test_every=1"});
    check_as_on_host(4, volumes, {"parallel.spatial=[1, 2, 2]"});
    check_as_on_host(4, volumes, {"parallel.spatial=[1, 1, 2]", "parallel.tensor=2", "model.normalise=false"});
}

TEST_CASE("mesh on another device: a transformer on data 2 x pipeline 2 x tensor 2", "[train]") {
    const std::vector<const char*> mesh{"parallel.data=2", "parallel.pipeline=2", "parallel.tensor=2"};
    check_as_on_host(8, sentences, mesh);
    std::vector<const char*> all = mesh;
    all.insert(all.end(), {"parallel.sequence_parallel=true", "parallel.zero_stage=1", "optimizer.kind=adamw",
                           "optimizer.lr=1e-3", "optimizer.clip_norm=0.5", "train.activation_memory=recompute"});
    check_as_on_host(8, sentences, all, 1e-3);
}

TEST_CASE("mesh on another device: what needs the host is refused", "[train]") {
    for (const char* axis : {"parallel.pipeline=2", "parallel.tensor=2"})
        CHECK(test::contains(test::message_of([&] {
                                 mesh_run<emulated_gpu>(2, sentences, {axis, "train.cuda_graph=on"});
                             }),
                             "train.cuda_graph = on records steps of ranks with whole layers"));
    CHECK(test::contains(test::message_of([&] {
                             mesh_run<emulated_gpu>(2, volumes, {"parallel.spatial=[2, 1, 1]", "train.cuda_graph=on"});
                         }),
                         "train.cuda_graph = on records steps of ranks with whole layers"));
    for (const char* algorithm : {"train.algorithm=dladmm", "train.algorithm=pdadmm"})
        CHECK(test::contains(test::message_of([&] { mesh_run<emulated_gpu>(1, workloads[0], {algorithm}); }),
                             "is for train.device = cpu and train.precision = float32"));
}

}  // namespace cairn
