#pragma once
// Agreements of ranks that share K-FAC's work (kfac_ranks.hpp): the layers, fresh decompositions, failures, and the
// cheapest placement.

#include <cairn/comm/collectives/all_reduce.hpp>
#include <cairn/comm/collectives/text.hpp>
#include <cairn/comm/require_equal.hpp>
#include <cairn/comm/wait_for.hpp>
#include <cairn/core/clock.hpp>
#include <cairn/core/random.hpp>
#include <cairn/optim/precondition/kfac_layer.hpp>
#include <cairn/parallel/link.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace cairn {

struct kfac_ranks_config {
    kfac_statistics statistics = kfac_statistics::all;
    kfac_assignment_config place = {};  // grad_worker_fraction 0: chosen
    index_t memory_limit = 0;           // bytes of averages and decompositions on a rank; 0: none
    index_t bucket_bytes = index_t{25} << 20;
    bool overlap = true;  // sums travel on a thread of their own while backward runs
    double broadcast_error_bound =
        0;  // of the error of decompositions and directions that travel, as a share of the largest value; 0: exact
};

/// Predicted cost of one choice of gradient workers.
struct kfac_assignment_estimate {
    double fraction = 1;
    double decompose = 0, share_decompositions = 0, precondition = 0, share_directions = 0;  // seconds a step
    index_t bytes = 0;  // of averages and decompositions on the rank that has most

    double seconds() const { return decompose + share_decompositions + precondition + share_directions; }
};

/// Numbers that stand for a symmetric factor: its upper triangle, or its diagonal.
template <class T, Device D>
index_t triangle(const running_factor<T, D>& f) {
    const index_t n = f.size();
    return f.is_diagonal() ? n : n * (n + 1) / 2;
}

/// Whether a decomposition has values besides its matrix, or instead of it.
template <class T, Device D>
bool has_values(const running_factor<T, D>& f, kfac_form form) {
    return f.is_diagonal() || form == kfac_form::eigen;
}

/// Numbers of a decomposition in a message.
template <class T, Device D>
index_t packed_size(const running_factor<T, D>& f, kfac_form form) {
    const index_t n = f.size();
    return (f.is_diagonal() ? 0 : form == kfac_form::eigen ? n * n : triangle(f)) + (has_values(f, form) ? n : 0);
}

/// Memory for a factor's decomposition, where there is none.
template <class T, Device D>
void make_room(const running_factor<T, D>& f, kfac_form form, decomposition<T, D>& d) {
    const index_t n = f.size();
    if (!f.is_diagonal() && d.matrix.empty()) d.matrix = tensor<T, D>({n, n}, memory_category::optimizer);
    if (has_values(f, form) && d.values.empty()) d.values = tensor<T, D>({n}, memory_category::optimizer);
}

/// Collective. Throws on all ranks where they precondition different layers.
template <Communicator C, class T, Device D>
void require_equal_layers(C& world, const std::vector<kfac_layer<T, D>>& blocks) {
    std::string layers;
    for (const kfac_layer<T, D>& b : blocks) layers += concat(b.name, ' ', b.out, 'x', b.in, '\n');
    require_equal(world, layers, "the layers that kfac preconditions");
}

/// Collective. Returns when every rank has made its decompositions, which may take longer than a message is waited for.
template <Communicator C, class T, Device D>
void wait_for_decompositions(C& world, const std::vector<kfac_layer<T, D>>& blocks) {
    constexpr index_t slow = 2048;  // decompositions of this size take seconds, of 8192 minutes
    if (std::ranges::any_of(blocks, [](const kfac_layer<T, D>& b) { return std::max(b.in / b.taps, b.out) >= slow; }))
        for (int r = 0; r < world.size(); ++r) wait_for(world, r);
}

/// Collective: throws on all ranks why one of them, or this one, could not decompose.
template <Communicator C>
[[noreturn]] void fail_together(C& world, const std::string& mine) {
    const std::vector<std::string> reasons = all_gather_text(world, mine);
    for (int r = 0; r < world.size(); ++r)
        if (const std::string& why = reasons[static_cast<std::size_t>(r)]; !why.empty())
            fail_divergence("rank ", r, " of ", world.size(), ": ", why);
    fail_divergence("kfac: a decomposition failed");
}

