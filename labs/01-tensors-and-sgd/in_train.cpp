// Your layers and your SGD in the program train, as model.kind = "student" and optimizer.kind = "student". README.md
// has the commands.

#include <cairn/train/models.hpp>
#include <cairn/train/optimizers.hpp>

#include "layers.hpp"
#include "sgd.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace {

using cairn::index_t;
using cairn::tensor;
using matrix = student::matrix<float>;

matrix to_matrix(const tensor<float>& t) {  // all axes but the last are the batch
    const auto columns = static_cast<std::size_t>(t.shape().back()), all = static_cast<std::size_t>(t.size());
    matrix m = matrix::from_shape({columns ? all / columns : 0, columns});
    std::copy_n(t.data(), all, m.data());
    return m;
}
tensor<float> to_tensor(const matrix& m, const cairn::shape& s) {
    tensor<float> t(s);
    std::copy_n(m.data(), m.size(), t.data());
    return t;
}

/// What the library asks of a layer (cairn/nn/layer.hpp). Backward is in two halves: the first one gives dx and leaves
/// in `saved` what the second one needs for dW and db. Yours computes all three at once, so each half uses its part.
class student_linear {
public:
    using value_type = float;
    using device = cairn::cpu;

    student_linear(index_t in, index_t out) {  // as cairn::linear begins
        weight_.shape = {out, in};
        weight_.init = cairn::init::pytorch(in, out);
        bias_.shape = {out};
        bias_.init = cairn::init::pytorch(in, out);
        bias_.decay = false;
    }

    tensor<float> forward(tensor<float> x, cairn::saved_tensors<float>& saved, const cairn::pass_context& p) {
        student::vec<float> b = student::vec<float>::from_shape({static_cast<std::size_t>(bias_.shape[0])});
        std::copy_n(bias_.value.data(), b.size(), b.data());
        const cairn::shape out = output_shape(x.shape());
        const matrix y = student::linear_forward(to_matrix(x), to_matrix(weight_.value), b);
        if (p.training()) saved.put(0, std::move(x));
        return to_tensor(y, out);
    }
    tensor<float> backward_input(tensor<float> dy, cairn::saved_tensors<float>& saved, const cairn::pass_context&) {
        const cairn::shape in = saved.get(0).shape();
        tensor<float> dx = to_tensor(gradients(saved.get(0), dy).x, in);
        saved.put_exact(1, std::move(dy));
        return dx;
    }
    void backward_weight(cairn::saved_tensors<float>& saved, const cairn::pass_context& p) {
        const tensor<float> x = saved.take(0), dy = saved.take(1);
        if (p.weight_gradient) add(gradients(x, dy));
    }
    tensor<float> backward(tensor<float> dy, cairn::saved_tensors<float>& saved, const cairn::pass_context& p) {
        const tensor<float> x = saved.take(0);
        const auto d = gradients(x, dy);
        if (p.weight_gradient) add(d);
        return to_tensor(d.x, x.shape());
    }

    cairn::layer_parameters<float> parameters() { return {{"weight", &weight_}, {"bias", &bias_}}; }
    cairn::shape output_shape(const cairn::shape& in) const {
        cairn::require(in.rank() >= 1 && in.back() == weight_.shape[1], describe(), " does not take ", in);
        return in.with(-1, weight_.shape[0]);
    }
    cairn::layer_cost cost(const cairn::shape& in) const { return cairn::linear<>(sizes()).cost(in); }
    std::string describe() const { return cairn::concat("your linear ", weight_.shape[1], " -> ", weight_.shape[0]); }

private:
    cairn::linear<>::config sizes() const { return {.in = weight_.shape[1], .out = weight_.shape[0]}; }
    student::linear_gradients<float> gradients(const tensor<float>& x, const tensor<float>& dy) const {
        return student::linear_backward(to_matrix(x), to_matrix(weight_.value), to_matrix(dy));
    }
    void add(const student::linear_gradients<float>& d) {
        for (std::size_t i = 0; i < d.w.size(); ++i) weight_.grad.data()[i] += d.w.data()[i];
        for (std::size_t i = 0; i < d.b.size(); ++i) bias_.grad.data()[i] += d.b.data()[i];
    }

