#pragma once
// What layers on every grid device obey: the laws of tests/nn/layer_laws.hpp that do not ask for the host's memory, and
// that a layer is the host's.
//   the host's             y, dx and parameter gradients of the same layer on the host, in float
//   numerical gradient     dx and every parameter gradient against central differences in double
//   split is joint         backward_input + backward_weight = backward, bit for bit; no saved tensors are left
//   repeatable             forward again: the same bits, running statistics alone; evaluate saves nothing
//   accumulates            a second backward adds the same gradient once more
//   memory                 live activation bytes of the device after forward = cost().saved_bytes (+ input, output as
//                          it says)
//   shapes                 output_shape is the shape of the result; a wrong input is refused with its shape
//   aliasing               a tensor with another owner is never written; the number of owners changes no bit
//   discarding             saved_tensors that drop what they are given change no bit
// Included after the device's products and convolutions.

#include "device/cuda/law_numbers.hpp"

#include <cairn/core/arena.hpp>
#include <cairn/nn/activation.hpp>
#include <cairn/nn/batch_norm.hpp>
#include <cairn/nn/branches.hpp>
#include <cairn/nn/conv.hpp>
#include <cairn/nn/conv_transpose.hpp>
#include <cairn/nn/dropout.hpp>
#include <cairn/nn/embedding.hpp>
#include <cairn/nn/flatten.hpp>
#include <cairn/nn/graph_conv.hpp>
#include <cairn/nn/group_norm.hpp>
#include <cairn/nn/layer_norm.hpp>
#include <cairn/nn/linear.hpp>
#include <cairn/nn/pool.hpp>
#include <cairn/nn/resample.hpp>
#include <cairn/nn/softmax.hpp>
#include <cairn/stash/recompute.hpp>

#include <functional>
#include <optional>
#include <string>

namespace cairn::device_layer_laws {

using namespace kernel_laws;

/// One layer to check, on the host and on D.
template <class D>
struct layer_case {
    std::string name;
    shape in;
    std::function<any_layer<float, cpu>()> host;
    std::function<any_layer<float, D>()> make32;
    std::function<any_layer<double, D>()> make64;  // none: the device does not compute it in double
    std::optional<shape> wrong = std::nullopt;     // an input that must be refused
    index_t tokens = 0;                            // > 0: x holds whole numbers below this, and has no gradient
};

/// Numbers that float holds, so that float and double see the same.
template <class T, class D>
tensor<T, D> numbers(const shape& s, std::uint32_t stream, index_t tokens = 0) {
    tensor<T> t(s, memory_category::workspace);
    const random_stream random{seed(), stream, 0};
    for (index_t i = 0; i < t.size(); ++i) {
        const auto at = static_cast<std::uint64_t>(i);
        t[i] = tokens ? static_cast<T>(random.below(static_cast<std::uint64_t>(tokens), at))
                      : static_cast<T>(static_cast<float>(random.normal(at)));
    }
    return tensor<T, D>::copy_of(t);
}

template <class D>
index_t live_activations() {
    return D::memory().activations().live;
}

/// A layer with memory for its parameters, and one training pass through it.
template <class T, class D>
struct bench {
    any_layer<T, D> layer;
    cairn::arena<T, D> arena;
    pass_context p;

    explicit bench(any_layer<T, D> l) : layer(std::move(l)), arena(layer.parameters(), 7) {
        p.random.seed = 11;
        p.random.step = 3;
        // Biases and shifts off zero, scales off one, so that a gradient which ignores them shows.
        for (const auto& [name, q] : arena.parameters()) {
            const random_stream random{5, static_cast<std::uint32_t>(q->id), 1};
            tensor<T> value = q->value.on_host();
            for (index_t i = 0; i < value.size(); ++i)
                value[i] = static_cast<T>(static_cast<float>(static_cast<double>(value[i]) +
                                                             0.3 * random.normal(static_cast<std::uint64_t>(i))));
            set(*q, value);
        }
    }

