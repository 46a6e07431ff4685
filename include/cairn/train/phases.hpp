#pragma once
// Phases of a run: epochs with a size of images, a batch, a learning rate and a least area of crops of their own. Small
// images come first, as in the fastest ResNet-50 of DAWNBench (Howard and others, 2018; Coleman et al. 2017).
//   [[phases]]
//   epochs = [0, 7]      from epoch 0, before epoch 7: phases follow each other without a gap
//   size = 128           edge of an image, in tests too
//   batch = 512          samples a step
//   lr = [1, 2]          times optimizer.lr, at the begin and the end, a line between them; in place of lr_schedule
//   area_min = 0.08      least area of a random crop
// A run without phases is one phase.

#include <cairn/data/data_format.hpp>
#include <cairn/optim/lr_schedule.hpp>
#include <cairn/train/configuration.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace cairn {

/// See the top of the file.
struct training_phase {
    std::string name;   // "phases.1"
    index_t begin = 0;  // epochs [begin, end)
    index_t end = 1;
    index_t batch = 32;        // samples a step, of all ranks together
    sample_size images = {};   // what differs from the data's own
    std::vector<double> lr{};  // times optimizer.lr: at begin and end; empty: by lr_schedule
    index_t batches = 0;       // an epoch; known when there are samples

    std::int64_t steps() const { return (end - begin) * batches; }
};

/// Steps and epochs of phases that follow each other.
struct phase_list {
    std::vector<training_phase> all;

    std::int64_t steps() const {
        std::int64_t sum = 0;
        for (const training_phase& p : all) sum += p.steps();
        return sum;
    }
    /// Batches before an epoch.
    std::int64_t before(index_t epoch) const { return static_cast<std::int64_t>(steps_of(static_cast<double>(epoch))); }

    double steps_of(double epochs) const {
        double sum = 0;
        for (const training_phase& p : all) {
            const double part = epochs - static_cast<double>(p.begin);
            if (epochs <= static_cast<double>(p.end) || &p == &all.back())
                return sum + part * static_cast<double>(p.batches);
            sum += static_cast<double>(p.steps());
        }
        return sum;
    }
    double epochs_of(std::int64_t steps) const {
        for (const training_phase& p : all) {
            if (steps < p.steps() || &p == &all.back())
                return static_cast<double>(p.begin) + static_cast<double>(steps) / static_cast<double>(p.batches);
            steps -= p.steps();
        }
        return 0;
    }
    /// The phase that an epoch is in; the last one behind the end.
    std::size_t of_epoch(index_t epoch) const {
        const auto found = std::ranges::find_if(all, [&](const training_phase& p) { return epoch < p.end; });
        return static_cast<std::size_t>(std::min<std::ptrdiff_t>(found - all.begin(), std::ssize(all) - 1));
    }

    /// The rates that phases name, as lines one after another; empty where lr_schedule has them.
    lr_schedule rates(double peak) const {
        lr_schedule s;
        for (const training_phase& p : all)
            if (!p.lr.empty()) s = then(std::move(s), linear_ramp(p.steps(), peak * p.lr.front(), peak * p.lr.back()));
        return s;
    }
};

namespace detail {

inline training_phase read_phase(configuration& settings, const std::string& name, index_t batch) {
    constexpr double most = 1e6;  // epochs
    training_phase p{.name = name};
    settings_table table(settings, name);
    std::vector<index_t> epochs;
    table("epochs", epochs, from_to(0, most));
    require(epochs.size() == 2 && epochs[0] < epochs[1], name,
            ".epochs: a phase goes from an epoch to a later one, such as epochs = [0, 7]");
    p.begin = epochs[0];
    p.end = epochs[1];
    table("size", p.images.edge, from_to(0, most_pixels));
    table("area_min", p.images.area_min, from_to(0, 1));
    p.batch = 0;
    table("batch", p.batch, from_to(0, 1 << 24));
    if (p.batch == 0) p.batch = batch;
    table("lr", p.lr, at_least(0));
    require(p.lr.size() <= 2, name, ".lr: ", p.lr.size(), " rates; one, or those at the begin and the end");
    return p;
}

}  // namespace detail

/// The phases that the settings name, and train.epochs; `batch` is that of a phase that names none. Throws where they
/// overlap, leave epochs out, or only some have rates.
inline phase_list read_phases(configuration& settings, index_t batch) {
    constexpr double most = 1e12;  // epochs; steps are still whole numbers as doubles
    const auto n = static_cast<index_t>(settings.names_in("phases").size());
    phase_list phases;
    index_t end = 0;
    for (index_t i = 1; i <= n; ++i) {
        training_phase p = detail::read_phase(settings, concat("phases.", i), batch);
        require(p.begin <= end, p.name, " begins with epoch ", p.begin, ": epochs ", end, " to ", p.begin - 1,
                " are in no phase; let it begin with epoch ", end);
        require(p.begin == end, p.name, " begins with epoch ", p.begin, ", which an earlier phase has too: they end ",
                "before epoch ", end, "; let it begin there");
        require(phases.all.empty() || p.lr.empty() == phases.all.front().lr.empty(), p.name,
                ": all phases have a rate (lr) or none has one, and lr_schedule is for all of them");
        end = p.end;
        phases.all.push_back(std::move(p));
    }
    const auto epochs = settings.get<index_t>("train.epochs", std::max<index_t>(end, 1), from_to(1, most));
    require(n == 0 || epochs == end, "train.epochs = ", epochs, ", but the phases end with epoch ", end,
            ": leave train.epochs out, or change the last phase");
    require(n == 0 || phases.all.front().lr.empty() || !settings.has("lr_schedule.kind"),
            "lr_schedule.kind: phases have rates of their own (phases.1.lr); leave one of them out");
    if (n == 0) phases.all.push_back({.name = {}, .begin = 0, .end = epochs, .batch = batch});
    return phases;
}

}  // namespace cairn
