#include "catch.hpp"

#include <cairn/core/arena.hpp>
#include <cairn/core/finite.hpp>

#include <cmath>
#include <limits>

namespace cairn {

using Catch::Matchers::Contains;
using start = initializer::distribution;

namespace {

/// A parameter of each kind of start.
struct model {
    parameter<float> weight{.shape = {7, 5}, .init = {start::normal, 0.5, 1.0}};
    parameter<float> bias{.shape = {5}, .init = {start::constant, 0, 0.25}, .decay = false};
    parameter<float> table{.shape = {1000}, .init = {start::truncated_normal, 2.0}};
    parameter<float> flat{.shape = {4000}, .init = {start::uniform, 3.0}};

    parameter_list<float> list() {
        return {{"a/weight", &weight}, {"a/bias", &bias}, {"table", &table}, {"flat", &flat}};
    }
};

}  // namespace

TEST_CASE("arena: parameters are aligned slices of one block, in order, gaps are zero", "[arena]") {
    model m;
    arena a(m.list(), 1);
    CHECK(a.count() == 35 + 5 + 1000 + 4000);
    int id = 0;
    index_t at = 0;
    for (const auto& [name, p] : a.parameters()) {
        CHECK(p->name == name);
        CHECK(p->id == id++);
        CHECK(p->value.data() == a.values().data() + at);
        CHECK(p->grad.data() == a.grads().data() + at);
        CHECK(p->value.shape() == p->shape);
        const index_t padded = (p->shape.size() + 15) / 16 * 16;
        for (index_t i = p->shape.size(); i < padded; ++i) CHECK(a.values()[at + i] == 0.0f);
        at += padded;
    }
    CHECK(a.values().size() == at);
    for (const float g : a.grads().span()) CHECK(g == 0.0f);
}

TEST_CASE("arena: memory is counted as parameters and gradients", "[arena]") {
    auto& pool = memory_pool::host();
    const auto parameters = pool.use_of(memory_category::parameters).live;
    const auto gradients = pool.use_of(memory_category::gradients).live;
    model m;
    const arena a(m.list(), 1);
    const index_t bytes = (48 + 16 + 1008 + 4000) * 4;
    CHECK(pool.use_of(memory_category::parameters).live == parameters + bytes);
    CHECK(pool.use_of(memory_category::gradients).live == gradients + bytes);
}

TEST_CASE("arena: values follow the initializer, the seed and the path alone", "[arena]") {
    model m, same, other;
    const arena a(m.list(), 7), b(same.list(), 7), c(other.list(), 8);
    index_t equal = 0;
    for (index_t i = 0; i < 35; ++i) {
        CHECK(m.weight.value[i] == same.weight.value[i]);
        equal += m.weight.value[i] == other.weight.value[i];
        const random_stream random = stream_of_path(7, path_hash("a/weight"), "initial values");
        CHECK(m.weight.value[i] == static_cast<float>(1.0 + 0.5 * random.normal(static_cast<std::uint64_t>(i))));
    }
    CHECK(equal == 0);
    for (const float v : m.bias.value.span()) CHECK(v == 0.25f);
    double sum = 0, squares = 0;
    for (const float v : m.table.value.span()) {
        CHECK(std::abs(v) <= 4.0f);
        sum += v;
        squares += v * v;
    }
    // A normal cut at two deviations has a variance of 0.774 of the whole one's.
    CHECK(std::abs(sum / 1000) < 5 * 2 * std::sqrt(0.774 / 1000));
    CHECK(squares / 1000 == Approx(4 * 0.774).epsilon(0.15));
    float low = 0, high = 0;
    for (const float v : m.flat.value.span()) {
        low = std::min(low, v);
        high = std::max(high, v);
    }
    CHECK(low >= -3.0f);
    CHECK(low < -2.98f);
    CHECK(high < 3.0f);
    CHECK(high > 2.98f);
}

TEST_CASE("arena: any part of a model in any order starts with the numbers of the whole", "[arena]") {
    model whole, part;
    const arena all(whole.list(), 7);
    auto list = part.list();
    std::swap(list[0], list[3]);
    list.erase(list.begin() + 1);
    const arena some(list, 7);
    for (const auto& [name, p] : some.parameters())
        for (const auto& [same, of_whole] : all.parameters())
            if (name == same)
                for (index_t i = 0; i < p->value.size(); ++i) REQUIRE(p->value[i] == of_whole->value[i]);
}

TEST_CASE("arena: a slice of a parameter has the slice of the whole's values", "[arena]") {
    for (const start kind : {start::normal, start::truncated_normal, start::uniform, start::constant}) {
        const initializer init{kind, 0.5, 1.0};
        parameter<float> whole{.shape = {6, 5, 4}, .init = init};
        const arena<float> all({{"block/weight", &whole}}, 3);
        for (const auto& [begin, extent] : {std::pair<shape, shape>{{0, 0, 0}, {6, 5, 4}},
                                            {{2, 0, 0}, {3, 5, 4}},
                                            {{0, 1, 0}, {6, 3, 4}},
                                            {{0, 0, 3}, {6, 5, 1}},
                                            {{1, 2, 1}, {5, 2, 2}}}) {
            CAPTURE(begin, extent);
            parameter<float> slice{.shape = extent, .init = init, .layout = {.global = whole.shape}};
            std::copy(begin.begin(), begin.end(), slice.layout.begin.begin());
            const arena<float> some({{"block/weight", &slice}}, 3);
            for (index_t i = 0; i < extent[0]; ++i)
                for (index_t j = 0; j < extent[1]; ++j)
                    for (index_t k = 0; k < extent[2]; ++k)
                        REQUIRE(slice.value[(i * extent[1] + j) * extent[2] + k] ==
                                whole.value[((begin[0] + i) * 5 + begin[1] + j) * 4 + begin[2] + k]);
        }
    }
    const auto refused = [](shape here, parameter_layout layout) {
        parameter<float> p{.shape = here, .layout = std::move(layout)};
        CHECK_THROWS_WITH(arena<float>({{"block/weight", &p}}, 3),
                          Contains("block/weight") && Contains("does not lie within (6, 5)"));
    };
    refused({3, 5}, {.global = {6, 5}, .begin = {4, 0}});
    refused({3, 5}, {.global = {6, 5}, .begin = {-1, 0}});
    refused({3}, {.global = {6, 5}});
}

TEST_CASE("arena: zero_grad clears all gradients and nothing else", "[arena]") {
    model m;
    arena a(m.list(), 1);
    for (const auto& [name, p] : a.parameters()) std::fill_n(p->grad.data(), p->grad.size(), 3.0f);
    const float before = m.weight.value[0];
    a.zero_grad();
    for (const float g : a.grads().span()) CHECK(g == 0.0f);
    CHECK(m.weight.value[0] == before);
}

TEST_CASE("arena: a parameter that has memory already is refused by name", "[arena]") {
    model m;
    const arena a(m.list(), 1);
    CHECK_THROWS_WITH(arena(m.list(), 1), Contains("a/weight"));
    model twice;
    auto list = twice.list();
    list.push_back({"again/bias", &twice.bias});
    CHECK_THROWS_WITH(arena(std::move(list), 1), Contains("again/bias"));
}

TEST_CASE("append_prefixed: names become paths", "[arena]") {
    model m;
    parameter_list<float> outer;
    append_prefixed(outer, "block1", m.list());
    append_prefixed(outer, "block2", m.list());
    REQUIRE(outer.size() == 8);
    CHECK(outer[0].name == "block1/a/weight");
    CHECK(outer[5].name == "block2/a/bias");
}

TEST_CASE("first_non_finite: the first in memory order, whatever the number of threads", "[finite]") {
    auto t = tensor<float>::zeros({200'000});
    CHECK_FALSE(first_non_finite(t));
    t[199'999] = std::numeric_limits<float>::infinity();
    CHECK(first_non_finite(t) == index_t{199'999});
    t[70'000] = std::numeric_limits<float>::quiet_NaN();
    CHECK(first_non_finite(t) == index_t{70'000});
    t[3] = -std::numeric_limits<float>::infinity();
    CHECK(first_non_finite(t) == index_t{3});
    CHECK_FALSE(first_non_finite(tensor<float>{}));
    CHECK_FALSE(first_non_finite(tensor<float>::filled({5}, std::numeric_limits<float>::max())));
}

TEST_CASE("first_non_finite: names the parameter, value or gradient, and the element", "[finite]") {
    model m;
    arena a(m.list(), 1);
    CHECK(first_non_finite(a.parameters()).empty());
    m.table.grad[17] = std::numeric_limits<float>::quiet_NaN();
    CHECK_THAT(first_non_finite(a.parameters()),
               Contains("gradient of table") && Contains("(1000)") && Contains("element 17") && Contains("nan"));
    m.bias.value[2] = std::numeric_limits<float>::infinity();
    CHECK_THAT(first_non_finite(a.parameters()), Contains("value of a/bias") && Contains("inf"));
}

}  // namespace cairn
