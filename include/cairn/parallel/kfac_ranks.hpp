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
#include <cairn/parallel/kfac_together.hpp>
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

enum class kfac_statistics { all, sharded, local };

struct kfac_ranks_config {
    kfac_statistics statistics = kfac_statistics::all;
    placement_config place = {};  // grad_worker_fraction 0: chosen
    index memory_limit = 0;       // bytes of averages and decompositions on a rank; 0: none
    index bucket_bytes = index{25} << 20;
    bool overlap = true;  // sums travel on a thread of their own while backward runs
    double bound =
        0;  // of the error of decompositions and directions that travel, as a share of the largest value; 0: exact
    kfac_form form = kfac_form::eigen;
    std::int64_t decompose_every = 100;
};

/// What one choice of gradient workers costs, as predicted.
struct placement_estimate {
    double fraction = 1;
    double decompose = 0, share_decompositions = 0, precondition = 0, share_directions = 0;  // seconds a step
    index bytes = 0;  // of averages and decompositions on the rank that has most

    double seconds() const { return decompose + share_decompositions + precondition + share_directions; }
};

/// See the top of the file. Every call that sends is collective.
template <Communicator C, class T = float>
class kfac_ranks final : public kfac_roles<T> {
public:
    using blocks = std::vector<kfac_block<T>>;
    /// Makes the method that sums a bucket of n numbers; unset: exact.
    using method_maker = std::function<std::unique_ptr<reduction_method<C>>(index n)>;

    kfac_ranks(C& world, kfac_ranks_config c, method_maker method = {})
        : config_(std::move(c)),
          make_method_(std::move(method)),
          world_(world.split(0, world.rank())),
          sums_(world.split(0, world.rank())) {
        require(!make_method_ || config_.statistics == kfac_statistics::all,
                "kfac: compressed sums are for statistics on all ranks; with reduce-scatter they cannot be");
        require(config_.bound >= 0 && (config_.bound == 0 || std::same_as<T, float>), "kfac: bound ", config_.bound,
                " of the error of what travels; it must be 0 (exact) or positive, and numbers must be float");
    }

    void start(blocks& all) override {
        agree_on_layers(world_, all);
        for (const kfac_block<T>& b : all) sizes_.push_back(b.sizes());
        placement_config place = config_.place;
        if (place.grad_worker_fraction == 0) place.grad_worker_fraction = choose(all);
        place_.emplace(size(), sizes_, place);
        column_.emplace(world_.split(place_->column_of(rank()), rank()));
        row_.emplace(world_.split(place_->row_of(rank()), rank()));
        make_buckets(all);
        if (config_.overlap && size() > 1 && config_.statistics != kfac_statistics::local)
            thread_ = std::make_unique<progress_thread>();
    }

    bool observes(std::size_t i, char side) const override {
        return config_.statistics != kfac_statistics::local || worker(i, side) == rank();
    }
    bool averages(std::size_t i, char side) const override {
        return config_.statistics == kfac_statistics::all || worker(i, side) == rank();
    }
    bool decomposes(std::size_t i, char side) const override { return worker(i, side) == rank(); }
    bool preconditions(std::size_t i) const override { return place_->is_gradient_worker(i, rank()); }
    bool uses_decomposition(std::size_t i) const override { return preconditions(i); }

    void sums_ready(blocks& all, std::size_t i) override {
        if (config_.statistics == kfac_statistics::local || size() == 1) return;
        done_[i] = true;
        while (next_ < buckets_.size() && is_done(buckets_[next_])) launch(all, next_++);
    }

    void finish_sums(blocks& all) override {
        if (config_.statistics == kfac_statistics::local || size() == 1) return;
        while (next_ < buckets_.size()) launch(all, next_++);
        {
            const trace_scope scope("wait for factors", "", "communication");
            if (thread_) thread_->wait();
        }
        next_ = 0;
        std::fill(done_.begin(), done_.end(), false);
        ++step_;
        std::vector<double> rows;
        for (const kfac_block<T>& b : all) rows.push_back(static_cast<double>(b.rows));
        all_reduce(world_, std::span<double>(rows), {.subject = "rows of kfac's layers"});
        for (std::size_t i = 0; i < rows.size(); ++i) all[i].rows = static_cast<index>(rows[i]);
    }

