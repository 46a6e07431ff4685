// The tests that grade beside the public ones.

#include "../tests/ranks.hpp"
#include "../tests/regression.hpp"

#include <numeric>

namespace {

using lab::arrays;
using lab::view;

/// The k positions of largest magnitude, of equal ones the lowest, rising.
std::vector<std::uint32_t> largest(const std::vector<float>& x, std::size_t k) {
    std::vector<std::uint32_t> all(x.size());
    std::iota(all.begin(), all.end(), 0u);
    std::stable_sort(all.begin(), all.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return std::abs(x[a]) > std::abs(x[b]); });
    all.resize(k);
    std::sort(all.begin(), all.end());
    return all;
}

/// Checks encode, decode and the contract of topk for these values.
void check_top(const std::vector<float>& x, double ratio, std::size_t k) {
    INFO(x.size() << " values, ratio " << ratio << ", k = " << k);
    REQUIRE(lab::call<std::size_t>("topk::count", ratio, x.size()) == k);
    const auto message = lab::call<lab::bytes>("topk::encode", ratio, x);
    const std::vector<std::uint32_t> expected = largest(x, k);
    REQUIRE(lab::fault_of_top(message, x, expected) == "");
    std::vector<float> kept(x.size());
    for (const std::uint32_t at : expected) kept[at] = x[at];
    const auto after = lab::call<std::vector<float>>("topk::decode", ratio, message, x.size());
    REQUIRE(after.size() == x.size());
    CHECK(lab::unlike(after, kept) == "");
    const double delta = lab::call<double>("topk::contraction", ratio, x.size());
    CHECK(lab::unlike(delta, x.empty() ? 1 : static_cast<double>(k) / static_cast<double>(x.size())) == "");
    // Sums of n squares in double.
    CHECK(lab::square(view(x), view(after)) <= (1 - delta) * lab::square(view(x)) * (1 + 1e-9));
}

/// `count` orthonormal rows of length n, in double.
std::vector<std::vector<double>> orthonormal(std::size_t count, std::size_t n, std::uint32_t stream) {
    std::vector<std::vector<double>> rows;
    for (std::size_t c = 0; c < count; ++c) {
        std::vector<double> v = lab::numbers<double>(n, stream + static_cast<std::uint32_t>(c));
        for (int twice = 0; twice < 2; ++twice)
            for (const auto& w : rows) {
                const double along = std::inner_product(v.begin(), v.end(), w.begin(), 0.0);
                for (std::size_t i = 0; i < n; ++i) v[i] -= along * w[i];
            }
        const double length = std::sqrt(std::inner_product(v.begin(), v.end(), v.begin(), 0.0));
        for (double& e : v) e /= length;
        rows.push_back(std::move(v));
    }
    return rows;
}

/// What one step of PowerSGD should give, in double, and what rounding to float may change in each element.
struct first_step {
    std::vector<double> mean;
    double bound = 0;

    first_step(const arrays& m, std::size_t rows, std::size_t cols, std::size_t rank) : mean(rows * cols) {
        const double p = static_cast<double>(m.size());
        const std::size_t r = std::min({rank, rows, cols});
        double size = 0;
        std::vector<double> sum(rows * cols), magnitudes(rows * cols);
        for (const auto& one : m) {
            size += std::sqrt(lab::square(view(one))) / p;
            for (std::size_t i = 0; i < rows * cols; ++i) {
                sum[i] += static_cast<double>(one[i]);
                magnitudes[i] += std::abs(static_cast<double>(one[i]));
            }
        }
        const cairn::random_stream random{lab::seed(), cairn::stream_of("powersgd"), 0};
        std::vector<std::vector<double>> basis;
        double off = 0;  // how far the vectors before may be from these, in sum
        for (std::size_t c = 0; c < r; ++c) {
            std::vector<double> v(rows), room(rows);
            for (std::size_t i = 0; i < rows; ++i)
                for (std::size_t j = 0; j < cols; ++j) {
                    const double q = static_cast<double>(static_cast<float>(random.normal(c * cols + j)));
                    v[i] += sum[i * cols + j] * q;
                    room[i] += magnitudes[i * cols + j] * std::abs(q);
                }
            const auto length = [](const std::vector<double>& a) {
                return std::sqrt(std::inner_product(a.begin(), a.end(), a.begin(), 0.0));
            };
            const double before = length(v);
            for (int twice = 0; twice < 2; ++twice)
                for (const auto& w : basis) {
                    const double along = std::inner_product(v.begin(), v.end(), w.begin(), 0.0);
                    for (std::size_t i = 0; i < rows; ++i) v[i] -= along * w[i];
                }
            const double after = length(v);
            if (!(after > 1e-6 * before)) continue;
            off += ((static_cast<double>(cols) + p) * lab::epsilon * length(room) + 2 * before * off) / after;
            for (double& e : v) e /= after;
            basis.push_back(v);
        }
        for (const auto& v : basis)
            for (std::size_t j = 0; j < cols; ++j) {
                double q = 0;
                for (std::size_t i = 0; i < rows; ++i) q += sum[i * cols + j] * v[i] / p;
                for (std::size_t i = 0; i < rows; ++i) mean[i * cols + j] += v[i] * q;
            }
        const double k = static_cast<double>(r);
        bound = 4 * k * size * (off + (static_cast<double>(rows) + p + k) * lab::epsilon);
    }
};

}  // namespace

