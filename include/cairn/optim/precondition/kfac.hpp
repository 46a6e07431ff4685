#pragma once
// K-FAC (Martens and Grosse 2015; convolutions: Grosse and Martens 2016; weight sharing: Eschenhagen et al. 2023): a
// second-order preconditioner of gradients for any optimizer.
//
//   kfac<float> curvature(weights, {.damping = 1e-3});          // weights: an arena; a step is as in
//                                                               preconditioner.hpp
//
//   factors         every `factor_update_interval` steps, from the rows of all micro-batches             factor.hpp
//   decompositions  every `inverse_update_interval` steps, more often at first                         kronecker.hpp
//   directions      V = F⁻¹ ∇W of each layer
//   their length    KL clip V · min(1, √(κ / Σ lr² ⟨V, ∇W⟩)), one scalar for all layers (Ba, Grosse and Martens 2017);
//                   a norm constraint; or grafting: each layer's V as long as its gradient
//
// A layer of one weight (and bias) is one block for each group; lookups have a diagonal A; scale and shift of
// normalisation are a diagonal; factors beyond `max_size` become diagonal. Parameters that nobody announces or that
// `skip` names keep their gradients.
// With `lag` the decompositions are made on a thread of their own and used so many steps later: the same steps in every
// run.
// Several ranks share the work through kfac_work_assignment (kfac_layer.hpp).
// On a device other than the host (device/cuda/curvature.hpp) directions are made and clipped there, and only steps
// that take statistics
// ask it something: whether they are finite. With `lag` decompositions are spread over the steps until their use, as
// equal shares of n³ as
// their sizes allow: a device runs what is launched in one order.

#include <cairn/core/arena.hpp>
#include <cairn/core/compiled.hpp>
#include <cairn/core/trace.hpp>
#include <cairn/device/cpu/blas_threads.hpp>
#include <cairn/device/gradient_layout.hpp>
#include <cairn/optim/precondition/kfac_layer.hpp>
#include <cairn/optim/precondition/preconditioner.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// kfac_pytorch: as that package has it. Gradients are those of the mean loss, rows of a convolution are divided by S,
/// the block is A ⊗ G, and averages start from the identity: its damping means something else.
enum class kfac_scaling { kfc, kfac_pytorch };

/// Whether the points of a convolution's kernel have one large factor together, or one small one for each alike
/// (factor.hpp).
enum class kfac_spatial { full, uncorrelated };

struct kfac_config {
    double damping = 1e-3;                     // γ
    double factor_decay = 0.95;                // ρ
    std::int64_t factor_update_interval = 10;  // steps
    std::int64_t inverse_update_interval = 100;
    // steps between the start of decompositions and their use; 0: they are waited for
    std::int64_t inverse_staleness = 0;
    double kl_clip = 1e-3;     // κ; 0: none
    double norm_limit = 0;     // of lr · V over all layers; 0: none
    bool graft = false;        // each layer's V gets the length of its gradient; then nothing is clipped
    bool norm_layers = false;  // normalisation layers too
    kfac_form form = kfac_form::eigen;
    weight_sharing sharing = weight_sharing::expand;
    kfac_scaling scaling = kfac_scaling::kfc;
    kfac_spatial spatial = kfac_spatial::full;
    sample_strides sample = {};          // rows that statistics are made of
    index_t max_size = 8192;             // of a factor; larger ones are diagonal
    std::vector<std::string> skip = {};  // parts of names of weights that are left alone
};

template <class T, Device D = cpu>
class kfac final : public preconditioner<T, D>, public curvature_listener {
public:
    using block = kfac_layer<T, D>;

    /// Shares the arena's memory. Throws on settings that make no sense.
    kfac(arena<T, D>& weights, kfac_config c,
         std::unique_ptr<kfac_work_assignment<T, D>> roles = std::make_unique<kfac_work_assignment<T, D>>())
        : config_(std::move(c)), work_(std::move(roles)) {
        check(config_);
        for (const auto& [name, p] : weights.parameters()) parameters_.push_back(p);
        wanted_.assign(parameters_.size(), true);
        for (const parameter<T, D>* p : parameters_)
            for (const std::string& part : config_.skip)
                if (p->name.find(part) != std::string::npos) wanted_[static_cast<std::size_t>(p->id)] = false;
    }
    ~kfac() override {
        if (background_.valid()) background_.wait();
    }

