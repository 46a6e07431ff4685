#pragma once
// The laws of every collective, against plain loops. The functions below run on one rank of a group and throw what is
// wrong; they are for any communicator.

#include "sanitized.hpp"

#include <cairn/comm/collectives/all_gather.hpp>
#include <cairn/comm/collectives/all_reduce.hpp>
#include <cairn/comm/collectives/all_to_all.hpp>
#include <cairn/comm/collectives/broadcast.hpp>
#include <cairn/comm/collectives/reduce_scatter.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

namespace cairn::laws {

inline constexpr index_t largest_count = test::sanitized ? 20'011 : 1'000'003;

/// Element i of rank r is element i + 61 r of one sequence: cheap to fill, different on every rank.
template <class T>
const std::vector<T>& sequence() {
    static const std::vector<T> all = [] {
        std::vector<T> made(static_cast<std::size_t>(largest_count + 61 * 16));
        std::uint32_t state = 12345;
        for (T& x : made) {
            state = state * 1664525u + 1013904223u;
            const int value = static_cast<int>(state >> 16) - 32768;
            if constexpr (std::integral<T>)
                x = value * 1000;
            else
                x = static_cast<T>(static_cast<float>(value) / 1024.0f);
        }
        return made;
    }();
    return all;
}

template <class T>
std::vector<T> data_of(int rank, index_t count) {
    const auto begin = sequence<T>().begin() + 61 * rank;
    return {begin, begin + count};
}

/// The reduction over p ranks, and the bound on the error of any order of summation: (p - 1) u Σ|x|.
template <class T>
struct oracle {
    oracle(int p, index_t count, reduction r)
        : value(static_cast<std::size_t>(count)), bound(static_cast<std::size_t>(count)) {
        const double u = std::same_as<T, bfloat16>  ? 0x1p-8
                         : std::same_as<T, float16> ? 0x1p-11
                         : std::integral<T>         ? 0
                         : r == reduction::sum      ? std::numeric_limits<T>::epsilon() / 2.0
                                                    : 0;
        const T* const all = sequence<T>().data();
        for (std::size_t i = 0; i < value.size(); ++i) {
            double sum = static_cast<double>(all[i]), size = std::abs(sum), most = sum, least = sum;
            for (int k = 1; k < p; ++k) {
                const double x = static_cast<double>(all[i + 61 * static_cast<std::size_t>(k)]);
                sum += x;
                size += std::abs(x);
                most = x > most ? x : most;
                least = x < least ? x : least;
            }
            value[i] = r == reduction::sum ? sum : r == reduction::max ? most : least;
            bound[i] = r == reduction::sum ? 1.02 * (p - 1) * u * size : 0;
        }
    }

    void check(std::span<const T> got, range s, const std::string& what) const {
        for (index_t i = s.begin; i < s.end(); ++i) {
            const auto at = static_cast<std::size_t>(i);
            const double x = static_cast<double>(got[at]);
            if (!(std::abs(x - value[at]) <= bound[at]))
                fail(what, ": element ", i, " is ", x, " instead of ", value[at], " within ", bound[at]);
        }
    }

