#pragma once
// Preconditioners in a training run, by their names in a workload file.
//   [optimizer] kind = "kfac" or "shampoo", base = "sgd" (adam, adamw, lars, lamb), and the base optimizer's settings
//   [optimizer] kind = "soap" or "muon": they bring their own momentum
//   [kfac] damping, factor_decay, factor_update_interval, inverse_update_interval, inverse_staleness, kl_clip,
//          norm_limit, form = "eigen" | "inverse", sharing = "expand" | "reduce",
//          scaling = "kfc" | "kfac_pytorch", fisher = "empirical" | "mc" (Monte Carlo), max_size, skip, norm_layers,
//          example_stride, position_stride
//     spatial = "full" | "uncorrelated": one factor for all points of a convolution's kernel, or a small one for each
//     step_size = "graft": directions as long as their gradients, or of root mean square 1 before Adam, AdamW, LAMB |
//          "clip": by kl_clip and norm_limit |
//          "quadratic_model": its learning rate, momentum and damping (quadratic_step.hpp; damping_interval,
//          damping_decay, min_damping), of one example in model_example_stride
//     on several ranks: grad_worker_fraction (1; 0: chosen), statistics = "all" | "sharded" | "local",
//          colocate_factors, assignment_strategy = "time" | "memory", memory_limit_mb, compress = "none" | "bf16" |
//          "fp16" | "error_bounded" of sums and its compress_bound, broadcast_error_bound: of decompositions and
//          directions that travel
//   [shampoo], [soap], [muon]: see their files in optim/precondition/

#include <cairn/comm/any.hpp>
#include <cairn/optim/precondition/kfac.hpp>
#include <cairn/optim/precondition/muon.hpp>
#include <cairn/optim/precondition/quadratic_step.hpp>
#include <cairn/optim/precondition/shampoo.hpp>
#include <cairn/optim/precondition/soap.hpp>
#include <cairn/parallel/kfac_ranks.hpp>
#include <cairn/train/compressors.hpp>
#include <cairn/train/configuration.hpp>
#include <cairn/train/optimizers.hpp>

#include <memory>
#include <string>
#include <vector>

