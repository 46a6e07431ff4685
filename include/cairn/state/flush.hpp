#pragma once
// Versions of a state, taken beside training. Between two steps
//   capture   all kernel threads copy this rank's pieces into a room that was touched before; training goes on
//   flush     a thread computes checksums and digests, and writes the pack past the page cache: to the host's own disk
//             with copies or parities among hosts (local_tier.hpp), to the run's directory, or to both
//   vote      in a number of each step's all-reduce the rank says that its pack is on disk, or could not be written
//   commit    when all are, one rank alone at once, rank 0's thread checks that every element is there once and that
//             replicas are alike, and renames (version.hpp)
// One version is in flight at a time. Whatever fails costs that version and no step; what went wrong is told once, by
// the rank that saw it.

#include <cairn/comm/collectives/all_reduce.hpp>
#include <cairn/comm/wait_for.hpp>
#include <cairn/core/clock.hpp>
#include <cairn/core/kernel_call.hpp>
#include <cairn/state/local_tier.hpp>
#include <cairn/state/pack.hpp>
#include <cairn/state/pack_sharing.hpp>
#include <cairn/state/staging.hpp>
#include <cairn/state/version.hpp>
#include <cairn/state/version_votes.hpp>

#include <array>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// Where a version goes: to the hosts' own disks, to the run's directory, or to both.
enum class version_tiers { local, shared, both };

/// What versions have cost this rank.
struct flush_times {
    struct tier {
        std::int64_t versions = 0;  // that are whole there; on ranks other than 0, that are about to be
        double durable = 0;         // rank 0: seconds from the captures until they were
    };
    tier local, shared;                 // the hosts' disks, the run's directory
    std::int64_t captured = 0;          // versions taken
    std::int64_t failed = 0;            // of them lost
    double stall = 0, first_stall = 0;  // seconds in which training stood still; with the first, which touches room
    double flush = 0;                   // seconds from the captures until this rank's packs were on disk
    double bytes = 0;                   // written by this rank

    /// Seconds in which a version stops training, the first apart.
    double usual_stall() const {
        return captured > 1 ? (stall - first_stall) / static_cast<double>(captured - 1) : stall;
    }
};

/// See the top of the file. Every rank has one, and all call the same functions after the same steps.
class version_writer {
public:
    struct config {
        std::filesystem::path states;            // the directory of versions, the same on all ranks
        std::array<std::uint64_t, 2> attempt{};  // the same on all ranks, another at each start of a run
        int rank = 0, ranks = 1;
        std::uint64_t staging = staging_room::no_limit;  // bytes
        local_tier* local = nullptr;                     // null: versions go to the run's directory alone
        // Why a piece must not be saved, "" where it may; on the thread.
        std::function<std::string(const packed_piece&, const std::byte*)> examine = {};
        // On rank 0's thread: what must be on disk before a commit, and what is done after one.
        std::function<void()> before_commit = {}, after_commit = {};
    };

    version_writer(config c, std::unique_ptr<job_queue> helper)
        : config_(std::move(c)), room_(config_.staging), helper_(std::move(helper)) {}
    /// Waits for what is being written or committed; what all ranks have not prepared is lost.
    ~version_writer() { helper_->wait(); }
    version_writer(const version_writer&) = delete;
    version_writer& operator=(const version_writer&) = delete;

    /// The version that the state comes from: what is the same in the next one is not written again.
    void begins_with(std::filesystem::path version) { earlier_ = std::move(version); }
    /// Whether a version is on its way.
    bool in_flight() const { return flying_.has_value(); }
    /// Where to; unset: none is.
    std::optional<version_tiers> in_flight_to() const { return flying_ ? std::optional(tiers_) : std::nullopt; }

    /// Copies what this rank has to write of `state`; returns when training may change it. `lineage`: rank 0's text
    /// that describes the version. Throws where there is no room for the copy.
    void capture(std::int64_t step, const state_view& state, std::string lineage,
                 version_tiers tiers = version_tiers::shared) {
        require(!in_flight(), "state of step ", step, ": that of step ", flying_ ? flying_->step : 0,
                " is still on its way");
        const stopwatch stalled;
        const version_id id{step, config_.attempt};
        auto layout = std::make_shared<pack_layout>(pack_id{id, config_.rank, config_.ranks}, state);
        std::byte* const image = room_.of(layout->bytes());
        {
            const kernel_call call("capture of a state", "u8", 0, 2 * static_cast<double>(layout->bytes()));
            layout->fill(image);
        }
        flying_ = id;
        captured_.restart();
        lineage_ = std::move(lineage);
        tiers_ = tiers;
        set(stage::writing);
        times_.stall += stalled.seconds();
        if (times_.captured++ == 0) times_.first_stall = times_.stall;
        helper_->submit(
            [this, layout, image, job = flush_job{tiers, lineage_, earlier_, {}}] { flush(*layout, image, job); });
    }

