// Code of course/tensor-parallelism.md: a network whose tensors are cut over 1, 2 and 4 ranks takes the same steps.

#include <cairn/comm/threads.hpp>
#include <cairn/nn/activation.hpp>
#include <cairn/nn/loss/mean_squared.hpp>
#include <cairn/nn/sequential.hpp>
#include <cairn/optim/clip.hpp>
#include <cairn/optim/sgd.hpp>
#include <cairn/parallel/global_parameter.hpp>
#include <cairn/parallel/sharded.hpp>
#include <cairn/parallel/slice_sums.hpp>
#include <cairn/parallel/tensor/column_linear.hpp>
#include <cairn/parallel/tensor/row_linear.hpp>

#include <cmath>
#include <cstdio>
#include <vector>

using namespace cairn;
using cairn::index_t;
using ranks = threads_communicator;

// --8<-- [start:layer]
/// y[…, k] = scale[k] · x[…, k] for this rank's features, `here` of `all`.
class feature_scale {
public:
    using value_type = double;
    using device = cpu;

    feature_scale(range here, index_t all) {
        scale_.shape = {here.count};
        scale_.init = {initializer::distribution::normal, 0.1, 1};
        scale_.layout.global = {all};         // the parameter of the whole model …
        scale_.layout.begin[0] = here.begin;  // … of which this rank has the slice from here on
    }

    tensor<double> forward(tensor<double> x, saved_tensors<double>& saved, const pass_context& p) {
        tensor<double> y = scaled(x);
        if (p.training()) saved.put(0, std::move(x));
        return y;
    }
    tensor<double> backward_input(tensor<double> dy, saved_tensors<double>& saved, const pass_context&) {
        tensor<double> dx = scaled(dy);
        saved.put(1, std::move(dy));
        return dx;
    }
    void backward_weight(saved_tensors<double>& saved, const pass_context&) {
        const tensor<double> x = saved.take(0), dy = saved.take(1);
        for (index_t i = 0; i < x.size(); ++i) scale_.grad[i % scale_.grad.size()] += dy[i] * x[i];
    }
    layer_parameters<double> parameters() { return {{"scale", &scale_}}; }
    shape output_shape(const shape& in) const { return in; }
    layer_cost cost(const shape& in) const { return {.forward = {double(in.size()), 16.0 * double(in.size())}}; }
    std::string describe() const { return "feature_scale"; }

private:
    tensor<double> scaled(const tensor<double>& x) const {
        tensor<double> y(x.shape());
        for (index_t i = 0; i < x.size(); ++i) y[i] = scale_.value[i % scale_.value.size()] * x[i];
        return y;
    }
    parameter<double> scale_;
};
// --8<-- [end:layer]

// --8<-- [start:network]
sequential<double> network(tensor_axis<ranks>& axis) {
    constexpr index_t in = 6, hidden = 10, out = 3;
    sequential<double> net;
    net.add("first", column_linear<ranks, double>(axis, {.whole = {.in = in, .out = hidden}}));
    net.add("scale", feature_scale(axis.part_of(hidden, "feature_scale: features"), hidden));
    net.add("gelu", gelu<double>());
    net.add("second", row_linear<ranks, double>(axis, {.whole = {.in = hidden, .out = out}}));
    return net;
}
// --8<-- [end:network]

tensor<double> normal(const shape& s, std::uint32_t stream) {
    tensor<double> t(s);
    for (index_t i = 0; i < t.size(); ++i) t[i] = random_stream{1, stream, 0}.normal(std::uint64_t(i));
    return t;
}

/// The losses of some steps on p ranks.
std::vector<double> train(int p) {
    std::vector<double> losses;
    run_ranks(p, [&](ranks& c) {
        // --8<-- [start:train]
        channel<ranks> over(c);         // the ranks among which tensors are cut
        tensor_axis<ranks> axis(over);  // and what they say to each other
        auto net = network(axis);
        arena<double> weights(net.parameters(), 7);  // the numbers of one rank, each where it belongs
        const slice_sums<ranks> slices(over, weights, "tensor");
        using optimizer = clipped<sgd>;
        bound_optimizer o(sharded<optimizer>{{sgd{{.momentum = 0.9}}, by_norm{1}},
                                             {0, weights.values().size()},
                                             [&](auto sums) { return slices.by_parameter(sums), sums; }},
                          weights);
        // --8<-- [end:train]
        const tensor<double> x = normal({8, 6}, 1), target = normal({8, 3}, 2);
        for (int step = 0; step < 5; ++step) {
            saved_tensors<double> saved;
            auto [loss, dy] = mean_squared{}(net.forward(x.clone(), saved, {}), target);
            weights.zero_grad();
            net.backward(std::move(dy), saved, {});
            o.step(0.1);
            if (c.rank() == 0) losses.push_back(loss);
        }
        // --8<-- [start:save]
        for (const auto& [name, q] : weights.parameters()) {
            const tensor<double> whole = gather_global(c, q->value, q->layout, 0, name);  // on rank 0, say to a file
            scatter_global(c, whole, q->value, q->layout, 0, name);                       // and back, to any mesh
        }
        // --8<-- [end:save]
    });
    return losses;
}

int main() {
    const std::vector<double> alone = train(1);
    for (const int p : {1, 2, 4}) {
        const std::vector<double> losses = train(p);
        std::printf("%d ranks:", p);
        for (std::size_t i = 0; i < losses.size(); ++i) {
            std::printf(" %.6f", losses[i]);
            require(std::abs(losses[i] - alone[i]) <= 1e-12 * alone[i], p, " ranks: loss ", losses[i], " of step ", i,
                    ", one has ", alone[i]);
        }
        std::printf("\n");
    }
    require(alone.back() < alone.front(), "the loss does not fall");
}
