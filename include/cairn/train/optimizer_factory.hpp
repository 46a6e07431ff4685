#pragma once
// Optimizers and schedules by their names in a workload file.
//   [optimizer] kind = sgd | adam | adamw | lars | lamb | kfac | shampoo (both over `base`) | soap | muon
//   [lr_schedule] kind = one_cycle | cosine | step | polynomial | constant

#include <cairn/optim/adam.hpp>
#include <cairn/optim/clip.hpp>
#include <cairn/optim/lamb.hpp>
#include <cairn/optim/lars.hpp>
#include <cairn/optim/lr_schedule.hpp>
#include <cairn/optim/sgd.hpp>
#include <cairn/parallel/sharded.hpp>
#include <cairn/train/any_optimizer.hpp>
#include <cairn/train/configuration.hpp>

namespace cairn {

namespace detail {

/// This rank's part of a sharded optimizer.
struct shard_plan {
    range elements;
    std::function<void(std::span<double>)> sum_over_ranks;
};

template <class O, Device D>
any_optimizer<float, D> over_part(O o, arena<float, D>& weights, const shard_plan* part) {
    if (part) return bound_optimizer(sharded<O>{std::move(o), part->elements, part->sum_over_ranks}, weights);
    return bound_optimizer(std::move(o), weights);
}

// Clipping by the norm of all gradients wraps any optimizer.
template <class O, Device D>
any_optimizer<float, D> over(configuration& settings, O o, arena<float, D>& weights, const shard_plan* part) {
    const double clip = settings.get("optimizer.clip_norm", 0.0);
    require(clip >= 0, "optimizer.clip_norm = ", clip, "; it must be 0 (off) or positive");
    if (clip > 0) return over_part(clipped<O>{std::move(o), by_norm{clip}}, weights, part);
    return over_part(std::move(o), weights, part);
}

}  // namespace detail

inline const std::vector<std::string> optimizer_names{"sgd",  "adam",    "adamw", "lars", "lamb",
                                                      "kfac", "shampoo", "soap",  "muon"};
inline const std::vector<std::string> first_order_names{"sgd", "adam", "adamw", "lars", "lamb"};

/// The optimizer that the settings name, over the parameters of `weights`, or over `part` of them. `without_momentum`:
/// sgd leaves it to whoever made the gradients (compress/dgc.hpp).
template <Device D>
any_optimizer<float, D> make_optimizer(configuration& settings, arena<float, D>& weights,
                                       const detail::shard_plan* part = nullptr, bool without_momentum = false) {
    std::string kind = settings.choice("optimizer.kind", optimizer_names, "sgd");
    const bool own_momentum =
        kind == "soap" || kind == "muon";  // the step is sgd's, along a direction that has momentum
    if (kind == "kfac" || kind == "shampoo") kind = settings.choice("optimizer.base", first_order_names, "sgd");
    require(!without_momentum || kind == "sgd", "compress.kind = dgc has the momentum of sgd; optimizer.kind is ",
            settings.get("optimizer.kind", std::string("sgd")), ", which steps with ", kind,
            "; take sgd, or another compressor");
    if (own_momentum) {
        kind = "sgd";
        without_momentum = true;
    }
    const double decay = settings.get("optimizer.weight_decay", 0.0);
    if (settings.get("optimizer.decay_all", false))  // biases and scale-and-shift too
        for (const auto& [name, p] : weights.parameters()) p->decay = true;
    if (kind == "sgd" || kind == "lars") {
        const double momentum = settings.get("optimizer.momentum", 0.9);
        if (without_momentum) {
            settings.get("optimizer.nesterov", false);
            return detail::over(settings, sgd{{.momentum = 0, .weight_decay = decay}}, weights, part);
        }
        if (kind == "lars")
            return detail::over(settings,
                                lars{{.momentum = momentum,
                                      .weight_decay = decay,
                                      .trust_coefficient = settings.get("optimizer.trust_coefficient", 0.001)}},
                                weights, part);
        return detail::over(
            settings,
            sgd{{.momentum = momentum, .weight_decay = decay, .nesterov = settings.get("optimizer.nesterov", false)}},
            weights, part);
    }
    const double beta1 = settings.get("optimizer.beta1", 0.9), beta2 = settings.get("optimizer.beta2", 0.999);
    if (kind == "lamb")
        return detail::over(settings, lamb{{.beta1 = beta1, .beta2 = beta2, .weight_decay = decay}}, weights, part);
    if (kind == "adamw")
        return detail::over(settings, adamw{{.beta1 = beta1, .beta2 = beta2, .weight_decay = decay}}, weights, part);
    return detail::over(settings, adam{{.beta1 = beta1, .beta2 = beta2, .weight_decay = decay}}, weights, part);
}

/// The schedule that the settings name; `steps` updates in all, `epoch_steps` an epoch.
inline lr_schedule make_lr_schedule(configuration& settings, std::int64_t steps, std::int64_t epoch_steps) {
    const double peak = settings.get("optimizer.lr", 0.1);
    const std::string kind =
        settings.choice("lr_schedule.kind", {"one_cycle", "cosine", "step", "polynomial", "constant"}, "constant");
    if (kind == "one_cycle")
        return one_cycle(steps, peak, settings.get("lr_schedule.pct_start", 0.2),
                         settings.get("lr_schedule.initial_fraction", 0.05));
    const auto rise =
        static_cast<std::int64_t>(settings.get("lr_schedule.warmup_epochs", 0.0) * static_cast<double>(epoch_steps));
    require(rise < steps || rise == 0, "lr_schedule.warmup_epochs: ", rise, " steps of warm-up in a run of ", steps,
            " steps");
    if (kind == "constant") return warmup(rise, 0, constant(peak));
    if (kind == "cosine") return warmup(rise, 0, cosine(steps, peak));
    if (kind == "polynomial") return warmup(rise, 0, polynomial(steps, peak, settings.get("lr_schedule.power", 2.0)));
    std::vector<std::int64_t> milestones;
    for (double epoch : settings.get("lr_schedule.milestones", std::vector<double>{30, 60, 80}))
        milestones.push_back(static_cast<std::int64_t>(epoch * static_cast<double>(epoch_steps)));
    return warmup(rise, 0, step_decay(peak, settings.get("lr_schedule.gamma", 0.1), milestones));
}

}  // namespace cairn
