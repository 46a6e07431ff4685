#pragma once
// Training batches of the phases of a run (phases.hpp), one phase after another. Each has a prefetcher of its own, made
// before the first step: the workers of a phase have its first batches ready when it begins, so no step waits.
// A phase's epochs are numbered on, so its order of samples and its augmentation are those of no other phase.

#include <cairn/data/prefetcher.hpp>
#include <cairn/train/phases.hpp>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// See the top of the file.
template <Device D>
class phased_batches {
public:
    using loader_type = prefetcher<D, any_dataset>;

    /// `parts`: of each phase, in their order.
    phased_batches(phase_list phases, std::vector<std::unique_ptr<loader_type>> parts)
        : phases_(std::move(phases)), parts_(std::move(parts)) {
        for (std::size_t i = 0; i < parts_.size(); ++i) phases_.all[i].batches = parts_[i]->batches_per_epoch();
        rewind_behind(0);
    }

    /// The next batch; nothing, once, at the end of an epoch. Let the one before go first.
    std::optional<device_batch<D>> next() {
        std::optional<device_batch<D>> b = here().next();
        if (!b && here().position().epoch == phase().end && now_ + 1 < parts_.size()) ++now_;
        return b;
    }
    /// Fetches the next batch and starts its copy (data/prefetcher.hpp).
    void prepare() { here().prepare(); }

    cursor position() const { return here().position(); }
    void seek(cursor to) {
        now_ = phases_.of_epoch(to.epoch);
        here().seek(to);
        rewind_behind(now_);
    }

    const phase_list& phases() const { return phases_; }
    /// The phase that position() is in: its number, its samples and its batches.
    std::size_t now() const { return now_; }
    const training_phase& phase() const { return phases_.all[now_]; }
    index_t batches_per_epoch() const { return here().batches_per_epoch(); }
    index_t samples_per_epoch() const { return here().samples_per_epoch(); }
    const loader_config& config() const { return here().config(); }
    shape batch_shape() const { return here().batch_shape(); }
    const std::vector<std::unique_ptr<loader_type>>& parts() const { return parts_; }

    /// "10 epochs of 35 steps, batch 32", or a line a phase.
    std::string describe() const {
        const training_phase& last = phases_.all.back();
        if (parts_.size() == 1) return concat(last.end, " epochs of ", last.batches, " steps, batch ", last.batch);
        std::string text;
        for (std::size_t i = 0; i < parts_.size(); ++i) {
            const training_phase& p = phases_.all[i];
            text += concat("epochs ", p.begin, " to ", p.end, ": ", p.batches, " steps each, batches of ",
                           parts_[i]->batch_shape(), '\n');
        }
        return text + concat(last.end, " epochs, ", phases_.steps(), " steps");
    }

    /// Of all phases.
    loader_stats stats() const {
        loader_stats sum;
        for (const auto& part : parts_) {
            const loader_stats s = part->stats();
            sum.batches += s.batches;
            sum.samples += s.samples;
            sum.skipped += s.skipped;
            sum.seconds = std::max(sum.seconds, s.seconds);
            sum.stall_seconds += s.stall_seconds;
            sum.work_seconds += s.work_seconds;
        }
        return sum;
    }
    void reset_stats() {
        for (const auto& part : parts_) part->reset_stats();
    }

private:
    loader_type& here() { return *parts_[now_]; }
    const loader_type& here() const { return *parts_[now_]; }
    // Later phases begin with their first epoch.
    void rewind_behind(std::size_t now) {
        for (std::size_t i = now + 1; i < parts_.size(); ++i) {
            const cursor first{phases_.all[i].begin, 0};
            if (parts_[i]->position() != first) parts_[i]->seek(first);
        }
    }

    phase_list phases_;
    std::vector<std::unique_ptr<loader_type>> parts_;
    std::size_t now_ = 0;
};

}  // namespace cairn
