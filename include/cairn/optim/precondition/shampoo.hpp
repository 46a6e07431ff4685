#pragma once
// Shampoo (Gupta, Koren and Singer 2018; blocks and grafting: Anil et al. 2020), of each gradient G as a matrix (first
// extent, all others):
//   L ← ρ L + G Gᵀ        R ← ρ R + Gᵀ G
//   direction = L^(−1/4) G R^(−1/4),  made as long as G (grafting): the step size is that of the optimizer behind it;
//               or of root mean square 1 (unit) for one that divides by the gradient's size, such as Adam
// Matrices larger than `block` are cut into blocks with an L and an R each. Roots are taken of L + ε·max(eigenvalue) I,
// every `refresh_every` steps and while the number of steps is a power of two; without ε a direction has as much along
// eigenvectors with noise alone as along others (course/kfac.md). Vectors keep their gradients.
// State of a block (m, n): L, R and their roots, 2 (m² + n²) numbers. Products: 2mn(m + n) flops for the direction, as
// many for L and R.
// On a device other than the host (device/grid/matrix_preconditioner_kernels.hpp) only steps that take roots wait for
// it.

#include <cairn/core/arena.hpp>
#include <cairn/core/trace.hpp>
#include <cairn/device/cpu/gemm.hpp>
#include <cairn/device/cpu/linalg.hpp>
#include <cairn/device/cpu/matrix_preconditioner_kernels.hpp>
#include <cairn/optim/precondition/preconditioner.hpp>

#include <bit>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

struct shampoo_config {
    double decay = 0.99;    // ρ; 1: a sum
    double epsilon = 1e-2;  // ε
    index_t block = 1024;
    std::int64_t refresh_every = 20;
    bool unit = false;  // directions of root mean square 1, else as long as the gradient
};

/// A^(power) of a symmetric matrix (n, n) into `to`, eigenvalues raised by epsilon times the largest first. Zero where
/// A is. Throws if A is not finite.
template <class T, Device D>
void symmetric_power(const tensor<T, D>& a, double power, double epsilon, tensor<T, D>& to) {
    const index_t n = a.extent(0);
    const auto [values, vectors] = eigh(D{}, a);
    tensor<T, D> scaled({n, n}, memory_category::workspace);
    powered_columns(D{}, n, values.data(), vectors.data(), power, epsilon, scaled.data());
    gemm(D{}, false, true, n, n, n, T{1}, scaled.data(), n, vectors.data(), n, T{0}, to.data(), n);
}

template <class T, Device D = cpu>
class shampoo final : public preconditioner<T, D> {
public:
    /// Shares the arena's memory. Throws on settings that make no sense.
    shampoo(arena<T, D>& weights, shampoo_config c) : weights_(&weights), config_(c) {
        require(c.decay > 0 && c.decay <= 1, "shampoo: decay ", c.decay, "; it must be in (0, 1]");
        require(c.epsilon >= 0, "shampoo: epsilon ", c.epsilon, "; it must not be negative");
        require(c.block >= 1 && c.refresh_every >= 1, "shampoo: blocks of ", c.block, ", refreshed every ",
                c.refresh_every, " steps; both must be at least 1");
        for (const auto& named : weights.parameters()) {
            const std::string& name = named.name;
            parameter<T, D>* const p = named.p;
            if (p->shape.rank() < 2 || p->shape.size() == 0) continue;
            p->unit_gradient = c.unit;
            const index_t rows = p->shape[0], columns = p->shape.size() / rows;
            for (index_t r = 0; r < rows; r += c.block)
                for (index_t k = 0; k < columns; k += c.block) {
                    const index_t m = std::min(c.block, rows - r), n = std::min(c.block, columns - k);
                    const auto zeros = [](index_t s) {
                        return tensor<T, D>::zeros({s, s}, memory_category::optimizer);
                    };
                    blocks_.push_back(
                        {concat(name, '/', r, '/', k), p, r, k, columns, zeros(m), zeros(n), zeros(m), zeros(n)});
                }
        }
    }

    void precondition(double, double) override {
        const trace_scope scope("shampoo", "step", "optimizer");
        require_finite_gradients("shampoo", *weights_);
        ++steps_;
        const bool refresh =
            steps_ % config_.refresh_every == 0 ||
            (steps_ < config_.refresh_every && std::has_single_bit(static_cast<std::uint64_t>(steps_)));
        for (block& b : blocks_) try {
                step(b, refresh);
            } catch (const error& e) {  // squares of gradients that float cannot hold
                fail_divergence("shampoo step ", steps_, ": statistics of ", b.name, ": ", e.what(),
                                "; nothing was updated. Lower the learning rate, warm up, or clip");
            }
    }

    std::vector<named_tensor<T, D>> tensors() override {
        std::vector<named_tensor<T, D>> all;
        for (block& b : blocks_) {
            all.push_back({b.name + "/l", b.l.share()});
            all.push_back({b.name + "/r", b.r.share()});
            all.push_back({b.name + "/l_root", b.l_root.share()});
            all.push_back({b.name + "/r_root", b.r_root.share()});
        }
        return all;
    }
    std::vector<std::pair<std::string, std::int64_t*>> counters() override { return {{"steps", &steps_}}; }

private:
    struct block {
        std::string name;
        parameter<T, D>* p;
        index_t row, column, stride;  // where it begins in the matrix, whose rows are `stride` long
        tensor<T, D> l, r, l_root, r_root;
    };

    void step(block& b, bool refresh) const {
        const index_t m = b.l.extent(0), n = b.r.extent(0);
        T* const g = b.p->grad.data() + b.row * b.stride + b.column;
        const T rho = static_cast<T>(config_.decay);
        gemm(D{}, false, true, m, m, n, T{1}, g, b.stride, g, b.stride, rho, b.l.data(), m);
        gemm(D{}, true, false, n, n, m, T{1}, g, b.stride, g, b.stride, rho, b.r.data(), n);
        if (refresh) {  // into the same memory: handles to it stay valid
            symmetric_power(b.l, -0.25, config_.epsilon, b.l_root);
            symmetric_power(b.r, -0.25, config_.epsilon, b.r_root);
        }
        tensor<T, D> half({m, n}, memory_category::workspace), v({m, n}, memory_category::workspace);
        gemm(D{}, false, false, m, n, m, T{1}, b.l_root.data(), m, g, b.stride, T{0}, half.data(), n);
        gemm(D{}, false, false, m, n, n, T{1}, half.data(), n, b.r_root.data(), n, T{0}, v.data(), n);
        graft_matrix(D{}, m, n, v.data(), g, b.stride, config_.unit);  // without a gradient yet, v is zero
    }

    const arena<T, D>* weights_;
    shampoo_config config_;
    std::vector<block> blocks_;
    std::int64_t steps_ = 0;
};

}  // namespace cairn
