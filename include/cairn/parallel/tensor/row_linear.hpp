#pragma once
// Row-parallel linear layer (Shoeybi et al. 2019, "Megatron-LM", section 3): rank r has the columns W_r of W (out, in),
// and of x what a column-parallel layer gave it,
//   y = Σ_r x_r W_rᵀ + b                    all-reduce in forward (g); b is the same on each rank
//   dx_r = dy W_r      dW_r += dyᵀ x_r      db += column sums of dy       nothing travels in backward
// With sequences in parts (Korthikanti et al. 2022, section 4.2.1) y is reduce-scattered and dy gathered along axis 1.
// Every rank sees the whole dy, so db has the same bits on all of them and is not exchanged.
// Bytes sent by a rank, n of y: 2 (p-1)/p n in both cases.
// Saved: x; after backward_input also dy. Tested against linear, on one rank.

#include <cairn/device/cpu/reduce.hpp>
#include <cairn/device/cpu/rows.hpp>
#include <cairn/nn/linear.hpp>
#include <cairn/parallel/tensor/tensor_axis.hpp>

namespace cairn {

/// This rank's inputs (…, in of rank) → y (…, out), the same on each rank or in parts along axis 1.
template <Communicator C, class T = float, Device D = cpu>
class row_linear {
public:
    using value_type = T;
    using device = D;

    struct config {
        typename linear<T, D>::config whole;  // the layer as one rank has it
        index_t unit = 1;                     // inputs that stay together: a head's
        sequence_layout sequences = sequence_layout::whole;
    };

    row_linear(tensor_axis<C>& axis, config c) : axis_(&axis), config_(c), inner_(part_of_layer(axis, c)) {
        parameter<weight_of<T>, D>& w = *inner_.parameters().front().p;
        w.init = c.whole.init(c.whole.in, c.whole.out);
        w.layout.global = w.shape.with(1, c.whole.in);
        w.layout.begin[1] = inputs(axis, c).begin;
        bias_.shape = {c.whole.out};
        bias_.init = c.whole.bias_init(c.whole.in, c.whole.out);
        bias_.decay = false;
        bias_.layout.replicated_over = {"tensor"};
    }

    tensor<T, D> forward(tensor<T, D> x, saved_tensors<T, D>& saved, const pass_context& p) {
        output_shape(x.shape());
        require_no_curvature(p, "row_linear");
        tensor<T, D> y = summed(inner_.forward(std::move(x), saved, p));
        if (config_.whole.bias)
            add_to_rows(D{}, y.size() / config_.whole.out, config_.whole.out, cast<T>(bias_.value).data(), y.data());
        return y;
    }

    tensor<T, D> backward_input(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        return inner_.backward_input(whole(dy), saved, p);
    }

    void backward_weight(saved_tensors<T, D>& saved, const pass_context& p) {
        bias_gradient(saved.get(1), p);
        inner_.backward_weight(saved, p);
    }

    tensor<T, D> backward(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        tensor<T, D> all = whole(dy);
        dy.reset();
        bias_gradient(all, p);
        return inner_.backward(std::move(all), saved, p);
    }

    layer_parameters<T, D> parameters() {
        layer_parameters<T, D> list = inner_.parameters();
        if (config_.whole.bias) list.push_back({"bias", &bias_});
        return list;
    }

    shape output_shape(const shape& in) const {
        const index_t here = inputs(*axis_, config_).count;
        require(in.rank() >= (in_parts() ? 3 : 1) && in.back() == here, describe(), " takes (",
                in_parts() ? "batch, length" : "...", ", ", here, "), got ", in);
        const shape out = inner_.output_shape(in);
        if (!in_parts()) return out;
        require_equal_parts(in[1], axis_->size());
        return axis_->part_shape(out, 1);
    }

    layer_cost cost(const shape& in) const {
        layer_cost c = inner_.cost(in);
        if (config_.whole.bias) {
            const double y = double(output_shape(in).size()), all = double(inner_.output_shape(in).size()),
                         out = double(config_.whole.out), size = sizeof(T);
            c.forward += {y, size * (2 * y + out)};
            c.forward += cast_cost<T, weight_of<T>>(out);
            c.backward_weight += {all, size * all};
            c.parameters += config_.whole.out;
        }
        const shape y = inner_.output_shape(in);
        if (in_parts()) {
            c.forward.sends.tensor = axis_->template reduce_scatter_sends<T>(y, 1);
            c.backward_input.sends.tensor = axis_->template gather_sends<T>(y, 1);
        } else {
            c.forward.sends.tensor = axis_->template sum_sends<T>(y.size());
        }
        return c;
    }

    std::string describe() const {
        return concat("row_linear ", config_.whole.in, " -> ", config_.whole.out, ", rank ", axis_->rank(), " of ",
                      axis_->size());
    }

private:
    bool in_parts() const { return config_.sequences == sequence_layout::parts; }

    static range inputs(const tensor_axis<C>& axis, const config& c) {
        const std::string name = concat("row_linear ", c.whole.in, " -> ", c.whole.out);
        require(c.unit >= 1 && c.whole.in % c.unit == 0, name, ": ", c.whole.in, " inputs are not made of units of ",
                c.unit);
        const range units =
            axis.part_of(c.whole.in / c.unit, name + (c.unit > 1 ? ": units of inputs (heads)" : ": inputs"));
        return {units.begin * c.unit, units.count * c.unit};
    }
    static typename linear<T, D>::config part_of_layer(const tensor_axis<C>& axis, const config& c) {
        typename linear<T, D>::config here = c.whole;
        here.in = inputs(axis, c).count;
        here.bias = false;
        return here;
    }

    tensor<T, D> summed(tensor<T, D> y) {
        if (in_parts()) return axis_->reduce_scatter(std::move(y), 1, "output of row_linear");
        axis_->sum(y, "output of row_linear");
        return y;
    }
    tensor<T, D> whole(const tensor<T, D>& dy) {
        if (!in_parts()) return dy.share();
        return axis_->gather(dy, 1, whole_length(dy.extent(1), axis_->size()), "output gradient of row_linear");
    }
    void bias_gradient(const tensor<T, D>& dy, const pass_context& p) {
        if (config_.whole.bias && p.weight_gradient)
            column_sums(D{}, dy.size() / config_.whole.out, config_.whole.out, dy.data(), bias_.grad.data(), true);
    }

    tensor_axis<C>* axis_;
    config config_;
    linear<T, D> inner_;  // of this rank's inputs, without the bias
    layer_parameter<T, D> bias_;
};

}  // namespace cairn
