// The saved states of runs: what there is, where it came from, what differs, whether each byte is right; tags, removal.
//   states list --where "test_accuracy > 0.9" --best test_accuracy
//   states log runs/a@500                    ancestors and what came from it, as a tree
//   states diff runs/a runs/b@best           the first tensor that differs
//   states verify [--repair]                 every byte of every version; exit 1 where one is damaged, and stays so
//   states export runs/a@500 a.safetensors   and import, to exchange weights with other frameworks
//   states average runs/a runs/b --out runs/mean
//   states query "SELECT run, max(step) FROM states GROUP BY run"
// A VERSION is RUN (its newest), RUN@STEP, RUN@TAG, or its directory.

#include "states/average.hpp"
#include "states/catalogue.hpp"
#include "states/change.hpp"
#include "states/compare.hpp"
#include "states/exchange.hpp"
#include "states/history.hpp"
#include "states/table.hpp"

#include <cairn/state/repair.hpp>

#include <CLI/CLI.hpp>

#include <filesystem>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

namespace {

using namespace cairn;
using namespace cairn::states;
namespace fs = std::filesystem;

struct asked {
    std::vector<std::string> runs, names, rules, local;
    std::string where, best, a, b, sql;
    double tolerance = 0;
    bool json = false, force = false, dry = false, all = false, repair = false;
};

// The runs in `paths`, or in ./runs, each once.
std::vector<fs::path> runs_of(const std::vector<std::string>& paths) {
    if (paths.empty() && fs::is_directory("runs")) return runs_at("runs");
    require(!paths.empty(), "there is no folder runs here; name runs, or folders of runs");
    std::vector<fs::path> all;
    std::set<fs::path> seen;
    for (const std::string& text : paths) {
        const fs::path path = fs::exists(text) ? fs::path(text).lexically_normal() : locate_run(text);
        for (const fs::path& run : runs_at(path))
            if (seen.insert(fs::weakly_canonical(run)).second) all.push_back(run);
    }
    return all;
}

void list(const asked& a) {
    const catalogue all(runs_of(a.runs));
    std::string sql = "SELECT run, step, epoch, time, ";
    const std::string figure = a.best.empty() ? "best_by" : quoted_text(a.best);
    if (a.best.empty()) sql += "best_by AS figure, ";
    sql += "(SELECT value FROM metrics WHERE state = versions.id AND figure = " + figure + ") AS " +
           quoted_name(a.best.empty() ? "value" : a.best) + ", bytes, how, tags, version, problem FROM versions";
    if (!a.where.empty()) sql += " WHERE (" + a.where + ")";
    if (!a.best.empty())
        sql += std::string(a.where.empty() ? " WHERE " : " AND ") + quoted_name(a.best) + " IS NOT NULL ORDER BY " +
               quoted_name(a.best) + (best_is_largest(a.best) ? " DESC" : " ASC") + ", time DESC";
    const table found = all.query(sql);
    print_table(a.json ? found : without_empty_columns(found), a.json);
}

void show(const asked& a) {
    const located_version at = locate_version(a.a);
    const manifest m = read_manifest(at.version.directory);
    std::ifstream in(at.version.directory / "lineage.json", std::ios::binary);
    nlohmann::json text = nlohmann::json::parse(in, nullptr, false);
    if (!text.is_object()) text = nlohmann::json::object();
    nlohmann::json tensors = nlohmann::json::array();
    table t{{"tensor", "type", "extents", "digest"}, {}};
    for (const manifest::tensor& tensor : m.tensors)
        t.rows.push_back({tensor.name, element_infos[static_cast<std::size_t>(tensor.type)].name,
                          concat(tensor.extents), cairn::detail::hexadecimal(tensor.digest)});
    if (a.json) {
        for (const auto& row : t.rows)
            tensors.push_back({{"tensor", row[0]}, {"type", row[1]}, {"extents", row[2]}, {"digest", row[3]}});
        text["directory"] = at.version.directory.string(), text["digest"] = cairn::detail::hexadecimal(m.digest);
        text["ranks"] = m.ranks, text["tensors"] = tensors;
        std::cout << text.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
        return;
    }
    std::cout << "directory: " << at.version.directory.string() << "\ndigest: " << cairn::detail::hexadecimal(m.digest)
              << "\nranks: " << m.ranks << '\n';
    for (const auto& [key, value] : text.items())
        if (value.is_string() && key == "settings")
            std::cout << "settings:\n" << value.get<std::string>() << '\n';
        else
            std::cout << printable(key) << ": "
                      << (value.is_string() ? printable(value.get<std::string>()) : value.dump()) << '\n';
    print_table(t, false);
}

void log(const asked& a) {
    const located_version at = locate_version(a.a);
    std::vector<fs::path> runs{at.run};  // and those beside it
    const auto add = [&](const fs::path& run) {
        std::error_code unknown;
        for (const fs::path& known : runs)
            if (fs::equivalent(known, run, unknown)) return;
        if (fs::is_directory(run / "states", unknown)) runs.push_back(run);
    };
    const fs::path folder = at.run.has_parent_path() ? at.run.parent_path() : fs::path(".");
    for (const auto& entry : fs::directory_iterator(folder, fs::directory_options::skip_permission_denied))
        add(entry.path().lexically_normal());
    if (!a.runs.empty() || fs::is_directory("runs"))
        for (const fs::path& run : runs_of(a.runs)) add(run);
    const history h(catalogue(runs), at.version.directory.string());
    a.json ? void(std::cout << h.json().dump(1) << '\n') : h.print();
}

int diff(const asked& a) {
    const version_tensors x(locate_version(a.a).version.directory), y(locate_version(a.b).version.directory);
    const comparison c = compare_versions(x, y, a.tolerance);
    print_comparison(c, a.json);
    return c.same() ? 0 : 1;
}

// Heals a version from all others of these runs and from the hosts' own disks. Says what it did, or null.
nlohmann::json heal(const located_version& v, const std::vector<located_version>& versions,
                    const std::vector<std::string>& local) {
    try {
        verify_version(v.version.directory, true);
        return {};
    } catch (const error&) {  // to be healed
    }
    std::vector<fs::path> sources;
    std::set<fs::path> places{v.run / "states"};
    for (const located_version& other : versions) places.insert(other.run / "states");
    places.insert(local.begin(), local.end());
    for (const fs::path& place : places)
        for (fs::path& file : repair_sources(place)) sources.push_back(std::move(file));
    const repair_report report = repair_version(v.version.directory, sources);
    for (const std::string& why : report.lost) std::cerr << "not healed: " << why << '\n';
    return report.healed.empty() ? nlohmann::json() : nlohmann::json(listed(report.healed));
}

int verify(const asked& a) {
    std::vector<located_version> versions;
    for (const std::string& name : a.names.empty() ? std::vector<std::string>{""} : a.names) {
        std::vector<fs::path> runs;
        if (name.empty())
            runs = runs_of({});
        else if (fs::is_directory(name) && fs::path(name).lexically_normal().parent_path().filename() != "states")
            runs = runs_of({name});
        if (runs.empty()) versions.push_back(locate_version(name));
        for (const fs::path& run : runs)
            for (stored_version& v : list_versions(run / "states")) versions.push_back({run, std::move(v)});
    }
    table t{{"run", "version", "bytes", "healed", "problem"}, {}};
    bool good = true;
    for (const located_version& v : versions) {
        nlohmann::json bytes, healed, problem;
        if (a.repair) healed = heal(v, versions, a.local);
        try {
            std::uint64_t sum = 0;
            for (const auto& p : verify_version(v.version.directory, true).packs) sum += p.bytes;
            bytes = sum;
        } catch (const error& e) {
            problem = e.what();
            good = false;
        }
        t.rows.push_back({v.run.string(), v.version.name, bytes, healed, problem});
    }
    print_table(a.json ? t : without_empty_columns(t), a.json);
    return good ? 0 : 1;
}

void remove(const asked& a) {
    std::vector<located_version> versions;
    for (const std::string& name : a.names) versions.push_back(locate_version(name));
    remove_versions(versions, a.force);
    for (const located_version& v : versions) std::cout << "removed " << v.text() << '\n';
}

void collect_garbage(const asked& a) {
    const fs::path run = locate_run(a.a);
    for (const std::string& name :
         a.dry ? versions_not_kept(run / "states", parse_retention(a.rules), a.best) : collect(run, a.rules, a.best))
        std::cout << (a.dry ? "would remove " : "removed ") << run.string() << ' ' << name << '\n';
}

int run(int argc, char** argv) {
    asked a;
    int status = 0;
    CLI::App app{"Saved states of runs. A VERSION is RUN (its newest), RUN@STEP, RUN@TAG, or its directory."};
    app.require_subcommand(1);
    const auto command = [&](const char* name, const char* does, std::function<void()> action) {
        CLI::App* const c = app.add_subcommand(name, does);
        c->callback(std::move(action));
        return c;
    };
    const auto with_json = [&](CLI::App* c) { c->add_flag("--json", a.json, "as JSON"); };
    const auto versions = [&](CLI::App* c) { c->add_option("VERSION", a.names)->required(); };

    CLI::App* c = command("list", "versions of runs", [&] { list(a); });
    c->add_option("RUN", a.runs, "runs, or folders of runs (./runs)");
    c->add_option("--where", a.where, "SQL: step > 100 AND test_accuracy > 0.9 AND \"optimizer.lr\" < 0.1");
    c->add_option("--best", a.best, "a figure, such as test_accuracy: those that have it, the best first");
    with_json(c);
    c = command("show", "what is known of a version, and its tensors", [&] { show(a); });
    c->add_option("VERSION", a.a)->required();
    with_json(c);
    c = command("log", "where a version came from, and what came from it", [&] { log(a); });
    c->add_option("VERSION", a.a)->required();
    c->add_option("--runs", a.runs, "where to look besides its folder (./runs)");
    with_json(c);
    c = command("diff", "what differs between two versions; exit 1 where something does", [&] { status = diff(a); });
    c->add_option("A", a.a)->required();
    c->add_option("B", a.b)->required();
    c->add_option("--tolerance", a.tolerance, "numbers that differ by no more are equal")
        ->check(CLI::NonNegativeNumber);
    with_json(c);
    c = command("verify", "reads every byte; exit 1 where one is damaged", [&] { status = verify(a); });
    c->add_option("RUN|VERSION", a.names, "(./runs)");
    c->add_flag("--repair", a.repair,
                "heals damaged versions from equal packs and pieces of these runs; while none of them trains");
    c->add_option("--local", a.local, "with --repair: hosts' own disks (state.local), with copies and parities");
    with_json(c);
    c = command("tag", "gives a version names, by which it is kept",
                [&] { change_tags(locate_version(a.a), a.names, {}); });
    c->add_option("VERSION", a.a)->required();
    c->add_option("TAG", a.names)->required();
    c = command("untag", "takes them away", [&] { change_tags(locate_version(a.a), {}, a.names); });
    c->add_option("VERSION", a.a)->required();
    c->add_option("TAG", a.names)->required();
    c = command("keep", "tags versions \"keep\"", [&] {
        for (const std::string& name : a.names) change_tags(locate_version(name), {"keep"}, {});
    });
    versions(c);
    c = command("rm", "removes versions", [&] { remove(a); });
    versions(c);
    c->add_flag("--force", a.force, "the newest of a run, and tagged ones, too");
    c = command("gc", "removes what no rule keeps, and leavings of killed runs", [&] { collect_garbage(a); });
    c->add_option("RUN", a.a)->required();
    c->add_option("RULE", a.rules,
                  "\"last 3\", \"best 1\", \"every 10 epochs\", \"every 500 steps\"; none: leavings alone");
    c->add_option("--best", a.best, "the figure that the best have the best of (that of the run)");
    c->add_flag("--dry-run", a.dry, "only says what would go");
    c = command("du", "bytes on disk; what versions share is counted once in the sum",
                [&] { print_table(disk_usage(runs_of(a.runs)), a.json); });
    c->add_option("RUN", a.runs, "runs, or folders of runs (./runs)");
    with_json(c);
    c = command("export", "parameters and statistics to a safetensors file",
                [&] { export_version(locate_version(a.a), a.b, a.all); });
    c->add_option("VERSION", a.a)->required();
    c->add_option("FILE", a.b, "FILE.safetensors")->required();
    c->add_flag("--all", a.all, "the whole state: optimizer, numbers and texts, too");
    c = command("import", "makes a run of a safetensors file, for train --init RUN",
                [&] { std::cout << a.b << ' ' << import_version(a.a, a.b) << '\n'; });
    c->add_option("FILE", a.a, "FILE.safetensors")->required();
    c->add_option("RUN", a.b, "a directory that is made")->required();
    c = command("average", "the mean of several versions' weights as a version of a new run", [&] {
        std::vector<located_version> all;
        for (const std::string& name : a.names) all.push_back(locate_version(name));
        std::cout << a.b << ' ' << average_versions(all, a.b) << '\n';
    });
    versions(c);
    c->add_option("--out", a.b, "a directory that is made")->required();
    c = command("query", "rows of a SELECT over states, metrics, settings, tags, versions",
                [&] { print_table(catalogue(runs_of(a.runs)).query(a.sql), a.json); });
    c->add_option("SQL", a.sql)->required();
    c->add_option("RUN", a.runs, "runs, or folders of runs (./runs)");
    with_json(c);
    CLI11_PARSE(app, argc, argv);
    return status;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return run(argc, argv);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "states: %s\n", e.what());
        return 2;
    }
}
