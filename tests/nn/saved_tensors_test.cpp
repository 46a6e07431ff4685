#include "catch.hpp"

#include <cairn/nn/saved_tensors.hpp>

namespace cairn {

TEST_CASE("saved tensors: what was put is taken once", "[saved_tensors]") {
    saved_tensors<float> saved;
    CHECK(saved.empty());
    saved.put(2, tensor<float>::filled({3}, 1.5f));
    saved.put(0, tensor<std::uint8_t>::filled({4}, 7));
    saved.child(1).put(0, tensor<std::int32_t>::filled({1}, -1));
    CHECK_FALSE(saved.empty());
    CHECK(saved.has(2));
    CHECK_FALSE(saved.has(1));
    CHECK(saved.get(2)[0] == 1.5f);
    CHECK(saved.take(2).shape() == shape{3});
    CHECK_FALSE(saved.has(2));
    CHECK(saved.take<std::uint8_t>(0)[3] == 7);
    CHECK_FALSE(saved.empty());
    CHECK(saved.child(1).take<std::int32_t>(0)[0] == -1);
    CHECK(saved.empty());
}

TEST_CASE("saved tensors: taking the last share frees the block", "[saved_tensors]") {
    const auto live = [] { return memory_pool::host().activations().live; };
    const index_t before = live();
    saved_tensors<float> saved;
    saved.put(0, tensor<float>({100}));
    CHECK(live() > before);
    saved.take(0).reset();
    CHECK(live() == before);
    saved.child(3).put(0, tensor<float>({100}));
    saved.clear();
    CHECK(live() == before);
}

TEST_CASE("saved tensors: what is held counts as saved, once a block, and then as an activation again",
          "[saved_tensors]") {
    const auto& pool = memory_pool::host();
    const auto live = [&](memory_category use) { return pool.use_of(use).live; };
    const index_t saved_before = live(memory_category::saved), before = live(memory_category::activations),
                  all = pool.activations().live;
    {
        saved_tensors<float> saved;
        auto x = tensor<float>({100}), y = tensor<float>({1000}, memory_category::data);
        const index_t bytes = live(memory_category::activations) - before;
        saved.put(0, x.share());
        saved.child(1).put(0, x.slice(10, {5}));
        saved.child(1).put(1, y.share());  // of another use, which it keeps
        CHECK(live(memory_category::saved) == saved_before + bytes);
        CHECK(live(memory_category::activations) == before);
        CHECK(pool.activations().live == all + bytes);
        saved.take(0).reset();
        CHECK(live(memory_category::saved) == saved_before + bytes);
        saved.child(1).put(0, tensor<float>({1}));  // in its place
        CHECK(live(memory_category::activations) == before + bytes);
        saved.put(0, std::move(x));
        const saved_tensors<float> moved = std::move(saved);
        CHECK(live(memory_category::saved) == saved_before + bytes + memory_pool::alignment);
    }
    CHECK(live(memory_category::saved) == saved_before);
    CHECK(live(memory_category::activations) == before);
}

TEST_CASE("saved tensors: a shape travels without elements", "[saved_tensors]") {
    const index_t before = memory_pool::host().activations().live;
    saved_tensors<float> saved;
    saved.put(0, tensor<float>::view(nullptr, {2, 3}));
    CHECK(memory_pool::host().activations().live == before);
    CHECK(saved.take(0).shape() == shape{2, 3});
}

TEST_CASE("saved tensors: discarding reaches every child, and ends", "[saved_tensors]") {
    saved_tensors<float> saved;
    saved.child(0).put(0, tensor<float>({1}));
    CHECK_FALSE(saved.discard(true));
    saved.put(0, tensor<float>({1}));
    saved.child(0).put(1, tensor<float>({1}));
    saved.child(0).child(2).put(0, tensor<float>({1}));
    CHECK_FALSE(saved.has(0));
    CHECK_FALSE(saved.child(0).has(1));
    CHECK_FALSE(saved.child(0).child(2).has(0));
    CHECK(saved.child(0).has(0));
    CHECK(saved.discard(false));
    saved.child(0).child(2).put(0, tensor<float>({1}));
    CHECK(saved.child(0).child(2).has(0));
}

TEST_CASE("saved tensors: backward without forward says so", "[saved_tensors]") {
    saved_tensors<float> saved;
    CHECK_THROWS_WITH(saved.get(0), Catch::Contains("forward"));
    CHECK_THROWS_WITH(saved.take<std::uint8_t>(3), Catch::Contains("slot 3"));
}

}  // namespace cairn
