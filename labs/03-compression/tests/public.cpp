// The tests that students have.

#include "ranks.hpp"
#include "regression.hpp"

namespace {

using lab::arrays;
using lab::view;

}  // namespace

TEST_CASE("top-k: the largest magnitudes and where they are") {
    CHECK(lab::call<std::size_t>("topk::count", 0.0625, 1000) == 63);
    CHECK(lab::unlike(lab::call<double>("topk::contraction", 0.0625, 1000), 0.063) == "");

    // Small numbers, and 63 that stand out at known places with either sign.
    std::vector<float> x = lab::numbers(1000, 1);
    std::vector<std::uint32_t> places;
    for (std::uint32_t i = 0; i < 63; ++i) {
        places.push_back(3 + 15 * i + (i % 4));
        x[places.back()] = (i % 3 == 0 ? -2.0f : 2.0f) - x[places.back()];
    }
    const auto message = lab::call<lab::bytes>("topk::encode", 0.0625, x);
    CHECK(lab::fault_of_top(message, x, places) == "");

    // A message that this test makes is decoded into what held something else before.
    std::vector<std::byte> made;
    lab::append(made, std::uint32_t{2});
    for (const std::uint32_t at : {4u, 6u}) lab::append(made, at);
    for (const float v : {-1.5f, 0.25f}) lab::append(made, v);
    const auto decoded = lab::call<std::vector<float>>("topk::decode", 0.0625, made, 8);
    CHECK(lab::unlike(decoded, {0, 0, 0, 0, -1.5f, 0, 0.25f, 0}) == "");

    const auto after = lab::call<std::vector<float>>("topk::decode", 0.0625, message, 1000);
    REQUIRE(after.size() == 1000);
    CHECK(lab::square(view(x), view(after)) <= (1 - 0.063) * lab::square(view(x)));
}

TEST_CASE("sign: one bit a value and the mean magnitude") {
    CHECK(lab::call<std::size_t>("sign::bytes", 16) == 6);
    const std::vector<float> small{-1, 2, 3, -4, 0, 6, 7, -1, 1, 2, 3, 4, -5, 6, 7, 4};
    const auto message = lab::call<lab::bytes>("sign::encode", small);
    REQUIRE(message.size() == 6);
    CHECK(lab::number_at<float>(message, 0) == 3.5f);  // 56 / 16
    CHECK(lab::bits(message[4]) == "0b10001001");      // values 0, 3 and 7 are negative
    CHECK(lab::bits(message[5]) == "0b00010000");

    std::vector<std::byte> made;
    lab::append(made, 0.75f);
    lab::append(made, std::uint8_t{0b10000010});
    const auto decoded = lab::call<std::vector<float>>("sign::decode", made, 8);
    CHECK(lab::unlike(decoded, {0.75f, -0.75f, 0.75f, 0.75f, 0.75f, 0.75f, 0.75f, -0.75f}) == "");

    // What is lost, exactly: ‖x − C(x)‖² = (1 − δ) ‖x‖². The scale is rounded once, to float.
    const std::vector<float> x = lab::numbers(1000, 2);
    const auto after = lab::call<std::vector<float>>("sign::decode", lab::call<lab::bytes>("sign::encode", x), 1000);
    REQUIRE(after.size() == 1000);
    const double contraction = lab::call<double>("sign::contraction", x);
    const double whole = lab::square(view(x)), lost = lab::square(view(x), view(after));
    CHECK(std::abs(lost - (1 - contraction) * whole) <= 4 * lab::epsilon * whole);
    CHECK(contraction > 0.5);
}

TEST_CASE("PowerSGD: rows become orthonormal") {
    // The third row is almost the first one: in float, what is left of it would be noise.
    const std::size_t count = 3, n = 40;
    std::vector<float> rows = lab::numbers(count * n, 3);
    const std::vector<float> other = lab::numbers(n, 4);
    for (std::size_t i = 0; i < n; ++i) rows[2 * n + i] = rows[i] + 1e-4f * other[i];
    const std::vector<float> before = rows;
    rows = lab::call<std::vector<float>>("orthonormalise", count, n, rows);
    REQUIRE(rows.size() == count * n);
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
            arrays m(static_cast<std::size_t>(p), std::vector<float>(rows * cols));
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
            const auto [mean, counts] = lab::low_rank(p, rows, cols, rank).reduce(m);
            INFO(lab::text(p, "rank") << ", PowerSGD of rank " << rank);
            for (const auto& one : mean)
                CHECK(lab::difference(view(one), expected, std::vector<double>(rows * cols, bound)) == "");
            CHECK(lab::disagreement(mean) == "");
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
        const auto [mean, sent, counts] = lab::reduce_mean("quarters", x);
        std::vector<double> expected(n);
        for (const auto& one : x)
            for (std::size_t i = 0; i < n; ++i) expected[i] += static_cast<double>(lab::quarter(one[i])) / p;
        const std::vector<double> bound(n, lab::rounding_bound<float>(x.size(), 1));
        INFO(lab::text(p, "rank"));
        for (std::size_t r = 0; r < x.size(); ++r) {
            CHECK(lab::difference(view(mean[r]), expected, bound) == "");
            std::vector<float> quarters(n);
            for (std::size_t i = 0; i < n; ++i) quarters[i] = lab::quarter(x[r][i]);
            CHECK(lab::unlike(sent[r], quarters) == "");
            CHECK(counts[r].messages == p - 1);
            CHECK(counts[r].bytes == (p - 1) * static_cast<std::int64_t>(n));
        }
        CHECK(lab::disagreement(mean) == "");
    }
}

