#pragma once
// The laws of every layer. A law_case is a way to make the layer over any T and an input
// shape; check_laws runs all laws on it, one section each:
//   numerical gradient     dx and every parameter gradient against central differences in double
//   split is joint         backward_input + backward_weight = backward, bit for bit; no saved tensors are left
//   repeatable             forward again: the same bits; a repeated pass leaves running statistics alone; evaluate
//                          saves nothing
//   accumulates            a second backward adds the same gradient once more
//   float is double        the same result in float within eps · depth · sqrt(length of a sum)
//   bfloat16 is double     the same in bfloat16, whose sums run in float: within its eps · depth
//   memory                 live activation bytes after forward = cost().saved_bytes (+ input, output as it says)
//   peak                   highest activation bytes of a training step = the memory model's prediction
//   work                   counted operations of each phase = cost()
//   shapes                 output_shape is the shape of the result; a wrong input is refused with both shapes and the
//                          layer named
//   threads                the same bits on one and on two threads; weight gradients of oneDNN's convolutions within
//                          rounding. Of these small layers: oneDNN's products split longer sums (device/cpu/gemm.hpp)
//   aliasing               a tensor with another owner is never written; the number of owners changes no bit
//   discarding             saved_tensors that drop what they are given change no bit (recomputation relies on it)

#include "catch.hpp"

#include <cairn/core/arena.hpp>
#include <cairn/core/bfloat16.hpp>
#include <cairn/core/flop_counter.hpp>
#include <cairn/core/parallel.hpp>
#include <cairn/device/autotune.hpp>
#include <cairn/nn/any_layer.hpp>
#include <cairn/stash/memory_model.hpp>

#include <cmath>
#include <cstring>
#include <functional>
#include <optional>
#include <set>

namespace laws {

using cairn::index_t, cairn::shape, cairn::tensor, cairn::pass_context, cairn::saved_tensors;

/// One layer to check.
struct law_case {
    std::string name;
    std::function<cairn::any_layer<double>()> make64;
    std::function<cairn::any_layer<float>()> make32;
    std::function<cairn::any_layer<cairn::bfloat16>()> make16;
    shape in;
    std::optional<shape> wrong;  // an input that must be refused
    int depth = 1;               // layers one after another, for the rounding error
    bool smooth = true;          // false: x is not differentiable (token numbers); only parameters are checked
    index_t tokens = 0;          // > 0: x holds whole numbers below this
};

/// `make(T{})` gives the layer over T; without `in_bfloat16`, over float and double alone. Wrong input by default: one
/// channel more.
template <bool in_bfloat16 = true, class Make>
law_case make_case(std::string name, shape in, Make make) {
    law_case c{std::move(name),
               [make] { return cairn::any_layer<double>(make(double{})); },
               [make] { return cairn::any_layer<float>(make(float{})); },
               {},
               in,
               in.with(-1, in.back() + 1)};
    if constexpr (in_bfloat16) c.make16 = [make] { return cairn::any_layer<cairn::bfloat16>(make(cairn::bfloat16{})); };
    return c;
}

/// Numbers that depend on (seed, position) alone, rounded to float so that float and double see the same; `Seen`: to
/// another type that sees the same.
template <class T, class Seen = float>
tensor<T> numbers(const shape& s, std::uint32_t stream, index_t tokens = 0,
                  cairn::memory_category use = cairn::memory_category::activations) {
    tensor<T> t(s, use);
    const cairn::random_stream random{2024, stream, 0};
    for (index_t i = 0; i < t.size(); ++i) {
        const auto at = static_cast<std::uint64_t>(i);
        t[i] = tokens ? static_cast<T>(static_cast<float>(random.below(static_cast<std::uint64_t>(tokens), at)))
                      : static_cast<T>(static_cast<float>(static_cast<Seen>(static_cast<float>(random.normal(at)))));
    }
    return t;
}

template <class T>
bool same_bits(const tensor<T>& a, const tensor<T>& b) {
    return a.empty() == b.empty() &&
           (a.empty() ||
            (a.shape() == b.shape() && std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.bytes())) == 0));
}

inline index_t live_activations() { return cairn::memory_pool::host().activations().live; }

