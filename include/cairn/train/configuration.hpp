#pragma once
// Settings of a run (settings.hpp), read from TOML and written as TOML. The only file that includes toml++.

#include <cairn/perf/energy.hpp>
#include <cairn/train/settings.hpp>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>

namespace cairn {

/// Options of the command line besides the settings.
struct session_options {
    std::filesystem::path out;           // run directory; empty: a fresh one under runs/
    std::filesystem::path resume;        // run directory to go on in
    std::filesystem::path from = {};     // version that a new run branches from (train/lineage.hpp)
    std::filesystem::path init = {};     // version whose parameters and statistics a new run starts with
    std::int64_t max_steps = -1;         // stop after this many updates in all; -1: after the epochs of the settings
    bool generated = false;              // train on random data of the right shape
    std::filesystem::path kernels = {};  // where the seconds of each kernel go; empty: nowhere
    // Called by each rank of a simulation before its first step, with the number of steps.
    std::function<void(std::int64_t)> on_start = {};
    std::string machine = {};           // that a simulated run is told to have run on; empty: it is none
    std::vector<int> trace_ranks = {};  // of a simulation: those whose scopes are traced
    // Of the simulated machine, where the stages of a pipeline slow down as far as others wait for them.
    std::optional<host_power> slack = {};
    // Stop after this many epochs in all, of train.epochs, by which schedules of the learning rate go; -1: after all.
    std::int64_t max_epochs = -1;
    std::vector<std::filesystem::path> evaluate = {};  // versions to test, without training
    bool fresh_statistics = false;                     // of them: batch norm's, of an epoch of training samples
    std::filesystem::path predictions = {};            // where those for the test part go; empty: nowhere
};

}  // namespace cairn

// nvcc 13 does not compile toml++: a CUDA file links with one of the host's, which keeps these functions for it
// ("used").
#if !defined(__CUDACC__)

// toml++ 3.3 asserts that a table's name begins as a key does, "[ = 1", and says what is wrong just after.
#ifndef TOML_ASSERT
#define TOML_ASSERT(expression) static_cast<void>(expression)
#endif
#include <toml++/toml.h>

#include <sstream>

namespace cairn {

namespace detail {

// Paths are bytes, TOML is UTF-8: of a byte that belongs to no character the character U+EF00 + byte is written. So are
// the bytes of these characters themselves, and what is read is what was written.
inline bool is_byte_mark(std::string_view s) {
    return s.size() >= 3 && s[0] == '\xee' && (s[1] == '\xbe' || s[1] == '\xbf');
}

/// Length of the character in front, 0 where there is none.
inline std::size_t character_length(std::string_view s) {
    const auto at = [&](std::size_t i) { return i < s.size() ? static_cast<std::uint8_t>(s[i]) : 0u; };
    const auto first = at(0);
    if (first < 0x80) return 1;
    const std::size_t length = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
    for (std::size_t i = 1; i < length; ++i)
        if ((at(i) & 0xc0) != 0x80) return 0;
    const bool overlong = (first == 0xe0 && at(1) < 0xa0) || (first == 0xf0 && at(1) < 0x90),
               beyond = (first == 0xed && at(1) > 0x9f) || (first == 0xf4 && at(1) > 0x8f);
    return overlong || beyond ? 0 : length;
}

inline std::string to_utf8(std::string_view bytes) {
    std::string text;
    for (std::size_t i = 0; i < bytes.size();) {
        const std::size_t length = is_byte_mark(bytes.substr(i)) ? 0 : character_length(bytes.substr(i));
        const auto byte = static_cast<std::uint8_t>(bytes[i]);
        if (length)
            text += bytes.substr(i, length);
        else
            text += {'\xee', static_cast<char>(0xbc | byte >> 6), static_cast<char>(0x80 | (byte & 0x3f))};
        i += std::max<std::size_t>(length, 1);
    }
    return text;
}

inline std::string from_utf8(std::string_view text) {
    std::string bytes;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const bool mark = is_byte_mark(text.substr(i));
        bytes += mark ? static_cast<char>((text[i + 1] & 3) << 6 | (text[i + 2] & 0x3f)) : text[i];
        i += mark ? 2 : 0;
    }
    return bytes;
}

inline setting from_toml(const toml::node& node) {
    const auto line = static_cast<std::int64_t>(node.source().begin.line);
    if (const auto* b = node.as_boolean()) return {b->get(), line};
    if (const auto* number = node.as_integer()) return {number->get(), line};
    if (const auto* number = node.as_floating_point()) return {number->get(), line};
    if (const auto* text = node.as_string()) return {from_utf8(text->get()), line};
    if (const toml::array* array = node.as_array()) {
        std::vector<setting> elements;
        for (const toml::node& element : *array) elements.push_back(from_toml(element));
        return {std::move(elements), line};
    }
    fail("line ", line, ": a setting is no date, no time and no table within an array; write it as a string");
}

// The values of `node` by their paths below it; of an array of tables, [[phases]], those of phases.1, phases.2, …
inline void flatten(const toml::node& node, const std::string& path, std::map<std::string, setting>& into) {
    if (const toml::table* table = node.as_table())
        for (const auto& [key, inner] : *table)
            flatten(inner, path + (path.empty() ? "" : ".") + std::string(key.str()), into);
    else if (const toml::array* array = node.as_array(); array && array->is_array_of_tables())
        for (std::size_t i = 0; i < array->size(); ++i) flatten((*array)[i], concat(path, '.', i + 1), into);
    else
        into[path] = from_toml(node);
}

inline std::string to_toml(const setting& s) {
    std::ostringstream out;
    if (const auto* elements = std::get_if<std::vector<setting>>(&s.value)) {
        out << '[';
        for (std::size_t i = 0; i < elements->size(); ++i) out << (i ? ", " : "") << to_toml((*elements)[i]);
        out << ']';
    } else if (const auto* text = std::get_if<std::string>(&s.value)) {
        out << toml::value<std::string>(to_utf8(*text));
    } else if (const auto* number = std::get_if<double>(&s.value)) {
        out << toml::value<double>(*number);
    } else if (const auto* whole = std::get_if<std::int64_t>(&s.value)) {
        out << *whole;
    } else {
        out << (std::get<bool>(s.value) ? "true" : "false");
    }
    return out.str();
}

}  // namespace detail