    curvature_listener* begin_step() override {
        taking_ = steps_ % config_.factor_update_interval == 0;
        discovering_ = last_ = false;
        for (block& b : blocks_) b.seen = 0;
        return taking_ ? this : nullptr;
    }
    void last_micro_batch() override {
        last_ = true;
        for (block& b : blocks_) b.seen = 0;
    }
    void gradients_scaled_by(double scale) override { gradient_scale_ = scale; }
    curvature_listener* discover() override {
        taking_ = discovering_ = true;
        for (block& b : blocks_) b.uses = 0;
        return this;
    }

    bool wants(int weight) const override { return taking_ && wanted_[static_cast<std::size_t>(weight)]; }
    bool wants_norm_layers() const override { return config_.norm_layers; }
    using curvature_listener::take;
    void take(const curvature_samples<T>& rows) override { take_rows(rows); }
    void take(const curvature_samples<bfloat16>& rows) override { take_rounded(rows); }
    void take(const curvature_samples<float16>& rows) override { take_rounded(rows); }

    void precondition(double examples, double lr) override {
        if (!started_ && !blocks_.empty()) start();
        if (taking_ && !discovering_) update_factors(examples);
        decompose_if_due();
        if constexpr (!on_host) make_share();
        ++steps_;
        taking_ = false;
        make_directions();
        work_->share_directions(blocks_, directions_.span());
        apply_directions(lr);
    }

    void skip_step() override {
        if (taking_ && started_) work_->finish_sums(blocks_);  // what is on its way arrives
        for (block& b : blocks_) {
            b.rows = 0;
            b.each_factor([](kfac_factor<T, D>& f, char) { f.statistics.clear_batch(); });
        }
        taking_ = false;
    }

    std::vector<block>& blocks() { return blocks_; }
    const kfac_work_assignment<T, D>& roles() const { return *work_; }
    std::vector<named_tensor<T, D>> tensors() override;
    std::vector<std::pair<std::string, std::int64_t*>> counters() override;
    void release() override;
    std::vector<std::string> diagnostics() const override;

    const kfac_config& config() const { return config_; }
    /// γ from now on; the inverse form has it from its next decomposition on.
    void set_damping(double damping) { config_.damping = damping; }
    std::int64_t& steps() { return steps_; }
    /// Batches of a factor's statistics that were dropped because they were not finite.
    std::int64_t rejected() const { return rejected_; }

private:
    static constexpr bool on_host = std::same_as<D, cpu>;

    /// A decomposition to be made.
    struct task {
        kfac_factor<T, D>* factor;
        const block* of;
        tensor<T, D> average;
        double damping;  // of the inverse form
        bool first;      // nothing older can be used instead
        std::string failure = {};
    };

    static void check(const kfac_config& c) {
        require(c.damping > 0, "kfac: damping ", c.damping,
                "; it must be positive, or directions without curvature become infinite");
        require(c.factor_decay >= 0 && c.factor_decay < 1, "kfac: factor_decay ", c.factor_decay,
                "; it must be in [0, 1)");
        require(c.factor_update_interval >= 1 && c.inverse_update_interval >= 1, "kfac: factors every ",
                c.factor_update_interval, " steps, decompositions every ", c.inverse_update_interval,
                "; both must be at least 1");
        require(c.inverse_staleness >= 0 && c.inverse_staleness < c.inverse_update_interval, "kfac: lag ",
                c.inverse_staleness, " steps; it must be at least 0 and less than ", c.inverse_update_interval,
                ", the steps between decompositions");
        require(c.kl_clip >= 0 && c.norm_limit >= 0, "kfac: kl_clip ", c.kl_clip, ", norm_limit ", c.norm_limit,
                "; they must be 0 (off) or positive");
        require(c.sample.examples >= 1 && c.sample.positions >= 1, "kfac: statistics of every ", c.sample.examples,
                "th sample, every ", c.sample.positions, "th position; both must be at least 1");
        require(c.spatial == kfac_spatial::full || c.sharing == weight_sharing::expand,
                "kfac: kernel points that are uncorrelated have no rows to join; weight sharing must be expand");
        require(c.max_size >= 1, "kfac: max_size ", c.max_size);
    }

    // Of layers that compute in S, where devices do.
    template <class S>
    void take_rounded(const curvature_samples<S>& rows) {
        if constexpr (on_host || !std::same_as<T, float>)
            curvature_listener::take(rows);
        else
            take_rows(rows);
    }