/// A layer with memory for its parameters, and one training pass through it.
template <class T>
struct bench {
    using W = cairn::weight_of<T>;

    cairn::any_layer<T> layer;
    cairn::arena<W> arena;
    pass_context p;

    explicit bench(cairn::any_layer<T> l) : layer(std::move(l)), arena(layer.parameters(), 8) {
        p.random.seed = 11;
        p.random.step = 3;
        // Biases and shifts off zero, scales off one, so that a gradient which ignores them shows; float numbers in
        // both types.
        for (const auto& [name, q] : arena.parameters()) {
            const cairn::random_stream random{5, static_cast<std::uint32_t>(q->id), 1};
            for (index_t i = 0; i < q->value.size(); ++i)
                q->value[i] = static_cast<W>(static_cast<float>(static_cast<double>(q->value[i]) +
                                                                0.3 * random.normal(static_cast<std::uint64_t>(i))));
        }
    }

    struct result {
        tensor<T> y, dx;
        std::vector<tensor<W>> grads;
    };

    tensor<T> forward(tensor<T> x, bool repeated = true) {
        saved_tensors<T> saved;
        pass_context q = p;
        q.repeated = repeated;
        return layer.forward(std::move(x), saved, q);
    }

    enum class backward_kind { joint, split };
    result run(tensor<T> x, tensor<T> dy, backward_kind kind = backward_kind::joint) {
        saved_tensors<T> saved;
        arena.zero_grad();
        result r;
        r.y = layer.forward(std::move(x), saved, p);
        if (kind == backward_kind::joint) {
            r.dx = layer.backward(std::move(dy), saved, p);
        } else {
            r.dx = layer.backward_input(std::move(dy), saved, p);
            layer.backward_weight(saved, p);
        }
        CHECK(saved.empty());
        r.grads = grads();
        return r;
    }

    std::vector<tensor<W>> grads() const {
        std::vector<tensor<W>> all;
        for (const auto& [name, q] : arena.parameters())
            all.push_back(q->grad.clone(cairn::memory_category::workspace));
        return all;
    }
};

template <class T>
void check_same(const typename bench<T>::result& a, const typename bench<T>::result& b) {
    CHECK(same_bits(a.y, b.y));
    CHECK(same_bits(a.dx, b.dx));
    for (std::size_t i = 0; i < a.grads.size(); ++i) {
        CAPTURE(i);
        CHECK(same_bits(a.grads[i], b.grads[i]));
    }
}

// ------------------------------------------------------------------------------------------------------- the laws

inline void numerical_gradient(const law_case& c) {
    bench<double> b(c.make64());
    const tensor<double> x = numbers<double>(c.in, 1, c.tokens);
    const tensor<double> weights = numbers<double>(b.layer.output_shape(c.in), 2);  // loss = Σ weights · y
    const auto loss = [&](tensor<double> at) {
        const tensor<double> y = b.forward(std::move(at));
        double sum = 0;
        for (index_t i = 0; i < y.size(); ++i) sum += weights[i] * y[i];
        return sum;
    };
    const auto result = b.run(x.share(), weights.share());

    // Central differences of a seeded sample of positions, fewer in each tensor of a layer that has many.
    const double step = 1e-5;
    const index_t per_tensor = std::max<index_t>(2, 48 / (static_cast<index_t>(result.grads.size()) + 1));
    const auto check = [&](const char* what, const tensor<double>& gradient, auto&& shifted_loss) {
        double largest = 0;
        for (index_t i = 0; i < gradient.size(); ++i) largest = std::max(largest, std::abs(gradient[i]));
        const index_t samples = std::min(gradient.size(), per_tensor);
        for (index_t s = 0; s < samples; ++s) {
            const index_t i = gradient.size() <= samples
                                  ? s
                                  : static_cast<index_t>(cairn::random_stream{3, 4, 5}.below(
                                        static_cast<std::uint64_t>(gradient.size()), std::uint64_t(s)));
            const double numeric = (shifted_loss(i, step) - shifted_loss(i, -step)) / (2 * step);
            INFO(what << " element " << i << ": backward " << gradient[i] << ", difference quotient " << numeric);
            CHECK(std::abs(numeric - gradient[i]) <= 2e-7 * (largest + 1));
        }
    };
    if (c.smooth)
        check("dx", result.dx, [&](index_t i, double h) {
            tensor<double> moved = x.clone();
            moved[i] += h;
            return loss(std::move(moved));
        });
    for (const auto& [name, q] : b.arena.parameters())
        check(name.c_str(), result.grads[static_cast<std::size_t>(q->id)], [&, value = &q->value](index_t i, double h) {
            const double before = (*value)[i];
            (*value)[i] = before + h;
            const double l = loss(x.share());
            (*value)[i] = before;
            return l;
        });
}

