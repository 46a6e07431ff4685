#pragma once
// Training without gradients: train.algorithm = dladmm | pdadmm (admm/dladmm.hpp, admm/pdadmm.hpp). A step is one
// iteration over the whole training set, which stays in memory: one step an epoch. The algorithm trains the weights of
// the model's arena itself, so that tests, checkpoints and records see the model as they do any other.
//   [admm] rho, nu, mu, solver, init, init_scale, adaptive_rho, rho_factor, max_rho, acceleration, memory, relaxation,
//          proximal, quantise
// Logged: loss = the objective, a sample; split_loss = its part that is the loss of z_L; residual; rho, nu; gflop.

#include <cairn/admm/anderson.hpp>
#include <cairn/admm/dladmm.hpp>
#include <cairn/admm/pdadmm.hpp>
#include <cairn/admm/split_chain.hpp>
#include <cairn/comm/any.hpp>
#include <cairn/compress/bf16.hpp>
#include <cairn/compress/error_bounded.hpp>
#include <cairn/compress/fp16.hpp>
#include <cairn/compress/natural.hpp>
#include <cairn/compress/qsgd.hpp>
#include <cairn/core/finite.hpp>
#include <cairn/core/flop_counter.hpp>
#include <cairn/train/objectives.hpp>
#include <cairn/train/run_parts.hpp>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// Settings of [admm].
struct admm_settings {
    admm::dladmm_config serial;
    admm::pdadmm_config parallel;
    int anderson_memory = 0;  // 0: none
};

namespace detail {

inline admm::exchange_codec make_codec(configuration& settings) {
    const std::string name =
        settings.choice("admm.quantise", {"none", "bf16", "fp16", "natural", "qsgd", "error_bounded"}, "none");
    if (name == "bf16") return admm::codec_of(bf16<cpu>{});
    if (name == "fp16") return admm::codec_of(fp16<cpu>{});
    if (name == "natural") return admm::codec_of(natural<cpu>{});
    if (name == "qsgd")
        return admm::codec_of(qsgd<cpu>({.levels = settings.get("compress.levels", 127, from_to(1, 255))}));
    if (name == "error_bounded")
        return admm::codec_of(error_bounded({.bound = settings.get("compress.bound", 1e-3, above_to(0, 1))}));
    return {};
}

}  // namespace detail

/// Reads [admm], for so many samples. Throws on settings that do not fit together.
inline admm_settings read_admm(configuration& settings, const std::string& algorithm, std::uint64_t seed,
                               index_t samples) {
    // Of weights' Gram matrices, which are sums over samples; chosen on held-out images (course/admm.md).
    constexpr double ridge_of_a_sample = 2e-3;
    admm_settings s;
    const bool parallel = algorithm == "pdadmm";
    admm::pdadmm_config& p = s.parallel;
    p.rho = settings.get("admm.rho", parallel ? p.rho : s.serial.rho, above(0));
    if (parallel) p.nu = settings.get("admm.nu", p.nu, above(0));
    const double tie = parallel ? p.nu : p.rho;  // the weight of |z - Wa - b|^2: weights see mu over it
    p.mu = settings.get("admm.mu", ridge_of_a_sample * tie * static_cast<double>(samples), at_least(0));
    p.solver = settings.choice("admm.solver", {"exact", "gradient"}, "exact") == "exact" ? admm::block_solver::exact
                                                                                         : admm::block_solver::gradient;
    const std::string adaptive = settings.choice("admm.adaptive_rho", {"none", "rising", "growing"}, "none");
    if (adaptive != "none")
        p.schedule = {adaptive == "rising" ? admm::rho_rule::rising : admm::rho_rule::growing,
                      settings.get("admm.rho_factor", adaptive == "rising" ? 10.0 : 1.2, above(1)),
                      settings.get("admm.max_rho", adaptive == "rising" ? 0.1 : 1.0, above(0))};
    const std::string acceleration = settings.choice("admm.acceleration", {"none", "anderson", "relaxation"}, "none");
    if (acceleration == "anderson") s.anderson_memory = settings.get("admm.memory", 4, from_to(1, 64));
    if (parallel) {
        p.proximal = settings.get("admm.proximal", false);
        p.codec = detail::make_codec(settings);
        p.seed = seed;
    }
    if (acceleration == "relaxation") {
        require(parallel,
                "admm.acceleration = relaxation is for train.algorithm = pdadmm, whose q and u see a relaxed "
                "p; dladmm has none: take anderson");
        p.relaxation = settings.get("admm.relaxation", 1.5, from_below(0.1, 2));
    }
    require(!s.anderson_memory || !p.codec,
            "admm.acceleration = anderson mixes p and q, which admm.quantise = ", p.codec.name,
            " keeps on a grid: take one of the two");
    s.serial = {p.rho, p.mu, p.solver, p.schedule};
    return s;
}

