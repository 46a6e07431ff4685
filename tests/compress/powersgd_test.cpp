#include "compress/compressor_laws.hpp"

#include <cairn/compress/powersgd.hpp>
#include <cairn/compress/powersgd_alternating.hpp>

#include <barrier>
#include <thread>

namespace laws {

namespace {

/// Runs body(rank, sum) on threads; sum adds in order of rank, so that all get the same bits.
template <class Body>
void on_ranks(int ranks, Body body) {
    std::barrier meet(ranks);
    std::vector<std::span<float>> parts(static_cast<std::size_t>(ranks));
    std::vector<std::thread> all;
    for (int r = 0; r < ranks; ++r)
        all.emplace_back([&, r] {
            body(r, [&, r](std::span<float> x) {
                parts[static_cast<std::size_t>(r)] = x;
                meet.arrive_and_wait();
                floats total(x.size());
                for (const auto& part : parts)
                    for (std::size_t i = 0; i < total.size(); ++i) total[i] += part[i];
                meet.arrive_and_wait();
                std::copy(total.begin(), total.end(), x.begin());
            });
        });
    for (std::thread& t : all) t.join();
}

const auto alone = [](std::span<float>) {};

/// A layout with everything: two matrices of one shape, a filter bank, vectors, gaps, a matrix too small to compress.
const bucket_layout mixed{{"a/weight", 0, {40, 30}},         {"a/bias", 1200, {40}}, {"b/weight", 1248, {40, 30}},
                          {"c/weight", 2448, {16, 3, 3, 8}}, {"tiny", 3600, {2, 2}}, {"d/bias", 3616, {5}}};
const index_t mixed_size = 3632;

/// Sum of `rank` outer products of normal vectors.
void fill_low_rank(float* m, index_t rows, index_t cols, int rank, std::uint32_t stream) {
    std::fill_n(m, rows * cols, 0.0f);
    for (int k = 0; k < rank; ++k) {
        const floats u = numbers("normal", rows, stream + 2 * static_cast<std::uint32_t>(k)),
                     v = numbers("normal", cols, stream + 2 * static_cast<std::uint32_t>(k) + 1);
        for (index_t i = 0; i < rows; ++i)
            for (index_t j = 0; j < cols; ++j)
                m[i * cols + j] += u[static_cast<std::size_t>(i)] * v[static_cast<std::size_t>(j)];
    }
}

floats low_rank_bucket(int rank, std::uint32_t stream) {
    floats g = numbers("normal", mixed_size, stream);
    fill_low_rank(g.data(), 40, 30, rank, stream + 100);
    fill_low_rank(g.data() + 1248, 40, 30, rank, stream + 200);
    fill_low_rank(g.data() + 2448, 16, 72, rank, stream + 300);
    return g;
}

template <class C>
void check_steps(int ranks) {
    CAPTURE(ranks);
    std::vector<C> all;
    for (int r = 0; r < ranks; ++r) all.emplace_back(powersgd_config{2}, mixed, mixed_size);
    std::vector<floats> mean(static_cast<std::size_t>(ranks), floats(static_cast<std::size_t>(mixed_size)));
    std::vector<double> sent(static_cast<std::size_t>(mixed_size)), wanted(sent);
    for (int t = 0; t < 12; ++t) {
        std::vector<floats> g;
        for (int r = 0; r < ranks; ++r)
            g.push_back(numbers("normal", mixed_size, static_cast<std::uint32_t>(10 + t * ranks + r)));
        on_ranks(ranks, [&](int r, auto sum) {
            const auto k = static_cast<std::size_t>(r);
            all[k].reduce(g[k], mean[k], ranks, {.seed = 4, .rank = r, .step = t}, sum);
        });
        for (int r = 1; r < ranks; ++r) REQUIRE(mean[static_cast<std::size_t>(r)] == mean[0]);
        for (std::size_t i = 0; i < sent.size(); ++i) {
            sent[i] += mean[0][i] / static_cast<double>(ranks);  // what is reduced is the sum
            for (const floats& x : g) wanted[i] += x[i] / static_cast<double>(ranks);
        }
    }
    double off = 0, residual = 0;
    for (std::size_t i = 0; i < sent.size(); ++i) {
        double e = 0;
        for (C& c : all) e += c.tensors().back().t[static_cast<index_t>(i)] / static_cast<double>(ranks);
        off = std::max(off, std::abs(sent[i] + e - wanted[i]));
        residual = std::max(residual, std::abs(e));
    }
    CHECK(off < 1e-4);
    CHECK(residual > 0.1);
    // Values outside of matrices are the exact mean.
    for (const index_t i : {index_t{1200}, index_t{1239}, index_t{1243}, index_t{3601}, index_t{3631}})
        CHECK(sent[static_cast<std::size_t>(i)] == Approx(wanted[static_cast<std::size_t>(i)]).margin(1e-5));
}

}  // namespace

TEST_CASE("powersgd: the parts of a bucket and what is exchanged", "[powersgd]") {
    static_assert(ReducingCompressor<powersgd<>> && ReducingCompressor<powersgd_alternating<>>);
    const powersgd c({2}, mixed, mixed_size);
    REQUIRE(c.plan().matrices.size() == 3);
    REQUIRE(c.plan().matrices[2].rows == 16);
    REQUIRE(c.plan().matrices[2].cols == 72);
    const index_t dense = 48 + 32;  // biases, the small matrix and gaps
    REQUIRE(c.plan().dense_size == dense);
    REQUIRE(c.exchanged() == 2 * (40 + 30) * 2 + (16 + 72) * 2 + dense);
    REQUIRE(powersgd_alternating({2}, mixed, mixed_size).exchanged() == 2 * 30 * 2 + 72 * 2 + dense);
    REQUIRE_THROWS_WITH(powersgd({2}, {{"w", 0, {4, 5}}}, 19), Catch::Contains("w (4, 5) at 0 does not fit"));
    REQUIRE_THROWS_AS(powersgd({2}, {{"v", 8, {4}}, {"w", 0, {4}}}, 19), error);
    REQUIRE_THROWS_AS(powersgd({0}, mixed, mixed_size), error);
    powersgd empty({2}, {}, 0);
    REQUIRE_NOTHROW(empty.reduce({}, {}, 1, {}, alone));
}

TEST_CASE("powersgd is exact, to rounding, where the rank is enough", "[powersgd]") {
    for (const int ranks : {1, 2, 3}) {
        // The sum of the ranks' matrices has the sum of their ranks.
        std::vector<floats> g, mean(static_cast<std::size_t>(ranks), floats(static_cast<std::size_t>(mixed_size)));
        for (int r = 0; r < ranks; ++r) g.push_back(low_rank_bucket(1, static_cast<std::uint32_t>(1000 * (r + 1))));
        floats wanted(static_cast<std::size_t>(mixed_size));
        for (const floats& x : g)
            for (std::size_t i = 0; i < x.size(); ++i) wanted[i] += x[i];
        on_ranks(ranks, [&](int r, auto sum) {
            const auto k = static_cast<std::size_t>(r);
            powersgd c({4}, mixed, mixed_size);
            c.reduce(g[k], mean[k], ranks, {.seed = 2, .rank = r}, sum);
        });
        CHECK(squares(difference(mean[0], wanted)) < 1e-9 * squares(wanted));
    }
    powersgd_alternating c({2}, mixed, mixed_size);
    const floats g = low_rank_bucket(2, 77);
    floats mean(g.size()), total(g.size());
    for (int t = 0; t < 2; ++t) {  // the second half step knows the columns
        c.reduce(g, mean, 1, {.step = t}, alone);
        for (std::size_t i = 0; i < g.size(); ++i) total[i] += mean[i] / 2;
    }
    CHECK(squares(difference(total, g)) < 1e-9 * squares(g));
}

TEST_CASE("powersgd loses nothing, and all ranks agree", "[powersgd]") {
    for (const int ranks : {1, 2, 3}) {
        check_steps<powersgd<>>(ranks);
        check_steps<powersgd_alternating<>>(ranks);
    }
}

// One step from a Q that is given, in double and plain loops.
TEST_CASE("powersgd is its formula", "[powersgd]") {
    const index_t rows = 23, cols = 17, r = 3;
    const bucket_layout layout{{"w", 0, {rows, cols}}};
    powersgd c({3}, layout, rows * cols);
    const floats g = numbers("normal", rows * cols, 5), q0 = numbers("normal", r * cols, 6);
    auto state = c.tensors();
    REQUIRE(state[0].name == "q");
    std::copy(q0.begin(), q0.end(), state[0].t.data());
    floats mean(g.size());
    c.reduce(g, mean, 1, {}, alone);

    using matrix = std::vector<std::vector<double>>;
    const auto m = [&](index_t i, index_t j) { return double{g[static_cast<std::size_t>(i * cols + j)]}; };
    matrix p(3, std::vector<double>(23)), q(3, std::vector<double>(17));
    for (std::size_t k = 0; k < 3; ++k)
        for (index_t i = 0; i < rows; ++i)
            for (index_t j = 0; j < cols; ++j)
                p[k][static_cast<std::size_t>(i)] += m(i, j) * q0[k * 17 + static_cast<std::size_t>(j)];
    for (std::size_t k = 0; k < 3; ++k) {
        for (std::size_t d = 0; d < k; ++d) {
            double along = 0;
            for (std::size_t i = 0; i < 23; ++i) along += p[k][i] * p[d][i];
            for (std::size_t i = 0; i < 23; ++i) p[k][i] -= along * p[d][i];
        }
        double norm = 0;
        for (double v : p[k]) norm += v * v;
        for (double& v : p[k]) v /= std::sqrt(norm);
    }
    for (std::size_t k = 0; k < 3; ++k)
        for (index_t i = 0; i < rows; ++i)
            for (index_t j = 0; j < cols; ++j)
                q[k][static_cast<std::size_t>(j)] += m(i, j) * p[k][static_cast<std::size_t>(i)];
    for (std::size_t i = 0; i < 23; ++i)
        for (std::size_t j = 0; j < 17; ++j) {
            double wanted = 0;
            for (std::size_t k = 0; k < 3; ++k) wanted += p[k][i] * q[k][j];
            REQUIRE(mean[i * 17 + j] == Approx(wanted).margin(1e-5));
            REQUIRE(c.tensors()[1].t[static_cast<index_t>(i * 17 + j)] == Approx(g[i * 17 + j] - wanted).margin(1e-5));
        }
}

TEST_CASE("powersgd: the warm start finds the best subspace", "[powersgd]") {
    // Singular values 1, 1/2, 1/3, … on the diagonal: the best approximation of rank 2 leaves the others.
    const index_t n = 20;
    floats g(400), mean(400);
    double best = 0;
    for (index_t i = 0; i < n; ++i) {
        g[static_cast<std::size_t>(i * 21)] = 1.0f / static_cast<float>(i + 1);
        if (i >= 2) best += 1.0 / static_cast<double>((i + 1) * (i + 1));
    }
    powersgd c({2}, {{"w", 0, {n, n}}}, n * n);
    double first = 0, last = 0;
    for (int t = 0; t < 60; ++t) {
        auto residual = c.tensors()[1].t.span();
        std::fill(residual.begin(), residual.end(), 0.0f);
        c.reduce(g, mean, 1, {.seed = 1, .step = t}, alone);
        last = squares(difference(g, mean));
        if (t == 0) first = last;
    }
    CHECK(first > 1.2 * best);
    CHECK(last == Approx(best).epsilon(1e-3));
}

TEST_CASE("powersgd recovers from gradients of zeros and of lower rank", "[powersgd]") {
    const bucket_layout layout{{"w", 0, {12, 10}}};
    // The alternating variant sends what one half step lost in the next: its residual stays small instead.
    const auto check = [&](auto c, double bound) {
        floats mean(120), zeros(120), g(120);
        std::int64_t t = 0;
        c.reduce(zeros, mean, 1, {.step = t++}, alone);
        REQUIRE(mean == zeros);
        for (const int rank : {1, 2}) {
            fill_low_rank(g.data(), 12, 10, rank, 3 + static_cast<std::uint32_t>(rank));
            for (int k = 0; k < 9; ++k) c.reduce(g, mean, 1, {.step = t++}, alone);
            const auto residual = c.tensors().back().t.span();
            CHECK(squares(floats(residual.begin(), residual.end())) < bound * squares(g));
            for (float v : mean) REQUIRE(std::isfinite(v));
        }
    };
    check(powersgd({2}, layout, 120), 1e-9);
    check(powersgd_alternating({2}, layout, 120), 0.2);
}

TEST_CASE("powersgd: equal bits on 1 and 2 threads, in place, errors with the state kept", "[powersgd]") {
    const bucket_layout layout{{"w", 0, {300, 400}}, {"b", 120000, {300}}, {"v", 120320, {70, 2100}}};
    const index_t n = 120320 + 147000;
    const floats g = numbers("normal", n);
    std::vector<floats> results;
    on_threads([&] {
        powersgd c({3}, layout, n);
        floats mean(g);
        for (int t = 0; t < 3; ++t) {
            mean = g;
            c.reduce(mean, mean, 1, {.step = t}, alone);
        }
        results.push_back(mean);
    });
    REQUIRE(results[0] == results[1]);

    powersgd c({3}, layout, n);
    floats bad(g), mean(g.size());
    bad[120001] = std::nanf("");
    int calls = 0;
    REQUIRE_THROWS_WITH(c.reduce(bad, mean, 1, {.layout = &layout}, [&](std::span<float>) { ++calls; }),
                        Catch::Contains("element 1 of b (300) is nan"));
    REQUIRE(calls == 0);
    REQUIRE_THROWS_AS(c.reduce(floats(5), mean, 1, {}, alone), error);
}

TEST_CASE("rows are made orthonormal, dependent ones zero", "[powersgd]") {
    floats rows = numbers("normal", 5 * 50);
    for (std::size_t i = 0; i < 50; ++i) {
        rows[100 + i] = 2 * rows[i] - rows[50 + i];  // depends on the first two
        rows[150 + i] = 0;
        rows[200 + i] = rows[i] * 1e4f + rows[200 + i];  // nearly the first
    }
    orthonormalise(5, 50, rows.data());
    for (std::size_t a = 0; a < 5; ++a)
        for (std::size_t b = 0; b < 5; ++b) {
            double dot = 0;
            for (std::size_t i = 0; i < 50; ++i) dot += double{rows[50 * a + i]} * rows[50 * b + i];
            const bool zero = a == 2 || a == 3 || b == 2 || b == 3;
            CHECK(dot == Approx(a == b && !zero ? 1.0 : 0.0).margin(2e-6));
        }
}

}  // namespace laws
