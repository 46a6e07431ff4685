// K-FAC's work over ranks with an emulated GPU each, by way of the host: any placement takes the host's steps, sends
// what the closed forms of course/kfac.md say and keeps what its table says.

#include "catch.hpp"
#include "device/cuda/emulated_libraries.hpp"
#include "messages.hpp"

#include <cairn/comm/any.hpp>
#include <cairn/comm/collectives/barrier.hpp>
#include <cairn/comm/collectives/staged.hpp>
#include <cairn/comm/counting_communicator.hpp>
#include <cairn/comm/threads.hpp>
#include <cairn/device/grid/batch_norm.hpp>
#include <cairn/device/grid/curvature.hpp>
#include <cairn/device/grid/reduce.hpp>
#include <cairn/nn/batch_norm.hpp>
#include <cairn/nn/conv.hpp>
#include <cairn/nn/flatten.hpp>
#include <cairn/nn/linear.hpp>
#include <cairn/nn/sequential.hpp>
#include <cairn/optim/precondition/kfac.hpp>
#include <cairn/parallel/kfac_ranks.hpp>

#include <atomic>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace cairn {

namespace {

constexpr index_t kfac_ranks_examples = 8;

/// A small network on this rank's part of batches that depend on the step alone. Gradients of the batch are summed on
/// the host.
template <class T, Device D>
struct spread_kfac {
    sequential<T, D> net;
    std::unique_ptr<arena<T, D>> weights;
    std::unique_ptr<kfac<T, D>> k;
    int rank, ranks;

    spread_kfac(const kfac_config& c, std::unique_ptr<kfac_work_assignment<T, D>> roles, int which, int of)
        : rank(which), ranks(of) {
        net.add("conv", conv<T, D>({.in = 2, .out = 4, .kernel = 3, .stride = 2, .groups = 2}));
        net.add("norm", batch_norm<T, D>({.channels = 4, .act = activation::relu}));
        net.add("pixels", linear<T, D>({.in = 4, .out = 4}));
        net.add("rows", flatten<T, D>());
        net.add("last", linear<T, D>({.in = 4, .out = 3}));
        weights = std::make_unique<arena<T, D>>(net.parameters(), 5);
        k = std::make_unique<kfac<T, D>>(*weights, c, std::move(roles));
        pass_over(k->discover(), 0, range{0, kfac_ranks_examples});
    }

    static tensor<T, D> part_of(const shape& s, std::uint32_t stream, range mine) {
        tensor<T> t(s.with(0, mine.count));
        const random_stream r{3, stream, 0};
        const index_t each = t.size() / mine.count;
        for (index_t i = 0; i < t.size(); ++i)
            t[i] = static_cast<T>(r.normal(static_cast<std::uint64_t>(mine.begin * each + i)));
        return tensor<T, D>::copy_of(t);
    }
    void pass_over(curvature_listener* listener, int step, range mine) {
        pass_context p;
        p.curvature = listener;
        saved_tensors<T, D> saved;
        net.forward(part_of({kfac_ranks_examples, 4, 4, 2}, std::uint32_t(2 * step + 1), mine), saved, p);
        net.backward(part_of({kfac_ranks_examples, 3}, std::uint32_t(2 * step + 2), mine), saved, p);
    }
    template <class C>
    tensor<T> step(C& c, int number) {
        weights->zero_grad();
        curvature_listener* const listener = k->begin_step();
        k->last_micro_batch();
        pass_over(listener, number, shard_of(kfac_ranks_examples, ranks, rank));
        tensor<T> sum = weights->grads().on_host();
        all_reduce(c, sum.span());
        if constexpr (std::same_as<D, cpu>)
            std::copy_n(sum.data(), sum.size(), weights->grads().data());
        else
            D::copy_to_device(weights->grads().data(), sum.data(), sum.bytes());
        k->precondition(kfac_ranks_examples, 0.1);
        return weights->grads().on_host();
    }
};

kfac_config spread_config(kfac_form form) {
    kfac_config c{.damping = 0.05,
                  .factor_update_interval = 1,
                  .inverse_update_interval = 2,
                  .kl_clip = 1e-3,
                  .norm_layers = true};
    c.form = form;
    return c;
}

template <class T>
double spread_error(const tensor<T>& a, const tensor<T>& b) {
    double worst = 0, scale = 1e-300;
    for (index_t i = 0; i < a.size(); ++i) {
        worst = std::max(worst, static_cast<double>(std::abs(a[i] - b[i])));
        scale = std::max(scale, static_cast<double>(std::abs(b[i])));
    }
    return worst / scale;
}

/// A rank's two ways to the others.
struct spread_ways {
    counting_communicator<threads_communicator> counted;
    any_communicator world;
    channel<any_communicator> over;

