#include "oracle/conv.hpp"
#include "layer_laws.hpp"

#include <cairn/nn/conv.hpp>

namespace cairn {
using laws::make_case;

namespace {

struct drawn_layer {
    conv<float>::config c;
    shape in;
};

/// A random small convolution whose kernel fits its image: odd sizes, stride larger than the kernel, dilation,
/// groups, single images.
drawn_layer draw(int dims, std::uint32_t number) {
    for (std::uint32_t attempt = 0;; ++attempt) {
        const random_stream random{17, number, attempt};
        std::uint64_t at = 0;
        const auto below = [&](index_t n) {
            return static_cast<cairn::index_t>(random.below(static_cast<std::uint64_t>(n), at++));
        };
        drawn_layer d;
        d.c.dims = dims;
        d.c.groups = below(3) == 0 ? 2 + below(2) : 1;
        d.c.in = d.c.groups * (1 + below(5));
        d.c.out = d.c.groups * (1 + below(5));
        d.c.bias = below(3) > 0;
        std::vector<cairn::index_t> kernel, stride, pad, dilation;
        d.in.push_back(1 + below(3));
        bool fits = true;
        for (int axis = 0; axis < dims; ++axis) {
            kernel.push_back(1 + below(4));
            stride.push_back(1 + below(4));
            pad.push_back(below(kernel.back()));
            dilation.push_back(1 + below(2));
            d.in.push_back(1 + below(dims == 3 ? 6 : 11));
            fits = fits && d.in.back() + 2 * pad.back() > dilation.back() * (kernel.back() - 1);
        }
        d.in.push_back(d.c.in);
        if (!fits) continue;
        const auto axes = [&](const std::vector<cairn::index_t>& v) {
            return dims == 1 ? per_axis{v[0]} : dims == 2 ? per_axis{v[0], v[1]} : per_axis{v[0], v[1], v[2]};
        };
        d.c.kernel = axes(kernel);
        d.c.stride = axes(stride);
        d.c.pad = axes(pad);
        d.c.dilation = axes(dilation);
        return d;
    }
}

template <class T>
conv<T> make(const conv<float>::config& c) {
    return conv<T>({c.in, c.out, c.kernel, c.stride, c.pad, c.dilation, c.groups, c.bias, c.dims, c.init, c.bias_init});
}

}  // namespace

TEST_CASE("conv: laws on chosen shapes", "[laws][conv]") {
    const auto check = [](const char* name, shape in, conv<float>::config c) {
        laws::check_laws(make_case(name, in, [c](auto t) { return make<decltype(t)>(c); }));
    };
    check("3x3 pad 1", {2, 6, 7, 3}, {.in = 3, .out = 5, .kernel = 3, .pad = 1});
    check("3x3 of 16 channels, no bias", {2, 9, 8, 16}, {.in = 16, .out = 16, .kernel = 3, .pad = 1, .bias = false});
    check("1x1 stride 2", {2, 5, 6, 4}, {.in = 4, .out = 8, .kernel = 1, .stride = 2, .bias = false});
    check("stride larger than the kernel", {1, 11, 9, 2}, {.in = 2, .out = 3, .kernel = 2, .stride = 4});
    check("dilated", {2, 9, 9, 3}, {.in = 3, .out = 4, .kernel = 3, .pad = 2, .dilation = 2});
    check("groups", {2, 6, 5, 6}, {.in = 6, .out = 9, .kernel = 3, .pad = 1, .groups = 3});
    check("depthwise", {1, 7, 7, 8}, {.in = 8, .out = 8, .kernel = 3, .pad = 1, .groups = 8});
    check("1D", {3, 13, 4}, {.in = 4, .out = 6, .kernel = 5, .stride = 2, .pad = 2, .dims = 1});
    check("3D 3x3x3", {1, 4, 5, 6, 2}, {.in = 2, .out = 4, .kernel = 3, .pad = 1, .dims = 3});
    check("3D, axes apart", {2, 3, 6, 5, 3},
          {.in = 3, .out = 2, .kernel = {1, 3, 2}, .stride = {1, 2, 3}, .pad = {0, 1, 0}, .dims = 3});
    check("7x7 stride 2 on one image", {1, 15, 14, 3},
          {.in = 3, .out = 8, .kernel = 7, .stride = 2, .pad = 3, .bias = false});
}

TEST_CASE("conv: laws on random shapes", "[laws][conv]") {
    for (int dims = 1; dims <= 3; ++dims)
        for (std::uint32_t number = 0; number < 8; ++number) {
            const drawn_layer d = draw(dims, number + 100u * static_cast<std::uint32_t>(dims));
            const std::string name =
                concat("random ", dims, "D ", number, " on ", d.in, ": ", conv<float>(d.c).describe());
            laws::check_laws(make_case(name, d.in, [c = d.c](auto t) { return make<decltype(t)>(c); }));
        }
}

TEST_CASE("conv: plain loops on random shapes", "[conv]") {
    autotune_cache::global().set_policy(autotune_policy::first);
    for (int dims = 1; dims <= 3; ++dims)
        for (std::uint32_t number = 0; number < 25; ++number) {
            const drawn_layer d = draw(dims, number + 1000u * static_cast<std::uint32_t>(dims));
            INFO(conv<float>(d.c).describe() << " on " << d.in);
            laws::bench<double> b(make<double>(d.c));
            const conv_geometry g = make<double>(d.c).geometry(d.in);
            const tensor<double> x = laws::numbers<double>(d.in, 1),
                                 dy = laws::numbers<double>(b.layer.output_shape(d.in), 2);
            const auto r = b.run(x.share(), dy.share());
            const auto& parameters = b.arena.parameters();
            const double* const bias = d.c.bias ? parameters[1].p->value.data() : nullptr;
            tensor<double> y(dy.shape()), dx(x.shape()), dw(parameters[0].p->shape), db({d.c.out});
            oracle::conv_forward<double>(g, x.data(), parameters[0].p->value.data(), bias, y.data());
            oracle::conv_backward_input<double>(g, dy.data(), parameters[0].p->value.data(), dx.data());
            oracle::conv_backward_weight<double>(g, x.data(), dy.data(), dw.data(), db.data());
            const auto close = [](const tensor<double>& a, const tensor<double>& e) {
                for (index_t i = 0; i < e.size(); ++i) REQUIRE(a[i] == Approx(e[i]).margin(1e-11));
            };
            close(r.y, y);
            close(r.dx, dx);
            close(r.grads[0], dw);
            if (d.c.bias) close(r.grads[1], db);
        }
}

TEST_CASE("conv: errors", "[conv]") {
    CHECK_THROWS_WITH(conv<float>({.in = 4, .out = 6, .groups = 4}), Catch::Contains("groups"));
    CHECK_THROWS_WITH(conv<float>({.in = 4, .out = 6, .kernel = {3, 3, 3}}), Catch::Contains("spatial axes"));
    CHECK_THROWS_WITH(conv<float>({.in = 4, .out = 6, .stride = 0}), Catch::Contains("positive"));
    const conv<float> c({.in = 3, .out = 6, .kernel = 5});
    CHECK_THROWS_WITH(c.output_shape({2, 4, 4, 3}), Catch::Contains("no smaller") && Catch::Contains("(2, 4, 4, 3)"));
    CHECK(c.describe() == "conv 5x5 3 -> 6");
    CHECK(conv<float>({.in = 4, .out = 8, .kernel = 3, .stride = {2, 1}, .groups = 2}).describe() ==
          "conv 3x3 4 -> 8 stride 2x1 groups 2");
}

}  // namespace cairn