/// All training samples, in the order of the data set. Throws on numbers that are not finite, and on samples that
/// change from epoch to epoch.
inline batch read_all_samples(const any_dataset& data, std::uint64_t seed, const std::string& algorithm) {
    const index_t n = data.size(), few = std::min<index_t>(n, 256);
    const auto read = [&](index_t count, index_t epoch) {
        loader<any_dataset> from(data, {.batch = count, .workers = 0, .shuffle = false, .seed = seed});
        from.seek({epoch, 0});
        std::optional<batch> all = from.next();
        require(all && all->count == count, algorithm, ": of ", count, " training samples some could not be read");
        return std::move(*all);
    };
    batch all = read(n, 0);
    if (const auto found = first_non_finite(all.x)) {
        const index_t width = all.x.size() / n;
        fail(algorithm, ": training sample ", data.sample_name(*found / width), ": value ", *found % width, " is ",
             all.x[*found]);
    }
    if (!all.targets.empty())
        if (const std::string found = first_non_finite("training targets", all.targets); !found.empty())
            fail(algorithm, ": ", found);
    const batch again = read(few, 1);
    require(std::equal(again.x.span().begin(), again.x.span().end(), all.x.data()), algorithm,
            ": training samples change from epoch to epoch, and ADMM works on the same ones throughout; leave "
            "augmentation out (shift = 0, flip = false, crop_pad = 0 or augment = false of its table below [data])");
    return all;
}

/// Weights of split layers start anew by admm.init and admm.init_scale: model (as the layers say), kaiming (variance
/// 2 / fan in, biases 0) or normal (of standard deviation init_scale, biases 0); the first two times init_scale.
inline void initialise_for_admm(configuration& settings, std::vector<admm::split_layer<float>>& layers,
                                std::uint64_t seed) {
    const std::string rule = settings.choice("admm.init", {"kaiming", "model", "normal"}, "kaiming");
    const double scale = settings.get("admm.init_scale", rule == "normal" ? 0.05 : 1.0, above(0));
    for (admm::split_layer<float>& l : layers) {
        if (rule == "model") {
            for_each(functors::times<float>{static_cast<float>(scale)}, l.weight);
            continue;
        }
        const double deviation = rule == "normal" ? scale : scale * std::sqrt(2 / static_cast<double>(l.fan_in()));
        fill(l.weight.span(), {initializer::distribution::normal, deviation, 0},
             stream_of_path(seed, path_hash(l.name + "/weight"), "initial values of ADMM"));
        if (!l.bias.empty()) std::ranges::fill(l.bias.span(), 0.0f);
    }
}

/// A is dladmm<float> or pdadmm<float, any_communicator>.
template <class A>
class admm_training final : public training_algorithm<cpu, float> {
public:
    /// `everyone`: all ranks, or null. `memory`: of Anderson's acceleration; 0: none.
    admm_training(std::unique_ptr<A> algorithm, model_stages<cpu, float> stages, any_objective<cpu> goal,
                  index_t samples, int memory, any_communicator* everyone)
        : algorithm_(std::move(algorithm)),
          stages_(std::move(stages)),
          goal_(std::move(goal)),
          samples_(samples),
          everyone_(everyone) {
        if (memory > 0) fast_.emplace(*algorithm_, memory);
    }

    /// The batch is not read: samples are those of the constructor.
    step_result step(micro_batches<cpu>, step_votes votes = {}, const std::function<void()>& meanwhile = {}) override {
        if (meanwhile) meanwhile();
        std::array<double, 2> sums{votes.stop ? 1.0 : 0.0, votes.states};
        if (everyone_) all_reduce(*everyone_, std::span<double>(sums));
        const flop_counter::scope counting;
        last_ = fast_ ? fast_->iterate() : algorithm_->iterate();
        gflop_ = 1e-9 * static_cast<double>(flop_counter::total().flops);
        stages_.values_changed();
        return {last_.total() / static_cast<double>(samples_), samples_, false, sums[0] > 0, sums[1]};
    }
    std::int64_t steps() override { return algorithm_->iterations(); }

