#pragma once
// Rows as aligned text, or as JSON for machines.

#include "states/sqlite.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <iostream>
#include <string>

namespace cairn::states {

/// A text that comes from a file, for a terminal: bytes that would move its cursor are question marks.
inline std::string printable(std::string text) {
    for (char& c : text)
        if (static_cast<unsigned char>(c) < 32 || c == 127) c = '?';
    return text;
}

/// "2026-11-28 16:12"
inline std::string clock_of(double seconds) {
    const auto t = static_cast<std::time_t>(seconds);
    std::tm local{};
    char text[32] = "?";
    if (localtime_r(&t, &local)) std::strftime(text, sizeof text, "%Y-%m-%d %H:%M", &local);
    return text;
}

/// "507.9 kB"
inline std::string bytes_text(double bytes) {
    const char* const units[] = {"B", "kB", "MB", "GB", "TB"};
    int unit = 0;
    while (bytes >= 999.95 && unit < 4) bytes /= 1000, ++unit;
    char text[32];
    std::snprintf(text, sizeof text, unit ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
    return text;
}

inline std::string cell_text(const nlohmann::json& value, const std::string& column) {
    if (value.is_null()) return "-";
    if (value.is_string()) return printable(value.get<std::string>());
    if (column == "time" && value.is_number()) return clock_of(value.get<double>());
    if ((column == "bytes" || column == "own") && value.is_number()) return bytes_text(value.get<double>());
    if (value.is_number_integer()) return std::to_string(value.get<std::int64_t>());
    char text[32];
    std::snprintf(text, sizeof text, "%.6g", value.get<double>());
    return text;
}

/// Characters of UTF-8.
inline std::size_t width_of(const std::string& text) {
    return static_cast<std::size_t>(
        std::count_if(text.begin(), text.end(), [](unsigned char c) { return (c & 0xc0) != 0x80; }));
}

/// Without the columns that have no value.
inline table without_empty_columns(const table& t) {
    table left{{}, std::vector<std::vector<nlohmann::json>>(t.rows.size())};
    for (std::size_t c = 0; c < t.columns.size(); ++c) {
        if (std::ranges::all_of(t.rows, [&](const auto& row) { return row[c].is_null(); })) continue;
        left.columns.push_back(t.columns[c]);
        for (std::size_t r = 0; r < t.rows.size(); ++r) left.rows[r].push_back(t.rows[r][c]);
    }
    return left;
}

/// Prints a table: columns aligned, numbers to the right; or an array of objects.
inline void print_table(const table& t, bool json) {
    if (json) {
        nlohmann::json all = nlohmann::json::array();
        for (const auto& row : t.rows) {
            auto& object = all.emplace_back(nlohmann::json::object());
            for (std::size_t c = 0; c < t.columns.size(); ++c) object[t.columns[c]] = row[c];
        }
        std::cout << all.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
        return;
    }
    std::vector<std::vector<std::string>> cells{{}};
    for (const std::string& column : t.columns) cells.front().push_back(printable(column));
    for (const auto& row : t.rows) {
        auto& texts = cells.emplace_back();
        for (std::size_t c = 0; c < row.size(); ++c) texts.push_back(cell_text(row[c], t.columns[c]));
    }
    std::vector<std::size_t> width(t.columns.size());
    for (const auto& row : cells)
        for (std::size_t c = 0; c < row.size(); ++c) width[c] = std::max(width[c], width_of(row[c]));
    for (std::size_t r = 0; r < cells.size(); ++r) {
        std::string line;
        for (std::size_t c = 0; c < cells[r].size(); ++c) {
            const std::string room(width[c] - width_of(cells[r][c]), ' ');
            const bool right = r > 0 && t.rows[r - 1][c].is_number();
            line += (c ? "  " : "") + (right ? room + cells[r][c] : cells[r][c] + room);
        }
        std::cout << line.substr(0, line.find_last_not_of(' ') + 1) << '\n';
    }
}

}  // namespace cairn::states
