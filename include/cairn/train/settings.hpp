#pragma once
// Settings of a run: a TOML file, changed by "key=value" from the command line. Code asks for each setting by its path
// and gives the default there, and of a number the values that it may have (interval.hpp); what was asked is what
// exists. A key that was never read is an error that names the nearest one.
// This is all but the reading and writing of TOML: configuration.hpp, which programs include.

#include <cairn/core/error.hpp>
#include <cairn/core/interval.hpp>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
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
    fail(setting, ": '", word, "' is not known; did you mean '", nearest(word, known), "'? (", listed(known), ")");
}

/// A value as TOML has them.
struct setting {
    std::variant<bool, std::int64_t, double, std::string, std::vector<setting>> value;
    std::int64_t line = 0;  // in its file; 0: made elsewhere

    static setting of(bool b) { return {b}; }
    static setting of(const std::string& text) { return {text}; }
    static setting of(std::integral auto number) { return {static_cast<std::int64_t>(number)}; }
    static setting of(std::floating_point auto number) { return {static_cast<double>(number)}; }
    template <class U>
    static setting of(const std::vector<U>& values) {
        std::vector<setting> elements;
        for (const U& v : values) elements.push_back(of(v));
        return {std::move(elements)};
    }
};

/// Types of settings that are numbers, or arrays of numbers.
template <class T>
concept Number = (std::integral<T> && !std::same_as<T, bool>) || std::floating_point<T>;
template <class T>
concept Numeric = Number<T> ||
    (requires { typename T::value_type; } && Number<typename T::value_type> && !std::same_as<T, std::string>);

/// See the top of the file.
class configuration {
public:
    configuration() = default;

    /// Reads a TOML file. Throws naming file, line and column of a syntax error.
    static configuration from_file(const std::filesystem::path& file);
    static configuration from_text(std::string_view text);

    /// Applies "section.key=value"; the value is TOML, or a string where it is not. Throws without '='.
    void set(std::string_view assignment);

    /// Sets `key` to a string.
    void set_text(const std::string& key, const std::string& value) { replace(key, {{"", setting::of(value)}}); }

    /// Drops what the file sets in a section that this run has no use for, but for the keys and tables of `except`.
    /// Returns the paths.
    std::vector<std::string> leave_out(const std::string& section, const std::vector<std::string>& except = {}) {
        std::vector<std::string> paths;
        std::erase_if(settings_, [&](const auto& entry) {
            const std::string& path = entry.first;
            if (!path.starts_with(section + '.') || given_.contains(path)) return false;
            const std::string rest = path.substr(section.size() + 1);
            const bool unused = std::find(except.begin(), except.end(), rest.substr(0, rest.find('.'))) == except.end();
            if (unused) paths.push_back(path);
            return unused;
        });
        return paths;
    }

    /// [section.KIND] holds settings of [section] for one of its kinds, and by their whole paths those of other
    /// sections (optimizer.kfac.train.batch): what the table of `kind` sets comes before what the file sets elsewhere,
    /// and the tables of the other `kinds` go.
    void take_table(const std::string& section, const std::string& kind, const std::vector<std::string>& kinds) {
        for (const std::string& one : kinds) {
            const std::string table = section + '.' + one + '.';
            for (auto at = settings_.lower_bound(table); at != settings_.end() && at->first.starts_with(table);) {
                const std::string key = at->first.substr(table.size());
                const std::string path = key.find('.') != key.npos ? key : section + '.' + key;
                if (one == kind && (given_.contains(at->first) || !given_.contains(path))) {
                    settings_[path] = at->second;
                    if (given_.contains(at->first)) given_.insert(path);
                }
                at = settings_.erase(at);
            }
        }
    }

    /// Sets what neither the file nor the command line sets.
    template <class T>
    void set_default(const std::string& path, const T& value) {
        settings_.emplace(path, setting::of(value));
    }

    /// The string that the file sets at `path`, whatever the command line says; `fallback` where it sets none.
    std::string text_of_file(const std::string& path, const std::string& fallback) const {
        const leaves& file = given_.contains(path) ? replaced_ : settings_;
        const auto found = file.find(path);
        const auto* const text = found == file.end() ? nullptr : std::get_if<std::string>(&found->second.value);
        return text ? *text : fallback;
    }