TEST_CASE("top-k: ties, few values, all values, zeros, many values") {
    const std::size_t n = 200 + static_cast<std::size_t>(lab::number(0, 50, 1));
    std::vector<float> few(n);  // −2 … 2: most magnitudes are equal
    for (std::size_t i = 0; i < n; ++i)
        few[i] = static_cast<float>(lab::number(-2, 2, 2 + static_cast<std::uint32_t>(i)));
    check_top(few, 0.125, (n + 7) / 8);
    check_top(few, 1, n);
    check_top(std::vector<float>(50, 0.0f), 0.25, 13);
    check_top(std::vector<float>(50, -3.0f), 0.25, 13);
    check_top({}, 0.5, 0);
    check_top({0.0f}, 0.001, 1);
    check_top({1.0f, -2.0f}, 0.5, 1);
    check_top(lab::numbers(7, 900), 0.01, 1);
    check_top(lab::numbers(500000, 901), 0.0625, 31250);
}

TEST_CASE("sign: any number of values, zeros, equal magnitudes, many values") {
    const auto encode = [](const std::vector<float>& x) { return lab::call<lab::bytes>("sign::encode", x); };
    const auto decode = [](const lab::bytes& message, std::size_t n) {
        return lab::call<std::vector<float>>("sign::decode", message, n);
    };
    const auto contraction = [](const std::vector<float>& x) { return lab::call<double>("sign::contraction", x); };
    for (const int count : {0, 1, 3, 7, 8, 9, 15, 17, lab::number(100, 130, 1)}) {
        const auto n = static_cast<std::size_t>(count);
        std::vector<float> x = lab::numbers(n, 910 + static_cast<std::uint32_t>(n));
        if (n > 2) x[n / 2] = 0, x[n - 1] = -0.0f;
        const lab::bytes message = encode(x);
        INFO(n << " values");
        REQUIRE(lab::call<std::size_t>("sign::bytes", n) == 4 + (n + 7) / 8);
        REQUIRE(message.size() == 4 + (n + 7) / 8);
        double mean = 0;
        for (const float v : x) mean += std::abs(static_cast<double>(v)) / static_cast<double>(n);
        CHECK((n == 0 ? lab::number_at<float>(message, 0) == 0
                      : lab::unlike(lab::number_at<float>(message, 0), mean, lab::epsilon) == ""));
        lab::bytes expected(message.size() - 4);
        for (std::size_t i = 0; i < n; ++i)
            if (x[i] < 0) expected[i / 8] |= static_cast<std::byte>(1 << i % 8);
        for (std::size_t i = 0; i < expected.size(); ++i) {
            INFO("byte " << i << " of the bits, for values " << 8 * i << " to " << std::min(8 * i + 7, n - 1));
            CHECK(lab::bits(message[4 + i]) == lab::bits(expected[i]));
        }
        const auto after = decode(message, n);
        REQUIRE(after.size() == n);
        const float s = lab::number_at<float>(message, 0);
        std::vector<float> signs(n);
        for (std::size_t i = 0; i < n; ++i) signs[i] = x[i] < 0 ? -s : s;
        CHECK(lab::unlike(after, signs) == "");
    }
    // Nothing is lost of zeros and of equal magnitudes.
    for (const float magnitude : {0.0f, 0.75f}) {
        std::vector<float> x(21, magnitude);
        for (std::size_t i = 0; i < x.size(); i += 3) x[i] = -x[i];
        const auto after = decode(encode(x), 21);
        REQUIRE(after.size() == 21);
        CHECK(lab::square(view(x), view(after)) == 0);
        CHECK(contraction(x) == 1);
    }
    CHECK(contraction(std::vector<float>{}) == 1);
    CHECK(lab::unlike(contraction(std::vector<float>{0, 0, -5, 0}), 0.25) == "");
    // Three million magnitudes: a sum in float would be off in the fifth digit.
    const std::vector<float> many = lab::numbers(3'000'000, 950);
    double mean = 0;
    for (const float v : many) mean += std::abs(static_cast<double>(v));
    CHECK(lab::unlike(lab::number_at<float>(encode(many), 0), mean / 3e6, lab::epsilon) == "");
}

