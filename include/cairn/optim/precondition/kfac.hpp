#pragma once
// K-FAC (Martens and Grosse 2015; convolutions: Grosse and Martens 2016; weight sharing: Eschenhagen et al. 2023): a
// second-order preconditioner of gradients for any optimizer.
//
//   kfac<float> curvature(weights, {.damping = 1e-3});   // weights: an arena; a step is as in preconditioner.hpp
//
//   factors         every `factor_update_interval` steps, from the samples of all micro-batches: kfac_factors.hpp
//   decompositions  every `inverse_update_interval` steps, more often at first: kfac_inverses.hpp, kronecker.hpp
//   directions      V = F⁻¹ ∇W of each layer: kfac_directions.hpp
//   their length    KL clip V · min(1, √(κ / Σ lr² ⟨V, ∇W⟩)), one scalar for all layers (Ba, Grosse and Martens 2017),
//                   summed in the order of the model's parameters; a norm constraint; or grafting: each layer's V as
//                   long as its gradient, or of root mean square 1 for optimizers that divide by the gradient's size
//
// A layer of one weight (and bias) is one block for each group. Lookups have a diagonal A. Scale and shift of
// normalisation, and factors beyond `max_size`, are diagonal; of convolutions beyond it the kernel's points are taken
// as uncorrelated. Parameters that no layer announces, or that `skip` names, keep their gradients. With
// `inverse_staleness` the decompositions are used that many steps after their start, the same steps in every run: on
// the host they are made on a thread of their own, on a grid device in shares of n³ over these steps
// (device/deferred_tasks.hpp). Several ranks share the work through kfac_work_assignment (kfac_layer.hpp).
// On a grid device the host waits only in steps that take statistics, for whether they are finite, and in a stage of a
// pipeline for the lengths of directions.

#include <cairn/core/arena.hpp>
#include <cairn/core/compiled.hpp>
#include <cairn/core/trace.hpp>
#include <cairn/optim/precondition/kfac_directions.hpp>
#include <cairn/optim/precondition/kfac_factors.hpp>
#include <cairn/optim/precondition/kfac_inverses.hpp>
#include <cairn/optim/precondition/preconditioner.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

template <class T, Device D = cpu>
class kfac final : public preconditioner<T, D>, public curvature_listener {
public:
    using block = kfac_layer<T, D>;

    /// Shares the arena's memory. Throws on settings that make no sense.
    kfac(arena<T, D>& weights, kfac_config c,
         std::unique_ptr<kfac_work_assignment<T, D>> roles = std::make_unique<kfac_work_assignment<T, D>>())
        : s_{.config = std::move(c), .roles = std::move(roles)} {
        check(s_.config);
        for (const auto& [name, p] : weights.parameters()) s_.parameters.push_back(p);
        wanted_.assign(s_.parameters.size(), true);
        for (const parameter<T, D>* p : s_.parameters)
            for (const std::string& part : s_.config.skip)
                if (p->name.find(part) != std::string::npos) wanted_[static_cast<std::size_t>(p->id)] = false;
    }

    curvature_listener* begin_step() override {
        taking_ = s_.steps % s_.config.factor_update_interval == 0;
        discovering_ = last_ = false;
        for (block& b : s_.blocks) b.seen = 0;
        return taking_ ? this : nullptr;
    }
    void last_micro_batch() override {
        last_ = true;
        for (block& b : s_.blocks) b.seen = 0;
    }
    void gradients_scaled_by(double scale) override { factors_.scaled_by(scale); }
    curvature_listener* discover() override {
        taking_ = discovering_ = true;
        for (block& b : s_.blocks) b.uses = 0;
        return this;
    }

    bool wants(int weight, rows_kind kind) const override {
        return taking_ && wanted_[static_cast<std::size_t>(weight)] && kind != rows_kind::norm_output &&
               (kind != rows_kind::norm || s_.config.norm_layers);
    }
    using curvature_listener::take;
    void take(const curvature_samples<T>& rows) override { take_rows(rows); }
    void take(const curvature_samples<bfloat16>& rows) override { take_rounded(rows); }
    void take(const curvature_samples<float16>& rows) override { take_rounded(rows); }

    void precondition(double examples, double lr) override {
        const bool any = !s_.blocks.empty();  // a stage of a pipeline may have no layer of weights
        if (!s_.started && any) start();
        if (taking_ && !discovering_ && any) factors_.update(examples);
        if (any) inverses_.decompose_if_due();
        ++s_.steps;
        taking_ = false;
        if (any) {
            directions_.make();
            s_.roles->share_directions(s_.blocks, directions_.all());
        }
        directions_.apply(lr);
    }

