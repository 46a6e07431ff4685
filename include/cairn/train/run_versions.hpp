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
#include <cairn/train/read_versions.hpp>
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
        : run_(run),
          progress_(progress),
          clock_(&flush_times::shared, settings().every, settings().mtbf, settings().time_limit),
          local_clock_(&flush_times::local, settings().local_every, settings().local_mtbf, 0) {
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
        if (!settings().local.empty() && !on_phantom_rank()) c.local = make_local();
        if (directory) {
            c.before_commit = [directory] {
                directory->sync(metrics_log::name);  // the lines up to the state
            };
            c.after_commit = [states = states(), keep = settings().keep] {
                for (const std::string& name : versions_not_kept(states, keep)) remove_version(states, name);
            };
        }
        writer_.emplace(std::move(c), start_helper());
    }

    /// Collective: whether the run goes on from a saved state. Throws where there are some and none can be read.
    bool resume() {
        if (local_) publish_local();
        std::string names;
        if (run_.is_root())
            for (const stored_version& v : list_versions(states())) names += v.name + '\n';
        names = broadcast_text(run_.world, names, 0);
        const std::filesystem::path old = std::filesystem::path(origin_.run) / "state.cairn";
        const bool has_old = broadcast_from_root(run_.world, run_.is_root() && std::filesystem::exists(old)) != 0;
        std::string failures;
        std::istringstream lines(names);
        for (std::string name; std::getline(lines, name);) {
            const std::string failure = reader_.load_twice(states() / name);
            if (failure.empty()) {
                begins_with(states() / name, "resume");
                last_ = resumed_ = step();
                return true;
            }
            failures += "\n  " + failure;
            if (!run_.is_root()) continue;
            std::fprintf(stderr, "warning: %s; it is set aside, the state before it is taken\n", failure.c_str());
            set_aside(states(), name);
        }
        if (has_old) {
            const std::string failure = reader_.load(old);
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
        if (run_.task.options.init.empty()) return {};
        const std::string taken = reader_.initialise(run_.task.options.init);
        if (run_.is_root()) origin_.parent = parent_of(run_.task.options.init, "init");
        return taken;
    }
    /// Collective: the run goes on from a version of another run, in a directory of its own.
    void branch(const std::filesystem::path& version) {
        const std::string failure = reader_.load(version);
        require(failure.empty(), failure);
        begins_with(version, "branch");
    }

    /// What this rank says in a step's all-reduce.
    double votes() const {
        version_votes mine = writer_->votes();
        if (run_.is_root() && !on_phantom_rank())
            mine.due = on_hosts * (local_ && local_clock_.is_due(writer_->times())) +
                       in_directory * clock_.is_due(writer_->times());
        return mine.number();
    }
    /// Whether rank 0 sees the end of train.time_limit.
    bool is_time_over() const { return run_.is_root() && !on_phantom_rank() && clock_.is_time_over(writer_->times()); }

    /// After a step of so many seconds: `sum` of the votes. Takes a version where one is due now, or was while another
    /// was in flight.
    void after_step(double sum, double seconds) {
        clock_.took_step(seconds, writer_->in_flight_to());
        local_clock_.took_step(seconds, writer_->in_flight_to());
        const version_votes all = version_votes::of(sum);
        if (all.broken > 0) fail_broken();
        writer_->decide(all);
        due_ |= static_cast<int>(all.due);
        if (settings().every.is_due_at_step(step())) due_ |= in_directory;
        if (local_ && settings().local_every.is_due_at_step(step())) due_ |= on_hosts;
        take_if_due();
    }
    /// At the end of an epoch.
    void after_epoch(std::int64_t epoch) {
        if (settings().every.is_due_at_epoch(epoch)) due_ |= in_directory;
        if (local_ && settings().local_every.is_due_at_epoch(epoch)) due_ |= on_hosts;
        if (due_ && writer_->in_flight()) {  // of this epoch, with the figures of its test, not of some step later
            ++waited_;
            finish_writer();
        }
        take_if_due();
    }

    /// Collective: the state as it is now is on disk when it returns. Throws on all ranks where that failed.
    void finish() {
        finish_writer();
        if (last_ != step()) {
            due_ = in_directory;
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
        const auto mean = [](double sum, std::int64_t n) {
            return sum / static_cast<double>(std::max<std::int64_t>(1, n));
        };
        nlohmann::json all = report_of(settings().every, clock_, t, t.shared);
        all.update({{"failed", t.failed},
                    {"waited", waited_},
                    {"stall_s", t.usual_stall()},
                    {"first_stall_s", t.first_stall},
                    {"flush_s", mean(t.flush, t.captured)},
                    {"bytes_of_rank_0", mean(t.bytes, t.captured)}});
        if (local_) all["local"] = report_of(settings().local_every, local_clock_, t, t.local);
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

    static nlohmann::json report_of(const version_interval& every, const version_clock& clock, const flush_times& t,
                                    const flush_times::tier& there) {
        nlohmann::json all{{"versions", there.versions}};
        if (there.versions == 0) return all;
        all["durable_s"] = there.durable / static_cast<double>(there.versions);
        if (every.is_automatic()) {
            all["interval_s"] = clock.automatic_interval(t);
            all["expected_waste"] = expected_waste(clock.costs(t), clock.automatic_interval(t));
        }
        return all;
    }

    void begins_with(const std::filesystem::path& version, const char* how) {
        if (run_.is_root()) origin_.parent = parent_of(version, how);
        writer_->begins_with(version);
    }

    void take_if_due() {
        if (!due_ || last_ == step()) return;
        if (writer_->in_flight()) {
            waited_ += !std::exchange(waits_, true);
            return;
        }
        take();
    }
    void take() {
        // What goes to the run's directory goes to the hosts' disks too.
        const version_tiers tiers = !local_               ? version_tiers::shared
                                    : due_ & in_directory ? version_tiers::both
                                                          : version_tiers::local;
        if (tiers != version_tiers::local) clock_.restart(), last_ = step();
        local_clock_.restart();
        due_ = 0;
        waits_ = false;
        run_state<D, T> state(run_, progress_, state_use::save);
        std::string lineage;
        if (run_.is_root() && !on_phantom_rank()) lineage = lineage_of(run_, {step(), attempt_}, origin_);
        writer_->capture(step(), state.view(), std::move(lineage), tiers);
    }
    void finish_writer() {
        const version_votes last = writer_->finish(run_.world);
        if (last.broken > 0) fail_broken();
        failed_ = last.failed > 0;
    }

    // Collective: this run's directory on this rank's host, and the hosts that make up for it.
    local_tier* make_local() {
        const std::string host = host_name();
        std::string directory = settings().local;
        for (const auto& [name, value] :
             {std::pair<std::string, std::string>{"{host}", host}, {"{rank}", std::to_string(run_.world.rank())}})
            for (auto at = directory.find(name); at != std::string::npos; at = directory.find(name))
                directory.replace(at, name.size(), value);
        std::optional<host_redundancy> others;
        if (settings().among_hosts) {
            others.emplace(
                host_redundancy{form_host_group(run_.world, host, settings().group), *settings().among_hosts});
            require_possible(*settings().among_hosts, others->group.ranks.size());
        }
        const std::string key = concat(std::filesystem::path(origin_.run).filename().string(), '-',
                                       detail::hexadecimal(xxh3(origin_.run.data(), origin_.run.size())).substr(0, 8));
        local_.emplace(std::filesystem::path(directory) / key, run_.world.rank(), host, std::move(others));
        return &*local_;
    }
    // Collective: what the hosts have that is newer than what the run's directory has goes there.
    void publish_local() {
        std::int64_t newest = -1;
        if (run_.is_root())
            if (const auto all = list_versions(states()); !all.empty()) newest = all.front().step;
        newest = static_cast<std::int64_t>(broadcast_from_root(run_.world, static_cast<double>(newest)));
        for (const std::string& name : local_->versions(run_.world, newest)) try {
                const std::string from = local_->publish(run_.world, name, states());
                if (run_.is_root()) std::fprintf(stderr, "state %s: %s\n", name.c_str(), from.c_str());
                return;
            } catch (const error& e) {
                if (run_.is_root())
                    std::fprintf(stderr, "warning: state %s on the hosts: %s; an earlier one is taken\n", name.c_str(),
                                 e.what());
            }
    }

    [[noreturn]] void fail_broken() {
        const bool drifted = broadcast_from_root(run_.world, writer_->has_drifted()) != 0;
        for (const std::string& why : all_gather_text(run_.world, writer_->why_broken())) {
            if (why.empty()) continue;
            if (!drifted) fail_diverged(run_, why);
            fail(why,
                 "; it was not saved, earlier ones are as they were. Memory or network of a host may be at fault: "
                 "look at those of the ranks named, then go on with --resume");
        }
        fail("a state could not be saved, and no rank says why");
    }
    static std::string non_finite(const packed_piece& p, const std::byte* data) {
        if (p.type != element_type::float32 || !(p.name.starts_with("model/") || p.name.starts_with("buffers/")))
            return {};
        const std::span values(reinterpret_cast<const float*>(data), static_cast<std::size_t>(p.where.count));
        const auto at = first_non_finite(values);
        if (!at) return {};
        return concat(p.name.substr(p.name.find('/') + 1), " is not finite: element ", p.where.first + *at, " is ",
                      values[static_cast<std::size_t>(*at)]);
    }

    run_parts<D, T>& run_;
    run_progress& progress_;
    version_reader<D, T> reader_{run_, progress_};
    version_origin origin_;
    std::array<std::uint64_t, 2> attempt_{};
    std::optional<local_tier> local_;
    std::optional<version_writer> writer_;
    version_clock clock_, local_clock_;      // of the run's directory, of the hosts' disks
    std::int64_t last_ = -1, resumed_ = -1;  // step of the last version; of that with which this start began
    std::int64_t waited_ = 0;
    static constexpr int on_hosts = 1, in_directory = 2;
    int due_ = 0;  // where
    bool waits_ = false, failed_ = false;
};

}  // namespace cairn
