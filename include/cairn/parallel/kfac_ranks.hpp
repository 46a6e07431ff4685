#pragma once
// K-FAC's work on P ranks (KAISA; Pauloski et al., SC 2021): who observes, averages, decomposes and preconditions, and what travels.
//
//   statistics   all      sums of all ranks' rows, on every rank: all-reduce of upper triangles, bucket by bucket during backward
//                sharded  each factor's sum goes to the rank that decomposes it: reduce-scatter; averages lie there alone
//                local    that rank uses its own rows alone, nobody else looks at them (DP-KFAC; Zhang et al. 2022): nothing travels
//   decompositions        from their makers to the layer's gradient workers: all-gather inside a column
//   directions            from gradient workers to everybody: all-gather inside a row             optim/precondition/placement.hpp
//
// Bytes that a rank sends, and what it keeps, in closed form: course/kfac.md. With grad_worker_fraction 0 the fraction is chosen: that of
// the least predicted time a step, from the link and the products as measured at the start, among those that fit the memory limit.

#include <cairn/comm/collectives/all_gather.hpp>
#include <cairn/comm/collectives/all_reduce.hpp>
#include <cairn/comm/collectives/reduce_scatter.hpp>
#include <cairn/comm/collectives/text.hpp>
#include <cairn/compress/error_bounded.hpp>
#include <cairn/core/trace.hpp>
#include <cairn/parallel/governed.hpp>
#include <cairn/parallel/placed_kfac_roles.hpp>
#include <cairn/parallel/progress_thread.hpp>
#include <cairn/parallel/reduction_method.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace cairn {

/// See the top of the file. Every call that sends is collective.
template <Communicator C, class T = float>
class kfac_ranks final : public placed_kfac_roles<T, cpu> {
    using base = placed_kfac_roles<T, cpu>;
    using base::config_, base::place_, base::rank_, base::size_;

public:
    using typename base::blocks;
    /// Makes the method that sums a bucket of n numbers; unset: exact.
    using method_maker = std::function<std::unique_ptr<reduction_method<C>>(index n)>;

    kfac_ranks(C& world, kfac_ranks_config c, method_maker method = {})
        : base(std::move(c), world.rank(), world.size()),
          make_method_(std::move(method)),
          world_(world.split(0, world.rank())),
          sums_(world.split(0, world.rank())) {
        require(!make_method_ || config_.statistics == kfac_statistics::all,
                "kfac: compressed sums are for statistics on all ranks; with reduce-scatter they cannot be");
        require(config_.bound >= 0 && (config_.bound == 0 || std::same_as<T, float>), "kfac: bound ", config_.bound,
                " of the error of what travels; it must be 0 (exact) or positive, and numbers must be float");
    }

    void start(blocks& all) override {
        base::put_in_place(world_, all, [&] { return measure_link(world_); });
        column_.emplace(world_.split(place_->column_of(rank_), rank_));
        row_.emplace(world_.split(place_->row_of(rank_), rank_));
        make_buckets(all);
        if (config_.overlap && size_ > 1 && config_.statistics != kfac_statistics::local)
            thread_ = std::make_unique<progress_thread>();
    }

    void sums_ready(blocks& all, std::size_t i) override {
        if (config_.statistics == kfac_statistics::local || size_ == 1) return;
        done_[i] = true;
        while (next_ < buckets_.size() && is_done(buckets_[next_])) launch(all, next_++);
    }

    void finish_sums(blocks& all) override {
        if (config_.statistics == kfac_statistics::local || size_ == 1) return;
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
            all_reduce(world_, means, {.op = reduction::max, .subject = "diagonals of kfac's factors"});
    }

    void share_decompositions(blocks& all, std::vector<bool>& fresh, const std::string& failure) override {
        wait_for_decompositions(world_, all);
        agree_on_fresh(world_, fresh, failure);
        if (place_->rows() == 1) return;
        const std::vector<std::vector<kfac_factor<T>*>> made = base::made_in_my_column(all, fresh);
        std::vector<std::vector<piece>> pieces(made.size());
        index total = 0, begin = 0;
        const auto mine = static_cast<std::size_t>(place_->row_of(rank_));
        for (std::size_t r = 0; r < made.size(); ++r) {
            if (r == mine) begin = total;
            for (const kfac_factor<T>* f : made[r]) {
                const index values = has_values(f->statistics, config_.form) ? f->statistics.size() : 0;
                const index size = packed_size(f->statistics, config_.form);
                if (size > values) pieces[r].push_back({size - values, false});
                if (values) pieces[r].push_back({values, true});
                total += size;
            }
        }
        tensor<T> packed({total}, category::communication);
        T* to = packed.data() + begin;
        for (const kfac_factor<T>* f : made[mine]) to = pack(f->inverse, to);
        gather(*column_, packed.span(), pieces, "kfac's decompositions");
        const T* from = packed.data();
        for (const auto& of_row : made)
            for (kfac_factor<T>* f : of_row) from = unpack(from, f->statistics, f->inverse);
    }

