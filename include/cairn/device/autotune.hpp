#pragma once
// Which kernel is used for what. Several kernels compute the same thing; the fastest for a shape on this machine is
// found by running them once, and written down: "what" (a key such as "conv/forward n8 …") → the name of the choice and
// the times.
// A run saves its choices with its state (train/kernel_choices.hpp). Resuming, branching and other ranks load them, so
// that the same kernels run and the same bits come out.
//
//   measure:  all candidates once, untimed (they build tables, their own inner choices, touch memory)
//             then in turn, a, b, c, a, b, c, …; those twice as slow as the best after three turns drop out; the
//             smallest
//             time wins: other programs on the machine only ever make a kernel slower, so the minimum is the steadiest
//             figure
// Candidates that can be checked are, before they are measured: one that gives wrong results is entered as rejected,
// with the reason, warned of, and never chosen. One that is forced by name is checked too, and an error if it is wrong.
//
// Where others had the processors all the while, that is no help: such a choice is marked, so that the user can be
// warned. It stays in use: a run that is repeated must give the same bits.

#include <cairn/core/atomic_file.hpp>
#include <cairn/core/clock.hpp>
#include <cairn/core/cpu_contention.hpp>
#include <cairn/core/error.hpp>
#include <cairn/device/autotune_file.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <ostream>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

namespace cairn {

/// How a choice that is not in the registry yet is made.
enum class autotune_policy {
    measure,  ///< run the candidates and take the fastest
    first,    ///< take the first one, the author's guess, without running anything
};

/// The registry of one process. Thread safe.
class autotune_cache {
public:
    static autotune_cache& global() {
        static autotune_cache* registry = new autotune_cache;
        return *registry;
    }

    autotune_cache() {
        if (const char* text = std::getenv("CAIRN_AUTOTUNE")) {
            const std::string policy = text;
            require(policy == "measure" || policy == "first", "CAIRN_AUTOTUNE=", policy, ": expected measure or first");
            policy_ = policy == "first" ? autotune_policy::first : autotune_policy::measure;
        }
    }

    /// The choice for `key` among `names`. Taken from the registry, else forced for the family of the key (the text
    /// before its first '/'), else made by the policy and entered. `make_runner` is called only to measure; it returns
    /// a callable run(i) that runs candidate i into scratch memory and throws error if that candidate does not work
    /// after all. Where it has a member checker(), that returns a callable check(i): what is wrong with the results of
    /// candidate i, "" for nothing.
    /// On a phantom rank nothing runs: what is not known is the first one.
    /// Throws if there are no candidates, if all of them fail, or if the forced one gives wrong results.
    template <class MakeRunner>
    std::size_t get_or_measure(const std::string& key, std::span<const char* const> names, MakeRunner&& make_runner) {
        require(!names.empty(), "autotune: no candidate for ", key);
        const auto asked = forced(key, names);
        if (!on_phantom_rank()) use(key);
        if (on_phantom_rank()) return asked ? *asked : find(key, names).value_or(0);  // nothing is entered
        if (asked) return verified(key, names, *asked, make_runner);
        if (const auto known = find(key, names)) return *known;
        if (names.size() == 1 || policy() == autotune_policy::first) return enter(key, {names[0], {}}), 0;
        // One measurement of a family at a time. A convolution's candidates measure their GEMMs, maybe on another
        // thread of a parallel region that this thread waits for: with one lock for all families that would never end.
        const std::scoped_lock one_at_a_time(measuring(key));
        if (const auto known = find(key, names)) return *known;
        auto run = make_runner();
        const cpu_contention others;
        const std::map<std::string, std::string> rejected = check(key, names, run);
        const std::vector<double> seconds = measure(key, names, run, rejected);
        const auto best = std::min_element(seconds.begin(), seconds.end()) - seconds.begin();
        autotune_entry entry{names[static_cast<std::size_t>(best)], {}, others.felt(), rejected};
        for (std::size_t i = 0; i < seconds.size(); ++i)
            if (seconds[i] < std::numeric_limits<double>::infinity()) entry.seconds.emplace_back(names[i], seconds[i]);
        enter(key, std::move(entry));
        return static_cast<std::size_t>(best);
    }

    /// Makes every choice of one family ("conv", "gemm") the candidate `name`, wherever that is a candidate; "" ends
    /// it.
    void force(const std::string& family, const std::string& name) {
        const std::scoped_lock lock(table_);
        forced_[family] = name;
        ++epoch_;
    }

