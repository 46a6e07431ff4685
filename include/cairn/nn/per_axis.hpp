#pragma once
// One number for every spatial axis, or one for each: kernel = 3, stride = {1, 2, 2}.

#include <cairn/core/shape.hpp>

#include <array>
#include <initializer_list>
#include <string>

namespace cairn {

/// Setting of a layer with one to three spatial axes, outermost first.
class per_axis {
public:
    constexpr per_axis(index_t every) : values_{every, every, every} {}
    /// Throws at once on more than three axes.
    per_axis(std::initializer_list<index_t> each) : given_(static_cast<int>(each.size())) {
        require(each.size() >= 1 && each.size() <= 3, "per_axis: ", each.size(), " values, one to three are possible");
        std::size_t axis = 0;
        for (index_t v : each) values_[axis++] = v;
    }

    /// Values of the axes (depth, height, width) of a layer with `dims` spatial axes; axes that it does not have get
    /// `absent`.
    /// Throws if another number of values was given.
    std::array<index_t, 3> expand(int dims, index_t absent, const char* what) const {
        require(given_ == 0 || given_ == dims, what, " has ", given_, " values for a layer of ", dims, " spatial axes");
        std::array<index_t, 3> all{absent, absent, absent};
        for (int axis = 0; axis < dims; ++axis)
            all[static_cast<std::size_t>(3 - dims + axis)] = values_[static_cast<std::size_t>(axis)];
        return all;
    }

private:
    std::array<index_t, 3> values_{};
    int given_ = 0;  // 0: one value for every axis
};

/// "3x3x3": the last `dims` of three values.
inline std::string axes_text(const std::array<index_t, 3>& values, int dims) {
    std::string text;
    for (int axis = 3 - dims; axis < 3; ++axis)
        text += (text.empty() ? "" : "x") + std::to_string(values[static_cast<std::size_t>(axis)]);
    return text;
}

}  // namespace cairn
