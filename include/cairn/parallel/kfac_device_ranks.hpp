#pragma once
// K-FAC's work on ranks with a device each: the placements and statistics of kfac_ranks.hpp, whose head says what
// travels, with the same bytes.
// Symmetric factors travel as triangles, packed and unpacked where they are; sums when backward is done, not beside it.
// Numbers of devices go by `device_channel` and what is split off it, a few of the host's (rows, which decompositions
// are new) by `world`.
// A reduce-scatter that `device_channel` has not itself is made on the host. What travels in every step, directions,
// needs no memory of its own.

#include <cairn/comm/collectives/all_gather.hpp>
#include <cairn/comm/collectives/all_reduce.hpp>
#include <cairn/comm/collectives/broadcast.hpp>
#include <cairn/comm/collectives/reduce_scatter.hpp>
#include <cairn/comm/collectives/staged.hpp>
#include <cairn/core/trace.hpp>
#include <cairn/parallel/distributed_kfac_base.hpp>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

namespace cairn {

/// Collective. α and β of messages between devices, from all-gathers of 1 KiB and of 1 MiB; the slowest rank counts.
template <Device D, Communicator C>
exchange_model measure_device_link(C& world, C& device_channel) {
    const int p = world.size();
    if (p == 1) return {};
    const auto timed = [&](index_t n) {
        tensor<float, D> data = tensor<float, D>::zeros({n}, memory_category::communication);
        double best = 1e300;
        for (int i = 0; i < 3; ++i) {
            const stopwatch watch;
            all_gather(device_channel, data.span());
            double seconds = watch.seconds();
            all_reduce(world, std::span<double>(&seconds, 1), {.op = reduction::max});
            best = std::min(best, seconds);
        }
        return best;
    };
    constexpr index_t large = index_t{1} << 18;
    timed(index_t{1} << 10);  // connections are made
    const double little = timed(index_t{1} << 8), much = timed(large), steps = p - 1.0;
    return {little / steps, std::max(1e-13, (much - little) * p / (steps * 4 * static_cast<double>(large)))};
}

/// See the top of the file. Every call that sends is collective, and made by the thread that owns the device's stream.
template <Communicator C, class T, Device D>
class kfac_device_ranks final : public distributed_kfac_base<T, D> {
    using base = distributed_kfac_base<T, D>;
    using base::config_, base::place_, base::rank_, base::size_;

public:
    using typename base::blocks, typename base::factor;

    /// `device_channel` carries tensors of D between the same ranks as `world`. Both must outlive this, and are used
    /// when nobody else uses them.
    /// Throws on what is for the host alone: a bound of the error of what travels.
    kfac_device_ranks(C& world, C& device_channel, kfac_ranks_config c)
        : base(std::move(c), world.rank(), world.size()), world_(world), tensors_over_(device_channel) {
        require(config_.broadcast_error_bound == 0, "kfac: bound ", config_.broadcast_error_bound,
                " of the error of what travels is for the host; on ", D::name, " it must be 0 (exact)");
    }

    void start(blocks& all) override {
        base::put_in_place(world_, all, [&] { return measure_device_link<D>(world_, tensors_over_); });
        if (place_->rows() > 1 &&
            place_->columns() > 1) {  // else one of them is all ranks, and nobody asks for the other
            column_.emplace(tensors_over_.split(place_->column_of(rank_), rank_));
            row_.emplace(tensors_over_.split(place_->row_of(rank_), rank_));
        }
    }

    void finish_sums(blocks& all) override {
        if (config_.statistics == kfac_statistics::local) return;
        base::add_rows(world_, all);
        for (std::size_t first = 0, last = 0; first < all.size(); first = last) {
            index_t count = 0;
            for (; last < all.size() && count * static_cast<index_t>(sizeof(T)) < config_.bucket_bytes; ++last)
                if (all[last].rows > 0)
                    all[last].each_factor([&](factor& f, char) { count += triangle(f.statistics); });
            if (count > 0) add_over_ranks(all, first, last, count);
        }
    }

    void share_diagonals(std::span<double> means) override {
        if (config_.statistics != kfac_statistics::all)
            all_reduce(world_, means, {.op = reduction::max, .label = "diagonals of kfac's factors"});
    }

    void share_decompositions(blocks& all, std::vector<bool>& fresh, const std::string& failure) override {
        wait_for_decompositions(world_, all);
        agree_on_fresh(world_, fresh, failure);
        if (place_->rows() == 1) return;
        const std::vector<std::vector<factor*>> made = base::made_in_my_column(all, fresh);
        std::vector<range> parts;
        for (const std::vector<factor*>& of_row : made) {
            parts.push_back({parts.empty() ? 0 : parts.back().end(), 0});
            for (const factor* f : of_row) parts.back().count += packed_size(f->statistics, config_.form);
        }
        if (parts.back().end() == 0) return;
        tensor<T, D> packed({parts.back().end()}, memory_category::communication);
        const auto mine = static_cast<std::size_t>(place_->row_of(rank_));
        T* to = packed.data() + parts[mine].begin;
        for (const factor* f : made[mine]) to = pack(f->inverse, to);
        all_gather(column_ ? *column_ : tensors_over_, packed.span(), parts, "kfac's decompositions");
        for (std::size_t r = 0; r < made.size(); ++r) {
            const T* from = packed.data() + parts[r].begin;
            for (factor* f : made[r])
                if (config_.form == kfac_form::inverse || r != mine) from = unpack(from, f->statistics, f->inverse);
        }
    }

