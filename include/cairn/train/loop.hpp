#pragma once
// Training: epochs of steps, a test and a saved state after each epoch, metrics on the way, a report at the end.
//   open the directory, or go on from its newest state
//   until the last step:   a test if due, batch → trainer.step → metrics, a state if due;   at an epoch's end: a state
//   test, save, report
// On several ranks all run the same loop, and each saves its part of the state; rank 0 alone prints and logs.

#include <cairn/comm/collectives/text.hpp>
#include <cairn/core/summary.hpp>
#include <cairn/device/autotune.hpp>
#include <cairn/perf/machine.hpp>
#include <cairn/perf/rapl.hpp>
#include <cairn/train/first_lines.hpp>
#include <cairn/train/launches.hpp>
#include <cairn/train/metrics_log.hpp>
#include <cairn/train/process.hpp>
#include <cairn/train/progress.hpp>
#include <cairn/train/report.hpp>
#include <cairn/train/run_directory.hpp>
#include <cairn/train/run_versions.hpp>
#include <cairn/train/shared_kernels.hpp>
#include <cairn/train/step_terms.hpp>
#include <cairn/train/test_set.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// See the top of the file.
template <Device D = cpu, class T = float>
class training_loop {
public:
    explicit training_loop(run_parts<D, T>& run) : run_(run), algorithm_(*run.update.algorithm), line_(run.is_root()) {}

    /// Runs to the last step, or until some rank is asked to stop. Returns the final figures on rank 0.
    nlohmann::json train() {
        trace::global().clear();  // of a run before this one; its first event comes many messages later on every rank
        choose_kernels_of_ranks(run_);
        try_short_batch(run_);
        discover_layers(run_);
        open();
        if (run_.is_root()) print_first_lines(run_, directory_->path());
        run_.batches.train->reset_stats();
        first_step_ = algorithm_.steps();
        if (run_.task.options.on_start) run_.task.options.on_start(run_.batches.last_step - first_step_);
        while (algorithm_.steps() < run_.batches.last_step && !stopped_) {
            const std::int64_t since_start = algorithm_.steps() - first_step_;
            trace::global().enable(is_traced(since_start));
            try {
                test_if(is_test_due());
                step_watch_.restart();  // to wait for data is part of a step
                terms_.begin();
                if (auto b = next_batch())
                    step(*b);
                else
                    end_of_epoch();
            } catch (const divergence_error& e) {
                if (!growth_) throw;
                fail(e.what(), what_grew(growth_->largest()));  // the ranks may be apart: each tells what it knows
            }
        }
        trace::global().enable(false);
        if (log_.steps_since_line() > 0) log_training();  // interrupted
        test_if(run_.batches.test() && !stopped_ && last_tested_ != algorithm_.steps());
        save();
        outcome_.interrupted = stopped_;
        if (versions_) outcome_.states = versions_->report();
        outcome_.seconds_here = whole_.seconds();
        outcome_.seconds = launches_.earlier() + outcome_.seconds_here;
        const auto joules_here = energy_.joules();
        outcome_.joules = launches_.joules_with(joules_here);
        outcome_.why_no_joules =
            joules_here ? "a process of this run before was killed, or did not count" : energy_.why_not();
        if (on_phantom_rank()) tell_simulated();
        if (directory()) launches_.end(*directory_, outcome_.seconds_here, median(log_.rates()), joules_here);
        outcome_.launches = launches_.all();
        return write_report(run_, directory(), outcome_, log_);
    }

private:
    // Of a run, steps 4 to 8; of a simulated one, where one is like the other, the second and third of some ranks.
    bool is_traced(std::int64_t step) const {
        if (!on_phantom_rank()) return step >= 4 && step < 9;
        return step >= 1 && step < 3 && std::ranges::count(run_.task.options.trace_ranks, run_.world.rank()) > 0;
    }
    static constexpr int most_skipped_steps = 100;

    void tell_simulated() {
        outcome_.steps = terms_.to_json();
        outcome_.joules_a_step = terms_.joules();
        outcome_.joules = outcome_.joules_a_step > 0 ? std::optional(phantom_here->joules()) : std::nullopt;
        outcome_.why_no_joules = "the machine's description has no watts";
    }

    /// Of rank 0; null on the others.
    const run_directory* directory() const { return directory_ ? &*directory_ : nullptr; }

