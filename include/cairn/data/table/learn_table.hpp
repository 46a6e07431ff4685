#pragma once
// The parts of a table, with what is learned on the training rows: the encoding of each column, the classes or the mean
// and the deviation of each target. Everything is checked here, so that reading a sample cannot fail.

#include <cairn/data/table/table_rows.hpp>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// Beyond, numbers of a target are taken for values.
inline constexpr std::size_t most_classes = 4096;

/// A table, the rows that train and are tested on, and what was learned of the training rows.
struct learned_table {
    std::shared_ptr<const encoded_table> table;
    split_indices rows;
    table_config config;

    data_parts parts() const {
        data_parts made = make_data_parts(table_rows(table, rows.first), table_rows(table, rows.second));
        for (const column_encoding& e : table->encodings) made.learned.push_back(e.describe());
        made.belong_together = config.split.kind != table_split::rows || config.history > 0;
        return made;
    }
};

namespace detail {

/// See learn_table().
class table_learner {
public:
    table_learner(csv_table cells, const table_config& config) : config_(config) {
        made_->cells = std::move(cells);
        add_statistics();
        made_->history = config.history;
        made_->horizon = config.horizon;
        for (const std::string& name : config_.target) targets_.push_back(&made_->cells.at(name));
        require(!targets_.empty(),
                "data.table.target: name the column to predict; there are: ", listed(made_->cells.names()));
        if (config_.task == table_task::of_column)
            config_.task =
                std::ranges::any_of(rows_with_target(), [&](index_t row) { return !targets_[0]->is_number(row); })
                    ? table_task::classes
                    : table_task::values;
    }

    learned_table learn() && {
        const std::vector<index_t> rows = rows_with_target();
        if (config_.task == table_task::classes) learn_classes(rows);
        if (config_.history > 0) require_order();
        choose_inputs();
        leave_out_constant(rows);
        split_indices split = config_.split.split(made_->cells, rows, labels_of(rows), made_->inputs);
        if (config_.validation)
            split = config_.split.validation(made_->cells, split.first, labels_of(split.first), made_->inputs);
        const std::vector<index_t> trained = rows_before(split.first);
        leave_out_constant(trained);
        for (const csv_column* column : made_->inputs)
            with_context(made_->cells.name, [&] { made_->encodings.emplace_back(*column, trained, config_.choices); });
        if (config_.task == table_task::classes)
            require_all_classes(split);
        else
            with_context(made_->cells.name, [&] { learn_values(split.first); });
        return {made_, std::move(split), config_};
    }

private:
    // Before anything points to a column.
    void add_statistics() {
        if (!config_.statistics.any()) return;
        const auto has_numbers = [&](const csv_column& column) {
            for (index_t row = 0; row < column.rows(); ++row)
                if (!column.is_number(row) && !config_.choices.is_missing(column, row)) return false;
            return true;
        };
        std::vector<std::string> columns;
        for (const csv_column& column : made_->cells.columns)
            if (is_chosen(column) && !is_in(config_.statistics.same, column.name) &&
                !is_in(config_.statistics.near, column.name) && !is_in(config_.choices.categories, column.name) &&
                has_numbers(column))
                columns.push_back(column.name);
        const auto before = std::ssize(made_->cells.columns);
        add_group_statistics(made_->cells, config_.statistics, columns, config_.choices);
        for (auto c = made_->cells.columns.begin() + before; c != made_->cells.columns.end(); ++c)
            statistics_.push_back(c->name);
    }

    // Whether a column of the file is an input by its name.
    bool is_chosen(const csv_column& column) const {
        if (!config_.columns.empty()) return is_in(config_.columns, column.name);
        return !is_in(config_.target, column.name) && !is_in(config_.leave_out, column.name) &&
               !is_in(config_.split.time, column.name) && column.name != config_.split.group;
    }

    // Of rows, if there are classes.
    std::vector<std::int32_t> labels_of(const std::vector<index_t>& rows) const {
        std::vector<std::int32_t> labels;
        for (const index_t row : rows)
            if (!made_->labels.empty()) labels.push_back(made_->labels[static_cast<std::size_t>(row)]);
        return labels;
    }

    // Rows that have a target, and the history that it needs.
    std::vector<index_t> rows_with_target() const {
        std::vector<index_t> rows;
        const index_t first = config_.history ? config_.history + config_.horizon - 1 : 0;
        for (index_t row = first; row < made_->cells.rows(); ++row) {
            index_t missing = 0;
            for (const csv_column* target : targets_) missing += config_.choices.is_missing(*target, row);
            if (missing == 0 || (config_.task == table_task::answers && missing < std::ssize(targets_))) {
                rows.push_back(row);
                continue;
            }
            require(config_.skip_missing_targets, made_->cells.name, ": row ", row + 1, ": the target '",
                    targets_[0]->name,
                    "' is missing; set data.table.skip_missing_targets = true to leave such rows out");
        }
        require(!rows.empty(), made_->cells.name, ": no row has a target");
        return rows;
    }

    // The rows that inputs of the samples lie in.
    std::vector<index_t> rows_before(const std::vector<index_t>& samples) const {
        if (config_.history == 0) return samples;
        std::vector<index_t> rows;
        for (const index_t row : samples) rows.push_back(row - config_.horizon);
        return rows;
    }