    explicit spread_ways(threads_communicator& c)
        : counted(c.split(0, c.rank())),
          world(counted.split(0, c.rank())),
          over(world, staged_communicator<emulated_gpu, counting_communicator<threads_communicator>>(
                          counted.split(0, c.rank()))) {}

    template <class T>
    auto roles(const kfac_ranks_config& r) {
        return std::make_unique<kfac_ranks<any_communicator, T, emulated_gpu>>(over, r);
    }
};

}  // namespace

TEST_CASE("GPU K-FAC on ranks, emulated: any placement takes the host's steps", "[cuda][kfac]") {
    for (const auto& [ranks, workers, together] :
         {std::tuple{1, 1, true}, {2, 1, true}, {2, 2, false}, {3, 1, false}, {4, 2, false}})
        for (const kfac_statistics statistics :
             {kfac_statistics::all, kfac_statistics::sharded, kfac_statistics::local}) {
            if (statistics == kfac_statistics::local && workers > 1) continue;
            const kfac_form form = (workers + ranks) % 2 ? kfac_form::eigen : kfac_form::inverse;
            INFO(ranks << " ranks, " << workers << " workers, statistics " << int(statistics));
            run_ranks(ranks, [&, n = ranks, m = workers, with = together](threads_communicator& c) {
                kfac_ranks_config r{.statistics = statistics, .bucket_bytes = 512};
                r.place.grad_worker_fraction = double(m) / n;
                r.place.colocate_factors = with;
                spread_ways ways(c);
                auto roles = ways.roles<double>(r);
                const auto& who = *roles;
                spread_kfac<double, emulated_gpu> device(spread_config(form), std::move(roles), c.rank(), n);
                spread_kfac<double, cpu> host(
                    spread_config(form), std::make_unique<kfac_ranks<threads_communicator, double>>(c, r), c.rank(), n);
                for (int s = 0; s < 2; ++s) {
                    const double error = spread_error(device.step(c, s), host.step(c, s));
                    require(error < 1e-9, "rank ", c.rank(), " of ", n, ", ", m, " workers, step ", s, ": off by ",
                            error);
                }
                for (std::size_t i = 0; i < device.k->blocks().size(); ++i)
                    device.k->blocks()[i].each_factor([&](kfac_factor<double, emulated_gpu>& f, char side) {
                        require(f.statistics.has_average() == who.averages(i, side), "block ", i, side, ": average");
                        require(f.inverse.empty() != who.preconditions(i), "block ", i, side, ": decomposition");
                        require(!f.statistics.has_batch() && f.pending.empty(), "block ", i, side, ": left over");
                    });
            });
        }
}

TEST_CASE("GPU K-FAC on ranks, emulated: bytes on the wire are those of the closed forms", "[cuda][kfac]") {
    for (const auto& [ranks, workers] : {std::pair{2, 1}, {2, 2}, {4, 2}})
        for (const kfac_form form : {kfac_form::eigen, kfac_form::inverse})
            for (const kfac_statistics statistics :
                 {kfac_statistics::all, kfac_statistics::sharded, kfac_statistics::local}) {
                std::atomic<std::int64_t> sent{0}, summed{0};
                std::int64_t expected = 0, sums = 0;
                run_ranks(ranks, [&, n = ranks, m = workers](threads_communicator& c) {
                    kfac_ranks_config r{.statistics = statistics};
                    r.place.grad_worker_fraction = double(m) / n;
                    spread_ways ways(c);
                    spread_kfac<float, emulated_gpu> mine(spread_config(form), ways.roles<float>(r), c.rank(), n);
                    mine.step(c, 0);
                    for (const auto& [name, sum] : ways.counted.calls()) {
                        if (name == "all-gather") sent += sum.bytes;
                        if (name == "reduce-scatter") summed += sum.bytes;
                    }
                    if (c.rank() != 0) return;
                    std::int64_t triangles = 0, made = 0, directions = 0;
                    for (auto& b : mine.k->blocks()) {
                        directions += b.size();
                        b.each_factor([&](kfac_factor<float, emulated_gpu>& f, char) {
                            const index_t size = f.statistics.size();
                            const index_t triangle_size = f.statistics.is_diagonal() ? size : size * (size + 1) / 2;
                            triangles += triangle_size;
                            made += f.statistics.is_diagonal() || form == kfac_form::inverse ? triangle_size
                                                                                             : size * size + size;
                        });
                    }
                    expected = 4 * ((m - 1) * made + m * (n / m - 1) * directions);
                    sums = statistics == kfac_statistics::sharded ? 4 * (n - 1) * triangles : 0;
                });
                INFO(ranks << " ranks, " << workers << " workers, statistics " << int(statistics));
                CHECK(sent == expected);
                CHECK(summed == sums);
            }
}