    void share_directions(blocks& all, std::span<T> directions) override {
        if (place_->columns() == 1) return;
        const trace_scope scope("share directions", "", "communication");
        std::vector<range> parts(static_cast<std::size_t>(place_->columns()));
        for (std::size_t i = 0; i < all.size(); ++i)
            parts[static_cast<std::size_t>(place_->layers()[i].column)].count += all[i].size();
        for (std::size_t k = 1; k < parts.size(); ++k) parts[k].begin = parts[k - 1].end();
        all_gather(row_ ? *row_ : tensors_over_, directions, parts, "kfac's directions");
    }

    /// Flags and counts together, because a message each would be many small ones.
    void collect(blocks& all, bool pending) override {
        if (!place_) return;
        std::vector<double> kept;  // of each factor, as its worker has it: batches, and which decompositions
        for (std::size_t i = 0; i < all.size(); ++i)
            all[i].each_factor([&](factor& f, char side) {
                const bool here = this->worker(i, side) == rank_;
                kept.push_back(here ? static_cast<double>(f.statistics.batches()) : 0);
                kept.push_back(here && !f.inverse.empty());
                kept.push_back(here && pending && !f.pending.empty());
            });
        all_reduce(world_, std::span<double>(kept), {.op = reduction::max, .label = "what kfac's ranks keep"});
        std::size_t at = 0;
        for (std::size_t i = 0; i < all.size(); ++i)
            all[i].each_factor([&](factor& f, char side) {
                const int from = this->worker(i, side);
                f.statistics.batches() = static_cast<std::int64_t>(kept[at]);
                if (config_.statistics != kfac_statistics::all)
                    broadcast(tensors_over_, f.statistics.average().span(), from);
                if (kept[at + 1] > 0) send(f.statistics, f.inverse, from);
                if (kept[at + 2] > 0) send(f.statistics, f.pending, from);
                at += 3;
            });
    }

private:
    static T* put(const tensor<T, D>& t, T* to) {
        if (!t.empty()) D::copy_within(to, t.data(), t.bytes());
        return to + t.size();
    }
    static const T* fetch(const T* from, tensor<T, D>& t) {
        if (!t.empty()) D::copy_within(t.data(), from, t.bytes());
        return from + t.size();
    }
    static T* pack_symmetric(const tensor<T, D>& m, T* to) {
        if (m.rank() == 1) return put(m, to);
        const index_t n = m.extent(0);
        pack_triangle(D{}, n, m.data(), to);
        return to + n * (n + 1) / 2;
    }
    static const T* unpack_symmetric(const T* from, tensor<T, D>& m) {
        if (m.rank() == 1) return fetch(from, m);
        const index_t n = m.extent(0);
        unpack_triangle(D{}, n, from, m.data());
        return from + n * (n + 1) / 2;
    }
    T* pack(const decomposition<T, D>& d, T* to) const {
        if (config_.form == kfac_form::inverse && !d.matrix.empty()) return pack_symmetric(d.matrix, to);
        return put(d.values, put(d.matrix, to));
    }
    const T* unpack(const T* from, const running_factor<T, D>& f, decomposition<T, D>& d) const {
        make_room(f, config_.form, d);
        if (config_.form == kfac_form::inverse && !f.is_diagonal()) return unpack_symmetric(from, d.matrix);
        return fetch(fetch(from, d.matrix), d.values);
    }

    // Blocks [first, last) in one message, by the ranks that decompose them.
    void add_over_ranks(blocks& all, std::size_t first, std::size_t last, index_t count) {
        const trace_scope scope("reduce factors", "", "communication");
        tensor<T, D> packed({count}, memory_category::communication);
        const auto each = [&](int owner, auto&& f) {
            this->each_sum(all, first, last, owner, [&](const kfac_layer<T, D>& b, running_factor<T, D>& one) {
                if (b.rows > 0) f(one);
            });
        };
        std::vector<range> parts;
        T* to = packed.data();
        for (int r = 0; r < size_; ++r) {
            parts.push_back({to - packed.data(), 0});
            each(r, [&](running_factor<T, D>& f) { to = pack_symmetric(f.batch(), to); });
            parts.back().count = to - packed.data() - parts.back().begin;
        }
        const bool sharded = config_.statistics == kfac_statistics::sharded;
        if (!sharded)
            all_reduce(tensors_over_, packed.span(), {.label = "kfac's factors"});
        else if (has_vendor_reduce_scatter<T>(tensors_over_))
            reduce_scatter(tensors_over_, packed.span(), parts, reduction::sum, "kfac's factors");
        else
            by_way_of_host<D>(packed.span(), [&](std::span<T> here) {
                reduce_scatter(world_, here, parts, reduction::sum, "kfac's factors");
            });
        for (int r = 0; r < size_; ++r) {
            if (sharded && r != rank_) continue;
            const T* from = packed.data() + parts[static_cast<std::size_t>(r)].begin;
            each(r, [&](running_factor<T, D>& f) { from = unpack_symmetric(from, f.batch()); });
        }
    }

    void send(const running_factor<T, D>& of, decomposition<T, D>& d, int from) {
        make_room(of, config_.form, d);
        if (!d.matrix.empty()) broadcast(tensors_over_, d.matrix.span(), from);
        if (!d.values.empty()) broadcast(tensors_over_, d.values.span(), from);
    }

    C &world_, &tensors_over_;
    std::optional<C> column_, row_;
};

}  // namespace cairn