    void share_diagonals(std::span<double> means) override {
        if (config_.statistics != kfac_statistics::all && size() > 1)
            all_reduce(world_, means, {.op = reduction::max, .subject = "diagonals of kfac's factors"});
    }

    void share_decompositions(blocks& all, std::vector<bool>& fresh, const std::string& failure) override {
        wait_for_decompositions(world_, all);
        std::vector<float> state(fresh.begin(), fresh.end());
        state.push_back(failure.empty() ? 0.0f : 1.0f);
        all_reduce(world_, std::span<float>(state),
                   {.op = reduction::max, .subject = "state of kfac's decompositions"});
        if (state.back() > 0) fail_together(failure);
        for (std::size_t k = 0; k < fresh.size(); ++k) fresh[k] = state[k] > 0;

        std::vector<std::vector<kfac_factor<T>*>> made(
            static_cast<std::size_t>(place_->rows()));  // by row of my column
        std::size_t at = 0;
        for (std::size_t i = 0; i < all.size(); ++i)
            all[i].each_factor([&](kfac_factor<T>& f, char side) {
                if (fresh[at++] && preconditions(i))
                    made[static_cast<std::size_t>(place_->row_of(worker(i, side)))].push_back(&f);
            });
        if (place_->rows() == 1) return;
        std::vector<std::vector<piece>> pieces(made.size());
        index total = 0, begin = 0;
        const auto mine = static_cast<std::size_t>(place_->row_of(rank()));
        for (std::size_t r = 0; r < made.size(); ++r) {
            if (r == mine) begin = total;
            for (const kfac_factor<T>* f : made[r]) {
                const index values = has_values(f->statistics) ? f->statistics.size() : 0;
                if (packed_size(f->statistics) > values)
                    pieces[r].push_back({packed_size(f->statistics) - values, false});
                if (values) pieces[r].push_back({values, true});
                total += packed_size(f->statistics);
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

    std::vector<std::size_t> order_of_directions(const blocks& all) const override {
        std::vector<std::size_t> order = kfac_roles<T>::order_of_directions(all);
        std::ranges::stable_sort(order, {}, [&](std::size_t i) { return place_->layers()[i].column; });
        return order;
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
        if (size() == 1) return;
        for (std::size_t i = 0; i < all.size(); ++i) {
            all[i].each_factor([&](kfac_factor<T>& f, char side) {
                const int root = worker(i, side);
                broadcast(world_, std::span<std::int64_t>(&f.statistics.batches(), 1), root);
                broadcast(world_, f.statistics.average().span(), root);
                broadcast_decomposition(f.statistics, f.inverse, root);
                if (pending) broadcast_decomposition(f.statistics, f.pending, root);
            });
        }
    }

    std::vector<std::string> remarks() const override {
        std::vector<std::string> lines;
        if (!place_) return lines;
        const int m = place_->rows();
        lines.push_back(concat("kfac on ", size(), " ranks: ", m, m == 1 ? " gradient worker" : " gradient workers",
                               " a layer (",
                               m == size() ? "COMM-OPT"
                               : m == 1    ? "MEM-OPT"
                                           : "HYBRID",
                               ")"));
        for (const placement_estimate& e : estimates_)
            lines.push_back(concat("  fraction ", e.fraction, ": predicted ", 1e3 * e.seconds(),
                                   " ms a step (decompose ", 1e3 * e.decompose, ", share ",
                                   1e3 * e.share_decompositions, ", precondition ", 1e3 * e.precondition, ", share ",
                                   1e3 * e.share_directions, "), ", static_cast<double>(e.bytes) / 1e6, " MB"));
        return lines;
    }

    const placement& place() const { return *place_; }
    const std::vector<placement_estimate>& estimates() const { return estimates_; }
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

    int rank() const { return world_.rank(); }
    int size() const { return world_.size(); }
    int worker(std::size_t i, char side) const { return place_->worker(i, side); }

    static index triangle(const running_factor<T>& f) {
        const index n = f.size();
        return f.is_diagonal() ? n : n * (n + 1) / 2;
    }
    bool has_values(const running_factor<T>& f) const { return f.is_diagonal() || config_.form == kfac_form::eigen; }
    index packed_size(const running_factor<T>& f) const {
        const index n = f.size();
        return (f.is_diagonal() ? 0 : config_.form == kfac_form::eigen ? n * n : triangle(f)) + (has_values(f) ? n : 0);
    }
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
    void make_room(const running_factor<T>& f, decomposition<T>& d) const {
        const index n = f.size();
        if (!f.is_diagonal() && d.matrix.empty()) d.matrix = tensor<T>({n, n}, category::optimizer);
        if (has_values(f) && d.values.empty()) d.values = tensor<T>({n}, category::optimizer);
    }
    const T* unpack(const T* from, const running_factor<T>& f, decomposition<T>& d) const {
        make_room(f, d);
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
        make_room(f, d);
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
        message out;
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
        const gathered_messages all = gather_messages(c, std::span<const std::byte>(mine));
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
            for (int r = 0; r < size(); ++r) {
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
    // The factors of a bucket that `owner` decomposes.
    template <class F>
    void each_sum(blocks& all, const sum_bucket& b, int owner, F&& f) {
        for (std::size_t i = b.first; i < b.last; ++i)
            all[i].each_factor([&](kfac_factor<T>& factor, char side) {
                if (worker(i, side) == owner) f(factor.statistics);
            });
    }
    void launch(blocks& all, std::size_t which) {
        auto job = [this, &all, which] {
            const trace_scope scope("reduce factors " + std::to_string(which), "", "communication");
            sum_bucket& b = buckets_[which];
            tensor<T> packed({b.count}, category::communication);
            T* to = packed.data();
            for (int r = 0; r < size(); ++r)
                each_sum(all, b, r, [&](running_factor<T>& f) { to = pack_symmetric(f.batch(), to); });
            const bool sharded = config_.statistics == kfac_statistics::sharded;
            if (sharded)
                reduce_scatter(sums_, packed.span(), b.parts, reduction::sum, "kfac's factors");
            else if (!reduce_by_method(b, packed.span()))
                all_reduce(sums_, packed.span(), {.subject = "kfac's factors"});
            for (int r = 0; r < size(); ++r) {
                if (sharded && r != rank()) continue;
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
            b.method->reduce(sums_, data, encode_step{.rank = rank(), .step = step_});
            return true;
        }
        return false;
    }

    [[noreturn]] void fail_together(const std::string& mine) {
        const std::vector<std::string> reasons = all_gather_text(world_, mine);
        for (int r = 0; r < size(); ++r)
            if (const std::string& why = reasons[static_cast<std::size_t>(r)]; !why.empty())
                fail("rank ", r, " of ", size(), ": ", why);
        fail("kfac: a decomposition failed");
    }

    /// The fraction of the least predicted time that fits the memory.
    double choose(blocks& all) {
        const exchange_model link = measure_link(world_);
        std::vector<double> seconds;  // of preconditioning each block, the slowest rank's
        for (kfac_block<T>& b : all) seconds.push_back(seconds_to_precondition(b));
        constexpr index probe = 128;
        seconds.push_back(seconds_to_decompose(probe) / std::pow(static_cast<double>(probe), 3));
        all_reduce(world_, std::span<double>(seconds), {.op = reduction::max, .subject = "times of kfac's parts"});
        const double per_cube = seconds.back();
        for (int m = size(); m >= 1; --m)
            if (size() % m == 0) estimates_.push_back(estimate(all, m, link, seconds, per_cube));
        const placement_estimate* best = nullptr;
        for (const placement_estimate& e : estimates_)
            if ((config_.memory_limit == 0 || e.bytes <= config_.memory_limit) &&
                (!best || e.seconds() < best->seconds()))
                best = &e;
        require(best != nullptr, "kfac: no placement keeps within kfac.memory_limit of ", config_.memory_limit,
                " bytes on each rank; the least is ", estimates_.back().bytes, ", with grad_worker_fraction ",
                estimates_.back().fraction);
        return best->fraction;
    }

    placement_estimate estimate(blocks& all, int m, const exchange_model& link, const std::vector<double>& seconds,
                                double per_cube) const {
        placement_config c = config_.place;
        c.grad_worker_fraction = static_cast<double>(m) / size();
        const placement where(size(), sizes_, c);
        const double every = static_cast<double>(config_.decompose_every), width = sizeof(T);
        placement_estimate e{.fraction = c.grad_worker_fraction};
        std::vector<double> made(static_cast<std::size_t>(size())), work(static_cast<std::size_t>(where.columns())),
            sent(work.size());
        std::vector<index> kept(made.size());
        for (std::size_t i = 0; i < all.size(); ++i) {
            const layer_place& l = where.layers()[i];
            work[static_cast<std::size_t>(l.column)] += seconds[i];
            sent[static_cast<std::size_t>(l.column)] += width * static_cast<double>(all[i].size());
            all[i].each_factor([&](kfac_factor<T>& f, char side) {
                const int owner = side == 'a' ? l.a_worker : l.g_worker;
                const index full = packed_size(f.statistics), average = f.statistics.extents().size();
                made[static_cast<std::size_t>(owner)] += width * static_cast<double>(full);
                for (int r = 0; r < size(); ++r) {
                    index& bytes = kept[static_cast<std::size_t>(r)];
                    if (where.is_gradient_worker(i, r))
                        bytes += static_cast<index>(width) * (config_.form == kfac_form::eigen ? full : average);
                    if (config_.statistics == kfac_statistics::all || r == owner)
                        bytes += static_cast<index>(width) * average;
                }
            });
        }
        const auto most = [](const auto& v) { return *std::ranges::max_element(v); };
        const double q = m - 1, k = where.columns() - 1;
        e.decompose = per_cube * most(where.loads()) / every;
        e.share_decompositions = q * (link.alpha + most(made) * link.beta) / every;
        e.precondition = most(work);
        e.share_directions = k * (link.alpha + most(sent) * link.beta);
        e.bytes = most(kept);
        return e;
    }

    double seconds_to_precondition(const kfac_block<T>& b) const {
        if (b.diagonal) return 0;
        const auto any = [&](const running_factor<T>& f) {
            decomposition<T> d;
            make_room(f, d);
            if (!d.matrix.empty()) std::fill_n(d.matrix.data(), d.matrix.size(), T{1});
            if (!d.values.empty()) std::fill_n(d.values.data(), d.values.size(), T{1});
            return d;
        };
        const decomposition<T> a = any(b.a[0].statistics), g = any(b.g[0].statistics);
        const tensor<T> v = tensor<T>::zeros({b.out, b.in}, category::workspace);
        double best = 1e300;
        for (int i = 0; i < 3; ++i) {
            tensor<T> result(v.shape(), category::workspace);
            const stopwatch watch;
            precondition(a, g, config_.form, 1, 1, b.out, b.in, v.data(), result.data());
            best = std::min(best, watch.seconds());
        }
        return best * static_cast<double>(b.groups());
    }
    double seconds_to_decompose(index n) const {
        tensor<T> m = tensor<T>::zeros({n, n}, category::workspace);
        const random_stream random{1, 1, 0};
        for (index i = 0; i < n; ++i)
            for (index k = 0; k <= i; ++k)
                m[i * n + k] = m[k * n + i] =
                    static_cast<T>(random.normal(static_cast<std::uint64_t>(i * n + k))) + (i == k ? T(4 * n) : T{});
        double best = 1e300;
        for (int i = 0; i < 3; ++i) {
            const stopwatch watch;
            config_.form == kfac_form::eigen ? eigen_decomposition_of(m) : damped_inverse_of(m, 1.0);
            best = std::min(best, watch.seconds());
        }
        return best;
    }

    kfac_ranks_config config_;
    method_maker make_method_;
    C world_, sums_;
    std::vector<factor_sizes> sizes_;
    std::optional<placement> place_;
    std::optional<C> column_, row_;
    std::vector<sum_bucket> buckets_;
    std::vector<bool> done_;  // blocks whose sums are complete
    std::size_t next_ = 0;    // bucket to launch
    std::int64_t step_ = 0;
    std::vector<placement_estimate> estimates_;
    std::unique_ptr<progress_thread> thread_;  // last: stops before what it works on goes
};

}  // namespace cairn
