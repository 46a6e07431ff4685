#pragma once
// K-FAC (Martens and Grosse 2015; convolutions: Grosse and Martens 2016; weight sharing: Eschenhagen et al. 2023, "expand"): a
// second-order preconditioner of gradients for any optimizer.
//
//   kfac<float> curvature(weights, {.damping = 1e-3});          // weights: an arena
//   each step:   pass.curvature = curvature.begin_step();       // null on most steps
//                forward, loss, backward                        // layers announce their rows
//                curvature.precondition(batch, lr);             // gradients ← F⁻¹ gradients
//                optimizer.step(lr);
//
//   factors        every `factor_every` steps, from the rows of all micro-batches              factor.hpp
//   decompositions every `decompose_every` steps, more often at first                            kronecker.hpp
//   KL clip        V ← V · min(1, √(κ / Σ lr² ⟨V, ∇W⟩)), one scalar for all layers             (Ba, Grosse and Martens 2017)
//
// A layer of one weight (and bias) is one block for each group. Parameters that nobody announces (normalisation, embeddings), that
// `skip` names or whose factors exceed `max_size` keep their gradients.

#include <cairn/core/arena.hpp>
#include <cairn/core/trace.hpp>
#include <cairn/optim/optimizer.hpp>
#include <cairn/optim/precondition/kronecker.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

struct kfac_config {
    double damping = 1e-3;           // γ
    double factor_decay = 0.95;      // ρ
    std::int64_t factor_every = 10;  // steps
    std::int64_t decompose_every = 100;
    double kl_clip = 1e-3;  // κ; 0: none
    kfac_form form = kfac_form::eigen;
    index max_size = 8192;               // of a factor
    std::vector<std::string> skip = {};  // parts of names of weights that are left alone
};

template <class T>
class kfac final : public curvature_listener {
public:
    /// One weight's curvature: one pair of factors for each group of a convolution.
    struct block {
        std::string name;
        parameter<T>* weight = nullptr;
        parameter<T>* bias = nullptr;
        index in = 0, out = 0;  // of a group's factors; `in` counts the bias
        index positions = 1;
        std::vector<running_factor<T>> a, g;
        std::vector<decomposition<T>> a_decomposition, g_decomposition;
        tensor<T> direction = {};     // (groups · out, in): V
        index rows = 0;               // of the batch at hand
        std::int64_t decomposed = 0;  // 1 once its decompositions can be used
    };

    /// Shares the arena's memory. Throws on settings that make no sense.
    kfac(arena<T>& weights, kfac_config c) : config_(std::move(c)) {
        require(config_.damping > 0, "kfac: damping ", config_.damping,
                "; it must be positive, or directions without curvature become infinite");
        require(config_.factor_decay >= 0 && config_.factor_decay < 1, "kfac: factor_decay ", config_.factor_decay,
                "; it must be in [0, 1)");
        require(config_.factor_every >= 1 && config_.decompose_every >= 1, "kfac: factors every ", config_.factor_every,
                " steps, decompositions every ", config_.decompose_every, "; both must be at least 1");
        require(config_.kl_clip >= 0, "kfac: kl_clip ", config_.kl_clip, "; it must be 0 (off) or positive");
        for (const auto& [name, p] : weights.parameters()) parameters_.push_back(p);
        wanted_.assign(parameters_.size(), true);
        for (const parameter<T>* p : parameters_)
            for (const std::string& part : config_.skip)
                if (p->name.find(part) != std::string::npos) wanted_[static_cast<std::size_t>(p->id)] = false;
    }

    /// Starts a step: who is to be told the rows of this step's layers, null if nobody.
    curvature_listener* begin_step() {
        taking_ = steps_ % config_.factor_every == 0;
        discovering_ = false;
        return taking_ ? this : nullptr;
    }
    /// For one pass over anything, before the first step or to restore a state: layers become blocks, their rows are not looked at.
    curvature_listener* discover() {
        taking_ = discovering_ = true;
        return this;
    }
    bool takes_statistics() const { return taking_ && !discovering_; }

    bool wants(int weight) const override { return taking_ && wanted_[static_cast<std::size_t>(weight)]; }
    void take(const layer_rows<T>& rows) override {
        const trace_scope scope("factors", "backward", "kfac");
        block* const b = block_of(rows);
        if (!b) return;
        b->positions = rows.positions;
        if (discovering_) return;
        for (index q = 0; q < static_cast<index>(b->a.size()); ++q) {
            const auto k = static_cast<std::size_t>(q);
            add_rows_of_layer(rows, q, b->a[k].batch(), b->g[k].batch());
        }
        b->rows += rows.examples * rows.positions;
    }