    template <class S>
    void take_rows(const curvature_samples<S>& rows) {
        if (rows.kind == rows_kind::norm && !config_.norm_layers) return;
        const trace_scope scope("factors", "backward", "kfac");
        const std::size_t at = block_of(rows);
        block& b = blocks_[at];
        b.positions = rows.positions;
        if (discovering_) return void(++b.uses);
        add_rows(at, rows);
        ++b.seen;
        if (last_ && started_ && b.seen == b.uses) work_->sums_ready(blocks_, at);
    }

    template <class S>
    std::size_t block_of(const curvature_samples<S>& rows) {
        for (std::size_t i = 0; i < blocks_.size(); ++i)
            if (blocks_[i].weight->id == rows.weight) return i;
        parameter<T, D>* const weight = parameters_[static_cast<std::size_t>(rows.weight)];
        require(!started_, "kfac: layer ", weight->name,
                " was not there in the first step; every layer must be used in it, on every rank");
        block b{.name = weight->name, .weight = weight};
        if (rows.bias >= 0) b.bias = parameters_[static_cast<std::size_t>(rows.bias)];
        b.transposed = rows.kind == rows_kind::lookup;
        b.diagonal = rows.kind == rows_kind::norm;
        if (config_.spatial == kfac_spatial::uncorrelated && rows.kind == rows_kind::convolution &&
            rows.conv.kernel_points() > 1) {
            b.taps = rows.conv.kernel_points();
            b.bias = nullptr;  // keeps its gradient
        }
        b.in = b.diagonal ? 2 * rows.in : rows.in + (b.bias ? 1 : 0);
        b.out = b.diagonal ? 1 : rows.out;
        const index_t a_size = b.in / b.taps;
        if (!b.diagonal && std::max(b.transposed ? 0 : a_size, b.out) > config_.max_size)
            diagnostics_.push_back(concat("the curvature of ", b.name, ", ", b.out, " x ", a_size,
                                          ", has a factor larger than kfac.max_size = ", config_.max_size,
                                          ": of that only the diagonal is used"));
        const index_t groups = b.diagonal || b.transposed ? 1 : weight->shape[0] / b.out;
        for (index_t q = 0; q < groups; ++q) {
            b.a.push_back(
                {running_factor<T, D>(a_size, b.diagonal || b.transposed || a_size > config_.max_size), {}, {}});
            if (!b.diagonal) b.g.push_back({running_factor<T, D>(b.out, b.out > config_.max_size), {}, {}});
        }
        blocks_.push_back(std::move(b));
        return blocks_.size() - 1;
    }

    void start() {
        started_ = true;
        work_->start(blocks_);
        order_ = work_->order_of_directions(blocks_);
    }

    template <class S>
    void add_rows(std::size_t at, const curvature_samples<S>& rows) {
        block& b = blocks_[at];
        const bool alone = !started_;  // in a first step without discovery, everybody looks at everything
        const bool a = alone || work_->observes(at, 'a'), g = !b.diagonal && (alone || work_->observes(at, 'g'));
        if (!a && !g) return;
        if (b.diagonal) return add_scale_shift(b, rows);
        sample_strides sample = config_.sample;
        sample.offset = steps_ / config_.factor_update_interval;
        const index_t used = rows_taken(rows, sharing_of(b), sample);
        for (std::size_t q = 0; q < b.a.size(); ++q)
            add_products(b, rows, static_cast<index_t>(q), a ? &b.a[q].statistics.batch() : nullptr,
                         g ? &b.g[q].statistics.batch() : nullptr, sample);
        b.rows += used;
        if (!sample.is_all() && steps_ == 0 && b.rows == used) note_sampling_error(b, rows);
    }

    template <class S>
    void add_scale_shift(block& b, const curvature_samples<S>& rows) {
        tensor<T, D>& sum = b.a[0].statistics.batch();
        if constexpr (on_host) {
            for (index_t n = 0; n < rows.examples; ++n)
                for (index_t c = 0; c < rows.in; ++c) {
                    const T scale = rows.x[n * rows.in + c], shift = rows.dy[n * rows.in + c];
                    sum[c] += scale * scale;
                    sum[rows.in + c] += shift * shift;
                }
        } else {
            add_column_squares(D{}, rows.examples, rows.in, T{1}, rows.x, rows.in, sum.data());
            add_column_squares(D{}, rows.examples, rows.in, T{1}, rows.dy, rows.in, sum.data() + rows.in);
        }
        b.rows += rows.examples;
    }

