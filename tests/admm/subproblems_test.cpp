// The closed forms of ADMM against brute force in double, and what they must not do where a denominator is zero.

#include "catch.hpp"
#include "oracle/admm.hpp"

#include <cairn/admm/output_loss.hpp>
#include <cairn/core/random.hpp>

namespace admm_subproblem_tests {

using namespace cairn;
using namespace cairn::admm;

TEST_CASE("admm: z of a hidden layer is the global minimiser", "[admm]") {
    const random_stream random{5, 1, 0};
    for (std::uint64_t i = 0; i < 300; ++i) {
        const double c = 2 * random.normal(3 * i), a = 2 * random.normal(3 * i + 1), old = 2 * random.normal(3 * i + 2);
        const auto cost = [&](double z) { return (z - c) * (z - c) + (a - std::max(z, 0.0)) * (a - std::max(z, 0.0)); };
        const auto with_old = [&](double z) { return cost(z) + (z - old) * (z - old); };
        CHECK(cost(relu_z(c, a)) <= oracle::least_value(cost, -12, 12) + 1e-9);
        CHECK(with_old(relu_z_proximal(c, a, old)) <= oracle::least_value(with_old, -12, 12) + 1e-9);
    }
    CHECK(relu_z(-1.0, 0.0) == -1);  // nothing to trade
    CHECK(relu_z(2.0, 2.0) == 2);
}

TEST_CASE("admm: q and squared z are exact minimisers", "[admm]") {
    const random_stream random{5, 2, 0};
    for (std::uint64_t i = 0; i < 50; ++i) {
        const double p = random.normal(4 * i), u = random.normal(4 * i + 1), z = random.normal(4 * i + 2),
                     nu = 0.1 + random.uniform(4 * i + 3), rho = 0.3;
        const double r = std::max(z, 0.0);
        const auto of_q = [&](double q) {
            return nu / 2 * (q - r) * (q - r) + u * (p - q) + rho / 2 * (p - q) * (p - q);
        };
        CHECK(of_q(copy_q(r, p, u, nu, rho)) <= oracle::least_value(of_q, -30, 30) + 1e-9);
        const auto of_z = [&](double v) { return (v - p) * (v - p) / 2 + rho / 2 * (v - u) * (v - u); };
        CHECK(of_z(squared_z(u, p, rho)) <= oracle::least_value(of_z, -9, 9) + 1e-9);
    }
    // ν = ρ: the mean of p + u/ρ and relu z.
    CHECK(copy_q(2.0, 1.0, 0.5, 0.25, 0.25) == Approx((1 + 0.5 / 0.25 + 2) / 2));
}

TEST_CASE("admm: Newton's z of the output has no gradient left, at any rho", "[admm]") {
    const random_stream random{5, 3, 0};
    for (const double rho : {1e-6, 1e-4, 1e-2, 1.0, 10.0})
        for (std::uint64_t i = 0; i < 40; ++i) {
            std::vector<double> c(5), z(5), work(10), p(5);
            for (std::size_t k = 0; k < 5; ++k) {
                c[k] = 5 * random.normal(10 * i + k);
                z[k] = i % 2 ? c[k] : 8 * random.normal(10 * i + 5 + k);  // far from the solution too
            }
            const auto label = static_cast<index_t>(i % 5);
            const int steps = output_z(c, label, rho, z, work);
            CHECK(steps < 60);
            softmax_of(z, p);
            for (std::size_t k = 0; k < 5; ++k)
                CHECK(std::abs(p[k] - (static_cast<index_t>(k) == label) + rho * (z[k] - c[k])) < 1e-9);
        }
}

TEST_CASE("admm: Newton's z of the output is what a numeric minimiser finds", "[admm]") {
    const random_stream random{5, 4, 0};
    std::vector<double> c(3), z(3), work(6), p(3);
    for (std::size_t k = 0; k < 3; ++k) z[k] = c[k] = random.normal(k);
    const double rho = 0.3;
    output_z(c, 1, rho, z, work);
    const auto cost = [&](const std::vector<double>& v) {
        std::vector<double> q(3);
        double sum = softmax_of(v, q) - v[1];
        for (std::size_t k = 0; k < 3; ++k) sum += rho / 2 * (v[k] - c[k]) * (v[k] - c[k]);
        return sum;
    };
    const std::vector<double> found = oracle::minimiser(cost, c);
    for (std::size_t k = 0; k < 3; ++k) CHECK(z[k] == Approx(found[k]).margin(1e-6));
    CHECK(cost(z) <= cost(found) + 1e-12);
}

TEST_CASE("admm: a line search does not divide by zero", "[admm]") {
    CHECK(line_search(0, 0) == 0);
    CHECK(line_search(1, 0) == 0);
    CHECK(line_search(6, 2) == 3);
}

TEST_CASE("admm: the loss of an output counts samples, and its step is the same in whole tensors", "[admm]") {
    output_loss<double> loss;
    loss.labels = tensor<std::int32_t>({3});
    tensor<double> z({3, 4}), c({3, 4});
    for (index_t i = 0; i < 12; ++i) c[i] = z[i] = 0.3 * static_cast<double>(i % 5);
    double sum = 0;
    for (index_t i = 0; i < 3; ++i) {
        loss.labels[i] = static_cast<std::int32_t>(i);
        double of = 0;
        for (index_t k = 0; k < 4; ++k) of += std::exp(z[i * 4 + k]);
        sum += std::log(of) - z[i * 4 + i];
    }
    CHECK(loss.value(z) == Approx(sum));
    loss.minimise(c, 0.5, z);
    CHECK(loss.value(z) < sum);
}

}  // namespace admm_subproblem_tests
