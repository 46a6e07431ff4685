#pragma once
// A CSV file (data/csv.hpp) as a data set of one row a sample. What each column becomes is in column_encoding.hpp, what
// is trained on in table_split.hpp. With data.table.history = h a sample is h rows, the last one data.table.horizon
// rows before the target's.

#include <cairn/data/data_format.hpp>
#include <cairn/data/table/group_statistics.hpp>
#include <cairn/data/table/table_split.hpp>

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// What is learned of the targets: classes, values, or several answers of yes or no (1, 0; −1 where it is missing).
enum class table_task { of_column, classes, values, answers };

/// The settings [data.table].
struct table_config {
    std::string file;    // in data.path, where that is a folder of several
    bool header = true;  // the first line has the columns' names; else they are c1, c2, …
    std::vector<std::string>
        columns;  // inputs; empty: all that are neither targets, nor groups, nor times, nor left out
    std::vector<std::string> leave_out;
    table_neighbours statistics;  // over which rows further inputs are taken (group_statistics.hpp)
    std::vector<std::string> target;
    table_task task = table_task::of_column;  // classes where the target's cells are words, else values
    bool skip_missing_targets = false;        // leave rows out whose target is missing; otherwise they are an error
    column_choices choices;
    table_split_choice split;
    bool validation = false;           // test on a part of what trains, and leave what is tested out
    index_t history = 0, horizon = 1;  // rows; 0: the row of the target itself

    template <class Table>
    void read(Table& table) {
        table("file", file);
        table("header", header);
        table("columns", columns);
        table("leave_out", leave_out);
        table("statistics_of", statistics.same);
        table("statistics_near", statistics.near);
        table("statistics_radius", statistics.radius, from_to(0, 1e6));
        table("target", target);
        table("task", task,
              {{"of_column", table_task::of_column},
               {"classes", table_task::classes},
               {"values", table_task::values},
               {"answers", table_task::answers}});
        table("skip_missing_targets", skip_missing_targets);
        table("numbers", choices.piecewise, {{"standard", false}, {"piecewise", true}});
        table("bins", choices.bins, from_to(2, 1024));
        table("logarithms", choices.logarithms);
        table("categories", choices.categories);
        table("text", choices.text);
        table("text_length", choices.text_length, from_to(1, 1 << 16));
        table("missing", choices.missing);
        table("split", split.kind,
              {{"rows", table_split::rows},
               {"groups", table_split::groups},
               {"leave_one_group_out", table_split::chosen},
               {"column", table_split::chosen},
               {"time", table_split::time}});
        table("group", split.group);
        table("time", split.time);
        table("tested", split.tested);
        split.folds.read(table);
        table("test_part", validation, {{"test", false}, {"validation", true}});
        table("history", history, from_to(0, 1e6));
        table("horizon", horizon, from_to(1, 1e6));
    }
};

/// A table with its encodings, which its parts share.
struct encoded_table {
    csv_table cells;
    std::vector<const csv_column*> inputs;
    std::vector<column_encoding> encodings;  // of each input
    index_t history = 0, horizon = 1;
    target_info info;
    std::vector<std::int32_t> labels;  // of each row, if there are classes; −1: missing
    std::vector<float> values;         // (rows, targets) of values

    /// Inputs of one row of the file.
    index_t width() const {
        return std::accumulate(encodings.begin(), encodings.end(), index_t{0},
                               [](index_t sum, const column_encoding& e) { return sum + e.width(); });
    }
    void encode(index_t row, float* out) const {
        for (std::size_t c = 0; c < inputs.size(); ++c) {
            encodings[c].encode(*inputs[c], row, out);
            out += encodings[c].width();
        }
    }
};

/// Rows of a table. Sample: (width), of a text alone (length, bytes), with a history (h, width).
class table_rows {
public:
    /// Throws naming the cell of a row that cannot be encoded.
    table_rows(std::shared_ptr<const encoded_table> table, std::vector<index_t> rows)
        : table_(std::move(table)), rows_(std::move(rows)) {
        std::vector<float> once(static_cast<std::size_t>(sample_shape().size()));
        with_context(table_->cells.name, [&] {
            for (const index_t row : rows_) write(row, once.data());
        });
    }

    index_t size() const { return static_cast<index_t>(rows_.size()); }
    shape sample_shape() const {
        if (table_->history) return {table_->history, table_->width()};
        return table_->encodings.size() == 1 ? table_->encodings[0].sample() : shape{table_->width()};
    }
    target_info targets() const { return table_->info; }
    std::string sample_name(index_t i) const {
        return concat(table_->cells.name, " row ", rows_[static_cast<std::size_t>(i)] + 1);
    }
    const std::vector<index_t>& rows() const { return rows_; }

    bool read(index_t i, augment_key, sample_slot slot) const {
        const index_t row = rows_[static_cast<std::size_t>(i)], n = table_->info.count();
        write(row, slot.x);
        if (table_->info.kind == target_kind::classes)
            *slot.label = table_->labels[static_cast<std::size_t>(row)];
        else
            std::copy_n(table_->values.data() + row * n, n, slot.values);
        return true;
    }

private:
    void write(index_t row, float* x) const {
        if (table_->history == 0) return table_->encode(row, x);
        const index_t first = row - table_->horizon - table_->history + 1;
        for (index_t h = 0; h < table_->history; ++h) table_->encode(first + h, x + h * table_->width());
    }

    std::shared_ptr<const encoded_table> table_;
    std::vector<index_t> rows_;
};

static_assert(Dataset<table_rows>);

}  // namespace cairn
