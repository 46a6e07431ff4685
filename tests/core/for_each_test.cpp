#include "catch.hpp"

#include <cairn/core/for_each.hpp>

#include <vector>

namespace cairn {

TEST_CASE("for_each: each element once, at sizes around the vector width and the grain", "[for_each]") {
    for (const index_t n : {0, 1, 3, 15, 16, 17, 4095, 4096, 4097, 16384, 16385, 70001}) {
        auto a = tensor<float>::zeros({n});
        auto b = tensor<float>::zeros({n});
        for (index_t i = 0; i < n; ++i) b[i] = static_cast<float>(i);
        const auto& c = b;
        for_each([](float& x, const float& y, float z) { x += y + 2 * z + 1; }, a, b, c);
        index_t wrong = 0;
        for (index_t i = 0; i < n; ++i) wrong += a[i] != static_cast<float>(3 * i + 1);
        CAPTURE(n);
        CHECK(wrong == 0);
    }
}

TEST_CASE("for_each: arrays may be the same, and of different types", "[for_each]") {
    std::vector<float> x(1000, 3.0f);
    for_each(
        cpu{}, 1000, [](float& a, float b) { a = a * b; }, x.data(), x.data());
    for (const float v : x) CHECK(v == 9.0f);

    auto wide = tensor<double>::filled({1000}, 1.0 / 3);
    auto narrow = tensor<bfloat16>::zeros({1000});
    for_each([](bfloat16& to, double from) { to = static_cast<float>(from); }, narrow, wide);
    for (index_t i = 0; i < narrow.size(); ++i) CHECK(static_cast<float>(narrow[i]) == 0.333984375f);
}

TEST_CASE("for_each: tensors of different size are refused", "[for_each]") {
    auto a = tensor<float>::zeros({4, 3});
    auto b = tensor<float>::zeros({11});
    CHECK_THROWS_WITH(for_each([](float&, float) {}, a, b), Catch::Matchers::Contains("(4, 3)"));
    auto flat = tensor<float>::zeros({12});
    CHECK_NOTHROW(for_each([](float&, float) {}, a, flat));
}

}  // namespace cairn
