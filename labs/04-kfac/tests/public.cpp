// The tests that students have.

#include "on_ranks.hpp"
#include "oracle.hpp"
#include "training.hpp"

using lab::matrix;

TEST_CASE("factors: sums over the rows, with a 1 for the bias") {
    const lab::curvature_samples rows = lab::random_rows(20, 4, 3, 10);
    const lab::layer_oracle should(rows);
    const auto sums = lab::call<lab::factor_sums>("sums_of", rows);
    CHECK(sums.examples == 20);
    CHECK(lab::fault(sums.a, should.a) == "");
    CHECK(lab::fault(sums.g, should.g) == "");
    CHECK(lab::fault(lab::call<matrix>("gradient_of", rows), should.gradient) == "");
}

TEST_CASE("average: the first batch counts in full") {
    // Two batches of one number each, ρ = 0.5: the mean is 4 after the first, and (0.5 · 4 + 1) / 1.5 = 2 after the
    // second.
    lab::call<void>("running_factors", 1, 0.5);
    const auto take = [](const lab::factor_sums& sums) {
        return lab::call<std::pair<matrix, matrix>>("running_factors::take", 1, sums);
    };
    const auto batch = [](double sum, double examples) {
        lab::factor_sums sums{matrix(1, 1), matrix(1, 1), examples};
        sums.a(0, 0) = sum;
        sums.g(0, 0) = 10 * sum;
        return sums;
    };
    for (const auto& [sum, examples, mean] : {std::tuple(8.0, 2.0, 4.0), std::tuple(3.0, 3.0, 2.0)}) {
        const auto [a, g] = take(batch(sum, examples));
        REQUIRE(a.values.size() == 1);
        REQUIRE(g.values.size() == 1);
        CHECK(a(0, 0) == Approx(mean).epsilon(1e-14));
        CHECK(g(0, 0) == Approx(10 * mean).epsilon(1e-14));
    }
}

TEST_CASE("eigen form: equals the solution with the whole matrix") {
    const lab::layer_oracle layer(lab::random_rows(30, 4, 3, 20));
    const matrix a = layer.mean_a(), g = layer.mean_g(), gradient = layer.gradient.as_matrix();
    for (const double damping : {1.0, 0.01})
        CHECK(lab::fault(lab::call<matrix>("precondition by eigenvectors", a, g, damping, gradient),
                         lab::exact_direction(a, g, damping, gradient)) == "");
}

TEST_CASE("inverse form: damping is split over both factors") {
    const lab::layer_oracle layer(lab::random_rows(30, 4, 3, 30));
    matrix a = layer.mean_a(), g = layer.mean_g();
    const matrix gradient = layer.gradient.as_matrix();
    for (double& v : a.values) v *= 9;  // a trace of 9 times as much makes π three times as large
    const double pi = std::sqrt((lab::trace(a) / 5) / (lab::trace(g) / 3));
    CHECK(lab::call<double>("pi_of", a, g) == Approx(pi).epsilon(1e-13));
    for (const double damping : {1.0, 0.01})
        CHECK(lab::fault(lab::call<matrix>("precondition by inverses", a, g, damping, gradient),
                         lab::factored_direction(a, g, damping, pi, gradient)) == "");
}

TEST_CASE("clip: one number for all layers") {
    // ⟨V, ∇W⟩ is 2 · 8 in one layer and 4 · 1 in the other, 20 together; lr² · 20 = 0.2.
    const auto one = [](double v) {
        matrix m(1, 1);
        m(0, 0) = v;
        return m;
    };
    const std::vector<matrix> directions{one(2), one(4)}, gradients{one(8), one(1)};
    CHECK(lab::call<double>("clip_scale", directions, gradients, 0.1, 0.05) == Approx(0.5).epsilon(1e-14));
    CHECK(lab::call<double>("clip_scale", directions, gradients, 0.1, 0.2) == Approx(1).epsilon(1e-14));
    CHECK(lab::call<double>("clip_scale", directions, gradients, 0.1, 5) == 1);
}

