#pragma once
// dlADMM (Wang, Yu, Chen and Zhao, KDD 2019): trains without gradients through layers. Each layer's output z and
// activation a are variables of their own, tied to the layers by penalties; one dual u, on the last layer:
//   min CE(z_L) + <u, z_L − c_L> + ρ/2 Σ_l ‖z_l − c_l‖² + ρ/2 Σ_{l<L} ‖a_l − relu z_l‖² + μ/2 Σ ‖W_l‖²,
//   c_l = W_l a_{l−1} + b_l,   a_0 the samples (all of them: the method has no batches)
// A sweep updates one block after another, each to its exact minimum (or by one exact line search), so that the
// objective never rises before the dual step:
//   for l = L … 1:  z_l, b_l, W_l, a_{l−1}        what comes back from the labels travels down
//   for l = 1 … L:  W_l, b_l, z_l, a_l            and what the samples say travels up
//   u += ρ (z_L − c_L)                            after which u = −∇CE(z_L): softmax(z_L) is Y − u
// With r_l = c_l − z_l (− u/ρ for the last): W_l, b_l and a_{l−1} are least squares in r_l (block_updates.hpp), z_l is
// a closed form (subproblems.hpp). State: z_l, a_l, u. Arithmetic of a sweep: about 8 products a layer, a training step
// by gradients has 3. Tested in tests/admm/dladmm_test.cpp.

#include <cairn/admm/block_updates.hpp>
#include <cairn/admm/objective_terms.hpp>
#include <cairn/admm/output_loss.hpp>
#include <cairn/admm/variables.hpp>

#include <string>
#include <utility>
#include <vector>

namespace cairn::admm {

struct dladmm_config {
    double rho = 1e-3;  // for a loss that is a sum over samples
    double mu = 0;      // weight decay
    block_solver solver = block_solver::exact;
    rho_schedule schedule = {};
};

/// See the top of the file.
template <class T = float>
class dladmm {
public:
    static constexpr const char* name = "dladmm";
    using config = dladmm_config;

    /// Starts where the network is: z and a as the samples go forward through it, u = 0.
    dladmm(std::vector<split_layer<T>> layers, config c, tensor<T> samples, output_loss<T> loss)
        : layers_(std::move(layers)), config_(c), loss_(std::move(loss)) {
        rho_.rho = c.rho;
        const std::size_t n = layers_.size();
        loss_.check(name, layers_.back().out.with(0, samples.extent(0)));
        a_.push_back(std::move(samples));
        for (std::size_t l = 0; l < n; ++l) {
            z_.push_back(layers_[l].output(a_[l]));
            if (l + 1 < n) a_.push_back(relu(z_[l]));
        }
        u_ = tensor<T>::zeros(z_.back().shape());
        coupling_.resize(n);
    }

    /// One sweep. Throws where the objective is no number, naming iteration and term.
    objective_terms iterate() {
        return with_context(concat(name, ": iteration ", iterations_ + 1), [&] {
            ++iterations_;
            sweep_back();
            sweep_forward();
            objective_terms now = terms();
            if (iterations_ == 1) first_objective_ = now.total();
            now.require_sound(1e6 * std::max(first_objective_, 1.0), rho_.rho);
            rho_.after_iteration(config_.schedule, now.total());
            return now;
        });
    }

    /// The objective at the variables of now, computed from scratch.
    objective_terms evaluate() {
        for (std::size_t l = 0; l < layers_.size(); ++l) {
            const tensor<T> apart = residual(layers_[l].output(a_[l]), z_[l]);
            coupling_[l] = norm2(apart);
            if (is_last(l)) dual_term_ = -inner(u_, apart);
        }
        return terms();
    }

    std::int64_t iterations() const { return iterations_; }
    double rho() const { return rho_.rho; }
    const std::vector<split_layer<T>>& layers() const { return layers_; }
    const tensor<T>& output() const { return z_.back(); }
    const tensor<T>& dual() const { return u_; }

    /// State that an iteration changes: weights, then the algorithm's own.
    variable_list<T> variables() {
        variable_list<T> all = weights_of(layers_, 0);
        for (std::size_t l = 0; l < layers_.size(); ++l) {
            all.push_back({"z/" + layers_[l].name, z_[l].share(), static_cast<int>(l)});
            if (l > 0) all.push_back({"a/" + layers_[l].name, a_[l].share(), static_cast<int>(l)});
        }
        all.push_back({"u/" + layers_.back().name, u_.share(), static_cast<int>(layers_.size()) - 1});
        return all;
    }
    number_list numbers() {
        return {{"rho", &rho_.rho}, {"last_objective", &rho_.last_objective}, {"first_objective", &first_objective_}};
    }
    counter_list counters() { return {{"iterations", &iterations_}, {"rises", &rho_.rises}}; }

private:
    void sweep_back() {
        for (std::size_t l = layers_.size(); l-- > 0;) {
            tensor<T> c = layers_[l].output(a_[l]);
            update_z(l, c);
            tensor<T> r = residual_of(l, std::move(c));
            descend_bias(layers_[l], r);
            update_weight(l, r);
            if (l > 0) update_a(l, r);
        }
    }