    // To the sums of A and of G of group q; either may be null.
    template <class S>
    void add_products(const block& b, const curvature_samples<S>& rows, index_t q, tensor<T, D>* a, tensor<T, D>* g,
                      const sample_strides& sample) const {
        if (a && b.taps > 1) add_points_of_layer(rows, q, *std::exchange(a, nullptr), sample);
        add_rows_of_layer(rows, q, a, g, sharing_of(b), sample);
    }

    // How far the sampled A of the first batch is from that of all rows.
    template <class S>
    void note_sampling_error(block& b, const curvature_samples<S>& rows) {
        if (!b.a[0].statistics.has_batch() || b.a[0].statistics.is_diagonal()) return;
        tensor<T, D> all = tensor<T, D>::zeros(b.a[0].statistics.extents(), memory_category::workspace);
        add_products(b, rows, 0, &all, nullptr, {});
        const tensor<T> whole = all.on_host(memory_category::workspace),
                        part = b.a[0].statistics.batch().on_host(memory_category::workspace);
        const auto count = static_cast<double>(rows_taken(rows, sharing_of(b), {}));
        double difference = 0, length = 0;
        for (index_t i = 0; i < whole.size(); ++i) {
            const double exact = static_cast<double>(whole[i]) / count;
            const double sampled = static_cast<double>(part[i]) / static_cast<double>(b.rows);
            difference += (sampled - exact) * (sampled - exact);
            length += exact * exact;
        }
        sampling_error_ = std::max(sampling_error_, length > 0 ? std::sqrt(difference / length) : 0.0);
    }

    void update_factors(double examples) {
        work_->finish_sums(blocks_);
        const trace_scope scope("average", "", "kfac");
        const bool theirs = config_.scaling == kfac_scaling::kfac_pytorch;
        for (std::size_t i = 0; i < blocks_.size(); ++i) {
            block& b = blocks_[i];
            if (b.rows == 0) continue;  // not used in this step
            const double rows = static_cast<double>(b.rows);
            const double spatial =
                theirs ? 1.0 / (static_cast<double>(b.positions) * static_cast<double>(b.positions)) : 1;
            b.each_factor([&](kfac_factor<T, D>& f, char side) {
                if (!work_->averages(i, side)) return f.statistics.clear_batch();
                const bool of_gradients = side == 'g' || b.diagonal;
                const double of_one = (theirs ? 1 : examples) / gradient_scale_;
                const double scale = (of_gradients ? of_one * of_one : 1) / rows * spatial;
                if (!f.statistics.update(scale, config_.factor_decay, theirs)) ++rejected_;
            });
            b.rows = 0;
        }
    }

    // Joined one-hot rows would have no diagonal factor.
    weight_sharing sharing_of(const block& b) const { return b.transposed ? weight_sharing::expand : config_.sharing; }
    // The block's S: that of the mean over rows of A ⊗ G.
    double shared_positions(const block& b) const {
        const bool one = config_.scaling == kfac_scaling::kfac_pytorch || sharing_of(b) == weight_sharing::reduce;
        return one || b.diagonal ? 1 : static_cast<double>(b.positions);
    }

    /// Every `inverse_update_interval` steps; before that whenever the number of steps has doubled, because the first
    /// averages are of few batches of a network that changes fast.
    bool is_due() const {
        const bool doubled =
            steps_ < config_.inverse_update_interval && std::has_single_bit(static_cast<std::uint64_t>(steps_));
        return steps_ % config_.inverse_update_interval == 0 || (doubled && steps_ >= config_.factor_update_interval);
    }

    void decompose_if_due() {
        const bool none = std::ranges::none_of(blocks_, [](const block& b) { return b.ready != 0; });
        if (begun_ >= 0 && steps_ >= begun_ + config_.inverse_staleness) install();
        if (!is_due() && !none) return;
        if (begun_ >= 0) install();
        begin_decompositions();
        if (config_.inverse_staleness == 0 || none) {
            make_all();
            install();
        } else if constexpr (on_host) {
            blas_.emplace();
            background_ = std::async(std::launch::async, [this] {
                set_threads(1);  // of this thread: the others are for training
                for (task& t : tasks_) make(t);
            });
        }
    }

