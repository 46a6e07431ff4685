// The tests that students have.

#include "quarters.hpp"
#include "ranks.hpp"
#include "regression.hpp"

#include "cost.hpp"
#include "feedback.hpp"
#include "powersgd.hpp"
#include "sign.hpp"
#include "topk.hpp"

namespace {

using lab::arrays;
using lab::view;

/// Empty, or what is wrong with a message of topk that should have the values of `x` at `positions`.
std::string fault_of(const std::vector<std::byte>& message, const std::vector<float>& x,
                     const std::vector<std::uint32_t>& positions) {
    const std::size_t k = positions.size();
    if (message.size() != 4 + 8 * k)
        return "the message has " + std::to_string(message.size()) + " bytes, expected " + std::to_string(4 + 8 * k);
    if (lab::number_at<std::uint32_t>(message, 0) != k)
        return "the message says k = " + std::to_string(lab::number_at<std::uint32_t>(message, 0)) + ", expected " +
               std::to_string(k);
    for (std::size_t i = 0; i < k; ++i) {
        const auto at = lab::number_at<std::uint32_t>(message, 4 + 4 * i);
        if (at != positions[i])
            return "position " + std::to_string(i) + " is " + std::to_string(at) + ", expected " +
                   std::to_string(positions[i]);
        if (!(lab::number_at<float>(message, 4 + 4 * k + 4 * i) == x[at]))
            return "value " + std::to_string(i) + " is " +
                   std::to_string(lab::number_at<float>(message, 4 + 4 * k + 4 * i)) + ", expected " +
                   std::to_string(x[at]);
    }
    return {};
}

}  // namespace

TEST_CASE("top-k: the largest magnitudes and where they are") {
    const student::topk method{.ratio = 0.0625};
    CHECK(method.count(1000) == 63);
    CHECK(lab::unlike(method.contraction(1000), 0.063) == "");

    // Small numbers, and 63 that stand out at known places with either sign.
    std::vector<float> x = lab::numbers(1000, 1);
    std::vector<std::uint32_t> places;
    for (std::uint32_t i = 0; i < 63; ++i) {
        places.push_back(3 + 15 * i + (i % 4));
        x[places.back()] = (i % 3 == 0 ? -2.0f : 2.0f) - x[places.back()];
    }
    const std::vector<std::byte> message = method.encode(x);
    CHECK(fault_of(message, x, places) == "");

    // A message that this test makes is decoded into what held something else before.
    std::vector<std::byte> made;
    lab::append(made, std::uint32_t{2});
    for (const std::uint32_t at : {4u, 6u}) lab::append(made, at);
    for (const float v : {-1.5f, 0.25f}) lab::append(made, v);
    std::vector<float> decoded(8, 9.0f);
    method.decode(made, decoded);
    CHECK(lab::unlike(decoded, {0, 0, 0, 0, -1.5f, 0, 0.25f, 0}) == "");

    std::vector<float> after(1000);
    method.decode(message, after);
    CHECK(lab::square(view(x), view(after)) <= (1 - 0.063) * lab::square(view(x)));
}

TEST_CASE("sign: one bit a value and the mean magnitude") {
    const student::sign method;
    CHECK(method.bytes(16) == 6);
    const std::vector<float> small{-1, 2, 3, -4, 0, 6, 7, -1, 1, 2, 3, 4, -5, 6, 7, 4};
    const std::vector<std::byte> message = method.encode(small);
    REQUIRE(message.size() == 6);
    CHECK(lab::number_at<float>(message, 0) == 3.5f);                   // 56 / 16
    CHECK(static_cast<int>(message[4]) == (1 << 0 | 1 << 3 | 1 << 7));  // values 0, 3 and 7 are negative
    CHECK(static_cast<int>(message[5]) == 1 << 4);

    std::vector<std::byte> made;
    lab::append(made, 0.75f);
    lab::append(made, std::uint8_t{0b10000010});
    std::vector<float> decoded(8, 9.0f);
    method.decode(made, decoded);
    CHECK(lab::unlike(decoded, {0.75f, -0.75f, 0.75f, 0.75f, 0.75f, 0.75f, 0.75f, -0.75f}) == "");

    // What is lost, exactly: ‖x − C(x)‖² = (1 − δ) ‖x‖². The scale is rounded once, to float.
    const std::vector<float> x = lab::numbers(1000, 2);
    std::vector<float> after(1000);
    method.decode(method.encode(x), after);
    const double whole = lab::square(view(x)), lost = lab::square(view(x), view(after));
    CHECK(std::abs(lost - (1 - method.contraction(x)) * whole) <= 4 * lab::epsilon * whole);
    CHECK(method.contraction(x) > 0.5);
}

