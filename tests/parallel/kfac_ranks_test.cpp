// K-FAC's work over ranks: any placement takes the step of one rank on the joined batch, sends what the formulas of
// course/kfac.md say, and saves a state that any number of ranks goes on with.

#include "catch.hpp"

#include <cairn/comm/any.hpp>
#include <cairn/comm/counting_communicator.hpp>
#include <cairn/comm/threads.hpp>
#include <cairn/compress/bf16.hpp>
#include <cairn/compress/fp16.hpp>
#include <cairn/nn/conv.hpp>
#include <cairn/nn/flatten.hpp>
#include <cairn/nn/linear.hpp>
#include <cairn/nn/sequential.hpp>
#include <cairn/optim/precondition/kfac.hpp>
#include <cairn/parallel/kfac_ranks.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <mutex>
#include <vector>

namespace cairn {

namespace {

using numbers = std::vector<double>;

double off(const numbers& a, const numbers& b) {
    double worst = 0, scale = 1e-300;
    for (std::size_t i = 0; i < a.size(); ++i) {
        worst = std::max(worst, std::abs(a[i] - b[i]));
        scale = std::max(scale, std::abs(b[i]));
    }
    return worst / scale;
}

constexpr index_t examples = 12;

/// A small network, its arena, and K-FAC over it; takes steps on this rank's part of batches that depend on the step
/// alone.
template <class T>
struct trained {
    sequential<T> net;
    std::unique_ptr<arena<T>> weights;
    std::unique_ptr<kfac<T>> k;
    int rank, ranks;

    trained(kfac_config c, std::unique_ptr<kfac_work_assignment<T>> roles, int which, int of, bool discover = true)
        : rank(which), ranks(of) {
        net.add("conv", conv<T>({.in = 2, .out = 4, .kernel = 3, .stride = 2, .groups = 2}));
        net.add("pixels", linear<T>({.in = 4, .out = 4}));
        net.add("rows", flatten<T>());
        net.add("linear", linear<T>({.in = 16, .out = 5}));
        net.add("last", linear<T>({.in = 5, .out = 3}));
        weights = std::make_unique<arena<T>>(net.parameters(), 5);
        k = std::make_unique<kfac<T>>(*weights, c, std::move(roles));
        if (discover) pass_over(k->discover(), 0, range{0, examples});
        weights->zero_grad();
    }

