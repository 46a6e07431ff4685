// pdADMM: objective, duals, layers over ranks to the bit, bytes, codecs, and a rank that is gone.

#include "admm/chains.hpp"
#include "catch.hpp"
#include "messages.hpp"

#include <cairn/admm/anderson.hpp>
#include <cairn/admm/dladmm.hpp>
#include <cairn/admm/pdadmm.hpp>
#include <cairn/comm/threads.hpp>
#include <cairn/compress/bf16.hpp>
#include <cairn/compress/error_bounded.hpp>
#include <cairn/compress/feedback.hpp>
#include <cairn/compress/qsgd.hpp>
#include <cairn/compress/topk.hpp>
#include <cairn/device/autotune.hpp>

#include <mutex>

namespace admm_pdadmm_tests {

using namespace admm_tests;
using namespace cairn::admm;

TEST_CASE("pdadmm: the objective falls, constraints close, and u is nu (q - relu z)", "[admm]") {
    for (const auto solver : {block_solver::exact, block_solver::gradient}) {
        network n = small_mlp({6, 24, 16, 4});
        const tensor<double> x = normals({200, 6}, 1);
        pdadmm<double> algorithm(n.layers(), {.rho = 4e-2, .nu = 1e-2, .mu = 1e-5, .solver = solver}, x.clone(),
                                 classes_of(x, 4));
        double last = algorithm.evaluate().total();
        for (int i = 0; i < 12; ++i) {
            const objective_terms now = algorithm.iterate();
            CHECK(now.total() <= last * (1 + 1e-9));
            CHECK(now.total() == Approx(algorithm.evaluate().total()));
            last = now.total();
            for (std::size_t l = 0; l < 2; ++l)
                for (index_t j = 0; j < algorithm.copy(l).size(); j += 41)
                    CHECK(algorithm.dual(l)[j] ==
                          Approx(1e-2 * (algorithm.copy(l)[j] - std::max(algorithm.hidden(l)[j], 0.0))).margin(1e-12));
            CHECK(now.residual < 0.05);
        }
    }
}

// p_L moves before W_L does. Where W_L has not seen the labels by then it learns them from that movement, of which a
// forward pass knows nothing.
TEST_CASE("pdadmm: the weights of the output read features, not labels", "[admm]") {
    network n = small_mlp({6, 24, 16, 4});
    const tensor<double> x = normals({200, 6}, 1);
    const output_loss<double> loss = classes_of(x, 4);
    pdadmm<double> algorithm(n.layers(), {.rho = 4e-2, .nu = 1e-2, .mu = 1e-5}, x.clone(),
                             {loss.labels.share(), loss.targets.share()});
    for (int i = 0; i < 4; ++i) {
        algorithm.iterate();
        CAPTURE(i, loss.value(n.output(x)));
        CHECK(loss.value(n.output(x)) < 0.6 * 200 * std::log(4.0));  // 1: guesses; without the first step above 1
    }
}

// Everything that a run leaves on all ranks together.
struct outcome {
    std::vector<double> weights, objectives;
    index_t bytes = 0;
    bool operator==(const outcome& o) const { return weights == o.weights && objectives == o.objectives; }
};

template <class T>
tensor<T> as(const tensor<double>& x) {
    tensor<T> y(x.shape());
    for (index_t i = 0; i < x.size(); ++i) y[i] = static_cast<T>(x[i]);
    return y;
}

template <class T>
outcome run(int ranks, const pdadmm_config& config, int iterations, bool accelerated = false) {
    const tensor<double> x = normals({64, 6}, 1);
    const output_loss<double> of_all = classes_of(x, 4);
    autotune_cache::global().set_policy(autotune_policy::first);
    outcome all;
    std::mutex one_at_a_time;
    std::vector<std::vector<double>> weights(static_cast<std::size_t>(ranks));
    run_ranks(ranks, {.kernel_threads = 1, .time_limit = 30}, [&](threads_communicator& c) {
        sequential<T> net = mlp<T>({6, 12, 10, 8, 4});
        arena<T> memory(net.parameters(), 3);
        auto layers = split_chain(net, {1, 6}, "pdadmm");
        const range mine = shard_of(std::ssize(layers), c.size(), c.rank());
        std::vector<split_layer<T>> here;
        for (index_t l = mine.begin; l < mine.end(); ++l)
            here.push_back(std::move(layers[static_cast<std::size_t>(l)]));
        pdadmm<T, threads_communicator> algorithm(std::move(here), config, as<T>(x),
                                                  output_loss<T>{of_all.labels.share(), {}}, &c);
        std::optional<anderson<pdadmm<T, threads_communicator>, T>> fast;
        if (accelerated) fast.emplace(algorithm);
        std::vector<double> objectives;
        for (int i = 0; i < iterations; ++i)
            objectives.push_back(fast ? fast->iterate().total() : algorithm.iterate().total());
        const std::scoped_lock lock(one_at_a_time);
        for (const auto& v : algorithm.variables())
            if (v.is_weight)
                for (const T w : v.value.span())
                    weights[static_cast<std::size_t>(c.rank())].push_back(static_cast<double>(w));
        all.bytes += algorithm.bytes_sent();
        if (c.rank() == 0) all.objectives = objectives;
    });
    for (const auto& w : weights) all.weights.insert(all.weights.end(), w.begin(), w.end());
    return all;
}

TEST_CASE("pdadmm: layers over ranks give the bits of one rank, and send what the formula says", "[admm]") {
    const pdadmm_config config{.rho = 4e-2, .nu = 1e-2, .mu = 1e-4};
    const int iterations = 5;
    const outcome alone = run<double>(1, config, iterations);
    CHECK(alone.bytes == 0);
    for (const int ranks : {2, 4}) {
        const outcome shared = run<double>(ranks, config, iterations);
        CHECK(shared == alone);
        // Four layers of 12, 10, 8 and 4: q once at the start, then q and p each iteration.
        const index_t widths = ranks == 2 ? 10 : 12 + 10 + 8;
        CHECK(shared.bytes == (2 * iterations + 1) * 64 * widths * static_cast<index_t>(sizeof(double)));
    }
    pdadmm_config relaxed = config;
    relaxed.relaxation = 1.5;
    CHECK(run<double>(3, relaxed, 3) == run<double>(1, relaxed, 3));
    CHECK_FALSE(run<double>(1, relaxed, 3) == run<double>(1, config, 3));
    CHECK(run<double>(2, config, 6, true) == run<double>(1, config, 6, true));
    pdadmm_config growing = config;
    growing.schedule = {rho_rule::growing, 2, 1};
    CHECK(run<double>(2, growing, 6, true) == run<double>(1, growing, 6, true));
}

TEST_CASE("pdadmm: quantised p and q train alike on any number of ranks, in fewer bytes", "[admm]") {
    pdadmm_config config{.rho = 1e-2, .nu = 1e-2, .mu = 1e-2};
    const outcome plain = run<float>(1, config, 8);
    const index_t dense = run<float>(2, config, 8).bytes;
    for (const auto& codec :
         {codec_of(bf16<cpu>{}), codec_of(qsgd<cpu>({.levels = 127})), codec_of(error_bounded({.bound = 1e-3}))}) {
        config.codec = codec;
        const outcome alone = run<float>(1, config, 8), shared = run<float>(2, config, 8);
        INFO(codec.name);
        CHECK(shared == alone);
        CHECK(shared.bytes < dense);
        CHECK_FALSE(alone == plain);
        CHECK(alone.objectives.back() < 1.5 * plain.objectives.back());
    }
    CHECK(test::contains(test::message_of([] { codec_of(error_feedback<topk<cpu>>(topk<cpu>({.ratio = 0.1}))); }),
                         "keeps a residual"));
}

TEST_CASE("pdadmm: labels and targets that do not fit the output are refused", "[admm]") {
    check_refuses_what_does_not_fit<pdadmm<double>>("pdadmm");
}

TEST_CASE("pdadmm: a rank that dies is named, and the others do not hang", "[admm]") {
    const tensor<double> x = normals({16, 6}, 1);
    const std::string said = test::message_of([&] {
        run_ranks(3, {.kernel_threads = 1, .time_limit = 20}, [&](threads_communicator& c) {
            network n = small_mlp();
            auto layers = n.layers();
            std::vector<split_layer<double>> mine;
            mine.push_back(std::move(layers[static_cast<std::size_t>(c.rank())]));
            pdadmm<double, threads_communicator> algorithm(std::move(mine), {}, x.clone(), classes_of(x, 4), &c);
            algorithm.iterate();
            if (c.rank() == 1) fail("rank 1 has lost its power");
            algorithm.iterate();
        });
    });
    CHECK(test::contains(said, "lost its power"));
    const std::string waits = test::message_of([&] {
        run_ranks(2, {.kernel_threads = 1, .time_limit = 1}, [&](threads_communicator& c) {
            network n = small_mlp();
            auto layers = n.layers();
            std::vector<split_layer<double>> mine;
            for (int l = c.rank() == 0 ? 0 : 1; l < (c.rank() == 0 ? 1 : 3); ++l)
                mine.push_back(std::move(layers[static_cast<std::size_t>(l)]));
            pdadmm<double, threads_communicator> algorithm(std::move(mine), {}, x.clone(), classes_of(x, 4), &c);
            if (c.rank() == 0) algorithm.iterate();
        });
    });
    CHECK(test::contains(waits, "pdadmm: iteration 1"));
    CHECK(test::contains(waits, "p of layer fc2 from rank 1"));
}

// Iterations until the objective is at most `goal`.
template <class A>
int iterations_to(A& algorithm, double goal, int most) {
    for (int i = 1; i <= most; ++i)
        if (algorithm.iterate().total() <= goal) return i;
    return most + 1;
}

TEST_CASE("admm: Anderson's acceleration needs at most two thirds of the iterations", "[admm]") {
    const tensor<double> x = normals({200, 6}, 1);
    const auto parallel = [&](auto&& use) {
        network n = small_mlp({6, 24, 16, 4});
        pdadmm<double> algorithm(n.layers(), {.rho = 4e-2, .nu = 1e-2, .mu = 1e-5}, x.clone(), classes_of(x, 4));
        return use(algorithm);
    };
    const auto serial = [&](auto&& use) {
        network n = small_mlp({6, 24, 16, 4});
        dladmm<double> algorithm(n.layers(), {.rho = 1e-2, .mu = 1e-5}, x.clone(), classes_of(x, 4));
        return use(algorithm);
    };
    const auto compare = [&](auto&& problem) {
        const int plain = 24;
        const double goal = problem([&](auto& a) {
            double last = 0;
            for (int i = 0; i < plain; ++i) last = a.iterate().total();
            return last;
        });
        const int fast = problem([&](auto& a) {
            anderson<std::remove_reference_t<decltype(a)>, double> accelerated(a);
            return iterations_to(accelerated, goal, plain);
        });
        INFO("accelerated: " << fast << " iterations, plain: " << plain);
        CHECK(3 * fast <= 2 * plain);
    };
    compare(parallel);
    compare(serial);
}

// An objective grows with ρ and ν: at those of two iterations the accelerated step would always lose.
TEST_CASE("admm: Anderson's steps are judged at the rho that an iteration leaves, and kept while it grows", "[admm]") {
    const tensor<double> x = normals({200, 6}, 1);
    const auto check = [&](auto& algorithm) {
        using A = std::remove_reference_t<decltype(algorithm)>;
        anderson<A, double> accelerated(algorithm);
        for (int i = 0; i < 8; ++i)
            CHECK(accelerated.iterate().total() == Approx(algorithm.evaluate().total()).epsilon(1e-9));
        INFO(A::name << ": kept " << accelerated.kept() << " of 7");
        CHECK(accelerated.kept() > 0);
    };
    const rho_schedule growing{rho_rule::growing, 10, 1e9};
    network n = small_mlp({6, 24, 16, 4}), other = small_mlp({6, 24, 16, 4});
    pdadmm<double> parallel(n.layers(), {.rho = 4e-2, .nu = 1e-2, .mu = 1e-5, .schedule = growing}, x.clone(),
                            classes_of(x, 4));
    dladmm<double> serial(other.layers(), {.rho = 1e-2, .mu = 1e-5, .schedule = growing}, x.clone(), classes_of(x, 4));
    check(parallel);
    check(serial);
}

}  // namespace admm_pdadmm_tests
