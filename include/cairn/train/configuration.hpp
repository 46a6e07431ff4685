#pragma once
// Settings of a run: a TOML file, changed by "key=value" from the command line. Code asks for each setting by its path and gives the
// default there; what was asked is what exists. A key that nobody asked for is an error that names the nearest one.
// The only file that includes toml++.

#include <cairn/core/error.hpp>

#include <toml++/toml.h>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cairn {

/// Number of single-character edits between two words.
inline std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> row(b.size() + 1);
    for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
    for (std::size_t i = 1; i <= a.size(); ++i) {
        std::size_t diagonal = std::exchange(row[0], i);
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
        }
    }
    return row[b.size()];
}

/// The candidate closest to `word`, empty when there is none.
template <class Range>
std::string nearest(std::string_view word, const Range& candidates) {
    std::string best;
    std::size_t best_distance = std::numeric_limits<std::size_t>::max();
    for (const auto& candidate : candidates)
        if (const std::size_t d = edit_distance(word, candidate); d < best_distance) {
            best = candidate;
            best_distance = d;
        }
    return best;
}

/// Throws naming the setting, the unknown word and the nearest of the words that are known.
[[noreturn]] inline void fail_unknown(std::string_view setting, std::string_view word,
                                      const std::vector<std::string>& known) {
    std::string all;
    for (const std::string& k : known) all += (all.empty() ? "" : ", ") + k;
    fail(setting, ": '", word, "' is not known; did you mean '", nearest(word, known), "'? (", all, ")");
}

/// See the top of the file.
class configuration {
public:
    configuration() = default;

    /// Reads a TOML file. Throws naming file, line and column of a syntax error.
    static configuration from_file(const std::filesystem::path& file) {
        require(std::filesystem::exists(file), "workload ", file.string(), " does not exist");
        configuration c;
        c.origin_ = file.string();
        try {
            c.table_ = toml::parse_file(file.string());
        } catch (const toml::parse_error& e) {
            fail(file.string(), ':', e.source().begin.line, ':', e.source().begin.column, ": ", e.description());
        }
        return c;
    }

    static configuration from_text(std::string_view text) {
        configuration c;
        c.origin_ = "(text)";
        try {
            c.table_ = toml::parse(text);
        } catch (const toml::parse_error& e) {
            fail("line ", e.source().begin.line, ": ", e.description());
        }
        return c;
    }

    /// Applies "section.key=value"; the value is TOML, or a string where it is not. Throws without '='.
    void set(std::string_view assignment) {
        const auto equals = assignment.find('=');
        require(equals != std::string_view::npos && equals > 0, "--set ", assignment, ": expected key=value");
        const std::string key(assignment.substr(0, equals)), value(assignment.substr(equals + 1));
        try {
            insert(key, toml::parse("value = " + value));
        } catch (const toml::parse_error&) {
            set_text(key, value);
        }
    }

    /// Sets `key` to a string.
    void set_text(const std::string& key, const std::string& value) { insert(key, toml::table{{"value", value}}); }

    /// Whether the file or the command line sets `path`.
    bool has(std::string_view path) const { return static_cast<bool>(table_.at_path(path)); }

    /// The setting at `path`, or `fallback`. Throws on another type, with the place in the file.
    template <class T>
    T get(const std::string& path, T fallback) {
        const toml::node_view<const toml::node> node = std::as_const(table_).at_path(path);
        T value = node ? convert<T>(path, *node.node()) : std::move(fallback);
        asked_[path] = to_toml(value);
        return value;
    }
    std::string get(const std::string& path, const char* fallback) { return get<std::string>(path, fallback); }

    /// The setting at `path`. Throws if it is absent.
    template <class T>
    T need(const std::string& path) {
        require(has(path), origin_, ": setting '", path, "' is missing");
        return get<T>(path, T{});
    }

    /// One of `known`. Throws naming the nearest one otherwise.
    std::string choice(const std::string& path, const std::vector<std::string>& known,
                       const std::string& fallback = {}) {
        const std::string word = fallback.empty() ? need<std::string>(path) : get<std::string>(path, fallback);
        if (std::find(known.begin(), known.end(), word) == known.end()) fail_unknown(path, word, known);
        return word;
    }

    /// Throws on the first setting that nothing asked for. Call after everything has been built.
    void check_all_used() const { check_used(table_, ""); }

