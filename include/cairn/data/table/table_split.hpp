#pragma once
// Which rows of a table train and which are tested on. Rows that belong together stay together:
//   rows                 fold `fold` of `folds`; of classes each fold has its share; equal rows are in one fold
//   groups               likewise, with all rows of a group (a patient, a discharge, a date) in one fold
//   chosen               the rows of chosen groups: leave_one_group_out, or a column that says "Test"
//   time                 the rows from a moment on
// What is left trains. Every split is checked after it was made: both parts have rows, and a group is in one of them.

#include <cairn/data/shuffle.hpp>
#include <cairn/data/split.hpp>
#include <cairn/data/table/column_encoding.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace cairn {

/// The ways to split; see the top of the file.
enum class table_split { rows, groups, chosen, time };

namespace detail {

/// Of each row the first one whose inputs are the same.
inline std::vector<std::size_t> first_equal(std::span<const index_t> rows, std::span<const csv_column* const> inputs) {
    std::unordered_map<std::string, std::size_t> known;
    std::vector<std::size_t> first;
    std::string cells;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        cells.clear();
        for (const csv_column* column : inputs) {
            const auto bits = std::bit_cast<std::array<char, sizeof(double)>>(column->number(rows[i]));
            column->is_number(rows[i]) ? cells.append(bits.data(), bits.size())
                                       : cells.append(column->word(rows[i]) + '\n');
        }
        first.push_back(known.try_emplace(cells, i).first->second);
    }
    return first;
}

/// Deals `rows` into folds such that those of one class, which follow each other, are spread evenly, and that rows of
/// equal inputs are in one fold.
inline split_indices dealt_rows(std::span<const index_t> rows, std::span<const std::int32_t> classes,
                                std::span<const csv_column* const> inputs, const fold_choice& choice,
                                const std::string& section) {
    const auto n = static_cast<index_t>(rows.size());
    require(choice.folds <= n, section, ": ", choice.folds, " folds of ", n, " rows");
    const auto order = random_order(n, {choice.split_seed, stream_of("folds"), 0});
    const std::vector<std::size_t> first = first_equal(rows, inputs);
    std::vector<std::size_t> dealt;
    for (const auto i : order)
        if (first[static_cast<std::size_t>(i)] == static_cast<std::size_t>(i))
            dealt.push_back(static_cast<std::size_t>(i));
    if (!classes.empty()) std::ranges::stable_sort(dealt, {}, [&](std::size_t i) { return classes[i]; });
    std::vector<bool> held(rows.size());
    for (std::size_t k = 0; k < dealt.size(); ++k)
        held[dealt[k]] = static_cast<index_t>(k) % choice.folds == choice.fold;
    split_indices out;
    for (std::size_t i = 0; i < rows.size(); ++i) (held[first[i]] ? out.second : out.first).push_back(rows[i]);
    return out;
}

/// Deals groups into folds of about equal numbers of rows: the largest first, each to the fold that has fewest; equal
/// ones in random order.
inline split_indices dealt_groups(std::span<const index_t> rows, const std::vector<std::string>& group_of,
                                  const fold_choice& choice, const std::string& section) {
    std::map<std::string, std::vector<index_t>> groups;
    for (std::size_t i = 0; i < rows.size(); ++i) groups[group_of[i]].push_back(rows[i]);
    const auto n = static_cast<index_t>(groups.size());
    require(choice.folds <= n, section, ": ", choice.folds, " folds of ", n, " groups; take fewer");
    std::vector<const std::vector<index_t>*> members;
    for (const auto& [name, of_group] : groups) members.push_back(&of_group);
    const auto shuffled = random_order(n, {choice.split_seed, stream_of("folds"), 0});
    std::vector<index_t> order(shuffled.begin(), shuffled.end());
    const auto size = [&](index_t g) { return members[static_cast<std::size_t>(g)]->size(); };
    std::ranges::stable_sort(order, std::greater{}, size);
    std::vector<std::size_t> taken(static_cast<std::size_t>(choice.folds));
    split_indices out;
    for (const index_t g : order) {
        const auto fewest = std::ranges::min_element(taken);
        *fewest += size(g);
        auto& part = fewest - taken.begin() == choice.fold ? out.second : out.first;
        part.insert(part.end(), members[static_cast<std::size_t>(g)]->begin(),
                    members[static_cast<std::size_t>(g)]->end());
    }
    return out;
}

}  // namespace detail

