#pragma once
// K-FAC's work on P ranks (KAISA; Pauloski et al., SC 2021): the ranks that observe, average, decompose and
// precondition, and the messages between them.
//
//   statistics   all      sums of all ranks' rows, on every rank: all-reduce of upper triangles, bucket by bucket
//                         during backward
//                sharded  each factor's sum goes to the rank that decomposes it: reduce-scatter; averages lie there
//                         alone
//                local    that rank uses its own rows alone (DP-KFAC; Zhang et al. 2022): nothing travels
//   decompositions        from their makers to the layer's gradient workers: all-gather inside a column
//   directions            from gradient workers to all ranks: all-gather inside a row
//                         optim/precondition/kfac_assignment.hpp
//
// One text over the device D of the numbers. They travel by a channel's `device`; a few of the host's (rows, which
// decompositions are new) by its `host`. Ranks of the host reach each other by a communicator instead: then sums travel
// beside backward and may be compressed, and what else travels may be rounded within a bound.
//
// Bytes that a rank sends, and what it keeps, in closed form: course/kfac.md. With grad_worker_fraction 0 the fraction
// is chosen: that of the least predicted time a step, from the link and the products as measured at the start, among
// those that fit the memory limit.

#include <cairn/comm/collectives/all_gather.hpp>
#include <cairn/comm/collectives/all_reduce.hpp>
#include <cairn/comm/collectives/broadcast.hpp>
#include <cairn/comm/collectives/reduce_scatter.hpp>
#include <cairn/core/trace.hpp>
#include <cairn/device/cpu/curvature.hpp>
#include <cairn/parallel/bounded_gather.hpp>
#include <cairn/parallel/channel.hpp>
#include <cairn/parallel/comm_hook.hpp>
#include <cairn/parallel/distributed_kfac_base.hpp>
#include <cairn/parallel/link.hpp>
#include <cairn/parallel/progress_thread.hpp>
#include <cairn/parallel/scaled_reduction.hpp>

#include <algorithm>
#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace cairn {

/// See the top of the file. Every call that sends is collective.
template <Communicator C, class T = float, Device D = cpu>
class kfac_ranks final : public distributed_kfac_base<T, D> {
    using base = distributed_kfac_base<T, D>;
    using base::config_, base::place_, base::rank_, base::size_;

public:
    using typename base::blocks, typename base::factor;
    /// Makes the method that sums a bucket of n numbers; unset: exact.
    using hook_factory = std::function<std::unique_ptr<comm_hook<C>>(index_t n)>;

    /// Of numbers in the memory that `world` carries, the host's. Sums have a communicator of their own: they travel
    /// beside backward, on a thread that may make memory, and by `method` where it is set.
    kfac_ranks(C& world, kfac_ranks_config c, hook_factory method = {})
        : base(std::move(c), world.rank(), world.size()),
          make_hook_(std::move(method)),
          world_(world.split(0, world.rank())),
          own_(world.split(0, world.rank())),
          tensors_(&*own_) {
        require(!make_hook_ || config_.statistics == kfac_statistics::all,
                "kfac: compressed sums are for statistics on all ranks; with reduce-scatter they cannot be");
        require(config_.broadcast_error_bound >= 0 && (config_.broadcast_error_bound == 0 || std::same_as<T, float>),
                "kfac: bound ", config_.broadcast_error_bound,
                " of the error of what travels; it must be 0 (exact) or positive, and numbers must be float");
    }
    /// Of numbers on a device. `over` must outlive this; its `device` is used by the thread that owns the device's
    /// stream. Throws on what is for the host alone: a bound of the error of what travels.
    kfac_ranks(channel<C>& over, kfac_ranks_config c)
        : base(std::move(c), over.rank(), over.size()),
          world_(over.host.split(0, over.rank())),
          tensors_(&over.device) {
        require(config_.broadcast_error_bound == 0, "kfac: bound ", config_.broadcast_error_bound,
                " of the error of what travels is for the host; on ", D::name, " it must be 0 (exact)");
    }

    void start(blocks& all, const kfac_config& k) override {
        form_ = k.form;
        base::put_in_place(world_, all, k, [&] { return measure_gathers<D>(world_, *tensors_); });
        if (place_->rows() > 1 &&
            place_->columns() > 1) {  // else one of them is all ranks, and the other is not asked for
            column_.emplace(tensors_->split(place_->column_of(rank_), rank_));
            row_.emplace(tensors_->split(place_->row_of(rank_), rank_));
        }
        make_buckets(all);
        if (own_ && config_.overlap && sums_travel()) thread_ = std::make_unique<progress_thread>();
    }

