#pragma once
// How a column of a table enters a network: as numbers that are learned on the training rows alone.
//   numbers      (v − mean) / deviation of the training rows, v a cell or its logarithm
//   piecewise    t = 1 … T bins with edges b at quantiles of the training rows (Gorishniy et al. 2022, equation 1):
//                e_t = (v − b_{t−1}) / (b_t − b_{t−1}), from 0 to 1; beyond the outer edges the line goes on for the
//                width of a bin, and no further: a cell far outside must not decide alone
//   categories   1 at the cell's category, else 0: a linear layer upon it is a table of trained vectors
//   text         the first `text_length` bytes of the cell: of each 1 at its byte among those of the training cells,
//                else 0, as (text_length, bytes); what is behind the text's end is 0
// and, where training cells are missing, one more input: 1 at a missing cell, whose other inputs are 0.

#include <cairn/core/interval.hpp>
#include <cairn/core/summary.hpp>
#include <cairn/data/csv.hpp>

#include <algorithm>
#include <cmath>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace cairn {

namespace detail {

inline bool is_in(const std::vector<std::string>& all, const std::string& name) {
    return std::ranges::find(all, name) != all.end();
}

/// Whether the cell is one of the words for a missing value.
inline bool is_missing(const csv_column& column, index_t row, const std::vector<std::string>& words) {
    return !column.is_number(row) && is_in(words, column.word(row));
}

}  // namespace detail

/// What is chosen for the columns of a table.
struct column_choices {
    bool piecewise = false;               // numbers in bins, else by mean and deviation
    index_t bins = 8;                     // T, at most
    std::vector<std::string> logarithms;  // columns whose logarithm is taken
    std::vector<std::string> categories;  // columns of numbers that name categories; those of words always do
    std::vector<std::string> text;        // columns of text, such as formulas of molecules
    index_t text_length = 128;            // bytes of a text
    std::vector<std::string> missing{"", "NA", "NaN", "nan", "?"};  // words for a missing cell

    bool is_missing(const csv_column& column, index_t row) const { return detail::is_missing(column, row, missing); }
};

/// Beyond, words of a column are taken for text or names of rows.
inline constexpr std::size_t most_categories = 256;

/// The text of a cell: a word, or the shortest text of a number.
inline std::string cell_text(const csv_column& column, index_t row) {
    return column.is_number(row) ? text_of(column.number(row)) : column.word(row);
}

/// The number in a cell, or its logarithm. Throws naming column and row where it has none.
inline double cell_number(const csv_column& column, index_t row, bool logarithm) {
    require(column.is_number(row), "column '", column.name, "', row ", row + 1, ": '", column.word(row).substr(0, 40),
            "' where numbers are due; if it stands for a missing value, add it to data.table.missing; if the column "
            "holds categories, to data.table.categories");
    const double v = column.number(row);
    if (!logarithm) return v;
    require(v > 0, "column '", column.name, "', row ", row + 1, ": ", v,
            " has no logarithm; take the column out of data.table.logarithms");
    return std::log(v);
}

/// Mean and deviation of values; {mean, 0} where all are equal.
struct mean_and_deviation {
    double mean = 0, deviation = 0;

    explicit mean_and_deviation(std::span<const double> values) {
        const double n = static_cast<double>(values.size());
        for (const double v : values) mean += v / n;
        double squares = 0;
        for (const double v : values) squares += (v - mean) * (v - mean) / n;
        deviation = std::ranges::adjacent_find(values, std::not_equal_to{}) == values.end() ? 0 : std::sqrt(squares);
    }
};

/// Why a column can teach nothing, or empty: its training cells are all equal, such as all missing.
inline std::string says_nothing(const csv_column& column, std::span<const index_t> rows) {
    const auto differs = [&](index_t row) { return cell_text(column, row) != cell_text(column, rows.front()); };
    if (std::ranges::any_of(rows, differs)) return {};
    return concat("column '", column.name, "' has one value in the training part, '",
                  cell_text(column, rows.front()).substr(0, 40), "'; leave it out");
}

/// The encoding of one column; see the top of the file.
class column_encoding {
public:
    /// Learns from the cells of `rows`.
    column_encoding(const csv_column& column, std::span<const index_t> rows, const column_choices& choices)
        : name_(column.name), missing_(choices.missing) {
        logarithm_ = detail::is_in(choices.logarithms, name_);
        std::vector<index_t> present;
        for (const index_t row : rows)
            if (!choices.is_missing(column, row)) present.push_back(row);
        has_mask_ = present.size() < rows.size();
        require(!present.empty(), "column '", name_, "' has no value in the training part; leave it out");
        const bool of_words = std::ranges::none_of(present, [&](index_t row) { return column.is_number(row); });
        if (detail::is_in(choices.text, name_))
            learn_text(column, present, choices.text_length);
        else if (of_words || detail::is_in(choices.categories, name_))
            learn_categories(column, present);
        else
            learn_numbers(column, present, choices);
    }

    /// Number of inputs.
    index_t width() const { return values() + has_mask_; }
    /// Of a sample that has this column alone.
    shape sample() const {
        return text_length_ > 0 && !has_mask_ ? shape{text_length_, std::ssize(bytes_)} : shape{width()};
    }

