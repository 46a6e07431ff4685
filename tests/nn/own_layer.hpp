#pragma once
// Code of course/write-your-own-layer.md, which tests/train/own_layer_test.cpp holds to the laws of layers and trains.

#include <cairn/core/for_each.hpp>
#include <cairn/device/cpu/reduce.hpp>
#include <cairn/nn/add.hpp>
#include <cairn/nn/layer.hpp>
#include <cairn/nn/sequential.hpp>

namespace cairn::own {

// --8<-- [start:layer]
template <class T>
struct prelu_rule {  // values are read, references written; g is x in forward, dy in backward
    const T* slope;
    CAIRN_HD void operator()(T x, T g, T& result) const { result = x > 0 ? g : *slope * g; }
};
struct prelu_slope_rule {
    CAIRN_HD void operator()(auto x, auto dy, auto& share) const { share = x > 0 ? 0 : x * dy; }
};
/// PReLU (He et al. 2015): y = x where x > 0, else a x, with one trained slope a. Any shape.
template <class T = float, Device D = cpu>
class prelu {
public:
    using value_type = T;
    using device = D;
    prelu() { slope_.shape = {1}, slope_.init.offset = 0.25; }
    tensor<T, D> forward(tensor<T, D> x, saved_tensors<T, D>& saved, const pass_context& p) {
        tensor<T, D> y(x.shape());
        for_each(prelu_rule<T>{slope_.value.data()}, x, x, y);
        if (p.training()) saved.put(0, std::move(x));
        return y;
    }
    tensor<T, D> backward_input(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context&) {
        tensor<T, D> x = saved.take(0), dx(x.shape()), sum({1}), share(x.shape(), memory_category::workspace);
        for_each(prelu_slope_rule{}, x, dy, share);
        column_sums(D{}, x.size(), 1, share.data(), sum.data(), false);
        for_each(prelu_rule<T>{slope_.value.data()}, x, dy, dx);
        saved.put(1, std::move(sum));
        return dx;
    }
    void backward_weight(saved_tensors<T, D>& saved, const pass_context&) {
        for_each(D{}, 1, functors::add{}, slope_.grad.data(), saved.take(1).data());
    }
    layer_parameters<T, D> parameters() { return {{"slope", &slope_}}; }
    shape output_shape(const shape& in) const { return in; }
    layer_cost cost(const shape& in) const {
        const double n = double(in.size()), bytes = sizeof(T) * n;
        return {.forward = {3 * n, 3 * bytes},
                .backward_input = {7 * n, 7 * bytes},
                .backward_weight = {2, 2 * sizeof(T)},
                .parameters = 1,
                .saves_input = true};
    }
    std::string describe() const { return "prelu"; }

private:
    layer_parameter<T, D> slope_;
};
// --8<-- [end:layer]

// --8<-- [start:network]
struct gate_rule {
    CAIRN_HD void operator()(auto a, auto b, auto& result) const { result = a * b; }
};

/// Gated linear unit (Dauphin et al. 2017): y = value(x) ⊙ gate(x), two chains over the same input.
template <class T = float, Device D = cpu>
class gated {
public:
    using value_type = T;
    using device = D;

    gated(sequential<T, D> value, sequential<T, D> gate) : value_(std::move(value)), gate_(std::move(gate)) {}

    tensor<T, D> forward(tensor<T, D> x, saved_tensors<T, D>& saved, const pass_context& p) {
        output_shape(x.shape());
        tensor<T, D> v = value_.forward(x.share(), saved.child(0), p.child("value"));
        tensor<T, D> g = gate_.forward(std::move(x), saved.child(1), p.child("gate"));
        tensor<T, D> y(v.shape());
        for_each(gate_rule{}, v, g, y);
        if (p.training()) saved.put(0, std::move(v)), saved.put(1, std::move(g));
        return y;
    }
    tensor<T, D> backward_input(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        auto [dv, dg] = both(std::move(dy), saved);
        tensor<T, D> dx = value_.backward_input(std::move(dv), saved.child(0), p.child("value"));
        return add(std::move(dx), gate_.backward_input(std::move(dg), saved.child(1), p.child("gate")));
    }
    void backward_weight(saved_tensors<T, D>& saved, const pass_context& p) {
        value_.backward_weight(saved.child(0), p.child("value"));
        gate_.backward_weight(saved.child(1), p.child("gate"));
    }
    layer_parameters<T, D> parameters() {
        layer_parameters<T, D> all;
        append_prefixed(all, "value", value_.parameters());
        append_prefixed(all, "gate", gate_.parameters());
        return all;
    }
    layer_buffers<T, D> buffers() {
        layer_buffers<T, D> all;
        append_prefixed(all, "value", value_.buffers());
        append_prefixed(all, "gate", gate_.buffers());
        return all;
    }
    shape output_shape(const shape& in) const {
        const shape v = value_.output_shape(in), g = gate_.output_shape(in);
        require(v == g, describe(), ": from ", in, " the value is ", v, ", the gate ", g, "; they must agree");
        return v;
    }
    layer_cost cost(const shape& in) const {
        const layer_cost v = value_.cost(in), g = gate_.cost(in);
        const double x = double(in.size()), y = double(output_shape(in).size()), size = sizeof(T);
        layer_cost c = v;
        c.forward += g.forward, c.forward += {y, 3 * size * y};
        c.backward_input += g.backward_input, c.backward_input += {x + 2 * y, size * (3 * x + 6 * y)};
        c.backward_weight += g.backward_weight;
        c.parameters += g.parameters;
        c.saved_bytes += g.saved_bytes + 2 * block_bytes<T>(output_shape(in));  // v and g
        c.saves_input = v.saves_input || g.saves_input;
        return c;
    }
    std::string describe() const { return "gated"; }

private:
    // Gradients of v and of g.
    std::pair<tensor<T, D>, tensor<T, D>> both(tensor<T, D> dy, saved_tensors<T, D>& saved) {
        tensor<T, D> v = saved.take(0), g = saved.take(1), dv(v.shape()), dg(v.shape());
        for_each(gate_rule{}, dy, g, dv);
        for_each(gate_rule{}, dy, v, dg);
        return {std::move(dv), std::move(dg)};
    }

    sequential<T, D> value_, gate_;
};
// --8<-- [end:network]

}  // namespace cairn::own
