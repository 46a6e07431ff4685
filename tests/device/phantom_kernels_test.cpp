// Every kernel of the host on a phantom rank: it announces the work that it does on a real one, takes the same memory
// and touches no element.

#include "phantom_run.hpp"

#include <cairn/device/cpu/attention.hpp>
#include <cairn/device/cpu/batch_norm.hpp>
#include <cairn/device/cpu/csr.hpp>
#include <cairn/device/cpu/curvature.hpp>
#include <cairn/device/cpu/deferred_tasks.hpp>
#include <cairn/device/cpu/dice.hpp>
#include <cairn/device/cpu/dropout.hpp>
#include <cairn/device/cpu/embedding.hpp>
#include <cairn/device/cpu/gemm_bias.hpp>
#include <cairn/device/cpu/label_sampling.hpp>
#include <cairn/device/cpu/layer_norm.hpp>
#include <cairn/device/cpu/matrix_preconditioner_kernels.hpp>
#include <cairn/device/cpu/per_example_gradients.hpp>
#include <cairn/device/cpu/pool.hpp>
#include <cairn/device/cpu/rows.hpp>
#include <cairn/device/cpu/split_softmax.hpp>
#include <cairn/nn/channels.hpp>

namespace phantom_kernels {

using namespace cairn;
using cairn::index_t;
using test::phantom_is_real;
using test::some;

constexpr index_t rows = 40, columns = 1100;  // 4 KiB and more a row of floats
constexpr index_t n = rows * columns;

template <class T>
void of_layers() {
    using S = simd::arithmetic<T>;
    const auto x = [] { return some<T>({rows, columns}); };
    const auto each = [] { return some<S>({columns}); };
    const auto bits = [] { return some<std::uint8_t>({simd::mask_bytes<S>(n)}); };
    phantom_is_real("dropout", [&] { dropout_apply(cpu{}, n, 0.3, {1, 2, 3}, x().data(), x().data(), 5); });
    for (const index_t stride : {2, 1})
        phantom_is_real("pools", [&] {
            const pool_geometry g{2,
                                  20,
                                  {pool_axis::sliding(1, 1, 1, 0), pool_axis::sliding(16, 2, stride, 0),
                                   pool_axis::sliding(18, 2, stride, 0)}};
            auto in = some<T>({g.x_elements()}), out = some<T>({g.y_elements()});
            auto codes = some<std::uint8_t>({g.y_elements()});
            max_pool_forward(cpu{}, g, in.data(), out.data(), codes.data());
            max_pool_backward(cpu{}, g, out.data(), codes.data(), in.data());
            average_pool_forward(cpu{}, g, in.data(), out.data());
            average_pool_backward(cpu{}, g, out.data(), in.data());
        });
    phantom_is_real("global average", [&] {
        global_average_forward(cpu{}, 5, 8, columns, x().data(), x().data());
        global_average_backward(cpu{}, 5, 8, columns, x().data(), x().data());
    });
    phantom_is_real("softmax", [&] {
        softmax_forward(cpu{}, rows, columns, x().data(), x().data());
        softmax_backward(cpu{}, rows, columns, x().data(), x().data(), x().data());
    });
    phantom_is_real("activations", [&] {
        sign_activation_forward(cpu{}, n, S{0}, x().data(), x().data(), bits().data());
        sign_activation_backward(cpu{}, n, S(0.1), x().data(), bits().data(), x().data());
        activation_forward(cpu{}, activation::gelu, n, x().data(), x().data());
        activation_backward(cpu{}, activation::tanh, n, x().data(), x().data(), x().data());
    });
    phantom_is_real("batch norm", [&] {
        auto mean = each(), var = each();
        const auto relu = activation::relu;
        batch_statistics(cpu{}, rows, columns, x().data(), mean.data(), var.data());
        batch_norm_apply(cpu{}, rows, columns, x().data(), x().data(), mean.data(), var.data(), each().data(),
                         each().data(), relu, S{0}, x().data(), bits().data());
        batch_norm_sums(cpu{}, rows, columns, x().data(), bits().data(), relu, S{0}, x().data(), mean.data(),
                        var.data(), each().data(), each().data());
        batch_norm_gradient(cpu{}, rows, columns, x().data(), bits().data(), relu, S{0}, x().data(), mean.data(),
                            var.data(), each().data(), each().data(), each().data(), x().data(), x().data());
    });
    phantom_is_real("batch norm of few channels, whose last rows are by themselves", [&] {
        const index_t channels = 3, count = 4001;
        auto in = some<T>({count, channels});
        auto mask = some<std::uint8_t>({simd::mask_bytes<S>(count * channels)});
        auto of = some<S>({channels});
        batch_norm_apply(cpu{}, count, channels, in.data(), in.data(), of.data(), of.data(), of.data(), of.data(),
                         activation::relu, S{0}, in.data(), mask.data());
        batch_norm_sums(cpu{}, count, channels, in.data(), mask.data(), activation::relu, S{0}, in.data(), of.data(),
                        of.data(), of.data(), of.data());
    });
    phantom_is_real("layer norm", [&] {
        layer_norm_forward(cpu{}, rows, columns, x().data(), each().data(), each().data(), S(1e-5), x().data(),
                           each().data(), each().data());
        layer_norm_backward(cpu{}, rows, columns, x().data(), x().data(), each().data(), each().data(), each().data(),
                            x().data(), each().data(), each().data(), x().data());
    });
    phantom_is_real("embedding", [&] {
        const auto ids = some<std::int32_t>({2000});
        auto y = some<T>({2000, 30});
        embedding_forward(cpu{}, 2000, array_part(rows), 30, ids.data(), x().data(), y.data());
        embedding_backward(cpu{}, 2000, array_part(1300), 30, ids.data(), y.data(), some<S>({1300, 30}).data());
    });
    phantom_is_real("rows", [&] {
        add_to_rows(cpu{}, rows, columns, x().data(), x().data());
        column_sums(cpu{}, rows, columns, x().data(), each().data(), true);
        argmax_rows(cpu{}, rows, columns, x().data(), some<std::int32_t>({rows}).data());
        copy_columns(cpu{}, rows, 100, x().data(), columns, x().data(), 100);
    });
    for (const bool causal : {false, true})
        phantom_is_real("attention", [&] {
            const attention_geometry g{
                .batch = 2, .length = 150, .heads = 2, .head_dim = 24, .causal = causal, .dropout = causal ? 0.1 : 0};
            const shape s{2, 150, 2, 24};
            auto q = some<T>(s), k = some<T>(s), v = some<T>(s), y = some<T>(s), dy = some<T>(s), dq = some<T>(s);
            auto lse = some<S>({2, 2, 150});
            attention_forward(cpu{}, g, q.data(), k.data(), v.data(), y.data(), lse.data());
            attention_backward(cpu{}, g, q.data(), k.data(), v.data(), y.data(), lse.data(), dy.data(), dq.data(),
                               dq.data(), dq.data());
        });
    phantom_is_real("product with bias", [&] {
        auto w = some<T>({20, columns}), y = some<T>({rows, 20}), b = some<T>({20});
        gemm_bias(cpu{}, false, true, rows, 20, columns, S{1}, x().data(), columns, w.data(), columns, y.data(), 20,
                  b.data(), activation::relu);
    });
    phantom_is_real("gradients of examples", [&] {
        per_example_gradients(cpu{}, 4, 10, columns, normalised_by::channel, x().data(), x().data(), bits().data(),
                              activation::relu, S{0}, each().data(), each().data(), some<S>({4, columns}).data(),
                              some<S>({4, columns}).data());
    });
}

}  // namespace phantom_kernels