    /// What the file and the command line set, by path.
    const std::map<std::string, setting>& all() const { return settings_; }

    /// Whether the file or the command line sets `path`.
    bool has(const std::string& path) const { return settings_.contains(path); }

    /// The names one level below `section` (kernels.NAME.…), each once.
    std::vector<std::string> names_in(const std::string& section) const {
        std::vector<std::string> names;
        for (const auto& [path, value] : settings_) {
            if (!path.starts_with(section + '.')) continue;
            const std::size_t begin = section.size() + 1;
            std::string name = path.substr(begin, path.find('.', begin) - begin);
            if (names.empty() || names.back() != name) names.push_back(std::move(name));
        }
        return names;
    }

    /// Whether it is set, to a string.
    bool is_text(const std::string& path) const {
        const auto given = settings_.find(path);
        return given != settings_.end() && std::holds_alternative<std::string>(given->second.value);
    }

    /// The setting at `path`, or `fallback`. Throws on another type, with the place in the file.
    template <class T>
        requires(!Numeric<T>)
    T get(const std::string& path, T fallback) { return value_of(path, std::move(fallback)); }

    /// Likewise a number, or an array of numbers. Throws on one that is not `allowed`.
    template <Numeric T>
    T get(const std::string& path, T fallback, const interval& allowed) {
        const auto given = settings_.find(path);
        if (given != settings_.end()) check_allowed(path, given->second, allowed);
        numbers_.insert_or_assign(path, allowed);
        return value_of(path, std::move(fallback));
    }
    template <Numeric T>
    T get(const std::string& path, T fallback) = delete;  // no number without its range
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

    /// Drops what the file sets and nothing asked for, and returns the paths: a run that goes on with a feature
    /// switched off has that feature's settings in its record. Call after everything has been built.
    std::vector<std::string> leave_out_unused() {
        std::vector<std::string> paths;
        std::erase_if(settings_, [&](const auto& entry) {
            const bool unused = !asked_.contains(entry.first) && !given_.contains(entry.first);
            if (unused) paths.push_back(entry.first);
            return unused;
        });
        return paths;
    }

    /// Throws on the first setting that nothing asked for. Call after everything has been built.
    void check_all_used() const {
        for (const auto& [path, value] : settings_) {
            if (asked_.contains(path)) continue;
            std::vector<std::string> known, moved;  // `moved`: of its name in another section
            for (const auto& entry : asked_) {
                known.push_back(entry.first);
                if (entry.first.ends_with('.' + path.substr(path.rfind('.') + 1))) moved.push_back(entry.first);
            }
            fail(place_of(path, value), ": setting '", path, "' is not known for this workload; did you mean '",
                 nearest(path, moved.empty() ? known : moved), "'?");
        }
    }

    /// The numeric settings that were asked for, and the values that each may have.
    const std::map<std::string, interval>& numbers() const { return numbers_; }

    /// All settings that were asked for, with the values in force: each as TOML by its path, and all as one text.
    std::map<std::string, std::string> resolved_values() const;
    std::string resolved() const;

private:
    using leaves = std::map<std::string, setting>;  // path → value

    // `key` and what was below it give way to `values`, whose paths go on from there.
    void replace(const std::string& key, leaves values) {
        const auto below = [](const std::string& path, const std::string& section) {
            return path == section || path.starts_with(section + '.');
        };
        for (auto dot = key.find('.'); dot != std::string::npos; dot = key.find('.', dot + 1))
            require(!settings_.contains(key.substr(0, dot)), "--set ", key, ": ", key.substr(0, dot),
                    " is not a section");
        if (const auto before = settings_.find(key); before != settings_.end()) replaced_.insert(*before);
        std::erase_if(settings_, [&](const auto& entry) { return below(entry.first, key); });
        for (auto& [path, value] : values) {
            const std::string name = path.empty() ? key : key + '.' + path;
            settings_[name] = std::move(value);
            given_.insert(name);
        }
        given_.insert(key);
    }

    template <class T>
    T value_of(const std::string& path, T fallback) {
        const auto given = settings_.find(path);
        T value = given != settings_.end() ? convert<T>(path, given->second) : std::move(fallback);
        asked_[path] = setting::of(value);
        return value;
    }

