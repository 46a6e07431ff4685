// The tests that grade beside the public ones.

#include "../tests/on_ranks.hpp"
#include "../tests/oracle.hpp"
#include "../tests/training.hpp"

#include <limits>

using lab::matrix;

namespace {

std::size_t between(int low, int high, std::uint32_t stream) {
    return static_cast<std::size_t>(lab::number(low, high, stream));
}

}  // namespace

TEST_CASE("factors: any shape and number of examples") {
    std::uint32_t stream = 100;
    for (const std::size_t n : {std::size_t{1}, std::size_t{2}, between(30, 60, 1)})
        for (const std::size_t in : {std::size_t{1}, between(2, 9, 2)})
            for (const std::size_t out : {std::size_t{1}, between(2, 9, 3)}) {
                const lab::curvature_samples rows = lab::random_rows(n, in, out, stream += 2);
                const lab::layer_oracle should(rows);
                const auto sums = lab::call<lab::factor_sums>("sums_of", rows);
                INFO(n << " examples, " << in << " inputs, " << out << " outputs");
                CHECK(sums.examples == static_cast<double>(n));
                CHECK(lab::fault(sums.a, should.a) == "");
                CHECK(lab::fault(sums.g, should.g) == "");
                CHECK(lab::fault(lab::call<matrix>("gradient_of", rows), should.gradient) == "");
            }
}

TEST_CASE("average: batches fade, each by its examples") {
    // By definition Σ ρ^age F_batch / Σ ρ^age.
    const double decay = 0.8;
    lab::call<void>("running_factors", 1, decay);
    lab::expected a(4, 4), g(2, 2);
    double weights = 0;
    for (std::uint32_t k = 0; k < 12; ++k) {
        const lab::layer_oracle batch(lab::random_rows(between(1, 20, 10 + k), 3, 2, 200 + 2 * k));
        const auto [now_a, now_g] = lab::call<std::pair<matrix, matrix>>("running_factors::take", 1, batch.sums());
        weights = decay * weights + 1;
        // Every update rounds a few times, in proportion to the largest mean so far.
        const auto fade = [&](lab::expected& mean, const matrix& now) {
            double largest = 0;
            for (const double v : now.values) largest = std::max(largest, std::abs(v));
            for (std::size_t i = 0; i < mean.values.size(); ++i) {
                mean.values[i] += (now.values[i] - mean.values[i]) / weights;
                mean.bound[i] += lab::rounding_bound<double>(8, largest);
            }
        };
        fade(a, batch.mean_a());
        fade(g, batch.mean_g());
        CHECK(lab::fault(now_a, a) == "");
        CHECK(lab::fault(now_g, g) == "");
    }
}

TEST_CASE("eigen form: one example, where it is the Fisher matrix itself") {
    for (std::uint32_t k = 0; k < 4; ++k) {
        const std::size_t in = between(1, 5, 20 + k), out = between(1, 4, 30 + k);
        const lab::layer_oracle layer(lab::random_rows(1, in, out, 300 + 2 * k));
        const matrix gradient = layer.gradient.as_matrix();
        matrix fisher(gradient.values.size(), gradient.values.size());  // of the gradient as one long vector
        for (std::size_t i = 0; i < fisher.rows; ++i)
            for (std::size_t j = 0; j < fisher.cols; ++j) fisher(i, j) = gradient.values[i] * gradient.values[j];
        const double damping = std::pow(10.0, -static_cast<double>(k));
        const double condition = (lab::trace(fisher) + damping) / damping;
        INFO(in << " inputs, " << out << " outputs, damping " << damping);
        CHECK(lab::fault(
                  lab::call<matrix>("precondition by eigenvectors", layer.mean_a(), layer.mean_g(), damping, gradient),
                  lab::direction(lab::plus_identity(fisher, damping), gradient, condition)) == "");
    }
}

TEST_CASE("inverse form: any shape, and gradients that are zero") {
    for (std::uint32_t k = 0; k < 4; ++k) {
        const std::size_t in = between(1, 5, 40 + k), out = between(1, 4, 50 + k);
        const lab::layer_oracle layer(lab::random_rows(between(1, 20, 60 + k), in, out, 400 + 2 * k));
        const matrix a = layer.mean_a(), gradient = layer.gradient.as_matrix();
        const matrix g = k == 3 ? matrix(out, out) : layer.mean_g();
        const double mean_a = lab::trace(a) / static_cast<double>(a.rows),
                     mean_g = lab::trace(g) / static_cast<double>(g.rows);
        const double pi = k == 3 ? 1 : std::sqrt(mean_a / mean_g), damping = std::pow(10.0, -static_cast<double>(k));
        INFO(in << " inputs, " << out << " outputs, damping " << damping << (k == 3 ? ", G = 0" : ""));
        CHECK(lab::call<double>("pi_of", a, g) == Approx(pi).epsilon(1e-13));
        CHECK(lab::fault(lab::call<matrix>("precondition by inverses", a, g, damping, gradient),
                         lab::factored_direction(a, g, damping, pi, gradient)) == "");
    }
}