    void begin_decompositions() {
        begun_ = steps_;
        tasks_.clear();
        made_ = 0;
        std::vector<double> means;
        for (block& b : blocks_)
            b.each_factor([&](kfac_factor<T, D>& f, char) {
                means.push_back(config_.form == kfac_form::inverse ? f.statistics.mean_diagonal() : 0);
            });
        if (config_.form == kfac_form::inverse) work_->share_diagonals(means);
        std::size_t at = 0;
        for (std::size_t i = 0; i < blocks_.size(); ++i) {
            block& b = blocks_[i];
            const double root = std::sqrt(config_.damping / shared_positions(b));
            double pi = 1;
            b.each_factor([&](kfac_factor<T, D>& f, char side) {
                if (side == 'a' && !b.diagonal && means[at] > 0 && means[at + 1] > 0)
                    pi = std::sqrt(means[at] / means[at + 1]);
                ++at;
                if (!work_->decomposes(i, side) || f.statistics.batches() == 0) return;
                const double damping = b.diagonal ? config_.damping : side == 'a' ? pi * root : root / pi;
                const tensor<T, D>& average = f.statistics.average();
                tasks_.push_back(
                    {&f, &b, config_.inverse_staleness ? average.clone(memory_category::workspace) : average.share(),
                     damping, f.inverse.empty()});
                if (side == 'g') pi = 1;
            });
        }
    }

    static decomposition<T, D> kept(const decomposition<T, D>& d) {
        const auto copy = [](const tensor<T, D>& t) {
            return t.empty() ? tensor<T, D>{} : t.clone(memory_category::optimizer);
        };
        return {copy(d.matrix), copy(d.values)};
    }
    void make(task& t) const {
        try {
            t.factor->pending = kept(config_.form == kfac_form::eigen ? eigen_decomposition_of(t.average)
                                                                      : damped_inverse_of(t.average, t.damping));
        } catch (const error& e) {
            t.failure = concat(t.of->name, ": ", e.what());
            t.factor->pending = kept(t.factor->inverse);  // the last good one stays
        }
    }
    // Large ones one after another, each on all threads; the others side by side, each on one thread, which wastes less
    // of it.
    void make_all() {
        const trace_scope scope("decompose", "", "kfac");
        if constexpr (!on_host) return make_rest();
        constexpr index_t large = 2048;
        std::vector<task*> small;
        for (task& t : tasks_) {
            if (t.average.rank() == 2 && t.average.extent(0) >= large)
                make(t);
            else
                small.push_back(&t);
        }
        std::ranges::stable_sort(small, std::greater<>{}, [](const task* t) { return t->average.size(); });
        parallel_tasks(static_cast<index_t>(small.size()),
                       [&](index_t i) { make(*small[static_cast<std::size_t>(i)]); });
    }

    // This step's share of what will be used `lag` steps after it was begun.
    void make_share() {
        if (begun_ < 0) return;
        const auto cost = [](const task& t) {
            const auto n = static_cast<double>(t.factor->statistics.size());
            return t.factor->statistics.is_diagonal() ? n : n * n * n;
        };
        double all = 0, done = 0;
        for (const task& t : tasks_) all += cost(t);
        const double wanted = all * static_cast<double>(steps_ - begun_ + 1) /
                              static_cast<double>(std::max<std::int64_t>(config_.inverse_staleness, 1));
        for (std::size_t i = 0; i < made_; ++i) done += cost(tasks_[i]);
        const trace_scope scope("decompose", "", "kfac");
        for (; made_ < tasks_.size() && done < wanted; done += cost(tasks_[made_++])) make(tasks_[made_]);
    }
    void make_rest() {
        while (made_ < tasks_.size()) make(tasks_[made_++]);
    }

    void install() {
        const trace_scope scope("share decompositions", "", "kfac");
        finish_decompositions();
        blas_.reset();
        std::string failure;
        for (const task& t : tasks_) {
            if (t.failure.empty()) continue;
            if (t.first && failure.empty()) failure = concat("kfac: step ", steps_ + 1, ", ", t.failure);
            if (!t.first && kept_old_++ == 0) first_kept_ = concat("step ", steps_ + 1, ", ", t.failure);
        }
        tasks_.clear();
        begun_ = -1;
        std::vector<bool> fresh;
        for (block& b : blocks_)
            b.each_factor([&](kfac_factor<T, D>& f, char) {
                fresh.push_back(!f.pending.empty() && f.statistics.batches() > 0);
                if (fresh.back()) f.inverse = std::move(f.pending);
                f.pending = {};
            });
        work_->share_decompositions(blocks_, fresh, failure);
        std::size_t at = 0;
        for (block& b : blocks_) {
            bool all = true;
            b.each_factor([&](kfac_factor<T, D>&, char) { all = fresh[at++] && all; });
            if (all) b.ready = 1;
        }
    }
    void finish_decompositions() {
        if constexpr (on_host) {
            if (background_.valid()) background_.get();
        } else {
            make_rest();
        }
    }