TEST_CASE("PowerSGD: rows become orthonormal") {
    // The third row is almost the first one: in float, what is left of it would be noise.
    const std::size_t count = 3, n = 40;
    std::vector<float> rows = lab::numbers(count * n, 3);
    const std::vector<float> other = lab::numbers(n, 4);
    for (std::size_t i = 0; i < n; ++i) rows[2 * n + i] = rows[i] + 1e-4f * other[i];
    const std::vector<float> before = rows;
    student::orthonormalise(count, n, rows);
    const auto dot = [n](const std::vector<float>& a, std::size_t c, const std::vector<float>& b, std::size_t d) {
        double sum = 0;
        for (std::size_t i = 0; i < n; ++i)
            sum += static_cast<double>(a[c * n + i]) * static_cast<double>(b[d * n + i]);
        return sum;
    };
    for (std::size_t c = 0; c < count; ++c)
        for (std::size_t d = 0; d <= c; ++d) {
            INFO("⟨row " << c << ", row " << d << "⟩ = " << dot(rows, c, rows, d));
            // Each number is off by ε/2 of itself at most.
            CHECK(std::abs(dot(rows, c, rows, d) - (c == d ? 1 : 0)) <= 4 * lab::epsilon);
        }
    // Row c is made of the rows up to c, the first one first.
    for (std::size_t c = 0; c < count; ++c) {
        std::vector<double> rest(before.begin() + static_cast<std::ptrdiff_t>(c * n),
                                 before.begin() + static_cast<std::ptrdiff_t>((c + 1) * n));
        for (std::size_t d = 0; d <= c; ++d) {
            const double along = dot(before, c, rows, d);
            for (std::size_t i = 0; i < n; ++i) rest[i] -= along * static_cast<double>(rows[d * n + i]);
        }
        double left = 0;
        for (const double v : rest) left += v * v;
        INFO("row " << c << " has a part of length " << std::sqrt(left) << " outside of what it should span");
        CHECK(std::sqrt(left) <= 8 * lab::epsilon * std::sqrt(dot(before, c, before, c)));
    }
}

TEST_CASE("PowerSGD: a mean of rank one arrives exactly, in two small all-reduces") {
    const std::size_t rows = 24, cols = 40;
    for (const int p : {1, 2, 4})
        for (const std::size_t rank : {std::size_t{1}, std::size_t{2}}) {
            // Rank r has u v_rᵀ: the mean is u times the mean of the v_r.
            const std::vector<float> u = lab::numbers(rows, 5);
            const arrays v = lab::numbers_on(p, cols, 10);
            arrays m(static_cast<std::size_t>(p), std::vector<float>(rows * cols)), mean = m;
            std::vector<double> expected(rows * cols), v_mean(cols), v_size(cols);
            double size = 0;  // the mean of the matrices' lengths
            for (std::size_t r = 0; r < m.size(); ++r) {
                for (std::size_t j = 0; j < cols; ++j) {
                    v_mean[j] += static_cast<double>(v[r][j]) / p;
                    v_size[j] += std::abs(static_cast<double>(v[r][j])) / p;
                }
                for (std::size_t i = 0; i < rows; ++i)
                    for (std::size_t j = 0; j < cols; ++j) {
                        m[r][i * cols + j] = u[i] * v[r][j];
                        expected[i * cols + j] += static_cast<double>(m[r][i * cols + j]) / p;
                    }
                size += std::sqrt(lab::square(view(m[r]))) / p;
            }
            // P = u ⟨v, q⟩: its error is that of a sum of cols · p products, beside the sum itself.
            const cairn::random_stream random{lab::seed(), cairn::stream_of("powersgd"), 0};
            double sum = 0, magnitudes = 0;
            for (std::size_t j = 0; j < cols; ++j) {
                sum += v_mean[j] * random.normal(j);
                magnitudes += v_size[j] * std::abs(random.normal(j));
            }
            const double bound =
                8 * static_cast<double>(cols + rows) * lab::epsilon * magnitudes / std::abs(sum) * size;
            const auto counts = lab::on_ranks(p, [&](auto& c, std::size_t r) {
                student::powersgd method(rows, cols, rank, lab::seed());
                method.reduce(c, view(m[r]), std::span<float>(mean[r]));
            });
            INFO(p << " ranks, PowerSGD of rank " << rank);
            for (const auto& one : mean) {
                CHECK(lab::difference(view(one), expected, std::vector<double>(rows * cols, bound)) == "");
                CHECK(lab::unlike(one, mean[0]) == "");  // the same bits
            }
            for (const auto& sent : counts) {
                CHECK(sent.messages == 4 * (p - 1));
                CHECK(sent.bytes == 2 * (p - 1) * static_cast<std::int64_t>(4 * rank * (rows + cols)) / p);
            }
        }
}

