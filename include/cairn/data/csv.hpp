#pragma once
// Tables as text: a header line of column names, then one row a line, separated by commas (core/comma_separated.hpp).
// Empty lines are skipped. A cell is a number, or else a word: text, a time, or what stands for a missing value. A file
// may be packed by gzip, or be a zip archive with one file. Errors name file, line and column.

#include <cairn/core/comma_separated.hpp>
#include <cairn/data/bytes.hpp>
#include <cairn/data/zip.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cairn {

/// One column, cell by cell.
struct csv_column {
    std::string name;
    std::vector<double> numbers;        // NaN where a cell is a word
    std::vector<std::int32_t> words;    // of each cell its word's number in `spelling`, −1 where it is a number
    std::vector<std::string> spelling;  // each word once, in the order of the file
    std::string no_number;              // where the first word stands, or empty

    index_t rows() const { return static_cast<index_t>(numbers.size()); }
    bool is_number(index_t row) const { return words[static_cast<std::size_t>(row)] < 0; }
    double number(index_t row) const { return numbers[static_cast<std::size_t>(row)]; }
    /// Empty where the cell is a number.
    const std::string& word(index_t row) const {
        static const std::string none;
        const std::int32_t w = words[static_cast<std::size_t>(row)];
        return w < 0 ? none : spelling[static_cast<std::size_t>(w)];
    }
};

/// A table, column by column.
struct csv_table {
    std::string name;  // of the file
    std::vector<csv_column> columns;

    index_t rows() const { return columns.empty() ? 0 : columns.front().rows(); }
    std::vector<std::string> names() const {
        std::vector<std::string> all;
        for (const csv_column& c : columns) all.push_back(c.name);
        return all;
    }
    /// The column called `wanted`. Throws naming the columns that are there.
    const csv_column& at(const std::string& wanted) const {
        const auto called = [&](const csv_column& c) { return c.name == wanted; };
        const auto found = std::ranges::find_if(columns, called);
        require(found != columns.end(), name, ": no column '", wanted, "'; there are: ", listed(names()));
        require(std::none_of(found + 1, columns.end(), called), name, ": two columns are called '", wanted,
                "'; rename one of them");
        return *found;
    }
    /// The numbers of a column. Throws likewise, and naming a cell that is no finite number.
    const std::vector<double>& numbers(const std::string& wanted) const {
        const csv_column& column = at(wanted);
        require(column.no_number.empty(), name, ": ", column.no_number);
        return column.numbers;
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

/// Takes the text of a table apart; without a header its columns are called c1, c2, … Throws on rows of another length
/// than the first line.
inline csv_table parse_csv(std::string_view text, const std::string& name, bool header = true) {
    csv_table table{name, {}};
    std::vector<std::map<std::string, std::int32_t, std::less<>>> known;  // words of each column
    with_context(name, [&] {
        for_comma_separated(text, [&](index_t line, const std::vector<std::string>& cells) {
            if (cells.size() == 1 && cells[0].empty()) return;
            if (table.columns.empty()) {
                known.resize(cells.size());
                for (std::size_t c = 0; c < cells.size(); ++c)
                    table.columns.emplace_back().name = header ? cells[c] : concat('c', c + 1);
                if (header) return;
            }
            require(cells.size() == table.columns.size(), "line ", line, ": ", cells.size(), " cells, the ",
                    header ? "header" : "first line", " has ", table.columns.size());
            for (std::size_t c = 0; c < cells.size(); ++c) {
                csv_column& column = table.columns[c];
                const std::optional<double> value = detail::number_of_cell(cells[c]);
                column.numbers.push_back(value.value_or(std::numeric_limits<double>::quiet_NaN()));
                column.words.push_back(-1);
                if (value) continue;
                if (column.no_number.empty())
                    column.no_number = concat("line ", line, ", column ", c + 1, " (", column.name, "): '",
                                              cells[c].substr(0, 40), "' is no finite number");
                const auto [word, fresh] =
                    known[c].try_emplace(cells[c], static_cast<std::int32_t>(column.spelling.size()));
                if (fresh) column.spelling.push_back(cells[c]);
                column.words.back() = word->second;
            }
        });
        require(!table.columns.empty(), "empty; ",
                header ? "a header line with column names is expected" : "rows of cells are expected");
    });
    return table;
}

/// Reads a table from a file.
inline csv_table read_csv(const std::filesystem::path& path, bool header = true) {
    std::vector<std::uint8_t> bytes = read_maybe_gzip(path);
    if (is_zip(bytes)) {
        const zip_archive zip(std::move(bytes), path.string());
        require(zip.names().size() == 1, path.string(), ": ", zip.names().size(),
                " files in the archive; a table is one file");
        bytes = zip.read(0);
    }
    return parse_csv({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path.string(), header);
}

}  // namespace cairn
