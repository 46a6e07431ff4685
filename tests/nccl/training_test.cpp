// Runs whose ranks have a GPU each and add by NCCL are those of the host: networks on the emulated GPU, its streams
// beside the ranks' threads, the emulated NCCL between them.

#define CAIRN_TARGETS cairn::target<cairn::cpu, float>, cairn::target<cairn::streamed_gpu, float>

#include "catch.hpp"
#include "messages.hpp"
#include "nccl/gpu_ranks.hpp"
#include "nccl/streamed_gpu.hpp"
#include "train/compiled_session.hpp"

#include <cairn/device/grid/activation.hpp>
#include <cairn/device/grid/attention.hpp>
#include <cairn/device/grid/batch_norm.hpp>
#include <cairn/device/grid/crop_flip.hpp>
#include <cairn/device/grid/csr.hpp>
#include <cairn/device/grid/curvature.hpp>
#include <cairn/device/grid/dice.hpp>
#include <cairn/device/grid/dropout.hpp>
#include <cairn/device/grid/embedding.hpp>
#include <cairn/device/grid/layer_norm.hpp>
#include <cairn/device/grid/pool.hpp>
#include <cairn/device/grid/reduce.hpp>
#include <cairn/device/grid/relative_attention.hpp>
#include <cairn/device/grid/softmax.hpp>
#include <cairn/device/grid/split_softmax.hpp>

#include <unistd.h>
#include <filesystem>