template <class T>
void split_is_joint(const law_case& c, cairn::any_layer<T> layer) {
    bench<T> b(std::move(layer));
    const tensor<T> x = numbers<T>(c.in, 1, c.tokens), dy = numbers<T>(b.layer.output_shape(c.in), 2);
    using kind = typename bench<T>::backward_kind;
    check_same<T>(b.run(x.clone(), dy.clone(), kind::joint), b.run(x.clone(), dy.clone(), kind::split));

    // Without the input's gradient, the parameters' are the same.
    const auto whole = b.run(x.clone(), dy.clone());
    b.p.input_gradient = false;
    const auto joint = b.run(x.clone(), dy.clone()), split = b.run(x.clone(), dy.clone(), kind::split);
    for (std::size_t i = 0; i < whole.grads.size(); ++i) {
        CHECK(same_bits(whole.grads[i], joint.grads[i]));
        CHECK(same_bits(whole.grads[i], split.grads[i]));
    }
}

inline void repeatable(const law_case& c) {
    bench<float> b(c.make32());
    const tensor<float> x = numbers<float>(c.in, 1, c.tokens);
    const tensor<float> first = b.forward(x.share(), false);
    std::vector<tensor<float>> state;
    for (const auto& [name, t] : b.layer.buffers()) state.push_back(t->clone());
    const tensor<float> second = b.forward(x.share(), true);
    CHECK(same_bits(first, second));
    std::size_t i = 0;
    for (const auto& [name, t] : b.layer.buffers()) {
        INFO("a repeated pass changed " << name);
        CHECK(same_bits(*t, state[i++]));
    }

    saved_tensors<float> saved;
    pass_context evaluate = b.p;
    evaluate.mode = cairn::mode::evaluate;
    const index_t before = live_activations();
    tensor<float> y = b.layer.forward(x.share(), saved, evaluate);
    CHECK(saved.empty());
    CHECK(y.shape() == b.layer.output_shape(c.in));
    y.reset();
    CHECK(live_activations() == before);
    i = 0;
    for (const auto& [name, t] : b.layer.buffers()) CHECK(same_bits(*t, state[i++]));
}

inline void accumulates(const law_case& c) {
    bench<double> b(c.make64());
    const tensor<double> x = numbers<double>(c.in, 1, c.tokens), dy = numbers<double>(b.layer.output_shape(c.in), 2);
    const auto once = b.run(x.share(), dy.share());
    saved_tensors<double> saved;
    b.layer.forward(x.share(), saved, b.p);
    b.layer.backward(dy.share(), saved, b.p);
    const auto twice = b.grads();
    for (std::size_t i = 0; i < twice.size(); ++i) {
        double largest = 0;
        for (index_t j = 0; j < twice[i].size(); ++j) largest = std::max(largest, std::abs(once.grads[i][j]));
        for (index_t j = 0; j < twice[i].size(); ++j) {
            if (!(std::abs(twice[i][j] - 2 * once.grads[i][j]) <= 1e-12 * largest))
                FAIL_CHECK("parameter " << i << " element " << j << ": once " << once.grads[i][j] << ", twice "
                                        << twice[i][j]);
        }
    }
}

inline double norm(const tensor<double>& t) {
    double squares = 0;
    for (index_t i = 0; i < t.size(); ++i) squares += t[i] * t[i];
    return std::sqrt(squares);
}

