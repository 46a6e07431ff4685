#pragma once
// The extents of a tensor: at most six axes, held in place, compared by value.

#include <cairn/core/error.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <limits>
#include <ostream>
#include <span>

namespace cairn {

/// Signed size and position type of the whole library.
using index_t = std::ptrdiff_t;

/// Extents of a row-major tensor; images are (N, H, W, C), volumes (N, D, H, W, C).
class shape {
public:
    static constexpr int max_rank = 6;

    shape() = default;
    shape(std::initializer_list<index_t> extents) : shape(std::span(extents.begin(), extents.size())) {}
    explicit shape(std::span<const index_t> extents) {
        for (index_t extent : extents) push_back(extent);
    }

    int rank() const { return rank_; }
    index_t operator[](int axis) const { return extents_[static_cast<std::size_t>(axis < 0 ? axis + rank_ : axis)]; }
    index_t front() const { return (*this)[0]; }
    index_t back() const { return (*this)[-1]; }
    const index_t* begin() const { return extents_.data(); }
    const index_t* end() const { return extents_.data() + rank_; }

    /// Number of elements: the product of all extents, 1 for rank 0.
    index_t size() const {
        index_t product = 1;
        for (index_t extent : *this) product *= extent;
        return product;
    }

    /// Appends one axis. Throws on a negative extent or a seventh axis.
    void push_back(index_t extent) {
        require(extent >= 0, "shape: extent ", extent, " of axis ", rank_, " is negative");
        require(rank_ < max_rank, "shape: more than ", max_rank, " axes");
        extents_[static_cast<std::size_t>(rank_++)] = extent;
        require_countable();
    }

    /// The same shape with another extent on one axis (negative axes count from the end).
    shape with(int axis, index_t extent) const {
        shape changed = *this;
        changed.extents_[static_cast<std::size_t>(axis < 0 ? axis + rank_ : axis)] = extent;
        changed.require_countable();
        return changed;
    }

    bool operator==(const shape& other) const {
        return rank_ == other.rank_ && std::equal(begin(), end(), other.begin());
    }

    friend std::ostream& operator<<(std::ostream& out, const shape& s) {
        out << '(';
        for (int axis = 0; axis < s.rank_; ++axis) out << (axis ? ", " : "") << s[axis];
        return out << ')';
    }

private:
    // Extents may come from a damaged file: their product must fit an index (with room for 16-byte elements).
    void require_countable() const {
        constexpr index_t most = std::numeric_limits<index_t>::max() / 16;
        index_t product = 1;
        for (index_t extent : *this) {
            require(extent == 0 || product <= most / extent, "shape: ", *this,
                    " has more elements than can be counted");
            product *= std::max<index_t>(extent, 1);
        }
    }

    std::array<index_t, max_rank> extents_{};
    int rank_ = 0;
};

}  // namespace cairn