    void share_directions(blocks& all, std::span<T> directions) override {
        if (place_->columns() == 1) return;
        const trace_scope scope("share directions", "", "communication");
        std::vector<std::vector<piece>> pieces(static_cast<std::size_t>(place_->columns()));
        for (std::size_t i = 0; i < all.size(); ++i)
            pieces[static_cast<std::size_t>(place_->layers()[i].column)].push_back({all[i].size(), false});
        gather(*row_, directions, pieces, "kfac's directions");
    }

    void collect(blocks& all, bool pending) override {
        if (size_ == 1) return;
        for (std::size_t i = 0; i < all.size(); ++i) {
            all[i].each_factor([&](kfac_factor<T>& f, char side) {
                const int root = this->worker(i, side);
                broadcast(world_, std::span<std::int64_t>(&f.statistics.batches(), 1), root);
                broadcast(world_, f.statistics.average().span(), root);
                broadcast_decomposition(f.statistics, f.inverse, root);
                if (pending) broadcast_decomposition(f.statistics, f.pending, root);
            });
        }
    }

    C& world() { return world_; }

private:
    /// Numbers in a row that travel together. Eigenvalues are few, and the small ones count: they are exact.
    struct piece {
        index count = 0;
        bool exact = false;
    };
    struct sum_bucket {
        std::size_t first = 0, last = 0;  // blocks
        index count = 0;                  // numbers
        std::vector<shard> parts;         // of each rank
        std::unique_ptr<reduction_method<C>> method;
    };

    static T* pack_symmetric(const tensor<T>& m, T* to) {
        const index n = m.extent(0);
        if (m.rank() == 1) return std::copy_n(m.data(), n, to);
        for (index r = 0; r < n; ++r) to = std::copy_n(m.data() + r * n + r, n - r, to);
        return to;
    }
    static const T* unpack_symmetric(const T* from, tensor<T>& m) {
        const index n = m.extent(0);
        if (m.rank() == 1) {
            std::copy_n(from, n, m.data());
            return from + n;
        }
        for (index r = 0; r < n; ++r)
            for (index k = r; k < n; ++k) m[r * n + k] = m[k * n + r] = *from++;
        return from;
    }
    T* pack(const decomposition<T>& d, T* to) const {
        if (config_.form == kfac_form::inverse && !d.matrix.empty()) return pack_symmetric(d.matrix, to);
        to = std::copy_n(d.matrix.data(), d.matrix.empty() ? 0 : d.matrix.size(), to);
        return std::copy_n(d.values.data(), d.values.size(), to);
    }
    const T* unpack(const T* from, const running_factor<T>& f, decomposition<T>& d) const {
        make_room(f, config_.form, d);
        if (config_.form == kfac_form::inverse && !f.is_diagonal()) return unpack_symmetric(from, d.matrix);
        if (!f.is_diagonal()) {
            std::copy_n(from, d.matrix.size(), d.matrix.data());
            from += d.matrix.size();
        }
        std::copy_n(from, d.values.size(), d.values.data());
        return from + d.values.size();
    }
    void broadcast_decomposition(const running_factor<T>& f, decomposition<T>& d, int root) {
        std::array<std::int64_t, 1> there{d.empty() ? 0 : 1};
        broadcast(world_, std::span<std::int64_t>(there), root);
        if (!there[0]) return;
        make_room(f, config_.form, d);
        if (!f.is_diagonal()) broadcast(world_, d.matrix.span(), root);
        if (!d.values.empty()) broadcast(world_, d.values.span(), root);
    }

