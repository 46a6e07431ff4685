#pragma once
// Convolution by output channels (Dryden et al., SC'19, "Channel and filter parallelism for large-scale CNN training":
// filter parallelism): rank r has the filters W_r of W (K, kernel…, C),
//   y = gather_r conv(x, W_r) + b_r            all-gather along the channels
//   dx = Σ_r conv_backward_input(dy_r, W_r)    all-reduce, while dW_r and db_r are computed; dy_r is cut from dy
// x and y are the same on each rank, so whatever stands behind (batch norm, pooling) is as on one rank.
// Bytes sent by a rank: (p-1)/p of y and 2 (p-1)/p of x. Saved: x; after backward_input also dy_r.
// Tested against conv, and in a ResNet, on one rank.

#include <cairn/nn/any_layer.hpp>
#include <cairn/nn/batch_norm.hpp>
#include <cairn/nn/conv.hpp>
#include <cairn/nn/dropout.hpp>
#include <cairn/nn/flatten.hpp>
#include <cairn/nn/linear.hpp>
#include <cairn/nn/pool.hpp>
#include <cairn/parallel/tensor/sequence_layers.hpp>
#include <cairn/parallel/tensor/tensor_axis.hpp>

namespace cairn {

/// (N, in…, C) → (N, out…, K), the same on each rank. One group.
template <Communicator C, class T = float, Device D = cpu>
class channel_conv {
public:
    using value_type = T;
    using device = D;
    using config = typename conv<T, D>::config;

    channel_conv(tensor_axis<C>& axis, config c) : axis_(&axis), channels_(c.out), inner_(filters_here(axis, c)) {
        conv<T, D> whole(c);
        const auto of_whole = whole.parameters(), here = inner_.parameters();
        for (std::size_t i = 0; i < here.size(); ++i) {
            here[i].p->init = of_whole[i].p->init;
            here[i].p->layout.global = of_whole[i].p->shape;
            here[i].p->layout.begin[0] = shard_of(c.out, axis.size(), axis.rank()).begin;
        }
    }

    tensor<T, D> forward(tensor<T, D> x, saved_tensors<T, D>& saved, const pass_context& p) {
        require_no_curvature(p, "channel_conv");
        return axis_->gather(inner_.forward(std::move(x), saved, p), -1, channels_, "output of channel_conv");
    }

    tensor<T, D> backward_input(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        tensor<T, D> dx = inner_.backward_input(axis_->cut(dy, -1), saved, p);
        if (p.input_gradient) axis_->sum(dx, label);
        return dx;
    }

    void backward_weight(saved_tensors<T, D>& saved, const pass_context& p) { inner_.backward_weight(saved, p); }

    /// Both halves: dx travels while the filters' gradient is computed.
    tensor<T, D> backward(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        tensor<T, D> here = axis_->cut(dy, -1);
        dy.reset();
        if (!p.input_gradient) return inner_.backward(std::move(here), saved, p);
        tensor<T, D> dx = inner_.backward_input(std::move(here), saved, p);
        axis_->meanwhile([&] { axis_->sum(dx, label); }, [&] { inner_.backward_weight(saved, p); });
        return dx;
    }

    layer_parameters<T, D> parameters() { return inner_.parameters(); }
    shape output_shape(const shape& in) const { return inner_.output_shape(in).with(-1, channels_); }

    layer_cost cost(const shape& in) const {
        layer_cost c = inner_.cost(in);
        c.weight_gradient_first = false;
        c.holds_input = true;
        c.forward.sends.tensor = axis_->template gather_sends<T>(output_shape(in), -1);
        c.backward_input.sends.tensor = axis_->template sum_sends<T>(in.size());
        return c;
    }

    std::string describe() const {
        return concat(inner_.describe(), " of ", channels_, " channels, rank ", axis_->rank(), " of ", axis_->size());
    }

private:
    static constexpr const char* label = "input gradient of channel_conv";

    static config filters_here(const tensor_axis<C>& axis, config c) {
        const std::string name = concat("channel_conv ", c.in, " -> ", c.out);
        require(c.groups == 1, name, ": ", c.groups, " groups; a convolution by output channels has one");
        c.out = axis.part_of(c.out, name + ": output channels").count;
        return c;
    }

    tensor_axis<C>* axis_;
    index_t channels_;  // of all ranks
    conv<T, D> inner_;  // of this rank's filters
};

/// The layers of a ResNet whose convolutions are cut by output channels; the rest is the same on each rank. What
/// resnet_parts (models/resnet.hpp) is for one rank.
template <class T, Communicator C, Device D = cpu>
struct channel_resnet_parts {
    tensor_axis<C>* axis;

    any_layer<T, D> conv(const typename cairn::conv<T, D>::config& c) const { return channel_conv<C, T, D>(*axis, c); }
    any_layer<T, D> norm(const typename batch_norm<T, D>::config& c) const { return replicated(batch_norm<T, D>(c)); }
    any_layer<T, D> fc(const typename linear<T, D>::config& c) const { return replicated(linear<T, D>(c)); }

private:
    template <Layer L>
    static any_layer<T, D> replicated(L layer) {
        replicate_parameters(layer);
        return any_layer<T, D>(std::move(layer));  // nvcc would copy
    }
};

/// The layers of CosmoFlow likewise: what cosmoflow_parts (models/cosmoflow.hpp) is for one rank.
template <class T, Communicator C, Device D = cpu>
struct channel_cosmoflow_parts {
    tensor_axis<C>* axis;

    any_layer<T, D> conv(const typename cairn::conv<T, D>::config& c) const { return channel_conv<C, T, D>(*axis, c); }
    any_layer<T, D> norm(const typename batch_norm<T, D>::config& c) const { return batch_norm<T, D>(c); }
    any_layer<T, D> pool(const typename max_pool<T, D>::config& c) const { return max_pool<T, D>(c); }
    any_layer<T, D> flatten() const { return cairn::flatten<T, D>(); }
    any_layer<T, D> dropout(double rate) const { return cairn::dropout<T, D>(rate); }
};

/// Makes convolutions by output channels of tensors that are cut in space too (parallel/spatial/parts.hpp).
template <class T, Communicator C, Device D = cpu>
struct make_channel_conv {
    tensor_axis<C>* axis;
    channel_conv<C, T, D> operator()(const typename conv<T, D>::config& c) const {
        return channel_conv<C, T, D>(*axis, c);
    }
};

}  // namespace cairn