    void skip_step() override {
        if (taking_ && s_.started) s_.roles->finish_sums(s_.blocks);  // what is on its way arrives
        for (block& b : s_.blocks) {
            b.rows = 0;
            b.each_factor([](kfac_factor<T, D>& f, char) { f.statistics.clear_batch(); });
        }
        taking_ = false;
    }

    /// The arena has some of a model's layers (a stage of a pipeline): sums over all layers are those of the whole
    /// model. `over_model` is collective: from numbers by parameter of the arena it makes those of the whole model, in
    /// path order.
    void sum_over_model(std::function<std::vector<double>(std::vector<double>)> over_model) {
        s_.over_model = std::move(over_model);
    }

    std::vector<block>& blocks() { return s_.blocks; }
    const kfac_work_assignment<T, D>& roles() const { return *s_.roles; }
    std::vector<named_tensor<T, D>> tensors() override { return tensors_of(state_of::all_ranks); }
    std::vector<std::pair<std::string, std::int64_t*>> counters() override { return counters_of(state_of::all_ranks); }
    void release() override;
    bool divides_state() const override { return true; }
    std::vector<named_tensor<T, D>> its_tensors() override { return tensors_of(state_of::this_rank); }
    std::vector<std::pair<std::string, std::int64_t*>> its_counters() override {
        return counters_of(state_of::this_rank);
    }
    std::string scope() const override;
    std::vector<std::pair<std::string, std::int64_t>> guards() const override;
    std::vector<std::string> diagnostics() const override;

    const kfac_config& config() const { return s_.config; }
    /// γ from now on; the inverse form has it from its next decomposition on.
    void set_damping(double damping) { s_.config.damping = damping; }
    std::int64_t& steps() { return s_.steps; }
    /// Counts a step that who decides its length made shorter than its model asks for.
    void step_is_shortened() { ++shortened_; }
    /// Batches of a factor's statistics that were dropped because they were not finite.
    std::int64_t rejected() const { return factors_.rejected(); }

private:
    // Of layers that compute in S.
    template <class S>
    void take_rounded(const curvature_samples<S>& rows) {
        if constexpr (std::same_as<T, float> && requires { readable_rows(D{}, rows); })
            take_rows(readable_rows(D{}, rows).rows);
        else
            curvature_listener::take(rows);
    }

    template <class S>
    void take_rows(const curvature_samples<S>& rows) {
        if (discovering_ && !rows.in_backward) return;
        const trace_scope scope("factors", rows.in_backward ? "backward" : "forward", "kfac");
        const std::size_t at = factors_.block_of(rows);
        block& b = s_.blocks[at];
        b.positions = rows.positions;
        if (discovering_) return void(++b.uses);
        factors_.add_rows(at, rows);
        if (!rows.in_backward) return;
        ++b.seen;
        if (last_ && s_.started && b.seen == b.uses) s_.roles->sums_ready(s_.blocks, at);
    }

    // Of the factors that this rank decomposes, or of all.
    enum class state_of { this_rank, all_ranks };
    std::vector<named_tensor<T, D>> tensors_of(state_of whose);
    std::vector<std::pair<std::string, std::int64_t*>> counters_of(state_of whose);

    void start() {
        s_.started = true;
        s_.roles->start(s_.blocks, s_.config);
        directions_.start();
    }

    kfac_state<T, D> s_;
    kfac_factors<T, D> factors_{s_};
    kfac_inverses<T, D> inverses_{s_};
    kfac_directions<T, D> directions_{s_};
    std::vector<bool> wanted_;  // of each parameter
    bool taking_ = false, discovering_ = false, last_ = false;
    std::int64_t shortened_ = 0;
};

template <class T, Device D>
std::vector<named_tensor<T, D>> kfac<T, D>::tensors_of(state_of whose) {
    if (!s_.started && !s_.blocks.empty()) start();
    inverses_.finish();
    std::vector<named_tensor<T, D>> all;
    const auto add = [&](const std::string& name, tensor<T, D>& t, const shape& s) {
        if (t.empty()) t = tensor<T, D>::zeros(s, memory_category::optimizer);
        all.push_back({name, t.share()});
    };
    for (std::size_t i = 0; i < s_.blocks.size(); ++i) {
        block& b = s_.blocks[i];
        index_t q = 0;
        b.each_factor([&](kfac_factor<T, D>& f, char side) {
            const std::string at = concat(b.name, '/', side == 'a' ? q : q - 1, '/', side);
            if (side == 'a') ++q;
            if (whose == state_of::this_rank && !s_.roles->decomposes(i, side)) return;
            running_factor<T, D>& s = f.statistics;
            const index_t n = s.size();
            add(at, s.average(), s.extents());
            const auto add_decomposition = [&](const std::string& name, decomposition<T, D>& d) {
                if (!s.is_diagonal()) add(at + name, d.matrix, {n, n});
                if (s.is_diagonal() || s_.config.form == kfac_form::eigen) add(at + name + "_values", d.values, {n});
            };
            add_decomposition("_decomposition", f.inverse);
            if (s_.config.inverse_staleness > 0) add_decomposition("_pending", f.pending);
        });
    }
    return all;
}