    /// What this rank says in the next step's all-reduce.
    version_votes votes() const {
        const std::scoped_lock lock(mutex_);
        return {.due = 0,
                .prepared = stage_ == stage::prepared,
                .failed = stage_ == stage::failed,
                .broken = !broken_.empty()};
    }
    /// Why this rank's part must not be saved; "" where it may.
    std::string why_broken() const {
        const std::scoped_lock lock(mutex_);
        return broken_;
    }
    /// On rank 0: whether that is because replicas have drifted apart.
    bool has_drifted() const {
        const std::scoped_lock lock(mutex_);
        return drifted_;
    }

    /// Takes note of the sum of the ranks' votes: what all have prepared is committed; what failed somewhere is given
    /// up and removed, once no rank writes any longer. Where something is broken, the caller ends the run everywhere.
    void decide(const version_votes& sum) {
        if (!in_flight() || sum.broken > 0 || sum.prepared + sum.failed < config_.ranks) return;
        last_failed_ = sum.failed > 0;
        if (last_failed_) {
            {
                const std::scoped_lock lock(mutex_);
                ++times_.failed;
            }
            if (config_.rank == 0) helper_->submit([this, id = *flying_] { abandon(id); });
        } else {
            if (is_local(tiers_)) {  // it is whole on the hosts: those before are no longer needed
                note_whole(&flush_times::local, flying_->step, captured_);
                helper_->submit([this, name = flying_->name()] { config_.local->keep_only(name); });
            }
            if (is_shared(tiers_)) {
                earlier_ = config_.states / flying_->name();
                if (config_.rank != 0) note_whole(&flush_times::shared, flying_->step, captured_);
                if (config_.rank == 0 && config_.ranks > 1)
                    helper_->submit([this, id = *flying_, lineage = std::move(lineage_), since = captured_] {
                        commit(id, lineage, since);
                    });
            }
        }
        flying_.reset();
        set(stage::idle);
    }

    /// Collective: returns when nothing is in flight, with the sum of the last votes; `failed` > 0 where the last
    /// version could not be saved.
    template <Communicator C>
    version_votes finish(C& world) {
        version_votes sum;
        helper_->wait();
        if (in_flight()) {
            sum = over_ranks(world, votes());
            decide(sum);
            helper_->wait();
            if (sum.broken > 0) return sum;
        }
        version_votes last = votes();
        last.failed = last_failed_ || commit_failed();
        return over_ranks(world, last);
    }

    /// Step of the last version that is committed, on ranks other than 0 of one that is being; −1: none.
    std::int64_t last_step() const {
        const std::scoped_lock lock(mutex_);
        return committed_;
    }
    flush_times times() const {
        const std::scoped_lock lock(mutex_);
        return times_;
    }

private:
    enum class stage { idle, writing, prepared, failed };
    struct flush_job {
        version_tiers tiers;
        std::string lineage;  // rank 0's
        std::filesystem::path earlier;
        stopwatch since;
    };
    static bool is_shared(version_tiers t) { return t != version_tiers::local; }
    static bool is_local(version_tiers t) { return t != version_tiers::shared; }

    template <Communicator C>
    version_votes over_ranks(C& world, const version_votes& mine) const {
        double sum = mine.number();
        if (config_.ranks > 1) wait_for_all(world);  // a slow disk takes longer than a message
        if (config_.ranks > 1) all_reduce(world, std::span<double>(&sum, 1), {.label = "votes on a state"});
        return version_votes::of(sum);
    }

    void set(stage s) {
        const std::scoped_lock lock(mutex_);
        stage_ = s;
    }
    void set_broken(std::string why, bool drifted = false) {
        const std::scoped_lock lock(mutex_);
        broken_ = std::move(why);
        drifted_ = drifted;
    }
    bool commit_failed() const {
        const std::scoped_lock lock(mutex_);
        return commit_failed_;
    }

