#pragma once
// The versions of a run's state: taken beside training (state/flush.hpp), in RUN/states (state/version.hpp), and read
// again by a run that goes on, on any mesh (run_state.hpp).
//   resume    from the newest version that can be read: one that is damaged is named, set aside, and the one before is
//             taken
//   votes, after_step   once a step: what this rank says of the version in flight, what all say, and a new one if due
//   finish    the state of the last step is on disk

#include <cairn/comm/collectives/text.hpp>
#include <cairn/core/finite.hpp>
#include <cairn/parallel/progress_thread.hpp>
#include <cairn/state/flush.hpp>
#include <cairn/train/lineage.hpp>
#include <cairn/train/run_directory.hpp>
#include <cairn/train/run_messages.hpp>
#include <cairn/train/run_state.hpp>
#include <cairn/train/version_clock.hpp>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace cairn {

/// The error of a run that training has spoilt.
template <Device D, class T>
[[noreturn]] void fail_diverged(run_parts<D, T>& run, const std::string& what) {
    fail_divergence(
        "after step ", run.update.algorithm->steps(), ": ", what,
        "; this state was not saved, earlier ones are as they were. Lower the learning rate, warm up, or clip");
}

/// See the top of the file. Every function is called by all ranks after the same steps.
template <Device D, class T>
class run_versions {
public:
    /// Collective. `directory`: rank 0's.
    run_versions(run_parts<D, T>& run, const run_directory* directory, run_progress& progress)
        : run_(run), progress_(progress), clock_(run.task.states) {
        origin_.run =
            broadcast_text(run_.world, directory ? std::filesystem::absolute(directory->path()).string() : "", 0);
        if (run_.is_root() && !on_phantom_rank()) {
            clean_leavings(states());
            attempt_ = new_attempt();
        }
        if (run_.world.size() > 1) broadcast(run_.world, std::span<std::uint64_t>(attempt_), 0);
        version_writer::config c{.states = states(),
                                 .attempt = attempt_,
                                 .rank = run_.world.rank(),
                                 .ranks = run_.world.size(),
                                 .staging = settings().staging};
        c.examine = non_finite;
        if (directory) {
            c.before_commit = [directory] {
                directory->sync(metrics_log::name);  // the lines up to the state
                autotune_cache::global().save(directory->file("autotune.tsv").string(), perf::fingerprint());
            };
            c.after_commit = [this] { apply_retention(states(), settings().keep, origin_.best_by); };
        }
        writer_.emplace(std::move(c), start_helper());
    }

    /// Collective: whether the run goes on from a saved state. Throws where there are some and none can be read.
    bool resume() {
        std::string names;
        if (run_.is_root())
            for (const stored_version& v : list_versions(states())) names += v.name + '\n';
        names = broadcast_text(run_.world, names, 0);
        const std::filesystem::path old = std::filesystem::path(origin_.run) / "state.cairn";
        const bool has_old = broadcast_from_root(run_.world, run_.is_root() && std::filesystem::exists(old)) != 0;
        std::string failures;
        std::istringstream lines(names);
        for (std::string name; std::getline(lines, name);) {
            const std::string failure = load_twice(states() / name);
            if (failure.empty()) {
                origin_.parent = parent_of(states() / name, "resume");
                writer_->begins_with(states() / name);
                last_ = resumed_ = step();
                return true;
            }
            failures += "\n  " + failure;
            if (!run_.is_root()) continue;
            std::fprintf(stderr, "warning: %s; it is set aside, the state before it is taken\n", failure.c_str());
            set_aside(states(), name);
        }
        if (has_old) {
            const std::string failure = load(old);
            require(failure.empty(), failure);
            last_ = resumed_ = step();
            return true;
        }
        require(failures.empty(), origin_.run, ": no saved state can be read:", failures);
        return false;
    }

    /// Collective: what the command line asks for by --from or --init. Returns what was taken of the latter.
    std::string begin_with_others() {
        if (!run_.task.options.from.empty()) branch(run_.task.options.from);
        return run_.task.options.init.empty() ? "" : initialise(run_.task.options.init);
    }
    /// Collective: the run goes on from a version of another run, in a directory of its own.
    void branch(const std::filesystem::path& version) {
        const std::string failure = load(version);
        require(failure.empty(), failure);
        origin_.parent = parent_of(version, "branch");
        writer_->begins_with(version);
    }
    /// Collective: the run begins with those parameters and statistics of a version that it has by the same path and
    /// shape. Returns what was taken and what was not, as text. Throws where nothing fits.
    std::string initialise(const std::filesystem::path& version) {
        std::optional<saved_state> saved;
        std::string failure = on_all_ranks([&] { saved = open_version(version); });
        require(failure.empty(), failure);
        std::string taken, left;
        run_state<D, T> state(run_, progress_, state_use::load);
        const state_view fitting = fitting_part(*saved, state.view(), taken, left);
        failure = on_all_ranks([&] { saved->load(fitting); });
        require(failure.empty(), failure);
        state.values_loaded();
        for (std::string* const text : {&taken, &left}) *text = lines_of_all_ranks(*text);
        require(!taken.empty(), version.string(), ": no parameter of this network is there with its path and shape");
        origin_.parent = parent_of(version, "init");
        return concat("from ", version.string(), ": ", taken, left.empty() ? "" : "; not there: ", left);
    }