    std::vector<double> value, bound;
};

template <class T>
bool same_bits(std::span<const T> a, std::span<const T> b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

/// Expected results of a group's ranks: made by one thread before the ranks start.
template <class T>
struct expected {
    expected(int p, index_t n) : ranks(p), count(n) {
        for (const reduction r : {reduction::sum, reduction::max, reduction::min})
            if (r == reduction::sum || n <= 1000 || p == 3 || p == 4) of.emplace_back(p, n, r);
    }
    int ranks;
    index_t count;
    std::vector<oracle<T>> of;  // by reduction; of large counts on some numbers of ranks only the sum
};

/// All-reduce by one algorithm: against the oracle, in its bits on all ranks, and in two runs.
template <Communicator C, class T>
void all_reduce_law(C& c, const expected<T>& e, all_reduce_algorithm algorithm) {
    for (std::size_t k = 0; k < e.of.size(); ++k) {
        const all_reduce_options options{.op = static_cast<reduction>(k), .algorithm = algorithm};
        const std::string what = concat(name_of(algorithm), ' ', name_of(options.op), ", ", type_name<T>(), ", ",
                                        e.count, " elements, ", e.ranks, " ranks");
        std::vector<T> data = data_of<T>(c.rank(), e.count);
        all_reduce(c, std::span<T>(data), options);
        if (c.rank() == 0) e.of[k].check(data, {0, e.count}, what);
        // All ranks have rank 0's bits: checked by a broadcast tree that is not itself under test here.
        std::vector<T> of_first = data;
        for (int r = 1; r < c.size(); ++r) {
            if (c.rank() == 0) send(c, std::span<const T>(of_first), r, 7);
            if (c.rank() == r) recv(c, std::span<T>(of_first), 0, 7);
        }
        require(same_bits<T>(of_first, data), what, ": rank ", c.rank(), " has other bits than rank 0");
        if (e.count > 1000) continue;  // once more: the same bits
        std::vector<T> again = data_of<T>(c.rank(), e.count);
        all_reduce(c, std::span<T>(again), options);
        require(same_bits<T>(again, data), what, ": two runs differ on rank ", c.rank());
    }
}

template <Communicator C, class T>
void reduce_scatter_law(C& c, const expected<T>& e) {
    for (std::size_t k = 0; k < e.of.size(); ++k) {
        const auto r = static_cast<reduction>(k);
        std::vector<T> data = data_of<T>(c.rank(), e.count);
        reduce_scatter(c, std::span<T>(data), r);
        e.of[k].check(data, shard_of(e.count, c.size(), c.rank()), concat("reduce-scatter ", name_of(r)));
    }
}

template <Communicator C, class T>
void all_gather_law(C& c, index_t count) {
    const auto gathered = [&](const std::vector<range>& parts) {
        std::vector<T> data(static_cast<std::size_t>(count));
        const std::span<T> all(data);
        const auto part_of = [&](int r) {
            const range s = parts[static_cast<std::size_t>(r)];
            const auto from = sequence<T>().begin() + s.begin + 61 * r;
            return std::vector<T>(from, from + s.count);
        };
        std::ranges::copy(part_of(c.rank()), subspan(all, parts[static_cast<std::size_t>(c.rank())]).begin());
        all_gather(c, all, parts);
        for (int r = 0; r < c.size(); ++r)
            require(same_bits<T>(part_of(r), subspan(all, parts[static_cast<std::size_t>(r)])), "all-gather of ", count,
                    ": rank ", c.rank(), " has a wrong part ", r);
    };
    gathered(shards_of(count, c.size()));
    std::vector<range> uneven(static_cast<std::size_t>(c.size()));  // all at the last rank
    uneven.back() = {0, count};
    if (count <= 1000) gathered(uneven);
}

template <Communicator C, class T>
void broadcast_law(C& c, index_t count) {
    for (int root = 0; root < c.size(); ++root) {
        if (count > 1000 && root != c.size() / 2) continue;
        std::vector<T> data = data_of<T>(c.rank(), count);
        broadcast(c, std::span<T>(data), root);
        require(same_bits<T>(data, data_of<T>(root, count)), "broadcast of ", count, " from ", root, ": rank ",
                c.rank(), " has other data");
    }
}

/// The array is cut into p · p parts of about equal size: rank i sends part (i, j) to rank j.
template <Communicator C, class T>
void all_to_all_law(C& c, index_t count) {
    const int p = c.size(), me = c.rank();
    const auto length = [&](int from, int to) { return shard_of(count, p, (from + 2 * to) % p).count; };
    std::vector<range> out_parts, in_parts;
    index_t out_total = 0, in_total = 0;
    for (int r = 0; r < p; ++r) {
        out_parts.push_back({out_total, length(me, r)});
        in_parts.push_back({in_total, length(r, me)});
        out_total = out_parts.back().end(), in_total = in_parts.back().end();
    }
    const std::vector<T> out = data_of<T>(me, out_total);
    std::vector<T> in(static_cast<std::size_t>(in_total));
    all_to_all(c, std::span<const T>(out), out_parts, std::span<T>(in), in_parts);
    for (int r = 0; r < p; ++r) {
        index_t begin = 0;
        for (int k = 0; k < me; ++k) begin += length(r, k);
        const T* const sent = sequence<T>().data() + 61 * r + begin;
        const std::span<const T> expected_part(sent, static_cast<std::size_t>(length(r, me)));
        require(same_bits<T>(expected_part, subspan(std::span<const T>(in), in_parts[static_cast<std::size_t>(r)])),
                "all-to-all of ", count, ": rank ", me, " has wrong data from ", r);
    }
}

/// Counts that every collective is tried with.
inline std::vector<index_t> counts(int p) {
    std::vector<index_t> all{0, 1, 7, p - 1, 1000, largest_count};
    std::ranges::sort(all);
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
}

/// Every collective, on the ranks of c. `made` holds one entry for each of counts(p).
template <class T, Communicator C>
void all_laws(C& c, const std::vector<expected<T>>& made) {
    for (const expected<T>& e : made) {
        for (const auto& [algorithm, name] : all_reduce_names)
            if (algorithm != all_reduce_algorithm::vendor || c.size() == 1 || (VendorElement<T> && vendor_of(c)))
                all_reduce_law(c, e, algorithm);
        reduce_scatter_law(c, e);
        all_gather_law<C, T>(c, e.count);
        broadcast_law<C, T>(c, e.count);
        all_to_all_law<C, T>(c, e.count);
    }
}

template <class T>
std::vector<expected<T>> expectations(int p) {
    std::vector<expected<T>> made;
    for (const index_t n : counts(p)) made.emplace_back(p, n);
    return made;
}

}  // namespace cairn::laws
