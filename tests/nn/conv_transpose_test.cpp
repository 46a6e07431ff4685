#include "layer_laws.hpp"
#include "messages.hpp"

#include <cairn/nn/conv_transpose.hpp>

namespace cairn {
namespace conv_transpose_tests {

template <class T>
conv_transpose<T> make(const conv_transpose<float>::config& c) {
    return conv_transpose<T>(
        {c.in, c.out, c.kernel, c.stride, c.pad, c.out_pad, c.dilation, c.groups, c.bias, c.dims, c.init, c.bias_init});
}

/// y by the sum in the header; geometry g is the adjoint's.
tensor<double> plain_sum(const conv_geometry& g, const shape& out, const tensor<double>& x, const tensor<double>& w,
                         const tensor<double>* bias) {
    tensor<double> y(out);
    const index_t channels = g.c_in, per_group = channels / g.groups, in_per_group = g.c_out / g.groups;
    for (index_t i = 0; i < y.size(); ++i) y[i] = bias ? (*bias)[i % channels] : 0;
    const auto each = [](const std::array<index_t, 3>& extents, auto&& visit) {
        std::array<index_t, 3> at{};
        for (at[0] = 0; at[0] < extents[0]; ++at[0])
            for (at[1] = 0; at[1] < extents[1]; ++at[1])
                for (at[2] = 0; at[2] < extents[2]; ++at[2]) visit(at);
    };
    const auto point = [](const std::array<index_t, 3>& at, const std::array<index_t, 3>& extents) {
        return (at[0] * extents[1] + at[1]) * extents[2] + at[2];
    };
    for (index_t n = 0; n < g.n; ++n)
        each(g.out, [&](const std::array<index_t, 3>& i) {
            each(g.kernel, [&](const std::array<index_t, 3>& t) {
                std::array<index_t, 3> o{};
                for (std::size_t a = 0; a < 3; ++a) {
                    o[a] = i[a] * g.stride[a] + t[a] * g.dilation[a] - g.pad[a];
                    if (o[a] < 0 || o[a] >= g.in[a]) return;
                }
                for (index_t c = 0; c < g.c_out; ++c)
                    for (index_t k = 0; k < per_group; ++k)
                        y[(n * g.in_points() + point(o, g.in)) * channels + c / in_per_group * per_group + k] +=
                            x[(n * g.out_points() + point(i, g.out)) * g.c_out + c] *
                            w[(c * g.kernel_points() + point(t, g.kernel)) * per_group + k];
            });
        });
    return y;
}

struct shaped {
    const char* name;
    shape in, out;
    conv_transpose<float>::config c;
};

const std::vector<shaped>& cases() {
    static const std::vector<shaped> all{
        {"2x2 stride 2", {2, 3, 4, 3}, {2, 6, 8, 5}, {.in = 3, .out = 5}},
        {"3D 2x2x2 stride 2, no bias", {1, 2, 3, 2, 4}, {1, 4, 6, 4, 3}, {.in = 4, .out = 3, .bias = false, .dims = 3}},
        {"3x3 stride 2 pad 1 out_pad 1",
         {2, 4, 3, 2},
         {2, 8, 6, 3},
         {.in = 2, .out = 3, .kernel = 3, .stride = 2, .pad = 1, .out_pad = 1}},
        {"out_pad beyond the kernel", {1, 3, 2, 2}, {1, 9, 6, 2}, {.in = 2, .out = 2, .stride = 3, .out_pad = 1}},
        {"3x3 stride 1, dilated",
         {1, 4, 5, 3},
         {1, 8, 9, 2},
         {.in = 3, .out = 2, .kernel = 3, .stride = 1, .dilation = 2}},
        {"groups", {2, 3, 3, 4}, {2, 6, 6, 6}, {.in = 4, .out = 6, .groups = 2}},
        {"1D 4 stride 3 pad 1",
         {3, 5, 3},
         {3, 14, 4},
         {.in = 3, .out = 4, .kernel = 4, .stride = 3, .pad = 1, .dims = 1}},
        {"3D, axes apart",
         {1, 3, 2, 2, 3},
         {1, 3, 5, 5, 2},
         {.in = 3, .out = 2, .kernel = {1, 3, 2}, .stride = {1, 2, 3}, .pad = 0, .out_pad = 0, .dims = 3}},
    };
    return all;
}

TEST_CASE("conv_transpose: laws", "[laws][conv_transpose]") {
    for (const shaped& s : cases())
        laws::check_laws(laws::make_case(s.name, s.in, [c = s.c](auto t) { return make<decltype(t)>(c); }));
}

TEST_CASE("conv_transpose: shapes and the plain sum", "[conv_transpose]") {
    autotune_cache::global().set_policy(autotune_policy::first);
    for (const shaped& s : cases()) {
        INFO(s.name);
        laws::bench<double> b(make<double>(s.c));
        REQUIRE(b.layer.output_shape(s.in) == s.out);
        const tensor<double> x = laws::numbers<double>(s.in, 1);
        const auto& parameters = b.arena.parameters();
        const tensor<double> y = b.forward(x.share()),
                             expected = plain_sum(make<double>(s.c).adjoint(s.in), s.out, x, parameters[0].p->value,
                                                  s.c.bias ? &parameters[1].p->value : nullptr);
        for (index_t i = 0; i < y.size(); ++i) REQUIRE(y[i] == Approx(expected[i]).margin(1e-11));
    }
}

TEST_CASE("conv_transpose: of bfloat16, the sum and its bias are rounded once", "[conv_transpose]") {
    autotune_cache::global().set_policy(autotune_policy::first);
    laws::bench<bfloat16> cancels(conv_transpose<bfloat16>({.in = 2, .out = 1, .kernel = 1, .stride = 1, .dims = 1}));
    const auto& [weight, bias] =
        std::tie(cancels.arena.parameters()[0].p->value, cancels.arena.parameters()[1].p->value);
    weight[0] = 256, weight[1] = 1, bias[0] = -256;
    CHECK(float(cancels.forward(tensor<bfloat16>::filled({1, 1, 2}, bfloat16(1.0f)))[0]) == 1);
    for (const shaped& s : cases()) {
        INFO(s.name);
        laws::bench<bfloat16> b(make<bfloat16>(s.c));
        const auto as_double = [](const auto& t) {
            tensor<double> d(t.shape());
            for (index_t i = 0; i < t.size(); ++i) d[i] = double(float(bfloat16(t[i])));
            return d;
        };
        const auto& parameters = b.arena.parameters();
        const tensor<double> x = laws::numbers<double>(s.in, 1), w = as_double(parameters[0].p->value),
                             shift = s.c.bias ? as_double(parameters[1].p->value) : tensor<double>{};
        tensor<bfloat16> rounded(s.in);
        for (index_t i = 0; i < x.size(); ++i) rounded[i] = bfloat16(float(x[i]));
        const tensor<bfloat16> y = b.forward(rounded.share());
        const tensor<double> expected =
            plain_sum(make<double>(s.c).adjoint(s.in), s.out, as_double(rounded), w, s.c.bias ? &shift : nullptr);
        for (index_t i = 0; i < y.size(); ++i)
            REQUIRE(std::abs(double(float(y[i])) - expected[i]) <= 0x1p-8 * std::abs(expected[i]) + 1e-5);
    }
}

TEST_CASE("conv_transpose: errors", "[conv_transpose]") {
    const auto why = [](conv_transpose<float>::config c) {
        return test::message_of([&] { static_cast<void>(make<float>(c)); });
    };
    CHECK(test::contains(why({.in = 2, .out = 2, .stride = 2, .out_pad = 2}), "less than the stride, 2"));
    CHECK(test::contains(why({.in = 4, .out = 6, .groups = 4}), "groups"));
    CHECK(test::contains(why({.in = 4, .out = 6, .kernel = {2, 2, 2}}), "spatial axes"));
    CHECK(test::contains(why({.in = 4, .out = 6, .stride = 0}), "positive"));
    CHECK(test::contains(
        test::message_of([] {
            conv_transpose<float>({.in = 4, .out = 4, .kernel = 2, .stride = 1, .pad = 2}).output_shape({1, 2, 2, 4});
        }),
        "not all padding, got (1, 2, 2, 4)"));
    CHECK(conv_transpose<float>({.in = 16, .out = 8, .dims = 3}).describe() ==
          "conv_transpose 2x2x2 16 -> 8 stride 2x2x2");
}

}  // namespace conv_transpose_tests
}  // namespace cairn
