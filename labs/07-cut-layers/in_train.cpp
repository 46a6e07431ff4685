// Your linear pair as model.kind = "student" of the program train, cut over the ranks of parallel.tensor. README.md has
// the commands.

#include <cairn/train/models.hpp>

#include "linear_pair.hpp"

#include <algorithm>
#include <span>
#include <string>

namespace {

using cairn::index_t;
using cairn::tensor;

student::matrix to_matrix(const tensor<float>& t) {
    student::matrix m(static_cast<std::size_t>(t.extent(0)), static_cast<std::size_t>(t.extent(1)));
    std::copy_n(t.data(), m.values.size(), m.values.begin());
    return m;
}
tensor<float> to_tensor(std::span<const double> values, const cairn::shape& s) {
    tensor<float> t(s);
    std::transform(values.begin(), values.end(), t.data(), [](double v) { return static_cast<float>(v); });
    return t;
}

/// What the library asks of a layer (cairn/nn/layer.hpp): x (batch, in) → y (batch, out). Yours computes all gradients
/// at once, so the first half of backward does, and leaves those of the weights for the second one in `saved`.
class student_pair {
public:
    using value_type = float;
    using device = cairn::cpu;

    /// `over`: the ranks that share the layer; null for one rank.
    student_pair(index_t in, index_t hidden, index_t out, cairn::tensor_axis<cairn::any_communicator>* over)
        : over_(over) {
        const auto mine =
            student::part_of(static_cast<std::size_t>(hidden), over ? over->rank() : 0, over ? over->size() : 1);
        const auto begin = static_cast<index_t>(mine.begin), count = static_cast<index_t>(mine.count);
        // `layout`: which slice of the whole parameter is here. It begins with the numbers that one rank would have.
        const auto part = [&](cairn::parameter<float>& p, const cairn::shape& here, const cairn::shape& whole, int axis,
                              index_t inputs, index_t outputs) {
            p.shape = here;
            p.init = cairn::init::pytorch(inputs, outputs);
            p.layout.global = whole;
            p.layout.begin[static_cast<std::size_t>(axis)] = begin;
            p.decay = here.rank() == 2;
        };
        part(w1_, {count, in}, {hidden, in}, 0, in, hidden);
        part(b1_, {count}, {hidden}, 0, in, hidden);
        part(w2_, {out, count}, {out, hidden}, 1, hidden, out);
        b2_.shape = {out};
        b2_.init = cairn::init::pytorch(hidden, out);
        b2_.decay = false;
        if (over) b2_.layout.replicated_over = {"tensor"};
    }

    tensor<float> forward(tensor<float> x, cairn::saved_tensors<float>& saved, const cairn::pass_context& p) {
        cairn::require_no_curvature(p, describe());
        const cairn::shape out = output_shape(x.shape());
        student::saved_for_backward kept;
        const student::matrix y =
            with_ranks([&](auto& c) { return student::forward(c, weights(), to_matrix(x), kept); });
        if (p.training()) {
            saved.put(0, std::move(x));
            saved.put(1, to_tensor(kept.h.values, {out[0], b1_.shape[0]}));
        }
        return to_tensor(y.values, out);
    }
    tensor<float> backward_input(tensor<float> dy, cairn::saved_tensors<float>& saved, const cairn::pass_context&) {
        const tensor<float> x = saved.take(0), h = saved.take(1);
        const student::saved_for_backward kept{to_matrix(x), to_matrix(h)};
        student::linear_pair d;
        const student::matrix dx =
            with_ranks([&](auto& c) { return student::backward(c, weights(), kept, to_matrix(dy), d); });
        saved.put_exact(2, to_tensor(d.w1.values, w1_.shape));
        saved.put_exact(3, to_tensor(d.b1, b1_.shape));
        saved.put_exact(4, to_tensor(d.w2.values, w2_.shape));
        saved.put_exact(5, to_tensor(d.b2, b2_.shape));
        return to_tensor(dx.values, x.shape());
    }
    void backward_weight(cairn::saved_tensors<float>& saved, const cairn::pass_context& p) {
        for (int slot = 2; auto& [name, to] : parameters()) {
            const tensor<float> d = saved.take(slot++);
            if (!p.weight_gradient) continue;
            for (index_t i = 0; i < d.size(); ++i) to->grad[i] += d[i];
        }
    }

    cairn::layer_parameters<float> parameters() { return {{"w1", &w1_}, {"b1", &b1_}, {"w2", &w2_}, {"b2", &b2_}}; }
    cairn::shape output_shape(const cairn::shape& in) const {
        cairn::require(in.rank() == 2 && in[1] == w1_.shape[1], describe(), " does not take ", in);
        return {in[0], b2_.shape[0]};
    }
    cairn::layer_cost cost(const cairn::shape& in) const {
        const double n = double(in[0]), weights = double(w1_.shape.size() + w2_.shape.size()),
                     product = 2 * n * weights;
        const double bytes = sizeof(float) * (double(in.size()) + weights + n * double(b1_.shape[0] + b2_.shape[0]));
        cairn::layer_cost c;
        c.forward = c.backward_input = c.backward_weight = {product, bytes};
        c.parameters = w1_.shape.size() + b1_.shape.size() + w2_.shape.size() + b2_.shape.size();
        c.saves_input = true;
        return c;
    }
    std::string describe() const {
        return cairn::concat("your linear pair ", w1_.shape[1], " -> ", b1_.layout.global, " -> ", b2_.shape[0]);
    }

private:
    template <class F>
    student::matrix with_ranks(F&& f) {
        if (over_) return f(over_->over().device);
        cairn::self_communicator alone;
        return f(alone);
    }
    student::linear_pair weights() const {
        const auto values = [](const tensor<float>& t) { return std::vector<double>(t.data(), t.data() + t.size()); };
        return {to_matrix(w1_.value), values(b1_.value), to_matrix(w2_.value), values(b2_.value)};
    }

    cairn::tensor_axis<cairn::any_communicator>* over_;
    cairn::parameter<float> w1_, b1_, w2_, b2_;
};

struct entry {
    static constexpr const char* name = "student";
    template <class T, cairn::Device D>
    static cairn::sequential<T, D> make(cairn::configuration& settings, const cairn::model_ends& ends) {
        const auto hidden = settings.get<index_t>("model.hidden", 128, cairn::from_to(1, 1 << 20));
        cairn::sequential<T, D> net;
        net.add("flatten", cairn::flatten<T, D>());
        net.add("pair", student_pair(ends.sample.size(), hidden, ends.outputs, ends.over.tensor));
        return net;
    }
};

const cairn::register_model<entry, CAIRN_TARGETS> is_known;

}  // namespace