    /// Preconditions all gradients of the arena. `examples`: N, of which the loss was the mean. lr 0: no clip.
    /// Returns Σ ⟨V, ∇W⟩ before clipping.
    double precondition(double examples, double lr) {
        if (takes_statistics()) update_factors(examples);
        if (is_due() || std::ranges::none_of(blocks_, is_ready)) decompose();
        ++steps_;
        taking_ = false;
        double product = 0;
        for (block& b : blocks_)
            if (is_ready(b)) product += make_direction(b);
        const double clip =
            config_.kl_clip > 0 && product > 0 ? std::min(1.0, std::sqrt(config_.kl_clip / (lr * lr * product))) : 1.0;
        for (block& b : blocks_)
            if (is_ready(b)) apply(b, clip);
        return product;
    }

    /// Forgets the rows of this step, which is not taken.
    void skip_step() {
        for (block& b : blocks_) {
            b.rows = 0;
            for (auto* factors : {&b.a, &b.g})
                for (running_factor<T>& f : *factors) f.clear_batch();
        }
        taking_ = false;
    }

    std::vector<block>& blocks() { return blocks_; }
    /// What a restored run needs beside steps() and counters(): averages and decompositions.
    std::vector<named_tensor<T>> tensors() {
        std::vector<named_tensor<T>> all;
        const auto add = [&](const std::string& name, tensor<T>& t, const shape& s) {
            if (t.empty()) t = tensor<T>::zeros(s, category::optimizer);
            all.push_back({name, t.share()});
        };
        for (block& b : blocks_)
            for (std::size_t q = 0; q < b.a.size(); ++q) {
                const std::string at = concat(b.name, '/', q, '/');
                add(at + "a", b.a[q].average(), {b.in, b.in});
                add(at + "g", b.g[q].average(), {b.out, b.out});
                add(at + "a_decomposition", b.a_decomposition[q].matrix, {b.in, b.in});
                add(at + "g_decomposition", b.g_decomposition[q].matrix, {b.out, b.out});
                if (config_.form != kfac_form::eigen) continue;
                add(at + "a_values", b.a_decomposition[q].values, {b.in});
                add(at + "g_values", b.g_decomposition[q].values, {b.out});
            }
        return all;
    }
    /// Named numbers that belong to them.
    std::vector<std::pair<std::string, std::int64_t*>> counters() {
        std::vector<std::pair<std::string, std::int64_t*>> all{{"steps", &steps_}};
        for (block& b : blocks_) {
            all.push_back({b.name + "/decomposed", &b.decomposed});
            for (std::size_t q = 0; q < b.a.size(); ++q) {
                all.push_back({concat(b.name, '/', q, "/a_batches"), &b.a[q].batches()});
                all.push_back({concat(b.name, '/', q, "/g_batches"), &b.g[q].batches()});
            }
        }
        return all;
    }
    const kfac_config& config() const { return config_; }
    /// γ from now on; the inverse form has it from its next decomposition on.
    void set_damping(double damping) { config_.damping = damping; }
    std::int64_t& steps() { return steps_; }
    /// Batches of statistics that were dropped because they were not finite.
    std::int64_t rejected() const { return rejected_; }
    /// Names of the weights that are too large.
    const std::vector<std::string>& too_large() const { return too_large_; }

private:
    block* block_of(const layer_rows<T>& rows) {
        for (block& b : blocks_)
            if (b.weight->id == rows.weight) return &b;
        parameter<T>* const weight = parameters_[static_cast<std::size_t>(rows.weight)];
        block b{.name = weight->name, .weight = weight};
        if (rows.bias >= 0) b.bias = parameters_[static_cast<std::size_t>(rows.bias)];
        b.in = rows.in + (b.bias ? 1 : 0);
        b.out = rows.out;
        if (std::max(b.in, b.out) > config_.max_size) {
            wanted_[static_cast<std::size_t>(rows.weight)] = false;
            too_large_.push_back(b.name);
            return nullptr;
        }
        const auto groups = static_cast<std::size_t>(weight->shape[0] / b.out);
        for (std::size_t q = 0; q < groups; ++q) {
            b.a.emplace_back(b.in);
            b.g.emplace_back(b.out);
        }
        b.a_decomposition.resize(groups);
        b.g_decomposition.resize(groups);
        blocks_.push_back(std::move(b));
        return &blocks_.back();
    }