    void make_directions() {
        const trace_scope scope("precondition", "", "kfac");
        index_t total = 0;
        for (const std::size_t i : order_) total += blocks_[i].size();
        if (directions_.size() != total) directions_ = tensor<T, D>({total}, memory_category::workspace);
        index_t at = 0;
        for (const std::size_t i : order_) {
            block& b = blocks_[i];
            b.direction = directions_.slice(at, {b.size()});
            at += b.size();
            if (b.ready && work_->preconditions(i))
                make_direction(b);
            else if constexpr (on_host)
                std::fill_n(b.direction.data(), b.direction.size(), T{});
            else
                D::set_bytes(b.direction.data(), 0, b.direction.bytes());
        }
    }

    static gradient_layout<T> layout_of(const block& b) {
        return {.weight = b.weight->grad.data(),
                .bias = b.bias ? b.bias->grad.data() : nullptr,
                .in = b.in,
                .width = b.diagonal ? b.in / 2 : b.in - (b.bias ? 1 : 0),
                .rows = rows_of(b),
                .transposed = b.transposed};
    }

    /// Numbers of the gradient at equal distances, and where the first one lies in V, the next ones behind it.
    struct run {
        index_t at;
        T* gradient;
        index_t step, count;
    };
    // f(run) over rows [first, last) of a block's ∇W and ∇b as (groups · out, in).
    template <class F>
    static void each_run(const block& b, index_t first, index_t last, F&& f) {
        T *const dw = b.weight->grad.data(), *const db = b.bias ? b.bias->grad.data() : nullptr;
        if (b.diagonal) {
            const index_t channels = b.in / 2;
            f(run{0, dw, 1, channels});
            f(run{channels, db, 1, channels});
            return;
        }
        if (in_place(b)) return f(run{first * b.in, dw + first * b.in, 1, (last - first) * b.in});
        const index_t width = b.in - (b.bias ? 1 : 0);
        for (index_t r = first; r < last; ++r) {
            f(b.transposed ? run{r * b.in, dw + r, b.out, width} : run{r * b.in, dw + r * width, 1, width});
            if (db) f(run{r * b.in + width, db + r, 1, 1});
        }
    }
    // Whether ∇W lies in memory as V does.
    static bool in_place(const block& b) { return !b.diagonal && !b.transposed && !b.bias; }
    static index_t rows_of(const block& b) { return b.diagonal ? 1 : b.out * b.groups(); }
    static index_t grain(const block& b) { return std::max<index_t>(1, 16384 / b.in); }
    template <class F>
    static void each_run(const block& b, F&& f) {
        parallel_for(rows_of(b), grain(b), [&](index_t first, index_t last) { each_run(b, first, last, f); });
    }

    struct products {
        double vg = 0, vv = 0, gg = 0;
        products& operator+=(const products& o) {
            vg += o.vg, vv += o.vv, gg += o.gg;
            return *this;
        }
    };
    static products products_of(const block& b) {
        return parallel_sum<products>(rows_of(b), grain(b), [&](index_t first, index_t last) {
            products p;
            each_run(b, first, last, [&p, all = b.direction.data()](const run& r) {
                const T *const v = all + r.at, *const g = r.gradient;
                double vg = 0, vv = 0, gg = 0;
#pragma omp simd reduction(+ : vg, vv, gg)
                for (index_t i = 0; i < r.count; ++i) {
                    const double d = static_cast<double>(v[i]), e = static_cast<double>(g[i * r.step]);
                    vg += d * e, vv += d * d, gg += e * e;
                }
                p += {vg, vv, gg};
            });
            return p;
        });
    }

    // ∇W and ∇b as V has them.
    static void gather(const block& b, T* to) {
        if constexpr (on_host)
            each_run(b, [to](const run& r) {
                for (index_t i = 0; i < r.count; ++i) to[r.at + i] = r.gradient[i * r.step];
            });
        else
            gather_gradient(D{}, layout_of(b), to);
    }