TEST_CASE("phantom: kernels of layers announce their work and touch nothing", "[phantom]") {
    using namespace phantom_kernels;
    of_layers<float>();
    of_layers<bfloat16>();
}

TEST_CASE("phantom: kernels of losses announce their work and touch nothing", "[phantom]") {
    using namespace phantom_kernels;
    const auto x = [] { return some({rows, columns}); };
    const auto labels = [](index_t count = rows) { return some<std::int32_t>({count}); };
    const auto doubles = [](index_t count = 2000) { return some<double>({count}); };
    phantom_is_real("cross-entropy", [&] {
        auto divisor = doubles(1);
        label_weights_into(cpu{}, rows, columns, labels().data(), some({columns}).data(), divisor.data());
        softmax_cross_entropy(cpu{}, rows, columns, x().data(), labels().data(), 0.1f, some({rows}).data(), x().data(),
                              1.0f, some({columns}).data(), divisor.data());
        logistic_cross_entropy(cpu{}, rows, columns, x().data(), x().data(), 1.0f, x().data(), divisor.data());
    });
    phantom_is_real("cross-entropy of classes on several ranks", [&] {
        const index_t some_rows = 2000, few = 22;
        const auto of = labels(some_rows), at = labels(some_rows);
        auto a = doubles(), b = doubles(), c = doubles(), out = doubles(1);
        const split_softmax_labels l{of.data(), 0, columns, 0.1};
        const split_softmax_sums sums{a.data(), b.data(), c.data()};
        row_maxima(cpu{}, some_rows, few, x().data(), a.data());
        split_softmax(cpu{}, some_rows, few, x().data(), l, a.data(), sums, x().data());
        split_softmax_gradient(cpu{}, some_rows, few, l, a.data(), x().data());
        split_softmax_loss(cpu{}, some_rows, l, sums, out.data());
        values_at(cpu{}, some_rows, few, x().data(), at.data(), a.data());
        CHECK(std::isfinite(out[0]));
    });
    phantom_is_real("dice", [&] {
        auto sums = doubles(rows * dice_sums_each(22)), losses = doubles(rows);
        auto p = x(), factors = some({rows, 2, 22});
        dice_sums(cpu{}, rows, 50, 22, p.data(), labels(2000).data(), p.data(), sums.data());
        for_each_sample(cpu{}, rows,
                        dice_of_sample<float>{rows, 50, 22, 1, 1, 1, 1, sums.data(), losses.data(), factors.data()});
        dice_gradient(cpu{}, rows, 50, 22, labels(2000).data(), factors.data(), 0.1f, p.data());
    });
    phantom_is_real("drawn labels", [&] {
        sample_classes(cpu{}, 2000, 22, x().data(), {1, 2, 3}, labels(2000).data());
        sample_normals(cpu{}, n, 1.0f, {1, 2, 3}, x().data());
        sample_pixels(cpu{}, n, x().data(), {1, 2, 3}, x().data());
    });
}