    void sums_ready(blocks& all, std::size_t i) override {
        if (!own_ || !sums_travel()) return;
        done_[i] = true;
        while (next_ < buckets_.size() && is_done(buckets_[next_])) launch(all, next_++);
    }

    void finish_sums(blocks& all) override {
        if (!sums_travel()) return;
        while (next_ < buckets_.size()) launch(all, next_++);
        {
            const trace_scope scope("wait for factors", "", "communication");
            if (thread_) thread_->wait();
        }
        next_ = 0;
        std::fill(done_.begin(), done_.end(), false);
        ++step_;
        base::add_rows(world_, all);
    }

    void share_diagonals(std::span<double> means) override {
        if (config_.statistics != kfac_statistics::all && size_ > 1)
            all_reduce(world_, means, {.op = reduction::max, .label = "diagonals of kfac's factors"});
    }

    void share_decompositions(blocks& all, std::vector<bool>& fresh, const std::string& failure) override {
        wait_for_decompositions(world_, all);
        agree_on_fresh(world_, fresh, failure);
        if (place_->rows() == 1) return;
        const std::vector<std::vector<factor*>> made = base::made_in_my_column(all, fresh);
        std::vector<std::vector<piece>> pieces(made.size());
        index_t total = 0, begin = 0;
        const auto mine = static_cast<std::size_t>(place_->row_of(rank_));
        for (std::size_t r = 0; r < made.size(); ++r) {
            if (r == mine) begin = total;
            for (const factor* f : made[r]) {
                const index_t values = has_values(f->statistics, form_) ? f->statistics.size() : 0;
                const index_t size = packed_size(f->statistics, form_);
                if (size > values) pieces[r].push_back({size - values, false});
                if (values) pieces[r].push_back({values, true});
                total += size;
            }
        }
        if (total == 0) return;
        tensor<T, D> packed({total}, memory_category::communication);
        T* to = packed.data() + begin;
        for (const factor* f : made[mine]) to = pack(f->inverse, to);
        gather(column_ ? *column_ : *tensors_, packed.span(), pieces, "kfac's decompositions");
        const T* from = packed.data();
        for (const auto& of_row : made)
            for (factor* f : of_row) from = unpack(from, f->statistics, f->inverse);
    }

    /// What travels in every step needs no memory of its own.
    void share_directions(blocks& all, std::span<T> directions) override {
        if (place_->columns() == 1) return;
        const trace_scope scope("share directions", "", "communication");
        std::vector<std::vector<piece>> pieces(static_cast<std::size_t>(place_->columns()));
        for (std::size_t i = 0; i < all.size(); ++i)
            pieces[static_cast<std::size_t>(place_->layers()[i].column)].push_back({all[i].size(), false});
        gather(row_ ? *row_ : *tensors_, directions, pieces, "kfac's directions");
    }

    C& world() { return world_; }

private:
    using piece = gathered_piece;  // eigenvalues are few, and the small ones count: they are exact
    struct sum_bucket {
        std::size_t first = 0, last = 0;  // blocks
        index_t count = 0;                // numbers
        std::vector<range> parts;         // of each rank
        std::vector<range> factors;       // of each factor
        std::unique_ptr<comm_hook<C>> method;
    };

    bool sums_travel() const { return config_.statistics != kfac_statistics::local && size_ > 1; }

    static void copy(const T* from, T* to, index_t n) { D::copy_within(to, from, n * static_cast<index_t>(sizeof(T))); }
    static T* put(const tensor<T, D>& t, T* to) {
        if (!t.empty()) copy(t.data(), to, t.size());
        return to + t.size();
    }
    static const T* fetch(const T* from, tensor<T, D>& t) {
        if (!t.empty()) copy(from, t.data(), t.size());
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
        if (form_ == kfac_form::inverse && !d.matrix.empty()) return pack_symmetric(d.matrix, to);
        return put(d.values, put(d.matrix, to));
    }
    const T* unpack(const T* from, const running_factor<T, D>& f, decomposition<T, D>& d) const {
        make_room(f, form_, d);
        if (form_ == kfac_form::inverse && !f.is_diagonal()) return unpack_symmetric(from, d.matrix);
        return fetch(fetch(from, d.matrix), d.values);
    }

