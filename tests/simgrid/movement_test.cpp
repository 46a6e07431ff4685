// Training steps on simulated ranks send the messages and bytes, by cause, that the same steps on threads send.

#include "simgrid/simulated.hpp"
#include "train/compiled_session.hpp"

#include <cairn/comm/any.hpp>
#include <cairn/comm/counting_communicator.hpp>
#include <cairn/comm/threads.hpp>
#include <cairn/perf/data_movement.hpp>

namespace cairn {

namespace {

struct moving_case {
    const char* workload;
    int ranks;
    std::vector<std::string> set = {};
};

/// Two training steps; says what each of them sent. `sent` tells what this rank sent so far.
template <class Sent>
std::string sent_by_steps(const moving_case& of, any_communicator world, Sent sent) {
    configuration settings = configuration::from_file(concat("benchmarks/workloads/", of.workload, ".toml"));
    for (const std::string& one : of.set) settings.set(one);
    settings.set("parallel.overlap=false");  // counters are one thread's
    session<cpu, float> run(std::move(settings), {.out = {}, .resume = {}, .max_steps = 2, .generated = true},
                            std::move(world));
    std::string text;
    traffic before = sent();
    for (int step = 0; step < 2; ++step) {
        run.needs(1);
        for (const auto& [cause, all] : sent()) {
            const sent_messages old = before[cause];
            if (all.messages > old.messages)
                text += concat(cause, ": ", all.messages - old.messages, " messages, ", all.bytes - old.bytes, '\n');
        }
        before = sent();
    }
    return text;
}

std::string on_threads(const moving_case& of) {
    std::vector<std::string> ranks(static_cast<std::size_t>(of.ranks));
    run_ranks(of.ranks, {.kernel_threads = 1, .time_limit = 60}, [&](threads_communicator& threads) {
        counted_machine machine;
        const phantom_rank here(machine);
        using counted = counting_communicator<threads_communicator>;
        counted c(threads.split(0, threads.rank()));
        ranks[static_cast<std::size_t>(c.rank())] =
            sent_by_steps(of, any_communicator(c.split(0, c.rank())), [&] { return c.by_cause(); });
    });
    return listed(ranks);
}

std::string on_simulated_ranks(const moving_case& of) {
    std::vector<std::string> ranks(static_cast<std::size_t>(of.ranks));
    machine_description m = test::star(1);  // one node, as threads are
    m.ranks_per_host = of.ranks, m.inside = m.between;
    m.other = kernel_rate{.flops = 1e10, .bandwidth = 1e10};
    return test::simulated(
        m, of.ranks,
        [&](simgrid_communicator& c) {
            ranks[static_cast<std::size_t>(c.rank())] = sent_by_steps(of, any_communicator(c.split(0, c.rank())), [] {
                return detail::simulated_machine::here().numbers().sent;
            });
        },
        [&](const simulation&) { return listed(ranks); });
}

void check(const moving_case& of) {
    INFO(of.workload << " on " << of.ranks << (of.set.empty() ? "" : ", " + listed(of.set)));
    autotune_cache::global().set_policy(autotune_policy::first);
    set_threads(1);
    // Threads choose by the same link as simulated ranks do: `automatic` is then the same algorithm.
    const auto kept = *collective_profiles_in_use();
    use_collectives({{{"counting threads", 0}, {.link = test::star(1).between}}});
    const std::string counted = on_threads(of), simulated = on_simulated_ranks(of);
    use_collectives(kept);
    autotune_cache::global().set_policy(autotune_policy::measure);
    CHECK((counted.size() > 20) == (of.ranks > 1));
    CHECK(simulated == counted);
}

const std::string small = "train.batch=16";
const std::vector<std::string> small_transformer{small, "model.blocks=2", "model.embedding_dim=32",
                                                 "data.text.length=16"};

std::vector<std::string> with(std::vector<std::string> all, std::initializer_list<std::string> more) {
    all.insert(all.end(), more);
    return all;
}

}  // namespace

TEST_CASE("simulated steps send what steps on threads send, by cause", "[simgrid][movement]") {
    check({"lenet-mnist", 3, {small, "parallel.zero_stage=1", "parallel.all_reduce='ring'"}});
    check({"lenet-mnist", 4, {small, "parallel.zero_stage=2"}});
    check({"lenet-mnist", 2, {small, "compress.kind='powersgd'"}});
    check({"lenet-mnist", 4, {small, "optimizer.kind='kfac'", "kfac.grad_worker_fraction=0.5"}});
    check({"resnet20-cifar", 2, {small, "parallel.sync_batch_norm=true"}});
    check({"transformer-text", 4, with(small_transformer, {"parallel.pipeline=2", "train.micro_batches=4"})});
    check({"transformer-text", 2, with(small_transformer, {"parallel.tensor=2"})});
    check({"cosmology-quickstart", 2, {small, "parallel.spatial=[2,1,1]"}});
}

TEST_CASE("simulated steps send what steps on threads send: all", "[.exhaustive][simgrid][movement]") {
    for (int p = 1; p <= 8; ++p) {
        for (const char* algorithm : {"auto", "ring", "recursive_doubling", "halving_doubling", "tree"})
            check({"lenet-mnist", p, {small, concat("parallel.all_reduce='", algorithm, "'")}});
        for (const int stage : {1, 2}) check({"lenet-mnist", p, {small, concat("parallel.zero_stage=", stage)}});
        for (const char* kind : {"bf16", "fp16", "qsgd", "sign", "onebit", "natural", "randomk", "powersgd"})
            check({"lenet-mnist", p, {small, concat("compress.kind='", kind, "'")}});
        // Fraction 0 would be chosen by the machine, on which no message takes time on threads.
        for (const char* fraction : {"0.5", "1"})
            if (p % 2 == 0 || fraction != std::string("0.5"))
                check({"lenet-mnist",
                       p,
                       {small, "optimizer.kind='kfac'", concat("kfac.grad_worker_fraction=", fraction)}});
    }
    for (const int p : {2, 4, 8})
        for (const char* schedule : {"gpipe", "1f1b", "zb_h1", "interleaved"})
            check({"transformer-text", p,
                   with(small_transformer, {"parallel.pipeline=2", "train.micro_batches=4", "model.blocks=4",
                                            concat("parallel.schedule='", schedule, "'")})});
    for (const int t : {2, 4})
        for (const char* sequence : {"false", "true"})
            check({"transformer-text", 2 * t,
                   with(small_transformer,
                        {concat("parallel.tensor=", t), concat("parallel.sequence_parallel=", sequence)})});
    for (const char* grid : {"[2,1,1]", "[2,2,1]", "[2,2,2]"})
        check({"cosmology-quickstart", 8, {small, concat("parallel.spatial=", grid)}});
    check({"transformer-text", 8,
           with(small_transformer, {"parallel.pipeline=2", "parallel.tensor=2", "train.micro_batches=2"})});
}

}  // namespace cairn