template <class T, Device D>
std::vector<std::pair<std::string, std::int64_t*>> kfac<T, D>::counters_of(state_of whose) {
    std::vector<std::pair<std::string, std::int64_t*>> all{{"steps", &s_.steps},
                                                           {"begun", &inverses_.begun()},
                                                           {"rejected", &factors_.rejected()},
                                                           {"examples", &factors_.examples()}};
    for (std::size_t i = 0; i < s_.blocks.size(); ++i) {
        block& b = s_.blocks[i];
        index_t q = 0;
        bool first = true;  // factor of the block: who decomposes it has the block's flag too
        b.each_factor([&](kfac_factor<T, D>& f, char side) {
            const std::string name = concat(b.name, '/', q++ / (b.diagonal ? 1 : 2), '/', side, "_batches");
            const bool is_first = std::exchange(first, false);
            if (whose == state_of::this_rank && !s_.roles->decomposes(i, side)) return;
            if (is_first) all.push_back({b.name + "/ready", &b.ready});
            all.push_back({name, &f.statistics.batches()});
        });
    }
    return all;
}

template <class T, Device D>
void kfac<T, D>::release() {
    if (!s_.started) return;
    for (std::size_t i = 0; i < s_.blocks.size(); ++i)
        s_.blocks[i].each_factor([&](kfac_factor<T, D>& f, char side) {
            if (!s_.roles->averages(i, side) || f.statistics.batches() == 0) f.statistics.release_average();
            if (!s_.roles->uses_decomposition(i) || !s_.blocks[i].ready) f.inverse = {};
            if (!s_.roles->decomposes(i, side) || inverses_.begun() < 0) f.pending = {};
        });
    inverses_.resume();
}

template <class T, Device D>
std::string kfac<T, D>::scope() const {
    index_t of_all = 0, of_blocks = 0;
    for (const parameter<T, D>* p : s_.parameters) of_all += p->shape.size();
    for (const block& b : s_.blocks) of_blocks += b.size();
    return concat("kfac preconditions ", of_blocks, " of ", of_all, " parameters, those of ", s_.blocks.size(),
                  s_.blocks.size() == 1 ? " layer" : " layers",
                  of_blocks ? "" : ": no layer announces its rows to it, so the step is the base's alone");
}

template <class T, Device D>
std::vector<std::pair<std::string, std::int64_t>> kfac<T, D>::guards() const {
    return {{"shortened_steps", directions_.shortened() + shortened_},  // by kl_clip, norm_limit, the quadratic model
            {"rejected_statistics", rejected()},                        // not finite, left out of the averages
            {"retried_decompositions", inverses_.retried()},            // with more damping, or in double
            {"kept_decompositions", inverses_.kept_old()}};             // failed; the ones before stayed in use
}

template <class T, Device D>
std::vector<std::string> kfac<T, D>::diagnostics() const {
    std::vector<std::string> all = s_.diagnostics;
    for (std::string& line : s_.roles->diagnostics()) all.push_back(std::move(line));
    if (inverses_.kept_old() > 0)
        all.push_back(concat("the first decomposition that failed: ", inverses_.first_kept()));
    if (s_.config.inverse_staleness > 0)
        all.push_back(concat("decompositions are used ", s_.config.inverse_staleness,
                             " steps after they were begun, and are at most ",
                             s_.config.inverse_staleness + s_.config.inverse_update_interval, " steps old"));
    if (const double off = factors_.sampling_error(); off > 0)
        all.push_back(concat("statistics of a sample of the rows: the input factors of the first batch are at most ",
                             100 * off, " % off those of all rows (Frobenius norm)"));
    return all;
}

CAIRN_COMPILED_ONCE(optimizers_float, class kfac<float>)
CAIRN_COMPILED_ONCE(optimizers_double, class kfac<double>)

}  // namespace cairn
