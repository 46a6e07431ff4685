#include "compress/compressor_laws.hpp"

#include <cairn/compress/onebit.hpp>
#include <cairn/compress/qsgd.hpp>
#include <cairn/compress/randomk.hpp>
#include <cairn/compress/sign.hpp>
#include <cairn/compress/topk.hpp>

#include <numeric>

namespace laws {

namespace {

using span_list = std::vector<std::span<const std::byte>>;

/// The exchanges of all ranks of a scheme, one after another: what a communicator does.
template <class C>
std::vector<floats> all_reduce(std::vector<two_phase<C>>& ranks, const std::vector<floats>& gradients, encode_step at) {
    const int p = static_cast<int>(ranks.size());
    const auto rank = [&](int r) -> two_phase<C>& { return ranks[static_cast<std::size_t>(r)]; };
    for (int r = 0; r < p; ++r) {
        at.rank = r;
        rank(r).encode(gradients[static_cast<std::size_t>(r)], at);
    }
    span_list results;
    for (int r = 0; r < p; ++r) {
        span_list mine;
        for (int from = 0; from < p; ++from) mine.push_back(rank(from).outgoing(r));
        at.rank = r;
        results.push_back(rank(r).combine(mine, at));
    }
    std::vector<floats> means;
    for (int r = 0; r < p; ++r) {
        at.rank = r;
        means.emplace_back(gradients[0].size(), 99.0f);
        rank(r).decode(results, means.back(), at);
    }
    return means;
}

template <class C>
std::vector<two_phase<C>> team(const C& c, index_t n, int ranks) {
    std::vector<two_phase<C>> all;
    for (int r = 0; r < ranks; ++r) all.emplace_back(c, n, ranks, r);
    return all;
}

// Σ mean + mean of workers' residuals + servers' residuals = Σ mean gradient, and all ranks agree bit for bit.
template <class C>
void check_scheme(const C& c, index_t n, int ranks, int steps) {
    CAPTURE(n, ranks);
    auto all = team(c, n, ranks);
    std::vector<double> sent(static_cast<std::size_t>(n)), wanted(sent), size(sent);
    for (int t = 0; t < steps; ++t) {
        std::vector<floats> gradients;
        for (int r = 0; r < ranks; ++r)
            gradients.push_back(numbers("normal", n, static_cast<std::uint32_t>(1 + t * ranks + r)));
        const auto means = all_reduce(all, gradients, {.seed = 8, .step = t});
        for (const floats& m : means) REQUIRE(m == means[0]);
        for (std::size_t i = 0; i < sent.size(); ++i) {
            sent[i] += means[0][i];
            size[i] += std::abs(means[0][i]);
            for (const floats& g : gradients) wanted[i] += g[i] / static_cast<double>(ranks);
        }
    }
    for (int r = 0; r < ranks; ++r) {
        const auto state = all[static_cast<std::size_t>(r)].tensors();
        REQUIRE(state.size() == static_cast<std::size_t>(ranks) + 1);
        for (int j = 0; j < ranks; ++j) {
            const auto chunk = all[0].chunk(j);
            REQUIRE(state[static_cast<std::size_t>(j)].t.size() == chunk.count);
            for (index_t i = 0; i < chunk.count; ++i)
                sent[static_cast<std::size_t>(chunk.begin + i)] +=
                    state[static_cast<std::size_t>(j)].t[i] / static_cast<double>(ranks);
        }
        REQUIRE(state.back().name == "server/residual");
        for (index_t i = 0; i < state.back().t.size(); ++i)
            sent[static_cast<std::size_t>(all[0].chunk(r).begin + i)] += state.back().t[i];
    }
    for (std::size_t i = 0; i < sent.size(); ++i) REQUIRE(std::abs(sent[i] - wanted[i]) < 1e-5 * (1 + size[i]));
}

}  // namespace

TEST_CASE("onebit keeps the contract laws", "[onebit]") {
    check_laws([] { return onebit(); });
}

TEST_CASE("onebit keeps the norm and the signs", "[onebit]") {
    for (const index_t n : sizes) {
        const floats x = numbers("heavy tail", n);
        onebit c;
        const floats y = decoded(c, encoded(c, x), n);
        REQUIRE(squares(y) == Approx(squares(x)).epsilon(1e-4));
        for (std::size_t i = 0; i < x.size(); ++i) REQUIRE(std::signbit(y[i]) == std::signbit(x[i]));
    }
}

TEST_CASE("the two-phase scheme loses nothing and gives all ranks the same", "[onebit]") {
    for (const int ranks : {1, 2, 3, 5})
        for (const index_t n : {index_t{0}, index_t{1}, index_t{130}, index_t{3000}}) {
            check_scheme(onebit(), n, ranks, 8);
            check_scheme(sign(), n, ranks, 8);
            check_scheme(qsgd(), n, ranks, 4);
            check_scheme(topk({.ratio = 0.1}), n, ranks, 8);
            check_scheme(randomk({.ratio = 0.2}), n, ranks, 8);  // whose decode must know what encode drew
        }
}

TEST_CASE("the two-phase scheme on one step is the formula", "[onebit]") {
    // Two ranks, one chunk each of 128 values; no residual yet.
    const index_t n = 256;
    const std::vector<floats> g{numbers("normal", n, 1), numbers("normal", n, 2)};
    auto all = team(onebit(), n, 2);
    const auto means = all_reduce(all, g, {});
    for (std::size_t chunk = 0; chunk < 2; ++chunk) {
        const auto scale_of = [](const std::vector<double>& x) {
            return std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0) / static_cast<double>(x.size()));
        };
        std::vector<double> y(128);
        for (const floats& x : g) {
            std::vector<double> part(x.begin() + static_cast<std::ptrdiff_t>(128 * chunk),
                                     x.begin() + static_cast<std::ptrdiff_t>(128 * chunk + 128));
            const double s = scale_of(part);
            for (std::size_t i = 0; i < 128; ++i) y[i] += (part[i] < 0 ? -s : s) / 2;
        }
        const double s = scale_of(y);
        for (std::size_t i = 0; i < 128; ++i)
            REQUIRE(means[0][128 * chunk + i] == Approx(y[i] < 0 ? -s : s).epsilon(1e-5));
    }
    REQUIRE(all[0].max_bytes(0) == 4 + 16);
    REQUIRE(all[0].outgoing(1).size() == 20);
}

TEST_CASE("the two-phase scheme refuses what does not fit", "[onebit]") {
    onebit_all_reduce c(onebit(), 10, 2, 0);
    REQUIRE_THROWS_WITH(c.encode(floats(9), {}), Catch::Contains("a bucket of 9 values, expected 10"));
    floats bad(10);
    bad[3] = std::nanf("");
    REQUIRE_THROWS_WITH(c.encode(bad, {}), Catch::Contains("element 3 of the bucket is nan"));
    REQUIRE_THROWS_WITH(c.combine(span_list(1), {}), Catch::Contains("1 messages of 2 ranks"));
    REQUIRE_THROWS_AS(onebit_all_reduce(onebit(), 10, 2, 2), error);
}

}  // namespace laws