    /// The inputs of a row. Throws naming the column and the row on a cell that the training part does not prepare for.
    void encode(const csv_column& column, index_t row, float* out) const {
        const bool missing = detail::is_missing(column, row, missing_);
        require(!missing || has_mask_, "column '", name_, "', row ", row + 1,
                " is missing, and no cell of the training part is: a network that has not seen it cannot answer; leave "
                "the column or the row out");
        std::fill_n(out, width(), 0.0f);
        if (has_mask_) out[values()] = missing;
        if (missing) return;
        if (text_length_ > 0) return encode_text(cell_text(column, row), out);
        if (!categories_.empty()) {
            const std::string text = cell_text(column, row);
            const auto found = std::ranges::lower_bound(categories_, text);
            require(found != categories_.end() && *found == text, "column '", name_, "', row ", row + 1, ": category '",
                    text.substr(0, 40), "' is not in the training part; leave the column out, or split otherwise");
            out[found - categories_.begin()] = 1;
            return;
        }
        const double v = cell_number(column, row, logarithm_);
        if (edges_.empty()) {
            *out = static_cast<float>((v - mean_) / deviation_);
            return;
        }
        const std::size_t last = edges_.size() - 2;  // bin
        for (std::size_t t = 0; t <= last; ++t) {
            const double e = (v - edges_[t]) / (edges_[t + 1] - edges_[t]);
            out[t] = static_cast<float>(std::clamp(e, t == 0 ? -1.0 : 0.0, t == last ? 2.0 : 1.0));
        }
    }

    /// One line: what was learned.
    std::string describe() const {
        std::string text = concat(name_, logarithm_ ? ", logarithm: " : ": ");
        if (text_length_ > 0)
            text += concat("text of at most ", text_length_, " bytes, ", bytes_.size(),
                           " different ones, the longest of ", longest_);
        else if (!categories_.empty())
            text += concat(categories_.size(), " categories: ", listed(categories_));
        else if (!edges_.empty())
            text += concat(edges_.size() - 1, " bins from ", edges_.front(), " to ", edges_.back());
        else
            text += concat("mean ", mean_, ", deviation ", deviation_);
        return text + (has_mask_ ? "; some are missing" : "");
    }

private:
    index_t values() const {
        if (text_length_ > 0) return text_length_ * std::ssize(bytes_);
        return static_cast<index_t>(!categories_.empty() ? categories_.size() : edges_.empty() ? 1 : edges_.size() - 1);
    }

    void learn_categories(const csv_column& column, std::span<const index_t> present) {
        require(!logarithm_, "column '", name_, "' holds categories, which have no logarithm");
        std::set<std::string> all;
        for (const index_t row : present) {
            all.insert(cell_text(column, row));
            require(all.size() <= most_categories, "column '", name_, "' has more than ", most_categories,
                    " different words: text, or names of rows; leave it out, or name it in data.table.text");
        }
        categories_.assign(all.begin(), all.end());
    }

    void learn_text(const csv_column& column, std::span<const index_t> present, index_t length) {
        require(!logarithm_, "column '", name_, "' is text, which has no logarithm");
        text_length_ = length;
        std::set<char> all;
        for (const index_t row : present) {
            const std::string text = cell_text(column, row);
            longest_ = std::max(longest_, std::ssize(text));
            all.insert(text.begin(), text.begin() + std::min(std::ssize(text), length));
        }
        bytes_.assign(all.begin(), all.end());
    }

    void encode_text(const std::string& text, float* out) const {
        for (index_t i = 0; i < std::min(std::ssize(text), text_length_); ++i) {
            const auto found = std::ranges::lower_bound(bytes_, text[static_cast<std::size_t>(i)]);
            if (found != bytes_.end() && *found == text[static_cast<std::size_t>(i)])
                out[i * std::ssize(bytes_) + (found - bytes_.begin())] = 1;
        }
    }

    void learn_numbers(const csv_column& column, std::span<const index_t> present, const column_choices& choices) {
        std::vector<double> values;
        for (const index_t row : present) values.push_back(cell_number(column, row, logarithm_));
        const mean_and_deviation all(values);
        mean_ = all.mean;
        deviation_ = all.deviation > 0 ? all.deviation : 1;  // equal values beside missing cells
        if (!choices.piecewise || all.deviation == 0) return;
        std::ranges::sort(values);
        for (index_t t = 0; t <= choices.bins; ++t) {
            const double edge = quantile(values, static_cast<double>(t) / static_cast<double>(choices.bins));
            if (edges_.empty() || edge > edges_.back()) edges_.push_back(edge);  // equal values make fewer bins
        }
    }

    std::string name_;
    std::vector<std::string> missing_;  // words
    bool logarithm_ = false, has_mask_ = false;
    double mean_ = 0, deviation_ = 1;
    std::vector<double> edges_;              // of bins; empty: by mean and deviation
    std::vector<std::string> categories_;    // sorted; empty: numbers
    std::string bytes_;                      // of texts, sorted
    index_t text_length_ = 0, longest_ = 0;  // 0: no text
};

}  // namespace cairn