    /// What this rank says in a step's all-reduce.
    double votes() const {
        version_votes mine = writer_->votes();
        mine.due = run_.is_root() && !on_phantom_rank() && clock_.is_due(writer_->times());
        return mine.number();
    }
    /// Whether rank 0 sees the end of train.time_limit.
    bool is_time_over() const { return run_.is_root() && !on_phantom_rank() && clock_.is_time_over(writer_->times()); }

    /// After a step of so many seconds: `sum` of the votes. Takes a version where one is due now, or was while another
    /// was in flight.
    void after_step(double sum, double seconds) {
        clock_.took_step(seconds, writer_->in_flight());
        const version_votes all = version_votes::of(sum);
        if (all.broken > 0) fail_broken();
        writer_->decide(all);
        if (all.due || settings().every.is_due_at_step(step())) due_ = true;
        take_if_due();
    }
    /// At the end of an epoch.
    void after_epoch(std::int64_t epoch) {
        if (settings().every.is_due_at_epoch(epoch)) due_ = true;
        take_if_due();
    }

    /// Collective: the state as it is now is on disk when it returns. Throws on all ranks where that failed.
    void finish() {
        finish_writer();
        if (last_ != step()) {
            take();
            finish_writer();
        }
        require(!failed_, "the state of step ", step(), " could not be saved in ", states().string(),
                " (the warnings say why); --resume goes on from the one before");
    }

    /// Step of the newest version; 0: none.
    std::int64_t last_step() const { return std::max({writer_->last_step(), resumed_, std::int64_t{0}}); }
    nlohmann::json report() const {
        const flush_times t = writer_->times();
        const auto n = static_cast<double>(std::max<std::int64_t>(1, t.versions));
        nlohmann::json all{{"versions", t.versions},
                           {"failed", t.failed},
                           {"waited", waited_},
                           {"stall_s", t.usual_stall()},
                           {"first_stall_s", t.first_stall},
                           {"flush_s", t.flush / n},
                           {"durable_s", t.durable / n},
                           {"bytes_of_rank_0", t.bytes / n}};
        if (settings().every.is_automatic() && t.versions > 0) {
            all["interval_s"] = clock_.automatic_interval(t);
            all["expected_waste"] = expected_waste(clock_.costs(t), clock_.automatic_interval(t));
        }
        return all;
    }
    /// For lineage.json: figures of the last test, and which of them the best versions have the best of.
    void note_metrics(nlohmann::json metrics, std::string best_by) {
        origin_.metrics = std::move(metrics);
        origin_.best_by = std::move(best_by);
    }

private:
    const state_settings& settings() const { return run_.task.states; }
    std::filesystem::path states() const { return std::filesystem::path(origin_.run) / "states"; }
    std::int64_t step() const { return run_.update.algorithm->steps(); }

    void take_if_due() {
        if (!due_ || last_ == step()) return;
        if (writer_->in_flight()) {
            waited_ += !std::exchange(waits_, true);
            return;
        }
        take();
    }
    void take() {
        due_ = waits_ = false;
        clock_.restart();
        run_state<D, T> state(run_, progress_, state_use::save);
        std::string lineage;
        if (run_.is_root() && !on_phantom_rank()) lineage = lineage_of(run_, {step(), attempt_}, origin_);
        writer_->capture(step(), state.view(), std::move(lineage));
        last_ = step();
    }
    void finish_writer() {
        const version_votes last = writer_->finish(run_.world);
        if (last.broken > 0) fail_broken();
        failed_ = last.failed > 0;
    }

