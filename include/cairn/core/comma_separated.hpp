#pragma once
// Lines of comma-separated values (RFC 4180). A line ends with LF, CR LF or CR; a cell in quotes may hold commas, line
// ends and quotes, those doubled; blanks around a cell do not count, nor does a byte order mark in front.

#include <cairn/core/error.hpp>
#include <cairn/core/shape.hpp>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace cairn {

namespace detail {

/// The text of the quoted cell in front, which is removed. Throws where no quote ends it, or more text follows.
inline std::string take_quoted_cell(std::string_view& text, index_t& line) {
    const index_t first = line;
    std::string cell;
    for (text.remove_prefix(1);; text.remove_prefix(1)) {
        require(!text.empty(), "line ", first, ": a cell begins with a quote that nothing ends");
        if (text.front() == '"') {
            text.remove_prefix(1);
            if (text.empty() || text.front() != '"') break;
        }
        line += text.front() == '\n' || (text.front() == '\r' && !text.substr(1).starts_with('\n'));
        cell += text.front();
    }
    text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
    require(text.empty() || std::string_view(",\r\n").find(text.front()) != std::string_view::npos, "line ", line,
            ": text behind the quote that ends a cell; quotes within a cell are written twice");
    return cell;
}

}  // namespace detail

/// A cell as it is written: in quotes where it has to be; line ends become blanks.
inline std::string quoted_cell(std::string text) {
    for (char& c : text)
        if (c == '\n' || c == '\r') c = ' ';
    const auto is_blank = [](char c) { return c == ' ' || c == '\t'; };
    const bool plain = text.find_first_of(",\"") == std::string::npos;
    if (plain && (text.empty() || (!is_blank(text.front()) && !is_blank(text.back())))) return text;
    std::string quoted = "\"";
    for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
    return quoted + '"';
}

/// row(line, cells) for each line; an empty one has a single empty cell. Throws naming the line of an open quote.
template <class Row>
void for_comma_separated(std::string_view text, Row&& row) {
    require(!text.starts_with("\xff\xfe") && !text.starts_with("\xfe\xff"), "a text in UTF-16; save it as UTF-8");
    if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
    std::vector<std::string> cells;
    for (index_t line = 1; !text.empty(); ++line) {
        const index_t first = line;
        cells.clear();
        for (bool more = true; more;) {
            text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
            if (text.starts_with('"')) {
                cells.push_back(detail::take_quoted_cell(text, line));
            } else {
                const std::string_view cell = text.substr(0, text.find_first_of(",\r\n"));
                cells.emplace_back(cell.substr(0, cell.find_last_not_of(" \t") + 1));
                text.remove_prefix(cell.size());
            }
            more = text.starts_with(',');
            text.remove_prefix(more ? 1 : std::min<std::size_t>(text.size(), text.starts_with("\r\n") ? 2 : 1));
        }
        row(first, cells);
    }
}

}  // namespace cairn