TEST_CASE("clip: layers of all sizes, and what must not be clipped") {
    std::vector<matrix> directions, gradients;
    double sum = 0;
    for (std::uint32_t l = 0; l < 3; ++l) {
        gradients.push_back(lab::normal_matrix(between(1, 6, 70 + l), between(2, 6, 80 + l), 500 + l));
        directions.push_back(gradients.back());
        for (double& v : directions.back().values) v *= 1 + l;  // ⟨V, ∇W⟩ > 0 in every layer
        for (const double v : gradients.back().values) sum += (1 + l) * v * v;
    }
    for (const double lr : {0.03, 3.0})
        for (const double clip : {1e-3, 0.1, 1e6}) {
            const double scale = lab::call<double>("clip_scale", directions, gradients, lr, clip);
            CHECK(scale == Approx(std::min(1.0, std::sqrt(clip / (lr * lr * sum)))).epsilon(1e-13));
        }
    for (matrix& v : directions) v = matrix(v.rows, v.cols);
    CHECK(lab::call<double>("clip_scale", directions, gradients, 1, 1e-3) == 1);  // no step at all
}

TEST_CASE("training: with much damping it is gradient descent") {
    // V = ∇W / γ, up to λ / γ of it, λ ≤ tr A tr G the largest eigenvalue.
    const double damping = 1e6, lr = 0.1;
    for (const std::uint32_t stream : {600u, 620u, 640u}) {
        const std::vector<std::size_t> sizes{5, 4, 3};
        lab::network net(sizes, stream);
        const std::vector<matrix> before = net.weights;
        const matrix x = lab::normal_matrix(between(5, 15, stream), 5, stream + 10);
        const matrix targets = lab::normal_matrix(x.rows, 3, stream + 11);
        const auto values = net.forward(x);
        const auto rows = net.backward(values, lab::loss_gradient(values.back(), targets));
        const auto sampled = net.backward(values, lab::sampled_gradient(values.back(), stream + 12, 0));
        lab::remote_kfac({.lr = lr * damping, .damping = damping}).step(net.weights, rows, sampled);
        REQUIRE(net.weights.size() == before.size());
        for (std::size_t l = 0; l < before.size(); ++l) {
            const lab::layer_oracle gradient(rows[l]), curvature(sampled[l]);
            const double off = lab::trace(curvature.mean_a()) * lab::trace(curvature.mean_g()) / damping;
            const double size = lab::norm(gradient.gradient.values);
            lab::expected after(before[l].rows, before[l].cols);
            for (std::size_t i = 0; i < after.values.size(); ++i) {
                after.values[i] = before[l].values[i] - lr * gradient.gradient.values[i];
                after.bound[i] = lr * (off * size + 1e-12 * size + gradient.gradient.bound[i]) +
                                 1e-15 * std::abs(before[l].values[i]);
            }
            CHECK(lab::fault(net.weights[l], after) == "");
        }
    }
}

