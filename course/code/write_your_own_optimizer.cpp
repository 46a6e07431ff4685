// Code of course/write-your-own-optimizer.md. Trains on one rank and on four, and checks that both take the same steps.

#include <cairn/comm/threads.hpp>
#include <cairn/core/arena.hpp>
#include <cairn/nn/activation.hpp>
#include <cairn/nn/linear.hpp>
#include <cairn/nn/loss/mean_squared.hpp>
#include <cairn/nn/sequential.hpp>
#include <cairn/optim/precondition/preconditioner.hpp>
#include <cairn/optim/sgd.hpp>
#include <cairn/parallel/gradient_sync.hpp>

#include <cmath>
#include <cstdio>
#include <memory>

using namespace cairn;

// --8<-- [start:rule]
/// The formula for one number: references are written, values are read.
template <class T>
struct lion_rule {
    T lr, beta1, beta2, decay;

    void operator()(T& theta, T g, T& m) const {
        const T direction = beta1 * m + (1 - beta1) * g;
        m = beta2 * m + (1 - beta2) * g;
        theta -= lr * (static_cast<T>((direction > 0) - (direction < 0)) + decay * theta);
    }
};
// --8<-- [end:rule]

// --8<-- [start:optimizer]
/// Lion (Chen et al. 2023): the sign of a momentum.
struct lion {
    static constexpr const char* name = "lion";
    struct config {
        double beta1 = 0.9, beta2 = 0.99;
        double weight_decay = 0;
    } c;

    template <class T, Device D>
    struct state {
        static constexpr std::array names{"m"};  // what a saved state calls it
        tensor<T, D> m;
    };

    template <class T>
    lion_rule<T> rule(const update_context& at) const {
        return {T(at.lr), T(c.beta1), T(c.beta2), T(at.decay ? c.weight_decay : 0)};
    }
    void check() const { require(c.beta1 >= 0 && c.beta1 < 1, "lion: beta1 ", c.beta1, "; it must be in [0, 1)"); }
};
static_assert(Optimizer<lion>);
// --8<-- [end:optimizer]

// --8<-- [start:preconditioner]
/// Divides each row of a weight's gradient by the running root mean square of that row: one number of memory a row.
class row_scaling final : public preconditioner<float> {
public:
    explicit row_scaling(arena<float>& weights) {
        for (const auto& w : weights.parameters()) {
            rows_.push_back({w.name, tensor<float>::zeros({w.p->shape[0]}, memory_category::optimizer)});
            grads_.push_back(w.p->grad.share());
        }
    }
    void precondition(double /*examples*/, double /*lr*/) override {
        ++steps_;
        const auto unbias = static_cast<float>(1 / (1 - std::pow(0.95, static_cast<double>(steps_))));
        for (std::size_t i = 0; i < rows_.size(); ++i) {
            tensor<float>& mean = rows_[i].t;
            const cairn::index_t rows = mean.size(), width = grads_[i].size() / rows;
            for (cairn::index_t r = 0; r < rows; ++r) {
                float* const g = grads_[i].data() + r * width;
                float square = 0;
                for (cairn::index_t c = 0; c < width; ++c) square += g[c] * g[c] / static_cast<float>(width);
                mean[r] = 0.95f * mean[r] + 0.05f * square;
                const float scale = 1 / (std::sqrt(unbias * mean[r]) + 1e-8f);
                for (cairn::index_t c = 0; c < width; ++c) g[c] *= scale;
            }
        }
    }
    std::vector<named_tensor<float>> tensors() override {
        std::vector<named_tensor<float>> all;
        for (auto& r : rows_) all.push_back({r.name, r.t.share()});
        return all;
    }
    std::vector<std::pair<std::string, std::int64_t*>> counters() override { return {{"steps", &steps_}}; }

private:
    std::vector<named_tensor<float>> rows_;
    std::vector<tensor<float>> grads_;
    std::int64_t steps_ = 0;
};
// --8<-- [end:preconditioner]

// --8<-- [start:train]
/// Twenty steps on this rank's part of each batch of 32; the loss of the last one over all ranks.
template <class O>
double train(threads_communicator& world, O rule, bool scale_rows, double lr) {
    sequential<float> net;
    net.add("hidden", linear<float>({.in = 4, .out = 16}));
    net.add("relu", activation_layer<float>(activation::relu));
    net.add("out", linear<float>({.in = 16, .out = 1}));
    arena<float> weights(net.parameters(), 1);
    bound_optimizer optimizer(rule, weights);
    row_scaling scaling(weights);
    channel<threads_communicator> over(world);
    gradient_sync<threads_communicator> gradients(over, weights, {});
    agreement<threads_communicator> agree(over.host);
    const range mine = shard_of(32, world.size(), world.rank());
    double loss = 0;
    for (std::int64_t step = 0; step < 20; ++step) {
        tensor<float> x({mine.count, 4}), target({mine.count, 1});
        for (cairn::index_t i = 0; i < mine.count; ++i) {
            const random_stream random{7, static_cast<std::uint32_t>(mine.begin + i), static_cast<std::uint32_t>(step)};
            for (cairn::index_t k = 0; k < 4; ++k) x(i, k) = static_cast<float>(random.normal(std::uint64_t(k)));
            target(i, 0) = x(i, 0) * x(i, 1);
        }
        weights.zero_grad();
        gradients.begin(step);
        saved_tensors<float> saved;
        const pass_context p{.listener = gradients.listener()};
        auto [value, dy] = mean_squared{}(net.forward(std::move(x), saved, p), target);
        const auto share = static_cast<float>(mine.count) / 32.0f;  // of the batch: gradients are summed over ranks
        for_each([share](float& g) { g *= share; }, dy);
        net.backward(std::move(dy), saved, p);
        const double count = static_cast<double>(mine.count);
        const step_totals all = synchronise(gradients, agree, {.loss = value * count, .samples = count}, step + 1);
        if (scale_rows) scaling.precondition(all.samples, lr);
        optimizer.step(lr);
        loss = all.loss / all.samples;
    }
    return loss;
}
// --8<-- [end:train]

int main() {
    // --8<-- [start:run]
    for (const bool scale_rows : {false, true}) {
        double losses[2] = {};
        for (const int ranks : {1, 4})
            run_ranks(ranks, [&](threads_communicator& world) {
                const double loss =
                    scale_rows ? train(world, sgd{{.momentum = 0.9}}, true, 0.003) : train(world, lion{}, false, 0.003);
                if (world.rank() == 0) losses[ranks == 4] = loss;
            });
        std::printf("%s: loss %.6f on one rank, %.6f on four\n", scale_rows ? "rows scaled, sgd" : "lion", losses[0],
                    losses[1]);
        // --8<-- [end:run]
        if (!(std::abs(losses[0] - losses[1]) < 1e-4 * losses[0]) || !(losses[0] < 2)) return 1;
    }
}
