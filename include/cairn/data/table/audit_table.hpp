#pragma once
// What of a table makes figures of its test part better than they will be on new rows: groups and moments that both
// parts share, columns that give the target away, names of rows. Found by simple means that a reader can repeat:
//   alone   how well a single column predicts the target: of each of at most 32 bins of its training cells (equal
//           numbers of rows; of words each word) the mean target, or the share of each class, judged on the test rows
//           by R², or by the mean over classes of the area under the ROC curve
//   names   whole numbers, or words, of which no two rows have the same, the numbers without large gaps

#include <cairn/core/figures.hpp>
#include <cairn/data/table/learn_table.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace cairn {

/// Beyond, a column alone predicts the target.
inline constexpr double most_r2_alone = 0.9, most_auc_alone = 0.98;
/// Of fewer test rows some of many columns do so by chance: a fold of twenty tissue samples has one among 12,600 genes.
inline constexpr index_t least_tested = 30;

namespace detail {

/// See the top of the file.
class table_audit {
public:
    explicit table_audit(const learned_table& learned)
        : table_(*learned.table), rows_(learned.rows), config_(learned.config) {}

    std::vector<audit_finding> findings() && {
        shared_groups();
        later_training();
        for (const csv_column& column : table_.cells.columns)
            if (!is_in(config_.target, column.name)) look_at(column);
        if (!constant_.empty()) {
            const std::vector<std::string> first(
                constant_.begin(), constant_.begin() + std::min<std::ptrdiff_t>(5, std::ssize(constant_)));
            say(false, constant_.size(), " columns have one value in the training part: ", listed(first),
                constant_.size() > 5 ? ", …" : "");
        }
        return std::move(found_);
    }

private:
    bool is_input(const csv_column& column) const {
        return std::ranges::find(table_.inputs, &column) != table_.inputs.end();
    }
    template <class... Parts>
    void say(bool leak, const Parts&... parts) {
        found_.push_back({leak, concat(parts...)});
    }

    // The named groups, where the split does not go by them.
    void shared_groups() {
        const std::string& name = config_.split.group;
        if (name.empty()) return;
        const csv_column& column = table_.cells.at(name);
        std::set<std::string> trained, both;
        for (const index_t row : rows_.first) trained.insert(cell_text(column, row));
        for (const index_t row : rows_.second)
            if (trained.contains(cell_text(column, row))) both.insert(cell_text(column, row));
        if (!both.empty())
            say(true, both.size(), " groups of column '", name, "' are in both parts, such as '", *both.begin(),
                "'; set data.table.split = groups");
    }

    // Moments of training that are later than the first one that is tested.
    void later_training() {
        const table_split_choice& split = config_.split;
        if (split.time.empty()) return;
        index_t first = rows_.second.front(), later = 0;
        for (const index_t row : rows_.second)
            if (split.is_before(table_.cells, row, split.moment(table_.cells, first))) first = row;
        const std::vector<std::string> begin = split.moment(table_.cells, first);
        for (const index_t row : rows_.first) later += !split.is_before(table_.cells, row, begin);
        if (later > 0)
            say(true, later, " training rows are not earlier than the first test row, row ", first + 1,
                "; set data.table.split = time");
    }

    void look_at(const csv_column& column) {
        if (!says_nothing(column, rows_.first).empty()) return constant_.push_back(column.name);
        const double alone = predicts_alone(column);
        const bool is_leak = alone > (table_.info.kind == target_kind::classes ? most_auc_alone : most_r2_alone) &&
                             std::ssize(rows_.second) >= least_tested;
        const bool names = names_rows(column);
        const char* const figure = table_.info.kind == target_kind::classes ? "AUC " : "R² ";
        if (!is_input(column)) {
            if (names) say(false, "column '", column.name, "' names rows; it is no input");
            return;
        }
        if (is_leak)
            say(true, "column '", column.name, "' alone predicts the target (", figure,
                cairn::text_of(std::round(1000 * alone) / 1000), " on the test rows)",
                names ? ", and its values look like names of rows" : "",
                "; is it known when the prediction is due? If not, data.table.leave_out");
        else if (names)
            say(true, "column '", column.name, "' looks like names of rows: no two are equal; data.table.leave_out");
    }

