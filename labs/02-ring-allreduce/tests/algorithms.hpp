#pragma once
// The submission's algorithms as the tests call them: a rank that waits for ever says in which of them.

#include "ranks.hpp"

#include "all_reduce.hpp"
#include "buckets.hpp"
#include "cost.hpp"

#include <type_traits>

namespace lab {

inline const auto ring = [](rank_of_test& c, std::span<float> data) {
    const auto call = c.enter({"ring_all_reduce", "floats", static_cast<cairn::index_t>(data.size())});
    student::ring_all_reduce(c, data);
};
inline const auto halving = [](rank_of_test& c, std::span<float> data) {
    const auto call = c.enter({"halving_doubling_all_reduce", "floats", static_cast<cairn::index_t>(data.size())});
    student::halving_doubling_all_reduce(c, data);
};

/// The data as tensors of these sizes, one behind the other, in buckets of `bucket` elements.
inline auto buckets(const std::vector<std::size_t>& sizes, std::size_t bucket) {
    return [=](rank_of_test& c, std::span<float> data) {
        const auto call = c.enter({"reduce_gradients", "floats", static_cast<cairn::index_t>(data.size())});
        std::vector<std::span<float>> gradients;
        std::size_t at = 0;
        for (const std::size_t n : sizes) gradients.push_back(data.subspan(at, n)), at += n;
        student::reduce_gradients(c, gradients, bucket * sizeof(float));
    };
}

// Results as types of C++ before they are compared: a submission could bring types with an == of its own.
inline double ring_seconds(int p, double bytes, const student::link& l) { return student::ring_seconds(p, bytes, l); }
inline double halving_seconds(int p, double bytes, const student::link& l) {
    return student::halving_doubling_seconds(p, bytes, l);
}
inline std::string cheaper(int p, double bytes, const student::link& l) {
    static_assert(std::is_enum_v<student::algorithm>);
    switch (student::cheaper(p, bytes, l)) {
        case student::algorithm::ring:
            return "ring";
        case student::algorithm::halving_doubling:
            return "halving and doubling";
    }
    return "neither";
}

/// Empty, or what is wrong with the first rank that has not the means of all.
inline std::string fault_of_means(const outcome& all) {
    auto mean = all.sums(), bound = all.bounds();
    for (double& m : mean) m /= static_cast<double>(all.before.size());
    for (const auto& after : all.after)
        if (const std::string why = difference(std::span<const float>(after), mean, bound); !why.empty()) return why;
    return {};
}

}  // namespace lab
