#pragma once
// Selection of the all-reduce by size: measured once on a machine by `benchmarks/collectives --calibrate`, kept in a
// file, and read by programs:
//   load_collectives(world, perf::fingerprint());          // at the start of a program, on all ranks
// `automatic` then takes, for each size, the algorithm that was fastest on this communicator and number of ranks;
// between two sizes, times are interpolated. Without measurements: a rule that holds nearly everywhere, see
// default_all_reduce.
// All ranks must choose alike, so rank 0 reads the file and tells the others.
//
// File format, one line an entry, after a line that names the machine (entries of other machines are kept, not used);
// times in µs:
//   @<TAB>fingerprint
//   link<TAB>communicator<TAB>ranks<TAB>bytes<TAB>exchange=time<TAB>reduce=time
//   all-reduce<TAB>communicator<TAB>ranks<TAB>bytes<TAB>algorithm=time<TAB>algorithm=time …

#include <cairn/comm/collectives/algorithms.hpp>
#include <cairn/comm/collectives/cost_model.hpp>
#include <cairn/comm/collectives/text.hpp>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

namespace cairn {

/// Measurements on one kind of communicator with one number of ranks.
struct collective_profile {
    link_model link;
    std::map<index_t, std::map<all_reduce_algorithm, double>> all_reduce;  // seconds by bytes and algorithm

