#pragma once
// What else is known at the moment and around the place of a row: of each column of numbers the mean, deviation, least
// and most value over the rows that agree in chosen columns (a date, a patient) and are near in others (latitude and
// longitude). They become columns of their own, "NAME mean", …, of inputs alone: targets are not looked at, so test
// rows tell nothing of theirs.

#include <cairn/data/table/column_encoding.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <unordered_map>
#include <vector>

namespace cairn {

/// Which rows belong to a row's: those that are equal in all columns `same`, and no further than `radius` in each of
/// the columns `near`.
struct table_neighbours {
    std::vector<std::string> same, near;
    double radius = 0;  // in the units of `near`
    static constexpr double most_pairs = 1e9;

    bool any() const { return !same.empty() || !near.empty(); }

    /// Of each row its neighbours, itself among them. Throws naming a column that is not there, or has words where
    /// numbers are due.
    std::vector<std::vector<index_t>> of_rows(const csv_table& table) const {
        std::unordered_map<std::string, std::vector<index_t>> equal;
        std::vector<std::vector<index_t>*> of;
        for (index_t row = 0; row < table.rows(); ++row) {
            std::string key;
            for (const std::string& name : same) key += cell_text(table.at(name), row) + '\n';
            of.push_back(&equal[key]);  // stays where it is
            of.back()->push_back(row);
        }
        double pairs = 0;
        for (const auto& [key, rows] : equal) pairs += std::pow(static_cast<double>(rows.size()), 2);
        require(pairs <= most_pairs, table.name, ": data.table.statistics_of = ", listed(same), " leaves up to ", pairs,
                " pairs of rows to compare, at most ", most_pairs, " are; add a column that parts them");
        std::vector<std::vector<index_t>> all;
        for (index_t row = 0; row < table.rows(); ++row) {
            all.push_back(*of[static_cast<std::size_t>(row)]);
            for (const std::string& name : near) {
                const csv_column& column = table.at(name);
                const double here = cell_number(column, row, false);
                std::erase_if(all.back(), [&](index_t other) {
                    return std::abs(cell_number(column, other, false) - here) > radius;
                });
            }
        }
        return all;
    }
};

/// Adds the four columns of each of `columns` to the table. Missing cells do not count; rows without a number around
/// have missing statistics.
inline void add_group_statistics(csv_table& table, const table_neighbours& neighbours,
                                 const std::vector<std::string>& columns, const column_choices& choices) {
    constexpr const char* what[]{"mean", "deviation", "least", "most"};
    const std::vector<std::vector<index_t>> of_rows = neighbours.of_rows(table);
    for (const std::string& name : columns) {
        const csv_column& column = table.at(name);
        const bool logarithm = detail::is_in(choices.logarithms, name);
        std::vector<csv_column> made;
        for (const char* one : what)
            made.push_back(
                {.name = concat(name, ' ', one), .numbers = {}, .words = {}, .spelling = {""}, .no_number = {}});
        std::vector<double> values;
        for (const std::vector<index_t>& rows : of_rows) {
            values.clear();
            for (const index_t row : rows)
                if (!choices.is_missing(column, row)) values.push_back(cell_number(column, row, logarithm));
            const bool none = values.empty();
            if (none) values.push_back(std::numeric_limits<double>::quiet_NaN());
            const mean_and_deviation all(values);
            const auto [least, most] = std::ranges::minmax(values);
            const double statistics[]{all.mean, all.deviation, least, most};
            for (std::size_t k = 0; k < made.size(); ++k) {
                made[k].numbers.push_back(statistics[k]);
                made[k].words.push_back(none ? 0 : -1);
            }
        }
        for (csv_column& each : made) table.columns.push_back(std::move(each));
    }
}

}  // namespace cairn