TEST_CASE("training: every step is the one that the definition says") {
    const lab::kfac_settings settings{.lr = 0.5,
                                      .damping = 0.05,
                                      .clip = 0.01,
                                      .decay = 0.8,
                                      .factor_update_interval = 2,
                                      .inverse_update_interval = 3};
    const std::vector<std::size_t> sizes{3, 2, 2};
    lab::network net(sizes, 700);
    const lab::remote_kfac optimizer(settings);
    const std::size_t layers = net.weights.size();
    std::vector<matrix> a(layers), g(layers), used_a(layers), used_g(layers);
    double weight = 0;
    for (std::size_t step = 0; step < 8; ++step) {
        const auto at = static_cast<std::uint32_t>(step);
        const matrix x = lab::normal_matrix(between(4, 9, 710 + at), 3, 720 + at);
        const matrix targets = lab::normal_matrix(x.rows, 2, 740 + at);
        const auto values = net.forward(x);
        const auto rows = net.backward(values, lab::loss_gradient(values.back(), targets));
        const auto sampled = net.backward(values, lab::sampled_gradient(values.back(), 760, at));
        const std::vector<matrix> before = net.weights;
        optimizer.step(net.weights, rows, sampled);
        REQUIRE(net.weights.size() == layers);

        if (step % settings.factor_update_interval == 0) {
            weight = settings.decay * weight + 1;
            for (std::size_t l = 0; l < layers; ++l) {
                const lab::layer_oracle batch(sampled[l]);
                const auto average = [&](matrix& mean, const matrix& now) {
                    if (mean.values.empty()) mean = matrix(now.rows, now.cols);
                    for (std::size_t i = 0; i < now.values.size(); ++i)
                        mean.values[i] += (now.values[i] - mean.values[i]) / weight;
                };
                average(a[l], batch.mean_a());
                average(g[l], batch.mean_g());
            }
        }
        if (step % settings.inverse_update_interval == 0) used_a = a, used_g = g;
        std::vector<lab::expected> directions;
        double sum = 0, doubt = 0;  // Σ ⟨V, ∇W⟩, and what it may be off by
        for (std::size_t l = 0; l < layers; ++l) {
            const matrix gradient = lab::layer_oracle(rows[l]).gradient.as_matrix();
            directions.push_back(lab::exact_direction(used_a[l], used_g[l], settings.damping, gradient));
            for (std::size_t i = 0; i < gradient.values.size(); ++i) {
                sum += directions[l].values[i] * gradient.values[i];
                doubt += directions[l].bound[i] * std::abs(gradient.values[i]);
            }
        }
        const double scale = std::min(1.0, std::sqrt(settings.clip / (settings.lr * settings.lr * sum)));
        for (std::size_t l = 0; l < layers; ++l) {
            lab::expected after(before[l].rows, before[l].cols);
            for (std::size_t i = 0; i < after.values.size(); ++i) {
                const double v = directions[l].values[i];
                after.values[i] = before[l].values[i] - settings.lr * scale * v;
                after.bound[i] = settings.lr * scale * (directions[l].bound[i] + std::abs(v) * doubt / sum) +
                                 1e-15 * std::abs(before[l].values[i]);
            }
            INFO("step " << step << ", layer " << l);
            REQUIRE(lab::fault(net.weights[l], after) == "");
        }
    }
}

TEST_CASE("K-FAC assignment: any number of ranks, and the nearest fraction") {
    CHECK(lab::call<int>("gradient_workers", 6, 0.6) == 3);
    CHECK(lab::call<int>("gradient_workers", 6, 0.75) == 3);  // 4.5 of 6: 3 and 6 are equally near
    CHECK(lab::call<int>("gradient_workers", 6, 0.01) == 1);
    CHECK(lab::call<int>("gradient_workers", 7, 0.5) == 1);
    CHECK(lab::call<int>("gradient_workers", 7, 1) == 7);
    CHECK(lab::call<int>("gradient_workers", 12, 0.41) == 4);  // 4.92 of 12, between 4 and 6
    CHECK(lab::call<int>("gradient_workers", 12, 0.42) == 6);
    for (int ranks = 1; ranks <= 12; ++ranks)
        for (int rows = 1; rows <= ranks; ++rows) {
            if (ranks % rows != 0) continue;
            const int columns = ranks / rows;
            std::vector<lab::layer_sizes> layers;
            const auto stream = static_cast<std::uint32_t>(1000 + 100 * ranks + 2 * rows);
            for (std::uint32_t l = 0; l < 20; ++l)  // few different sizes: there are equal costs
                layers.push_back({lab::number(1, 9, stream + 10000 * l), lab::number(1, 9, stream + 1 + 10000 * l)});
            // By the definition: whoever is left and costs most goes to the column, then the rank, of the least load.
            const auto cost = [&](std::size_t l) {
                return layers[l].a * layers[l].a * layers[l].a + layers[l].g * layers[l].g * layers[l].g;
            };
            std::vector<lab::layer_place> should(layers.size());
            std::vector<bool> placed(layers.size());
            std::vector<std::int64_t> of_column(static_cast<std::size_t>(columns)),
                of_rank(static_cast<std::size_t>(ranks));
            for (std::size_t round = 0; round < layers.size(); ++round) {
                std::size_t next = layers.size();
                for (std::size_t l = 0; l < layers.size(); ++l)
                    if (!placed[l] && (next == layers.size() || cost(l) > cost(next))) next = l;
                int column = 0;
                for (int c = 1; c < columns; ++c)
                    if (of_column[static_cast<std::size_t>(c)] < of_column[static_cast<std::size_t>(column)])
                        column = c;
                int worker = column;
                for (int r = column; r < ranks; r += columns)
                    if (of_rank[static_cast<std::size_t>(r)] < of_rank[static_cast<std::size_t>(worker)]) worker = r;
                should[next] = {column, worker};
                placed[next] = true;
                of_column[static_cast<std::size_t>(column)] += cost(next);
                of_rank[static_cast<std::size_t>(worker)] += cost(next);
            }
            const lab::kfac_assignment got = lab::call<lab::kfac_assignment>("assign_layers", ranks, rows, layers);
            INFO(lab::text(ranks, "rank") << ", " << rows << " gradient workers");
            REQUIRE(got.ranks == ranks);
            REQUIRE(got.rows == rows);
            REQUIRE(got.layers == should);
            for (std::size_t l = 0; l < layers.size(); ++l)
                for (int rank = 0; rank < ranks; ++rank) {
                    int from = 0;  // the rank of the layer's column in the row of `rank`
                    while (from % columns != should[l].column || from / columns != rank / columns) ++from;
                    REQUIRE(lab::call<int>("source", got, l, rank) == from);
                }
        }
}