/// |a - b| / max(|b|, least) over all elements, 2-norms; 0 of two empty ones.
template <class T>
double relative_error(const tensor<T>& a, const tensor<double>& b, double least = 1e-150) {
    double error = 0;
    for (index_t i = 0; i < b.size(); ++i) error += std::pow(static_cast<double>(a[i]) - b[i], 2);
    return std::sqrt(error) / std::max(norm(b), least);
}

template <class T>
void narrow_is_double(const law_case& c, cairn::any_layer<T> layer) {
    bench<T> f(std::move(layer));
    bench<double> d(c.make64());
    // Both arenas hold float numbers, but the double one's were rounded from other initial values: take the float ones.
    for (std::size_t i = 0; i < f.arena.parameters().size(); ++i) {
        const auto& from = f.arena.parameters()[i].p->value;
        auto& to = d.arena.parameters()[i].p->value;
        for (index_t j = 0; j < from.size(); ++j) to[j] = static_cast<double>(from[j]);
    }
    const shape out = f.layer.output_shape(c.in);
    const auto a = f.run(numbers<T>(c.in, 1, c.tokens), numbers<T>(out, 2));
    const auto b = d.run(numbers<double, T>(c.in, 1, c.tokens), numbers<double, T>(out, 2));
    // The longest sum: products per value of the smallest result.
    const cairn::layer_cost cost = f.layer.cost(c.in);
    index_t smallest = std::min(c.in.size(), out.size());
    for (const auto& g : a.grads) smallest = std::min(smallest, g.size());
    const double length = std::max({cost.forward.flops, cost.backward_input.flops, cost.backward_weight.flops}) /
                          (2.0 * static_cast<double>(std::max<index_t>(smallest, 1)));
    const double bound = std::is_same_v<T, float> ? 0x1p-24 * c.depth * (8 + 2 * std::sqrt(length)) : 0x1p-7 * c.depth;
    CAPTURE(bound, length);
    CHECK(relative_error(a.y, b.y) <= bound);
    if (c.smooth) CHECK(relative_error(a.dx, b.dx) <= bound);
    // A gradient that is zero in exact arithmetic (a shift in front of a batch norm) is rounding error of its
    // summands' size.
    double largest = 0;
    for (const auto& g : b.grads) largest = std::max(largest, norm(g));
    for (std::size_t i = 0; i < a.grads.size(); ++i) {
        CAPTURE(f.arena.parameters()[i].name);
        CHECK(relative_error(a.grads[i], b.grads[i], 0.01 * largest) <= bound);
    }
}

template <class T>
void memory_is_as_costed(const law_case& c, cairn::any_layer<T> layer) {
    bench<T> b(std::move(layer));
    const cairn::layer_cost cost = b.layer.cost(c.in);
    const index_t in_bytes = cairn::block_bytes<T>(c.in), out_bytes = cairn::block_bytes<T>(b.layer.output_shape(c.in));
    index_t parameters = 0;
    for (const auto& [name, q] : b.arena.parameters()) parameters += q->shape.size();
    CHECK(cost.parameters == parameters);

    saved_tensors<T> saved;
    tensor<T> x = numbers<T>(c.in, 1, c.tokens);
    const index_t before = live_activations() - in_bytes;  // without x
    tensor<T> y = b.layer.forward(x.share(), saved, b.p);
    const index_t with_y = cost.passes_through ? 0 : out_bytes;
    CHECK(live_activations() - before == cost.saved_bytes + in_bytes + with_y);
    x.reset();
    const bool holds_x = cost.saves_input || cost.passes_through;
    CHECK(live_activations() - before == cost.saved_bytes + (holds_x ? in_bytes : 0) + with_y);
    y.reset();
    CHECK(live_activations() - before ==
          cost.saved_bytes + (cost.saves_input ? in_bytes : 0) + (cost.saves_output ? out_bytes : 0));
    saved.clear();
    CHECK(live_activations() == before);
}

