#pragma once
// pdADMM (Wang, Chai, Cheng and Zhao, ICDM 2020; quantised: pdADMM-G-Q, 2021): all layers train at the same time. Each
// has an input p of its own, tied by a dual u to the copy q of what the layer in front gives:
//   min CE(z_L) + ν/2 Σ_l ‖z_l − c_l‖² + μ/2 Σ ‖W_l‖²,    c_l = W_l p_l + b_l, p_1 the samples
//       + Σ_{l<L} ν/2 ‖q_l − relu z_l‖² + <u_l, p_{l+1} − q_l> + ρ/2 ‖p_{l+1} − q_l‖²
// An iteration, all layers at once:
//   p_l, W_l, b_l, z_l       of each layer by itself            p travels back
//   q_l, u_l                 of each boundary                   q travels forward
// No update of a layer reads what another layer updates in the same phase: layers over ranks give the bits of one rank.
// A rank has consecutive layers, and speaks with its two neighbours alone (neighbours.hpp), but for the objective,
// whose terms are summed over ranks. After the dual step u_l = ν (q_l − relu z_l), a free oracle.
// At the start z_L, W_L and b_L take one step. Otherwise p_L, whose phase comes first, would be moved by the labels
// before any weight has read the features, and W_L would learn from that movement (course/admm.md).
// Options: relaxation α (q and u see αp + (1 − α)q_old), a codec for p and q, a proximal term in z. State: p, z, q, u.
// Tested in tests/admm/pdadmm_test.cpp.

#include <cairn/admm/block_updates.hpp>
#include <cairn/admm/neighbours.hpp>
#include <cairn/admm/objective_terms.hpp>
#include <cairn/admm/output_loss.hpp>
#include <cairn/admm/pdadmm_parts.hpp>
#include <cairn/admm/variables.hpp>
#include <cairn/comm/collectives/all_reduce.hpp>
#include <cairn/comm/collectives/text.hpp>
#include <cairn/comm/self.hpp>

#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace cairn::admm {

/// See the top of the file.
template <class T = float, Communicator C = self_communicator>
class pdadmm {
public:
    static constexpr const char* name = "pdadmm";
    using config = pdadmm_config;

    /// Collective. `layers`: those of this rank, which follow those of the ranks before it. `samples`: read on the
    /// first rank; the others take their number. `loss`: read on the last. Starts where the network is, and u = 0.
    pdadmm(std::vector<split_layer<T>> layers, config c, tensor<T> samples, output_loss<T> loss, C* over = nullptr)
        : layers_(std::move(layers)), config_(std::move(c)), loss_(std::move(loss)), over_(over) {
        require(!layers_.empty(), name, ": rank ", rank(), " has no layer; take at most as many ranks as layers");
        rho_.rho = config_.rho;
        nu_ = config_.nu;
        find_place();
        const index_t n = samples.extent(0);
        if (is_last(layers_.size() - 1)) loss_.check(name, layers_.back().out.with(0, n));
        if (rank() == 0) samples_ = std::move(samples);
        for (std::size_t b = 0; b <= layers_.size(); ++b) make_boundary(b, n);
        for (std::size_t l = 0; l < layers_.size(); ++l) start(l);
        if (is_last(layers_.size() - 1)) fit_output(layers_.size() - 1);
    }
    pdadmm(const pdadmm&) = delete;
    pdadmm& operator=(const pdadmm&) = delete;

    /// Collective: one iteration. Throws on all ranks where the objective is no number, naming iteration and term.
    objective_terms iterate() {
        return with_context(concat(name, ": iteration ", iterations_ + 1), [&] {
            ++iterations_;
            for (std::size_t l = 0; l < layers_.size(); ++l) update_layer(l);
            for (std::size_t l = 0; l < layers_.size(); ++l)
                if (has_next(l)) update_boundary(l);
            if (boundaries_[0].link_forward.is_remote()) follow_boundary();
            objective_terms now = terms();
            if (iterations_ == 1) first_objective_ = now.total();
            now.require_sound(1e6 * std::max(first_objective_, 1.0), rho_.rho);
            nu_ *= rho_.after_iteration(config_.schedule, now.total());
            return now;
        });
    }

    /// Collective: the objective at the variables of now, computed from scratch.
    objective_terms evaluate() {
        for (std::size_t l = 0; l < layers_.size(); ++l)
            coupling_[l] = norm2(residual(layers_[l].output(input_of(l)), z_[l]));
        return terms();
    }