TEST_CASE("traffic: counted message by message") {
    for (const int ranks : {1, 2, 6, 8})
        for (int rows = 1; rows <= ranks; ++rows) {
            if (ranks % rows != 0) continue;
            const int columns = ranks / rows;
            lab::kfac_assignment p{.ranks = ranks, .rows = rows, .layers = {}};
            std::vector<lab::layer_sizes> layers;
            lab::traffic should;
            std::vector<std::int64_t> kept(static_cast<std::size_t>(ranks));
            for (std::uint32_t l = 0; l < 5; ++l) {
                const auto stream = static_cast<std::uint32_t>(5000 + 100 * ranks + 10 * rows + static_cast<int>(l));
                const lab::layer_sizes sizes{lab::number(1, 500, stream), lab::number(1, 500, stream + 20000)};
                const int column = lab::number(0, columns - 1, stream + 40000);
                const int worker = column + columns * lab::number(0, rows - 1, stream + 60000);
                layers.push_back(sizes);
                p.layers.push_back({column, worker});
                std::int64_t triangles = 0, squares = sizes.a * sizes.a + sizes.g * sizes.g;
                for (std::int64_t i = 1; i <= sizes.a; ++i) triangles += i;
                for (std::int64_t i = 1; i <= sizes.g; ++i) triangles += i;
                const std::int64_t decomposed = squares + sizes.a + sizes.g;
                // A ring: each of the parts, together all numbers, goes P − 1 times round to be summed and as often as
                // a sum.
                for (int times = 0; times < 2 * (ranks - 1); ++times) should.factors += triangles;
                for (int rank = 0; rank < ranks; ++rank) {
                    const bool works = rank % columns == column;
                    kept[static_cast<std::size_t>(rank)] += squares + (works ? decomposed : 0);
                    if (works && rank != worker) should.decompositions += decomposed;
                    if (!works) should.directions += sizes.a * sizes.g;
                }
            }
            const lab::traffic got = lab::call<lab::traffic>("traffic_of", p, layers);
            INFO(lab::text(ranks, "rank") << ", " << rows << " gradient workers");
            CHECK(got.factors == should.factors);
            CHECK(got.decompositions == should.decompositions);
            CHECK(got.directions == should.directions);
            for (int rank = 0; rank < ranks; ++rank)
                CHECK(lab::call<std::int64_t>("kept_by", p, layers, rank) == kept[static_cast<std::size_t>(rank)]);
        }
}

TEST_CASE("ranks: parts of the batch that are not alike") {
    for (const int p : {2, 3, 5}) {
        std::vector<std::size_t> examples;
        for (int r = 0; r < p; ++r) examples.push_back(between(1, 30, 900 + static_cast<std::uint32_t>(10 * p + r)));
        examples[0] += 40;  // at least two ranks differ
        std::vector<lab::layer_sizes> layers;
        for (std::uint32_t l = 0; l < 3; ++l)
            layers.push_back({lab::number(2, 9, 950 + l), lab::number(1, 9, 960 + l)});
        const auto all = lab::sum_on_ranks(examples, layers, 2000);
        INFO(p << " ranks");
        REQUIRE(all.fault() == "");
        CHECK(all.bytes() == 2 * (p - 1) * (all.triangles + 1) * static_cast<std::int64_t>(sizeof(double)));
        CHECK(all.disagreement() == "");
    }
}