    /// All-gather of parts, each made of `pieces` (numbers in a row, by part): exact, or each piece within `bound` of its own largest
    /// value. Either way every rank ends with the same bits, of its own part too.
    void gather(C& c, std::span<T> data, const std::vector<std::vector<piece>>& pieces, std::string_view subject) {
        std::vector<shard> parts;
        for (const auto& of_part : pieces) {
            parts.push_back({parts.empty() ? 0 : parts.back().end(), 0});
            for (const piece& p : of_part) parts.back().count += p.count;
        }
        if constexpr (std::same_as<T, float>)
            if (config_.bound > 0) return gather_bounded(c, data, parts, pieces);
        all_gather(c, data, parts, subject);
    }
    // A part's message: for each piece its length in bytes, 8, and what error_bounded made of it, or its floats.
    void gather_bounded(C& c, std::span<float> data, const std::vector<shard>& parts,
                        const std::vector<std::vector<piece>>& pieces) {
        error_bounded compressor({.bound = config_.bound});
        std::vector<std::byte> mine;
        message<> out;
        const encode_step at{.rank = c.rank(), .step = step_};
        index begin = parts[static_cast<std::size_t>(c.rank())].begin;
        for (const piece& p : pieces[static_cast<std::size_t>(c.rank())]) {
            const std::span<float> values = subspan(data, {begin, p.count});
            begin += p.count;
            std::span<const std::byte> bytes = std::as_bytes(values);
            if (!p.exact) {
                compressor.encode(values, out, at);
                bytes = std::as_const(out).bytes();
            }
            const std::array<std::int64_t, 1> length{static_cast<std::int64_t>(bytes.size())};
            const auto header = std::as_bytes(std::span(length));
            mine.insert(mine.end(), header.begin(), header.end());
            mine.insert(mine.end(), bytes.begin(), bytes.end());
        }
        mailbox<> all;
        gather_messages(c, std::span<const std::byte>(mine), all, false);
        for (int r = 0; r < c.size(); ++r) {
            message_reader reader("kfac's traffic", all.of(r));
            begin = parts[static_cast<std::size_t>(r)].begin;
            for (const piece& p : pieces[static_cast<std::size_t>(r)]) {
                const std::span<float> values = subspan(data, {begin, p.count});
                begin += p.count;
                const auto length = reader.template number<std::int64_t>("a piece's length");
                const std::byte* const bytes = reader.take(length, "a piece");
                if (p.exact && length != static_cast<std::int64_t>(values.size_bytes()))
                    reader.damaged("a piece of ", p.count, " floats has ", length, " bytes");
                if (p.exact)
                    std::memcpy(values.data(), bytes, values.size_bytes());
                else
                    compressor.decode({bytes, static_cast<std::size_t>(length)}, values, at);
            }
            reader.finish();
        }
    }

    void make_buckets(blocks& all) {
        done_.assign(all.size(), false);
        for (std::size_t i = 0; i < all.size();) {
            sum_bucket b{.first = i, .last = i, .count = 0, .parts = {}, .method = nullptr};
            while (i < all.size() && b.count * static_cast<index>(sizeof(T)) < config_.bucket_bytes) {
                all[i].each_factor([&](kfac_factor<T>& f, char) { b.count += triangle(f.statistics); });
                b.last = ++i;
            }
            index at = 0;
            for (int r = 0; r < size_; ++r) {
                index n = 0;
                each_sum(all, b, r, [&](running_factor<T>& f) { n += triangle(f); });
                b.parts.push_back({at, n});
                at += n;
            }
            if (make_method_) b.method = make_method_(b.count);
            buckets_.push_back(std::move(b));
        }
    }
    bool is_done(const sum_bucket& b) const {
        return std::all_of(done_.begin() + static_cast<std::ptrdiff_t>(b.first),
                           done_.begin() + static_cast<std::ptrdiff_t>(b.last), [](bool d) { return d; });
    }
    template <class F>
    void each_sum(blocks& all, const sum_bucket& b, int owner, F&& f) const {
        base::each_sum(all, b.first, b.last, owner, [&](const kfac_block<T>&, running_factor<T>& one) { f(one); });
    }
    void launch(blocks& all, std::size_t which) {
        auto job = [this, &all, which] {
            const trace_scope scope("reduce factors " + std::to_string(which), "", "communication");
            sum_bucket& b = buckets_[which];
            tensor<T> packed({b.count}, category::communication);
            T* to = packed.data();
            for (int r = 0; r < size_; ++r)
                each_sum(all, b, r, [&](running_factor<T>& f) { to = pack_symmetric(f.batch(), to); });
            const bool sharded = config_.statistics == kfac_statistics::sharded;
            if (sharded)
                reduce_scatter(sums_, packed.span(), b.parts, reduction::sum, "kfac's factors");
            else if (!reduce_by_method(b, packed.span()))
                all_reduce(sums_, packed.span(), {.subject = "kfac's factors"});
            for (int r = 0; r < size_; ++r) {
                if (sharded && r != rank_) continue;
                const T* from = packed.data() + b.parts[static_cast<std::size_t>(r)].begin;
                each_sum(all, b, r, [&](running_factor<T>& f) { from = unpack_symmetric(from, f.batch()); });
            }
        };
        if (thread_)
            thread_->submit(job);
        else
            job();
    }
    // Values that are not finite cannot be encoded: they travel as one huge number that makes the sum so on every rank.
    bool reduce_by_method(sum_bucket& b, std::span<T> data) {
        if constexpr (std::same_as<T, float>) {
            if (!b.method) return false;
            std::array<float, 1> broken{first_non_finite(tensor<T>::view(data.data(), {b.count})) ? 1.0f : 0.0f};
            all_reduce(sums_, std::span<float>(broken), {.op = reduction::max});
            if (broken[0] > 0) return false;
            b.method->reduce(sums_, data, encode_step{.rank = rank_, .step = step_});
            return true;
        }
        return false;
    }

    method_maker make_method_;
    C world_, sums_;
    std::optional<C> column_, row_;
    std::vector<sum_bucket> buckets_;
    std::vector<bool> done_;  // blocks whose sums are complete
    std::size_t next_ = 0;    // bucket to launch
    std::int64_t step_ = 0;
    std::unique_ptr<progress_thread> thread_;  // last: stops before what it works on goes
};

}  // namespace cairn
