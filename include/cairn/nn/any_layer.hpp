#pragma once
// Any layer over T and D behind one type: the element of containers. It also notifies the pass's gradient listener of
// the parameters that the layer has added to, so layers need not, and asks a layer of frozen parameters for no
// gradients of them.

#include <cairn/nn/children.hpp>
#include <cairn/nn/residual_layer.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// A layer whose type is known at run time.
template <class T, Device D = cpu>
class any_layer {
public:
    using value_type = T;
    using device = D;

    template <Layer L>
        requires(!std::same_as<L, any_layer>)
    any_layer(L layer) {
        auto held = std::make_unique<model<L>>(std::move(layer));
        residual_ = residual_calls<T, D>::of(held->layer);
        self_ = std::move(held);
    }

    tensor<T, D> forward(tensor<T, D> x, saved_tensors<T, D>& saved, const pass_context& p) {
        return self_->forward(std::move(x), saved, p);
    }
    tensor<T, D> backward_input(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        return self_->backward_input(std::move(dy), saved, p);
    }
    void backward_weight(saved_tensors<T, D>& saved, const pass_context& p) {
        witness heard(p, trains() == kind::frozen);
        self_->backward_weight(saved, heard.context);
        announce_rest(heard);
    }
    tensor<T, D> backward(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        witness heard(p, trains() == kind::frozen);
        tensor<T, D> dx = self_->backward(std::move(dy), saved, heard.context);
        announce_rest(heard);
        return dx;
    }
    layer_parameters<T, D> parameters() { return self_->parameters(); }
    /// Whether it has parameters, and whether all of them are frozen: asked when all are that will be.
    enum class kind { without_parameters, frozen, trained };
    kind trains() const {
        if (kind_) return *kind_;
        const layer_parameters<T, D> all = self_->parameters();
        const bool frozen = std::ranges::all_of(all, [](const auto& named) { return named.p->frozen; });
        kind_ = all.empty() ? kind::without_parameters : frozen ? kind::frozen : kind::trained;
        return *kind_;
    }
    layer_buffers<T, D> buffers() { return self_->buffers(); }
    shape output_shape(const shape& in) const { return self_->output_shape(in); }
    layer_cost cost(const shape& in) const { return self_->cost(in); }
    std::string describe() const { return self_->describe(); }

    /// The trait of nn/residual_layer.hpp; false for a layer without it.
    const residual_calls<T, D>& residual() const { return residual_; }

    /// The trait of nn/children.hpp; the chains are the layer's own.
    layer_children<T, D> children() const { return self_->children(); }

    /// The layer itself if it is an L, else null: for code that treats one kind specially (profiles, plans).
    template <class L>
    L* as() {
        auto* held = dynamic_cast<model<L>*>(self_.get());
        return held ? &held->layer : nullptr;
    }
    template <class L>
    const L* as() const {
        const auto* held = dynamic_cast<const model<L>*>(self_.get());
        return held ? &held->layer : nullptr;
    }

private:
    // Records the parameters that layers inside this one announce, and passes them on.
    struct witness final : gradient_listener {
        witness(const pass_context& p, bool frozen) : context(p), to(p.listener) {
            if (frozen) context.weight_gradient = false;
            if (to) context.listener = this;
        }
        void added(std::span<const int> parameters) override {
            heard.insert(heard.end(), parameters.begin(), parameters.end());
            to->added(parameters);
        }
        pass_context context;
        gradient_listener* to;
        std::vector<int> heard;
    };

    void announce_rest(const witness& inside) {
        if (!inside.to) return;
        std::vector<int> rest;
        for (const auto& [name, parameter] : self_->parameters())
            if (parameter->id >= 0 && std::ranges::find(inside.heard, parameter->id) == inside.heard.end())
                rest.push_back(parameter->id);
        if (!rest.empty()) inside.to->added(rest);
    }

    struct interface {
        virtual ~interface() = default;
        virtual tensor<T, D> forward(tensor<T, D>, saved_tensors<T, D>&, const pass_context&) = 0;
        virtual tensor<T, D> backward_input(tensor<T, D>, saved_tensors<T, D>&, const pass_context&) = 0;
        virtual void backward_weight(saved_tensors<T, D>&, const pass_context&) = 0;
        virtual tensor<T, D> backward(tensor<T, D>, saved_tensors<T, D>&, const pass_context&) = 0;
        virtual layer_parameters<T, D> parameters() = 0;
        virtual layer_buffers<T, D> buffers() = 0;
        virtual shape output_shape(const shape&) const = 0;
        virtual layer_cost cost(const shape&) const = 0;
        virtual std::string describe() const = 0;
        virtual layer_children<T, D> children() = 0;
    };

    template <class L>
    struct model final : interface {
        explicit model(L l) : layer(std::move(l)) {}
        tensor<T, D> forward(tensor<T, D> x, saved_tensors<T, D>& s, const pass_context& p) override {
            return layer.forward(std::move(x), s, p);
        }
        tensor<T, D> backward_input(tensor<T, D> dy, saved_tensors<T, D>& s, const pass_context& p) override {
            return layer.backward_input(std::move(dy), s, p);
        }
        void backward_weight(saved_tensors<T, D>& s, const pass_context& p) override { layer.backward_weight(s, p); }
        tensor<T, D> backward(tensor<T, D> dy, saved_tensors<T, D>& s, const pass_context& p) override {
            return cairn::backward(layer, std::move(dy), s, p);
        }
        layer_parameters<T, D> parameters() override { return layer.parameters(); }
        layer_buffers<T, D> buffers() override { return buffers_of(layer); }
        shape output_shape(const shape& in) const override { return layer.output_shape(in); }
        layer_cost cost(const shape& in) const override { return layer.cost(in); }
        std::string describe() const override { return layer.describe(); }
        layer_children<T, D> children() override { return children_of(layer); }

        L layer;
    };

    std::unique_ptr<interface> self_;
    residual_calls<T, D> residual_;
    mutable std::optional<kind> kind_;
};

}  // namespace cairn
