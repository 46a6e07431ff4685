#pragma once
// Optimizers by their names in a workload file:
//   [optimizer] kind = sgd | adam | adamw | lars | lamb, or what another header enters (register_optimizer)
//   weight_decay, decay_all, clip_norm, and of each its own settings
// Kinds of preconditioners (train/preconditioners.hpp, or what a header enters by register_preconditioner) precede one
// of these, optimizer.base, or a plain step.

#include <cairn/comm/any.hpp>
#include <cairn/optim/adam.hpp>
#include <cairn/optim/any_optimizer.hpp>
#include <cairn/optim/clip.hpp>
#include <cairn/optim/lamb.hpp>
#include <cairn/optim/lars.hpp>
#include <cairn/optim/precondition/preconditioner.hpp>
#include <cairn/optim/sgd.hpp>
#include <cairn/parallel/sharded.hpp>
#include <cairn/train/configuration.hpp>
#include <cairn/train/registry.hpp>

#include <algorithm>
#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

namespace detail {

/// This rank's part of a sharded optimizer, or of one whose parameters are a pipeline's stage or slices (sharded.hpp).
struct shard_plan {
    range elements;
    std::function<std::vector<double>(std::vector<double>)> over_ranks;
    std::function<void(std::span<double>)> sum_over_slices;
};

template <class O, Device D>
any_optimizer<float, D> over_part(O o, arena<float, D>& weights, const shard_plan* part) {
    if (part)
        return bound_optimizer(sharded<O>{std::move(o), part->elements, part->over_ranks, part->sum_over_slices},
                               weights);
    return bound_optimizer(std::move(o), weights);
}

/// Clipping by the norm of all gradients wraps any optimizer.
template <class O, Device D>
any_optimizer<float, D> over(configuration& settings, O o, arena<float, D>& weights, const shard_plan* part) {
    const double clip = settings.get("optimizer.clip_norm", 0.0, at_least(0));  // 0: off
    if (clip > 0) return over_part(clipped<O>{std::move(o), by_norm{clip}}, weights, part);
    return over_part(std::move(o), weights, part);
}

}  // namespace detail

/// Maker of an optimizer on D.
template <Device D>
struct optimizer_maker {
    any_optimizer<float, D> (*make)(configuration&, arena<float, D>&, const detail::shard_plan*);
    bool whole_parameters;  // needs norms of them: ranks that share its state cut between parameters
};
template <Device D>
using optimizers = registry<optimizer_maker<D>>;

/// Enters an optimizer. Entry: `name`; make(configuration&), which reads its settings and gives the optimizer.
template <class Entry, class... Targets>
struct register_optimizer {
    register_optimizer() { (enter<typename Targets::device>(), ...); }

private:
    template <Device D>
    static void enter() {
        using O = decltype(Entry::make(std::declval<configuration&>()));
        const auto make = [](configuration& settings, arena<float, D>& weights, const detail::shard_plan* part) {
            return detail::over(settings, Entry::make(settings), weights, part);
        };
        optimizers<D>::global().add(Entry::name, typeid(Entry), {make, !ElementwiseOptimizer<O, float>});
    }
};
template <class Entry>
struct register_optimizer<Entry, entered_elsewhere> {};

namespace detail {

inline double weight_decay(configuration& settings) { return settings.get("optimizer.weight_decay", 0.0, at_least(0)); }

struct sgd_entry {
    static constexpr const char* name = "sgd";
    static sgd make(configuration& settings) {
        return {{.momentum = settings.get("optimizer.momentum", 0.9, from_below(0, 1)),
                 .weight_decay = weight_decay(settings),
                 .nesterov = settings.get("optimizer.nesterov", false)}};
    }
};

struct lars_entry {
    static constexpr const char* name = "lars";
    static lars make(configuration& settings) {
        return {{.momentum = settings.get("optimizer.momentum", 0.9, from_below(0, 1)),
                 .weight_decay = weight_decay(settings),
                 .trust_coefficient = settings.get("optimizer.trust_coefficient", 0.001, above(0))}};
    }
};

/// Adam, AdamW and LAMB have the same settings.
template <class O>
struct adam_entry {
    static constexpr const char* name = O::name;
    static O make(configuration& settings) {
        return {{.beta1 = settings.get("optimizer.beta1", 0.9, from_below(0, 1)),
                 .beta2 = settings.get("optimizer.beta2", 0.999, from_below(0, 1)),
                 .weight_decay = weight_decay(settings)}};
    }
};

static const register_optimizer<sgd_entry, CAIRN_TARGETS> sgd_is_known;
static const register_optimizer<adam_entry<adam>, CAIRN_TARGETS> adam_is_known;
static const register_optimizer<adam_entry<adamw>, CAIRN_TARGETS> adamw_is_known;
static const register_optimizer<lars_entry, CAIRN_TARGETS> lars_is_known;
static const register_optimizer<adam_entry<lamb>, CAIRN_TARGETS> lamb_is_known;

}  // namespace detail

/// Makes a preconditioner of the host. `world`: the ranks that hold these parameters.
using preconditioners =
    registry<std::unique_ptr<preconditioner<float>> (*)(configuration&, arena<float>&, any_communicator& world)>;

/// Enters a preconditioner of the host, which leaves the step to optimizer.base. Entry: `name`; make, as above.
template <class Entry>
struct register_preconditioner {
    register_preconditioner() { preconditioners::global().add(Entry::name, typeid(Entry), &Entry::make); }
};

