#pragma once
// Input that products and convolutions of every device refuse, and the words of the errors.

#include "catch.hpp"
#include "messages.hpp"

#include <cairn/core/tensor.hpp>
#include <cairn/device/conv_geometry.hpp>

namespace cairn::refusals {

/// Of all three phases.
template <class D>
void impossible_geometries() {
    const auto refused = [](auto change, const char* words) {
        conv_geometry g{.n = 2, .in = {1, 8, 8}, .c_in = 4, .c_out = 6, .kernel = {1, 3, 3}, .pad = {0, 1, 1}};
        g = g.with_output();
        change(g);
        float* const none = nullptr;
        const float* const no = nullptr;
        CAPTURE(g.to_string(), words);
        CHECK(test::contains(test::message_of([&] { conv_forward(D{}, g, no, no, no, none); }), words));
        CHECK(test::contains(test::message_of([&] { conv_backward_input(D{}, g, no, no, none); }), words));
        CHECK(test::contains(test::message_of([&] { conv_backward_weight(D{}, g, no, no, none, none); }), words));
    };
    refused([](auto& g) { g.out[2] = 9; }, "axis 2: the output size is 9, the rest gives 8");
    refused([](auto& g) { g.groups = 4; }, "groups must divide");
    refused([](auto& g) { g.c_in = 0; }, "channels must be positive");
    refused([](auto& g) { g.stride[1] = 0; }, "axis 1");
    refused([](auto& g) { g.pad[1] = -1; }, "padding at least 0");
    refused([](auto& g) { g.kernel[1] = 11, g.out[1] = 0; }, "larger than the padded input");
    refused([](auto& g) { g.n = -1; }, "n-1 in1x8x8x4");
}

template <class D>
void bad_products() {
    tensor<float, D> v({64});
    const auto said = [&](index_t m, index_t k, index_t lda, index_t ldb, index_t ldc, index_t batch = 1) {
        return test::message_of([&] {
            gemm_batched(D{}, false, false, m, index_t{2}, k, 1.0f, v.data(), lda, index_t{6}, v.data(), ldb,
                         index_t{6}, 0.0f, v.data(), ldc, index_t{4}, batch);
        });
    };
    const auto said_with_bias = [&](index_t lda, index_t ldb, index_t ldc) {
        return test::message_of([&] {
            gemm_bias(D{}, false, false, 2, 2, 3, 1.0f, v.data(), lda, v.data(), ldb, v.data(), ldc, v.data());
        });
    };
    CHECK(test::contains(said(-1, 3, 3, 2, 2), "gemm of -1 x 2 x 3: negative size"));
    CHECK(test::contains(said(2, -1, 3, 2, 2), "negative size"));
    CHECK(test::contains(said(2, 3, 2, 2, 2), "lda is 2, a row of a has 3"));
    CHECK(test::contains(said(2, 3, 3, 1, 2), "ldb is 1, a row of b has 2"));
    CHECK(test::contains(said(2, 3, 3, 2, 1), "ldc is 1, a row of c has 2"));
    CHECK(test::contains(said(2, 3, 3, 2, 2, -1), "batch of -1"));
    CHECK(test::contains(said_with_bias(2, 2, 2), "lda is 2"));
    CHECK(test::contains(said_with_bias(3, 1, 2), "ldb is 1"));
    CHECK(test::contains(said_with_bias(3, 2, 1), "ldc is 1"));
}

}  // namespace cairn::refusals