[[gnu::used]] inline configuration configuration::from_file(const std::filesystem::path& file) {
    require(std::filesystem::exists(file), "workload ", file.string(), " does not exist");
    configuration c;
    c.origin_ = file.string();
    try {
        detail::flatten(toml::parse_file(file.string()), "", c.settings_);
    } catch (const toml::parse_error& e) {
        fail(file.string(), ':', e.source().begin.line, ':', e.source().begin.column, ": ", e.description());
    } catch (const error& e) {
        fail(file.string(), ": ", e.what());
    }
    return c;
}

[[gnu::used]] inline configuration configuration::from_text(std::string_view text) {
    configuration c;
    c.origin_ = "(text)";
    try {
        detail::flatten(toml::parse(text), "", c.settings_);
    } catch (const toml::parse_error& e) {
        fail("line ", e.source().begin.line, ": ", e.description());
    }
    return c;
}

[[gnu::used]] inline void configuration::set(std::string_view assignment) {
    const auto equals = assignment.find('=');
    require(equals != std::string_view::npos && equals > 0, "--set ", assignment, ": expected key=value");
    const std::string key(assignment.substr(0, equals)), value(assignment.substr(equals + 1));
    leaves values;
    try {
        detail::flatten(toml::parse("value = " + value).at("value"), "", values);
    } catch (const toml::parse_error&) {
        values = {{"", setting::of(value)}};
    } catch (const error& e) {
        fail("--set ", key, ": ", e.what());
    }
    replace(key, std::move(values));
}

[[gnu::used]] inline std::map<std::string, std::string> configuration::resolved_values() const {
    std::map<std::string, std::string> all;
    for (const auto& [path, value] : asked_) all[path] = detail::to_toml(value);
    return all;
}

[[gnu::used]] inline std::string configuration::resolved() const {
    std::map<std::string, std::string> sections;  // section → its lines
    for (const auto& [path, value] : resolved_values()) {
        const auto dot = path.rfind('.');
        const std::string section = dot == std::string::npos ? "" : path.substr(0, dot);
        sections[section] += (dot == std::string::npos ? path : path.substr(dot + 1)) + " = " + value + '\n';
    }
    std::string text;
    for (const auto& [section, lines] : sections) text += (section.empty() ? "" : "\n[" + section + "]\n") + lines;
    return text;
}

}  // namespace cairn

#endif