/// The memory model, fed with shapes alone, plays a training step to the byte.
template <class T>
void peak_is_as_predicted(const law_case& c, cairn::any_layer<T> layer) {
    cairn::sequential<T> net;
    net.add("layer", std::move(layer));
    const index_t predicted = cairn::predicted_peak(net, c.in, c.smooth);
    if (net.cost(c.in).passes_through) return;  // the result is the batch itself
    bench<T> b{cairn::any_layer<T>(std::move(net))};
    b.p.input_gradient = c.smooth;
    const tensor<T> x = numbers<T>(c.in, 1, c.tokens, cairn::memory_category::data);
    const auto step = [&] {
        saved_tensors<T> saved;
        tensor<T> y = b.layer.forward(x.share(), saved, b.p);
        b.layer.backward(std::move(y), saved, b.p);
    };
    step();  // kernels that measure each other do so here
    const index_t before = live_activations();
    cairn::memory_pool::host().reset_peaks();
    step();
    CHECK(cairn::memory_pool::host().activations().peak - before == predicted);
}

template <class T>
void work_is_as_costed(const law_case& c, cairn::any_layer<T> layer) {
    bench<T> b(std::move(layer));
    const cairn::layer_cost cost = b.layer.cost(c.in);
    const tensor<T> x = numbers<T>(c.in, 1, c.tokens), dy = numbers<T>(b.layer.output_shape(c.in), 2);
    b.run(x.clone(), dy.clone());  // kernels that measure each other do so here
    saved_tensors<T> saved;
    const cairn::flop_counter::scope counting;
    const auto check = [&](const char* phase, const cairn::phase_cost& expected) {
        const cairn::flop_counter::totals counted = cairn::flop_counter::total();
        INFO(phase);
        CHECK(static_cast<double>(counted.flops) == Approx(expected.flops).epsilon(1e-9));
        CHECK(static_cast<double>(counted.bytes) == Approx(expected.bytes).epsilon(1e-3).margin(64));
        cairn::flop_counter::reset();
    };
    b.layer.forward(x.clone(), saved, b.p);
    check("forward", cost.forward);
    b.layer.backward_input(dy.clone(), saved, b.p);
    check("backward_input", cost.backward_input);
    b.layer.backward_weight(saved, b.p);
    check("backward_weight", cost.backward_weight);
}

template <class Shape>
std::string text(const Shape& s) {
    return cairn::concat(s);
}

inline void shapes_are_checked(const law_case& c) {
    bench<float> b(c.make32());
    CHECK(b.forward(numbers<float>(c.in, 1, c.tokens)).shape() == b.layer.output_shape(c.in));
    if (!c.wrong) return;
    const auto refused = [&](auto&& action) {
        try {
            action();
            FAIL_CHECK("input " << text(*c.wrong) << " was accepted");
        } catch (const cairn::error& e) {
            const std::string message = e.what();
            INFO(message);
            CHECK(message.find(text(*c.wrong)) != std::string::npos);  // what came
            CHECK(message.find('(') != message.rfind('('));            // what was expected
            const std::string kind = b.layer.describe();
            CHECK((message.find(kind.substr(0, kind.find(' '))) != std::string::npos ||
                   message.find("layer ") != std::string::npos));
        }
    };
    refused([&] { b.layer.output_shape(*c.wrong); });
    refused([&] { b.forward(numbers<float>(*c.wrong, 1, c.tokens)); });
}

template <class T>
void threads_do_not_matter(const law_case& c, cairn::any_layer<T> layer) {
    const int usual = cairn::threads();
    bench<T> b(std::move(layer));
    const tensor<T> x = numbers<T>(c.in, 1, c.tokens), dy = numbers<T>(b.layer.output_shape(c.in), 2);
    for (const char* algorithm : {"im2col", ""}) {
        cairn::autotune_cache::global().force("conv", algorithm);
        cairn::set_threads(1);
        const auto one = b.run(x.clone(), dy.clone());
        cairn::set_threads(2);
        const auto two = b.run(x.clone(), dy.clone());
        cairn::set_threads(usual);
        if (*algorithm) {
            check_same<T>(one, two);
        } else {  // oneDNN sums the weight gradients of a convolution in as many pieces as there are threads
            CHECK(same_bits(one.y, two.y));
            for (std::size_t i = 0; i < one.grads.size(); ++i) {
                double error = 0, norm = 0;
                for (index_t j = 0; j < one.grads[i].size(); ++j) {
                    error += std::pow(double(one.grads[i][j] - two.grads[i][j]), 2);
                    norm += std::pow(double(two.grads[i][j]), 2);
                }
                CHECK(error <= std::pow(1e-5, 2) * norm);
            }
        }
    }
}