    void update_factors(double examples) {
        const trace_scope scope("average", "", "kfac");
        for (block& b : blocks_) {
            if (b.rows == 0) continue;  // not used in this step
            const double rows = static_cast<double>(b.rows);
            for (std::size_t q = 0; q < b.a.size(); ++q) {
                const bool a = b.a[q].update(1 / rows, config_.factor_decay);
                const bool g = b.g[q].update(examples * examples / rows, config_.factor_decay);
                if (!a || !g) ++rejected_;
            }
            b.rows = 0;
        }
    }

    /// Every `decompose_every` steps; before that whenever the number of steps has doubled, because the first averages are of few
    /// batches of a network that changes fast.
    bool is_due() const {
        const bool doubled =
            steps_ < config_.decompose_every && std::has_single_bit(static_cast<std::uint64_t>(steps_));
        return steps_ % config_.decompose_every == 0 || (doubled && steps_ >= config_.factor_every);
    }

    static bool is_ready(const block& b) { return b.decomposed != 0; }

    void decompose() {
        const trace_scope scope("decompose", "", "kfac");
        for (block& b : blocks_) {
            bool all = true;
            for (std::size_t q = 0; q < b.a.size(); ++q) {
                if (b.a[q].batches() > 0 && b.g[q].batches() > 0)
                    decompose(b, q);
                else
                    all = false;
            }
            if (all) b.decomposed = 1;
        }
    }

    void decompose(block& b, std::size_t q) {
        try {
            if (config_.form == kfac_form::eigen) {
                b.a_decomposition[q] = eigen_decomposition_of(b.a[q].average());
                b.g_decomposition[q] = eigen_decomposition_of(b.g[q].average());
                return;
            }
            const double root = std::sqrt(config_.damping / static_cast<double>(b.positions));
            const double a = b.a[q].mean_diagonal(), g = b.g[q].mean_diagonal();
            const double pi = a > 0 && g > 0 ? std::sqrt(a / g) : 1;
            decomposition<T> da = damped_inverse_of(b.a[q].average(), pi * root),
                             dg = damped_inverse_of(b.g[q].average(), root / pi);
            b.a_decomposition[q] = std::move(da);
            b.g_decomposition[q] = std::move(dg);
        } catch (error& e) {
            if (!b.decomposed) {  // else the last good ones stay
                e.add_context(concat("kfac: step ", steps_ + 1, ", ", b.name));
                throw;
            }
        }
    }

    /// V of a block; returns ⟨V, ∇W⟩.
    double make_direction(block& b) {
        const index rows = b.out * static_cast<index>(b.a.size()), width = b.in - (b.bias ? 1 : 0);
        if (b.direction.empty()) b.direction = tensor<T>({rows, b.in}, category::optimizer);
        const T *const dw = b.weight->grad.data(), *const db = b.bias ? b.bias->grad.data() : nullptr;
        T* const v = b.direction.data();
        for (index r = 0; r < rows; ++r) {
            std::copy_n(dw + r * width, width, v + r * b.in);
            if (db) v[r * b.in + width] = db[r];
        }
        for (std::size_t q = 0; q < b.a.size(); ++q) {
            tensor<T> part = b.direction.slice(static_cast<index>(q) * b.out * b.in, {b.out, b.in});
            cairn::precondition(b.a_decomposition[q], b.g_decomposition[q], static_cast<double>(b.positions),
                                config_.damping, part);
        }
        double product = 0;
        for (index r = 0; r < rows; ++r) {
            product += dot(cpu{}, width, v + r * b.in, dw + r * width);
            if (db) product += static_cast<double>(v[r * b.in + width]) * static_cast<double>(db[r]);
        }
        return product;
    }

    void apply(block& b, double scale) {
        const index rows = b.out * static_cast<index>(b.a.size()), width = b.in - (b.bias ? 1 : 0);
        const T factor = static_cast<T>(scale);
        const T* const v = b.direction.data();
        for (index r = 0; r < rows; ++r) {
            for (index c = 0; c < width; ++c) b.weight->grad[r * width + c] = factor * v[r * b.in + c];
            if (b.bias) b.bias->grad[r] = factor * v[r * b.in + width];
        }
    }

    kfac_config config_;
    std::vector<parameter<T>*> parameters_;
    std::vector<bool> wanted_;
    std::vector<block> blocks_;
    std::vector<std::string> too_large_;
    std::int64_t steps_ = 0, rejected_ = 0;
    bool taking_ = false, discovering_ = false;
};

}  // namespace cairn