    void open() {
        const bool resuming = !run_.task.options.resume.empty();
        predictions_of(run_);  // refused now rather than after the last step
        if (run_.is_root()) open_directory(resuming);
        if (saves_states()) versions_.emplace(run_, directory(), log_.progress());
        // A run that ended before its first state was saved starts again.
        const bool goes_on = resuming && versions_->resume();
        if (resuming && !goes_on) line_.print("no state of this run was saved: it starts again");
        if (versions_) outcome_.initialised = versions_->begin_with_others();
        if (!outcome_.initialised.empty()) line_.print(outcome_.initialised);
        outcome_.skipped_steps = static_cast<int>(log_.progress().skipped_steps);
        if (run_.update.trainer && run_.task.stops_divergence && !on_phantom_rank())
            growth_.emplace(*run_.model.weights);
        const std::int64_t steps = algorithm_.steps();
        const bool complete =
            resuming && broadcast_from_root(run_.world, directory_ && is_complete(*directory_, steps)) != 0;
        const bool is_left =
            steps < run_.batches.last_step || (resuming && steps == run_.batches.last_step && !complete);
        require(is_left || steps == 0, (resuming ? run_.task.options.resume : run_.task.options.from).string(),
                ": this run has done ", steps, " of ", run_.batches.last_step,
                " steps, nothing is left to do; raise --steps, --epochs or --set train.epochs to go on");
        if (!run_.task.options.from.empty() || !run_.task.options.init.empty()) save();  // for --resume
        if (!run_.is_root()) return;
        launches_.begin(*directory_, resuming ? log_.resume(*directory_, steps) : 0);
        directory_->write("config.toml", run_.task.settings.resolved());
    }

    // A described machine may not say how fast its file system is: there states take no time.
    static bool saves_states() { return !on_phantom_rank() || phantom_here->has_storage(storage::shared); }

    void open_directory(bool resuming) {
        directory_.emplace(resuming                        ? run_.task.options.resume
                           : run_.task.options.out.empty() ? run_directory::fresh(run_.task.name)
                                                           : run_.task.options.out);
        const auto has = [&](const char* name) { return std::filesystem::exists(directory_->file(name)); };
        require(resuming || !(has("states") || has("state.cairn") || has("record.json") || has(metrics_log::name)),
                "run directory ", directory_->path().string(),
                " holds a run already; continue it with --resume, or choose another with --out");
    }

    // An unreadable sample loses no earlier step. On several ranks the others are in the next step already.
    std::optional<device_batch<D>> next_batch() {
        try {
            return run_.batches.train->next();
        } catch (const error&) {
            if (run_.world.size() == 1 && algorithm_.steps() > first_step_) save();
            throw;
        }
    }

    void step(device_batch<D>& b) {
        terms_.computes();
        for (const std::string& skipped : b.host.skipped) line_.print("skipped " + skipped);
        const bool nothing = b.host.count == 0 && !run_.replicas.ranks;
        const bool time_is_over = versions_ && versions_->is_time_over();
        if (time_is_over) line_.print("train.time_limit is near: stopping after this step, with its state saved");
        const step_votes votes{interrupt_guard::requested() || time_is_over, versions_ ? versions_->votes() : 0};
        const step_result done = nothing ? step_result{.stop = votes.stop, .states = votes.states}
                                         : algorithm_.step({b, run_.task.micro_batches}, votes, [this] {
                                               if (algorithm_.steps() + 1 < run_.batches.last_step)
                                                   run_.batches.train->prepare();
                                           });
        terms_.end();
        stopped_ = done.stop;
        take_note(done);
        with_versions([&](auto& versions) { versions.after_step(done.states, step_watch_.seconds()); });
    }

    // What versions of the state take of a simulated step is told apart.
    template <class Action>
    void with_versions(Action&& action) {
        if (!versions_) return;
        const stopwatch saving;
        take_hits();
        action(*versions_);
        terms_.saved(saving.seconds());
    }

    // Of a step, in lines of metrics and in counts.
    void take_note(const step_result& done) {
        if (done.samples == 0) return count_empty_batch();
        empty_batches_ = 0;
        if (done.skipped) return count_skipped_step();
        if (const std::string plan = run_.update.activations ? run_.update.activations->describe_plan() : "";
            plan != plan_)
            line_.print("activations: " + (plan_ = plan));
        log_.count_step(done.loss, static_cast<double>(done.samples) / step_watch_.seconds());
        const target_info& info = run_.task.data.info;
        const index_t labels = done.samples * (info.labelled ? info.labelled : info.labels_each);
        const bool grows = run_.update.trainer && !on_phantom_rank() &&
                           run_.update.divergence.take(done.loss, static_cast<double>(labels));
        if (grows && run_.task.stops_divergence) stop_diverging();
        const std::int64_t step = algorithm_.steps();
        if (log_.steps_since_line() == run_.batches.log_every || step == run_.batches.last_step) log_training();
        line_.show(step, run_.batches.last_step, status_text(step));
    }

