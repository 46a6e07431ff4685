#pragma once
// Every kernel of a grid device gives the same bits when it runs again: no sum depends on which thread came first. The
// emulated device runs them with its threads in the other order, too.

#include "device/cuda/law_numbers.hpp"

#include <string>
#include <utility>
#include <vector>

namespace cairn::repeat_laws {

using namespace kernel_laws;

/// Results of kernels, by name.
class results {
public:
    template <class T, class D>
    void add(const char* name, const tensor<T, D>& t) {
        const auto host = t.on_host();
        const auto* const bytes = reinterpret_cast<const char*>(host.data());
        all_.emplace_back(name, std::vector<char>(bytes, bytes + host.bytes()));
    }
    void add(const char* name, double number) { add(name, of_numbers<double>({number})); }

    void check_same(const results& other) const {
        REQUIRE(all_.size() == other.all_.size());
        for (std::size_t i = 0; i < all_.size(); ++i) {
            INFO(all_[i].first);
            CHECK(all_[i].second == other.all_[i].second);
        }
    }

private:
    std::vector<std::pair<std::string, std::vector<char>>> all_;
};

struct norm_and_halve {
    CAIRN_HD void operator()(double& first, double& second, float& x) const {
        first += static_cast<double>(x);
        second += static_cast<double>(x) * static_cast<double>(x);
        x *= 0.5f;
    }
};

template <class D>
void sums(results& r) {
    const index_t n = 10007;
    auto x = on_device<D>(drawn<float>({n}, 1));
    const auto y = on_device<D>(drawn<float>({n}, 2));
    r.add("sum", sum(D{}, n, x.data()));
    r.add("sum_of_squares", sum_of_squares(D{}, n, x.data()));
    r.add("dot", dot(D{}, n, x.data(), y.data()));
    r.add("max_abs", max_abs(D{}, n, x.data()));
    r.add("count_nonfinite", static_cast<double>(count_nonfinite(D{}, n, x.data())));
    tensor<double, D> both({2});
    sum_each_into(D{}, n, norm_and_halve{}, both.data(), x.data());
    r.add("sum_each, sums", both);
    r.add("sum_each, elements", x);
    for (const auto& [rows, columns] : std::vector<std::pair<index_t, index_t>>{{3000, 3}, {500, 20}, {100, 100}}) {
        auto out = on_device<D>(drawn<float>({columns}, 3));
        column_sums(D{}, rows, columns, x.data(), out.data(), true);
        r.add("column_sums", out);
        auto a = x.clone();
        add_to_rows(D{}, rows, columns, out.data(), a.data());
        r.add("add_to_rows", a);
        tensor<std::int32_t, D> best({rows});
        argmax_rows(D{}, rows, columns, x.data(), best.data());
        r.add("argmax_rows", best);
    }
}

template <class D>
void norms(results& r) {
    for (const auto& [rows, channels] : std::vector<std::pair<index_t, index_t>>{{3000, 3}, {500, 24}, {60, 130}}) {
        const shape s{rows, channels};
        const auto x = on_device<D>(drawn<float>(s, 4)), dy = on_device<D>(drawn<float>(s, 5)),
                   skip = on_device<D>(drawn<float>(s, 6)), gamma = on_device<D>(drawn<float>({channels}, 7));
        tensor<float, D> mean({channels}), var({channels}), dgamma({channels}), dbeta({channels}), y(s), dx(s),
            dskip(s);
        auto bits = tensor<std::uint8_t, D>::zeros({simd::mask_bytes<float>(s.size())});
        batch_statistics(D{}, rows, channels, x.data(), mean.data(), var.data());
        batch_norm_apply(D{}, rows, channels, x.data(), skip.data(), mean.data(), var.data(), gamma.data(),
                         gamma.data(), activation::leaky_relu, 0.1f, y.data(), bits.data());
        batch_norm_sums(D{}, rows, channels, dy.data(), bits.data(), activation::leaky_relu, 0.1f, x.data(),
                        mean.data(), var.data(), dgamma.data(), dbeta.data());
        batch_norm_gradient(D{}, rows, channels, dy.data(), bits.data(), activation::leaky_relu, 0.1f, x.data(),
                            mean.data(), var.data(), gamma.data(), dgamma.data(), dbeta.data(), dx.data(),
                            dskip.data());
        r.add("batch norm, mean", mean);
        r.add("batch norm, var", var);
        r.add("batch norm, y", y);
        r.add("batch norm, bits", bits);
        r.add("batch norm, dgamma", dgamma);
        r.add("batch norm, dbeta", dbeta);
        r.add("batch norm, dx", dx);
        r.add("batch norm, dskip", dskip);
        const index_t some = std::min<index_t>(rows, 60);
        tensor<float, D> row_mean({some}), row_invstd({some}), z({some, channels}), dz({some, channels});
        layer_norm_forward(D{}, some, channels, x.data(), gamma.data(), gamma.data(), 1e-5f, z.data(), row_mean.data(),
                           row_invstd.data());
        layer_norm_backward(D{}, some, channels, dy.data(), x.data(), row_mean.data(), row_invstd.data(), gamma.data(),
                            dz.data(), dgamma.data(), dbeta.data());
        r.add("layer norm, y", z);
        r.add("layer norm, mean", row_mean);
        r.add("layer norm, invstd", row_invstd);
        r.add("layer norm, dx", dz);
        r.add("layer norm, dgamma", dgamma);
        r.add("layer norm, dbeta", dbeta);
    }
}

template <class D>
void rows(results& r) {
    for (const index_t classes : {10, 100, 1500}) {
        constexpr index_t rows = 3;
        const shape s{rows, classes};
        const auto x = on_device<D>(drawn<float>(s, 8)), dy = on_device<D>(drawn<float>(s, 9));
        tensor<std::int32_t> host_labels({rows});
        for (index_t i = 0; i < rows; ++i) host_labels[i] = static_cast<std::int32_t>(3 * i);
        const auto labels = on_device<D>(host_labels);
        const auto weights = on_device<D>(tensor<float>::filled({classes}, 0.7f));
        tensor<float, D> y(s), dx(s), loss({rows}), gradient(s);
        tensor<double, D> weight({1});
        softmax_forward(D{}, rows, classes, x.data(), y.data());
        softmax_backward(D{}, rows, classes, y.data(), dy.data(), dx.data());
        label_weights_into(D{}, rows, classes, labels.data(), weights.data(), weight.data());
        softmax_cross_entropy(D{}, rows, classes, x.data(), labels.data(), 0.1f, loss.data(), gradient.data(), 1.0f,
                              weights.data(), weight.data());
        r.add("softmax, y", y);
        r.add("softmax, dx", dx);
        r.add("label weights", weight);
        r.add("cross-entropy, loss", loss);
        r.add("cross-entropy, gradient", gradient);
    }
}

template <class D>
void elements(results& r) {
    const index_t n = 5003;
    const auto x = on_device<D>(drawn<float>({n}, 10)), dy = on_device<D>(drawn<float>({n}, 11));
    tensor<float, D> y({n}), dx({n});
    for (const activation act :
         {activation::sigmoid, activation::tanh, activation::silu, activation::gelu, activation::gelu_tanh}) {
        activation_forward(D{}, act, n, x.data(), y.data());
        activation_backward(D{}, act, n, x.data(), dy.data(), dx.data());
        r.add(name_of(act), y);
        r.add(name_of(act), dx);
    }
    auto bits = tensor<std::uint8_t, D>::zeros({simd::mask_bytes<float>(n)});
    sign_activation_forward(D{}, n, 0.1f, x.data(), y.data(), bits.data());
    sign_activation_backward(D{}, n, 0.1f, dy.data(), bits.data(), dx.data());
    r.add("leaky relu, y", y);
    r.add("leaky relu, bits", bits);
    r.add("leaky relu, dx", dx);
    dropout_apply(D{}, n, 0.3, random_stream{1, 2, 3}, x.data(), y.data());
    r.add("dropout", y);

    constexpr index_t entries = 7, width = 130, rows = 300;
    tensor<std::int32_t> host_ids({rows});
    for (index_t i = 0; i < rows; ++i) host_ids[i] = static_cast<std::int32_t>(i * i % entries);
    const auto ids = on_device<D>(host_ids);
    const auto table = on_device<D>(drawn<float>({entries, width}, 12)),
               dz = on_device<D>(drawn<float>({rows, width}, 13));
    tensor<float, D> z({rows, width});
    auto dtable = tensor<float, D>::zeros({entries, width});
    embedding_forward(D{}, rows, entries, width, ids.data(), table.data(), z.data());
    embedding_backward(D{}, rows, entries, width, ids.data(), dz.data(), dtable.data());
    r.add("embedding, y", z);
    r.add("embedding, dtable", dtable);
}

template <class D>
void pools(results& r) {
    for (const pool_geometry& g : pool_geometries()) {
        const auto x = on_device<D>(drawn<float>({g.x_elements()}, 14)),
                   dy = on_device<D>(drawn<float>({g.y_elements()}, 15));
        tensor<float, D> y({g.y_elements()}), dx({g.x_elements()});
        tensor<std::uint8_t, D> code({g.y_elements()});
        max_pool_forward(D{}, g, x.data(), y.data(), code.data());
        max_pool_backward(D{}, g, dy.data(), code.data(), dx.data());
        r.add("max pool, y", y);
        r.add("max pool, code", code);
        r.add("max pool, dx", dx);
        average_pool_forward(D{}, g, x.data(), y.data());
        average_pool_backward(D{}, g, dy.data(), dx.data());
        r.add("average pool, y", y);
        r.add("average pool, dx", dx);
    }
    for (const index_t channels : {3, 40}) {
        const index_t points = 500;
        const auto x = on_device<D>(drawn<float>({2, points, channels}, 16));
        tensor<float, D> y({2, channels}), dx({2, points, channels});
        global_average_forward(D{}, 2, points, channels, x.data(), y.data());
        global_average_backward(D{}, 2, points, channels, y.data(), dx.data());
        r.add("global average, y", y);
        r.add("global average, dx", dx);
    }
}

template <class D>
results of_all_kernels() {
    results r;
    sums<D>(r);
    norms<D>(r);
    rows<D>(r);
    elements<D>(r);
    pools<D>(r);
    return r;
}

template <class D>
void same_bits_again() {
    of_all_kernels<D>().check_same(of_all_kernels<D>());
}

}  // namespace cairn::repeat_laws