/// Whether directions of this kind have momentum and lengths of their own: a plain step is taken along them.
inline bool takes_plain_step(const std::string& kind) { return kind == "soap" || kind == "muon"; }

/// The kinds of preconditioners on D. Those that do not take a plain step leave it to optimizer.base.
template <Device D>
std::vector<std::string> preconditioner_names() {
    std::vector<std::string> all{"kfac", "shampoo", "soap", "muon"};
    if constexpr (std::same_as<D, cpu>)  // users' are classes of the host
        for (const std::string& name : preconditioners::global().names()) all.push_back(name);
    return all;
}

namespace detail {

/// Of optimizers and preconditioners.
template <Device D>
std::vector<std::string> optimizer_kinds() {
    std::vector<std::string> all = optimizers<D>::global().names();
    const std::vector<std::string> before = preconditioner_names<D>();
    all.insert(all.end(), before.begin(), before.end());
    return all;
}

/// Throws where optimizer.kind names none of them.
template <Device D>
std::string optimizer_kind(configuration& settings) {
    return settings.choice("optimizer.kind", optimizer_kinds<D>(), "sgd");
}

/// Whether steps are by the gradient over its own size, element by element, so that its length does not count.
inline bool divides_by_gradient(const std::string& kind) { return kind == "adam" || kind == "adamw" || kind == "lamb"; }

/// The learning rate where none is set: papers' and packages' usual one. None of a kind that a user entered.
inline std::optional<double> usual_rate(const std::string& kind) {
    if (kind == "sgd" || kind == "lars") return 0.1;
    if (divides_by_gradient(kind)) return 1e-3;
    if (kind == "soap") return 3e-3;
    if (kind == "muon") return 0.02;
    return std::nullopt;
}

/// Whether the kind leaves its steps to optimizer.base.
template <Device D>
bool has_base(const std::string& kind) {
    const std::vector<std::string> before = preconditioner_names<D>();
    return !takes_plain_step(kind) && std::ranges::find(before, kind) != before.end();
}

}  // namespace detail

/// The optimizer that optimizer.kind names, or that takes the steps of this preconditioner. Throws on other names.
template <Device D>
std::string optimizer_of_steps(configuration& settings) {
    const std::string kind = detail::optimizer_kind<D>(settings);
    return detail::has_base<D>(kind) ? settings.choice("optimizer.base", optimizers<D>::global().names(), "sgd") : kind;
}

/// A workload file's [optimizer] is of its own kind, and may have a table [optimizer.KIND] for each other one. Where
/// the command line names another kind, that kind's table is taken, or its defaults; a preconditioner that leaves its
/// steps to optimizer.base precedes the file's own optimizer; a user's kind, of which no defaults are known, has what
/// the file sets. Likewise a file's [kfac] is for its kfac.step_size, and goes where the command line names another.
/// Returns the settings of the file that are left out.
template <Device D>
std::vector<std::string> choose_optimizer(configuration& settings) {
    const std::string kind = detail::optimizer_kind<D>(settings), own = settings.text_of_file("optimizer.kind", "sgd");
    const std::vector<std::string> kinds = detail::optimizer_kinds<D>();
    for (const std::string& name : preconditioner_names<D>())  // they have sections of their own
        if (name != kind) settings.leave_out(name);
    std::vector<std::string> left_out;
    const bool is_users = !detail::has_base<D>(kind) && !detail::usual_rate(kind);
    if (own != kind && detail::has_base<D>(kind) && optimizers<D>::global().contains(own)) {
        settings.set_default("optimizer.base", own);
    } else if (own != kind && !is_users) {
        std::vector<std::string> stays{"kind", "decay_all", "freeze"};
        if (!takes_plain_step(kind)) stays.push_back("clip_norm");  // which is for gradients
        stays.insert(stays.end(), kinds.begin(), kinds.end());
        left_out = settings.leave_out("optimizer", stays);
    }
    settings.take_table("optimizer", kind, kinds);
    if (kind == "kfac" &&
        settings.text_of_file("kfac.step_size", "graft") != settings.get("kfac.step_size", std::string("graft")))
        for (const std::string& path : settings.leave_out("kfac")) left_out.push_back(path);
    if (const auto lr = detail::usual_rate(optimizer_of_steps<D>(settings))) settings.set_default("optimizer.lr", *lr);
    return left_out;
}

/// The optimizer of the settings over the parameters of `weights`, or over `part` of them. `without_momentum`: what
/// made the gradients has that of sgd (compress/dgc.hpp).
template <Device D>
any_optimizer<float, D> make_optimizer(configuration& settings, arena<float, D>& weights,
                                       const detail::shard_plan* part = nullptr, bool without_momentum = false) {
    const std::string kind = optimizer_of_steps<D>(settings);
    require(!without_momentum || kind == "sgd", "compress.kind = dgc has the momentum of sgd; optimizer.kind is ",
            settings.get("optimizer.kind", std::string("sgd")), ", which steps with ", kind,
            "; take sgd, or another compressor");
    if (settings.get("optimizer.decay_all", false))  // biases and scale-and-shift too
        for (const auto& [name, p] : weights.parameters()) p->decay = true;
    if (!without_momentum && !takes_plain_step(kind))
        return optimizers<D>::global().at("optimizer.kind", kind).make(settings, weights, part);
    sgd step = detail::sgd_entry::make(settings);  // asks for all of its settings
    step.c.momentum = 0;
    step.c.nesterov = false;
    return detail::over(settings, step, weights, part);
}

}  // namespace cairn