namespace cairn {

/// One sample in so many makes statistics with labels that the model draws; 0: the data's labels make them.
inline index_t mc_label_stride(configuration& settings) {
    if (settings.get("optimizer.kind", std::string("sgd")) != "kfac") return 0;
    if (settings.choice("kfac.fisher", {"empirical", "mc"}, "empirical") == "empirical") return 0;
    return settings.get<index_t>("kfac.example_stride", 1, at_least(1));
}

namespace detail {

inline std::string kfac_step_size(configuration& settings) {
    return settings.choice("kfac.step_size", {"graft", "clip", "quadratic_model"}, "graft");
}

/// `base`: the optimizer that takes the steps.
inline kfac_config read_kfac_config(configuration& settings, const std::string& base) {
    kfac_config c;
    const auto is = [&](const char* name, const std::vector<std::string>& values) {
        return settings.choice(name, values, values[0]) != values[0];
    };
    c.damping = settings.get("kfac.damping", c.damping, above(0));
    c.factor_decay = settings.get("kfac.factor_decay", c.factor_decay, from_below(0, 1));
    c.factor_update_interval =
        settings.get<std::int64_t>("kfac.factor_update_interval", c.factor_update_interval, at_least(1));
    c.inverse_update_interval =
        settings.get<std::int64_t>("kfac.inverse_update_interval", c.inverse_update_interval, at_least(1));
    c.inverse_staleness = settings.get<std::int64_t>("kfac.inverse_staleness", c.inverse_staleness,
                                                     from_to(0, static_cast<double>(c.inverse_update_interval - 1)));
    const std::string size = kfac_step_size(settings);
    if (size == "graft") c.length = divides_by_gradient(base) ? direction_length::unit : direction_length::of_gradient;
    if (size == "clip") {
        c.kl_clip = settings.get("kfac.kl_clip", c.kl_clip, at_least(0));
        c.norm_limit = settings.get("kfac.norm_limit", c.norm_limit, at_least(0));
    }
    c.norm_layers = settings.get("kfac.norm_layers", c.norm_layers);
    c.max_size = settings.get<index_t>("kfac.max_size", c.max_size, at_least(1));
    c.skip = settings.get("kfac.skip", c.skip);
    c.form = is("kfac.form", {"inverse", "eigen"}) ? kfac_form::eigen : kfac_form::inverse;
    c.sharing = is("kfac.sharing", {"expand", "reduce"}) ? weight_sharing::reduce : weight_sharing::expand;
    c.scaling = is("kfac.scaling", {"kfc", "kfac_pytorch"}) ? kfac_scaling::kfac_pytorch : kfac_scaling::kfc;
    c.spatial = is("kfac.spatial", {"full", "uncorrelated"}) ? kfac_spatial::uncorrelated : kfac_spatial::full;
    c.sample.examples = settings.get<index_t>("kfac.example_stride", 1, at_least(1));
    c.sample.positions = settings.get<index_t>("kfac.position_stride", 0, at_least(0));
    if (const index_t stride = mc_label_stride(settings)) {  // the pass with drawn labels is of those samples alone
        c.sample.examples = 1;
        c.rows_per_dimension *= stride;
    }
    return c;
}

/// How ranks share the work; and the compressor of sums, with its bound. A run that one rank saved has all of it in its
/// settings.
struct kfac_ranks_settings {
    kfac_ranks_config how;
    std::string compress;
    double compress_bound;
};

inline kfac_ranks_settings read_kfac_ranks(configuration& settings) {
    kfac_ranks_config c;
    const std::string statistics = settings.choice("kfac.statistics", {"all", "sharded", "local"}, "all");
    c.statistics = statistics == "all"       ? kfac_statistics::all
                   : statistics == "sharded" ? kfac_statistics::sharded
                                             : kfac_statistics::local;
    c.place.grad_worker_fraction = settings.get("kfac.grad_worker_fraction", 1.0, from_to(0, 1));
    c.place.colocate_factors = settings.get("kfac.colocate_factors", true);
    const bool by_memory = settings.choice("kfac.assignment_strategy", {"time", "memory"}, "time") == "memory";
    c.place.strategy = by_memory ? kfac_assignment_strategy::memory : kfac_assignment_strategy::time;
    c.memory_limit = static_cast<index_t>(settings.get("kfac.memory_limit_mb", 0.0, from_to(0, 1e8)) * 0x1p20);
    c.broadcast_error_bound = settings.get("kfac.broadcast_error_bound", 0.0, from_to(0, 1));
    require(c.memory_limit == 0 || c.place.grad_worker_fraction == 0,
            "kfac.memory_limit_mb limits the choice of an assignment: set kfac.grad_worker_fraction = 0 too");
    return {c, settings.choice("kfac.compress", {"none", "bf16", "fp16", "error_bounded"}, "none"),
            settings.get("kfac.compress_bound", 1e-3, above_to(0, 1))};
}

/// Factors are no gradients: what keeps residuals or draws random numbers does not fit.
inline reduction_method<cpu> hook_of_factors(const kfac_ranks_settings& read) {
    if (read.compress == "bf16") return as_messages([](const bucket_place&) { return bf16<cpu>{}; }, false);
    if (read.compress == "fp16") return as_messages([](const bucket_place&) { return fp16<cpu>{}; }, false);
    return as_messages([bound = read.compress_bound](const bucket_place&) { return error_bounded({.bound = bound}); },
                       false);
}

inline void require_fits_one_rank(const kfac_ranks_config& c) {
    if (c.place.grad_worker_fraction != 0) kfac_assignment(1, {}, c.place);  // says what does not fit
}

inline std::unique_ptr<kfac_work_assignment<float>> read_kfac_work_assignment(cpu, configuration& settings,
                                                                              any_communicator& world,
                                                                              channel<any_communicator>* /*over*/) {
    const kfac_ranks_settings read = read_kfac_ranks(settings);
    const kfac_ranks_config& c = read.how;
    if (world.size() == 1) {
        require_fits_one_rank(c);
        return std::make_unique<kfac_work_assignment<float>>();
    }
    typename kfac_ranks<any_communicator>::hook_factory method;
    if (read.compress != "none")
        method = [how = hook_of_factors(read), ranks = world.size(), rank = world.rank()](index_t n) {
            return how.hook_of({bucket_layout{}, n, ranks, rank});
        };
    return std::make_unique<kfac_ranks<any_communicator>>(world, c, std::move(method));
}

template <GridDevice D>
std::unique_ptr<kfac_work_assignment<float, D>> read_kfac_work_assignment(D, configuration& settings,
                                                                          any_communicator& /*world*/,
                                                                          channel<any_communicator>* over) {
    const kfac_ranks_settings read = read_kfac_ranks(settings);
    if (!over || over->size() == 1) {
        require_fits_one_rank(read.how);
        return std::make_unique<kfac_work_assignment<float, D>>();
    }
    require(read.compress == "none" && read.how.broadcast_error_bound == 0, "on ", D::name,
            " kfac.compress must be none and kfac.broadcast_error_bound 0: other values are for the host");
    return std::make_unique<kfac_ranks<any_communicator, float, D>>(*over, read.how);
}

/// Shampoo, SOAP or Muon, null for what is none of them. Ranks with the same gradients make the same directions, each
/// for itself.
template <Device D>
std::unique_ptr<preconditioner<float, D>> make_matrix_preconditioner(configuration& settings, arena<float, D>& weights,
                                                                     const std::string& kind) {
    if (kind == "shampoo") {
        shampoo_config c;
        c.block = settings.get<index_t>("shampoo.block", c.block, at_least(1));
        c.refresh_every = settings.get<std::int64_t>("shampoo.refresh_every", c.refresh_every, at_least(1));
        c.epsilon = settings.get("shampoo.epsilon", c.epsilon, at_least(0));
        c.decay = settings.get("shampoo.decay", c.decay, above_to(0, 1));
        c.unit = divides_by_gradient(optimizer_of_steps<D>(settings));
        return std::make_unique<shampoo<float, D>>(weights, c);
    }
    if (kind == "soap") {
        soap_config c;
        c.beta1 = settings.get("soap.beta1", c.beta1, from_below(0, 1));
        c.beta2 = settings.get("soap.beta2", c.beta2, from_below(0, 1));
        c.epsilon = settings.get("soap.epsilon", c.epsilon, above(0));
        c.refresh_every = settings.get<std::int64_t>("soap.refresh_every", c.refresh_every, at_least(1));
        c.max_size = settings.get<index_t>("soap.max_size", c.max_size, at_least(1));
        return std::make_unique<soap<float, D>>(weights, c);
    }
    if (kind == "muon") {
        muon_config c;
        c.momentum = settings.get("muon.momentum", c.momentum, from_below(0, 1));
        c.nesterov = settings.get("muon.nesterov", c.nesterov);
        c.adam_lr_ratio = settings.get("muon.adam_lr_ratio", c.adam_lr_ratio, at_least(0));
        c.skip = settings.get("muon.skip", c.skip);
        return std::make_unique<muon<float, D>>(weights, c);
    }
    return nullptr;
}

}  // namespace detail

/// The preconditioner that the settings ask for, null if they ask for none. `world`: the ranks that hold these
/// parameters and share its work; on a device they send tensors `over`, which must outlive the preconditioner, and is
/// null for one rank. On several ranks collective.
template <Device D>
std::unique_ptr<preconditioner<float, D>> make_preconditioner(configuration& settings, arena<float, D>& weights,
                                                              any_communicator& world,
                                                              channel<any_communicator>* over = nullptr) {
    const std::string kind = settings.get("optimizer.kind", std::string("sgd"));
    if (kind == "kfac") {
        kfac_config c = detail::read_kfac_config(settings, optimizer_of_steps<D>(settings));
        return std::make_unique<kfac<float, D>>(weights, std::move(c),
                                                detail::read_kfac_work_assignment(D{}, settings, world, over));
    }
    if constexpr (std::same_as<D, cpu>)  // users' are classes of the host
        if (preconditioners::global().contains(kind))
            return preconditioners::global().at("optimizer.kind", kind)(settings, weights, world);
    return detail::make_matrix_preconditioner(settings, weights, kind);
}

/// The step with its own size, null unless kfac.step_size asks for it.
template <Device D>
std::unique_ptr<quadratic_step<D>> make_quadratic_step(configuration& settings, arena<float, D>& weights,
                                                       preconditioner<float, D>* p) {
    auto* const curvature = dynamic_cast<kfac<float, D>*>(p);
    if (!curvature || detail::kfac_step_size(settings) != "quadratic_model") return nullptr;
    const auto pieces = settings.get<index_t>("train.micro_batches", 1, at_least(1));
    require(pieces == 1,
            "kfac.step_size = quadratic_model runs forward several times on a whole batch: one micro-batch a step, "
            "here there are ",
            pieces, "; kfac.step_size = graft and clip are for any");
    damping_rule rule;
    rule.lambda = curvature->config().damping;
    rule.every = settings.get<std::int64_t>("kfac.damping_interval", rule.every, at_least(1));
    rule.omega = settings.get("kfac.damping_decay", rule.omega, above_to(0, 1));
    rule.least = settings.get("kfac.min_damping", rule.least, at_least(0));
    return std::make_unique<quadratic_step<D>>(weights, *curvature, rule);
}

}  // namespace cairn
