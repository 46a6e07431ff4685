#pragma once
// Shared by the tests of this lab: arrays drawn from the seed on every rank, and sums by plain loops.

#include "judge.hpp"

namespace lab {

/// Every rank's array before and after, and its messages.
struct run {
    std::vector<std::vector<float>> before, after;  // [rank][element]
    std::vector<lab::sent> counts;

    /// Sums over the ranks, in double, and what each element may be off by.
    std::vector<double> sums() const {
        std::vector<double> all(before[0].size());
        for (const auto& one : before)
            for (std::size_t i = 0; i < one.size(); ++i) all[i] += static_cast<double>(one[i]);
        return all;
    }
    std::vector<double> bounds() const {
        std::vector<double> all(before[0].size());
        for (const auto& one : before)
            for (std::size_t i = 0; i < one.size(); ++i) all[i] += std::abs(static_cast<double>(one[i]));
        for (double& b : all) b = rounding_bound<float>(before.size(), b);
        return all;
    }
    /// Empty, or the first rank that has not `expected` and how.
    std::string fault(const std::vector<double>& expected) const {
        for (std::size_t r = 0; r < after.size(); ++r)
            if (const std::string why = difference(std::span<const float>(after[r]), expected, bounds()); !why.empty())
                return "rank " + std::to_string(r) + " of " + std::to_string(after.size()) + ": " + why;
        return {};
    }
    /// Empty, or the first rank that sent other than bytes(ranks, elements, rank).
    std::string fault_of_bytes(std::int64_t (*bytes)(int, std::size_t, int)) const {
        const int p = static_cast<int>(counts.size());
        for (int r = 0; r < p; ++r)
            if (const auto got = counts[static_cast<std::size_t>(r)].bytes, should = bytes(p, before[0].size(), r);
                got != should)
                return "rank " + std::to_string(r) + " of " + std::to_string(p) + " sends " + std::to_string(got) +
                       " bytes, expected " + std::to_string(should);
        return {};
    }
    std::string fault_of_sums() const { return fault(sums()); }
    std::string fault_of_means() const {
        auto means = sums();
        for (double& m : means) m /= static_cast<double>(before.size());
        return fault(means);
    }
};

inline run start(int ranks, std::size_t count, std::uint32_t stream) {
    run all;
    for (int r = 0; r < ranks; ++r) all.before.push_back(numbers(count, stream + static_cast<std::uint32_t>(r)));
    doing(text(ranks, "rank") + ", " + text(count, "element"));
    return all;
}

/// Calls an all-reduce on `ranks` ranks with `count` numbers each.
inline run all_reduce(const std::string& name, int ranks, std::size_t count, std::uint32_t stream) {
    run all = start(ranks, count, stream);
    auto done = on_ranks<std::vector<float>>(
        ranks, name, [&](int r) { return std::tuple(all.before[static_cast<std::size_t>(r)]); });
    all.after = std::move(done.results), all.counts = std::move(done.sent);
    return all;
}
inline run ring(int ranks, std::size_t count, std::uint32_t stream) {
    return all_reduce("ring_all_reduce", ranks, count, stream);
}
/// Bytes that rank r sends: of p parts, the first n % p of them one element longer, all but the one that it completes,
/// then all but the one that its right neighbour completes.
inline std::int64_t ring_bytes(int p, std::size_t n, int r) {
    const auto count = static_cast<std::int64_t>(n);
    const auto part = [&](int i) { return count / p + (i % p < count % p ? 1 : 0); };
    return p == 1 ? 0 : 4 * (2 * count - part(r + 1) - part(r + 2));
}
/// Bytes that rank r sends: in each step one half, and the other one on the way back.
inline std::int64_t halving_bytes(int p, std::size_t n, int r) {
    int core = 1;
    while (2 * core <= p) core *= 2;
    const auto count = static_cast<std::int64_t>(n);
    if (r >= core) return 4 * count;
    std::int64_t sum = r + core < p ? count : 0, mine = count;
    for (int bit = core / 2; bit > 0; bit /= 2) {
        sum += mine;
        mine = r & bit ? mine - mine / 2 : mine / 2;
    }
    return 4 * sum;
}
inline run halving(int ranks, std::size_t count, std::uint32_t stream) {
    return all_reduce("halving_doubling_all_reduce", ranks, count, stream);
}

/// Gradients of these sizes, in buckets of `bucket` elements.
inline run buckets(int ranks, const std::vector<std::size_t>& sizes, std::size_t bucket, std::uint32_t stream) {
    std::size_t count = 0;
    for (const std::size_t n : sizes) count += n;
    run all = start(ranks, count, stream);
    using tensors = std::vector<std::vector<float>>;
    auto done = on_ranks<tensors>(ranks, "reduce_gradients", [&](int r) {
        tensors gradients;
        auto from = all.before[static_cast<std::size_t>(r)].begin();
        for (const std::size_t n : sizes)
            gradients.emplace_back(from, from + static_cast<std::ptrdiff_t>(n)), from += static_cast<std::ptrdiff_t>(n);
        return std::tuple(gradients, bucket * sizeof(float));
    });
    for (const tensors& one : done.results) {
        auto& flat = all.after.emplace_back();
        for (const auto& tensor : one) flat.insert(flat.end(), tensor.begin(), tensor.end());
    }
    all.counts = std::move(done.sent);
    return all;
}

/// α, β and γ of a link.
using link = std::tuple<double, double, double>;

inline double ring_seconds(int p, double bytes, const link& l) { return call<double>("ring_seconds", p, bytes, l); }
inline double halving_seconds(int p, double bytes, const link& l) {
    return call<double>("halving_doubling_seconds", p, bytes, l);
}
inline std::string cheaper(int p, double bytes, const link& l) { return call<std::string>("cheaper", p, bytes, l); }

}  // namespace lab
