#pragma once
// Laws of softmax and cross-entropy of every grid device, besides kernel_laws.hpp: plain loops, logits that are large,
// infinite or undefined, all smoothing, labels that do not exist, no rows.

#include "device/cuda/law_numbers.hpp"
#include "oracle/softmax.hpp"

namespace cairn::softmax_laws {

using namespace kernel_laws;

template <class T>
oracle::reals row_of(const tensor<T>& x, index_t row, index_t classes) {
    return {x.data() + row * classes, x.data() + (row + 1) * classes};
}

template <class D, class T>
void plain_loops() {
    constexpr index_t rows = 4;
    for (const index_t classes : {1, 2, 33, 65, 1025, 1032, 2051, 8200})  // the last two are more than a block holds
        for (const double scale : {1.0, 30.0}) {
            if (classes > 2000 && scale == 1) continue;
            CAPTURE(classes, scale);
            const tensor<T> x = drawn<T>({rows, classes}, 1, scale), dy = drawn<T>({rows, classes}, 2);
            const auto d_x = on_device<D>(x), d_dy = on_device<D>(dy);
            tensor<T, D> d_y(x.shape()), d_dx(x.shape());
            softmax_forward(D{}, rows, classes, d_x.data(), d_y.data());
            softmax_backward(D{}, rows, classes, d_y.data(), d_dy.data(), d_dx.data());
            std::vector<long double> y, dx;
            for (index_t r = 0; r < rows; ++r) {
                const oracle::reals p = oracle::softmax(row_of(x, r, classes)),
                                    g = oracle::softmax_gradient(p, row_of(dy, r, classes));
                y.insert(y.end(), p.begin(), p.end());
                dx.insert(dx.end(), g.begin(), g.end());
            }
            check_near(d_y, y, eps<T>(32 * std::max(1.0, scale / 4)));
            check_near(d_dx, dx, eps<T>(64 * std::max(1.0, scale / 4)));
        }
}

/// Smoothing 0 to 1, weights, over the logits and without a gradient, against the sum over targets.
template <class D, class T>
void cross_entropies() {
    constexpr index_t rows = 3;
    for (const index_t classes : {1, 2, 17, 300, 304, 2051, 8200})
        for (const double smoothing : {0.0, 0.1, 1.0})
            for (const bool weighted : {false, true}) {
                if (classes > 2000 && weighted == (smoothing == 1)) continue;
                CAPTURE(classes, smoothing, weighted);
                const tensor<T> x = drawn<T>({rows, classes}, 3, 4);
                tensor<T> weights = tensor<T>::filled({classes}, T(1));
                for (index_t k = 0; weighted && k < classes; ++k) weights[k] = static_cast<T>(0.5 + double(k % 5));
                tensor<std::int32_t> labels({rows});
                for (index_t r = 0; r < rows; ++r) labels[r] = static_cast<std::int32_t>(r * 7 % classes);
                const auto d_x = on_device<D>(x), d_weights = on_device<D>(weights);
                const auto d_labels = on_device<D>(labels);
                tensor<T, D> loss({rows}), gradient(x.shape());
                softmax_cross_entropy(D{}, rows, classes, d_x.data(), d_labels.data(), T(smoothing), loss.data(),
                                      gradient.data(), T(0.25), weighted ? d_weights.data() : nullptr);
                std::vector<long double> losses, gradients;
                const double total = weighted ? 4.5 : 1;  // of weights × targets: the scale of loss and gradient
                for (index_t r = 0; r < rows; ++r) {
                    const auto o =
                        oracle::cross_entropy(row_of(x, r, classes), static_cast<std::size_t>(labels[r]),
                                              static_cast<long double>(T(smoothing)), row_of(weights, 0, classes));
                    losses.push_back(o.loss);
                    for (const auto g : o.gradient) gradients.push_back(0.25L * g);
                }
                check_near(loss, losses, total * eps<T>(320));
                check_near(gradient, gradients, total * eps<T>(32));
                // A divisor in device memory divides the scale.
                const auto four = on_device<D>(tensor<double>::filled({1}, 4));
                auto over_logits = d_x.clone();
                softmax_cross_entropy(D{}, rows, classes, over_logits.data(), d_labels.data(), T(smoothing),
                                      loss.data(), over_logits.data(), T(1), weighted ? d_weights.data() : nullptr,
                                      four.data());
                CHECK(same_bits(over_logits, gradient));
                check_near(loss, losses, total * eps<T>(320));
                if (!weighted) continue;
                tensor<double, D> sum({1});
                label_weights_into(D{}, rows, classes, d_labels.data(), d_weights.data(), sum.data());
                double expected = 0;
                for (index_t r = 0; r < rows; ++r) expected += static_cast<double>(weights[labels[r]]);
                CHECK(on_host(sum)[0] == expected);
            }
}

template <class D, class T>
void extreme_logits() {
    const tensor<T> x = of_numbers<T>(
        {10000, -10000, 10000, 0, 0, -infinity, 1, not_a_number, 2, -infinity, -infinity, -infinity, infinity, 0, 0});
    const auto d_x = on_device<D>(x);
    tensor<T, D> d_y({15});
    softmax_forward(D{}, 5, 3, d_x.data(), d_y.data());
    const auto nan = not_a_number;
    check_near(d_y, std::vector<double>{0.5, 0, 0.5, 0.5, 0.5, 0, nan, nan, nan, nan, nan, nan, nan, nan, nan},
               eps<T>(4));

    // The loss of the host, row by row: finite where it is there.
    tensor<std::int32_t> labels({5});
    for (const std::int32_t label : {0, 1, 2})
        for (const double smoothing : {0.0, 0.1}) {
            CAPTURE(label, smoothing);
            for (std::int32_t& l : labels.span()) l = label;
            const auto d_labels = on_device<D>(labels);
            tensor<T> loss({5}), gradient({15});
            softmax_cross_entropy(cpu{}, 5, 3, x.data(), labels.data(), T(smoothing), loss.data(), gradient.data(),
                                  T(1));
            tensor<T, D> d_loss({5}), d_gradient({15});
            softmax_cross_entropy(D{}, 5, 3, d_x.data(), d_labels.data(), T(smoothing), d_loss.data(),
                                  d_gradient.data(), T(1));
            const tensor<T> got = on_host(d_loss), dx = on_host(d_gradient);
            for (index_t r = 0; r < 5; ++r) {
                CHECK(std::isfinite(got[r]) == std::isfinite(loss[r]));
                if (std::isfinite(loss[r])) CHECK(std::abs(got[r] - loss[r]) <= eps<T>(8) * (1 + std::abs(loss[r])));
            }
            for (index_t i = 0; i < 15; ++i) {
                CHECK(std::isfinite(dx[i]) == std::isfinite(gradient[i]));
                if (std::isfinite(gradient[i])) CHECK(std::abs(dx[i] - gradient[i]) <= eps<T>(8));
            }
        }
}

/// A label that does not exist: NaN, no gradient, no weight; its neighbours are what they were. No rows: nothing is
/// written.
template <class D, class T>
void labels_that_do_not_exist() {
    const tensor<T> x = drawn<T>({3, 4}, 4);
    const auto d_x = on_device<D>(x), weights = on_device<D>(of_numbers<T>({1, 2, 4, 8}));
    const auto labels_of = [](std::int32_t middle) {
        tensor<std::int32_t> labels({3});
        labels[0] = 2, labels[1] = middle, labels[2] = 0;
        return on_device<D>(labels);
    };
    const auto run = [&](std::int32_t middle) {
        const auto labels = labels_of(middle);
        tensor<T, D> loss({3}), gradient({3, 4});
        softmax_cross_entropy(D{}, 3, 4, d_x.data(), labels.data(), T(0.1), loss.data(), gradient.data(), T(1),
                              weights.data());
        return std::pair{on_host(loss), on_host(gradient)};
    };
    const auto right = run(1);
    for (const std::int32_t bad : {-1, 4, std::numeric_limits<std::int32_t>::min()}) {
        const auto [loss, gradient] = run(bad);
        for (index_t r = 0; r < 3; ++r) CHECK((r == 1 ? std::isnan(loss[r]) : loss[r] == right.first[r]));
        for (index_t i = 0; i < 12; ++i) CHECK(gradient[i] == (i / 4 == 1 ? T(0) : right.second[i]));
        tensor<double, D> sum({1});
        const auto labels = labels_of(bad);
        label_weights_into(D{}, 3, 4, labels.data(), weights.data(), sum.data());
        CHECK(on_host(sum)[0] == 5);
    }
    auto kept = on_device<D>(tensor<T>::filled({4}, T(7)));
    const auto labels = labels_of(1);
    softmax_forward(D{}, 0, 4, kept.data(), kept.data());
    softmax_backward(D{}, 0, 4, kept.data(), kept.data(), kept.data());
    softmax_cross_entropy(D{}, 0, 4, kept.data(), labels.data(), T(0), kept.data(), kept.data(), T(1));
    check_close(kept, tensor<T>::filled({4}, T(7)), 0);
}

template <GridDevice D>
const std::vector<law>& all() {
    static const std::vector<law> laws{{"softmax, float", plain_loops<D, float>},
                                       {"softmax, double", plain_loops<D, double>},
                                       {"cross-entropy, float", cross_entropies<D, float>},
                                       {"cross-entropy, double", cross_entropies<D, double>},
                                       {"extreme logits, float", extreme_logits<D, float>},
                                       {"extreme logits, double", extreme_logits<D, double>},
                                       {"labels that do not exist", labels_that_do_not_exist<D, float>}};
    return laws;
}

}  // namespace cairn::softmax_laws