    void make_direction(block& b) {
        T* const v = b.direction.data();
        [[maybe_unused]] const T damping = static_cast<T>(config_.damping);
        if (b.diagonal) {
            gather(b, v);
            const bool inverse = config_.form == kfac_form::inverse;
            const T* const d = b.a[0].inverse.values.data();
            if constexpr (on_host)
                for (index_t i = 0; i < b.in; ++i) v[i] *= inverse ? d[i] : T{1} / (d[i] + damping);
            else
                scale_kronecker(D{}, 1, b.in, b.in, v, static_cast<const T*>(nullptr), d, 1, config_.damping, !inverse,
                                v);
            return;
        }
        tensor<T, D> gathered;
        if (!in_place(b)) gather(b, (gathered = tensor<T, D>({b.size()}, memory_category::workspace)).data());
        const T* const gradient = in_place(b) ? b.weight->grad.data() : gathered.data();
        const index_t size = b.out * b.in;
        for (std::size_t q = 0; q < b.a.size(); ++q) {
            const index_t at = static_cast<index_t>(q) * size;
            cairn::precondition(b.a[q].inverse, b.g[q].inverse, config_.form, shared_positions(b), config_.damping,
                                b.out, b.in, gradient + at, v + at);
        }
    }

    void apply_directions(double lr) {
        const trace_scope scope("clip", "", "kfac");
        if constexpr (on_host)
            apply_on_host(lr);
        else
            apply_on_device(lr);
        directions_.reset();
    }

    void apply_on_host(double lr) {
        double square = 0, decrease = 0;  // ‖V‖² and Σ ⟨V, ∇W⟩, before clipping
        std::vector<double> graft(blocks_.size(), 1);
        const bool measured = measures_directions(lr);
        for (std::size_t i = 0; measured && i < blocks_.size(); ++i) {
            const block& b = blocks_[i];
            if (!b.ready) continue;
            const products p = products_of(b);
            decrease += p.vg;
            square += p.vv;
            graft[i] = p.vv > 0 ? std::sqrt(p.gg / p.vv) : 1;
        }
        double scale = 1;
        if (config_.kl_clip > 0 && lr > 0 && decrease > 0)
            scale = std::min(scale, std::sqrt(config_.kl_clip / (lr * lr * decrease)));
        if (config_.norm_limit > 0 && lr > 0 && square > 0)
            scale = std::min(scale, config_.norm_limit / (lr * std::sqrt(square)));
        for (std::size_t i = 0; i < blocks_.size(); ++i) {
            block& b = blocks_[i];
            if (!b.ready) continue;
            const T factor = static_cast<T>(config_.graft ? graft[i] : scale);
            each_run(b, [factor, v = b.direction.data()](const run& r) {
                for (index_t k = 0; k < r.count; ++k) r.gradient[k * r.step] = factor * v[r.at + k];
            });
            b.direction.reset();
        }
    }

    bool measures_directions(double lr) const {
        return config_.graft || (lr > 0 && (config_.kl_clip > 0 || config_.norm_limit > 0));
    }

    // The same without bringing a number to the host. A template, so that a kfac of the host can be compiled once,
    // whole.
    template <class Where = D>
    void apply_on_device(double lr) {
        std::vector<block*> ready;
        for (block& b : blocks_)
            if (b.ready) ready.push_back(&b);
        const auto count = static_cast<index_t>(ready.size());
        if (count == 0) return;
        tensor<double, D> measured = tensor<double, D>::zeros({count, 3}, memory_category::workspace);
        tensor<T, D> factors({count}, memory_category::workspace);
        for (index_t i = 0; measures_directions(lr) && i < count; ++i) {
            const block& b = *ready[static_cast<std::size_t>(i)];
            direction_products(Where{}, layout_of(b), b.direction.data(), measured.data() + 3 * i);
        }
        direction_factors(Where{}, count, measured.data(), config_.kl_clip, config_.norm_limit, lr, config_.graft,
                          factors.data());
        for (index_t i = 0; i < count; ++i) {
            block& b = *ready[static_cast<std::size_t>(i)];
            put_direction(Where{}, layout_of(b), b.direction.data(), factors.data() + i);
            b.direction.reset();
        }
    }