    std::int64_t iterations() const { return iterations_; }
    double rho() const { return rho_.rho; }
    double nu() const { return nu_; }
    C* over() const { return over_; }
    const std::vector<split_layer<T>>& layers() const { return layers_; }
    const tensor<T>& output() const { return z_.back(); }
    /// Of the boundary behind layer l of this rank.
    const tensor<T>& copy(std::size_t l) const { return boundaries_[l + 1].q; }
    const tensor<T>& dual(std::size_t l) const { return boundaries_[l + 1].u; }
    const tensor<T>& hidden(std::size_t l) const { return z_[l]; }
    /// Sent by this rank since it was made: of each boundary to another rank, q once at the start, then q or p each
    /// iteration.
    index_t bytes_sent() const {
        index_t sum = 0;
        for (const boundary& b : boundaries_) sum += b.bytes_sent();
        return sum;
    }

    /// Of this rank; both ranks of a boundary have p, q and u, of which one counts.
    variable_list<T> variables() {
        variable_list<T> all = weights_of(layers_, first_);
        for (std::size_t l = 0; l < layers_.size(); ++l)
            all.push_back({"z/" + layers_[l].name, z_[l].share(), first_ + static_cast<int>(l)});
        for (std::size_t b = 0; b < boundaries_.size(); ++b) {
            boundary& here = boundaries_[b];
            if (here.p.empty()) continue;
            const int behind = first_ + static_cast<int>(b);
            const bool has_p = b<layers_.size(), has_q = b> 0;
            all.push_back({concat("p/", behind), here.p.share(), behind, has_p});
            all.push_back({concat("q/", behind - 1), here.q.share(), behind - 1, has_q});
            all.push_back({concat("u/", behind - 1), here.u.share(), behind - 1, has_q});
        }
        return all;
    }
    number_list numbers() {
        return {{"rho", &rho_.rho},
                {"nu", &nu_},
                {"last_objective", &rho_.last_objective},
                {"first_objective", &first_objective_}};
    }
    counter_list counters() { return {{"iterations", &iterations_}, {"rises", &rho_.rises}}; }

    /// Collective, after variables that count were set: the others take their values.
    void synchronise() {
        boundary &before = boundaries_.front(), &behind = boundaries_.back();
        const encode_step none{};
        if (behind.link_forward.is_remote()) {
            behind.link_forward.send(behind.q, {}, none);
            behind.link_forward.finish();
            behind.link_forward.send(behind.u, {}, none);
        }
        if (before.link_back.is_remote()) {
            before.link_back.send(before.p, {}, none);
            before.link_forward.receive(before.q, {}, none);
            before.link_forward.receive(before.u, {}, none);
        }
        if (behind.link_back.is_remote()) behind.link_back.receive(behind.p, {}, none);
        for (boundary& b : boundaries_) b.finish();
    }

private:
    using boundary = pdadmm_boundary<T, C>;

    int rank() const { return over_ ? over_->rank() : 0; }
    int ranks() const { return over_ ? over_->size() : 1; }
    bool has_next(std::size_t l) const { return l + 1 < layers_.size() || rank() + 1 < ranks(); }
    bool is_last(std::size_t l) const { return !has_next(l); }
    const tensor<T>& input_of(std::size_t l) const { return boundaries_[l].p.empty() ? samples_ : boundaries_[l].p; }

    // Names of all ranks' layers say where this rank's are among them.
    void find_place() {
        std::ostringstream mine;
        for (const split_layer<T>& l : layers_) mine << l.name << '\n';
        std::vector<std::string> all{mine.str()};
        if (ranks() > 1) all = all_gather_text(*over_, mine.str());
        for (std::size_t r = 0; r < all.size(); ++r) {
            std::istringstream names(all[r]);
            if (static_cast<int>(r) == rank()) first_ = static_cast<int>(names_.size());
            for (std::string one; std::getline(names, one);) names_.push_back(one);
        }
        coupling_.resize(layers_.size());
    }

