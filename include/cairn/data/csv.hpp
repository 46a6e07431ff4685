#pragma once
// Numeric tables as text: a header line of column names, then one row of numbers a line, separated by commas. Empty
// lines and a final carriage return are skipped. Errors name file, line and column.

#include <cairn/data/bytes.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

namespace cairn {

/// A table of numbers, row-major.
struct csv_table {
    std::string name;  // of the file
    std::vector<std::string> columns;
    std::vector<double> values;

    index_t rows() const { return columns.empty() ? 0 : static_cast<index_t>(values.size() / columns.size()); }
    double operator()(index_t row, index_t column) const {
        return values[static_cast<std::size_t>(row) * columns.size() + static_cast<std::size_t>(column)];
    }
    /// Number of the column called `column`. Throws naming the columns that are there.
    index_t column(const std::string& column) const {
        const auto found = std::find(columns.begin(), columns.end(), column);
        if (found != columns.end()) return found - columns.begin();
        std::string there;
        for (const std::string& c : columns) there += (there.empty() ? "" : ", ") + c;
        fail(name, ": no column '", column, "'; there are: ", there);
    }
};

/// Takes the text of a table apart. Throws on cells that are no finite numbers and on rows of another length than the
/// header.
inline csv_table parse_csv(std::string_view text, const std::string& name) {
    csv_table table;
    table.name = name;
    const auto trimmed = [](std::string_view s) {
        while (!s.empty() && (s.front() == ' ' || s.front() == '\t')) s.remove_prefix(1);
        while (!s.empty() && (s.back() == ' ' || s.back() == '\t' || s.back() == '\r')) s.remove_suffix(1);
        return s;
    };
    std::vector<std::string_view> cells;
    for (index_t line = 1; !text.empty(); ++line) {
        const auto end = std::min(text.find('\n'), text.size());
        std::string_view row = trimmed(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
        if (row.empty()) continue;
        cells.clear();
        for (;;) {
            const auto comma = row.find(',');
            cells.push_back(trimmed(row.substr(0, comma)));
            if (comma == std::string_view::npos) break;
            row.remove_prefix(comma + 1);
        }
        if (table.columns.empty()) {
            for (std::size_t c = 0; c < cells.size(); ++c) {
                require(!cells[c].empty(), name, ": line ", line, ", column ", c + 1, ": a column without a name");
                table.columns.emplace_back(cells[c]);
            }
            continue;
        }
        require(cells.size() == table.columns.size(), name, ": line ", line, ": ", cells.size(),
                " cells, the header has ", table.columns.size());
        for (std::size_t c = 0; c < cells.size(); ++c) {
            double value = 0;
            const auto [stop, failure] = std::from_chars(cells[c].data(), cells[c].data() + cells[c].size(), value);
            require(failure == std::errc{} && stop == cells[c].data() + cells[c].size() && std::isfinite(value), name,
                    ": line ", line, ", column ", c + 1, " (", table.columns[c], "): '",
                    std::string(cells[c].substr(0, 40)), "' is no finite number");
            table.values.push_back(value);
        }
    }
    require(!table.columns.empty(), name, ": empty; a header line with column names is expected");
    return table;
}

/// Reads a table from a file.
inline csv_table read_csv(const std::filesystem::path& path) {
    const auto bytes = read_bytes(path);
    return parse_csv({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path.string());
}

}  // namespace cairn
