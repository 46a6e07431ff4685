// The tests that grade beside the public ones.

#include "../tests/quarters.hpp"
#include "../tests/ranks.hpp"
#include "../tests/regression.hpp"

#include "cost.hpp"
#include "feedback.hpp"
#include "powersgd.hpp"
#include "sign.hpp"
#include "topk.hpp"

#include <cairn/comm/collectives/ring.hpp>

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
    const student::topk method{.ratio = ratio};
    INFO(x.size() << " values, ratio " << ratio << ", k = " << k);
    REQUIRE(method.count(x.size()) == k);
    const std::vector<std::byte> message = method.encode(x);
    REQUIRE(message.size() == 4 + 8 * k);
    REQUIRE(lab::number_at<std::uint32_t>(message, 0) == k);
    const std::vector<std::uint32_t> expected = largest(x, k);
    std::vector<float> kept(x.size()), after(x.size(), 9.0f);
    bool places = true, values = true;
    for (std::size_t i = 0; i < k; ++i) {
        places &= lab::number_at<std::uint32_t>(message, 4 + 4 * i) == expected[i];
        values &= lab::number_at<float>(message, 4 + 4 * k + 4 * i) == x[expected[i]];
        kept[expected[i]] = x[expected[i]];
    }
    CHECK(places);
    CHECK(values);
    method.decode(message, after);
    CHECK(lab::unlike(after, kept) == "");
    const double delta = method.contraction(x.size());
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

/// Top-k without the student's, for task 4.
struct reference_top {
    std::size_t k;
    std::vector<std::byte> encode(std::span<const float> x) const {
        std::vector<std::byte> message;
        const std::vector<float> values(x.begin(), x.end());
        for (const std::uint32_t at : largest(values, k)) {
            lab::append(message, at);
            lab::append(message, x[at]);
        }
        return message;
    }
    void decode(std::span<const std::byte> bytes, std::span<float> into) const {
        const std::vector<std::byte> message(bytes.begin(), bytes.end());
        std::fill(into.begin(), into.end(), 0.0f);
        for (std::size_t at = 0; at < message.size(); at += 8)
            into[lab::number_at<std::uint32_t>(message, at)] = lab::number_at<float>(message, at + 4);
    }
};