TEST_CASE("PowerSGD: each step begins where the last one ended") {
    const std::size_t rows = 24, cols = 16;
    for (const std::uint32_t stream : {1000u, 1100u, 1200u}) {
        // Σ σ_k u_k v_kᵀ on average over two ranks. The best approximation of rank 2 leaves out σ_3 and on; an
        // iteration leaves (σ_3 / σ_2)² = 1/16 of what is off.
        const std::vector<double> sigma{8, 4, 1, 0.5, 0.25};
        const auto u = orthonormal(sigma.size(), rows, stream), v = orthonormal(sigma.size(), cols, stream + 10);
        const std::vector<float> noise = lab::numbers(rows * cols, stream + 20);
        arrays m(2, std::vector<float>(rows * cols)), mean;
        std::vector<float> centre(rows * cols);
        for (std::size_t i = 0; i < rows; ++i)
            for (std::size_t j = 0; j < cols; ++j) {
                double sum = 0;
                for (std::size_t k = 0; k < sigma.size(); ++k) sum += sigma[k] * u[k][i] * v[k][j];
                centre[i * cols + j] = static_cast<float>(sum);
                m[0][i * cols + j] = centre[i * cols + j] + noise[i * cols + j];
                m[1][i * cols + j] = centre[i * cols + j] - noise[i * cols + j];
            }
        const lab::low_rank method(2, rows, cols, 2);
        for (int step = 0; step < 10; ++step) mean = method.reduce(m).results;
        REQUIRE(mean[0].size() == rows * cols);
        const double best = std::sqrt(1 + 0.25 + 0.0625), off = std::sqrt(lab::square(view(centre), view(mean[0])));
        INFO("after 10 steps on the same matrix ‖M − M̂‖ = " << off << "; the best matrix of rank 2 has " << best);
        CHECK(off <= 1.001 * best);
        CHECK(lab::disagreement(mean) == "");
    }
}

