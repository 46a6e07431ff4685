#pragma once
// What else is known at the place and the moment of a row: of each column of numbers the mean, deviation, least and
// most value over the rows that agree in chosen columns (a patient's readings, the points of a map on one date). They
// become columns of their own, "NAME mean", …, of inputs alone: targets are not looked at, so test rows tell nothing of
// theirs.

#include <cairn/data/table/column_encoding.hpp>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <vector>

namespace cairn {

/// Adds the four columns of each of `columns` to the table, of the rows whose cells of `keys` are equal. Missing cells
/// do not count; a group without a number has missing statistics. Throws naming a key that is not there, or a column
/// that holds words.
inline void add_group_statistics(csv_table& table, const std::vector<std::string>& keys,
                                 const std::vector<std::string>& columns, const column_choices& choices) {
    std::unordered_map<std::string, std::size_t> numbers;
    std::vector<std::size_t> group_of;
    for (index_t row = 0; row < table.rows(); ++row) {
        std::string key;
        for (const std::string& name : keys) key += cell_text(table.at(name), row) + '\n';
        group_of.push_back(numbers.try_emplace(key, numbers.size()).first->second);
    }
    for (const std::string& name : columns) {
        std::vector<std::vector<double>> of(numbers.size());
        const csv_column& column = table.at(name);
        for (index_t row = 0; row < table.rows(); ++row)
            if (!choices.is_missing(column, row))
                of[group_of[static_cast<std::size_t>(row)]].push_back(
                    cell_number(column, row, detail::is_in(choices.logarithms, name)));
        const auto add = [&](const char* what, auto&& value) {
            csv_column made{
                .name = concat(name, ' ', what), .numbers = {}, .words = {}, .spelling = {""}, .no_number = {}};
            for (const std::size_t g : group_of) {
                made.numbers.push_back(of[g].empty() ? std::numeric_limits<double>::quiet_NaN() : value(of[g]));
                made.words.push_back(of[g].empty() ? 0 : -1);
            }
            table.columns.push_back(std::move(made));
        };
        add("mean", [](const auto& all) { return mean_and_deviation(all).mean; });
        add("deviation", [](const auto& all) { return mean_and_deviation(all).deviation; });
        add("least", [](const auto& all) { return std::ranges::min(all); });
        add("most", [](const auto& all) { return std::ranges::max(all); });
    }
}

}  // namespace cairn