/// A method with sums of its own: the first half of the values in even steps, the other half in odd ones.
struct halves {
    int step = 0;
    template <class C>
    void reduce(C& c, std::span<const float> values, std::span<float> mean) {
        const std::size_t half = values.size() / 2, begin = step % 2 ? half : 0, end = step % 2 ? values.size() : half;
        ++step;
        std::fill(mean.begin(), mean.end(), 0.0f);
        std::copy(values.begin() + static_cast<std::ptrdiff_t>(begin),
                  values.begin() + static_cast<std::ptrdiff_t>(end), mean.begin() + static_cast<std::ptrdiff_t>(begin));
        cairn::ring_all_reduce(c, mean.subspan(begin, end - begin));
        for (float& v : mean) v /= static_cast<float>(c.size());
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
    const student::sign method;
    for (const int count : {0, 1, 3, 7, 8, 9, 15, 17, lab::number(100, 130, 1)}) {
        const auto n = static_cast<std::size_t>(count);
        std::vector<float> x = lab::numbers(n, 910 + static_cast<std::uint32_t>(n));
        if (n > 2) x[n / 2] = 0, x[n - 1] = -0.0f;
        const std::vector<std::byte> message = method.encode(x);
        INFO(n << " values");
        REQUIRE(method.bytes(n) == 4 + (n + 7) / 8);
        REQUIRE(message.size() == 4 + (n + 7) / 8);
        double mean = 0;
        for (const float v : x) mean += std::abs(static_cast<double>(v)) / static_cast<double>(n);
        CHECK((n == 0 ? lab::number_at<float>(message, 0) == 0
                      : lab::unlike(lab::number_at<float>(message, 0), mean, lab::epsilon) == ""));
        std::vector<int> bits(8 * (message.size() - 4)), expected(bits.size());
        for (std::size_t i = 0; i < bits.size(); ++i)
            bits[i] = static_cast<int>(message[4 + i / 8]) >> (i % 8) & 1, expected[i] = i < n && x[i] < 0;
        CHECK(bits == expected);
        std::vector<float> after(n, 9.0f);
        method.decode(message, after);
        const float s = lab::number_at<float>(message, 0);
        bool right = true;
        for (std::size_t i = 0; i < n; ++i) right &= after[i] == (x[i] < 0 ? -s : s);
        CHECK(right);
    }
    // Nothing is lost of zeros and of equal magnitudes.
    for (const float magnitude : {0.0f, 0.75f}) {
        std::vector<float> x(21, magnitude), after(21, 9.0f);
        for (std::size_t i = 0; i < x.size(); i += 3) x[i] = -x[i];
        method.decode(method.encode(x), after);
        CHECK(lab::square(view(x), view(after)) == 0);
        CHECK(method.contraction(x) == 1);
    }
    CHECK(method.contraction(std::vector<float>{}) == 1);
    CHECK(lab::unlike(method.contraction(std::vector<float>{0, 0, -5, 0}), 0.25) == "");
    // Three million magnitudes: a sum in float would be off in the fifth digit.
    const std::vector<float> many = lab::numbers(3'000'000, 950);
    double mean = 0;
    for (const float v : many) mean += std::abs(static_cast<double>(v));
    CHECK(lab::unlike(lab::number_at<float>(method.encode(many), 0), mean / 3e6, lab::epsilon) == "");
}

TEST_CASE("PowerSGD: each step begins where the last one ended") {
    const std::size_t rows = 24, cols = 16;
    for (const std::uint32_t stream : {1000u, 1100u, 1200u}) {
        // Σ σ_k u_k v_kᵀ on average over two ranks. The best approximation of rank 2 leaves out σ_3 and on; an
        // iteration leaves (σ_3 / σ_2)² = 1/16 of what is off.
        const std::vector<double> sigma{8, 4, 1, 0.5, 0.25};
        const auto u = orthonormal(sigma.size(), rows, stream), v = orthonormal(sigma.size(), cols, stream + 10);
        const std::vector<float> noise = lab::numbers(rows * cols, stream + 20);
        arrays m(2, std::vector<float>(rows * cols)), mean = m;
        std::vector<float> centre(rows * cols);
        for (std::size_t i = 0; i < rows; ++i)
            for (std::size_t j = 0; j < cols; ++j) {
                double sum = 0;
                for (std::size_t k = 0; k < sigma.size(); ++k) sum += sigma[k] * u[k][i] * v[k][j];
                centre[i * cols + j] = static_cast<float>(sum);
                m[0][i * cols + j] = centre[i * cols + j] + noise[i * cols + j];
                m[1][i * cols + j] = centre[i * cols + j] - noise[i * cols + j];
            }
        lab::on_ranks(2, [&](auto& c, std::size_t r) {
            student::powersgd method(rows, cols, 2, lab::seed());
            for (int step = 0; step < 10; ++step) method.reduce(c, view(m[r]), std::span<float>(mean[r]));
        });
        const double best = std::sqrt(1 + 0.25 + 0.0625), off = std::sqrt(lab::square(view(centre), view(mean[0])));
        INFO("after 10 steps on the same matrix ‖M − M̂‖ = " << off << "; the best matrix of rank 2 has " << best);
        CHECK(off <= 1.001 * best);
        CHECK(lab::unlike(mean[1], mean[0]) == "");
    }
}

TEST_CASE("PowerSGD: any shape, rank and number of ranks, low ranks and zeros") {
    struct shape {
        int p;
        std::size_t rows, cols, rank;
    };
    for (const shape s :
         {shape{1, 6, 9, 2}, {3, 7, 5, 2}, {4, 1, 12, 1}, {2, 12, 1, 3}, {3, 3, 4, 9}, {5, 20, 31, 3}}) {
        INFO(s.p << " ranks, " << s.rows << " × " << s.cols << ", PowerSGD of rank " << s.rank);
        const arrays m = lab::numbers_on(s.p, s.rows * s.cols, 1300);
        arrays mean = m;
        const auto counts = lab::on_ranks(s.p, [&](auto& c, std::size_t r) {
            student::powersgd method(s.rows, s.cols, s.rank, lab::seed());
            method.reduce(c, view(m[r]), std::span<float>(mean[r]));
        });
        const first_step expected(m, s.rows, s.cols, s.rank);
        for (const auto& one : mean) {
            CHECK(lab::difference(view(one), expected.mean, std::vector<double>(one.size(), expected.bound)) == "");
            CHECK(lab::unlike(one, mean[0]) == "");
        }
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
    arrays after(3, std::vector<float>(rows * cols, 9.0f));
    lab::on_ranks(1, [&](auto& c, std::size_t) {
        student::powersgd method(rows, cols, 3, lab::seed());
        method.reduce(c, view(zero), std::span<float>(after[0]));
        student::powersgd other(rows, cols, 3, lab::seed());
        other.reduce(c, view(low), std::span<float>(after[1]));
        other.reduce(c, view(low), std::span<float>(after[2]));
    });
    CHECK(lab::unlike(after[0], zero) == "");
    const first_step expected(arrays{low}, rows, cols, 3);
    for (const std::size_t step : {std::size_t{1}, std::size_t{2}}) {
        INFO("rank 1, three vectors, step " << step);
        CHECK(lab::difference(view(after[step]), std::vector<double>(low.begin(), low.end()),
                              std::vector<double>(low.size(), 2 * expected.bound)) == "");
    }
    // A row that depends on those before it becomes zero, and nothing becomes NaN.
    std::vector<float> dependent{3, 4, 0, 0, 1, 2, 2, 4, 7, 10, 2, 4, 0, 0, 0, 0};  // the third is 2 · first + second
    student::orthonormalise(4, 4, dependent);
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
            arrays kept(static_cast<std::size_t>(p)), kept_of_halves = kept;
            const auto total = [&](std::size_t r, int step) {
                return lab::numbers(n, 2000 + 10 * static_cast<std::uint32_t>(step) + static_cast<std::uint32_t>(r));
            };
            for (int r = 0; r < p; ++r)
                for (int step = 0; step < steps; ++step) {
                    const auto g = total(static_cast<std::size_t>(r), step);
                    for (std::size_t i = 0; i < n; ++i) gradients[i] += static_cast<double>(g[i]) / p;
                }
            lab::on_ranks(p, [&](auto& c, std::size_t r) {
                student::error_feedback<lab::quarters> a(lab::quarters{});
                student::error_feedback<halves> b(halves{});
                std::vector<float> mean(n);
                for (int step = 0; step < steps; ++step) {
                    const auto g = total(r, step);
                    a.reduce(c, view(g), std::span<float>(mean));
                    for (std::size_t i = 0; r == 0 && i < n; ++i) means[i] += static_cast<double>(mean[i]);
                    b.reduce(c, view(g), std::span<float>(mean));
                    for (std::size_t i = 0; r == 0 && i < n; ++i) mean_of_halves[i] += static_cast<double>(mean[i]);
                }
                kept[r].assign(a.residual().begin(), a.residual().end());
                kept_of_halves[r].assign(b.residual().begin(), b.residual().end());
            });
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
    const double with = lab::loss_after(problem, steps, rate, [] {
        return [method = student::error_feedback<reference_top>(reference_top{lab::regression::unknowns / 8})](
                   auto& c, std::span<const float> g, std::span<float> mean) mutable { method.reduce(c, g, mean); };
    });
    const double without = lab::loss_after(problem, steps, rate, [] {
        return [method = reference_top{lab::regression::unknowns / 8}](auto& c, std::span<const float> g,
                                                                       std::span<float> mean) mutable {
            std::vector<float> sent(g.size());
            student::reduce_mean(c, method, g, mean, std::span<float>(sent));
        };
    });
    INFO("loss after " << steps << " steps: dense " << dense << ", an eighth with feedback " << with
                       << ", an eighth without " << without);
    CHECK(with <= 1.01 * dense);
    CHECK(without >= 1.05 * dense);
}

TEST_CASE("cost: break-even and the best way") {
    using student::break_even;
    const double n = 1e6;
    const student::method dense{.sends = student::ring_traffic(4, 4 * n), .compute = 0};
    const student::method sparse{.sends = student::gather_traffic(4, 4 + 8 * 0.01 * n), .compute = 0.004};
    const student::method low{.sends = student::powersgd_traffic(4, 1000, 1000, 2), .compute = 0.002};
    for (const double alpha : {0.0, 1e-5, 1e-3})
        for (const auto& compressed : {sparse, low}) {
            const double b = break_even(dense, compressed, alpha);
            INFO("α = " << alpha << ", break-even at " << b << " bytes/s");
            REQUIRE(std::isfinite(b));
            REQUIRE(b > 0);
            CHECK(student::seconds(compressed, {alpha, 0.99 * b}) < student::seconds(dense, {alpha, 0.99 * b}));
            CHECK(student::seconds(compressed, {alpha, 1.01 * b}) > student::seconds(dense, {alpha, 1.01 * b}));
        }
    // 6 MB less 240 012 bytes in 4 ms less 3 ms: the all-gather has three messages fewer.
    CHECK(lab::unlike(break_even(dense, sparse, 1e-3), (6e6 - 240012) / 1e-3) == "");
    // With α = 2 ms the fewer messages alone are worth it.
    CHECK(break_even(dense, sparse, 2e-3) == std::numeric_limits<double>::infinity());
    // One bit a value, gathered by 100 ranks: more bytes than a ring has.
    const student::method many_dense{.sends = student::ring_traffic(100, 4 * n)};
    const student::method many_signs{.sends = student::gather_traffic(100, 4 + n / 8), .compute = 0.001};
    CHECK(break_even(many_dense, many_signs, 1e-5) == 0);
    CHECK(break_even(many_dense, many_signs, 1) == 0);
    CHECK(break_even(dense, dense, 1e-5) == 0);
    CHECK(break_even({.sends = student::ring_traffic(1, 4 * n)}, {.sends = student::gather_traffic(1, 4), .compute = 1},
                     1e-5) == 0);
    // Dense, top-k, PowerSGD on fast, middling and slow links.
    const std::vector<student::method> ways{dense, sparse, low, dense};
    CHECK(student::best(ways, {1e-5, 1e11}) == 0);
    CHECK(student::best(ways, {1e-5, 1e8}) == 2);
    CHECK(student::best(ways, {1e-2, 1e8}) == 1);  // few messages count
    CHECK(student::best(std::vector<student::method>{many_signs, many_dense, many_dense}, {1e-5, 1e9}) == 1);
}