TEST_CASE("phantom: passes over arrays announce their work and touch nothing", "[phantom]") {
    using namespace phantom_kernels;
    const auto x = [] { return some({n}); };
    phantom_is_real("elementwise", [&] {
        for_each(cpu{}, n, functors::add{}, x().data(), x().data());
        auto y = x();
        for_indices(cpu{}, n, [at = y.data()](index_t i) { at[i] = 0; });
        set_to_zero(cpu{}, y);
    });
    phantom_is_real("sums", [&] {
        auto out = some<double>({1000});  // results in memory of the rank
        sum_into(cpu{}, n, x().data(), out.data());
        sum_of_squares_into(cpu{}, n, x().data(), out.data());
        count_equal_into(cpu{}, n, x().data(), x().data(), out.data());
        dot(cpu{}, n, x().data(), x().data());
        const pair_of_arrays pairs[] = {{0, 1}, {2, 3}};
        pair_products_into(cpu{}, n, x().data(), x().data(), x().data(), x().data(), pairs, out.data());
        const auto add = [](double& a, double& b, float v) { a += static_cast<double>(v), b += 1; };
        sum_each_into(cpu{}, n, add, out.data(), x().data());
        const auto weighted = [](double& a, double&, float w, float v) { a += static_cast<double>(w * v); };
        sum_each_weighted_into(cpu{}, rows, columns, some({rows}).data(), some({columns}).data(), weighted, out.data(),
                               x().data());
        max_abs(cpu{}, n, x().data());
        count_nonfinite_into(cpu{}, n, x().data(), out.data());
        non_finite_at_hand(cpu{}, n, x().data(), x().data());
        diagonal_sum_into(cpu{}, 40, 41, x().data(), out.data());
    });
    phantom_is_real("sums of parts", [&] {
        tensor<range> pieces({1000}, memory_category::data);
        auto first = some<index_t>({1001});
        for (index_t i = 0; i < 1001 && !on_phantom_rank(); ++i) {
            first[i] = i;
            if (i < 1000) pieces[i] = {44 * i, 44};
        }
        auto out = some<double>({1000});
        sums_of_squares_into(cpu{}, n, pieces, first, x().data(), out);
    });
    phantom_is_real("rows in bfloat16", [&] {
        const auto in = some<bfloat16>({n});
        widened_rows({.examples = rows, .in = columns, .out = columns, .x = in.data(), .dy = in.data()});
    });
    phantom_is_real("sparse product", [&] {
        const index_t nodes = 1000;
        csr_matrix<double> ring;
        ring.rows = ring.columns = nodes;
        for (index_t i = 0; i < nodes; ++i) {
            ring.column.push_back(static_cast<std::int32_t>((i + 1) % nodes));
            ring.value.push_back(1);
            ring.begin.push_back(i + 1);
        }
        const csr_tensors<float, cpu> there(ring);
        csr_times_dense(cpu{}, there.view(), 44, x().data(), x().data());
    });
}