    void make_boundary(std::size_t b, index_t n) {
        boundary here;
        const bool in_front_is_remote = b == 0 && rank() > 0,
                   behind_is_remote = b == layers_.size() && rank() + 1 < ranks();
        if (in_front_is_remote || behind_is_remote || (b > 0 && b < layers_.size())) {
            const shape s = (b < layers_.size() ? layers_[b].in : layers_[b - 1].out).with(0, n);
            here.p = tensor<T>(s);
            here.q = tensor<T>(s);
            here.u = tensor<T>::zeros(s);
        }
        if (in_front_is_remote || behind_is_remote) {
            const int number = first_ + static_cast<int>(b), peer = rank() + (behind_is_remote ? 1 : -1);
            require(2 * number + 1 < user_tags, name, ": more layers than tags");
            here.link_forward = {*over_, peer, 2 * number, concat("q of layer ", names_[at(number - 1)])};
            here.link_back = {*over_, peer, 2 * number + 1, concat("p of layer ", names_[at(number)])};
        }
        boundaries_.push_back(std::move(here));
    }
    static std::size_t at(int i) { return static_cast<std::size_t>(i); }

    // Forward through the network, from rank to rank.
    void start(std::size_t l) {
        boundary& before = boundaries_[l];
        if (!before.p.empty()) {
            if (before.link_forward.is_remote()) before.link_forward.receive(before.q, config_.codec, step_of(l, 0));
            std::ranges::copy(before.q.span(), before.p.data());
        }
        z_.push_back(layers_[l].output(input_of(l)));
        if (!has_next(l)) return;
        boundary& behind = boundaries_[l + 1];
        for_each([](T& q, const T& z) { q = std::max(z, T{}); }, behind.q, z_[l]);
        behind.link_forward.send(behind.q, config_.codec, step_of(l + 1, 0));
        if (behind.link_forward.is_remote()) std::ranges::copy(behind.q.span(), behind.p.data());
    }

    void fit_output(std::size_t l) {
        tensor<T> c = z_[l].clone();
        loss_.minimise(c, nu_, z_[l]);
        tensor<T> r = residual(std::move(c), z_[l]);
        update_weight(l, r);
        descend_bias(layers_[l], r);
    }

    // What a codec draws depends on iteration, boundary and direction alone.
    encode_step step_of(std::size_t b, std::uint32_t back) const {
        return {.seed = config_.seed,
                .step = iterations_,
                .bucket = 2 * static_cast<std::uint32_t>(first_ + static_cast<int>(b)) + back};
    }

    void update_layer(std::size_t l) {
        split_layer<T>& layer = layers_[l];
        tensor<T> r = residual(layer.output(input_of(l)), z_[l]);
        if (boundary& before = boundaries_[l]; !before.p.empty()) {
            update_p(l, before, r);
            before.link_back.send(before.p, config_.codec, step_of(l, 1));
            if (config_.codec) r = residual(layer.output(before.p), z_[l]);
        }
        update_weight(l, r);
        descend_bias(layer, r);
        update_z(l, r);
    }

    // p: ν/2 ‖r‖² + <u, p − q> + ρ/2 ‖p − q‖², divided by ν.
    void update_p(std::size_t l, boundary& before, tensor<T>& r) {
        before.link_back.finish();
        const double kappa = rho_.rho / nu_;
        const auto inverse = input_inverse(layers_[l], kappa, config_.solver);
        tensor<T> g = layers_[l].to_input(r);
        for_each([k = static_cast<T>(kappa), inv = static_cast<T>(1 / nu_)](T& d, const T& p, const T& q,
                                                                            const T& u) { d += inv * u + k * (p - q); },
                 g, before.p, before.q, before.u);
        descend_input(layers_[l], before.p, g, r, kappa, pointer_to(inverse));
    }

    void update_weight(std::size_t l, tensor<T>& r) {
        const double lambda = config_.mu / nu_;
        const bool fixed_input = boundaries_[l].p.empty();
        std::optional<tensor<T>> inverse;
        if (fixed_input && (!inverse_of_first_ || lambda != lambda_of_first_)) {
            inverse_of_first_ = weight_inverse(layers_[l], samples_, lambda, config_.solver);
            lambda_of_first_ = lambda;
        } else if (!fixed_input) {
            inverse = weight_inverse(layers_[l], input_of(l), lambda, config_.solver);
        }
        descend_weight(layers_[l], input_of(l), r, lambda, pointer_to(fixed_input ? inverse_of_first_ : inverse));
    }

