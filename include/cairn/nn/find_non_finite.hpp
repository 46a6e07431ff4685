#pragma once
// After a loss that is not a number: which layer was the first to compute something that is not finite? Forward is run
// again, layer by layer, with the same pass and so with the same bits, and every result is looked through.

#include <cairn/core/finite.hpp>
#include <cairn/nn/sequential.hpp>

#include <string>

namespace cairn {

/// "the output of layer conv2, linear 8 -> 4 (element 17 of (8, 4) is nan)", "the input …", or "" when all are finite.
/// `saved` is empty. Containers inside a sequential are opened when they are sequential themselves. Costs a
/// forward pass and a read of each result.
template <class T>
std::string first_non_finite(sequential<T, cpu>& model, tensor<T, cpu> x, pass_context p, saved_tensors<T, cpu>& saved,
                             const std::string& prefix = "") {
    p.repeated = true;  // running statistics stay as they are
    p.curvature = nullptr;
    const auto describe = [](const auto& what, const tensor<T, cpu>& t, index_t at) {
        return concat(what, " (element ", at, " of ", t.shape(), " is ", static_cast<double>(t[at]), ')');
    };
    if (const auto at = first_non_finite(x))
        return describe(prefix.empty() ? "the input" : "the input of " + prefix, x, *at);
    for (int i = 0; i < model.size(); ++i) {
        const std::string name = prefix.empty() ? model.name(i) : prefix + '/' + model.name(i);
        tensor<T, cpu> y = model[i].forward(x.share(), saved.child(i), model.context_of(i, p));
        saved.child(i).clear();
        if (const auto at = first_non_finite(y)) {
            if (auto* inner = model[i].template as<sequential<T, cpu>>())
                return first_non_finite(*inner, std::move(x), model.context_of(i, p), saved.child(i), name);
            return describe(concat("the output of layer ", name, ", ", model[i].describe()), y, *at);
        }
        x = std::move(y);
    }
    return {};
}

/// The same with saved_tensors of its own.
template <class T>
std::string first_non_finite(sequential<T, cpu>& model, tensor<T, cpu> x, const pass_context& p) {
    saved_tensors<T, cpu> saved;
    return first_non_finite(model, std::move(x), p, saved);
}

}  // namespace cairn
