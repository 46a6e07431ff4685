#include "catch.hpp"
#include "data/synthetic.hpp"

#include <cairn/data/array_dataset.hpp>

#include <limits>

namespace cairn::test {
namespace {

using Catch::Matchers::Contains;

template <class T>
tensor<T> ramp(shape s) {
    tensor<T> t(s);
    for (index_t i = 0; i < t.size(); ++i) t[i] = static_cast<T>(i);
    return t;
}

}  // namespace

TEST_CASE("array dataset: labels", "[array_dataset]") {
    tensor<std::int32_t> labels({4});
    for (index_t i = 0; i < 4; ++i) labels[i] = static_cast<std::int32_t>(i % 2);
    const array_dataset d(ramp<float>({4, 2, 3}), labels.share(), {"a", "b"});
    const array_dataset copy = d;
    REQUIRE(copy.size() == 4);
    REQUIRE(copy.sample_shape() == shape{2, 3});
    float x[6];
    std::int32_t label = 0;
    REQUIRE(copy.read(3, {}, {x, &label, nullptr}));
    REQUIRE(x[0] == 18);
    REQUIRE(label == 1);
    labels[2] = 2;
    REQUIRE_THAT(message_of([&] {
                     array_dataset(ramp<float>({4, 2}), labels.share(), {"a", "b"});
                 }),
                 Contains("label 2 of sample 2, 0 to 1 expected"));
    REQUIRE_THAT(message_of([&] {
                     array_dataset(ramp<float>({3, 2}), labels.share(), {"a", "b", "c"}, "my.npy");
                 }),
                 Contains("my.npy: x has shape (3, 2), labels have shape (4)"));
}

TEST_CASE("array dataset: targets, as they are or normalised", "[array_dataset]") {
    const array_dataset d(ramp<float>({5, 2}), ramp<float>({5, 2}), {"u", "v"}, true);
    const target_info info = d.targets();
    REQUIRE(info.kind == target_kind::values);
    REQUIRE(info.mean == std::vector<float>{4, 5});
    double sum = 0, squares = 0;
    for (index_t i = 0; i < 5; ++i) {
        float x[2], y[2];
        d.read(i, {}, {x, nullptr, y});
        REQUIRE(info.mean[1] + info.scale[1] * y[1] == Approx(2 * i + 1));
        sum += static_cast<double>(y[0]);
        squares += static_cast<double>(y[0]) * static_cast<double>(y[0]);
    }
    REQUIRE(sum == Approx(0).margin(1e-6));
    REQUIRE(squares / 5 == Approx(1));

    const array_dataset one(ramp<float>({5, 2}), ramp<float>({5}));
    REQUIRE(one.targets().count() == 1);
    REQUIRE(one.targets().names.front() == "target 0");
    REQUIRE_THAT(message_of([] {
                     array_dataset(ramp<float>({5, 2}), ramp<float>({4, 1}));
                 }),
                 Contains("targets have shape (4, 1)"));
    REQUIRE_THAT(message_of([] {
                     array_dataset(ramp<float>({5}), ramp<float>({5, 1}));
                 }),
                 Contains("at least two axes"));
    auto broken = ramp<float>({5, 2});
    broken[7] = std::numeric_limits<float>::quiet_NaN();
    REQUIRE_THAT(message_of([&] {
                     array_dataset(broken.share(), ramp<float>({5, 1}));
                 }),
                 Contains("element 7 of x is nan"));
    auto targets = ramp<float>({5, 2});
    targets[7] = std::numeric_limits<float>::infinity();
    REQUIRE_THAT(message_of([&] {
                     array_dataset(ramp<float>({5, 2}), targets.share());
                 }),
                 Contains("target 1 of sample 3 is inf"));
}

}  // namespace cairn::test
