// Compressed all-reduce against its definition: the sum over ranks of what each one's compressor made of its gradient.

#include "parallel/distributed.hpp"

#include "catch.hpp"

#include <cairn/comm/any.hpp>
#include <cairn/comm/checked_communicator.hpp>
#include <cairn/comm/counting_communicator.hpp>
#include <cairn/compress/bf16.hpp>
#include <cairn/compress/fp16.hpp>
#include <cairn/compress/onebit.hpp>
#include <cairn/compress/powersgd.hpp>
#include <cairn/compress/qsgd.hpp>
#include <cairn/compress/randomk.hpp>
#include <cairn/compress/sign.hpp>
#include <cairn/compress/topk.hpp>
#include <cairn/parallel/autotuned_reduction.hpp>

namespace cairn {

namespace {

std::vector<float> gradient_of(int rank, index_t n, int step = 0) {
    const random_stream random{11, static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(step)};
    std::vector<float> g(static_cast<std::size_t>(n));
    for (index_t i = 0; i < n; ++i)
        g[static_cast<std::size_t>(i)] = static_cast<float>(random.normal(static_cast<std::uint64_t>(i)));
    return g;
}

// Runs make() on every rank for one bucket; checks that all ranks have the same bits; returns them.
template <class Make>
std::vector<float> reduced(int ranks, index_t n, Make make, int steps = 1) {
    std::vector<std::vector<float>> results(static_cast<std::size_t>(ranks));
    run_ranks(ranks, [&](threads_communicator& c) {
        auto method = make(c);
        std::vector<float> g;
        for (int step = 0; step < steps; ++step) {
            g = gradient_of(c.rank(), n, step);
            method->reduce(c, g, {.seed = 3, .rank = c.rank(), .step = step});
        }
        results[static_cast<std::size_t>(c.rank())] = g;
    });
    for (const auto& r : results) CHECK(r == results[0]);
    return results[0];
}

// Σ over ranks of decode(encode(g)), by a compressor of its own for each rank.
template <Compressor K>
std::vector<double> sum_of_decoded(int ranks, index_t n, K prototype) {
    std::vector<double> sum(static_cast<std::size_t>(n));
    for (int r = 0; r < ranks; ++r) {
        K k = prototype;
        message<> out;
        std::vector<float> x(static_cast<std::size_t>(n));
        const encode_step at{.seed = 3, .rank = r};
        k.encode(gradient_of(r, n), out, at);
        k.decode(std::as_const(out).bytes(), x, at);
        for (std::size_t i = 0; i < x.size(); ++i) sum[i] += double(x[i]);
    }
    return sum;
}

template <Compressor K>
void check_messages(K prototype, double tolerance) {
    for (const int ranks : {1, 2, 3, 5})
        for (const index_t n : {index_t{0}, index_t{1}, index_t{7}, index_t{1000}, index_t{70'001}}) {
            INFO(prototype.name() << ", " << ranks << " ranks, " << n << " values");
            const auto got = reduced(ranks, n, [&](auto& c) {
                using C = std::remove_reference_t<decltype(c)>;
                return std::make_unique<message_hook<C, K>>(prototype, n, c.size());
            });
            const auto wanted = sum_of_decoded(ranks, n, prototype);
            double worst = 0;
            for (std::size_t i = 0; i < got.size(); ++i) worst = std::max(worst, std::abs(double(got[i]) - wanted[i]));
            CHECK(worst <= tolerance * ranks);
        }
}

}  // namespace

TEST_CASE("compressed all-reduce: messages that are gathered", "[parallel][compress]") {
    check_messages(topk({.ratio = 0.01}), 1e-5);
    check_messages(qsgd{}, 1e-5);
    check_messages(sign{}, 1e-5);
}

TEST_CASE("compressed all-reduce: messages that are added", "[parallel][compress]") {
    check_messages(bf16{}, 16.0 / 256);  // each addition rounds to 8 bits
    check_messages(fp16{}, 16.0 / 2048);
    check_messages(randomk({.ratio = 0.1}), 1e-5);
}

TEST_CASE("compressed all-reduce: two phases lose nothing over time", "[parallel][compress]") {
    // Σ sent + residuals = Σ gradients: after many equal steps the mean of what was sent is the gradient.
    for (const int ranks : {1, 2, 3, 4}) {
        const index_t n = 1000;
        constexpr int steps = 200;
        std::vector<double> sent(n);
        run_ranks(ranks, [&](threads_communicator& c) {
            two_phase_hook<threads_communicator, sign<>> method(sign{}, n, c.size(), c.rank());
            for (int step = 0; step < steps; ++step) {
                std::vector<float> g = gradient_of(c.rank(), n);
                method.reduce(c, g, {.rank = c.rank(), .step = step});
                if (c.rank() == 0)
                    for (std::size_t i = 0; i < g.size(); ++i) sent[i] += double(g[i]) / steps;
            }
        });
        std::vector<double> whole(n);
        for (int r = 0; r < ranks; ++r) {
            const std::vector<float> g = gradient_of(r, n);
            for (std::size_t i = 0; i < g.size(); ++i) whole[i] += double(g[i]);
        }
        double error = 0, norm = 0;
        for (std::size_t i = 0; i < sent.size(); ++i) {
            error += (sent[i] - whole[i]) * (sent[i] - whole[i]);
            norm += whole[i] * whole[i];
        }
        CHECK(std::sqrt(error / norm) < 0.1);
    }
    for (const index_t n : {index_t{0}, index_t{1}, index_t{5}, index_t{130}})
        reduced(
            3, n,
            [&](auto& c) {
                using C = std::remove_reference_t<decltype(c)>;
                return std::make_unique<two_phase_hook<C, onebit>>(onebit{}, n, c.size(), c.rank());
            },
            3);
}

TEST_CASE("compressed all-reduce: messages in two phases may have other lengths on each rank, in debug mode too",
          "[parallel][compress]") {
    run_ranks(3, [](threads_communicator& threads) {
        checked_communicator<threads_communicator> c(threads.split(0, threads.rank()));
        const index_t n = 4000;
        two_phase_hook<checked_communicator<threads_communicator>, topk<>> method(topk({.ratio = 0.1}), n, c.size(),
                                                                                  c.rank());
        for (int step = 0; step < 3; ++step) {
            std::vector<float> g = gradient_of(c.rank(), n, step);
            method.reduce(c, g, {.seed = 3, .rank = c.rank(), .step = step});
        }
    });
}

TEST_CASE("compressed all-reduce: PowerSGD of full rank is the sum", "[parallel][compress]") {
    const bucket_layout layout{{"w", 0, {6, 5}}, {"b", 32, {6}}};
    for (const int ranks : {1, 2, 4}) {
        const auto got = reduced(ranks, 48, [&](auto& c) {
            using C = std::remove_reference_t<decltype(c)>;
            return std::make_unique<reducing_hook<C, powersgd<>>>(powersgd({.rank = 5}, layout, 48));
        });
        for (index_t i = 0; i < 38; ++i) {
            if (i == 30 || i == 31) continue;  // a gap of the layout
            double whole = 0;
            for (int r = 0; r < ranks; ++r) whole += double(gradient_of(r, 48)[static_cast<std::size_t>(i)]);
            CHECK(double(got[static_cast<std::size_t>(i)]) == Approx(whole).margin(1e-4));
        }
    }
}

TEST_CASE("compressed all-reduce: a step that is skipped leaves what waits in residuals as it was",
          "[parallel][compress]") {
    const auto weights_after = [](bool broken_step) {
        std::vector<float> last;
        run_ranks(3, [&](threads_communicator& c) {
            using method = message_hook<threads_communicator, error_feedback<topk<>>>;
            auto net = lenet<float>();
            arena<float> weights(net.parameters(), 1);
            data_axis<threads_communicator>::config how;
            how.agree.non_finite = non_finite_policy::skip;
            how.gradients.method = [ranks = c.size()](const bucket_layout&, index_t n) {
                return std::make_unique<method>(error_feedback<topk<>>(topk({.ratio = 0.01})), n, ranks);
            };
            data_axis<threads_communicator> all(c, weights, how);
            for (int step = 0; step < 4; ++step) {
                if (step == 2 && !broken_step) continue;
                all.gradients.begin(step);
                const auto g = gradient_of(c.rank(), weights.count(), step);
                std::ranges::copy(g, weights.grads().data());
                if (step == 2 && c.rank() == 1) weights.grads()[7] = std::numeric_limits<float>::quiet_NaN();
                const step_totals t = synchronise(all.gradients, all.agree, {.samples = 1}, step);
                require((t.skip > 0) == (step == 2), "step ", step, ": skip is ", t.skip);
            }
            if (c.rank() == 0) last.assign(weights.grads().data(), weights.grads().data() + weights.count());
        });
        return last;
    };
    CHECK(weights_after(true) == weights_after(false));
}

TEST_CASE("compressed all-reduce: a sum that overflows in 16 bits is found, and no rank takes the step",
          "[parallel][compress]") {
    for (const auto policy : {non_finite_policy::skip, non_finite_policy::stop})
        run_ranks(2, [&](threads_communicator& c) {
            auto net = lenet<float>();
            arena<float> weights(net.parameters(), 1);
            data_axis<threads_communicator>::config how;
            how.agree.non_finite = policy;
            how.gradients.method = [](const bucket_layout&, index_t n) {
                return std::make_unique<message_hook<threads_communicator, fp16<cpu>>>(fp16<cpu>{}, n, 2);
            };
            data_axis<threads_communicator> all(c, weights, how);
            std::string why;
            for (int step = 0; step < 3; ++step) {
                all.gradients.begin(step);
                weights.zero_grad();
                for (auto& [name, p] : weights.parameters())
                    if (name == "fc1/bias") p->grad[3] = step == 1 ? 40000.0f : 30000.0f;  // of at most 65504
                try {
                    const step_totals t = synchronise(all.gradients, all.agree, {.samples = 1}, step);
                    require((t.skip > 0) == (step == 1) && t.samples == 2, "step ", step, ": skip is ", t.skip);
                } catch (const error& e) {
                    why = e.what();
                }
            }
            const char* part =
                "step 1: rank 0 of 2: the ranks' sum of the gradient of fc1/bias (120): element 3 is inf";
            if (policy == non_finite_policy::stop) require(why.find(part) != std::string::npos, "why: ", why);
            if (policy == non_finite_policy::skip) require(why.empty(), why);
        });
}

TEST_CASE("dense gradients are summed by the algorithm that is asked for", "[parallel]") {
    using counted = counting_communicator<threads_communicator>;
    using enum all_reduce_algorithm;
    for (const auto algorithm : {ring, tree, halving_doubling, automatic})
        run_ranks(3, [&](threads_communicator& threads) {
            counted c(threads.split(0, threads.rank()));
            std::vector<float> g(5, float(c.rank() + 1));
            dense_hook<counted>(algorithm).reduce(c, g, {.rank = c.rank()});
            require(g == std::vector<float>(5, 6), "the sum is ", g.front());
            for (const auto& [which, name] : {std::pair{ring, "ring all-reduce"},
                                              {tree, "tree all-reduce"},
                                              {halving_doubling, "halving-doubling all-reduce"}})
                if (algorithm != automatic)
                    require(c.calls().contains(name) == (which == algorithm), name, " for ", name_of(algorithm));
        });
}

TEST_CASE("compression autotuner: the bytes of its model, measured on one rank, are those that ranks send",
          "[parallel][compress]") {
    const index_t n = index_t{1} << 16;
    const bucket_layout layout{{"w", 0, {256, 256}}};
    using counted = counting_communicator<threads_communicator>;
    const auto check = [&](const char* name, exchange kind, int exchanges, auto make) {
        double modelled = 0, sent = 0;
        for (const int ranks : {1, 4})
            run_ranks(ranks, [&](threads_communicator& threads) {
                counted c(threads.split(0, threads.rank()));
                std::vector<float> g = gradient_of(c.rank(), n);
                const exchange_cost cost = make(c)->reduce(c, g, {.rank = c.rank(), .layout = &layout});
                require(cost.exchanges == exchanges, name, ": ", cost.exchanges, " exchanges");
                if (ranks == 1) modelled = exchange_model{0, 1}.seconds(kind, double(cost.bytes), 4, cost.exchanges);
                if (ranks > 1 && c.rank() == 0) sent = double(c.counts().bytes);
            });
        CAPTURE(name);
        CHECK(modelled == Approx(sent).epsilon(0.02));
    };
    check("fp16", exchange::all_reduce, 1,
          [&](counted& c) { return std::make_unique<message_hook<counted, fp16<cpu>>>(fp16<cpu>{}, n, c.size()); });
    check("topk", exchange::all_gather, 1, [&](counted& c) {
        return std::make_unique<message_hook<counted, topk<>>>(topk({.ratio = 0.01}), n, c.size());
    });
    check("sign", exchange::two_phase, 2,
          [&](counted& c) { return std::make_unique<two_phase_hook<counted, sign<>>>(sign{}, n, c.size(), c.rank()); });
    check("powersgd", exchange::all_reduce, 2, [&](counted&) {
        return std::make_unique<reducing_hook<counted, powersgd<>>>(powersgd({.rank = 128}, layout, n));
    });
    const exchange_model starts{1, 0};
    CHECK(starts.seconds(exchange::all_reduce, 1, 4, 2) == 2 * starts.seconds(exchange::all_reduce, 1, 4));
}

TEST_CASE("compression autotuner: what buckets hold back is saved, and sent once by the run that goes on",
          "[parallel][compress]") {
    const auto candidate = [](exchange kind, auto make) {
        return autotune_candidate<any_communicator>{"sparse", kind, make};
    };
    const auto gathered = candidate(exchange::all_gather, [](const bucket_layout&, index_t n, int ranks, int) {
        using method = message_hook<any_communicator, error_feedback<topk<>>>;
        return std::make_unique<method>(error_feedback<topk<>>(topk({.ratio = 0.01})), n, ranks);
    });
    const auto in_two = candidate(exchange::two_phase, [](const bucket_layout&, index_t n, int ranks, int rank) {
        return std::make_unique<two_phase_hook<any_communicator, topk<>>>(topk({.ratio = 0.01}), n, ranks, rank);
    });
    for (const auto& how : {gathered, in_two})
        run_ranks(3, [&](threads_communicator& threads) {
            any_communicator c(threads);
            auto net = lenet<float>();
            arena<float> weights(net.parameters(), 1);
            const auto buckets = make_buckets(weights, index_t{1} << 20);
            const index_t n = buckets[0].size();
            const std::vector<bucket_layout> layouts{{{"all", 0, {n}}}};
            std::vector<double> sent(static_cast<std::size_t>(n)), whole(sent.size());
            autotuned_reduction<any_communicator> before(c, buckets, layouts, {how}, {});
            for (int step = 0; step < 12; ++step) {
                std::vector<float> g = gradient_of(c.rank(), n, step), exact = g;
                const bool dense = before.decisions().chosen(0).dense();
                before.reduce(c, 0, g, {.rank = c.rank(), .step = step}, 0.001);
                all_reduce(c, std::span<float>(exact));
                for (std::size_t i = 0; i < g.size(); ++i) sent[i] += double(g[i]), whole[i] += double(exact[i]);
                before.end_step(c, dense ? 10 : 0.1, 0.05);
            }
            require(before.decisions().compresses(), "the compression autotuner did not compress");
            autotuned_reduction<any_communicator> after(c, buckets, layouts, {how}, {});
            auto from = before.tensors(), to = after.tensors();
            require(from.size() == 1 && from[0].name == to[0].name, "names differ");
            std::ranges::copy(from[0].t.span(), to[0].t.data());
            std::vector<float> rest(static_cast<std::size_t>(n));  // a dense step of zeros
            after.reduce(c, 0, rest, {.rank = c.rank(), .step = 12}, 0.001);
            double worst = 0;
            for (std::size_t i = 0; i < rest.size(); ++i)
                worst = std::max(worst, std::abs(sent[i] + double(rest[i]) - whole[i]));
            require(worst < 1e-4, "what was held back is off by ", worst);
        });
}

TEST_CASE("compression autotuner: all ranks follow one plan, and what they compute is the sum",
          "[parallel][compress]") {
    run_ranks(3, [](threads_communicator& threads) {
        any_communicator c(threads);
        auto net = lenet<float>();
        arena<float> weights(net.parameters(), 1);
        const auto buckets = make_buckets(weights, 60'000, 20'000);
        std::vector<bucket_layout> layouts;
        for (const bucket& b : buckets) layouts.push_back({{"all", 0, {b.size()}}});
        std::vector<autotune_candidate<any_communicator>> candidates;
        candidates.push_back({"bf16", exchange::all_reduce, [](const bucket_layout&, index_t n, int, int) {
                                  return std::make_unique<message_hook<any_communicator, bf16<>>>(bf16{}, n, 3);
                              }});
        autotuned_reduction<any_communicator> autotuned(c, buckets, layouts, std::move(candidates), {});
        require(autotuned.link().beta > 0, "no bandwidth was measured");
        for (int step = 0; step < 12; ++step) {
            for (std::size_t b = 0; b < buckets.size(); ++b) {
                std::vector<float> g = gradient_of(c.rank(), buckets[b].size(), step);
                const std::vector<float> mine = g;
                autotuned.reduce(c, static_cast<int>(b), g, {.rank = c.rank(), .step = step}, 0.001);
                std::vector<float> exact = mine;
                all_reduce(c, std::span<float>(exact));
                for (std::size_t i = 0; i < g.size(); ++i)
                    require(std::abs(g[i] - exact[i]) <= 0.1f, "step ", step, ": ", g[i], " is not ", exact[i]);
            }
            autotuned.end_step(c, step % 2 ? 0.1 : 0.2, 0.05);
        }
        std::vector<std::string> plans = all_gather_text(c, autotuned.describe());
        for (const std::string& plan : plans) require(plan == plans[0], plan, " is not ", plans[0]);
    });
}

}  // namespace cairn