    static tensor<T> drawn(const shape& s, std::uint32_t stream) {
        tensor<T> t(s);
        const random_stream r{3, stream, 0};
        for (index_t i = 0; i < t.size(); ++i) t[i] = static_cast<T>(r.normal(static_cast<std::uint64_t>(i)));
        return t;
    }
    void pass_over(curvature_listener* listener, int step, range mine) {
        const auto part = [&](const tensor<T>& t) {
            return t.slice(mine.begin * (t.size() / examples), t.shape().with(0, mine.count)).clone();
        };
        pass_context p;
        p.curvature = listener;
        saved_tensors<T> saved;
        net.forward(part(drawn({examples, 6, 6, 2}, std::uint32_t(2 * step + 1))), saved, p);
        net.backward(part(drawn({examples, 3}, std::uint32_t(2 * step + 2))), saved, p);
    }
    template <class C>
    numbers step(C& c, int number, bool broken = false) {
        weights->zero_grad();
        curvature_listener* const listener = k->begin_step();
        k->last_micro_batch();
        if (broken) k->blocks()[1].a[0].statistics.batch()[0] = std::numeric_limits<T>::quiet_NaN();
        pass_over(listener, number, shard_of(examples, ranks, rank));
        if (ranks > 1) all_reduce(c, weights->grads().span());
        k->precondition(examples, 0.1);
        return {weights->grads().data(), weights->grads().data() + weights->grads().size()};
    }
};

kfac_config config_of(kfac_form form) {
    kfac_config c{.damping = 0.05, .factor_update_interval = 1, .inverse_update_interval = 2, .kl_clip = 1e-3};
    c.form = form;
    c.rows_per_dimension = 1;  // statistics are of some positions from the second batch on
    return c;
}

/// Three steps of one rank.
template <class T>
std::vector<numbers> alone(kfac_config c) {
    trained<T> one(c, std::make_unique<kfac_work_assignment<T>>(), 0, 1);
    std::vector<numbers> all;
    self_communicator self;
    for (int s = 0; s < 3; ++s) all.push_back(one.step(self, s));
    return all;
}

}  // namespace

TEST_CASE("kfac on ranks: any placement takes the step of one rank", "[kfac][parallel]") {
    for (const kfac_form form : {kfac_form::eigen, kfac_form::inverse}) {
        const std::vector<numbers> one = alone<double>(config_of(form));
        for (const int ranks : {2, 3, 4})
            for (int workers = 1; workers <= ranks; ++workers) {
                if (ranks % workers) continue;
                for (const kfac_statistics statistics : {kfac_statistics::all, kfac_statistics::sharded})
                    for (const bool together : {true, false})
                        for (const bool discover : {true, false}) {
                            INFO(ranks << " ranks, " << workers << " workers");
                            run_ranks(ranks, [&](threads_communicator& c) {
                                kfac_ranks_config r{.statistics = statistics, .bucket_bytes = 1024};
                                r.place.grad_worker_fraction = double(workers) / ranks;
                                r.place.colocate_factors = together;
                                trained<double> mine(config_of(form),
                                                     std::make_unique<kfac_ranks<threads_communicator, double>>(c, r),
                                                     c.rank(), ranks, discover);
                                for (int s = 0; s < 3; ++s) {
                                    const double error = off(mine.step(c, s), one[std::size_t(s)]);
                                    require(error < 1e-9, "rank ", c.rank(), " of ", ranks, ", ", workers,
                                            " workers, step ", s, ": off by ", error);
                                }
                            });
                        }
            }
    }
}

TEST_CASE("kfac on ranks: layers may make themselves known several times", "[kfac][parallel]") {
    trained<double> mine(config_of(kfac_form::eigen), std::make_unique<kfac_work_assignment<double>>(), 0, 1);
    mine.pass_over(mine.k->discover(), 0, range{0, examples});
    for (const auto& b : mine.k->blocks()) CHECK(b.uses == 1);  // in one backward: then its sums are complete
}

TEST_CASE("kfac on ranks: local statistics are those of the rank that decomposes", "[kfac][parallel]") {
    // With one layer on each of two ranks, each layer's factors come from that rank's half of the batch.
    run_ranks(2, [](threads_communicator& c) {
        kfac_ranks_config r{.statistics = kfac_statistics::local};
        r.place.grad_worker_fraction = 0.5;
        trained<double> mine(config_of(kfac_form::eigen),
                             std::make_unique<kfac_ranks<threads_communicator, double>>(c, r), c.rank(), 2);
        mine.step(c, 0);
        std::size_t own = 0;
        for (std::size_t i = 0; i < mine.k->blocks().size(); ++i) {
            auto& b = mine.k->blocks()[i];
            const bool here = mine.k->roles().averages(i, 'a');
            own += here;
            require(b.a[0].statistics.has_average() == here, "block ", i, " on rank ", c.rank());
            if (!here || b.name != "last/weight") continue;
            // A's last element is the mean of ones: rows are counted on this rank alone.
            require(std::abs(b.a[0].statistics.average()[b.in * b.in - 1] - 1) < 1e-12, "rows are counted wrong");
        }
        require(own > 0 && own < mine.k->blocks().size(), "rank ", c.rank(), " has ", own, " layers");
    });
}

TEST_CASE("kfac on ranks: a rank looks at and keeps what its place asks for, no more", "[kfac][parallel]") {
    for (const kfac_statistics kind : {kfac_statistics::all, kfac_statistics::sharded, kfac_statistics::local})
        run_ranks(4, [kind](threads_communicator& c) {
            kfac_ranks_config r{.statistics = kind};
            r.place.grad_worker_fraction = 0.5;
            auto made = std::make_unique<kfac_ranks<threads_communicator, double>>(c, r);
            const auto& roles = *made;
            trained<double> mine(config_of(kfac_form::eigen), std::move(made), c.rank(), 4);
            mine.step(c, 0);
            for (std::size_t i = 0; i < mine.k->blocks().size(); ++i) {
                const bool worker = roles.place().is_gradient_worker(i, c.rank());
                require(roles.uses_decomposition(i) == worker && roles.preconditions(i) == worker, "block ", i);
                mine.k->blocks()[i].each_factor([&](kfac_factor<double>& f, char side) {
                    const bool owner = roles.place().worker(i, side) == c.rank();
                    require(roles.observes(i, side) == (owner || kind != kfac_statistics::local), "looks at ", i, side);
                    require(f.statistics.has_average() == (owner || kind == kfac_statistics::all), "keeps ", i, side);
                    require(roles.decomposes(i, side) == owner, "decomposes ", i, side);
                });
            }
        });
}

TEST_CASE("kfac on ranks: a factor that is not finite on one rank is left out by all", "[kfac][parallel]") {
    for (const kfac_statistics statistics : {kfac_statistics::all, kfac_statistics::sharded})
        run_ranks(3, [&](threads_communicator& c) {
            kfac_ranks_config r{.statistics = statistics};
            trained<double> mine(config_of(kfac_form::eigen),
                                 std::make_unique<kfac_ranks<threads_communicator, double>>(c, r), c.rank(), 3);
            mine.step(c, 0);
            const numbers v = mine.step(c, 1, c.rank() == 1);
            for (const double x : v) require(std::isfinite(x), "a direction is not finite");
            const auto rejected = static_cast<double>(mine.k->rejected());
            std::array<double, 2> range{rejected, -rejected};
            all_reduce(c, std::span<double>(range), {.op = reduction::max});
            require(range[0] == 1, "no rank rejected the factor");
            if (statistics == kfac_statistics::all) require(range[1] == -1, "not all ranks rejected the factor");
            mine.step(c, 2);
        });
}

TEST_CASE("kfac on ranks: bytes on the wire are those of the closed forms", "[kfac][parallel]") {
    // course/kfac.md: per statistics step, decomposition and step, of float.
    for (const int ranks : {2, 4})
        for (int workers = 1; workers <= ranks; workers *= 2)
            for (const kfac_statistics statistics :
                 {kfac_statistics::all, kfac_statistics::sharded, kfac_statistics::local}) {
                std::atomic<std::int64_t> sent{0};
                std::int64_t expected = 0;
                run_ranks(ranks, [&](threads_communicator& world) {
                    counting_communicator<threads_communicator> c(world.split(0, world.rank()));
                    kfac_ranks_config r{.statistics = statistics, .overlap = false};
                    r.place.grad_worker_fraction = double(workers) / ranks;
                    auto roles = std::make_unique<kfac_ranks<counting_communicator<threads_communicator>>>(c, r);
                    const auto& who = *roles;
                    trained<float> mine(config_of(kfac_form::eigen), std::move(roles), world.rank(), ranks);
                    mine.step(world, 0);  // `who` shares its counts with c
                    const auto calls = c.calls();
                    std::int64_t here = 0;
                    for (const auto& [name, sum] : calls)
                        if (name == "all-gather" || name == "reduce-scatter") here += sum.bytes;
                    sent += here;
                    if (world.rank() != 0) return;
                    std::int64_t triangles = 0, eigen = 0, directions = 0;
                    for (auto& b : mine.k->blocks()) {
                        directions += b.size();
                        b.each_factor([&](kfac_factor<float>& f, char) {
                            const index_t n = f.statistics.size();
                            triangles += n * (n + 1) / 2;
                            eigen += n * n + n;
                        });
                    }
                    // Summed over ranks: a reduce-scatter and an all-gather over p ranks send (p − 1) times the array.
                    const std::int64_t columns = ranks / workers;
                    expected = (statistics == kfac_statistics::sharded ? (ranks - 1) * triangles : 0) +
                               (workers - 1) * eigen + workers * (columns - 1) * directions;
                    expected *= 4;
                    require(who.place().rows() == workers, "the grid has ", who.place().rows(), " rows");
                });
                INFO(ranks << " ranks, " << workers << " workers, statistics " << int(statistics));
                CHECK(sent == expected);
            }
}

TEST_CASE("kfac on ranks: a state goes on with any number of ranks", "[kfac][parallel]") {
    kfac_config c = config_of(kfac_form::eigen);
    c.inverse_staleness = 1;
    // Two steps on three ranks, with sharded statistics and one gradient worker a layer; what they save.
    std::map<std::string, numbers> tensors;
    std::map<std::string, std::int64_t> counters;
    std::mutex saving;
    numbers third;
    run_ranks(3, [&](threads_communicator& world) {
        kfac_ranks_config r{.statistics = kfac_statistics::sharded};
        r.place.grad_worker_fraction = 1.0 / 3;
        trained<double> mine(c, std::make_unique<kfac_ranks<threads_communicator, double>>(world, r), world.rank(), 3);
        mine.step(world, 0), mine.step(world, 1), mine.step(world, 2);
        {
            const std::scoped_lock lock(saving);
            for (const auto& [name, t] : mine.k->its_tensors())
                require(tensors.emplace(name, numbers(t.data(), t.data() + t.size())).second, name, " is saved twice");
            for (const auto& [name, n] : mine.k->its_counters()) counters.emplace(name, *n);
        }
        mine.k->release();
        const numbers v = mine.step(world, 3);
        if (world.rank() == 0) third = v;
    });
    for (const int ranks : {1, 2, 3})
        run_ranks(ranks, [&](threads_communicator& world) {
            kfac_ranks_config r{.statistics = kfac_statistics::sharded};
            std::unique_ptr<kfac_work_assignment<double>> roles = std::make_unique<kfac_work_assignment<double>>();
            if (ranks > 1) roles = std::make_unique<kfac_ranks<threads_communicator, double>>(world, r);
            trained<double> mine(c, std::move(roles), world.rank(), ranks);
            auto all = mine.k->tensors();
            require(all.size() == tensors.size(), all.size(), " tensors of ", tensors.size());
            for (auto& [name, t] : all) std::ranges::copy(tensors.at(name), t.data());
            for (const auto& [name, number] : mine.k->counters()) *number = counters.at(name);
            mine.k->release();
            const double error = off(mine.step(world, 3), third);
            require(error < (ranks == 3 ? 1e-12 : 1e-9), ranks, " ranks go on differently: ", error);
        });
}

TEST_CASE("kfac on ranks: automatic placement keeps within the memory, and says when nothing does",
          "[kfac][parallel]") {
    for (const index_t limit : {index_t{0}, index_t{9000}, index_t{10}}) {
        std::atomic<int> failed{0};
        const auto body = [&](threads_communicator& c) {
            kfac_ranks_config r{.memory_limit = limit};
            r.place.grad_worker_fraction = 0;
            auto roles = std::make_unique<kfac_ranks<threads_communicator, double>>(c, r);
            const auto& who = *roles;
            trained<double> mine(config_of(kfac_form::eigen), std::move(roles), c.rank(), 4);
            try {
                mine.step(c, 0);
            } catch (const error& e) {
                ++failed;
                require(std::string(e.what()).find("memory_limit of 10 bytes") != std::string::npos, e.what());
                return;
            }
            require(who.estimates().size() == 3, "three fractions of four ranks");
            const double chosen = double(who.place().rows()) / 4;
            for (const kfac_assignment_estimate& e : who.estimates())
                if (e.fraction == chosen) require(limit == 0 || e.bytes <= limit, "too large: ", e.bytes);
        };
        run_ranks(4, body);
        CHECK(failed == (limit == 10 ? 4 : 0));
    }
}

TEST_CASE("kfac on ranks: equal tables have equal predicted decompositions, whatever they balance",
          "[kfac][parallel]") {
    trained<double> one(config_of(kfac_form::eigen), std::make_unique<kfac_work_assignment<double>>(), 0, 1);
    std::vector<factor_sizes> sizes;
    for (const auto& b : one.k->blocks()) sizes.push_back(b.sizes());
    const kfac_assignment by_time(2, sizes);  // its loads are n³
    for (const auto strategy : {kfac_assignment_strategy::time, kfac_assignment_strategy::memory}) {
        kfac_ranks_config c;
        c.place.strategy = strategy;
        const kfac_config every_tenth{.inverse_update_interval = 10};
        CHECK(kfac_assignment(2, sizes, c.place).layers() == by_time.layers());
        const auto e = detail::estimate_of(c, every_tenth, one.k->blocks(), 2, 2, {}, numbers(sizes.size()), 1e-3);
        CHECK(e.decompose == Approx(1e-3 * std::ranges::max(by_time.loads()) / 10));
    }
}

TEST_CASE("kfac on ranks: error-bounded traffic stays near the exact step", "[kfac][parallel]") {
    const std::vector<numbers> one = alone<float>(config_of(kfac_form::eigen));
    run_ranks(4, [&](threads_communicator& c) {
        kfac_ranks_config r{.broadcast_error_bound = 1e-4};
        r.place.grad_worker_fraction = 0.5;
        trained<float> mine(config_of(kfac_form::eigen), std::make_unique<kfac_ranks<threads_communicator>>(c, r),
                            c.rank(), 4);
        for (int s = 0; s < 3; ++s) {
            const double error = off(mine.step(c, s), one[std::size_t(s)]);
            require(error < 0.05 && error > 1e-7, "step ", s, " is off by ", error);
        }
        numbers bits(mine.weights->grads().data(), mine.weights->grads().data() + mine.weights->grads().size()),
            most = bits;
        all_reduce(c, std::span<double>(most), {.op = reduction::max});
        require(bits == most, "ranks differ");
    });
}

TEST_CASE("kfac on ranks: compressed sums are near the exact ones by each factor's own size", "[kfac][parallel]") {
    // 39,200 rows a rank, the bias's entry of A, end beyond fp16 as a sum; G of a mean loss is 2e8 times smaller.
    using world = threads_communicator;
    using hooks = kfac_ranks<world>::hook_factory;
    const auto averages = [](world& c, hooks method) {
        sequential<float> net;
        net.add("conv", conv<float>({.in = 1, .out = 3, .kernel = 3}));
        net.add("pixels", conv<float>({.in = 3, .out = 2, .kernel = 1}));
        arena<float> weights(net.parameters(), 5);
        kfac<float> k(weights, config_of(kfac_form::eigen),
                      std::make_unique<kfac_ranks<world>>(c, kfac_ranks_config{}, std::move(method)));
        const auto stream = static_cast<std::uint32_t>(c.rank() + 1);
        tensor<float> dy = trained<float>::drawn({8, 70, 70, 2}, stream);
        for (float& x : dy.span()) x *= 1e-4f;
        pass_context p;
        saved_tensors<float> saved;
        p.curvature = k.begin_step();
        k.last_micro_batch();
        weights.zero_grad();
        net.forward(trained<float>::drawn({8, 72, 72, 1}, stream), saved, p);
        net.backward(std::move(dy), saved, p);
        all_reduce(c, weights.grads().span());
        k.precondition(16, 0.1);
        require(k.rejected() == 0, k.rejected(), " sums were rejected");
        std::vector<numbers> all;
        for (auto& b : k.blocks())
            b.each_factor([&](kfac_factor<float>& f, char) {
                const tensor<float>& a = f.statistics.average();
                all.emplace_back(a.data(), a.data() + a.size());
            });
        return all;
    };
    const auto of = [](auto make) -> hooks {
        return [make](index_t n) { return std::make_unique<message_hook<world, decltype(make())>>(make(), n, 2); };
    };
    run_ranks(2, [&](world& c) {
        const std::vector<numbers> exact = averages(c, {});
        const auto check = [&](const char* name, const hooks& method, double limit) {
            const std::vector<numbers> near = averages(c, method);
            for (std::size_t i = 0; i < exact.size(); ++i) {
                const double error = off(near[i], exact[i]);
                require(error < limit, name, ": factor ", i, " of ", exact.size(), " is off by ", error);
            }
        };
        check("error_bounded", of([] { return error_bounded({.bound = 1e-3}); }), 2e-3);  // scales are powers of two
        check("fp16", of([] { return fp16<cpu>{}; }), 0x1p-9);
        check("bf16", of([] { return bf16<cpu>{}; }), 0x1p-6);
    });
}

}  // namespace cairn
