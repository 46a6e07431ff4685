#pragma once
// K-FAC's decompositions: when they are made, where (at once, beside training, or in shares over the steps until their
// use; on GPUs those of equal size together, device/matrix_batches.hpp), and how they come into use on all ranks.

#include <cairn/core/trace.hpp>
#include <cairn/optim/precondition/kfac_state.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

template <class T, Device D>
class kfac_inverses {
public:
    using block = kfac_layer<T, D>;
    explicit kfac_inverses(kfac_state<T, D>& s) : s_(s) {}

    /// Before a step's directions.
    void decompose_if_due() {
        const bool none = std::ranges::none_of(s_.blocks, [](const block& b) { return b.ready != 0; });
        if (begun_ >= 0 && s_.steps >= begun_ + s_.config.inverse_staleness) install();
        if (is_due() || none) {
            if (begun_ >= 0) install();
            begin_decompositions();
            if (s_.config.inverse_staleness == 0 || none) {
                {
                    const trace_scope scope("decompose", "", "kfac");
                    work_.make_now();
                }
                install();
            } else {
                work_.make_later();
            }
        }
        if (begun_ < 0) return;
        const trace_scope scope("decompose", "", "kfac");  // what is used `inverse_staleness` steps after its begin
        work_.make_share(static_cast<double>(s_.steps - begun_ + 1) /
                         static_cast<double>(std::max<std::int64_t>(s_.config.inverse_staleness, 1)));
    }

    /// Waits for decompositions under way.
    void finish() { work_.finish(); }

    /// After a checkpoint was read between start and use of decompositions: the run goes on as one without a break.
    void resume() {
        if (s_.config.inverse_staleness > 0 && begun_ >= 0) work_.resume();
    }

    /// Step at which decompositions were begun that are not in use yet; below 0: none.
    std::int64_t& begun() { return begun_; }
    /// Decompositions that took more than one attempt.
    std::int64_t retried() const { return retried_; }
    /// Decompositions that failed, so that the ones before stayed; and why the first of them did.
    std::int64_t kept_old() const { return kept_old_; }
    const std::string& first_kept() const { return first_kept_; }

private:
    /// A decomposition to be made.
    struct task {
        kfac_factor<T, D>* factor;
        const block* of;
        tensor<T, D> average;
        double damping;      // of the inverse form
        bool first;          // nothing older can be used instead
        bool again = false;  // the first attempt failed
        std::string failure = {};
    };

    /// Every `inverse_update_interval` steps; before that whenever the number of steps has doubled, because the first
    /// averages are of few batches of a network that changes fast.
    bool is_due() const {
        const bool doubled =
            s_.steps < s_.config.inverse_update_interval && std::has_single_bit(static_cast<std::uint64_t>(s_.steps));
        return s_.steps % s_.config.inverse_update_interval == 0 ||
               (doubled && s_.steps >= s_.config.factor_update_interval);
    }

    void begin_decompositions() {
        begun_ = s_.steps;
        tasks_.clear();
        batches_.clear();
        std::vector<double> means;  // of the diagonals
        if (s_.config.form == kfac_form::inverse) {
            means = s_.of_each_factor(
                [](std::size_t, kfac_factor<T, D>& f, char, double* out) { f.statistics.trace_into(out); });
            auto mean = means.begin();
            for (block& b : s_.blocks)
                b.each_factor([&](kfac_factor<T, D>& f, char) { *mean++ /= static_cast<double>(f.statistics.size()); });
            s_.roles->share_diagonals(means);
        }
        std::size_t at = 0;
        for (std::size_t i = 0; i < s_.blocks.size(); ++i) {
            block& b = s_.blocks[i];
            const double root = std::sqrt(s_.config.damping / s_.shared_positions(b));
            double pi = 1;
            b.each_factor([&](kfac_factor<T, D>& f, char side) {
                if (side == 'a' && !means.empty() && !b.diagonal && means[at] > 0 && means[at + 1] > 0)
                    pi = std::sqrt(means[at] / means[at + 1]);
                ++at;
                if (!s_.roles->decomposes(i, side) || f.statistics.batches() == 0) return;
                const double damping = b.diagonal ? s_.config.damping : side == 'a' ? pi * root : root / pi;
                const tensor<T, D>& average = f.statistics.average();
                tasks_.push_back(
                    {&f, &b, s_.config.inverse_staleness ? average.clone(memory_category::workspace) : average.share(),
                     damping, f.inverse.empty()});
                if (side == 'g') pi = 1;
            });
        }
        double all = 0;
        for (const task& t : tasks_) all += operations(t);
        const double share = all / static_cast<double>(std::max<std::int64_t>(s_.config.inverse_staleness, 1));
        for (std::size_t i = 0; i < tasks_.size(); ++i) batch_of(tasks_[i], share).push_back(i);
        std::vector<double> costs;
        for (const std::vector<std::size_t>& batch : batches_)
            costs.push_back(static_cast<double>(batch.size()) * operations(tasks_[batch[0]]));
        work_.begin(std::move(costs), [this](index_t i) { make(batches_[static_cast<std::size_t>(i)]); });
    }