    static void set(layer_parameter<T, D>& q, const tensor<T>& value) {
        if constexpr (std::same_as<D, cpu>)
            std::copy_n(value.data(), value.size(), q.value.data());
        else
            D::copy_to_device(q.value.data(), value.data(), value.bytes());
    }

    struct result {
        tensor<T> y, dx;
        std::vector<tensor<T>> grads;
    };

    tensor<T> forward(tensor<T, D> x, bool repeated = true) {
        saved_tensors<T, D> saved;
        pass_context q = p;
        q.repeated = repeated;
        return layer.forward(std::move(x), saved, q).on_host();
    }

    enum class kind { joint, split };
    result run(tensor<T, D> x, tensor<T, D> dy, kind k = kind::joint) {
        saved_tensors<T, D> saved;
        arena.zero_grad();
        result r;
        // y stays with its reader: on the host alone
        const tensor<T, D> y = layer.forward(std::move(x), saved, p);
        r.y = y.on_host();
        tensor<T, D> dx;
        if (k == kind::joint) {
            dx = layer.backward(std::move(dy), saved, p);
        } else {
            dx = layer.backward_input(std::move(dy), saved, p);
            layer.backward_weight(saved, p);
        }
        CHECK(saved.empty());
        if (!dx.empty()) r.dx = dx.on_host();
        CHECK(kernel_laws::same_bits(y.on_host(), r.y));  // backward has not written over it
        r.grads = grads();
        return r;
    }