    bool is_forced(const std::string& family, const std::string& name) const {
        const std::scoped_lock lock(table_);
        const auto forced = forced_.find(family);
        return forced != forced_.end() && forced->second == name;
    }

    void set_policy(autotune_policy p) { policy_ = p; }
    autotune_policy policy() const { return policy_; }

    /// Changes whenever an earlier answer may no longer hold; a kernel that remembers answers compares it.
    std::uint64_t epoch() const {
        const std::uint64_t real = epoch_.load(std::memory_order_acquire);
        return on_phantom_rank() ? ~real : real;  // what a phantom rank guessed is no answer to a real one
    }

    std::map<std::string, autotune_entry> entries() const {
        const std::scoped_lock lock(table_);
        return entries_;
    }

    /// Enters a choice by hand, over an earlier one.
    void set(const std::string& key, autotune_entry entry) {
        const std::scoped_lock lock(table_);
        entries_[key] = std::move(entry);
        ++epoch_;
    }

    /// Marks a choice as one that this run, or another rank of it, has asked for.
    void use(const std::string& key) {
        const std::scoped_lock lock(table_);
        used_.insert(key);
    }
    bool is_in_use(const std::string& key) const {
        const std::scoped_lock lock(table_);
        return used_.contains(key);
    }

    void clear() {
        const std::scoped_lock lock(table_);
        entries_.clear();
        used_.clear();
        ++epoch_;
    }

    /// Adds the entries of `path` that were made on the machine `fingerprint`, over those here; returns their number.
    /// A file that is not there has none. Throws on a file that cannot be read or is not of this format.
    std::size_t load(const std::string& path, const std::string& fingerprint) {
        std::size_t count = 0;
        const auto sections = detail::read_autotune_file(path);
        const auto ours = sections.find(fingerprint);
        if (ours == sections.end()) return 0;
        const std::scoped_lock lock(table_);
        for (const auto& [key, entry] : ours->second) {
            entries_[key] = entry;
            ++count;
        }
        ++epoch_;
        return count;
    }

    /// Adds the entries to `path` under `fingerprint`; those that are there stay, also of another run that made them
    /// meanwhile: the first choice is what is repeated. The file is replaced in one step (core/atomic_file.hpp). Throws
    /// if it cannot be written.
    void save(const std::string& path, const std::string& fingerprint) const {
        auto sections = detail::read_autotune_file(path);
        for (const auto& [key, entry] : entries())
            if (auto& there = sections[fingerprint]; !there.contains(key) || is_outdated(key)) there[key] = entry;
        std::ostringstream out;
        for (const auto& [machine, lines] : sections) {
            out << "@\t" << machine << '\n';
            for (const auto& [key, entry] : lines) detail::write_autotune_entry(out, key, entry);
        }
        write_atomically(path, out.str(), concat(".tmp", getpid()));  // several runs may write it at a time
    }

    /// One line an entry, for people.
    void print(std::ostream& out) const {
        for (const auto& [key, entry] : entries()) {
            out << key << ": " << entry.choice;
            const char* separator = "  (";
            for (const auto& [name, seconds] : entry.seconds) {
                out << separator << name << ' ' << seconds * 1e6 << " µs";
                separator = ", ";
            }
            out << (entry.seconds.empty() ? "" : ")");
            for (const auto& [name, reason] : entry.rejected) out << "  rejected " << name << ": " << reason;
            out << '\n';
        }
    }

    autotune_cache(const autotune_cache&) = delete;
    autotune_cache& operator=(const autotune_cache&) = delete;

private:
    static constexpr int least_rounds = 5, max_rounds = 60;
    static constexpr double drop_factor = 2;
    static constexpr double budget = 0.4;  // seconds of a measurement beyond the first run of each candidate

    std::recursive_mutex& measuring(const std::string& key) {
        const std::scoped_lock lock(table_);
        return measuring_[key.substr(0, key.find('/'))];
    }

    static std::optional<std::size_t> place(const std::string& name, std::span<const char* const> names) {
        const auto at = std::find(names.begin(), names.end(), name);
        if (at == names.end()) return std::nullopt;
        return static_cast<std::size_t>(at - names.begin());
    }

    std::optional<std::size_t> forced(const std::string& key, std::span<const char* const> names) const {
        const std::scoped_lock lock(table_);
        const auto name = forced_.find(key.substr(0, key.find('/')));
        return name == forced_.end() ? std::nullopt : place(name->second, names);
    }

