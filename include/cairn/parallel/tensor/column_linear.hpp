#pragma once
// Column-parallel linear layer (Shoeybi et al. 2019, "Megatron-LM", section 3): rank r has the rows W_r of W (out, in),
//   y_r = x W_rᵀ + b_r                      outputs of rank r; forward says nothing (f)
//   dx = Σ_r dy_r W_r                       all-reduce, while dW_r += dy_rᵀ x and db_r are computed
// With sequences in parts (Korthikanti et al. 2022, section 4.2.1) x is gathered and dx reduce-scattered along axis 1;
// x is kept in parts, and gathered again in backward while dy_r W_r is computed.
// Bytes sent by a rank, n of x: whole 2 (p-1)/p n; in parts 3 (p-1)/p n, 1/p of x kept.
// W may be made of equal arrays one after another, each cut alike (Q, K and V of an attention: parts = 3, unit =
// head_dim: outputs go to ranks by heads). Saved: x; after backward_input also dy.
// Tested against linear, on one rank.

#include <cairn/nn/linear.hpp>
#include <cairn/parallel/tensor/tensor_axis.hpp>

namespace cairn {

/// x (…, in), the same on each rank or in parts along axis 1, → this rank's outputs (…, out of rank).
template <Communicator C, class T = float, Device D = cpu>
class column_linear {
public:
    using value_type = T;
    using device = D;

    struct config {
        typename linear<T, D>::config whole;  // the layer as one rank has it
        index_t parts = 1;                    // equal arrays that the outputs consist of
        index_t unit = 1;                     // outputs that stay together
        sequence_layout sequences = sequence_layout::whole;
    };

    column_linear(tensor_axis<C>& axis, config c) : axis_(&axis), config_(c), inner_(part_of_layer(axis, c)) {
        const range mine = outputs(axis, c);
        for (auto& [name, p] : inner_.parameters()) {
            p->init = (name == "weight" ? c.whole.init : c.whole.bias_init)(c.whole.in, c.whole.out);
            p->layout.global = p->shape.with(0, c.whole.out);
            p->layout.begin[0] = mine.begin;
            p->layout.parts = c.parts;
        }
    }

    tensor<T, D> forward(tensor<T, D> x, saved_tensors<T, D>& saved, const pass_context& p) {
        output_shape(x.shape());
        require_no_curvature(p, "column_linear");
        pass_context keeps_nothing = p;
        keeps_nothing.mode = mode::evaluate;
        tensor<T, D> y = inner_.forward(whole(x), saved, keeps_nothing);
        if (p.training()) saved.put(0, std::move(x));
        return y;
    }

    tensor<T, D> backward_input(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        tensor<T, D> dx;
        if (p.input_gradient) dx = summed(inner_.input_gradient(dy, whole_shape(saved.get(0).shape())));
        saved.put_exact(1, std::move(dy));
        return dx;
    }

    void backward_weight(saved_tensors<T, D>& saved, const pass_context& p) {
        const tensor<T, D> x = whole(saved.take(0)), dy = saved.take(1);
        inner_.weight_gradient(x, dy, p);
    }

    /// Both halves: what travels does so while the other half is computed.
    tensor<T, D> backward(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        const tensor<T, D> x_here = saved.take(0);
        tensor<T, D> x, dx;
        const auto input_gradient = [&] { dx = inner_.input_gradient(dy, whole_shape(x_here.shape())); };
        const auto weight_gradient = [&] { inner_.weight_gradient(x, dy, p); };
        if (!p.input_gradient) {
            x = whole(x_here);
            weight_gradient();
            return {};
        }
        if (in_parts())
            axis_->meanwhile([&] { x = whole(x_here); }, input_gradient);
        else
            x = x_here.share(), input_gradient();
        axis_->meanwhile([&] { dx = summed(std::move(dx)); }, weight_gradient);
        return dx;
    }

    layer_parameters<T, D> parameters() { return inner_.parameters(); }

    shape output_shape(const shape& in) const {
        require(in.rank() >= (in_parts() ? 3 : 1) && in.back() == config_.whole.in, describe(), " takes (",
                in_parts() ? "batch, part of length" : "...", ", ", config_.whole.in, "), got ", in);
        return inner_.output_shape(whole_shape(in));
    }

    layer_cost cost(const shape& in) const {
        layer_cost c = inner_.cost(whole_shape(in));
        c.weight_gradient_first = false;
        c.holds_input = true;
        if (in_parts()) {
            c.forward.sends.tensor = c.backward_weight.sends.tensor =
                axis_->template gather_sends<T>(whole_shape(in), 1);
            c.backward_input.sends.tensor = axis_->template reduce_scatter_sends<T>(whole_shape(in), 1);
        } else {
            c.backward_input.sends.tensor = axis_->template sum_sends<T>(in.size());
        }
        return c;
    }

    std::string describe() const {
        return concat("column_linear ", config_.whole.in, " -> ", config_.whole.out, ", rank ", axis_->rank(), " of ",
                      axis_->size());
    }

private:
    bool in_parts() const { return config_.sequences == sequence_layout::parts; }

    static std::string name_of(const config& c) { return concat("column_linear ", c.whole.in, " -> ", c.whole.out); }
    /// This rank's outputs in each of the parts.
    static range outputs(const tensor_axis<C>& axis, const config& c) {
        require(c.parts >= 1 && c.unit >= 1 && c.whole.out % (c.parts * c.unit) == 0, name_of(c), ": ", c.whole.out,
                " outputs are not made of ", c.parts, " parts of units of ", c.unit);
        const range units = axis.part_of(c.whole.out / (c.parts * c.unit),
                                         name_of(c) + (c.unit > 1 ? ": units of outputs (heads)" : ": outputs"));
        return {units.begin * c.unit, units.count * c.unit};
    }
    static typename linear<T, D>::config part_of_layer(const tensor_axis<C>& axis, const config& c) {
        typename linear<T, D>::config here = c.whole;
        here.out = c.parts * outputs(axis, c).count;
        return here;
    }

    shape whole_shape(const shape& in) const {
        return in_parts() ? in.with(1, whole_length(in[1], axis_->size())) : in;
    }
    tensor<T, D> whole(const tensor<T, D>& x) {
        return in_parts() ? axis_->gather(x, 1, whole_length(x.extent(1), axis_->size()), "input of column_linear")
                          : x.share();
    }
    tensor<T, D> summed(tensor<T, D> dx) {
        constexpr const char* label = "input gradient of column_linear";
        if (in_parts()) return axis_->reduce_scatter(std::move(dx), 1, label);
        axis_->sum(dx, label);
        return dx;
    }

    tensor_axis<C>* axis_;
    config config_;
    linear<T, D> inner_;  // of this rank's outputs
};

}  // namespace cairn
