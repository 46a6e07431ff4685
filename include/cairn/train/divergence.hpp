#pragma once
// Training that diverges: a loss that is not finite, and why (why_not_finite); a loss that grows to a multiple of what
// it was at the start (divergence_watch), and which weights grew most.

#include <cairn/core/arena.hpp>
#include <cairn/core/finite.hpp>
#include <cairn/core/float16.hpp>
#include <cairn/nn/cast.hpp>
#include <cairn/nn/sequential.hpp>
#include <cairn/optim/norm.hpp>
#include <cairn/train/configuration.hpp>
#include <cairn/train/step_hook.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

struct non_finite_reason {
    std::string text = {};    // "": none
    bool of_samples = false;  // training is not to blame, and another rate no help
};

/// Why the loss of a micro-batch is not finite: its samples, a parameter, the first layer whose output is not, or the
/// loss itself. Layers run forward again, one by one, with the same pass and so with the same bits. Names the step and
/// the first thing to blame. `p`: the pass of these samples in that step; other ranks do not take
/// part.
template <class T, Device D>
non_finite_reason why_not_finite(sequential<T, D>& model, const arena<float, D>& weights,
                                 const device_batch<D>& samples, pass_context p, std::int64_t step, double loss) {
    const std::string where = concat("step ", step, ": loss is ", loss, "; ");
    const std::string advice =
        concat("; lower the learning rate, warm up, or clip gradients",
               std::same_as<T, float16> ? ", or take train.precision = bf16, which has float's range" : "");
    if (!samples.host.targets.empty() && first_non_finite(samples.host.targets))
        return {where + "a target of the batch is not finite (sample data, not training)", true};
    if (first_non_finite(samples.there.x))
        return {where + "the input batch holds a value that is not finite (sample data, not training)", true};
    for (const auto& [name, parameter] : weights.parameters())
        if (first_non_finite(parameter->value)) return {concat(where, "parameter ", name, " is not finite", advice)};
    p.repeated = true;
    p.group = nullptr;
    p.curvature = nullptr;
    saved_tensors<T, D> scratch;
    tensor<T, D> x = cast<T>(samples.there.x.share());
    for (int i = 0; i < model.size(); ++i) {
        x = model[i].forward(std::move(x), scratch.child(i), model.context_of(i, p));
        if (first_non_finite(cast<float>(x)))
            return {concat(where, "the first layer with a non-finite output is ", model.name(i), " (",
                           model[i].describe(), ')', advice)};
    }
    return {concat(where, "all layers give finite outputs: the loss itself overflows", advice)};
}

/// The same of micro-batch m of a step, on a rank that has the last stage. It names no layer where it would need other
/// ranks to run them: of a pipeline, and where ranks share layers.
template <class T, Device D>
non_finite_reason why_not_finite(const training_step<D, T>& now, int m, double loss, bool layers_are_shared) {
    if (!now.model.is_pipeline() && !layers_are_shared)
        return why_not_finite(now.model.stages().front().layers(), now.model.weights(), now.batch[m],
                              now.pass_of(now.batch[m]), now.number + 1, loss);
    return {concat("step ", now.number + 1, ": loss is ", loss,
                   " at the end of the model; lower the learning rate, warm up, or clip gradients")};
}

/// The loss at the start, a mean over the first steps until they have 32 labels, and the mean loss of late: every 32
/// labels, or every step of more, weigh 0.9 of the next ones.
struct divergence_watch {
    static constexpr double multiple = 5, least_labels = 32, decay = 0.9;

    double labels = 0;              // of the start
    double start = 0;               // mean loss over them
    double recent = 0, weight = 0;  // sum of losses and of their weights
    double most = 0;                // the mean of late was this multiple of the start

    /// Takes the loss of a step, equal on all ranks, a mean over so many labels. Returns whether the mean of late is
    /// above `multiple` times the start. A loss that starts at 0 or below has no multiples.
    bool take(double loss, double of_labels) {
        const double share = std::min(1.0, of_labels / least_labels), keep = std::pow(decay, share);
        recent = keep * recent + share * loss;
        weight = keep * weight + share;
        if (labels < least_labels) {
            // A run may diverge in its second step: a multiple is not part of the start.
            const double bounded = start > 0 ? std::min(loss, multiple * start) : loss;
            labels += of_labels;
            start += (bounded - start) * of_labels / labels;
            if (labels < least_labels) return false;
        }
        if (start > 0) most = std::max(most, of_late() / start);
        return start > 0 && of_late() > multiple * start;
    }
    double of_late() const { return recent / weight; }
};

/// Lengths of all weights, to tell later how much each has grown.
template <Device D>
class weight_growth {
public:
    /// Waits for a device.
    explicit weight_growth(const arena<float, D>& weights) : weights_(weights), start_(lengths()) {}

    /// The parameter that has grown most since, and how many times as long it is. Those that began at zero are left
    /// out; a model without others gives "" and 0.
    std::pair<std::string, double> largest() const {
        std::pair<std::string, double> most{"", 0};
        const std::vector<double> now = lengths();
        for (std::size_t i = 0; i < now.size(); ++i)
            if (start_[i] > 0 && now[i] / start_[i] > most.second)
                most = {weights_.parameters()[i].name, now[i] / start_[i]};
        return most;
    }

private:
    std::vector<double> lengths() const {
        std::vector<double> all;
        for (const auto& [name, p] : weights_.parameters()) all.push_back(norm(p->value));
        return all;
    }

    const arena<float, D>& weights_;
    std::vector<double> start_;
};

/// The two settings that help most often where a run diverges, as --set takes them: first what makes steps too long
/// whatever the rate is. `steps`: of the run until then. What diverges in its first ones has a rate that is too high by
/// more than a power of ten.
inline std::pair<std::string, std::string> remedies_of_divergence(configuration& s, std::int64_t steps) {
    std::vector<std::string> all;
    if (s.get("optimizer.kind", "sgd") == "kfac" && s.has("kfac.step_size") && s.get("kfac.step_size", "") != "graft")
        all.push_back("kfac.step_size=graft");
    if (s.has("optimizer.momentum") && s.get("optimizer.momentum", 0.9, from_below(0, 1)) > 0.95)
        all.push_back("optimizer.momentum=0.9");
    all.push_back(concat("optimizer.lr=", s.get("optimizer.lr", 0.1, at_least(0)) / (steps < 8 ? 100 : 10)));
    if (!s.has("optimizer.clip_norm") || s.get("optimizer.clip_norm", 0.0, at_least(0)) == 0)
        all.push_back("optimizer.clip_norm=1");
    all.push_back("lr_schedule.kind=one_cycle");
    return {all[0], all[1]};
}

}  // namespace cairn