    std::optional<std::size_t> find(const std::string& key, std::span<const char* const> names) const {
        const std::scoped_lock lock(table_);
        const auto known = entries_.find(key);
        return known == entries_.end() ? std::nullopt : place(known->second.choice, names);
    }

    void enter(const std::string& key, autotune_entry entry) {
        const std::scoped_lock lock(table_);
        if (!entries_.insert_or_assign(key, std::move(entry)).second) outdated_.insert(key);
    }
    bool is_outdated(const std::string& key) const {
        const std::scoped_lock lock(table_);
        return outdated_.contains(key);
    }

    // Candidate `i`, which is forced; throws if it gives wrong results. Checked once for each key.
    template <class MakeRunner>
    std::size_t verified(const std::string& key, std::span<const char* const> names, std::size_t i,
                         MakeRunner&& make_runner) {
        if constexpr (requires { make_runner().checker(); }) {
            const std::scoped_lock one_at_a_time(measuring(key));
            const std::string what = concat(key, '\t', names[i]);
            if (verified_.count(what)) return i;
            auto run = make_runner();
            const std::string wrong = run.checker()(i);
            require(wrong.empty(), "autotune: ", names[i], " is forced for ", key,
                    ", and its results are wrong: ", wrong, "; do without forcing it");
            verified_.insert(what);
        }
        return i;
    }

    // The candidates that give wrong results, and what is wrong. They are warned of.
    template <class Run>
    static std::map<std::string, std::string> check(const std::string& key, std::span<const char* const> names,
                                                    Run& run) {
        std::map<std::string, std::string> rejected;
        if constexpr (requires { run.checker(); }) {
            auto fault = run.checker();
            for (std::size_t i = 0; i < names.size(); ++i) {
                try {
                    if (const std::string wrong = fault(i); !wrong.empty()) rejected[names[i]] = wrong;
                } catch (const error&) {  // it does not work, as the measurement will find
                }
            }
            for (const auto& [name, wrong] : rejected)
                std::fprintf(stderr, "warning: %s: %s gives wrong results and is not used: %s\n", key.c_str(),
                             name.c_str(), wrong.c_str());
        }
        return rejected;
    }

    // Least seconds of each candidate; infinity for one that fails. A candidate that dropped out keeps its best.
    template <class Run>
    std::vector<double> measure(const std::string& key, std::span<const char* const> names, Run& run,
                                const std::map<std::string, std::string>& rejected) const {
        constexpr double never = std::numeric_limits<double>::infinity();
        const std::size_t n = names.size();
        std::vector<double> least(n, never);
        std::vector<bool> in(n, true);
        std::string failures;
        for (std::size_t i = 0; i < n; ++i) {
            try {
                if (const auto wrong = rejected.find(names[i]); wrong != rejected.end())
                    fail("rejected, ", wrong->second);
                run(i);
            } catch (const error& e) {
                in[i] = false;
                failures += concat("; ", names[i], ": ", e.what());
            }
        }
        require(std::find(in.begin(), in.end(), true) != in.end(), "autotune: no candidate works for ", key, failures);
        const double start = now();
        const auto enough = [&](int round) {
            const double spent = now() - start;
            return round >= 1 &&
                   (spent > budget || round == max_rounds || (round >= least_rounds && spent > 0.05 * budget));
        };
        for (int round = 0; !enough(round); ++round) {
            for (std::size_t i = 0; i < n; ++i) {
                if (!in[i]) continue;
                const stopwatch watch;
                run(i);
                least[i] = std::min(least[i], watch.seconds());
            }
            const double best = *std::min_element(least.begin(), least.end());
            for (std::size_t i = 0; i < n && round >= 2; ++i)
                if (least[i] > drop_factor * best) in[i] = false;
        }
        return least;
    }

    mutable std::mutex table_;
    std::map<std::string, std::recursive_mutex> measuring_;  // by family
    std::map<std::string, autotune_entry> entries_;
    std::map<std::string, std::string> forced_;
    std::set<std::string> outdated_;  // whose recorded choice was no candidate any more
    std::set<std::string> used_;      // what was asked for
    std::set<std::string> verified_;  // forced candidates that were checked: key, name; under the family's lock
    std::atomic<std::uint64_t> epoch_{1};
    std::atomic<autotune_policy> policy_{autotune_policy::measure};
};

}  // namespace cairn