namespace cairn {

namespace {

struct folder {
    std::filesystem::path path = std::filesystem::temp_directory_path() / concat("cairn_nccl_training_", ::getpid());
    folder() { std::filesystem::create_directories(path); }
    ~folder() { std::filesystem::remove_all(path); }
};

const std::string lenet_run =
    "[data]\nformat = 'mnist'\n[model]\nkind = 'lenet'\n[optimizer]\nkind = 'adam'\nlr = 1e-3\n";
const std::string cosmology_run =
    "[data]\nformat = 'cosmology'\ncosmology.size = 8\n[model]\nkind = 'cosmoflow'\nfilters = 2\nblocks = 1\nnormalise "
    "= true\n"
    "[optimizer]\nlr = 1e-4\n";
const std::string kfac_run =
    "[data]\nformat = 'cosmology'\ncosmology.size = 8\n[model]\nkind = 'cosmoflow'\nfilters = 2\nblocks = 1\n"
    "[optimizer]\nkind = 'kfac'\nlr = 0.01\n[kfac]\ndamping = 0.01\nfactor_update_interval = "
    "1\ninverse_update_interval = 2\n"
    "position_stride = 2\n";

using figures = std::vector<tensor<float>>;

/// The weights after three steps on ranks of D, which must end with the same bits; or the steps' losses.
template <Device D, bool Losses = false>
figures trained(int ranks, const std::string& workload, const std::vector<const char*>& more) {
    const folder dir;
    figures all;
    std::mutex one_at_a_time;
    const auto run = [&](threads_communicator& world, std::optional<any_communicator> device_channel) {
        configuration settings = configuration::from_text(workload);
        for (const char* one :
             {"train.batch=6", "train.micro_batches=1", "train.seed=3", "train.test_every=0", "train.log_every=1"})
            settings.set(one);
        for (const char* one : more) settings.set(one);
        session_options options{.out = dir.path, .resume = {}, .max_steps = 3};
        options.generated = true;
        session<D> s(std::move(settings), options, world.split(0, world.rank()), std::move(device_channel));
        s.train();
        if (Losses) return;
        figures mine;
        for (const auto& [name, p] : s.model().parameters()) mine.push_back(p->value.on_host());
        const std::scoped_lock lock(one_at_a_time);
        if (all.empty())
            all = std::move(mine);
        else
            for (std::size_t i = 0; i < mine.size(); ++i)
                require(std::ranges::equal(mine[i].span(), all[i].span()), "rank ", world.rank(), ": parameter ", i,
                        " has other bits");
    };
    if constexpr (std::same_as<D, cpu>)
        run_ranks(ranks, [&](threads_communicator& world) { run(world, {}); });
    else
        test::run_gpu_ranks(
            ranks, [&](nccl_communicator& c, threads_communicator& world) { run(world, any_communicator(c)); });
    if (Losses) {
        std::ifstream in(dir.path / "metrics.jsonl");
        for (std::string line; std::getline(in, line);)
            if (const auto entry = nlohmann::json::parse(line); entry.contains("loss"))
                all.push_back(tensor<float>::filled({1}, entry["loss"].get<float>()));
        REQUIRE(all.size() == 3);
    }
    return all;
}

double distance(const figures& a, const figures& b) {
    REQUIRE(a.size() == b.size());
    double most = 0;
    for (std::size_t i = 0; i < a.size(); ++i)
        for (index_t k = 0; k < a[i].size(); ++k)
            most = std::max(most, static_cast<double>(std::abs(a[i][k] - b[i][k])));
    return most;
}

template <bool Losses = false>
double from_the_host(int ranks, const std::string& workload, const std::vector<const char*>& more = {}) {
    CAPTURE(ranks, workload, more);
    const figures device = trained<streamed_gpu, Losses>(ranks, workload, more);
    CHECK(emulated::failure() == "");
    return distance(device, trained<cpu, Losses>(ranks, workload, more));
}

/// A chain of linear layers whose gradients leave in several buckets beside backward: weights after four steps. Zero
/// stages as in data_axis.
template <Device D>
std::vector<double> small_buckets(int ranks, int zero_stage) {
    constexpr index_t width = 32;
    std::vector<double> all;
    const auto run = [&](threads_communicator& c, std::optional<any_communicator> device_channel) {
        sequential<double, D> net;
        for (int layer = 0; layer < 6; ++layer) {
            net.add(concat("linear", layer), linear<double, D>({.in = width, .out = width}));
            net.add(concat("tanh", layer), activation_layer<double, D>(activation::tanh));
        }
        arena<double, D> weights(net.parameters(), 5 + static_cast<std::uint64_t>(c.rank()));  // only rank 0's count
        typename data_axis<any_communicator, double, D>::config config{.gradients = {.bucket_bytes = 10'000},
                                                                       .zero_stage = zero_stage};
        if (zero_stage) config.owners = owners_of(weights, ranks, true);
        config.device = std::move(device_channel);
        any_communicator world(c.split(0, c.rank()));
        data_axis<any_communicator, double, D> group(world, weights, std::move(config));
        require(group.gradients.reducer().buckets().size() == 3, "three buckets of two layers");
        broadcast_values(group.over, weights, net.buffers());
        const auto train = [&](auto& optimizer) {
            for (std::uint32_t step = 0; step < 4; ++step) {
                const auto drawn = [&](std::uint32_t stream) {
                    tensor<double> t({3, width});
                    const random_stream random{7, stream, static_cast<std::uint32_t>(c.rank())};
                    for (index_t i = 0; i < t.size(); ++i) t[i] = random.normal(static_cast<std::uint64_t>(i));
                    return tensor<double, D>::copy_of(t);
                };
                saved_tensors<double, D> saved;
                weights.zero_grad();
                group.gradients.begin(step);
                const pass_context how{
                    .random = {.step = step}, .input_gradient = false, .listener = group.gradients.listener()};
                auto y = net.forward(drawn(2 * step), saved, how);
                net.backward(drawn(2 * step + 1), saved, how);
                synchronise(group.gradients, group.agree, {.samples = 3}, step);
                optimizer.step(0.05);
                if (zero_stage) all_gather_values(group.over, weights, group.owners);
            }
        };
        const sgd rule{{.momentum = 0.9}};
        if (zero_stage) {
            const range mine = owners_of(weights, ranks, true)[static_cast<std::size_t>(c.rank())];
            const auto sum = [&](std::vector<double> by_parameter) {
                all_reduce(group.over.host, std::span<double>(by_parameter));
                return by_parameter;
            };
            bound_optimizer<sharded<sgd>, double, D> optimizer(sharded<sgd>{rule, mine, sum}, weights);
            train(optimizer);
        } else {
            bound_optimizer<sgd, double, D> optimizer(rule, weights);
            train(optimizer);
        }
        const tensor<double> values = weights.values().on_host();
        require_equal(
            c, std::string_view(reinterpret_cast<const char*>(values.data()), static_cast<std::size_t>(values.bytes())),
            "weights");
        if (c.rank() == 0) all.assign(values.span().begin(), values.span().end());
    };
    if constexpr (std::same_as<D, cpu>)
        run_ranks(ranks, [&](threads_communicator& world) { run(world, {}); });
    else
        test::run_gpu_ranks(
            ranks, [&](nccl_communicator& c, threads_communicator& world) { run(world, any_communicator(c)); });
    return all;
}

}  // namespace

TEST_CASE("training over NCCL: several buckets beside backward, in every stage of sharding", "[nccl]") {
    for (const int ranks : {2, 3})
        for (const int zero : {0, 1, 2})
            for (const unsigned seed : {1u, 2u}) {
                CAPTURE(ranks, zero, seed);
                emulated::seed(seed);
                const auto host = small_buckets<cpu>(ranks, zero), device = small_buckets<streamed_gpu>(ranks, zero);
                CHECK(emulated::failure() == "");
                double most = 0;
                for (std::size_t i = 0; i < host.size(); ++i) most = std::max(most, std::abs(host[i] - device[i]));
                CHECK(most < 1e-12);
            }
    CHECK(small_buckets<streamed_gpu>(3, 2) == small_buckets<streamed_gpu>(3, 0));
}

TEST_CASE("training over NCCL: gradients and statistics of batches", "[nccl]") {
    CHECK(from_the_host(3, cosmology_run) < 1e-4);
    CHECK(from_the_host(2, cosmology_run, {"parallel.sync_batch_norm=true"}) < 1e-4);
}

TEST_CASE("training over NCCL: optimizer state in shards, gradients and values by NCCL", "[nccl]") {
    const int before = emulated::nccl_calls("reduce") + emulated::nccl_calls("reduce-scatter");
    CHECK(from_the_host(2, lenet_run, {"parallel.zero_stage=1"}) < 1e-4);
    CHECK(emulated::nccl_calls("reduce") + emulated::nccl_calls("reduce-scatter") == before);
    CHECK(from_the_host(3, lenet_run, {"parallel.zero_stage=2"}) < 1e-4);
    CHECK(emulated::nccl_calls("reduce") + emulated::nccl_calls("reduce-scatter") > before);
    // Two ranks in stage 2 take the steps of two without shards, to the bit: NCCL adds in the same order.
    CHECK(distance(trained<streamed_gpu>(2, lenet_run, {"parallel.zero_stage=2"}),
                   trained<streamed_gpu>(2, lenet_run, {})) == 0);
}

TEST_CASE("training over NCCL: K-FAC", "[nccl]") {
    CHECK(from_the_host(3, kfac_run, {"kfac.form=inverse"}) < 1e-3);
    CHECK(from_the_host(2, kfac_run, {"kfac.form=eigen"}) < 1e-3);
    CHECK(from_the_host(2, kfac_run, {"kfac.grad_worker_fraction=0.5"}) < 1e-3);
    const int before = emulated::nccl_calls("reduce") + emulated::nccl_calls("reduce-scatter");
    CHECK(from_the_host(4, kfac_run,
                        {"kfac.grad_worker_fraction=0.5", "kfac.statistics=sharded", "kfac.form=inverse"}) < 1e-3);
    CHECK(emulated::nccl_calls("reduce") + emulated::nccl_calls("reduce-scatter") > before);
}

TEST_CASE("training over NCCL: ranks that share layers", "[nccl]") {
    const auto distance = [](int ranks, const std::string& workload, const std::vector<const char*>& more) {
        return from_the_host<true>(ranks, workload, more);
    };
    // More micro-batches than messages that are posted ahead: what waits for one must not hold up the others.
    CHECK(distance(2, lenet_run, {"parallel.pipeline=2", "parallel.schedule=1f1b", "train.micro_batches=6"}) < 1e-4);
    CHECK(distance(2, lenet_run, {"parallel.pipeline=2", "parallel.schedule=zb_v", "train.micro_batches=4"}) < 1e-4);
    CHECK(distance(2, cosmology_run, {"parallel.tensor=2"}) < 1e-4);
    CHECK(distance(2, cosmology_run, {"parallel.spatial=[2, 1, 1]"}) < 1e-4);
}

TEST_CASE("training over NCCL: a step that one rank spoilt is taken by none, with shards too", "[nccl]") {
    for (const char* zero : {"parallel.zero_stage=0", "parallel.zero_stage=2"})
        CHECK(test::contains(test::message_of([&] {
                                 trained<streamed_gpu>(2, lenet_run, {"optimizer.lr=1e30", zero});
                             }),
                             "no rank took the step"));
}

}  // namespace cairn
