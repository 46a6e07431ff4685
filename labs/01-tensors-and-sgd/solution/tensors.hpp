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
    //! solution
    std::vector<std::size_t> strides(shape.size());
    std::size_t step = 1;
    for (std::size_t axis = shape.size(); axis-- > 0;) {
        strides[axis] = step;
        step *= shape[axis];
    }
    return strides;
    //! starter
    // (void)shape;
    // throw std::logic_error("task 2a: row_major_strides is not written yet");
    //! end
}

/// Task 2a. The place in memory, in elements from the first one, of the element at `index`. Both arguments have one
/// number an axis.
inline std::size_t offset_of(const std::vector<std::size_t>& strides, const std::vector<std::size_t>& index) {
    //! solution
    std::size_t offset = 0;
    for (std::size_t axis = 0; axis < strides.size(); ++axis) offset += strides[axis] * index[axis];
    return offset;
    //! starter
    // (void)strides, (void)index;
    // throw std::logic_error("task 2a: offset_of is not written yet");
    //! end
}

/// Task 2b. y(j, i) = x(i, j). Moves no more than 5/8 of a cache line an element, in a cache of 64 lines of 64 bytes
/// (elements of 8 bytes).
template <class T>
matrix<T> transposed(const matrix<T>& x) {
    //! solution
    constexpr std::size_t tile = 8;  // 8 rows of x and 8 of y, each in one line or two: at most 32 lines
    const std::size_t rows = x.shape(0), columns = x.shape(1);
    matrix<T> y = matrix<T>::from_shape({columns, rows});
    for (std::size_t top = 0; top < rows; top += tile)
        for (std::size_t left = 0; left < columns; left += tile)
            for (std::size_t i = top; i < std::min(top + tile, rows); ++i)
                for (std::size_t j = left; j < std::min(left + tile, columns); ++j) y(j, i) = x(i, j);
    return y;
    //! starter
    // (void)x;
    // throw std::logic_error("task 2b: transposed is not written yet");
    //! end
}

/// Task 2c. Each column less its mean, divided by its deviation: y = (x − mean) / sqrt(variance + epsilon), where the
/// variance is the mean of (x − mean)². At least one row. Takes no more than 12 operations an element, and room for no
/// more than the result, one more matrix and vecs.
template <class T>
matrix<T> standardised(const matrix<T>& x, T epsilon) {
    //! solution
    const T count = static_cast<T>(x.shape(0));
    const vec<T> mean = xt::sum(x, {0}) / count;
    matrix<T> y = x - mean;
    const vec<T> scale = T(1) / xt::sqrt(xt::sum(y * y, {0}) / count + epsilon);
    y *= scale;
    return y;
    //! starter
    // (void)x, (void)epsilon;
    // throw std::logic_error("task 2c: standardised is not written yet");
    //! end
}

}  // namespace student
