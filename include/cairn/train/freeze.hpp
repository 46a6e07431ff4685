#pragma once
// optimizer.freeze = ["stem*", "layer1*"]: parameters that stay as they are, by patterns of their paths in the model.
// They have no gradient and no state of the optimizer, weight decay and norms leave them out (core/arena.hpp), backward
// ends behind frozen layers at the front (nn/sequential.hpp), and statistics of frozen batch normalisation stay
// (nn/batch_norm.hpp). Where transfer learning begins: train --init RUN --set 'optimizer.freeze=["stem*"]'.

#include <cairn/core/error.hpp>
#include <cairn/core/parameter.hpp>

#include <fnmatch.h>

#include <algorithm>
#include <string>
#include <vector>

namespace cairn {

/// Freezes those parameters of a model that have no memory yet and whose paths match one of the patterns, which are a
/// shell's: * stands for any text, slashes included, ? for one character, [ab] for one of these. A use of another
/// parameter (parameter::tied_to) goes with that one. Throws where a pattern matches nothing, and where nothing is left
/// to train. Returns how many values are frozen.
template <class T, Device D>
index_t freeze(const parameter_list<T, D>& parameters, const std::vector<std::string>& patterns) {
    std::string paths;
    index_t values = 0, trained = 0;
    std::vector<bool> matched(patterns.size(), false);
    for (const auto& [path, p] : parameters) {
        require(p->value.empty(), "optimizer.freeze: ", path, " has memory already");
        const bool is_use = !p->tied_to.empty();
        for (std::size_t i = 0; i < patterns.size(); ++i)
            if (fnmatch(patterns[i].c_str(), (is_use ? p->tied_to : path).c_str(), 0) == 0)
                p->frozen = matched[i] = true;
        if (is_use) continue;
        (p->frozen ? values : trained) += p->shape.size();
        paths += ' ' + path;
    }
    for (std::size_t i = 0; i < patterns.size(); ++i)
        require(matched[i], "optimizer.freeze: \"", patterns[i], "\" matches no parameter of this model, which has",
                paths, "; * stands for any text, slashes included");
    require(trained > 0 || values == 0,
            "optimizer.freeze: its patterns match all parameters, and nothing is left to train");
    return values;
}

}  // namespace cairn