    // On the helper.
    void flush(pack_layout& layout, std::byte* image, const flush_job& job) {
        if (on_phantom_rank()) {
            phantom_here->write_storage(storage::shared, static_cast<double>(layout.bytes()));
            return set(stage::prepared);
        }
        try {
            std::string why;
            if (!layout.seal(image, [&](const packed_piece& p, const std::byte* data) {
                    why = config_.examine ? config_.examine(p, data) : "";
                    return why.empty();
                }))
                return set_broken(std::move(why));
            if (job.tiers == version_tiers::local && config_.before_commit) config_.before_commit();
            if (is_local(job.tiers)) config_.local->store(layout.id(), {image, layout.bytes()}, job.lineage);
            if (is_shared(job.tiers)) write_shared(layout, image, job);
            {
                const std::scoped_lock lock(mutex_);
                times_.flush += job.since.seconds();
                times_.bytes += static_cast<double>(layout.bytes());
            }
            // One rank asks nobody: there is no step to wait for.
            const bool commits = config_.ranks == 1 && is_shared(job.tiers);
            const bool ready = !commits || commit(layout.id().version, job.lineage, job.since);
            set(ready ? stage::prepared : stage::failed);
        } catch (const std::exception& e) {
            warn(layout.id().version, e.what());
            set(stage::failed);
        }
    }
    void write_shared(pack_layout& layout, std::byte* image, const flush_job& job) {
        const std::filesystem::path folder = prepare_version(config_.states, layout.id().version);
        if (!job.earlier.empty()) share_with_earlier(layout, image, job.earlier, folder);
        direct_file<> file(folder / layout.id().file());
        file.write(image, layout.bytes());
        file.commit();
    }

    // On rank 0's helper. Whether the version is there.
    bool commit(const version_id& id, const std::string& lineage, const stopwatch& since) {
        if (on_phantom_rank()) return true;
        bool failed = false;
        try {
            if (config_.before_commit) config_.before_commit();
            commit_version(config_.states, id, config_.ranks, lineage);
        } catch (const drift_error& e) {
            set_broken(concat("state of step ", id.step, ": ", e.what()), true);
            abandon(id);
            failed = true;
        } catch (const std::exception& e) {
            warn(id, e.what());
            abandon(id);
            failed = true;
        }
        if (!failed) note_whole(&flush_times::shared, id.step, since);
        try {
            if (!failed && config_.after_commit) config_.after_commit();
        } catch (const std::exception& e) {
            std::fprintf(stderr, "warning: after the state of step %lld was saved: %s\n",
                         static_cast<long long>(id.step), e.what());
        }
        const std::scoped_lock lock(mutex_);
        commit_failed_ = failed;
        if (failed && config_.ranks > 1) ++times_.failed;  // one rank's vote says so
        return !failed;
    }
    void note_whole(flush_times::tier flush_times::*where, std::int64_t step, const stopwatch& since) {
        const double durable = since.seconds();
        const std::scoped_lock lock(mutex_);
        ++(times_.*where).versions;
        (times_.*where).durable += durable;
        committed_ = step;
    }

    // On rank 0's helper: what other ranks have written fills the disk.
    void abandon(const version_id& id) const {
        if (on_phantom_rank()) return;
        try {
            abandon_version(config_.states, id);
        } catch (const std::exception& e) {
            std::fprintf(stderr, "warning: %s\n", e.what());
        }
    }

    void warn(const version_id& id, const char* why) const {
        std::fprintf(stderr, "warning: rank %d: the state of step %lld was not saved: %s\n", config_.rank,
                     static_cast<long long>(id.step), why);
    }

    config config_;
    staging_room room_;
    std::optional<version_id> flying_;
    stopwatch captured_;  // the one in flight
    std::string lineage_;
    version_tiers tiers_ = version_tiers::shared;
    std::filesystem::path earlier_;
    bool last_failed_ = false;
    mutable std::mutex mutex_;  // of what the helper changes
    flush_times times_;
    std::int64_t committed_ = -1;
    stage stage_ = stage::idle;
    std::string broken_;
    bool commit_failed_ = false, drifted_ = false;
    std::unique_ptr<job_queue> helper_;  // last: it ends first
};

}  // namespace cairn