    /// All settings that were asked for, with the values in force, as TOML.
    std::string resolved() const {
        std::map<std::string, std::string> sections;  // section → its lines
        for (const auto& [path, value] : asked_) {
            const auto dot = path.rfind('.');
            const std::string section = dot == std::string::npos ? "" : path.substr(0, dot);
            sections[section] += (dot == std::string::npos ? path : path.substr(dot + 1)) + " = " + value + '\n';
        }
        std::string text;
        for (const auto& [section, lines] : sections) text += (section.empty() ? "" : "\n[" + section + "]\n") + lines;
        return text;
    }

private:
    // Puts parsed["value"] where `key` says, making the sections on the way.
    void insert(const std::string& key, toml::table parsed) {
        toml::table* table = &table_;
        std::string_view rest = key;
        for (auto dot = rest.find('.'); dot != std::string_view::npos; dot = rest.find('.')) {
            const std::string section(rest.substr(0, dot));
            if (!table->contains(section)) table->insert(section, toml::table{});
            table = (*table)[section].as_table();
            require(table, "--set ", key, ": ", section, " is not a section");
            rest.remove_prefix(dot + 1);
        }
        given_.insert(key);
        parsed.at("value").visit([&](auto& node) { table->insert_or_assign(std::string(rest), std::move(node)); });
    }

    template <class T>
    T convert(const std::string& path, const toml::node& node) const {
        if constexpr (requires { typename T::value_type; } && !std::same_as<T, std::string>) {
            const toml::array* array = node.as_array();
            if (!array) fail_type(path, node, "an array");
            T values;
            for (const toml::node& element : *array) values.push_back(convert<typename T::value_type>(path, element));
            return values;
        } else if constexpr (std::same_as<T, bool>) {
            if (!node.is_boolean()) fail_type(path, node, "true or false");
            return node.as_boolean()->get();
        } else if constexpr (std::integral<T>) {
            if (!node.is_integer()) fail_type(path, node, "an integer");
            const std::int64_t number = node.as_integer()->get();
            require(std::in_range<T>(number), place_of(path, node), ": setting '", path, "' = ", number,
                    " is out of range: ", +std::numeric_limits<T>::min(), " to ", +std::numeric_limits<T>::max());
            return static_cast<T>(number);
        } else if constexpr (std::floating_point<T>) {
            if (!node.is_number()) fail_type(path, node, "a number");
            return static_cast<T>(*node.value<double>());
        } else {
            if (!node.is_string()) fail_type(path, node, "a string");
            return node.as_string()->get();
        }
    }

    [[noreturn]] void fail_type(const std::string& path, const toml::node& node, const char* expected) const {
        fail(place_of(path, node), ": setting '", path, "' must be ", expected);
    }

    // Where a setting was made: on the command line, or in the file.
    std::string place_of(const std::string& path, const toml::node& node) const {
        if (given_.contains(path)) return "--set " + path;
        const auto line = node.source().begin.line;
        return origin_ + (line ? concat(':', line) : std::string{});
    }

    void check_used(const toml::table& table, const std::string& prefix) const {
        for (const auto& [key, node] : table) {
            const std::string path = prefix + std::string(key.str());
            if (const toml::table* inner = node.as_table()) {
                check_used(*inner, path + '.');
            } else if (!asked_.contains(path)) {
                std::vector<std::string> known;
                for (const auto& entry : asked_) known.push_back(entry.first);
                fail(place_of(path, node), ": setting '", path, "' is not known for this workload; did you mean '",
                     nearest(path, known), "'?");
            }
        }
    }

    static std::string to_toml(bool value) { return value ? "true" : "false"; }
    static std::string to_toml(const std::string& value) {
        std::ostringstream out;
        out << toml::value<std::string>(value);
        return out.str();
    }
    static std::string to_toml(std::integral auto value) { return std::to_string(value); }
    static std::string to_toml(std::floating_point auto value) {
        std::ostringstream out;
        out << toml::value<double>(value);
        return out.str();
    }
    template <class U>
    static std::string to_toml(const std::vector<U>& values) {
        std::string text;
        for (const U& value : values) text += (text.empty() ? "[" : ", ") + to_toml(value);
        return (text.empty() ? "[" : text) + "]";
    }

    toml::table table_;
    std::string origin_ = "(no file)";
    std::map<std::string, std::string> asked_;  // path → value in force, as TOML
    std::set<std::string> given_;               // on the command line
};

}  // namespace cairn