inline void aliases_are_safe(const law_case& c) {
    bench<float> b(c.make32());
    const tensor<float> x = numbers<float>(c.in, 1, c.tokens), dy = numbers<float>(b.layer.output_shape(c.in), 2);
    const auto alone = b.run(x.clone(), dy.clone());  // the layer has the only handles

    for (const auto kind : {bench<float>::backward_kind::joint, bench<float>::backward_kind::split}) {
        const tensor<float> held_x = x.clone(), held_dy = dy.clone();
        const auto shared = b.run(held_x.share(), held_dy.share(), kind);
        CHECK(same_bits(held_x, x));
        CHECK(same_bits(held_dy, dy));
        check_same<float>(alone, shared);  // y was held during backward, too
    }
    pass_context evaluate = b.p;
    evaluate.mode = cairn::mode::evaluate;
    saved_tensors<float> saved;
    const tensor<float> held = x.clone();
    const tensor<float> y = b.layer.forward(held.share(), saved, evaluate);
    CHECK(same_bits(held, x));
    CHECK(same_bits(b.layer.forward(x.clone(), saved, evaluate), y));
}

inline void discarding_changes_nothing(const law_case& c) {
    bench<float> b(c.make32());
    const tensor<float> x = numbers<float>(c.in, 1, c.tokens);
    const tensor<float> y = b.forward(x.share());
    saved_tensors<float> saved;
    saved.discard(true);
    const index_t before = live_activations();
    tensor<float> again = b.layer.forward(x.share(), saved, b.p);
    CHECK(saved.empty());
    CHECK(same_bits(y, again));
    again.reset();
    CHECK(live_activations() == before);
}

/// No images at all: the right shape or a clear error, never a crash.
inline void empty_batch(const law_case& c) {
    bench<float> b(c.make32());
    try {
        const shape none = c.in.with(0, 0);
        const auto r = b.run(tensor<float>(none), tensor<float>(b.layer.output_shape(none)));
        CHECK(r.y.shape() == b.layer.output_shape(none));
    } catch (const cairn::error& e) {
        CHECK(std::strlen(e.what()) > 10);
    }
}

/// All laws on one layer, a section each.
inline void check_laws(const law_case& c) {
    cairn::autotune_cache::global().set_policy(cairn::autotune_policy::first);
    const auto law = [&](const char* name, auto&& check) {
        DYNAMIC_SECTION(c.name << ": " << name) { check(); }
    };
    law("numerical gradient", [&] { numerical_gradient(c); });
    law("split is joint", [&] {
        split_is_joint<double>(c, c.make64());
        split_is_joint<float>(c, c.make32());
        if (c.make16) split_is_joint<cairn::bfloat16>(c, c.make16());
    });
    law("repeatable", [&] { repeatable(c); });
    law("accumulates", [&] { accumulates(c); });
    law("float is double", [&] { narrow_is_double<float>(c, c.make32()); });
    if (c.make16) law("bfloat16 is double", [&] { narrow_is_double<cairn::bfloat16>(c, c.make16()); });
    law("memory", [&] {
        memory_is_as_costed<float>(c, c.make32());
        if (c.make16) memory_is_as_costed<cairn::bfloat16>(c, c.make16());
    });
    law("peak", [&] {
        peak_is_as_predicted<float>(c, c.make32());
        if (c.make16) peak_is_as_predicted<cairn::bfloat16>(c, c.make16());
    });
    law("work", [&] {
        work_is_as_costed<float>(c, c.make32());
        if (c.make16) work_is_as_costed<cairn::bfloat16>(c, c.make16());
    });
    law("shapes", [&] { shapes_are_checked(c); });
    law("threads", [&] {
        threads_do_not_matter<double>(c, c.make64());
        threads_do_not_matter<float>(c, c.make32());
        if (c.make16) threads_do_not_matter<cairn::bfloat16>(c, c.make16());
    });
    law("aliasing", [&] { aliases_are_safe(c); });
    law("discarding", [&] { discarding_changes_nothing(c); });
    law("empty batch", [&] { empty_batch(c); });
}

}  // namespace laws