/// Collective. Whatever is fresh on one rank is so on all; throws on all where one has a failure.
template <Communicator C>
void agree_on_fresh(C& world, std::vector<bool>& fresh, const std::string& failure) {
    std::vector<float> state(fresh.begin(), fresh.end());
    state.push_back(failure.empty() ? 0.0f : 1.0f);
    all_reduce(world, std::span<float>(state), {.op = reduction::max, .label = "state of kfac's decompositions"});
    if (state.back() > 0) fail_together(world, failure);
    for (std::size_t k = 0; k < fresh.size(); ++k) fresh[k] = state[k] > 0;
}

/// Lines for the run's report.
inline std::vector<std::string> assignment_diagnostics(const kfac_assignment& place,
                                                       const std::vector<kfac_assignment_estimate>& estimates) {
    const int m = place.rows(), ranks = place.ranks();
    std::vector<std::string> lines{concat("kfac on ", ranks, " ranks: ", m,
                                          m == 1 ? " gradient worker" : " gradient workers", " a layer (",
                                          m == ranks ? "COMM-OPT"
                                          : m == 1   ? "MEM-OPT"
                                                     : "HYBRID",
                                          ")")};
    for (const kfac_assignment_estimate& e : estimates)
        lines.push_back(concat("  fraction ", e.fraction, ": predicted ", 1e3 * e.seconds(), " ms a step (decompose ",
                               1e3 * e.decompose, ", share ", 1e3 * e.share_decompositions, ", precondition ",
                               1e3 * e.precondition, ", share ", 1e3 * e.share_directions, "), ",
                               static_cast<double>(e.bytes) / 1e6, " MB"));
    return lines;
}