    void require_order() const {
        const auto& time = config_.split.time;
        require(!time.empty(),
                "data.table.history needs data.table.time, the columns of each row's time, the coarsest first");
        for (index_t row = 1; row < made_->cells.rows(); ++row)
            require(!config_.split.is_before(made_->cells, row, config_.split.moment(made_->cells, row - 1)),
                    made_->cells.name, ": row ", row + 1, " is earlier than the row before; sort the file by time");
    }

    void learn_classes(const std::vector<index_t>& rows) {
        require(targets_.size() == 1, "data.table.target: classes have one column, ", targets_.size(), " are named");
        const csv_column& target = *targets_[0];
        std::map<std::pair<double, std::string>, std::int32_t> known;  // numbers in their order, words in theirs
        const auto key = [&](index_t row) {
            return target.is_number(row) ? std::pair(target.number(row), std::string())
                                         : std::pair(0.0, target.word(row));
        };
        for (const index_t row : rows) known.try_emplace(key(row), 0);
        require(known.size() > 1 && known.size() <= most_classes, made_->cells.name, ": the target '", target.name,
                "' has ", known.size(), " classes; 2 to ", most_classes, " are expected",
                known.size() > 1 ? "; is data.table.task = values meant?" : "");
        made_->info = {target_kind::classes, {}, {}, {}};
        std::int32_t n = 0;
        for (auto& [value, label] : known) {
            label = n++;
            made_->info.names.push_back(value.second.empty() ? cairn::text_of(value.first) : value.second);
        }
        made_->labels.assign(static_cast<std::size_t>(made_->cells.rows()), -1);
        for (const index_t row : rows) made_->labels[static_cast<std::size_t>(row)] = known.at(key(row));
    }

    // A class that no training row has cannot be learned; one that no test row has makes figures of another question.
    void require_all_classes(const split_indices& split) const {
        for (const auto* part : {&split.first, &split.second}) {
            std::vector<index_t> count(made_->info.names.size());
            for (const index_t row : *part)
                ++count[static_cast<std::size_t>(made_->labels[static_cast<std::size_t>(row)])];
            const auto none = std::ranges::find(count, 0);
            require(none == count.end(), made_->cells.name, ": no row of the ",
                    part == &split.first ? "training" : "test", " part has class '",
                    none == count.end() ? "" : made_->info.names[static_cast<std::size_t>(none - count.begin())],
                    "'; take fewer folds, or another split");
        }
    }

    void choose_inputs() {
        for (const std::vector<std::string>* list : {&config_.columns, &config_.leave_out, &config_.choices.logarithms,
                                                     &config_.choices.categories, &config_.choices.text})
            for (const std::string& name : *list) made_->cells.at(name);  // is there
        for (const csv_column& column : made_->cells.columns) {
            const bool is_target = is_in(config_.target, column.name);
            require(!is_target || config_.history || !is_in(config_.columns, column.name), "data.table.columns: '",
                    column.name, "' is the target");
            if (is_chosen(column) || is_in(statistics_, column.name)) made_->inputs.push_back(&column);
        }
    }

    // Inputs that say nothing in these rows are left out, unless they were named.
    void leave_out_constant(const std::vector<index_t>& rows) {
        std::erase_if(made_->inputs, [&](const csv_column* column) {
            const std::string why = says_nothing(*column, rows);
            require(why.empty() || !is_in(config_.columns, column->name), made_->cells.name, ": ", why);
            return !why.empty();
        });
        require(!made_->inputs.empty(), made_->cells.name, ": no column is left as an input");
    }

    void learn_values(const std::vector<index_t>& rows) {
        const bool answers = config_.task == table_task::answers;
        made_->info = {answers ? target_kind::answers : target_kind::values, config_.target, {}, {}};
        const std::size_t n = targets_.size();
        made_->values.assign(static_cast<std::size_t>(made_->cells.rows()) * n, -1);
        for (std::size_t k = 0; k < n; ++k) {
            const csv_column& target = *targets_[k];
            const bool logarithm = is_in(config_.choices.logarithms, target.name);
            std::vector<double> trained;
            for (const index_t row : rows)
                if (!config_.choices.is_missing(target, row)) trained.push_back(cell_number(target, row, logarithm));
            const mean_and_deviation all(trained);
            require(all.deviation > 0, "the target '", target.name, "' has one value in the training part, ", all.mean);
            const double mean = answers ? 0 : all.mean, scale = answers ? 1 : all.deviation;
            made_->info.mean.push_back(static_cast<float>(mean));
            made_->info.scale.push_back(static_cast<float>(scale));
            for (index_t row = 0; row < made_->cells.rows(); ++row) {
                if (config_.choices.is_missing(target, row)) continue;
                const double v = cell_number(target, row, logarithm);
                require(!answers || v == 0 || v == 1, "row ", row + 1, ": '", target.name, "' is ", v,
                        "; answers are 0 or 1, or missing");
                made_->values[static_cast<std::size_t>(row) * n + k] = static_cast<float>((v - mean) / scale);
            }
        }
    }

    table_config config_;
    std::shared_ptr<encoded_table> made_ = std::make_shared<encoded_table>();
    std::vector<const csv_column*> targets_;
    std::vector<std::string> statistics_;  // names of columns that are not in the file
};

}  // namespace detail

/// Learns the parts of a table. Throws naming the column and the row, or the setting, that does not fit.
inline learned_table learn_table(csv_table cells, const table_config& config) {
    return detail::table_learner(std::move(cells), config).learn();
}

}  // namespace cairn
