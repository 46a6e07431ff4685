#pragma once
// Numeric tables as text: a header line of column names, then one row a line, separated by commas
// (core/comma_separated.hpp). Empty lines are skipped. Columns that nothing asks for may hold text and
// have no name. Errors name file, line and column.

#include <cairn/core/comma_separated.hpp>
#include <cairn/data/bytes.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>

namespace cairn {

/// A table of numbers, row-major.
struct csv_table {
    std::string name;  // of the file
    std::vector<std::string> columns;
    std::vector<double> values;          // NaN: no number
    std::vector<std::string> no_number;  // of each column: where it first has none, or empty

    index_t rows() const { return columns.empty() ? 0 : static_cast<index_t>(values.size() / columns.size()); }
    double operator()(index_t row, index_t column) const {
        return values[static_cast<std::size_t>(row) * columns.size() + static_cast<std::size_t>(column)];
    }
    /// Number of the column called `column`. Throws naming the columns that are there, or a cell that is no finite
    /// number.
    index_t column(const std::string& column) const {
        const auto found = std::find(columns.begin(), columns.end(), column);
        require(found != columns.end(), name, ": no column '", column, "'; there are: ", listed(columns));
        require(std::find(found + 1, columns.end(), column) == columns.end(), name, ": two columns are called '",
                column, "'; rename one of them");
        const std::string& why = no_number[static_cast<std::size_t>(found - columns.begin())];
        require(why.empty(), name, ": ", why);
        return found - columns.begin();
    }
};

namespace detail {

// Of a number that is out of range: whether it is too small, by the power of ten of its first digit that is not 0.
inline bool underflows(std::string_view number) {
    const auto e = std::min(number.find_first_of("eE"), number.size());
    const std::string_view digits = number.substr(0, e);
    std::int64_t power = 0;
    if (e < number.size()) {
        const std::string_view text = number.substr(number[e + 1] == '+' ? e + 2 : e + 1);
        const auto failure = std::from_chars(text.data(), text.data() + text.size(), power).ec;
        if (failure != std::errc{}) power = text.front() == '-' ? INT32_MIN : INT32_MAX;
    }
    const auto point = std::min(digits.find('.'), digits.size()), first = digits.find_first_of("123456789");
    return power + static_cast<std::int64_t>(point) - static_cast<std::int64_t>(first) < 0;
}

/// The finite number that the cell holds: the nearest double, 0 of one below double's range.
inline std::optional<double> number_of_cell(std::string_view cell) {
    cell.remove_prefix(std::min(cell.find_first_not_of(" \t"), cell.size()));  // a quoted cell keeps its blanks
    cell = cell.substr(0, cell.find_last_not_of(" \t") + 1);
    if (cell.size() > 1 && cell[0] == '+' && cell[1] != '-') cell.remove_prefix(1);
    double value = 0;
    const auto [stop, failure] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    if (stop != cell.data() + cell.size()) return {};
    if (failure == std::errc::result_out_of_range && underflows(cell)) return cell.front() == '-' ? -0.0 : 0.0;
    if (failure != std::errc{} || !std::isfinite(value)) return {};
    return value;
}

}  // namespace detail

/// Takes the text of a table apart. Throws on rows of another length than the header.
inline csv_table parse_csv(std::string_view text, const std::string& name) {
    csv_table table;
    table.name = name;
    with_context(name, [&] {
        for_comma_separated(text, [&](index_t line, const std::vector<std::string>& cells) {
            if (cells.size() == 1 && cells[0].empty()) return;
            if (table.columns.empty()) {
                table.columns = cells;
                table.no_number.resize(cells.size());
                return;
            }
            require(cells.size() == table.columns.size(), "line ", line, ": ", cells.size(), " cells, the header has ",
                    table.columns.size());
            for (std::size_t c = 0; c < cells.size(); ++c) {
                const std::optional<double> value = detail::number_of_cell(cells[c]);
                if (!value && table.no_number[c].empty())
                    table.no_number[c] = concat("line ", line, ", column ", c + 1, " (", table.columns[c], "): '",
                                                cells[c].substr(0, 40), "' is no finite number");
                table.values.push_back(value.value_or(std::numeric_limits<double>::quiet_NaN()));
            }
        });
        require(!table.columns.empty(), "empty; a header line with column names is expected");
    });
    return table;
}

/// Reads a table from a file.
inline csv_table read_csv(const std::filesystem::path& path) {
    const auto bytes = read_bytes(path);
    return parse_csv({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path.string());
}

}  // namespace cairn