    // Before anything is converted: a real number may be too large for the type of the setting.
    void check_allowed(const std::string& path, const setting& given, const interval& allowed) const {
        const auto check = [&](double number, const std::string& text) {
            require(allowed.contains(number), place_of(path, given), ": ", path, " = ", text,
                    " is out of range; it must be ", text_of(allowed));
        };
        if (const auto* number = std::get_if<double>(&given.value)) check(*number, text_of(*number));
        if (const auto* whole = std::get_if<std::int64_t>(&given.value))
            check(static_cast<double>(*whole), std::to_string(*whole));
        if (const auto* array = std::get_if<std::vector<setting>>(&given.value))
            for (const setting& element : *array) check_allowed(path, element, allowed);
    }

    template <class T>
    T convert(const std::string& path, const setting& given) const {
        const auto& value = given.value;
        if constexpr (requires { typename T::value_type; } && !std::same_as<T, std::string>) {
            const auto* array = std::get_if<std::vector<setting>>(&value);
            if (!array) fail_type(path, given, "an array");
            T values;
            for (const setting& element : *array) values.push_back(convert<typename T::value_type>(path, element));
            return values;
        } else if constexpr (std::same_as<T, bool>) {
            if (!std::holds_alternative<bool>(value)) fail_type(path, given, "true or false");
            return std::get<bool>(value);
        } else if constexpr (std::integral<T>) {
            if (!std::holds_alternative<std::int64_t>(value))
                fail_type(path, given, "a whole number, such as 1000; 1e3 and 1000.0 are real ones");
            const std::int64_t number = std::get<std::int64_t>(value);
            require(std::in_range<T>(number), place_of(path, given), ": setting '", path, "' = ", number,
                    " is out of range: ", +std::numeric_limits<T>::min(), " to ", +std::numeric_limits<T>::max());
            return static_cast<T>(number);
        } else if constexpr (std::floating_point<T>) {
            if (const auto* number = std::get_if<double>(&value)) return static_cast<T>(*number);
            if (const auto* whole = std::get_if<std::int64_t>(&value)) return static_cast<T>(*whole);
            fail_type(path, given, "a number");
        } else {
            if (!std::holds_alternative<std::string>(value)) fail_type(path, given, "a string");
            return std::get<std::string>(value);
        }
    }

    [[noreturn]] void fail_type(const std::string& path, const setting& given, const char* expected) const {
        fail(place_of(path, given), ": setting '", path, "' must be ", expected);
    }

    // Where a setting was made: on the command line, or in the file.
    std::string place_of(const std::string& path, const setting& given) const {
        if (given_.contains(path)) return "--set " + path;
        return origin_ + (given.line ? concat(':', given.line) : std::string{});
    }

    std::string origin_ = "(no file)";
    leaves settings_, asked_;      // what is given, and what was asked for with the value in force
    std::set<std::string> given_;  // on the command line
    leaves replaced_;              // of the file, by the command line
    std::map<std::string, interval> numbers_;
};

/// The settings of one section; each sets a field, which holds the default.
class settings_table {
public:
    settings_table(configuration& settings, std::string section) : settings_(settings), section_(std::move(section)) {}

    template <class T>
        requires(!Numeric<T>)
    void operator()(const char* key, T& field) { field = settings_.get(path(key), field); }
    template <Numeric T>
    void operator()(const char* key, T& field, const interval& allowed) {
        field = settings_.get(path(key), field, allowed);
    }
    /// One of the words, each for a value. Throws naming the nearest one otherwise.
    template <class T>
    void operator()(const char* key, T& field, std::initializer_list<std::pair<const char*, T>> words) {
        std::vector<std::string> known;
        std::string word;
        for (const auto& [name, value] : words) {
            known.push_back(name);
            if (value == field) word = name;
        }
        word = settings_.choice(path(key), known, word);
        for (const auto& [name, value] : words)
            if (word == name) field = value;
    }

private:
    std::string path(const char* key) const { return section_ + '.' + key; }

    configuration& settings_;
    std::string section_;
};

}  // namespace cairn