    // All of its samples are corrupt.
    void count_empty_batch() {
        ++empty_batches_;
        require(empty_batches_ < run_.batches.train->batches_per_epoch(), "all samples of ", empty_batches_,
                " batches in a row are corrupt");
    }

    // All ranks have the same loss. Nothing is saved: weights that are spoilt do not replace good ones.
    void stop_diverging() {
        const divergence_watch& watch = run_.update.divergence;
        const auto [name, times] = growth_->largest();
        const std::vector<double> all = detail::joined(run_.world, {times});
        const std::vector<std::string> names = all_gather_text(run_.world, name);
        const auto r = static_cast<std::size_t>(std::ranges::max_element(all) - all.begin());
        fail("step ", algorithm_.steps(), ": training diverges: the loss was ", watch.start, " at the start and is ",
             watch.of_late(), " of late, more than ", divergence_watch::multiple, " times as much",
             what_grew({names[r], all[r]}), "; --set train.divergence=ignore goes on whatever the loss is");
    }

    // The largest update, and the way out.
    std::string what_grew(const std::pair<std::string, double>& most) const {
        const auto [first, second] = remedies_of_divergence(run_.task.settings, algorithm_.steps());
        return concat(most.first.empty() ? ""
                                         : concat("; of the weights ", most.first, " changed most, to ", most.second,
                                                  " times its length"),
                      ". What helps most often: --set ", first, ", then --set ", second,
                      " too. With --resume the run goes on from step ", versions_ ? versions_->last_step() : 0,
                      ", the last one saved");
    }

    void count_skipped_step() {
        const bool by_scale = run_.model.scales_itself();
        line_.print(concat("step ", algorithm_.steps() + 1, ": a gradient is not finite; skipped on all ranks",
                           by_scale ? concat(", the loss scale is now ", run_.model.scaler->scale()) : ""));
        outcome_.skipped_steps = static_cast<int>(++log_.progress().skipped_steps);
        require(by_scale || outcome_.skipped_steps < most_skipped_steps, outcome_.skipped_steps,
                " steps were skipped; training diverges");
    }

    void log_training() {
        const std::int64_t step = algorithm_.steps();
        nlohmann::json entry = log_.take_steps();
        entry["step"] = step;
        entry["epoch"] = run_.batches.epochs_of(step);
        entry["seconds"] = launches_.earlier() + whole_.seconds();
        if (const auto joules = launches_.joules_with(energy_.joules())) entry["joules"] = *joules;
        if (run_.update.activations) {
            const audit_report& audit = run_.update.activations->last();
            entry["activations_added_variance"] = audit.added_share;
            entry["activations_kept_to_packed"] = audit.kept_bytes / std::max(1.0, audit.packed_bytes);
            if (const auto& plan = run_.update.activations->plan())
                entry["predicted_peak_bytes"] = plan->predicted_peak;
        }
        if (run_.update.trainer) entry["saved_bytes"] = run_.update.trainer->take_saved_after_forward();
        if (run_.model.scaler) entry["loss_scale"] = run_.model.scaler->scale();
        for (const auto& [figure, value] : algorithm_.figures()) entry[figure] = value;
        if (algorithm_.goal().counts_correct())
            if (const auto accuracy = training_accuracy()) entry["train_accuracy"] = *accuracy;
        log_.add(directory(), entry);
    }

    void take_hits() {
        const auto [correct, seen] = algorithm_.take_training_hits();
        log_.progress().hits[0] += static_cast<double>(correct);
        log_.progress().hits[1] += static_cast<double>(seen);
    }

    // Over all ranks, since the last line; nothing where no sample was counted.
    std::optional<double> training_accuracy() {
        take_hits();
        std::array<double, 2> sums = std::exchange(log_.progress().hits, {});
        if (run_.replicas.ranks) all_reduce(run_.replicas.ranks->everyone, std::span<double>(sums));
        if (sums[1] == 0) return std::nullopt;
        const target_info& info = run_.task.data.info;
        return sums[0] / sums[1] / static_cast<double>(info.labelled ? info.labelled : info.labels_each);
    }