    kfac_config config_;
    std::unique_ptr<kfac_work_assignment<T, D>> work_;
    std::vector<parameter<T, D>*> parameters_;
    std::vector<bool> wanted_;
    std::vector<block> blocks_;
    std::vector<std::size_t> order_;
    std::vector<std::string> diagnostics_;
    tensor<T, D> directions_;
    std::int64_t steps_ = 0, rejected_ = 0;
    std::int64_t kept_old_ = 0;  // decompositions that failed, so that the ones before stayed
    std::string first_kept_;     // why the first of them
    std::int64_t begun_ = -1;    // step at which decompositions were begun that are not in use yet
    double sampling_error_ = 0;
    bool taking_ = false, discovering_ = false, last_ = false, started_ = false;
    double gradient_scale_ = 1;  // of the rows of this step
    std::vector<task> tasks_;
    std::size_t made_ = 0;                    // of tasks_, on a device
    std::optional<single_blas_thread> blas_;  // until they are installed: a resumed run computes likewise
    std::future<void> background_;            // works on tasks_
};

template <class T, Device D>
std::vector<named_tensor<T, D>> kfac<T, D>::tensors() {
    if (!started_ && !blocks_.empty()) start();
    finish_decompositions();
    work_->collect(blocks_, config_.inverse_staleness > 0);
    std::vector<named_tensor<T, D>> all;
    const auto add = [&](const std::string& name, tensor<T, D>& t, const shape& s) {
        if (t.empty()) t = tensor<T, D>::zeros(s, memory_category::optimizer);
        all.push_back({name, t.share()});
    };
    for (block& b : blocks_) {
        index_t q = 0;
        b.each_factor([&](kfac_factor<T, D>& f, char side) {
            const std::string at = concat(b.name, '/', side == 'a' ? q : q - 1, '/', side);
            if (side == 'a') ++q;
            running_factor<T, D>& s = f.statistics;
            const index_t n = s.size();
            add(at, s.average(), s.extents());
            const auto add_decomposition = [&](const std::string& name, decomposition<T, D>& d) {
                if (!s.is_diagonal()) add(at + name, d.matrix, {n, n});
                if (s.is_diagonal() || config_.form == kfac_form::eigen) add(at + name + "_values", d.values, {n});
            };
            add_decomposition("_decomposition", f.inverse);
            if (config_.inverse_staleness > 0) add_decomposition("_pending", f.pending);
        });
    }
    return all;
}

template <class T, Device D>
std::vector<std::pair<std::string, std::int64_t*>> kfac<T, D>::counters() {
    std::vector<std::pair<std::string, std::int64_t*>> all{
        {"steps", &steps_}, {"begun", &begun_}, {"rejected", &rejected_}};
    for (block& b : blocks_) {
        all.push_back({b.name + "/ready", &b.ready});
        index_t q = 0;
        b.each_factor([&](kfac_factor<T, D>& f, char side) {
            all.push_back(
                {concat(b.name, '/', q++ / (b.diagonal ? 1 : 2), '/', side, "_batches"), &f.statistics.batches()});
        });
    }
    return all;
}

template <class T, Device D>
void kfac<T, D>::release() {
    if (!started_) return;
    for (std::size_t i = 0; i < blocks_.size(); ++i)
        blocks_[i].each_factor([&](kfac_factor<T, D>& f, char side) {
            if (!work_->averages(i, side) || f.statistics.batches() == 0) f.statistics.release_average();
            if (!work_->uses_decomposition(i) || !blocks_[i].ready) f.inverse = {};
            if (!work_->decomposes(i, side) || begun_ < 0) f.pending = {};
        });
    if (on_host && config_.inverse_staleness > 0 && begun_ >= 0 && !blas_) blas_.emplace();
}

template <class T, Device D>
std::vector<std::string> kfac<T, D>::diagnostics() const {
    std::vector<std::string> all = diagnostics_;
    for (std::string& line : work_->diagnostics()) all.push_back(std::move(line));
    if (rejected_ > 0)
        all.push_back(concat(rejected_, " sums of statistics were not finite and left out of the averages"));
    if (kept_old_ > 0)
        all.push_back(
            concat(kept_old_, " decompositions failed, the ones before stayed in use; the first: ", first_kept_));
    if (config_.inverse_staleness > 0)
        all.push_back(concat("decompositions are used ", config_.inverse_staleness,
                             " steps after they were begun, and are at most ",
                             config_.inverse_staleness + config_.inverse_update_interval, " steps old"));
    if (sampling_error_ > 0)
        all.push_back(concat("statistics of a sample of the rows: the input factors of the first batch are at most ",
                             100 * sampling_error_, " % off those of all rows (Frobenius norm)"));
    return all;
}

CAIRN_COMPILED_ONCE(optimizers, class kfac<float>)
CAIRN_COMPILED_ONCE(optimizers, class kfac<double>)

}  // namespace cairn
