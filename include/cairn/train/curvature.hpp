#pragma once
// K-FAC in a training run: its settings, and its statistics over all ranks.
//   [optimizer] kind = "kfac", inner = "sgd" (adam, adamw, lars, lamb), and the inner one's own
//   [kfac] damping, factor_decay, factor_every, decompose_every, kl_clip, form = "eigen" | "inverse", max_size, skip
//   step = "inner" | "quadratic": learning rate, momentum and damping of its own (quadratic_step.hpp) instead of the inner optimizer

#include <cairn/comm/any.hpp>
#include <cairn/comm/collectives/all_reduce.hpp>
#include <cairn/optim/precondition/kfac.hpp>
#include <cairn/train/configuration.hpp>
#include <cairn/train/quadratic_step.hpp>

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace cairn {

/// K-FAC as the settings ask for it, null if optimizer.kind is another.
inline std::unique_ptr<kfac<float>> make_curvature(configuration& settings, arena<float>& weights) {
    if (settings.get("optimizer.kind", std::string("sgd")) != "kfac") return nullptr;
    kfac_config c;
    c.damping = settings.get("kfac.damping", c.damping);
    c.factor_decay = settings.get("kfac.factor_decay", c.factor_decay);
    c.factor_every = settings.get<std::int64_t>("kfac.factor_every", c.factor_every);
    c.decompose_every = settings.get<std::int64_t>("kfac.decompose_every", c.decompose_every);
    c.kl_clip = settings.get("kfac.kl_clip", c.kl_clip);
    c.max_size = settings.get<index>("kfac.max_size", c.max_size);
    c.skip = settings.get("kfac.skip", c.skip);
    c.form =
        settings.choice("kfac.form", {"eigen", "inverse"}, "eigen") == "eigen" ? kfac_form::eigen : kfac_form::inverse;
    return std::make_unique<kfac<float>>(weights, c);
}

/// The step with its own size, null unless kfac.step asks for it.
inline std::unique_ptr<quadratic_step> make_quadratic_step(configuration& settings, arena<float>& weights,
                                                           kfac<float>* curvature) {
    if (!curvature || settings.choice("kfac.step", {"inner", "quadratic"}, "inner") == "inner") return nullptr;
    damping_rule rule;
    rule.lambda = curvature->config().damping;
    rule.every = settings.get<std::int64_t>("kfac.adapt_every", rule.every);
    rule.omega = settings.get("kfac.adapt_by", rule.omega);
    require(rule.omega > 0 && rule.omega <= 1, "kfac.adapt_by = ", rule.omega, "; it must be in (0, 1]");
    return std::make_unique<quadratic_step>(weights, *curvature, rule);
}

/// Collective: the sums of all ranks' rows, on every rank. Of each symmetric sum its upper triangle travels, all in one message. A sum
/// that is not finite on one rank is so on all, which then drop it together.
template <class T>
void sum_statistics(any_communicator& c, kfac<T>& curvature) {
    if (c.size() == 1 || !curvature.takes_statistics()) return;
    const auto each_sum = [&](auto&& visit) {
        for (auto& b : curvature.blocks())
            for (auto* factors : {&b.a, &b.g})
                for (auto& f : *factors) visit(f.batch(), f.size());
    };
    index total = 0;
    each_sum([&](tensor<T>&, index n) { total += n * (n + 1) / 2; });
    std::vector<double> rows;
    for (auto& b : curvature.blocks()) rows.push_back(static_cast<double>(b.rows));
    std::array<double, 2> sizes{static_cast<double>(total), -static_cast<double>(total)};
    all_reduce(c, std::span<double>(sizes), {.op = reduction::max});
    require(sizes[0] == -sizes[1], "kfac: the ranks know different layers: ", -sizes[1], " and ", sizes[0],
            " numbers of statistics; does a rank have no samples in the first step?");
    all_reduce(c, std::span<double>(rows), {.subject = "rows of kfac's layers"});
    tensor<T> packed({total}, category::communication);
    T* at = packed.data();
    each_sum([&](tensor<T>& sum, index n) {
        for (index r = 0; r < n; at += n - r, ++r) std::copy_n(sum.data() + r * n + r, n - r, at);
    });
    all_reduce(c, packed.span(), {.subject = "kfac's factors"});
    at = packed.data();
    each_sum([&](tensor<T>& sum, index n) {
        for (index r = 0; r < n; ++r)
            for (index k = r; k < n; ++k) sum[r * n + k] = sum[k * n + r] = *at++;
    });
    for (std::size_t i = 0; i < rows.size(); ++i) curvature.blocks()[i].rows = static_cast<index>(rows[i]);
}

}  // namespace cairn
