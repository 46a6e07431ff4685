#pragma once
// The variables of an ADMM algorithm, as lists of named tensors and numbers: for checkpoints, and for Anderson's
// acceleration, which mixes all of them.

#include <cairn/admm/split_layer.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace cairn::admm {

/// A handle to a tensor that iterations change. Over ranks a tensor may lie on two: sums count the one that `counts`.
template <class T>
struct variable {
    std::string name;  // "z/fc1"
    tensor<T> value;
    int layer = 0;  // in the whole model: sums over ranks are added in this order
    bool counts = true;
    bool is_weight = false;  // of the model, which has it already
};
template <class T>
using variable_list = std::vector<variable<T>>;

using number_list = std::vector<std::pair<std::string, double*>>;
using counter_list = std::vector<std::pair<std::string, std::int64_t*>>;

/// Weights and biases; `first`: number of the first layer in the whole model.
template <class T>
variable_list<T> weights_of(const std::vector<split_layer<T>>& layers, int first) {
    variable_list<T> all;
    for (const split_layer<T>& l : layers) {
        const int number = first + static_cast<int>(&l - layers.data());
        all.push_back({l.name + "/weight", l.weight.share(), number, true, true});
        if (!l.bias.empty()) all.push_back({l.name + "/bias", l.bias.share(), number, true, true});
    }
    return all;
}

}  // namespace cairn::admm
