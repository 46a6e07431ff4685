#pragma once
// Sparse matrices by compressed rows: the values of row r and their columns lie at [begin[r], begin[r + 1]).
// Plain data on the host, tensors in memory of any device, or a view of either for a kernel. Products:
// device/cpu/csr.hpp, device/grid/csr.hpp.

#include <cairn/core/error.hpp>
#include <cairn/core/tensor.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// Where a matrix lies, in memory of the device that reads it.
template <class T>
struct csr_view {
    index_t rows, columns, nonzeros;
    const index_t* begin;
    const std::int32_t* column;
    const T* value;

    /// Operations and bytes of its product with a dense matrix (columns, width) of E.
    template <class E>
    std::pair<double, double> product_work(index_t width) const {
        const double n = static_cast<double>(nonzeros), w = static_cast<double>(width);
        return {2 * n * w,
                n * (sizeof(T) + sizeof(std::int32_t)) + sizeof(E) * w * static_cast<double>(rows + columns)};
    }
};

/// rows × columns with values in row order. `check()` has the invariants.
template <class T>
struct csr_matrix {
    index_t rows = 0, columns = 0;
    std::vector<index_t> begin{0};     // rows + 1
    std::vector<std::int32_t> column;  // of each value
    std::vector<T> value;

    index_t nonzeros() const { return static_cast<index_t>(column.size()); }
    csr_view<T> view() const { return {rows, columns, nonzeros(), begin.data(), column.data(), value.data()}; }

    /// Throws, speaking of `name`, unless counts, row bounds and columns fit together.
    void check(const std::string& name) const {
        require(rows >= 0 && columns >= 0 && columns <= INT32_MAX && std::ssize(begin) == rows + 1 &&
                    column.size() == value.size(),
                name, ": a sparse matrix of ", rows, " × ", columns, " with ", begin.size(), " row bounds, ",
                column.size(), " columns and ", value.size(),
                " values; rows + 1 bounds and equally many of the others "
                "are expected");
        require(begin.front() == 0 && begin.back() == nonzeros(), name, ": row bounds go from ", begin.front(), " to ",
                begin.back(), ", there are ", nonzeros(), " values");
        for (index_t r = 0; r < rows; ++r)
            require(begin[at(r)] <= begin[at(r + 1)], name, ": row ", r, " ends before it begins");
        for (index_t r = 0; r < rows; ++r)
            for (index_t i = begin[at(r)]; i < begin[at(r + 1)]; ++i)
                require(column[at(i)] >= 0 && column[at(i)] < columns, name, ": row ", r, " has a value in column ",
                        column[at(i)], " of ", columns);
    }

    /// Aᵀ, its rows sorted.
    csr_matrix transposed() const {
        csr_matrix t;
        t.rows = columns;
        t.columns = rows;
        t.begin.assign(at(columns + 1), 0);
        for (const std::int32_t c : column) ++t.begin[at(c) + 1];
        for (index_t c = 0; c < columns; ++c) t.begin[at(c + 1)] += t.begin[at(c)];
        t.column.resize(column.size());
        t.value.resize(value.size());
        std::vector<index_t> next(t.begin.begin(), t.begin.end() - 1);
        for (index_t r = 0; r < rows; ++r)
            for (index_t i = begin[at(r)]; i < begin[at(r + 1)]; ++i) {
                const index_t to = next[at(column[at(i)])]++;
                t.column[at(to)] = static_cast<std::int32_t>(r);
                t.value[at(to)] = value[at(i)];
            }
        return t;
    }

private:
    static constexpr std::size_t at(index_t i) { return static_cast<std::size_t>(i); }
};

/// A matrix in memory of D.
template <class T, Device D>
struct csr_tensors {
    index_t rows, columns;
    tensor<index_t, D> begin;
    tensor<std::int32_t, D> column;
    tensor<T, D> value;

    /// With values that become T.
    template <class From>
    explicit csr_tensors(const csr_matrix<From>& m)
        : rows(m.rows),
          columns(m.columns),
          begin(there<index_t>(m.begin)),
          column(there<std::int32_t>(m.column)),
          value(there<T>(m.value)) {}

    csr_view<T> view() const { return {rows, columns, value.size(), begin.data(), column.data(), value.data()}; }

private:
    template <class To, class From>
    static tensor<To, D> there(const std::vector<From>& values) {
        tensor<To> host({std::ssize(values)}, memory_category::workspace);
        if (!phantom_range::holds(host.data()))
            std::transform(values.begin(), values.end(), host.data(), [](From v) { return static_cast<To>(v); });
        return tensor<To, D>::copy_of(host, memory_category::data);
    }
};

/// A matrix of these (row, column) pairs, each once and sorted, with value 1. Throws on a pair outside of the matrix.
template <class T>
csr_matrix<T> csr_of_pairs(index_t rows, index_t columns, std::vector<std::pair<std::int32_t, std::int32_t>> pairs) {
    std::sort(pairs.begin(), pairs.end());
    pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
    csr_matrix<T> m;
    m.rows = rows;
    m.columns = columns;
    m.begin.assign(static_cast<std::size_t>(rows) + 1, 0);
    for (const auto& [r, c] : pairs) {
        require(r >= 0 && r < rows && c >= 0 && c < columns, "sparse matrix: (", r, ", ", c, ") is outside of ", rows,
                " × ", columns);
        ++m.begin[static_cast<std::size_t>(r) + 1];
        m.column.push_back(c);
    }
    m.value.assign(m.column.size(), T{1});
    for (std::size_t r = 1; r < m.begin.size(); ++r) m.begin[r] += m.begin[r - 1];
    return m;
}

}  // namespace cairn