    std::vector<tensor<T>> grads() const {
        std::vector<tensor<T>> all;
        for (const auto& [name, q] : arena.parameters()) all.push_back(q->grad.on_host());
        return all;
    }
    std::vector<tensor<T>> buffers() {
        std::vector<tensor<T>> all;
        for (const auto& [name, t] : layer.buffers()) all.push_back(rounded_to_host(*t));
        return all;
    }

private:
    template <class S>
    static tensor<T> rounded_to_host(const tensor<S, D>& t) {
        return t.on_host();
    }
};

template <class T>
bool same(const std::vector<tensor<T>>& a, const std::vector<tensor<T>>& b) {
    if (a.size() != b.size()) return false;
    for (std::size_t i = 0; i < a.size(); ++i)
        if (!kernel_laws::same_bits(a[i], b[i])) return false;
    return true;
}

template <class Result>
void check_same(const Result& a, const Result& b) {
    CHECK(kernel_laws::same_bits(a.y, b.y));
    CHECK(kernel_laws::same_bits(a.dx, b.dx));
    CHECK(same(a.grads, b.grads));
}

template <class D>
void is_the_hosts(const layer_case<D>& c) {
    bench<float, D> b(c.make32());
    bench<float, cpu> h(c.host());
    const shape out = b.layer.output_shape(c.in);
    CHECK(out == h.layer.output_shape(c.in));
    const auto device = b.run(numbers<float, D>(c.in, 1, c.tokens), numbers<float, D>(out, 2));
    const auto host = h.run(numbers<float, cpu>(c.in, 1, c.tokens), numbers<float, cpu>(out, 2));
    constexpr double tolerance = 1e-4;
    check_close(device.y, host.y, tolerance);
    check_close(device.dx, host.dx, tolerance);
    REQUIRE(device.grads.size() == host.grads.size());
    for (std::size_t i = 0; i < host.grads.size(); ++i) check_close(device.grads[i], host.grads[i], tolerance);
    const auto state = b.buffers(), expected = h.buffers();
    REQUIRE(state.size() == expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) check_close(state[i], expected[i], tolerance);
    b.p.mode = h.p.mode = mode::evaluate;
    check_close(b.forward(numbers<float, D>(c.in, 3, c.tokens)), h.forward(numbers<float, cpu>(c.in, 3, c.tokens)),
                tolerance);
}

template <class D>
void numerical_gradient(const layer_case<D>& c) {
    bench<double, D> b(c.make64());
    const tensor<double> x = numbers<double, D>(c.in, 1, c.tokens).on_host();
    const auto d_x = on_device<D>(x);
    const shape out = b.layer.output_shape(c.in);
    const tensor<double> weights = numbers<double, D>(out, 2).on_host();  // loss = Σ weights · y
    const auto loss = [&](tensor<double, D> at) {
        const tensor<double> y = b.forward(std::move(at));
        double sum = 0;
        for (index_t i = 0; i < y.size(); ++i) sum += weights[i] * y[i];
        return sum;
    };
    const auto result = b.run(d_x.share(), on_device<D>(weights));

    // Central differences of a seeded sample of positions.
    const double step = 1e-5;
    const index_t per_tensor = std::max<index_t>(2, 10 / (static_cast<index_t>(result.grads.size()) + 1));
    const auto check = [&](const std::string& what, const tensor<double>& gradient, auto&& shifted_loss) {
        double largest = 0;
        for (index_t i = 0; i < gradient.size(); ++i) largest = std::max(largest, std::abs(gradient[i]));
        const index_t samples = std::min(gradient.size(), per_tensor);
        for (index_t s = 0; s < samples; ++s) {
            const index_t i = gradient.size() <= samples
                                  ? s
                                  : static_cast<index_t>(random_stream{3, 4, 5}.below(
                                        static_cast<std::uint64_t>(gradient.size()), static_cast<std::uint64_t>(s)));
            const double numeric = (shifted_loss(i, step) - shifted_loss(i, -step)) / (2 * step);
            INFO(what << " element " << i << ": backward " << gradient[i] << ", difference quotient " << numeric);
            CHECK(std::abs(numeric - gradient[i]) <= 2e-7 * (largest + 1));
        }
    };
    if (c.tokens == 0)
        check("dx", result.dx, [&](index_t i, double h) {
            tensor<double> moved = x.clone();
            moved[i] += h;
            return loss(on_device<D>(moved));
        });
    for (const auto& [name, q] : b.arena.parameters()) {
        layer_parameter<double, D>* const parameter = q;
        const tensor<double> before = parameter->value.on_host();
        check(name, result.grads[static_cast<std::size_t>(q->id)], [&](index_t i, double h) {
            tensor<double> moved = before.clone();
            moved[i] += h;
            b.set(*parameter, moved);
            const double l = loss(d_x.share());
            b.set(*parameter, before);
            return l;
        });
    }
}

template <class D>
void split_is_joint(const layer_case<D>& c) {
    bench<float, D> b(c.make32());
    using kind = typename bench<float, D>::kind;
    const auto x = numbers<float, D>(c.in, 1, c.tokens), dy = numbers<float, D>(b.layer.output_shape(c.in), 2);
    const auto whole = b.run(x.clone(), dy.clone());
    check_same(whole, b.run(x.clone(), dy.clone(), kind::split));
    check_same(whole, b.run(x.clone(), dy.clone()));
    // Without the input's gradient, the parameters' are the same.
    b.p.input_gradient = false;
    CHECK(same(whole.grads, b.run(x.clone(), dy.clone()).grads));
    CHECK(same(whole.grads, b.run(x.clone(), dy.clone(), kind::split).grads));
}

template <class D>
void repeatable(const layer_case<D>& c) {
    bench<float, D> b(c.make32());
    const auto x = numbers<float, D>(c.in, 1, c.tokens);
    const tensor<float> first = b.forward(x.share(), false);
    const auto state = b.buffers();
    CHECK(kernel_laws::same_bits(first, b.forward(x.share(), true)));
    CHECK(same(state, b.buffers()));
    saved_tensors<float, D> saved;
    pass_context evaluate = b.p;
    evaluate.mode = mode::evaluate;
    const index_t before = live_activations<D>();
    tensor<float, D> y = b.layer.forward(x.share(), saved, evaluate);
    CHECK(saved.empty());
    CHECK(y.shape() == b.layer.output_shape(c.in));
    y.reset();
    CHECK(live_activations<D>() == before);
    CHECK(same(state, b.buffers()));
}

template <class D>
void accumulates(const layer_case<D>& c) {
    bench<float, D> b(c.make32());
    const auto x = numbers<float, D>(c.in, 1, c.tokens), dy = numbers<float, D>(b.layer.output_shape(c.in), 2);
    const auto once = b.run(x.share(), dy.share());
    saved_tensors<float, D> saved;
    b.layer.forward(x.share(), saved, b.p);
    b.layer.backward(dy.share(), saved, b.p);
    const auto twice = b.grads();
    for (std::size_t i = 0; i < twice.size(); ++i) {
        double largest = 0;
        std::vector<double> expected = doubles(once.grads[i]);
        for (double& g : expected) largest = std::max(largest, std::abs(g)), g *= 2;
        check_near(twice[i], expected, 1e-5 * (largest + 1));
    }
}

template <class D>
void memory_is_as_costed(const layer_case<D>& c) {
    bench<float, D> b(c.make32());
    const layer_cost cost = b.layer.cost(c.in);
    const index_t in_bytes = block_bytes<float>(c.in), out_bytes = block_bytes<float>(b.layer.output_shape(c.in));
    saved_tensors<float, D> saved;
    tensor<float, D> x = numbers<float, D>(c.in, 1, c.tokens);
    const index_t before = live_activations<D>() - in_bytes;  // without x
    tensor<float, D> y = b.layer.forward(x.share(), saved, b.p);
    const index_t with_y = cost.passes_through ? 0 : out_bytes;
    CHECK(live_activations<D>() - before == cost.saved_bytes + in_bytes + with_y);
    x.reset();
    const bool holds_x = cost.saves_input || cost.passes_through;
    CHECK(live_activations<D>() - before == cost.saved_bytes + (holds_x ? in_bytes : 0) + with_y);
    y.reset();
    CHECK(live_activations<D>() - before ==
          cost.saved_bytes + (cost.saves_input ? in_bytes : 0) + (cost.saves_output ? out_bytes : 0));
    saved.clear();
    CHECK(live_activations<D>() == before);
}

template <class D>
void shapes_are_checked(const layer_case<D>& c) {
    bench<float, D> b(c.make32());
    CHECK(b.forward(numbers<float, D>(c.in, 1, c.tokens)).shape() == b.layer.output_shape(c.in));
    if (!c.wrong) return;
    using Catch::Matchers::Contains;
    const auto what_came = Contains(concat(*c.wrong));
    CHECK_THROWS_WITH(b.layer.output_shape(*c.wrong), what_came);
    CHECK_THROWS_WITH(b.forward(numbers<float, D>(*c.wrong, 1, c.tokens)), what_came);
}

template <class D>
void aliases_are_safe(const layer_case<D>& c) {
    bench<float, D> b(c.make32());
    const auto x = numbers<float, D>(c.in, 1, c.tokens), dy = numbers<float, D>(b.layer.output_shape(c.in), 2);
    const tensor<float> x_was = x.on_host(), dy_was = dy.on_host();
    const auto alone = b.run(x.clone(), dy.clone());  // the layer has the only handles
    using kind = typename bench<float, D>::kind;
    for (const kind k : {kind::joint, kind::split}) {
        check_same(alone, b.run(x.share(), dy.share(), k));
        CHECK(kernel_laws::same_bits(x.on_host(), x_was));
        CHECK(kernel_laws::same_bits(dy.on_host(), dy_was));
    }
    b.p.mode = mode::evaluate;
    const tensor<float> y = b.forward(x.share());
    CHECK(kernel_laws::same_bits(x.on_host(), x_was));
    CHECK(kernel_laws::same_bits(b.forward(x.clone()), y));
}

template <class D>
void discarding_changes_nothing(const layer_case<D>& c) {
    bench<float, D> b(c.make32());
    const auto x = numbers<float, D>(c.in, 1, c.tokens);
    const tensor<float> y = b.forward(x.share());
    saved_tensors<float, D> saved;
    saved.discard(true);
    const index_t before = live_activations<D>();
    tensor<float, D> again = b.layer.forward(x.share(), saved, b.p);
    CHECK(saved.empty());
    CHECK(kernel_laws::same_bits(y, again.on_host()));
    again.reset();
    CHECK(live_activations<D>() == before);
}

template <class D>
void check_laws(const layer_case<D>& c) {
    CAPTURE(c.name);
    is_the_hosts(c);
    if (c.make64) numerical_gradient(c);
    split_is_joint(c);
    repeatable(c);
    accumulates(c);
    memory_is_as_costed(c);
    shapes_are_checked(c);
    aliases_are_safe(c);
    discarding_changes_nothing(c);
}

/// make(T{}, D{}) gives the layer over T on D.
template <class D, class Make>
layer_case<D> in_float(std::string name, shape in, Make make, std::optional<shape> wrong = std::nullopt) {
    return {std::move(name),
            in,
            [make] { return any_layer<float, cpu>(make(float{}, cpu{})); },
            [make] { return any_layer<float, D>(make(float{}, D{})); },
            {},
            wrong};
}
template <class D, class Make>
layer_case<D> in_both(std::string name, shape in, Make make, std::optional<shape> wrong = std::nullopt) {
    layer_case<D> c = in_float<D>(std::move(name), in, make, wrong);
    c.make64 = [make] { return any_layer<double, D>(make(double{}, D{})); };
    return c;
}
/// Convolutions, which not every device has in double.
template <class D, bool InDouble, class Make>
layer_case<D> with_conv(std::string name, shape in, Make make) {
    const shape wrong = in.with(-1, in.back() + 1);
    if constexpr (InDouble)
        return in_both<D>(std::move(name), in, make, wrong);
    else
        return in_float<D>(std::move(name), in, make, wrong);
}

template <class T, class D, class... Layers>
sequential<T, D> chain(Layers... layers) {
    sequential<T, D> net;
    (net.add(std::move(layers)), ...);
    return net;
}

template <class T, class D>
conv<T, D> conv3(index_t in, index_t out) {
    return conv<T, D>({.in = in, .out = out, .kernel = 3, .pad = 1, .bias = false});
}
template <class T, class D>
batch_norm<T, D> norm(index_t channels, activation act) {
    return batch_norm<T, D>({.channels = channels, .act = act});
}

#define CAIRN_LAYER(...)                             \
    [=](auto type, auto device) {                    \
        using T [[maybe_unused]] = decltype(type);   \
        using E [[maybe_unused]] = decltype(device); \
        return __VA_ARGS__;                          \
    }

template <class D>
void plain_layers() {
    check_laws(in_both<D>("linear", {5, 7}, CAIRN_LAYER(linear<T, E>({.in = 7, .out = 6})), shape{5, 8}));
    check_laws(in_both<D>("flatten", {3, 4, 5, 2}, CAIRN_LAYER(flatten<T, E>())));
    for (const activation act : {activation::none, activation::relu, activation::leaky_relu, activation::sigmoid,
                                 activation::tanh, activation::gelu, activation::gelu_tanh, activation::silu})
        check_laws(in_both<D>(name_of(act), {3, 5, 7, 3}, CAIRN_LAYER(activation_layer<T, E>(act, 0.3))));
    check_laws(in_both<D>("dropout", {4, 50}, CAIRN_LAYER(dropout<T, E>(0.3))));
    check_laws(in_both<D>("softmax", {6, 5}, CAIRN_LAYER(softmax<T, E>())));
    check_laws(in_both<D>("softmax of images", {2, 3, 2, 70}, CAIRN_LAYER(softmax<T, E>())));
    check_laws(in_both<D>("layer_norm", {6, 33}, CAIRN_LAYER(layer_norm<T, E>({.features = 33})), shape{6, 34}));
    auto words =
        in_both<D>("embedding", {4, 9}, CAIRN_LAYER(embedding<T, E>({.num_embeddings = 11, .embedding_dim = 6})));
    words.tokens = 11;
    check_laws(words);
}

template <class D>
void batch_norms() {
    for (const activation act : {activation::none, activation::relu, activation::leaky_relu})
        check_laws(in_both<D>(concat("batch_norm ", name_of(act)), {3, 4, 4, 8}, CAIRN_LAYER(norm<T, E>(8, act)),
                              shape{3, 4, 4, 9}));
    // The norm adds the skip: y = relu(norm(linear(x)) + x).
    for (const activation act : {activation::none, activation::relu, activation::leaky_relu})
        check_laws(
            in_both<D>(concat("batch_norm with skip, ", name_of(act)), {9, 6},
                       CAIRN_LAYER(residual<T, E>(chain<T, E>(linear<T, E>({.in = 6, .out = 6}), norm<T, E>(6, act)))),
                       shape{9, 7}));
    check_laws(in_both<D>("group_norm", {3, 4, 5, 6}, CAIRN_LAYER(group_norm<T, E>({.channels = 6, .groups = 2}))));
}

/// Pools take any number of channels: an axis too many is what they refuse.
template <class D>
void pools() {
    const auto check = [](std::string name, shape in, auto make) {
        check_laws(in_both<D>(std::move(name), in, make, shape{in[0], in.back()}));
    };
    check("max_pool 3 stride 2 pad 1", {2, 7, 6, 8}, CAIRN_LAYER(max_pool<T, E>({.kernel = 3, .stride = 2, .pad = 1})));
    check("max_pool 1D", {2, 11, 3}, CAIRN_LAYER(max_pool<T, E>({.kernel = 3, .dims = 1})));
    check("circular_pad", {2, 3, 4, 5}, CAIRN_LAYER(circular_pad<T, E>({.pad = 2, .periodic = {false, true}})));
    check("linear_upsample 3D", {2, 2, 3, 2, 3},
          CAIRN_LAYER(linear_upsample<T, E>({.periodic = {true, false, false}, .dims = 3})));
    check("max_pool 3D", {2, 4, 5, 6, 3}, CAIRN_LAYER(max_pool<T, E>({.kernel = 2, .dims = 3})));
    check("max_pool of more than 256 positions", {1, 17, 18, 2}, CAIRN_LAYER(max_pool<T, E>({.kernel = 17})));
    check("average_pool 3 stride 2 pad 1", {2, 7, 8, 4},
          CAIRN_LAYER(average_pool<T, E>({.kernel = 3, .stride = 2, .pad = 1})));
    check("average_pool 1D", {2, 11, 3}, CAIRN_LAYER(average_pool<T, E>({.kernel = 3, .stride = 2, .dims = 1})));
    check("average_pool 3D, inside only", {1, 4, 6, 5, 3},
          CAIRN_LAYER(average_pool<T, E>({.kernel = 3, .stride = 2, .pad = 1, .count_include_pad = false, .dims = 3})));
    check("adaptive_average_pool", {2, 7, 5, 4}, CAIRN_LAYER(adaptive_average_pool<T, E>({.out = 3})));
    check("adaptive_average_pool, more results than positions", {1, 3, 2, 4},
          CAIRN_LAYER(adaptive_average_pool<T, E>({.out = 5})));
    check("global_average_pool", {3, 5, 7, 6}, CAIRN_LAYER(global_average_pool<T, E>()));
    check("global_average_pool of volumes", {1, 3, 2, 3, 33}, CAIRN_LAYER(global_average_pool<T, E>()));
}

template <class D, bool InDouble>
void convolutions() {
    const auto check = [](std::string name, shape in, auto make) {
        check_laws(with_conv<D, InDouble>(std::move(name), in, make));
    };
    check("conv 1D", {2, 12, 5},
          CAIRN_LAYER(conv<T, E>({.in = 5, .out = 4, .kernel = 3, .stride = 2, .pad = 1, .dims = 1})));
    check("conv 2D", {2, 7, 5, 3}, CAIRN_LAYER(conv<T, E>({.in = 3, .out = 4, .kernel = 3, .stride = 2, .pad = 1})));
    check("conv 3D", {1, 4, 4, 3, 2}, CAIRN_LAYER(conv<T, E>({.in = 2, .out = 3, .kernel = 2, .dims = 3})));
    check("conv depthwise", {2, 6, 5, 4},
          CAIRN_LAYER(conv<T, E>({.in = 4, .out = 4, .kernel = 3, .pad = 1, .groups = 4})));
    check("conv_transpose 2D", {2, 3, 4, 5}, CAIRN_LAYER(conv_transpose<T, E>({.in = 5, .out = 3})));
    check("conv_transpose 3D", {1, 2, 3, 2, 4},
          CAIRN_LAYER(conv_transpose<T, E>({.in = 4, .out = 2, .kernel = 3, .pad = 1, .out_pad = 1, .dims = 3})));
}

/// Six nodes, among them one without neighbours.
inline std::shared_ptr<const graph_operator> small_graph() {
    static const auto graph = graph_operator::normalised(
        csr_of_pairs<float>(6, 6, {{0, 1}, {1, 0}, {1, 2}, {2, 1}, {2, 3}, {3, 2}, {0, 3}, {3, 0}, {3, 4}, {4, 3}}));
    return graph;
}

template <class D>
void graphs() {
    const auto check = [](std::string name, shape in, auto make) {
        check_laws(in_both<D>(std::move(name), in, make, shape{in[0], 5, in[2]}));
    };
    check("graph_conv", {1, 6, 3}, CAIRN_LAYER(graph_conv<T, E>({.in = 3, .out = 4, .graph = small_graph()})));
    check("graph_conv of two samples, no bias", {2, 6, 5},
          CAIRN_LAYER(graph_conv<T, E>({.in = 5, .out = 33, .graph = small_graph(), .bias = false})));
}

template <class T, class D>
std::vector<sequential<T, D>> equal_branches() {
    std::vector<sequential<T, D>> list;
    list.push_back(chain<T, D>(conv3<T, D>(4, 4), activation_layer<T, D>(activation::tanh)));  // keeps its output
    list.emplace_back();                                                                       // the input itself
    list.push_back(chain<T, D>(conv3<T, D>(4, 4)));
    return list;
}
template <class T, class D>
std::vector<sequential<T, D>> three_branches() {
    std::vector<sequential<T, D>> list;
    list.push_back(chain<T, D>(conv3<T, D>(4, 6), activation_layer<T, D>(activation::relu)));
    list.emplace_back();
    list.push_back(chain<T, D>(max_pool<T, D>({.kernel = 3, .stride = 1, .pad = 1}),
                               conv<T, D>({.in = 4, .out = 2, .kernel = 1})));
    return list;
}

template <class D, bool InDouble>
void containers() {
    const auto check = [](std::string name, shape in, auto make) {
        check_laws(with_conv<D, InDouble>(std::move(name), in, make));
    };
    check("branches", {2, 5, 4, 4}, CAIRN_LAYER(concat_branches<T, E>(three_branches<T, E>())));
    check("summed", {2, 5, 4, 4}, CAIRN_LAYER(add_branches<T, E>(equal_branches<T, E>())));
    check("skip", {2, 4, 5, 3},
          CAIRN_LAYER(concat_skip<T, E>(chain<T, E>(conv3<T, E>(3, 5), activation_layer<T, E>(activation::tanh)))));
    check("skip in skip", {1, 4, 4, 3},
          CAIRN_LAYER(
              concat_skip<T, E>(chain<T, E>(conv3<T, E>(3, 4), concat_skip<T, E>(chain<T, E>(conv3<T, E>(4, 2)))))));
    check("basic block with projection", {2, 4, 4, 4},
          CAIRN_LAYER(residual<T, E>(chain<T, E>(conv3<T, E>(4, 6), norm<T, E>(6, activation::relu), conv3<T, E>(6, 6),
                                                 norm<T, E>(6, activation::relu)),
                                     chain<T, E>(conv<T, E>({.in = 4, .out = 6, .kernel = 1, .bias = false}),
                                                 norm<T, E>(6, activation::none)))));
    check("plain sum", {2, 5, 5, 3},
          CAIRN_LAYER(residual<T, E>(chain<T, E>(norm<T, E>(3, activation::relu), conv3<T, E>(3, 3)))));
    check("a recomputed segment", {2, 4, 4, 3},
          CAIRN_LAYER(chain<T, E>(
              conv3<T, E>(3, 4),
              recompute_segment(chain<T, E>(norm<T, E>(4, activation::relu), dropout<T, E>(0.3), conv3<T, E>(4, 5))),
              activation_layer<T, E>(activation::silu))));
}

/// Recomputed segments change no bit, of statistics either, and save less.
template <class D>
void recomputation() {
    const auto make = [](std::vector<typename sequential<float, D>::segment> segments) {
        auto net = chain<float, D>(linear<float, D>({.in = 6, .out = 16}), norm<float, D>(16, activation::relu),
                                   dropout<float, D>(0.4), linear<float, D>({.in = 16, .out = 16}),
                                   activation_layer<float, D>(activation::tanh), layer_norm<float, D>({.features = 16}),
                                   linear<float, D>({.in = 16, .out = 3}));
        net.recompute(std::move(segments));
        return net;
    };
    using kind = typename bench<float, D>::kind;
    const auto x = numbers<float, D>({5, 6}, 1), dy = numbers<float, D>({5, 3}, 2);
    bench<float, D> plain(make({}));
    const auto expected = plain.run(x.clone(), dy.clone());
    const auto statistics = plain.buffers();
    for (const auto& segments :
         std::vector<std::vector<typename sequential<float, D>::segment>>{{{0, 3}}, {{1, 4}, {4, 6}}, {{0, 7}}})
        for (const kind k : {kind::joint, kind::split}) {
            bench<float, D> b(make(segments));
            check_same(expected, b.run(x.clone(), dy.clone(), k));
            CHECK(same(statistics, b.buffers()));
            CHECK(b.layer.cost({5, 6}).saved_bytes < plain.layer.cost({5, 6}).saved_bytes);
        }
}

/// A number that is no id looks up NaN, and adds nothing to the table's gradient.
template <class D>
void embedding_of_no_id() {
    bench<float, D> b(any_layer<float, D>(embedding<float, D>({.num_embeddings = 5, .embedding_dim = 3})));
    const auto x = on_device<D>(of_numbers<float>({1, 2.5, 4, -1, 5, not_a_number, 1}));
    const auto r = b.run(x.share(), on_device<D>(tensor<float>::filled({7, 3}, 1)));
    for (index_t row = 0; row < 7; ++row)
        for (index_t c = 0; c < 3; ++c) CHECK(std::isnan(r.y(row, c)) == !(row == 0 || row == 2 || row == 6));
    for (index_t entry = 0; entry < 5; ++entry)
        for (index_t c = 0; c < 3; ++c) CHECK(r.grads[0](entry, c) == (entry == 1 ? 2.0f : entry == 4 ? 1.0f : 0.0f));
}

#undef CAIRN_LAYER

/// InDouble: whether the device has convolutions in double.
template <GridDevice D, bool InDouble>
const std::vector<law>& all() {
    static const std::vector<law> laws{{"layers by themselves", plain_layers<D>},
                                       {"batch norm", batch_norms<D>},
                                       {"pooling", pools<D>},
                                       {"convolutions", convolutions<D, InDouble>},
                                       {"graphs", graphs<D>},
                                       {"containers", containers<D, InDouble>},
                                       {"recomputed segments", recomputation<D>},
                                       {"an embedding of what is no id", embedding_of_no_id<D>}};
    return laws;
}

}  // namespace cairn::device_layer_laws
