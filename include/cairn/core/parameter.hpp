#pragma once
// What training changes: a value, its gradient and what an optimizer may know about it. Layers own parameters, an
// arena (core/arena.hpp) gives them memory, optimizers see them as a list. State is indexed by `id`, never by address.

#include <cairn/core/parallel.hpp>
#include <cairn/core/random.hpp>
#include <cairn/core/tensor.hpp>

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

/// One trainable tensor of a layer.
template <class T, Device D = cpu>
struct parameter {
    cairn::shape shape;
    initializer init;
    bool decay = true;   // weight decay and layer-wise trust ratios apply; false for biases and for scale-and-shift
    std::string name;    // path in the model, set by arena
    int id = -1;         // position in the model's list, set by arena
    tensor<T, D> value;  // slice of the arena
    tensor<T, D> grad;   // slice of the arena, same shape; backward adds to it
};

/// What layers that compute in T keep parameters, their gradients and statistics in: float where T has too few digits
/// to add small updates up (bfloat16, float16).
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

/// Appends `inner` to `outer` with "prefix/" in front of each name. Works on parameter and buffer lists.
template <class List>
void append_prefixed(List& outer, const std::string& prefix, List inner) {
    for (auto& entry : inner) {
        entry.name = prefix + '/' + entry.name;
        outer.push_back(std::move(entry));
    }
}

/// Fills `out` from `init`: number i depends on (seed, stream, i) alone.
template <class T>
void fill(std::span<T> out, const initializer& init, random_stream random) {
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
            out[static_cast<std::size_t>(i)] =
                static_cast<T>(init.offset + init.scale * number(static_cast<std::uint64_t>(i)));
    });
}

}  // namespace cairn