    algorithm_state<cpu> state() override {
        algorithm_state<cpu> all;
        const auto add = [&](auto& from) {
            for (auto& v : from.variables())
                if (!v.is_weight && v.counts) all.tensors.push_back({"admm/" + v.name, v.value.share()});
            for (auto& [name, counter] : from.counters()) all.counters.emplace_back("admm/" + name, counter);
        };
        add(*algorithm_);
        if (fast_) add(*fast_);
        for (auto& [name, number] : algorithm_->numbers()) all.numbers.emplace_back("admm/" + name, number);
        return all;
    }
    void state_loaded() override {
        if constexpr (requires { algorithm_->synchronise(); }) algorithm_->synchronise();
    }

    model_stages<cpu, float>& stages() override { return stages_; }
    const any_objective<cpu>& goal() const override { return goal_; }
    void choose_kernels(const shape&, mode) override {}  // all are chosen as they come up

    std::vector<std::pair<std::string, double>> figures() override {
        std::vector<std::pair<std::string, double>> all{{"residual", last_.residual}, {"rho", algorithm_->rho()}};
        for (const auto& [name, value] : last_.all)
            if (name == "loss") all.emplace_back("split_loss", value / static_cast<double>(samples_));
        if constexpr (requires { algorithm_->nu(); }) all.emplace_back("nu", algorithm_->nu());
        if (fast_) all.emplace_back("accelerated", static_cast<double>(fast_->kept()));
        if (!everyone_) all.emplace_back("gflop", gflop_);
        return all;
    }
    std::pair<index_t, index_t> take_training_hits() override { return {0, 0}; }

private:
    std::unique_ptr<A> algorithm_;
    std::optional<admm::anderson<A, float>> fast_;
    model_stages<cpu, float> stages_;
    any_objective<cpu> goal_;
    index_t samples_;
    any_communicator* everyone_;
    admm::objective_terms last_;
    double gflop_ = 0;
};

/// Collective: makes the algorithm of the run, whose model, mesh and batches are there; T is float, a parameter so that
/// programs can compile this in a file of its own. Throws before any training on what ADMM cannot train.
template <class T>
std::unique_ptr<training_algorithm<cpu, T>> make_admm(run_task& task, any_communicator& world, run_mesh& mesh,
                                                      run_model<cpu, T>& model) {
    const std::string& algorithm = task.algorithm;
    configuration& settings = task.settings;
    const std::string loss_of_data = loss_of(task.data.info.kind);
    require(settings.get("loss.kind", loss_of_data) == loss_of_data && task.data.info.kind != target_kind::answers &&
                (task.data.info.labels_each == 1 || task.data.info.labels == label_place::nodes),
            algorithm,
            ": loss.kind = cross_entropy of one label a sample or node, or mse; train.algorithm = gradient has the "
            "others");
    batch all = read_all_samples(task.data.train, task.seed, algorithm);
    admm::output_loss<T> loss{std::move(all.labels), std::move(all.targets)};
    const index_t n = loss.counted();
    require(n > 0, algorithm, ": no node has a label; nothing can be learnt");
    const admm_settings how = read_admm(settings, algorithm, task.seed, loss.rows());

    any_communicator* const over = world.size() > 1 ? &mesh.grid["pipeline"].host : nullptr;
    const bool is_last = !over || over->rank() + 1 == over->size();
    const shape in = model.plan ? model.plan->boundaries[static_cast<std::size_t>(over->rank())]
                                : model.over.batch_here(1, task.data.sample);
    std::vector<admm::split_layer<T>> layers = admm::split_chain(model.layers.front(), in, algorithm, !is_last);
    initialise_for_admm(settings, layers, task.seed);

    any_objective<cpu> goal = objective_of_data<cpu>({task.data.info, task.data.sample});
    const auto wrapped = [&](auto made) -> std::unique_ptr<training_algorithm<cpu, T>> {
        using A = typename decltype(made)::element_type;
        return std::make_unique<admm_training<A>>(std::move(made), model.stages(mesh), std::move(goal), n,
                                                  how.anderson_memory, over ? &world : nullptr);
    };
    if (algorithm == "dladmm")
        return wrapped(
            std::make_unique<admm::dladmm<T>>(std::move(layers), how.serial, std::move(all.x), std::move(loss)));
    return wrapped(std::make_unique<admm::pdadmm<T, any_communicator>>(std::move(layers), how.parallel,
                                                                       std::move(all.x), std::move(loss), over));
}

}  // namespace cairn