TEST_CASE("feedback: the mean of what the messages say") {
    const std::size_t n = 100;
    for (const int p : {1, 2, 4}) {
        const arrays x = lab::numbers_on(p, n, 20);
        arrays mean(x.size(), std::vector<float>(n, 9.0f)), sent = mean;
        const auto counts = lab::on_ranks(p, [&](auto& c, std::size_t r) {
            lab::quarters method;
            student::reduce_mean(c, method, view(x[r]), std::span<float>(mean[r]), std::span<float>(sent[r]));
        });
        std::vector<double> expected(n);
        for (const auto& one : x)
            for (std::size_t i = 0; i < n; ++i) expected[i] += static_cast<double>(lab::quarters::rounded(one[i])) / p;
        const std::vector<double> bound(n, lab::rounding_bound<float>(x.size(), 1));
        INFO(p << " ranks");
        for (std::size_t r = 0; r < x.size(); ++r) {
            CHECK(lab::difference(view(mean[r]), expected, bound) == "");
            CHECK(lab::unlike(mean[r], mean[0]) == "");
            for (std::size_t i = 0; i < n; ++i) REQUIRE(sent[r][i] == lab::quarters::rounded(x[r][i]));
            CHECK(counts[r].messages == p - 1);
            CHECK(counts[r].bytes == (p - 1) * static_cast<std::int64_t>(n));
        }
    }
}

TEST_CASE("feedback: what was sent and what is kept add up to the gradients") {
    const std::size_t n = 100;
    const int p = 3, steps = 12;
    std::vector<std::string> faults(p);  // the first one of each rank
    lab::on_ranks(p, [&](auto& c, std::size_t r) {
        const lab::quarters method;
        student::error_feedback<lab::quarters> with(method);
        std::vector<double> gradients(n), expected(n);
        std::vector<float> mean(n);
        for (int step = 0; step < steps; ++step) {
            const auto g = lab::numbers(n, 100 + 10 * static_cast<std::uint32_t>(step) + static_cast<std::uint32_t>(r));
            with.reduce(c, view(g), std::span<float>(mean));
            method.sent->resize(n);
            for (std::size_t i = 0; i < n; ++i) {
                gradients[i] += static_cast<double>(g[i]);
                expected[i] = gradients[i] - (*method.sent)[i];
            }
            // Each step rounds g + e once, and both together are below 2.
            const std::vector<double> bound(n, (step + 1) * 2 * lab::epsilon);
            const std::string fault = lab::difference(with.residual(), expected, bound);
            if (!fault.empty() && faults[r].empty())
                faults[r] = "residual after step " + std::to_string(step + 1) + ": " + fault;
        }
    });
    for (const std::string& fault : faults) CHECK(fault == "");
}

TEST_CASE("convergence: one bit a value, with and without feedback") {
    const lab::regression problem(1000);
    const int steps = 300;
    const float rate = 0.1f;
    const double dense = lab::dense_loss_after(problem, steps, rate);
    const double with = lab::loss_after(problem, steps, rate, [] {
        return [method = student::error_feedback<student::sign>(student::sign{})](
                   auto& c, std::span<const float> g, std::span<float> mean) mutable { method.reduce(c, g, mean); };
    });
    const double without = lab::loss_after(problem, steps, rate, [] {
        return [method = student::sign{}](auto& c, std::span<const float> g, std::span<float> mean) mutable {
            std::vector<float> sent(g.size());
            student::reduce_mean(c, method, g, mean, std::span<float>(sent));
        };
    });
    INFO("loss after " << steps << " steps: dense " << dense << ", one bit with feedback " << with
                       << ", one bit without " << without);
    CHECK(with <= 1.01 * dense);
    CHECK(without >= 1.05 * dense);  // so it is the feedback that helps
}

TEST_CASE("cost: what is sent, and how long it takes") {
    // Four ranks, a network of 11 173 962 values: 45 MB, of which a ring sends 67 MB.
    const double n = 11173962;
    const student::traffic dense = student::ring_traffic(4, 4 * n);
    CHECK(dense.messages == 6);
    CHECK(lab::unlike(dense.bytes, 67043772) == "");
    const student::traffic signs = student::gather_traffic(4, 4 + 1396746);
    CHECK(signs.messages == 3);
    CHECK(lab::unlike(signs.bytes, 3 * 1396750.0) == "");
    const student::traffic low_rank = student::powersgd_traffic(4, 512, 4608, 2);
    CHECK(low_rank.messages == 12);
    CHECK(lab::unlike(low_rank.bytes, 1.5 * 4 * 2 * (512 + 4608)) == "");
    // 0.01 s of computing, 3 messages of 50 µs, 4.19 MB at 12.5 MB/s (100 Mbit/s).
    const student::link slow{.alpha = 50e-6, .bandwidth = 12.5e6};
    CHECK(lab::unlike(student::seconds({.sends = signs, .compute = 0.01}, slow), 0.01 + 150e-6 + 4190250 / 12.5e6) ==
          "");
    CHECK(student::ring_traffic(1, 1000).bytes == 0);
    CHECK(student::gather_traffic(1, 1000).messages == 0);
}