    static double operations(const task& t) {
        const auto n = static_cast<double>(t.average.extent(0));
        return t.average.rank() == 1 ? n : n * n * n;
    }

    /// The batch that a decomposition joins: of its size, of a step's share of all operations at most.
    std::vector<std::size_t>& batch_of(const task& t, double share) {
        const index_t most = t.average.rank() == 1 ? 1 : matrices_at_once(D{}, t.average.extent(0));
        if (most > 1)
            for (std::vector<std::size_t>& batch : batches_)
                if (tasks_[batch[0]].average.shape() == t.average.shape() && std::ssize(batch) < most &&
                    static_cast<double>(batch.size() + 1) * operations(t) <= share)
                    return batch;
        return batches_.emplace_back();
    }

    /// Together; by themselves those that fail so, all where memory is short, and what is alone.
    void make(const std::vector<std::size_t>& batch) {
        if (batch.size() > 1) try {
                std::vector<const tensor<T, D>*> averages;
                std::vector<double> damping;
                for (const std::size_t i : batch) {
                    averages.push_back(&tasks_[i].average);
                    damping.push_back(tasks_[i].damping);
                }
                std::vector<decomposition<T, D>> made = decompositions_of(s_.config.form, averages, damping);
                for (std::size_t i = 0; i < batch.size(); ++i) tasks_[batch[i]].factor->pending = std::move(made[i]);
            } catch (const error&) {}
        for (const std::size_t i : batch)
            if (tasks_[i].factor->pending.empty()) make(tasks_[i]);
    }

    static decomposition<T, D> kept(const decomposition<T, D>& d) {
        const auto copy = [](const tensor<T, D>& t) {
            return t.empty() ? tensor<T, D>{} : t.clone(memory_category::optimizer);
        };
        return {copy(d.matrix), copy(d.values)};
    }
    void make(task& t) const {
        try {
            t.factor->pending =
                kept(s_.config.form == kfac_form::eigen ? eigen_decomposition_of(t.average, &t.again)
                                                        : damped_inverse_of(t.average, t.damping, &t.again));
        } catch (const error& e) {
            t.failure = concat(t.of->name, ": ", e.what());
            t.factor->pending = kept(t.factor->inverse);  // the last good one stays
        }
    }
    void install() {
        const trace_scope scope("share decompositions", "", "kfac");
        work_.close();
        std::string failure;
        for (const task& t : tasks_) {
            retried_ += t.again;
            if (t.failure.empty()) continue;
            if (t.first && failure.empty()) failure = concat("kfac: step ", s_.steps + 1, ", ", t.failure);
            if (!t.first && kept_old_++ == 0) first_kept_ = concat("step ", s_.steps + 1, ", ", t.failure);
        }
        tasks_.clear();
        begun_ = -1;
        std::vector<bool> fresh;
        for (block& b : s_.blocks)
            b.each_factor([&](kfac_factor<T, D>& f, char) {
                fresh.push_back(!f.pending.empty() && f.statistics.batches() > 0);
                if (fresh.back()) f.inverse = std::move(f.pending);
                f.pending = {};
            });
        s_.roles->share_decompositions(s_.blocks, fresh, failure);
        std::size_t at = 0;
        for (block& b : s_.blocks) {
            bool all = true;
            b.each_factor([&](kfac_factor<T, D>&, char) { all = fresh[at++] && all; });
            if (all) b.ready = 1;
        }
    }

    kfac_state<T, D>& s_;
    std::int64_t retried_ = 0, kept_old_ = 0;
    std::string first_kept_;
    std::int64_t begun_ = -1;
    std::vector<task> tasks_;
    std::vector<std::vector<std::size_t>> batches_;  // of tasks of one size, by their numbers
    deferred_tasks<D> work_;                         // on tasks_
};

}  // namespace cairn