    cairn::parameter<float> weight_, bias_;
};

class student_relu {
public:
    using value_type = float;
    using device = cairn::cpu;

    tensor<float> forward(tensor<float> x, cairn::saved_tensors<float>& saved, const cairn::pass_context& p) {
        const matrix y = student::relu(to_matrix(x));
        const cairn::shape s = x.shape();
        if (p.training()) saved.put(0, std::move(x));
        return to_tensor(y, s);
    }
    tensor<float> backward_input(tensor<float> dy, cairn::saved_tensors<float>& saved, const cairn::pass_context&) {
        const tensor<float> x = saved.take(0);
        return to_tensor(student::relu_backward(to_matrix(x), to_matrix(dy)), x.shape());
    }
    void backward_weight(cairn::saved_tensors<float>&, const cairn::pass_context&) {}
    cairn::layer_parameters<float> parameters() { return {}; }
    cairn::shape output_shape(const cairn::shape& in) const { return in; }
    cairn::layer_cost cost(const cairn::shape& in) const {
        return cairn::activation_layer<float>(cairn::activation::relu).cost(in);
    }
    std::string describe() const { return "your relu"; }
};

/// Linear layers with a ReLU between them: model.hidden names the widths.
struct model_entry {
    static constexpr const char* name = "student";
    template <class T, cairn::Device D>
    static cairn::sequential<T, D> make(cairn::configuration& settings, const cairn::model_ends& ends) {
        cairn::sequential<T, D> net;
        net.add("flatten", cairn::flatten<T, D>());
        index_t in = ends.sample.size();
        int number = 1;
        for (const index_t width :
             settings.get("model.hidden", std::vector<std::int64_t>{256, 256}, cairn::from_to(1, 1 << 20))) {
            net.add(cairn::concat("fc", number), student_linear(in, width));
            net.add(cairn::concat("relu", number++), student_relu());
            in = width;
        }
        net.add(cairn::concat("fc", number), student_linear(in, ends.outputs));
        return net;
    }
};

/// What the library asks of an optimizer that sees one parameter at a time (cairn/optim/optimizer.hpp). Velocities are
/// inside of your sgd, so a run's saved state has none of them: one that is resumed begins with velocities of zero.
struct student_sgd {
    static constexpr const char* name = "student";
    using config = student::sgd_config;
    config c;
    mutable std::map<const float*, student::sgd<float>> of_parameter = {};  // each has its own velocity

    template <class T, cairn::Device D>
    struct state {
        static constexpr std::array<const char*, 0> names{};
    };

    void update(tensor<float>& theta, tensor<float>& gradient, state<float, cairn::cpu>&,
                const cairn::update_context& at) const {
        student::sgd<float>& sgd = of_parameter.try_emplace(theta.data(), c).first->second;
        sgd.config.lr = at.lr;  // the schedule's
        sgd.config.weight_decay = at.decay ? c.weight_decay : 0;
        sgd.step({theta.span()}, {gradient.span()});
    }

    void check() const {}
};

struct optimizer_entry {
    static constexpr const char* name = "student";
    static student_sgd make(cairn::configuration& settings) {
        student_sgd o;
        o.c.momentum = settings.get("optimizer.momentum", 0.9, cairn::from_below(0, 1));
        o.c.weight_decay = settings.get("optimizer.weight_decay", 0.0, cairn::at_least(0));
        return o;
    }
};

const cairn::register_model<model_entry, CAIRN_TARGETS> model_is_known;
const cairn::register_optimizer<optimizer_entry, CAIRN_TARGETS> optimizer_is_known;

}  // namespace
