#pragma once
// Lab 1, task 2: how a tensor lies in memory, and what touching it costs.
//
// A matrix<T> owns rows × columns elements of T, row by row, without gaps. What you have of it (xtensor):
//   m(i, j), m.shape(0), m.shape(1), m.data()     element, extents, first element
//   matrix<T>::from_shape({rows, columns})        elements as they happen to be; vec<T>::from_shape({n}) likewise
//   matrix<T> m = xt::zeros<T>({rows, columns})   all zero
//   x - y, x * y, xt::exp(x), xt::sqrt(x), …      expressions: computed when they are assigned to a matrix or a vec
//   xt::sum(x, {0}), xt::sum(x, {1})              expressions too: sums down the columns, along the rows
// An expression with operands of different rank broadcasts: a vec stands for equal rows.

#include <cairn/core/xt.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <vector>

namespace student {

template <class T>
using matrix = xt::xtensor<T, 2>;
template <class T>
using vec = xt::xtensor<T, 1>;

/// Row i: contiguous memory. Given.
template <class T>
std::span<T> row(matrix<T>& m, std::size_t i) {
    return {m.data() + i * m.shape(1), m.shape(1)};
}
template <class T>
std::span<const T> row(const matrix<T>& m, std::size_t i) {
    return {m.data() + i * m.shape(1), m.shape(1)};
}

/// Task 2a. Of a row-major tensor: by how many elements the place in memory moves when an index grows by one. shape (2,
/// 3, 5): (15, 5, 1).
inline std::vector<std::size_t> row_major_strides(const std::vector<std::size_t>& shape) {
    (void)shape;
    throw std::logic_error("task 2a: row_major_strides is not written yet");
}

/// Task 2a. The place in memory, in elements from the first one, of the element at `index`. Both arguments have one
/// number an axis.
inline std::size_t offset_of(const std::vector<std::size_t>& strides, const std::vector<std::size_t>& index) {
    (void)strides, (void)index;
    throw std::logic_error("task 2a: offset_of is not written yet");
}

/// Task 2b. y(j, i) = x(i, j). Moves no more than 5/8 of a cache line an element, in a cache of 64 lines of 64 bytes
/// (elements of 8 bytes).
template <class T>
matrix<T> transposed(const matrix<T>& x) {
    (void)x;
    throw std::logic_error("task 2b: transposed is not written yet");
}

/// Task 2c. Each column less its mean, divided by its deviation: y = (x − mean) / sqrt(variance + epsilon), where the
/// variance is the mean of (x − mean)². At least one row. Takes no more than 12 operations an element, and room for no
/// more than the result, one more matrix and vecs.
template <class T>
matrix<T> standardised(const matrix<T>& x, T epsilon) {
    (void)x, (void)epsilon;
    throw std::logic_error("task 2c: standardised is not written yet");
}

}  // namespace student