TEST_CASE("PowerSGD: any shape, rank and number of ranks, low ranks and zeros") {
    struct shape {
        int p;
        std::size_t rows, cols, rank;
    };
    for (const shape s :
         {shape{1, 6, 9, 2}, {3, 7, 5, 2}, {4, 1, 12, 1}, {2, 12, 1, 3}, {3, 3, 4, 9}, {5, 20, 31, 3}}) {
        INFO(lab::text(s.p, "rank") << ", " << s.rows << " × " << s.cols << ", PowerSGD of rank " << s.rank);
        const arrays m = lab::numbers_on(s.p, s.rows * s.cols, 1300);
        const auto [mean, counts] = lab::low_rank(s.p, s.rows, s.cols, s.rank).reduce(m);
        const first_step expected(m, s.rows, s.cols, s.rank);
        for (const auto& one : mean) {
            CHECK(lab::difference(view(one), expected.mean,
                                  std::vector<double>(expected.mean.size(), expected.bound)) == "");
        }
        CHECK(lab::disagreement(mean) == "");
        // All ranks together: every part of P and Q is sent 2 (p − 1) times.
        std::int64_t bytes = 0;
        for (const auto& sent : counts) bytes += sent.bytes;
        const std::size_t r = std::min({s.rank, s.rows, s.cols});
        CHECK(bytes == 2 * (s.p - 1) * static_cast<std::int64_t>(4 * r * (s.rows + s.cols)));
    }
    // Zeros, then a matrix of whole numbers that has rank 1, twice, though three vectors are sent.
    const std::size_t rows = 9, cols = 11;
    std::vector<float> zero(rows * cols), low(rows * cols), u(rows), v(cols);
    for (std::size_t i = 0; i < rows; ++i)
        u[i] = static_cast<float>(lab::number(1, 9, 20 + static_cast<std::uint32_t>(i)));
    for (std::size_t j = 0; j < cols; ++j)
        v[j] = static_cast<float>(lab::number(1, 9, 40 + static_cast<std::uint32_t>(j)));
    for (std::size_t i = 0; i < rows; ++i)
        for (std::size_t j = 0; j < cols; ++j) low[i * cols + j] = u[i] * v[j] * (j % 2 ? -1.0f : 1.0f);
    const lab::low_rank method(1, rows, cols, 3, 1), other(1, rows, cols, 3, 2);
    arrays after{method.reduce({zero}).results[0]};
    for (int step = 0; step < 2; ++step) after.push_back(other.reduce({low}).results[0]);
    CHECK(lab::unlike(after[0], zero) == "");
    const first_step expected(arrays{low}, rows, cols, 3);
    for (const std::size_t step : {std::size_t{1}, std::size_t{2}}) {
        INFO("rank 1, three vectors, step " << step);
        CHECK(lab::difference(view(after[step]), std::vector<double>(low.begin(), low.end()),
                              std::vector<double>(low.size(), 2 * expected.bound)) == "");
    }
    // A row that depends on those before it becomes zero, and nothing becomes NaN.
    std::vector<float> dependent{3, 4, 0, 0, 1, 2, 2, 4, 7, 10, 2, 4, 0, 0, 0, 0};  // the third is 2 · first + second
    dependent = lab::call<std::vector<float>>("orthonormalise", 4, 4, dependent);
    REQUIRE(dependent.size() == 16);
    for (std::size_t i = 0; i < 4; ++i) {
        CHECK(dependent[8 + i] == 0);
        CHECK(dependent[12 + i] == 0);
    }
    CHECK(lab::unlike(dependent[0], 0.6, lab::epsilon) == "");
}

TEST_CASE("feedback: any method, number of ranks and of values") {
    for (const int p : {1, 2, 3, 5})
        for (const int count : {0, 1, 7, lab::number(30, 60, 3)}) {
            const auto n = static_cast<std::size_t>(count);
            const int steps = 6;
            std::vector<double> gradients(n), means(n), mean_of_halves(n), quarters_kept(n), halves_kept(n);
            arrays kept, kept_of_halves;
            const lab::feedback a(p, "quarters", 1), b(p, "halves", 2);
            for (int step = 0; step < steps; ++step) {
                const arrays g = lab::numbers_on(p, n, 2000 + 10 * static_cast<std::uint32_t>(step));
                const lab::both of_a = a.reduce(g), of_b = b.reduce(g);
                REQUIRE(of_a.first[0].size() == n);
                REQUIRE(of_b.first[0].size() == n);
                CHECK(lab::disagreement(of_a.first) == "");
                CHECK(lab::disagreement(of_b.first) == "");
                for (std::size_t i = 0; i < n; ++i) {
                    for (const auto& one : g) gradients[i] += static_cast<double>(one[i]) / p;
                    means[i] += static_cast<double>(of_a.first[0][i]);
                    mean_of_halves[i] += static_cast<double>(of_b.first[0][i]);
                }
                kept = of_a.second, kept_of_halves = of_b.second;
            }
            INFO(p << " ranks, " << n << " values");
            for (std::size_t r = 0; r < kept.size(); ++r) {
                REQUIRE(kept[r].size() == n);
                REQUIRE(kept_of_halves[r].size() == n);
                for (std::size_t i = 0; i < n; ++i) {
                    REQUIRE(std::abs(kept[r][i]) < 0.25f);  // what one byte cuts off
                    quarters_kept[i] += static_cast<double>(kept[r][i]) / p;
                    halves_kept[i] += static_cast<double>(kept_of_halves[r][i]) / p;
                }
            }
            // Over all ranks and steps: Σ means + mean of what is kept = Σ mean gradients. What a rank keeps of halves
            // is below 2 · steps.
            for (std::size_t i = 0; i < n; ++i) means[i] += quarters_kept[i], mean_of_halves[i] += halves_kept[i];
            const double sums = steps * (p + 2.0) * 2 * steps * lab::epsilon;
            CHECK(lab::difference(std::span<const double>(means), gradients, std::vector<double>(n, sums)) == "");
            CHECK(lab::difference(std::span<const double>(mean_of_halves), gradients, std::vector<double>(n, sums)) ==
                  "");
        }
}