    [[noreturn]] void fail_broken() {
        for (const std::string& why : all_gather_text(run_.world, writer_->why_broken()))
            if (!why.empty()) fail_diverged(run_, why);
        fail("a state could not be saved, and no rank says why");
    }
    static std::string non_finite(const packed_piece& p, const std::byte* data) {
        if (p.type != element_type::float32 || !(p.name.starts_with("model/") || p.name.starts_with("buffers/")))
            return {};
        const auto* values = reinterpret_cast<const float*>(data);
        for (index_t i = 0; i < p.where.count; ++i)
            if (!std::isfinite(values[i]))
                return concat(p.name.substr(p.name.find('/') + 1), " is not finite: element ", p.where.first + i,
                              " is ", values[i]);
        return {};
    }

    // Collective: "" where it was loaded, else what went wrong, on all ranks alike. A file system may fail once.
    std::string load_twice(const std::filesystem::path& version) {
        const std::string failure = load(version);
        return failure.empty() ? failure : load(version);
    }
    std::string load(const std::filesystem::path& from) {
        const bool is_file = from.filename() == "state.cairn";
        std::optional<saved_state> saved;
        std::string failure = on_all_ranks([&] { saved = is_file ? saved_state::of_file(from) : open_version(from); });
        if (!failure.empty()) return failure;
        run_state<D, T> state(run_, progress_, state_use::load, is_file);
        // Another model or set-up is no damage: no version before it would fit either.
        const std::string differs = on_all_ranks([&] {
            const std::string text = saved->differences(state.view());
            require(text.empty(), from.string(), ": saved by another model or set-up: ", text);
        });
        require(differs.empty(), differs);
        require_all_wanted(*saved, state.view());
        failure = on_all_ranks([&] { saved->load(state.view()); });
        if (failure.empty()) state.loaded();
        return failure;
    }

    saved_state open_version(const std::filesystem::path& version) const {
        const manifest m = run_.is_root() ? verify_version(version, false) : read_manifest(version);
        std::vector<std::string> files;
        for (std::int32_t r = 0; r < m.ranks; ++r) files.push_back(pack_id{m.version, r, m.ranks}.file());
        return saved_state::of_packs(version, files);
    }

    // Parameters and statistics that are saved with the same type and shape; their names, and those of the others.
    static state_view fitting_part(const saved_state& saved, const state_view& all, std::string& taken,
                                   std::string& left) {
        state_view some;
        for (const auto& e : all.entries()) {
            if (!e.name.starts_with("model/") && !e.name.starts_with("buffers/")) continue;
            const bool fits = saved.has(e.name) && saved.fits(e);
            (fits ? taken : left) += e.name + '\n';
            if (fits) some.add(e);
        }
        return some;
    }
    // Collective: the lines of all ranks, each once, in one.
    std::string lines_of_all_ranks(const std::string& mine) {
        std::set<std::string> all;
        for (const std::string& of_rank : all_gather_text(run_.world, mine)) {
            std::istringstream lines(of_rank);
            for (std::string line; std::getline(lines, line);) all.insert(line);
        }
        std::string text;
        for (const std::string& line : all) text += (text.empty() ? "" : " ") + line;
        return text;
    }

    // Collective: the first rank's error, or "".
    template <class Action>
    std::string on_all_ranks(Action&& action) {
        std::string mine;
        try {
            action();
        } catch (const std::exception& e) {
            mine = e.what();
        }
        if (run_.world.size() > 1) wait_for_all(run_.world);  // a slow disk takes longer than a message
        for (const std::string& of_rank : all_gather_text(run_.world, mine))
            if (!of_rank.empty()) return of_rank;
        return {};
    }

    // Collective: throws where the state has tensors that no rank has room for.
    void require_all_wanted(const saved_state& saved, const state_view& view) {
        std::set<std::string> names = saved.entries(), wanted;
        for (const auto& e : view.entries()) wanted.insert(e.name);
        std::vector<double> has;
        for (const std::string& name : names) has.push_back(wanted.contains(name) ? 1 : 0);
        if (run_.world.size() > 1) all_reduce(run_.world, std::span<double>(has), {.op = reduction::max});
        std::string left;
        std::size_t i = 0, count = 0;
        for (const std::string& name : names) {
            if (has[i++] > 0 || name.starts_with("compression/")) continue;
            if (++count <= 8) left += concat(count > 1 ? ", " : "", name);
        }
        require(count == 0, saved.name(), ": saved by another model or set-up: only there: ", left,
                count > 8 ? concat(" and ", count - 8, " more") : "");
    }

    run_parts<D, T>& run_;
    run_progress& progress_;
    version_origin origin_;
    std::array<std::uint64_t, 2> attempt_{};
    std::optional<version_writer> writer_;
    version_clock clock_;
    std::int64_t last_ = -1, resumed_ = -1;  // step of the last version; of that with which this start began
    std::int64_t waited_ = 0;
    bool due_ = false, waits_ = false, failed_ = false;
};

}  // namespace cairn