/// A split of chosen rows, as settings describe it.
struct table_split_choice {
    table_split kind = table_split::rows;
    std::string group;                // column of groups, or of what rows are for
    std::vector<std::string> time;    // columns of times, the coarsest first, such as year, month, day, hour
    std::vector<std::string> tested;  // of chosen groups: which; of times: the first moment
    fold_choice folds;
    std::string section = "data.table";  // of the settings, for errors

    /// Splits `rows`; `classes` of them, or empty; `inputs`: columns that rows are compared by. Throws naming what does
    /// not fit.
    split_indices split(const csv_table& table, std::span<const index_t> rows, std::span<const std::int32_t> classes,
                        std::span<const csv_column* const> inputs) const {
        split_indices out;
        std::vector<std::string> group_of;
        if (!group.empty())
            for (const index_t row : rows) group_of.push_back(cell_text(table.at(group), row));
        const bool by_group = kind == table_split::groups || kind == table_split::chosen;
        require(!by_group || !group.empty(), section, ".split: set ", section, ".group to the column of groups");
        if (kind == table_split::rows) {
            out = detail::dealt_rows(rows, classes, inputs, folds, section);
        } else if (kind == table_split::groups) {
            out = detail::dealt_groups(rows, group_of, folds, section);
        } else {
            require(!tested.empty(), section, ".tested is empty; set it to ",
                    kind == table_split::time ? "the first moment that is tested" : "what is tested");
            for (std::size_t i = 0; i < rows.size(); ++i) {
                const bool held =
                    kind == table_split::time ? !is_before(table, rows[i], tested) : detail::is_in(tested, group_of[i]);
                (held ? out.second : out.first).push_back(rows[i]);
            }
        }
        detail::sort_both(out);
        require(!out.first.empty() && !out.second.empty(), table.name, ": ", section, ".split leaves ",
                out.first.size(), " rows to train and ", out.second.size(), " to test; ", section, ".tested (",
                listed(tested), ") has to name some and not all");
        if (by_group) require_whole_groups(table, out);
        return out;
    }

    /// Splits what trains once more, alike, to choose settings by: a fold of rows or of groups, or the last rows.
    split_indices validation(const csv_table& table, std::span<const index_t> rows,
                             std::span<const std::int32_t> classes, std::span<const csv_column* const> inputs) const {
        if (kind == table_split::time) {
            const auto held = std::ssize(rows) / folds.folds;
            const split_indices out{{rows.begin(), rows.end() - held}, {rows.end() - held, rows.end()}};
            return out;
        }
        table_split_choice again = *this;
        if (kind == table_split::chosen) again.kind = table_split::groups;
        again.folds.fold = 0;
        return again.split(table, rows, classes, inputs);
    }

    /// Throws naming a group that is in both parts.
    void require_whole_groups(const csv_table& table, const split_indices& parts) const {
        const csv_column& column = table.at(group);
        std::map<std::string, index_t> trained;
        for (const index_t row : parts.first) trained.try_emplace(cell_text(column, row), row);
        for (const index_t row : parts.second) {
            const auto twice = trained.find(cell_text(column, row));
            require(twice == trained.end(), table.name, ": group '", cell_text(column, row), "' of column '", group,
                    "' is in both parts, in rows ", twice == trained.end() ? 0 : twice->second + 1, " and ", row + 1);
        }
    }

    /// The time of a row.
    std::vector<std::string> moment(const csv_table& table, index_t row) const {
        std::vector<std::string> of_row;
        for (const std::string& column : time) of_row.push_back(cell_text(table.at(column), row));
        return of_row;
    }
    /// Whether a row's time is before a moment, which may name the first columns alone.
    bool is_before(const csv_table& table, index_t row, const std::vector<std::string>& moment) const {
        require(!time.empty() && moment.size() <= time.size(), section, ".split = time: ", section, ".time has ",
                time.size(), " columns, ", section, ".tested ", moment.size(),
                " values; at most one for each column, the coarsest first");
        for (std::size_t c = 0; c < moment.size(); ++c) {
            const csv_column& column = table.at(time[c]);
            if (const auto number = detail::number_of_cell(moment[c]); number && column.is_number(row)) {
                if (column.number(row) != *number) return column.number(row) < *number;
            } else if (const std::string text = cell_text(column, row); text != moment[c]) {
                return text < moment[c];
            }
        }
        return false;
    }
};

}  // namespace cairn