TEST_CASE("convergence: an eighth of the values, with and without feedback") {
    const lab::regression problem(3000);
    const int steps = 300;
    const float rate = 0.1f;
    const double dense = lab::dense_loss_after(problem, steps, rate);
    const lab::feedback eighths(lab::regression::ranks, "eighths");
    const double with = lab::loss_after(problem, steps, rate, [&](const arrays& g) { return eighths.reduce(g).first; });
    const double without =
        lab::loss_after(problem, steps, rate, [](const arrays& g) { return lab::reduce_mean("eighths", g).first; });
    INFO("loss after " << steps << " steps: dense " << dense << ", an eighth with feedback " << with
                       << ", an eighth without " << without);
    CHECK(with <= 1.01 * dense);
    CHECK(without >= 1.05 * dense);
}

TEST_CASE("cost: break-even and the best way") {
    const auto break_even = [](const lab::way& dense, const lab::way& compressed, double alpha) {
        return lab::call<double>("break_even", dense, compressed, alpha);
    };
    const auto seconds = [](const lab::way& m, double alpha, double bandwidth) {
        return lab::call<double>("seconds", m, lab::link{alpha, bandwidth});
    };
    const double n = 1e6;
    const lab::way dense{.sends = lab::call<lab::traffic>("ring_traffic", 4, 4 * n), .compute = 0};
    const lab::way sparse{.sends = lab::call<lab::traffic>("gather_traffic", 4, 4 + 8 * 0.01 * n), .compute = 0.004};
    const lab::way low{.sends = lab::call<lab::traffic>("powersgd_traffic", 4, 1000, 1000, 2), .compute = 0.002};
    for (const double alpha : {0.0, 1e-5, 1e-3})
        for (const auto& compressed : {sparse, low}) {
            const double b = break_even(dense, compressed, alpha);
            INFO("α = " << alpha << ", break-even at " << b << " bytes/s");
            REQUIRE(std::isfinite(b));
            REQUIRE(b > 0);
            CHECK(seconds(compressed, alpha, 0.99 * b) < seconds(dense, alpha, 0.99 * b));
            CHECK(seconds(compressed, alpha, 1.01 * b) > seconds(dense, alpha, 1.01 * b));
        }
    // 6 MB less 240 012 bytes in 4 ms less 3 ms: the all-gather has three messages fewer.
    CHECK(lab::unlike(break_even(dense, sparse, 1e-3), (6e6 - 240012) / 1e-3) == "");
    // With α = 2 ms the fewer messages alone are worth it.
    CHECK(break_even(dense, sparse, 2e-3) == std::numeric_limits<double>::infinity());
    // One bit a value, gathered by 100 ranks: more bytes than a ring has.
    const lab::way many_dense{.sends = lab::call<lab::traffic>("ring_traffic", 100, 4 * n)};
    const lab::way many_signs{.sends = lab::call<lab::traffic>("gather_traffic", 100, 4 + n / 8), .compute = 0.001};
    CHECK(break_even(many_dense, many_signs, 1e-5) == 0);
    CHECK(break_even(many_dense, many_signs, 1) == 0);
    CHECK(break_even(dense, dense, 1e-5) == 0);
    // As many bytes with less computing: it takes less at every bandwidth.
    CHECK(break_even({dense.sends, 0.002}, {dense.sends, 0.001}, 1e-5) == std::numeric_limits<double>::infinity());
    CHECK(break_even({dense.sends, 0.001}, {dense.sends, 0.002}, 1e-5) == 0);
    CHECK(break_even({.sends = lab::call<lab::traffic>("ring_traffic", 1, 4 * n)},
                     {.sends = lab::call<lab::traffic>("gather_traffic", 1, 4), .compute = 1}, 1e-5) == 0);
    // Dense, top-k, PowerSGD on fast, middling and slow links.
    const std::vector<lab::way> ways{dense, sparse, low, dense};
    CHECK(lab::call<std::size_t>("best", ways, lab::link{1e-5, 1e11}) == 0);
    CHECK(lab::call<std::size_t>("best", ways, lab::link{1e-5, 1e8}) == 2);
    CHECK(lab::call<std::size_t>("best", ways, lab::link{1e-2, 1e8}) == 1);  // few messages count
    CHECK(lab::call<std::size_t>("best", std::vector<lab::way>{many_signs, many_dense, many_dense},
                                 lab::link{1e-5, 1e9}) == 1);
}