namespace detail {

/// The least of three times.
template <class T, Device D, class Make>
double least_seconds(Make&& make) {
    double best = 1e300;
    for (int i = 0; i < 3; ++i) {
        const stopwatch watch;
        const tensor<T, D> made = make();
        D::wait();
        best = std::min(best, watch.seconds());
    }
    return best;
}

template <class T, Device D>
double seconds_to_precondition(const kfac_layer<T, D>& b, kfac_form form) {
    if (b.diagonal) return 0;
    const auto any = [&](const running_factor<T, D>& f) {
        decomposition<T, D> d;
        const index_t n = f.size();
        if (!f.is_diagonal()) d.matrix = tensor<T, D>::filled({n, n}, T{1}, memory_category::workspace);
        if (has_values(f, form)) d.values = tensor<T, D>::filled({n}, T{1}, memory_category::workspace);
        return d;
    };
    const decomposition<T, D> a = any(b.a[0].statistics), g = any(b.g[0].statistics);
    const tensor<T, D> v = tensor<T, D>::zeros({b.out, b.in}, memory_category::workspace);
    return static_cast<double>(b.groups()) * least_seconds<T, D>([&] {
               tensor<T, D> result(v.shape(), memory_category::workspace);
               precondition(a, g, form, 1, 1, b.out, b.in, v.data(), result.data());
               return result;
           });
}

template <class T, Device D>
double seconds_to_decompose(index_t n, kfac_form form) {
    tensor<T> m = tensor<T>::zeros({n, n}, memory_category::workspace);
    const random_stream random{1, 1, 0};
    for (index_t i = 0; i < n; ++i)
        for (index_t k = 0; k <= i; ++k)
            m[i * n + k] = m[k * n + i] =
                static_cast<T>(random.normal(static_cast<std::uint64_t>(i * n + k))) + (i == k ? T(4 * n) : T{});
    const tensor<T, D> there = tensor<T, D>::copy_of(m, memory_category::workspace);
    return least_seconds<T, D>([&] {
        decomposition<T, D> d =
            form == kfac_form::eigen ? eigen_decomposition_of(there) : damped_inverse_of(there, 1.0);
        return std::move(d.matrix);
    });
}

template <class T, Device D>
kfac_assignment_estimate estimate_of(const kfac_ranks_config& config, const kfac_config& k,
                                     const std::vector<kfac_layer<T, D>>& all, int ranks, int m,
                                     const exchange_model& link, const std::vector<double>& seconds, double per_cube) {
    kfac_assignment_config c = config.place;
    c.grad_worker_fraction = static_cast<double>(m) / ranks;
    std::vector<factor_sizes> sizes;
    for (const kfac_layer<T, D>& b : all) sizes.push_back(b.sizes());
    const kfac_assignment where(ranks, sizes, c);
    const double every = static_cast<double>(k.inverse_update_interval), width = sizeof(T);
    kfac_assignment_estimate e{.fraction = c.grad_worker_fraction};
    std::vector<double> cubes(static_cast<std::size_t>(ranks)), made(cubes.size()),
        work(static_cast<std::size_t>(where.columns())), sent(work.size());
    std::vector<index_t> kept(made.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
        const layer_place& l = where.layers()[i];
        work[static_cast<std::size_t>(l.column)] += seconds[i];
        sent[static_cast<std::size_t>(l.column)] += width * static_cast<double>(all[i].size());
        const auto add = [&](const running_factor<T, D>& f, int owner) {
            const index_t full = packed_size(f, k.form), average = f.extents().size();
            if (!f.is_diagonal()) cubes[static_cast<std::size_t>(owner)] += std::pow(static_cast<double>(f.size()), 3);
            made[static_cast<std::size_t>(owner)] += width * static_cast<double>(full);
            for (int r = 0; r < ranks; ++r) {
                index_t& bytes = kept[static_cast<std::size_t>(r)];
                if (where.is_gradient_worker(i, r))
                    bytes += static_cast<index_t>(width) * (k.form == kfac_form::eigen ? full : average);
                if (config.statistics == kfac_statistics::all || r == owner)
                    bytes += static_cast<index_t>(width) * average;
            }
        };
        for (const kfac_factor<T, D>& f : all[i].a) add(f.statistics, l.a_worker);
        for (const kfac_factor<T, D>& f : all[i].g) add(f.statistics, l.g_worker);
    }
    const auto most = [](const auto& v) { return *std::ranges::max_element(v); };
    const double others_of_row = m - 1, others_of_column = where.columns() - 1;
    e.decompose = per_cube * most(cubes) / every;
    e.share_decompositions = others_of_row * (link.alpha + most(made) * link.beta) / every;
    e.precondition = most(work);
    e.share_directions = others_of_column * (link.alpha + most(sent) * link.beta);
    e.bytes = most(kept);
    return e;
}

}  // namespace detail

/// Collective. The fraction of gradient workers of the least predicted time that fits the memory; `link` is alike on
/// all ranks.
template <Communicator C, class T, Device D>
double choose_assignment(C& world, const exchange_model& link, const kfac_ranks_config& config, const kfac_config& k,
                         const std::vector<kfac_layer<T, D>>& all, std::vector<kfac_assignment_estimate>& estimates) {
    std::vector<double> seconds;  // of preconditioning each block, the slowest rank's
    for (const kfac_layer<T, D>& b : all) seconds.push_back(detail::seconds_to_precondition(b, k.form));
    constexpr index_t probe = 128;
    seconds.push_back(detail::seconds_to_decompose<T, D>(probe, k.form) / std::pow(static_cast<double>(probe), 3));
    all_reduce(world, std::span<double>(seconds), {.op = reduction::max, .label = "times of kfac's parts"});
    const double per_cube = seconds.back();
    for (int m = world.size(); m >= 1; --m)
        if (world.size() % m == 0)
            estimates.push_back(detail::estimate_of(config, k, all, world.size(), m, link, seconds, per_cube));
    const kfac_assignment_estimate* best = nullptr;
    for (const kfac_assignment_estimate& e : estimates)
        if ((config.memory_limit == 0 || e.bytes <= config.memory_limit) && (!best || e.seconds() < best->seconds()))
            best = &e;
    require(best != nullptr, "kfac: no placement keeps within kfac.memory_limit of ", config.memory_limit,
            " bytes on each rank; the least is ", estimates.back().bytes, ", with grad_worker_fraction ",
            estimates.back().fraction);
    return best->fraction;
}

}  // namespace cairn
