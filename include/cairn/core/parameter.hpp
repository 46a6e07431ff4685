#pragma once
// A trainable tensor: its value, its gradient, and its properties for optimizers. Layers own parameters, an arena
// (core/arena.hpp) gives them memory, optimizers see them as a list. State is indexed by `id`, never by address.
// Path and layout in the whole model identify a parameter: a stage, a slice and a rank start with exactly the numbers
// of one rank with the whole model.

#include <cairn/core/parallel.hpp>
#include <cairn/core/random.hpp>
#include <cairn/core/tensor.hpp>

#include <algorithm>
#include <array>
#include <string>
#include <type_traits>
#include <vector>

namespace cairn {

/// How a parameter starts: value i = offset + scale × (a number of the distribution).
struct initializer {
    enum class distribution { constant, uniform, normal, truncated_normal } kind = distribution::constant;
    double scale = 0;   // half width of uniform, standard deviation of normal
    double offset = 0;  // mean; the value itself for constant
};

/// Position of a parameter's tensor within that of the whole model. By default the tensor is the whole, on one rank.
struct parameter_layout {
    shape global;                                   // of the whole parameter; without axes: the tensor is the whole
    std::array<index_t, shape::max_rank> begin{};   // first index of the slice on this rank, by axis
    std::vector<std::string> replicated_over = {};  // mesh axes along which ranks hold the same slice
    index_t parts = 1;  // axis 0 of the whole is so many equal arrays one after another, each cut alike: Q, K and V

    bool is_whole() const { return global.rank() == 0; }

    /// Position in the whole parameter, row-major, of element i of the slice, whose shape is `here`.
    index_t global_index(const shape& here, index_t i) const {
        if (is_whole()) return i;
        index_t position = 0, stride = 1;
        for (int axis = here.rank(); axis-- > 0;) {
            const index_t rows = axis ? here[axis] : here[0] / parts;  // of one part
            index_t at = begin[static_cast<std::size_t>(axis)] + i % here[axis] % rows;
            if (axis == 0) at += i / rows * (global[0] / parts);
            position += at * stride;
            i /= here[axis];
            stride *= global[axis];
        }
        return position;
    }

    /// Whether a slice of shape `here` lies within the whole parameter.
    bool fits(const shape& here) const {
        bool inside = is_whole() || here.rank() == global.rank();
        for (int axis = 0; inside && axis < global.rank(); ++axis) {
            const index_t first = begin[static_cast<std::size_t>(axis)], cut = axis ? 1 : parts;
            inside = cut >= 1 && here[axis] % cut == 0 && global[axis] % cut == 0 && first >= 0 &&
                     first + here[axis] / cut <= global[axis] / cut;
        }
        return inside;
    }
};

/// One trainable tensor of a layer.
template <class T, Device D = cpu>
struct parameter {
    cairn::shape shape;
    initializer init;
    bool decay = true;  // weight decay and layer-wise trust ratios apply; false for biases and for scale-and-shift
    // A preconditioner gives gradients of root mean square 1: optimizers neither clip them nor divide by their size.
    bool unit_gradient = false;
    bool frozen = false;           // stays as it is: no gradient, no state of optimizers; set before an arena is made
    parameter_layout layout = {};  // in the whole model
    std::string tied_to = {};      // path of the parameter whose values these are (core/arena.hpp); empty: its own
    std::string name;              // path in the whole model, set by arena
    int id = -1;                   // position in the model's list, set by arena; that of tied_to; −1: it is elsewhere
    tensor<T, D> value;            // slice of the arena
    tensor<T, D> grad;             // slice of the arena, same shape; backward adds to it
};

/// Type of parameters, gradients and statistics of layers that compute in T: float where T has too few digits for small
/// updates (bfloat16, float16).
template <class T>
using weight_of = std::conditional_t<sizeof(T) < sizeof(float), float, T>;

/// A parameter and its path in the model, "layer2/0/conv1/weight".
template <class T, Device D = cpu>
struct parameter_ref {
    std::string name;
    parameter<T, D>* p;
};
template <class T, Device D = cpu>
using parameter_list = std::vector<parameter_ref<T, D>>;

/// A tensor that belongs to a model's state but is not trained: running mean and variance.
template <class T, Device D = cpu>
struct buffer_ref {
    std::string name;
    tensor<T, D>* t;
};
template <class T, Device D = cpu>
using buffer_list = std::vector<buffer_ref<T, D>>;

/// Of layers that compute in T.
template <class T, Device D = cpu>
using layer_parameter = parameter<weight_of<T>, D>;
template <class T, Device D = cpu>
using layer_parameters = parameter_list<weight_of<T>, D>;
template <class T, Device D = cpu>
using layer_buffers = buffer_list<weight_of<T>, D>;

/// Appends `inner` to `outer` with "prefix/" in front of each name; an empty prefix adds nothing. Works on parameter
/// and buffer lists.
template <class List>
void append_prefixed(List& outer, const std::string& prefix, List inner) {
    for (auto& entry : inner) {
        if (!prefix.empty()) entry.name = prefix + '/' + entry.name;
        outer.push_back(std::move(entry));
    }
}

/// Fills `out`, a slice of shape `here`, from `init`: number i of the whole parameter depends on (random, i) alone.
template <class T>
void fill(std::span<T> out, const initializer& init, random_stream random, const shape& here,
          const parameter_layout& layout) {
    using kind = initializer::distribution;
    const auto number = [&](std::uint64_t i) {
        if (init.kind == kind::uniform) return 2.0 * random.uniform(i) - 1.0;
        if (init.kind == kind::constant) return 0.0;
        double drawn = random.normal(i);
        if (init.kind == kind::truncated_normal)  // redrawn until within two standard deviations
            for (std::uint32_t again = 1; std::abs(drawn) > 2.0; ++again)
                drawn = random_stream{random.seed, random.stream, random.step + again}.normal(i);
        return drawn;
    };
    parallel_for(static_cast<index_t>(out.size()), 4096, [&](index_t begin, index_t end) {
        for (index_t i = begin; i < end; ++i)
            out[static_cast<std::size_t>(i)] = static_cast<T>(
                init.offset + init.scale * number(static_cast<std::uint64_t>(layout.global_index(here, i))));
    });
}

/// The same of a whole tensor.
template <class T>
void fill(std::span<T> out, const initializer& init, random_stream random) {
    fill(out, init, random, {static_cast<index_t>(out.size())}, {});
}

}  // namespace cairn
