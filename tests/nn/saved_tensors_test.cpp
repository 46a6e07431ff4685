#include "catch.hpp"

#include <cairn/nn/saved_tensors.hpp>

#include <set>

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
    const auto live = [] { return memory_pool::host().use_of(memory_category::activations).live; };
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

TEST_CASE("saved tensors: a shape travels without elements", "[saved_tensors]") {
    const index_t before = memory_pool::host().use_of(memory_category::activations).live;
    saved_tensors<float> saved;
    saved.put(0, tensor<float>::view(nullptr, {2, 3}));
    CHECK(memory_pool::host().use_of(memory_category::activations).live == before);
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

TEST_CASE("saved tensors: every place has a stream of its own, the same in each tape", "[saved_tensors]") {
    const auto streams = [] {
        saved_tensors<float> saved;
        std::vector<std::uint32_t> all{saved.stream()};
        for (int i = 0; i < 40; ++i) {
            all.push_back(saved.child(i).stream());
            for (int j = 0; j < 40; ++j) all.push_back(saved.child(i).child(j).stream());
        }
        return all;
    };
    const std::vector<std::uint32_t> once = streams();
    CHECK(once == streams());
    CHECK(std::set<std::uint32_t>(once.begin(), once.end()).size() == once.size());
}

TEST_CASE("saved tensors: backward without forward says so", "[saved_tensors]") {
    saved_tensors<float> saved;
    CHECK_THROWS_WITH(saved.get(0), Catch::Contains("forward"));
    CHECK_THROWS_WITH(saved.take<std::uint8_t>(3), Catch::Contains("slot 3"));
}

}  // namespace cairn