TEST_CASE("feedback: what was sent and what is kept add up to the gradients") {
    const std::size_t n = 100;
    const int p = 3, steps = 12;
    const lab::feedback with(p, "quarters");
    arrays kept(p, std::vector<float>(n));
    for (int step = 0; step < steps; ++step) {
        const arrays g = lab::numbers_on(p, n, 100 + 10 * static_cast<std::uint32_t>(step));
        const auto [mean, residual, counts] = with.reduce(g);
        INFO("step " << step + 1);
        std::vector<double> means(n);
        for (std::size_t r = 0; r < g.size(); ++r) {
            // What was added up, less what quarters sends of it.
            std::vector<double> expected(n);
            for (std::size_t i = 0; i < n; ++i) {
                const float x = g[r][i] + kept[r][i];
                expected[i] = static_cast<double>(x - lab::quarter(x));
                means[i] += static_cast<double>(lab::quarter(x)) / p;
            }
            INFO("the residual of rank " << r);
            REQUIRE(lab::difference(view(residual[r]), expected, std::vector<double>(n, 2 * lab::epsilon)) == "");
        }
        const std::vector<double> bound(n, lab::rounding_bound<float>(g.size(), 2));
        for (const auto& one : mean) REQUIRE(lab::difference(view(one), means, bound) == "");
        kept = residual;
    }
}

TEST_CASE("convergence: one bit a value, with and without feedback") {
    const lab::regression problem(1000);
    const int steps = 300;
    const float rate = 0.1f;
    const double dense = lab::dense_loss_after(problem, steps, rate);
    const lab::feedback one_bit(lab::regression::ranks, "sign");
    const double with = lab::loss_after(problem, steps, rate, [&](const arrays& g) { return one_bit.reduce(g).first; });
    const double without =
        lab::loss_after(problem, steps, rate, [](const arrays& g) { return lab::reduce_mean("sign", g).first; });
    INFO("loss after " << steps << " steps: dense " << dense << ", one bit with feedback " << with
                       << ", one bit without " << without);
    CHECK(with <= 1.01 * dense);
    CHECK(without >= 1.05 * dense);  // so it is the feedback that helps
}

TEST_CASE("cost: what is sent, and how long it takes") {
    // Four ranks, a network of 11 173 962 values: 45 MB, of which a ring sends 67 MB.
    const double n = 11173962;
    const lab::traffic dense = lab::call<lab::traffic>("ring_traffic", 4, 4 * n);
    CHECK(dense.messages == 6);
    CHECK(lab::unlike(dense.bytes, 67043772) == "");
    const lab::traffic signs = lab::call<lab::traffic>("gather_traffic", 4, 4 + 1396746);
    CHECK(signs.messages == 3);
    CHECK(lab::unlike(signs.bytes, 3 * 1396750.0) == "");
    const lab::traffic low_rank = lab::call<lab::traffic>("powersgd_traffic", 4, 512, 4608, 2);
    CHECK(low_rank.messages == 12);
    CHECK(lab::unlike(low_rank.bytes, 1.5 * 4 * 2 * (512 + 4608)) == "");
    // 0.01 s of computing, 3 messages of 50 µs, 4.19 MB at 12.5 MB/s (100 Mbit/s).
    const lab::link slow{50e-6, 12.5e6};
    CHECK(lab::unlike(lab::call<double>("seconds", lab::way{signs, 0.01}, slow), 0.01 + 150e-6 + 4190250 / 12.5e6) ==
          "");
    CHECK(lab::call<lab::traffic>("ring_traffic", 1, 1000).bytes == 0);
    CHECK(lab::call<lab::traffic>("gather_traffic", 1, 1000).messages == 0);
}