TEST_CASE("training: reaches the loss of SGD in a fifth of the steps") {
    const lab::problem problem;
    const lab::run sgd = problem.tuned_sgd(600);
    const lab::remote_kfac optimizer({.lr = 0.2, .damping = 1e-4, .clip = 0.02});
    const lab::run kfac = problem.kfac([&](auto&... with) { optimizer.step(with...); }, 120, sgd.loss);
    INFO("SGD with momentum reaches a loss of " << sgd.loss << " in " << sgd.steps << " steps; K-FAC is at "
                                                << kfac.loss << " after " << kfac.steps);
    REQUIRE(std::isfinite(kfac.loss));
    CHECK(kfac.loss <= sgd.loss);
    CHECK(5 * kfac.steps <= sgd.steps);
}

TEST_CASE("K-FAC assignment: layers in a grid of ranks, the largest first") {
    // Costs a³ + g³: 1008, 1000 + 1000, 64 + 64, 729 + 1, 27 + 1.
    const std::vector<lab::layer_sizes> layers{{10, 2}, {10, 10}, {4, 4}, {9, 1}, {3, 1}};
    using table = std::vector<lab::layer_place>;
    CHECK(lab::call<int>("gradient_workers", 4, 0.5) == 2);
    // One column of ranks 0 to 3.
    CHECK(lab::call<lab::kfac_assignment>("assign_layers", 4, 4, layers).layers ==
          table{{0, 1}, {0, 0}, {0, 3}, {0, 2}, {0, 3}});
    // Ranks 0 and 2 are column 0, ranks 1 and 3 column 1.
    const lab::kfac_assignment half = lab::call<lab::kfac_assignment>("assign_layers", 4, 2, layers);
    CHECK(half.ranks == 4);
    CHECK(half.rows == 2);
    CHECK(half.layers == table{{1, 1}, {0, 0}, {1, 3}, {1, 3}, {1, 3}});
    CHECK(lab::call<int>("source", half, 0, 1) == 1);  // a gradient worker of layer 0
    CHECK(lab::call<int>("source", half, 0, 0) == 1);  // has it from the one in its row
    CHECK(lab::call<int>("source", half, 0, 2) == 3);
    // Each rank a column of its own.
    CHECK(lab::call<lab::kfac_assignment>("assign_layers", 4, 1, layers).layers ==
          table{{1, 1}, {0, 0}, {3, 3}, {2, 2}, {3, 3}});
}

TEST_CASE("traffic: what ranks send and keep") {
    const std::vector<lab::layer_sizes> layers{{3, 2}, {5, 1}};
    // Triangles 6 + 3 + 15 + 1 = 25; eigenvectors and values 12 + 6 + 30 + 2 = 50; directions 6 + 5 = 11; averages 9 +
    // 4 + 25 + 1 = 39.
    const lab::kfac_assignment all{.ranks = 4, .rows = 4, .layers = {{0, 0}, {0, 1}}};
    CHECK(lab::call<lab::traffic>("traffic_of", all, layers) == lab::traffic{2 * 3 * 25, 3 * 50, 0});
    CHECK(lab::call<std::int64_t>("kept_by", all, layers, 3) == 39 + 50);
    const lab::kfac_assignment one{.ranks = 4, .rows = 1, .layers = {{1, 1}, {0, 0}}};
    CHECK(lab::call<lab::traffic>("traffic_of", one, layers) == lab::traffic{2 * 3 * 25, 0, 3 * 11});
    CHECK(lab::call<std::int64_t>("kept_by", one, layers, 0) == 39 + 32);
    CHECK(lab::call<std::int64_t>("kept_by", one, layers, 2) == 39);
}

TEST_CASE("ranks: the whole batch's factors, in one message of triangles") {
    const std::vector<lab::layer_sizes> layers{{7, 4}, {5, 6}};  // 28 + 10 + 15 + 21 = 74 numbers, and the examples
    for (const int p : {1, 2, 4}) {
        const auto all = lab::sum_on_ranks(std::vector<std::size_t>(static_cast<std::size_t>(p), 6), layers, 50);
        INFO(lab::text(p, "rank"));
        REQUIRE(all.fault() == "");
        for (const auto& counts : all.counts) CHECK(counts.messages == 2 * (p - 1));
        CHECK(all.bytes() == 2 * (p - 1) * 75 * static_cast<std::int64_t>(sizeof(double)));
    }
}
