#pragma once
// Where a version came from, and what came from it, as a tree:
//   runs/a  step 100
//   runs/a  step 200   test_accuracy 0.91   first
//   ├─ runs/a  step 300
//   └─ branch: runs/b  step 250             the version asked for has a *
// Of parents that are gone, and of those that go in a circle, that is said.

#include "states/catalogue.hpp"
#include "states/table.hpp"

#include <iostream>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace cairn::states {

/// See the top of the file.
class history {
public:
    history(const catalogue& all, const std::string& directory) {
        const table t = all.query(
            "SELECT id, parent, run, version, step, epoch, how, parent_run, parent_version, directory, "
            "(SELECT value FROM metrics WHERE state = states.id AND figure = best_by) AS best, best_by, "
            "(SELECT group_concat(tag, ' ') FROM tags WHERE state = states.id) AS tags FROM states ORDER BY id");
        for (const auto& row : t.rows) {
            nlohmann::json state;
            for (std::size_t c = 0; c < t.columns.size(); ++c) state[t.columns[c]] = row[c];
            if (state["directory"] == directory) asked_ = state["id"];
            const auto id = state["id"].get<std::int64_t>();
            if (!state["parent"].is_null()) children_[state["parent"].get<std::int64_t>()].push_back(id);
            states_.emplace(id, std::move(state));
        }
        require(asked_ > 0, directory, ": not among the versions that were read");
        std::set<std::int64_t> seen;
        for (std::int64_t id = asked_; id;) {
            if (!seen.insert(id).second) {
                circle_ = id;
                break;
            }
            line_.insert(line_.begin(), id);
            const nlohmann::json& parent = states_.at(id)["parent"];
            id = parent.is_null() ? 0 : parent.get<std::int64_t>();
        }
    }

    void print() const {
        const nlohmann::json& oldest = states_.at(line_.front());
        if (circle_)
            std::cout << "(the parents go in a circle: " << words(circle_) << " comes from itself)\n";
        else if (!oldest["parent_version"].is_null())
            std::cout << "(gone: " << cell_text(oldest["parent_run"], "") << "  "
                      << cell_text(oldest["parent_version"], "") << ")\n";
        for (const std::int64_t id : line_) std::cout << (id == asked_ ? "* " : "  ") << words(id) << '\n';
        std::set<std::int64_t> printed(line_.begin(), line_.end());
        print_children(asked_, "  ", printed);
    }

    /// The same for machines: ancestors from the oldest on, the version, and all that came from it.
    nlohmann::json json() const {
        nlohmann::json ancestors = nlohmann::json::array(), descendants = nlohmann::json::array();
        for (const std::int64_t id : line_)
            if (id != asked_) ancestors.push_back(states_.at(id));
        std::vector<std::int64_t> left{asked_};
        std::set<std::int64_t> seen(line_.begin(), line_.end());
        while (!left.empty()) {
            const std::int64_t id = left.back();
            left.pop_back();
            for (const std::int64_t child : children_of(id))
                if (seen.insert(child).second) descendants.push_back(states_.at(child)), left.push_back(child);
        }
        const nlohmann::json& oldest = states_.at(line_.front());
        nlohmann::json gone;
        if (!circle_ && !oldest["parent_version"].is_null())
            gone = {{"run", oldest["parent_run"]}, {"version", oldest["parent_version"]}};
        return {{"version", states_.at(asked_)},
                {"ancestors", ancestors},
                {"descendants", descendants},
                {"gone", gone},
                {"circle", circle_ != 0}};
    }

private:
    std::vector<std::int64_t> children_of(std::int64_t id) const {
        const auto found = children_.find(id);
        return found == children_.end() ? std::vector<std::int64_t>{} : found->second;
    }

    std::string words(std::int64_t id) const {
        const nlohmann::json& s = states_.at(id);
        std::string text = cell_text(s["run"], "") + "  step " + cell_text(s["step"], "");
        const auto parent = s["parent"].is_null() ? states_.end() : states_.find(s["parent"].get<std::int64_t>());
        if (!s["how"].is_null() && (parent == states_.end() || parent->second["run"] != s["run"]))
            text = cell_text(s["how"], "") + ": " + text;
        if (!s["best"].is_null()) text += "  " + cell_text(s["best_by"], "") + ' ' + cell_text(s["best"], "");
        if (!s["tags"].is_null()) text += "  [" + cell_text(s["tags"], "") + ']';
        return text;
    }

    // An only child goes on in the same column; several are branches.
    void print_children(std::int64_t id, const std::string& front, std::set<std::int64_t>& printed) const {
        std::vector<std::int64_t> children = children_of(id);
        std::erase_if(children, [&](std::int64_t child) { return printed.contains(child); });
        while (children.size() == 1) {
            id = children.front();
            printed.insert(id);
            std::cout << front << words(id) << '\n';
            children = children_of(id);
            std::erase_if(children, [&](std::int64_t child) { return printed.contains(child); });
        }
        for (std::size_t i = 0; i < children.size(); ++i) {
            const bool last = i + 1 == children.size();
            printed.insert(children[i]);
            std::cout << front << (last ? "└─ " : "├─ ") << words(children[i]) << '\n';
            print_children(children[i], front + (last ? "   " : "│  "), printed);
        }
    }

    std::map<std::int64_t, nlohmann::json> states_;
    std::map<std::int64_t, std::vector<std::int64_t>> children_;
    std::vector<std::int64_t> line_;  // the oldest first
    std::int64_t asked_ = 0, circle_ = 0;
};

}  // namespace cairn::states