TEST_CASE("GPU K-FAC on ranks, emulated: a state goes on with another placement, on the host too", "[cuda][kfac]") {
    kfac_config config = spread_config(kfac_form::eigen);
    config.inverse_staleness = 1;
    const auto ranks_config = [](double fraction, kfac_statistics statistics) {
        kfac_ranks_config r{.statistics = statistics};
        r.place.grad_worker_fraction = fraction;
        return r;
    };
    // What all ranks save, each its part.
    std::map<std::string, tensor<double>> tensors;
    std::map<std::string, std::int64_t> counters;
    std::mutex saving;
    const auto load = [&]<class To>(threads_communicator& c, auto& from, spread_kfac<double, To>& to) {
        {
            const std::scoped_lock lock(saving);
            for (const auto& [name, t] : from.k->its_tensors())
                require(tensors.emplace(name, t.on_host()).second, name, " is saved twice");
            for (const auto& [name, number] : from.k->its_counters()) counters.emplace(name, *number);
        }
        barrier(c);
        auto room = to.k->tensors();
        require(tensors.size() == room.size(), tensors.size(), " tensors of ", room.size());
        for (auto& [name, t] : room) To::copy_to_device(t.data(), tensors.at(name).data(), t.bytes());
        room.clear();
        for (const auto& [name, number] : to.k->counters()) *number = counters.at(name);
        from.k->release(), to.k->release();
        barrier(c);
        if (c.rank() == 0) tensors.clear(), counters.clear();
        barrier(c);
    };
    run_ranks(4, [&](threads_communicator& c) {
        spread_ways ways(c);
        using device = spread_kfac<double, emulated_gpu>;
        using roles_of_host = kfac_ranks<threads_communicator, double>;
        device first(config, ways.roles<double>(ranks_config(0.25, kfac_statistics::sharded)), c.rank(), 4);
        for (int s = 0; s < 3; ++s) first.step(c, s);  // in the third, decompositions were begun that are not in use
        device same(config, ways.roles<double>(ranks_config(0.25, kfac_statistics::sharded)), c.rank(), 4),
            all(config, ways.roles<double>(ranks_config(1, kfac_statistics::all)), c.rank(), 4),
            half(config, ways.roles<double>(ranks_config(0.5, kfac_statistics::sharded)), c.rank(), 4);
        spread_kfac<double, cpu> host(
            config, std::make_unique<roles_of_host>(c, ranks_config(0.5, kfac_statistics::sharded)), c.rank(), 4);
        load(c, first, same);
        load(c, first, host);
        load(c, host, half);
        load(c, same, all);
        for (int s = 3; s < 6; ++s) {
            const tensor<double> expected = first.step(c, s);
            require(spread_error(same.step(c, s), expected) == 0, "step ", s, ": other bits after a resumption");
            for (const double error : {spread_error(all.step(c, s), expected), spread_error(half.step(c, s), expected),
                                       spread_error(host.step(c, s), expected)})
                require(error < 1e-9, "step ", s, ": off by ", error);
        }
    });
}

TEST_CASE("GPU K-FAC on ranks, emulated: what fits no ranks or no memory is refused in the host's words",
          "[cuda][kfac]") {
    for (const auto& [fraction, limit, words] : {std::tuple{0.4, index_t{0}, "which must be a divisor of the ranks"},
                                                 {0.0, index_t{10}, "memory_limit of 10 bytes"},
                                                 {0.0, index_t{0}, ""}})
        run_ranks(2, [&, share = fraction, most = limit, what = std::string(words)](threads_communicator& c) {
            kfac_ranks_config r{.memory_limit = most};
            r.place.grad_worker_fraction = share;
            spread_ways ways(c);
            auto roles = ways.roles<float>(r);
            const auto& who = *roles;
            spread_kfac<float, emulated_gpu> mine(spread_config(kfac_form::eigen), std::move(roles), c.rank(), 2);
            std::string got;
            try {
                mine.step(c, 0);
            } catch (const error& e) {
                got = e.what();
            }
            if (what.empty())
                require(got.empty() && who.estimates().size() == 2, "a choice between two: ", got);
            else
                require(got.find(what) != std::string::npos, "not refused: ", got);
        });
    run_ranks(2, [&](threads_communicator& c) {
        spread_ways ways(c);
        const std::string got = test::message_of([&] { ways.roles<float>({.broadcast_error_bound = 1e-3}); });
        require(test::contains(got, "must be 0 (exact)"), got);
    });
}

}  // namespace cairn