    /// Seconds at n bytes: interpolated between the sizes that were measured. Negative where they are not known.
    double seconds(all_reduce_algorithm a, index_t n) const {
        const std::pair<const index_t, std::map<all_reduce_algorithm, double>>*below = nullptr, *above = nullptr;
        for (const auto& entry : all_reduce) {
            if (!entry.second.contains(a)) continue;
            if (entry.first <= n) below = &entry;
            if (entry.first >= n && !above) above = &entry;
        }
        if (!below && !above) return -1;
        if (!below) return above->second.at(a);
        const double x = below->second.at(a);
        if (!above) return x * static_cast<double>(n) / static_cast<double>(below->first);
        if (above == below) return x;
        const double part = static_cast<double>(n - below->first) / static_cast<double>(above->first - below->first);
        return x + part * (above->second.at(a) - x);
    }
};

/// The profiles of one machine, by name of the communicator and number of ranks; 0 ranks: any number.
using collective_profiles = std::map<std::pair<std::string, int>, collective_profile>;

namespace detail {

inline void write_profiles(std::ostream& out, const collective_profiles& all) {
    out.precision(17);
    for (const auto& [key, profile] : all) {
        for (const link_point& point : profile.link.points())
            out << "link\t" << key.first << '\t' << key.second << '\t' << static_cast<index_t>(point.bytes)
                << "\texchange=" << point.exchange * 1e6 << "\treduce=" << point.reduce * 1e6 << '\n';
        for (const auto& [bytes, seconds] : profile.all_reduce) {
            out << "all-reduce\t" << key.first << '\t' << key.second << '\t' << bytes;
            for (const auto& [algorithm, time] : seconds) out << '\t' << name_of(algorithm) << '=' << time * 1e6;
            out << '\n';
        }
    }
}

/// By fingerprint. `origin` is named in errors.
inline std::map<std::string, collective_profiles> read_profiles(std::istream& in, const std::string& origin) {
    std::map<std::string, collective_profiles> machines;
    std::map<std::pair<std::string, int>, std::vector<link_point>> links;
    collective_profiles* current = nullptr;
    const auto finish = [&] {
        for (auto& [key, points] : links) (*current)[key].link = link_model(std::move(points));
        links.clear();
    };
    std::string line;
    for (int number = 1; std::getline(in, line); ++number) {
        if (line.empty()) continue;
        const auto wrong = [&](const std::string& why) {
            fail("collectives: line ", number, " of ", origin, ": ", why,
                 ": delete it and run benchmarks/collectives --calibrate");
        };
        std::vector<std::string> fields;
        std::istringstream text(line);
        for (std::string field; std::getline(text, field, '\t');) fields.push_back(field);
        if (fields.size() == 2 && fields[0] == "@") {
            finish();
            current = &machines[fields[1]];
            continue;
        }
        const auto number_of = [&](const std::string& digits) {
            char* end = nullptr;
            const double value = std::strtod(digits.c_str(), &end);
            if (digits.empty() || *end != 0 || !(value >= 0) || value > 1e18)
                wrong(concat('\'', digits, "' is no number"));
            return value;
        };
        if (!current || fields.size() < 5 || (fields[0] != "link" && fields[0] != "all-reduce"))
            wrong("is neither link nor all-reduce with communicator, ranks, bytes and times");
        const std::pair key(fields[1], static_cast<int>(std::min(1e9, number_of(fields[2]))));
        const double bytes = number_of(fields[3]);
        link_point point{bytes, 0, 0};
        for (std::size_t i = 4; i < fields.size(); ++i) {
            const auto equals = fields[i].find('=');
            if (equals == std::string::npos) wrong(concat('\'', fields[i], "' is not name=microseconds"));
            const std::string name = fields[i].substr(0, equals);
            const double seconds = number_of(fields[i].substr(equals + 1)) * 1e-6;
            if (fields[0] == "all-reduce")
                (*current)[key].all_reduce[static_cast<index_t>(bytes)][all_reduce_named(name)] = seconds;
            else if (name == "exchange")
                point.exchange = seconds;
            else if (name == "reduce")
                point.reduce = seconds;
            else
                wrong(concat("a link has no '", name, '\''));
        }
        if (fields[0] == "link") links[key].push_back(point);
    }
    if (current) finish();
    return machines;
}

inline std::map<std::string, collective_profiles> read_profiles(const std::string& path) {
    std::ifstream in(path);
    return in ? read_profiles(in, path) : std::map<std::string, collective_profiles>{};
}

/// The input of `automatic`.
struct profile_registry {
    static profile_registry& global() {
        static profile_registry* registry = new profile_registry;
        return *registry;
    }
    std::mutex lock;
    std::atomic<std::uint64_t> epoch{1};  // changes with the profiles
    std::shared_ptr<const collective_profiles> profiles = std::make_shared<collective_profiles>();
};

}  // namespace detail

/// The profiles in use in this process.
inline std::shared_ptr<const collective_profiles> collective_profiles_in_use() {
    auto& registry = detail::profile_registry::global();
    const std::scoped_lock lock(registry.lock);
    return registry.profiles;
}

/// Puts profiles in use instead of those before. All ranks need the same: see share_collectives.
inline void use_collectives(collective_profiles profiles) {
    auto made = std::make_shared<const collective_profiles>(std::move(profiles));
    auto& registry = detail::profile_registry::global();
    const std::scoped_lock lock(registry.lock);
    registry.profiles = std::move(made);
    ++registry.epoch;
}

/// ~/.cache/cairn/collectives.tsv; CAIRN_CACHE names another folder. Empty where there is no home.
inline std::filesystem::path collectives_file() {
    const auto in = [](const char* variable, const char* folder) -> std::filesystem::path {
        const char* value = std::getenv(variable);
        return value ? std::filesystem::path(value) / folder / "collectives.tsv" : std::filesystem::path{};
    };
    for (const auto& path : {in("CAIRN_CACHE", ""), in("XDG_CACHE_HOME", "cairn"), in("HOME", ".cache/cairn")})
        if (!path.empty()) return path;
    return {};
}

/// The file's entries for the machine; none without a file. Throws on a file of another format.
inline collective_profiles read_collectives(const std::filesystem::path& path, const std::string& fingerprint) {
    auto machines = detail::read_profiles(path.string());
    const auto ours = machines.find(fingerprint);
    return ours == machines.end() ? collective_profiles{} : std::move(ours->second);
}

/// Enters profiles for the machine, over those in the file for the same communicator and ranks. The file is replaced in
/// one step.
/// Throws if it cannot be written.
inline void write_collectives(const std::filesystem::path& path, const std::string& fingerprint,
                              const collective_profiles& profiles) {
    auto machines = detail::read_profiles(path.string());
    for (const auto& [key, profile] : profiles) machines[fingerprint][key] = profile;
    if (path.has_parent_path()) {
        std::error_code ignored;
        std::filesystem::create_directories(path.parent_path(), ignored);
    }
    const std::string temporary = concat(path.string(), ".tmp", getpid());
    {
        std::ofstream out(temporary);
        for (const auto& [machine, all] : machines) {
            out << "@\t" << machine << '\n';
            detail::write_profiles(out, all);
        }
        out.flush();
        if (!out) {
            std::remove(temporary.c_str());
            fail("collectives: cannot write ", temporary, "; is the folder there, writable and not full?");
        }
    }
    if (std::rename(temporary.c_str(), path.c_str()) != 0) {
        std::remove(temporary.c_str());
        fail("collectives: cannot replace ", path.string(), "; is it writable?");
    }
}

/// Collective: the profiles of rank 0 are put in use on all ranks.
template <Communicator C>
void share_collectives(C& c, const collective_profiles& of_rank_0) {
    std::ostringstream mine;
    if (c.rank() == 0) {
        mine << "@\tshared\n";
        detail::write_profiles(mine, of_rank_0);
    }
    std::istringstream text(broadcast_text(c, mine.str()));
    use_collectives(std::move(detail::read_profiles(text, "rank 0's table")["shared"]));
}

/// Collective: rank 0 reads the file of this machine, and all ranks use what it holds. Returns rank 0's trouble with
/// the file, else an empty text: a cache that cannot be read costs time, not the run.
template <Communicator C>
std::string load_collectives(C& c, const std::string& fingerprint,
                             const std::filesystem::path& path = collectives_file()) {
    collective_profiles profiles;
    std::string trouble;
    if (c.rank() == 0 && !path.empty()) {
        try {
            profiles = read_collectives(path, fingerprint);
        } catch (const std::exception& e) {
            trouble = e.what();
        }
    }
    share_collectives(c, profiles);
    return trouble;
}

/// Without measurements: few rounds for small arrays, few bytes for large ones.
inline all_reduce_algorithm default_all_reduce(index_t bytes, int) {
    return bytes <= index_t{16} << 10 ? all_reduce_algorithm::recursive_doubling : all_reduce_algorithm::ring;
}

/// The fastest for n bytes as far as is known. `allowed(algorithm)` says what may be chosen. The library below is
/// chosen only where it was faster by 3 %: our own algorithms name who waits for whom, and give the same bits in every
/// run.
template <class Allowed>
all_reduce_algorithm choose_all_reduce(const std::string& communicator, int ranks, index_t n, Allowed&& allowed) {
    unsigned open = 0;
    for (const auto& [algorithm, name] : all_reduce_names)
        if (algorithm != all_reduce_algorithm::automatic && allowed(algorithm))
            open |= 1u << static_cast<int>(algorithm);
    // The last answer of this thread: small all-reduces take little longer than a look into the table.
    struct answer {
        std::uint64_t epoch = 0;
        int ranks = 0;
        index_t n = 0;
        unsigned open = 0;
        std::string communicator;
        all_reduce_algorithm best{};
    };
    thread_local answer last;
    const std::uint64_t epoch = detail::profile_registry::global().epoch;
    if (last.epoch == epoch && last.ranks == ranks && last.n == n && last.open == open &&
        last.communicator == communicator)
        return last.best;

    const auto profiles = collective_profiles_in_use();
    auto known = profiles->find({communicator, ranks});
    if (known == profiles->end()) known = profiles->find({communicator, 0});
    all_reduce_algorithm best = default_all_reduce(n, ranks);
    double least = 1e300;
    for (const auto& [algorithm, name] : all_reduce_names) {
        if (known == profiles->end() || !(open >> static_cast<int>(algorithm) & 1u)) continue;
        double seconds = known->second.all_reduce.empty() && !known->second.link.empty()
                             ? all_reduce_seconds(known->second.link, algorithm, static_cast<double>(n), ranks)
                             : known->second.seconds(algorithm, n);
        if (algorithm == all_reduce_algorithm::vendor) seconds *= 1.03;
        if (seconds >= 0 && seconds < least) best = algorithm, least = seconds;
    }
    last = {epoch, ranks, n, open, communicator, best};
    return best;
}

}  // namespace cairn
