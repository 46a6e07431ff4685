#include "catch.hpp"

#include <cairn/core/xt.hpp>

namespace cairn {

TEMPLATE_TEST_CASE("xt_view: reads and writes a tensor's own elements", "[xt]", float, double, std::int32_t) {
    using T = TestType;
    tensor<T> t({2, 3, 4});
    for (index_t i = 0; i < t.size(); ++i) t[i] = static_cast<T>(i);
    auto v = xt_view(t);
    REQUIRE(v.dimension() == 3);
    CHECK(v.shape(0) == 2);
    CHECK(v.shape(1) == 3);
    CHECK(v.shape(2) == 4);
    CHECK(v.data() == t.data());
    CHECK(v(1, 2, 3) == T(23));
    v(1, 0, 2) = T(99);
    CHECK(t(1, 0, 2) == T(99));
    v += T(1);
    CHECK(t(0, 0, 0) == T(1));
    CHECK(t(1, 0, 2) == T(100));

    const tensor<T>& constant = t;
    const auto c = xt_view(constant);
    static_assert(std::is_const_v<std::remove_reference_t<decltype(*c.data())>>);
    CHECK(c(1, 0, 2) == T(100));
}

TEST_CASE("xt_view: expressions over several tensors, slices and ranks 0 to 6", "[xt]") {
    auto a = tensor<double>::filled({3, 4}, 2.0), b = tensor<double>::filled({4}, 5.0);
    tensor<double> sum({3, 4});
    auto out = xt_view(sum);
    out = xt_view(a) * 2.0 + xt_view(b);  // broadcast along rows
    for (const double x : sum.span()) CHECK(x == 9.0);
    xt::view(out, 1, xt::all()) = -1.0;
    CHECK(sum(1, 3) == -1.0);
    CHECK(sum(2, 0) == 9.0);

    shape s;
    for (int rank = 0; rank <= shape::max_rank; ++rank) {
        auto t = tensor<float>::filled(s, 1.5f);
        CHECK(static_cast<int>(xt_view(t).dimension()) == rank);
        CHECK(xt::sum(xt_view(t))() == 1.5f * static_cast<float>(t.size()));
        if (rank < shape::max_rank) s.push_back(2);
    }
}

TEST_CASE("tensor_from: new elements with the values of an expression, row-major", "[xt]") {
    tensor<float> a({2, 3});
    for (index_t i = 0; i < 6; ++i) a[i] = static_cast<float>(i);
    const tensor<float> t = tensor_from(xt::transpose(xt_view(a)) + 1.0f, memory_category::workspace);
    CHECK(t.shape() == shape{3, 2});
    CHECK(t(2, 1) == 6.0f);
    CHECK(t(0, 1) == 4.0f);
    const xt::xtensor<double, 2, xt::layout_type::column_major> columns{{1, 2}, {3, 4}};
    CHECK(tensor_from(columns)(0, 1) == 2.0);
}

}  // namespace cairn