    void end_of_epoch() {
        with_versions([&](auto& versions) { versions.after_epoch(run_.batches.train->position().epoch); });
    }

    // A run that goes on with an epoch's first batch has tested before.
    bool is_test_due() const { return run_.batches.is_test_due() && last_tested_ != algorithm_.steps(); }

    // An unreadable test set loses no epoch; but the state of a diverged run is not saved.
    // Simulated ranks have no numbers to test.
    void test_if(bool due) {
        if (!due || on_phantom_rank()) return;
        const std::string unreadable = test();
        if (unreadable.empty() && outcome_.test.count && !std::isfinite(outcome_.test.loss()))
            fail_diverged(run_, "the test loss is not finite");
        if (!unreadable.empty()) save();
        require(unreadable.empty(), unreadable);
    }

    // Returns, on all ranks alike, why some rank cannot read its part of the test set; "" where all can.
    std::string test() {
        const std::int64_t step = algorithm_.steps();
        test_outcome found = test_run(run_);
        if (!found.unreadable.empty()) return found.unreadable;
        if (const auto skipped = run_.batches.test()->stats().skipped; skipped > 0)
            line_.print(concat(skipped, " corrupt test samples were left out"));
        outcome_.test = std::move(found.sums);
        outcome_.metrics = std::move(found.metrics);
        last_tested_ = step;
        nlohmann::json entry{{"step", step}, {"test_loss", outcome_.test.loss()}};
        for (const auto& [figure, value] : outcome_.metrics) entry["test_" + figure] = value;
        if (!log_.has_test_of(step)) log_.add(directory(), entry);  // a run that was killed before its record has it
        if (versions_)
            versions_->note_metrics(std::move(entry),
                                    outcome_.metrics.empty() ? "test_loss" : "test_" + outcome_.metrics.front().first);
        print_test();
        return {};
    }

    // Returns when the state of the last step is on disk.
    void save() {
        with_versions([](auto& versions) { versions.finish(); });
    }

    void print_test() {
        std::string text;
        for (const auto& [figure, value] : outcome_.metrics)
            if (!is_detail(figure))
                text += (text.empty() ? "" : ", ") + metric_label(figure) + ' ' + metric_value(figure, value);
        line_.print(print("epoch %-4.4g%s  test loss %.4f  ", run_.batches.epochs_of(algorithm_.steps()),
                          loss_text(" training loss").c_str(), outcome_.test.loss()) +
                    text);
    }

    std::string status_text(std::int64_t step) const {
        const double per_step = whole_.seconds() / static_cast<double>(step - first_step_);
        return print("epoch %lld/%lld%s%s  %.0f samples/s  %s left",
                     static_cast<long long>(run_.batches.epochs_of(step - 1)) + 1,
                     static_cast<long long>(run_.batches.epochs), loss_text("  loss").c_str(), quality_text().c_str(),
                     median(log_.recent_rates(21)),
                     clock_text(per_step * static_cast<double>(run_.batches.last_step - step)).c_str());
    }

    /// The mean training loss of late, with `name` in front; empty before the first step.
    std::string loss_text(const char* name) const {
        const auto loss = log_.recent_loss();
        return loss ? print("%s %.4f", name, *loss) : std::string();
    }

    std::string quality_text() const {
        std::string text;
        if (const auto accuracy = log_.last("train_accuracy"))
            text += "  accuracy " + metric_value("accuracy", *accuracy);
        if (!outcome_.metrics.empty())
            text += "  test " + metric_value(outcome_.metrics.front().first, outcome_.metrics.front().second);
        return text;
    }

    run_parts<D, T>& run_;
    training_algorithm<D, T>& algorithm_;
    progress_line line_;
    const stopwatch whole_;  // the choice of kernels included
    stopwatch step_watch_;
    perf::rapl energy_;                           // of rank 0's machine, where it counts
    std::optional<run_directory> directory_;      // of rank 0
    std::optional<run_versions<D, T>> versions_;  // none where a simulated machine has no file system
    metrics_log log_;
    run_launches launches_;
    run_outcome outcome_;
    step_terms_log terms_{run_.is_root()};
    std::optional<weight_growth<D>> growth_;  // since this run began or went on
    std::string plan_;                        // of activations, as last printed
    bool stopped_ = false;
    index_t empty_batches_ = 0;  // in a row
    std::int64_t first_step_ = 0, last_tested_ = -1;
};

}  // namespace cairn