    // From the residual of the old z; what remains of it is a term of the objective.
    void update_z(std::size_t l, tensor<T>& r) {
        for_each([](T& c, const T& z) { c += z; }, r, z_[l]);  // c
        if (is_last(l))
            loss_.minimise(r, nu_, z_[l]);
        else if (config_.proximal)
            for_each([](T& z, const T& c, const T& q) { z = relu_z_proximal(c, q, z); }, z_[l], r,
                     boundaries_[l + 1].q);
        else
            for_each([](T& z, const T& c, const T& q) { z = relu_z(c, q); }, z_[l], r, boundaries_[l + 1].q);
        coupling_[l] = norm2(residual(std::move(r), z_[l]));
    }

    // q and u behind layer l, once p has come back.
    void update_boundary(std::size_t l) {
        boundary& b = boundaries_[l + 1];
        if (b.link_back.is_remote()) b.link_back.receive(b.p, config_.codec, step_of(l + 1, 1));
        b.link_forward.finish();
        const tensor<T> old = b.q.clone();
        const T nu = static_cast<T>(nu_), rho = static_cast<T>(rho_.rho), alpha = static_cast<T>(config_.relaxation);
        for_each([=](T& q, const T& z, const T& p,
                     const T& u) { q = copy_q(std::max(z, T{}), alpha * p + (1 - alpha) * q, u, nu, rho); },
                 b.q, z_[l], b.p, b.u);
        b.link_forward.send(b.q, config_.codec, step_of(l + 1, 0));
        update_dual(b, old);
    }

    // The rank behind a boundary takes the same dual step.
    void follow_boundary() {
        boundary& b = boundaries_[0];
        const tensor<T> old = b.q.clone();
        b.link_forward.receive(b.q, config_.codec, step_of(0, 0));
        update_dual(b, old);
    }

    void update_dual(boundary& b, const tensor<T>& old) {
        b.update_dual(old, static_cast<T>(rho_.rho), static_cast<T>(config_.relaxation));
    }

    // Of all ranks, in the order of the layers whatever ranks they are on.
    objective_terms terms() {
        constexpr std::size_t each = 7;
        std::vector<double> of(each * names_.size());
        for (std::size_t l = 0; l < layers_.size(); ++l) {
            double* const to = of.data() + each * (static_cast<std::size_t>(first_) + l);
            if (is_last(l)) to[0] = loss_.value(z_[l]);
            to[1] = nu_ / 2 * coupling_[l];
            if (config_.mu > 0) to[2] = config_.mu / 2 * norm2(layers_[l].weight);
            to[3] = norm2(z_[l]);
            if (!has_next(l)) continue;
            const boundary& b = boundaries_[l + 1];
            tensor<T> slack = b.q.clone(), apart = residual(b.p.clone(), b.q);
            for_each([](T& s, const T& z) { s -= std::max(z, T{}); }, slack, z_[l]);
            to[4] = nu_ / 2 * norm2(slack);
            to[5] = inner(b.u, apart) + rho_.rho / 2 * norm2(apart);
            to[6] = norm2(apart) / std::max(norm2(b.q), std::numeric_limits<double>::min());
        }
        if (ranks() > 1) all_reduce(*over_, std::span<double>(of));
        objective_terms t;
        for (std::size_t l = 0; l < names_.size(); ++l) {
            const double* const from = of.data() + each * l;
            const bool last = l + 1 == names_.size();
            if (last) t.add("loss", from[0]);
            t.add("nu/2 |z - Wp - b|^2 of layer " + names_[l], from[1]);
            if (config_.mu > 0) t.add("mu/2 |W|^2 of layer " + names_[l], from[2]);
            if (last) continue;
            t.add("nu/2 |q - relu z|^2 behind layer " + names_[l], from[4]);
            t.add("<u, p - q> + rho/2 |p - q|^2 behind layer " + names_[l], from[5]);
            t.residual = std::max(t.residual, from[6]);
        }
        return t;
    }

    std::vector<split_layer<T>> layers_;
    config config_;
    output_loss<T> loss_;
    C* over_;
    std::vector<std::string> names_;  // of all layers of all ranks
    int first_ = 0;                   // of this rank's among them
    tensor<T> samples_;               // input of the first layer of all
    std::vector<boundary> boundaries_;
    std::vector<tensor<T>> z_;
    std::vector<double> coupling_;  // ‖z_l − c_l‖²
    std::optional<tensor<T>> inverse_of_first_;
    double lambda_of_first_ = 0;
    rho_state rho_;
    double nu_ = 0, first_objective_ = 0;
    std::int64_t iterations_ = 0;
};

}  // namespace cairn::admm