    /// All-gather of parts, each made of `pieces` (numbers in a row, by part): exact, or each piece within `bound` of
    /// its own largest value. Either way every rank ends with the same bits, of its own part too.
    void gather(C& c, std::span<T> data, const std::vector<std::vector<piece>>& pieces, std::string_view label) {
        std::vector<range> parts;
        for (const auto& of_part : pieces) {
            parts.push_back({parts.empty() ? 0 : parts.back().end(), 0});
            for (const piece& p : of_part) parts.back().count += p.count;
        }
        if constexpr (std::same_as<T, float>)
            if (config_.broadcast_error_bound > 0)
                return gather_bounded(c, data, parts, pieces, config_.broadcast_error_bound, step_);
        all_gather(c, data, parts, label);
    }
    void make_buckets(blocks& all) {
        done_.assign(all.size(), false);
        for (std::size_t i = 0; i < all.size();) {
            sum_bucket b{.first = i, .last = i, .count = 0, .parts = {}, .factors = {}, .method = nullptr};
            while (i < all.size() && b.count * static_cast<index_t>(sizeof(T)) < config_.bucket_bytes) {
                all[i].each_factor([&](factor& f, char) { b.count += triangle(f.statistics); });
                b.last = ++i;
            }
            index_t at = 0;
            for (int r = 0; r < size_; ++r) {
                index_t n = 0;
                each_sum(all, b, r, [&](running_factor<T, D>& f) {
                    b.factors.push_back({at + n, triangle(f)});
                    n += triangle(f);
                });
                b.parts.push_back({at, n});
                at += n;
            }
            if (make_hook_) b.method = make_hook_(b.count);
            buckets_.push_back(std::move(b));
        }
    }
    bool is_done(const sum_bucket& b) const {
        return std::all_of(done_.begin() + static_cast<std::ptrdiff_t>(b.first),
                           done_.begin() + static_cast<std::ptrdiff_t>(b.last), [](bool d) { return d; });
    }
    template <class F>
    void each_sum(blocks& all, const sum_bucket& b, int owner, F&& f) const {
        base::each_sum(all, b.first, b.last, owner,
                       [&](const kfac_layer<T, D>&, running_factor<T, D>& one) { f(one); });
    }
    void launch(blocks& all, std::size_t which) {
        auto job = [this, &all, which] {
            const trace_scope scope("reduce factors " + std::to_string(which), "", "communication");
            sum_bucket& b = buckets_[which];
            tensor<T, D> packed({b.count}, memory_category::communication);
            T* to = packed.data();
            for (int r = 0; r < size_; ++r)
                each_sum(all, b, r, [&](running_factor<T, D>& f) { to = pack_symmetric(f.batch(), to); });
            add_up(b, packed.span());
            for (int r = 0; r < size_; ++r) {
                if (config_.statistics == kfac_statistics::sharded && r != rank_) continue;
                const T* from = packed.data() + b.parts[static_cast<std::size_t>(r)].begin;
                each_sum(all, b, r, [&](running_factor<T, D>& f) { from = unpack_symmetric(from, f.batch()); });
            }
        };
        if (thread_)
            thread_->submit(job);
        else
            job();
    }
    // On all ranks, or each part on the rank that decomposes it.
    void add_up(sum_bucket& b, std::span<T> data) {
        if (config_.statistics == kfac_statistics::sharded) {
            reduce_scatter(*tensors_, data, b.parts, reduction::sum, "kfac's factors");
        } else if (!reduce_by_method(b, data)) {
            all_reduce(*tensors_, data, {.label = "kfac's factors"});
        }
    }
    // Factors that share a bucket have values of any size, by rows and by gradients: each has a scale of its own. Where
    // one is not finite they travel as they are, which makes the sum so on every rank.
    bool reduce_by_method(sum_bucket& b, std::span<T> data) {
        if constexpr (std::same_as<T, float>)
            return b.method &&
                   scaled_reduction(*tensors_, *b.method, data, b.factors, encode_step{.rank = rank_, .step = step_});
        return false;
    }

    hook_factory make_hook_;
    kfac_form form_ = kfac_form::inverse;  // of decompositions, from start() on
    C world_;                              // of the host's messages
    std::optional<C> own_;                 // of sums beside backward
    C* tensors_;                           // carries tensors of D
    std::optional<C> column_, row_;
    std::vector<sum_bucket> buckets_;
    std::vector<bool> done_;  // blocks whose sums are complete
    std::size_t next_ = 0;    // bucket to launch
    std::int64_t step_ = 0;
    std::unique_ptr<progress_thread> thread_;  // last: stops before what it works on goes
};

}  // namespace cairn