    // Of numbers more than 20 whole ones in a range of at most four times their number.
    bool names_rows(const csv_column& column) const {
        if (is_in(config_.choices.text, column.name)) return false;
        std::set<std::string> all;
        double least = std::numeric_limits<double>::max(), most = std::numeric_limits<double>::lowest();
        index_t numbers = 0, rows = 0;
        for (const auto* part : {&rows_.first, &rows_.second})
            for (const index_t row : *part) {
                if (!all.insert(cell_text(column, row)).second) return false;
                ++rows;
                if (!column.is_number(row)) continue;
                ++numbers;
                if (column.number(row) != std::floor(column.number(row))) return false;
                least = std::min(least, column.number(row)), most = std::max(most, column.number(row));
            }
        return rows > 20 && (numbers == 0 || (numbers == rows && most - least <= 4 * static_cast<double>(rows)));
    }

    // What is known of the targets of one bin.
    struct bin {
        double rows = 0;
        std::vector<double> sums;
    };
    double target(index_t row, std::size_t k) const {
        const auto at = static_cast<std::size_t>(row);
        if (table_.info.kind == target_kind::classes) return table_.labels[at] == static_cast<std::int32_t>(k);
        return static_cast<double>(table_.values[at * static_cast<std::size_t>(table_.info.count()) + k]);
    }

    // R² or area under the curve of the targets' mean by bins of one column; see the top of the file.
    double predicts_alone(const csv_column& column) const {
        constexpr std::size_t bins = 32;
        std::vector<double> numbers;
        for (const index_t row : rows_.first)
            if (column.is_number(row)) numbers.push_back(column.number(row));
        std::ranges::sort(numbers);
        const auto key = [&](index_t row) -> std::string {
            if (!column.is_number(row)) return 'w' + column.word(row);
            const auto below =
                static_cast<std::size_t>(std::ranges::lower_bound(numbers, column.number(row)) - numbers.begin());
            return concat(std::min(below, numbers.size() - 1) * bins / numbers.size());
        };
        const auto targets = static_cast<std::size_t>(table_.info.count());
        std::map<std::string, bin> of;
        bin all{0, std::vector<double>(targets)};
        for (const index_t row : rows_.first) {
            bin& b = of.try_emplace(key(row), bin{0, std::vector<double>(targets)}).first->second;
            for (bin* each : {&b, &all}) {
                ++each->rows;
                for (std::size_t k = 0; k < targets; ++k) each->sums[k] += target(row, k);
            }
        }
        double best = 0, mean = 0;
        for (std::size_t k = 0; k < targets; ++k) {
            std::vector<double> truth, guess;
            for (const index_t row : rows_.second) {
                const auto found = of.find(numbers.empty() && column.is_number(row) ? "" : key(row));
                const bin& b = found == of.end() ? all : found->second;
                truth.push_back(target(row, k));
                guess.push_back(b.sums[k] / b.rows);
            }
            const double one = table_.info.kind == target_kind::classes ? area_under_curve(truth, guess).value_or(0)
                                                                        : r2(truth, guess);
            best = std::max(best, one);
            mean += one / static_cast<double>(targets);
        }
        return table_.info.kind == target_kind::classes ? mean : best;
    }

    static double r2(const std::vector<double>& truth, const std::vector<double>& guess) {
        const mean_and_deviation all(truth);
        double residual = 0;
        for (std::size_t i = 0; i < truth.size(); ++i) residual += (truth[i] - guess[i]) * (truth[i] - guess[i]);
        const double total = all.deviation * all.deviation * static_cast<double>(truth.size());
        return total > 0 ? 1 - residual / total : 0;
    }

    const encoded_table& table_;
    const split_indices& rows_;
    const table_config& config_;
    std::vector<audit_finding> found_;
    std::vector<std::string> constant_;  // columns
};

}  // namespace detail

/// What data/audit.hpp does not see.
inline std::vector<audit_finding> audit_table(const learned_table& learned) {
    return detail::table_audit(learned).findings();
}

}  // namespace cairn
