#include "catch.hpp"

#include <cairn/core/tensor.hpp>

#include <cstdint>
#include <type_traits>
#include <utility>

namespace cairn {

using Catch::Matchers::Contains;

static_assert(!std::is_copy_constructible_v<tensor<float>> && !std::is_copy_assignable_v<tensor<float>>,
              "a copy is always spelled out");
static_assert(std::is_nothrow_move_constructible_v<tensor<float>> && std::is_nothrow_move_assignable_v<tensor<float>>);

TEST_CASE("tensor: default is empty, of no elements", "[tensor]") {
    const tensor<float> t;
    CHECK(t.empty());
    CHECK(t.size() == 0);
    CHECK(t.bytes() == 0);
    CHECK(t.span().empty());
    CHECK_FALSE(t.unique());
}

TEMPLATE_TEST_CASE("tensor: aligned, sized and filled", "[tensor]", float, double, bfloat16, std::uint8_t) {
    for (const shape& s : {shape{1}, shape{3, 5}, shape{2, 3, 4, 5}, shape{}}) {
        auto t = tensor<TestType>::filled(s, TestType{3});
        CHECK(reinterpret_cast<std::uintptr_t>(t.data()) % 64 == 0);
        CHECK(t.shape() == s);
        CHECK(t.size() == s.size());
        CHECK(t.bytes() == s.size() * static_cast<index_t>(sizeof(TestType)));
        CHECK(t.unique());
        for (const TestType& v : t.span()) CHECK(static_cast<float>(v) == 3.0f);
    }
}

TEST_CASE("tensor: an empty axis means no elements, and no fault", "[tensor]") {
    auto t = tensor<float>::zeros({4, 0, 3});
    CHECK(t.size() == 0);
    CHECK(t.span().empty());
    CHECK(t.clone().shape() == shape{4, 0, 3});
}

TEST_CASE("tensor: row-major, the last axis is next in memory", "[tensor]") {
    auto t = tensor<int>::zeros({2, 3, 4, 5});
    for (index_t i = 0; i < t.size(); ++i) t[i] = static_cast<int>(i);
    int expected = 0;
    for (index_t n = 0; n < 2; ++n)
        for (index_t h = 0; h < 3; ++h)
            for (index_t w = 0; w < 4; ++w)
                for (index_t c = 0; c < 5; ++c) CHECK(std::as_const(t)(n, h, w, c) == expected++);
    t(1, 2, 3, 4) = -1;
    CHECK(t[119] == -1);
    CHECK(t.extent(-1) == 5);
    CHECK(t.rank() == 4);
}

TEST_CASE("tensor: moving hands the block over and leaves an empty tensor", "[tensor]") {
    auto a = tensor<float>::filled({8}, 1.0f);
    const float* block = a.data();
    tensor<float> b = std::move(a);
    CHECK(b.data() == block);
    CHECK(b.unique());
    CHECK(a.empty());  // NOLINT(bugprone-use-after-move): the state after a move is part of the interface
    CHECK(a.size() == 0);
    a = std::move(b);
    CHECK(a.data() == block);
    auto& self = a;
    a = std::move(self);
    CHECK(a.data() == block);
    CHECK(a.shape() == shape{8});
}

TEST_CASE("tensor: share is the same elements, clone new ones", "[tensor]") {
    auto a = tensor<float>::filled({8}, 1.0f);
    auto shared = a.share();
    const auto cloned = a.clone();
    a[3] = 5;
    CHECK(shared[3] == 5);
    CHECK(cloned[3] == 1);
    CHECK_FALSE(a.unique());
    CHECK(cloned.unique());
    shared.reset();
    CHECK(a.unique());
    CHECK(shared.empty());
}

TEST_CASE("tensor: the block lives as long as its last handle", "[tensor]") {
    const auto before = memory_pool::host().total().live;
    tensor<float> slice;
    {
        auto whole = tensor<float>::filled({1000}, 2.0f);
        slice = whole.slice(900, {10, 10});
    }
    CHECK(memory_pool::host().total().live == before + 4032);  // 4,000 bytes in blocks of 64
    CHECK(slice(9, 9) == 2.0f);
    slice.reset();
    CHECK(memory_pool::host().total().live == before);
}

TEST_CASE("tensor: reshaped shares the elements, sizes must agree", "[tensor]") {
    auto t = tensor<float>::zeros({2, 6});
    auto r = t.reshaped({3, 4});
    r(2, 3) = 7;
    CHECK(t(1, 5) == 7);
    CHECK_THROWS_WITH(t.reshaped({5}), Contains("(2, 6)") && Contains("12") && Contains("(5)"));
}

TEST_CASE("tensor: slices are checked against both ends", "[tensor]") {
    auto t = tensor<float>::zeros({10});
    CHECK(t.slice(0, {10}).size() == 10);
    CHECK(t.slice(10, {0}).size() == 0);
    CHECK_THROWS_AS(t.slice(1, {10}), error);
    CHECK_THROWS_AS(t.slice(-1, {2}), error);
    CHECK_THROWS_WITH(t.slice(8, {3}), Contains("8") && Contains("11") && Contains("10"));
}

TEST_CASE("tensor: a view owns nothing", "[tensor]") {
    float values[6] = {1, 2, 3, 4, 5, 6};
    const auto before = memory_pool::host().total().live;
    auto v = tensor<float>::view(values, {2, 3});
    CHECK(v(1, 0) == 4);
    v(1, 0) = 9;
    CHECK(values[3] == 9);
    CHECK_FALSE(v.unique());
    CHECK(v.slice(3, {3}).data() == values + 3);
    CHECK(memory_pool::host().total().live == before);
}

TEST_CASE("tensor: memory is counted under its category", "[tensor]") {
    auto& pool = memory_pool::host();
    const auto before = pool.use_of(memory_category::optimizer).live;
    {
        const tensor<double> t({16}, memory_category::optimizer);
        CHECK(pool.use_of(memory_category::optimizer).live == before + 128);
        const auto copy = t.clone(memory_category::workspace);
        CHECK(pool.use_of(memory_category::optimizer).live == before + 128);
    }
    CHECK(pool.use_of(memory_category::optimizer).live == before);
}

TEST_CASE("tensor: require_shape names the tensor and both shapes", "[tensor]") {
    const auto t = tensor<float>::zeros({2, 3});
    CHECK_NOTHROW(require_shape(t, {2, 3}, "x"));
    CHECK_THROWS_WITH(require_shape(t, {3, 2}, "weight of conv1"),
                      Contains("weight of conv1") && Contains("(2, 3)") && Contains("(3, 2)"));
}

}  // namespace cairn