TEST_CASE("phantom: kernels of second-order methods announce their work and touch nothing", "[phantom]") {
    using namespace phantom_kernels;
    const auto x = [] { return some({rows, columns}); };
    const auto square = [] { return some({columns, columns}); };
    const auto each = [] { return some({columns}); };
    const auto out = [] { return some<double>({1000}); };
    for (const bool join : {false, true})
        phantom_is_real("rows of samples", [&] {
            const auto in = x();
            const strided_samples<float> of{.x = in.data(),
                                            .width = columns,
                                            .stride = columns,
                                            .positions = 4,
                                            .examples = {0, 1, 10},
                                            .at = {0, 2, 2},
                                            .join = join};
            gather_rows(cpu{}, of, 0, 10, some({20, columns}).data());
        });
    phantom_is_real("factors", [&] {
        add_column_squares(cpu{}, rows, columns, 1.0f, x().data(), columns, each().data());
        add_border(cpu{}, rows, columns, 1.0f, x().data(), columns - 1, false, square().data());
        add_border(cpu{}, rows, columns - 50, 1.0f, x().data(), columns, false, square().data());
        add_border(cpu{}, rows, columns, 1.0f, x().data(), columns, true, each().data());
        count_lookups(cpu{}, {0, 1, 40}, {0, 1, 50}, 50, some<std::int32_t>({2000}).data(), columns, each().data());
        scale_kronecker(cpu{}, rows, columns, columns, x().data(), some({rows}).data(), each().data(), 1.0, 0.1, true,
                        x().data());
    });
    phantom_is_real("symmetric matrices", [&] {
        auto m = square();
        mirror_upper(cpu{}, columns, m.data(), columns);
        auto packed = some({columns * (columns + 1) / 2});
        pack_triangle(cpu{}, columns, m.data(), packed.data());
        unpack_triangle(cpu{}, columns, packed.data(), m.data());
        add_to_diagonal(cpu{}, columns, columns + 1, 1.0f, m.data());
        CHECK(diagonal_sum(cpu{}, columns, columns + 1, m.data()) > 0);
        add_symmetric_product(cpu{}, rows, columns, 1.0f, x().data(), columns, m.data(), columns);
    });
    phantom_is_real("directions", [&] {
        auto v = x(), gradient = x(), bias = some({rows}), factors = some({2000});
        const gradient_layout<float> of{gradient.data(), bias.data(), columns, columns - 1, rows, false};
        gather_gradient(cpu{}, of, v.data());
        auto products = out();
        direction_products(cpu{}, of, v.data(), products.data(), true);
        direction_factors(cpu{}, 300, products.data(), nullptr, {.kl_clip = 1, .lr = 1}, factors.data());
        put_direction(cpu{}, of, v.data(), factors.data());
    });
    phantom_is_real("matrices of preconditioners", [&] {
        auto q = square(), to = square();
        auto order = some<std::int32_t>({columns});
        for (index_t i = 0; i < columns && !on_phantom_rank(); ++i) order[i] = static_cast<std::int32_t>(i);
        scaled_matrix(cpu{}, rows, columns, true, 2.0f, x().data(), x().data());
        normalised_matrix(cpu{}, rows, columns, false, x().data(), x().data());
        powered_columns(cpu{}, columns, each().data(), q.data(), -0.25, 1e-6, to.data());
        graft_matrix(cpu{}, rows, columns, x().data(), x().data(), columns);
        order_of_columns(cpu{}, columns, q.data(), to.data(), order.data());
        reordered(cpu{}, columns, columns, true, order.data(), q.data(), to.data());
        reversed_columns(cpu{}, columns, q.data(), to.data());
    });
    phantom_is_real("output gradient of a norm", [&] {
        norm_output_gradient(cpu{}, rows, columns, normalised_by::row, x().data(), nullptr, 0.0f, some({rows}).data(),
                             x().data());
    });
    phantom_is_real("tasks for later", [&] {
        deferred_tasks<cpu> tasks;
        auto sums = out();
        const auto in = x();
        tasks.begin({3, 1, 0x1p33, 2}, [&](index_t i) { sum_into(cpu{}, n, in.data(), sums.data() + i); });
        tasks.make_now();
        tasks.make_later();
        tasks.close();
        CHECK(threads() == 1);
    });
}