    void sweep_forward() {
        tensor<T> r = residual_of(0, layers_[0].output(a_[0]));
        for (std::size_t l = 0;; ++l) {
            update_weight(l, r);
            descend_bias(layers_[l], r);
            tensor<T> c = output_from(l, std::move(r));
            update_z(l, c);
            r = residual(std::move(c), z_[l]);
            coupling_[l] = norm2(r);
            if (is_last(l)) break;
            r = residual_of(l + 1, layers_[l + 1].output(a_[l + 1]));
            update_a(l + 1, r);
        }
        add_times(u_, -rho_.rho, r);  // u += ρ (z_L − c_L)
        dual_term_ = -inner(u_, r);
    }

    bool is_last(std::size_t l) const { return l + 1 == layers_.size(); }

    static tensor<T> relu(const tensor<T>& z) {
        tensor<T> a = z.clone();
        for_each(functors::at_least_zero<T>{}, a);
        return a;
    }

    // z_l = argmin … given c_l; c_L is moved by the dual meanwhile.
    void update_z(std::size_t l, tensor<T>& c) {
        if (!is_last(l)) {
            for_each([](T& z, const T& of_c, const T& a) { z = relu_z(of_c, a); }, z_[l], c, a_[l + 1]);
            return;
        }
        tensor<T> around = c.clone();
        add_times(around, -1 / rho_.rho, u_);
        loss_.minimise(around, rho_.rho, z_[l]);
    }

    // c_l − z_l, and − u/ρ for the last.
    tensor<T> residual_of(std::size_t l, tensor<T> c) const {
        tensor<T> r = residual(std::move(c), z_[l]);
        if (is_last(l)) add_times(r, -1 / rho_.rho, u_);
        return r;
    }
    tensor<T> output_from(std::size_t l, tensor<T> r) const {
        for_each([](T& c, const T& z) { c += z; }, r, z_[l]);
        if (is_last(l)) add_times(r, 1 / rho_.rho, u_);
        return r;
    }

    void update_weight(std::size_t l, tensor<T>& r) {
        const double lambda = config_.mu / rho_.rho;
        if (l == 0) {  // its input never changes
            if (!inverse_of_first_ || lambda != lambda_of_first_)
                inverse_of_first_ = weight_inverse(layers_[0], a_[0], lambda, config_.solver);
            lambda_of_first_ = lambda;
            return descend_weight(layers_[0], a_[0], r, lambda, pointer_to(inverse_of_first_));
        }
        const auto inverse = weight_inverse(layers_[l], a_[l], lambda, config_.solver);
        descend_weight(layers_[l], a_[l], r, lambda, pointer_to(inverse));
    }

    // The input of layer l: ½‖r_l‖² + ½‖a − relu z_{l−1}‖².
    void update_a(std::size_t l, tensor<T>& r) {
        const auto inverse = input_inverse(layers_[l], 1, config_.solver);
        tensor<T> g = layers_[l].to_input(r);
        for_each([](T& d, const T& a, const T& z) { d += a - std::max(z, T{}); }, g, a_[l], z_[l - 1]);
        descend_input(layers_[l], a_[l], g, r, 1, pointer_to(inverse));
    }

    objective_terms terms() const {
        objective_terms t;
        double apart = 0, size = 0;
        t.add("loss", loss_.value(z_.back()));
        t.add("<u, z - Wa - b> of layer " + layers_.back().name, dual_term_);
        for (std::size_t l = 0; l < layers_.size(); ++l) {
            const std::string& of = layers_[l].name;
            t.add("rho/2 |z - Wa - b|^2 of layer " + of, rho_.rho / 2 * coupling_[l]);
            apart += coupling_[l];
            size += norm2(z_[l]);
            if (config_.mu > 0) t.add("mu/2 |W|^2 of layer " + of, config_.mu / 2 * norm2(layers_[l].weight));
            if (is_last(l)) continue;
            const double slack = norm2(residual(relu(z_[l]), a_[l + 1]));
            t.add("rho/2 |a - relu z|^2 behind layer " + of, rho_.rho / 2 * slack);
            apart += slack;
            size += norm2(a_[l + 1]);
        }
        t.residual = apart / std::max(size, std::numeric_limits<double>::min());
        return t;
    }

    std::vector<split_layer<T>> layers_;
    config config_;
    output_loss<T> loss_;
    std::vector<tensor<T>> a_, z_;  // a_[l]: input of layer l; z_[l]: its output
    tensor<T> u_;
    std::vector<double> coupling_;  // ‖z_l − c_l‖² of the last iteration
    double dual_term_ = 0;          // <u, z_L − c_L>
    std::optional<tensor<T>> inverse_of_first_;
    double lambda_of_first_ = 0;
    rho_state rho_;
    double first_objective_ = 0;
    std::int64_t iterations_ = 0;
};

}  // namespace cairn::admm
