#pragma once
// Convolutions that do more in one launch than today's path does in two, where that is faster: "apart", which is
// today's path, or one of cuDNN's plans, by measurement for each shape, entered into the record of choices
// (device/autotune.hpp), so that a resumed run takes the same. A plan is tried on the call's own numbers before it is
// measured or taken from the record, and left out with a warning where it gives something else.

#include <cairn/device/autotune.hpp>
#include <cairn/device/conv_geometry.hpp>
#include <cairn/device/cuda/cudnn.hpp>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace cairn::detail {

/// A plan and what it is called in the record.
struct named_plan {
    const char* name;
    cudnn::plan plan;
};

/// The plans of a graph, of which as many as there are names; none where cuDNN refuses the graph as a whole.
template <class Graph, std::size_t N>
void add_plans(std::vector<named_plan>& all, const std::array<const char*, N>& names, Graph&& graph) {
    constexpr index_t most_workspace = index_t{1} << 30;
    try {
        for (std::size_t i = 0; cudnn::plan & p : cudnn::plans_for(graph(), false, true, N, most_workspace))
            all.push_back({names[i++], std::move(p)});
    } catch (const error&) {  // NOLINT: apart remains
    }
}

/// The chosen plans of the calling thread for one kind of call with elements of T.
template <class T>
class conv_autotune {
    static_assert(sizeof(T) == 2);

public:
    using candidate = std::optional<cudnn::plan>;  // none: apart

    /// The choice for g. call: "family/phase", of the record. plans(): what cuDNN has. is_right(plan): whether that
    /// does what it should; may throw.
    /// run(candidate): once, to be timed.
    template <class Plans, class IsRight, class Run>
    const candidate& of(const conv_geometry& g, const char* call, Plans&& plans, IsRight&& is_right, Run&& run) {
        const std::uint64_t epoch = autotune_cache::global().epoch();
        auto known = std::find_if(chosen_.begin(), chosen_.end(), [&](const choice& one) { return one.g == g; });
        if (known != chosen_.end() && known->epoch == epoch) return known->plan;
        require(!cuda::is_recording(), "convolution ", g.to_string(),
                ": its plan is chosen while launches are recorded; run it once before");
        if (known != chosen_.end()) chosen_.erase(known);
        chosen_.push_back({g, choose(g, call, plans(), is_right, run), epoch});
        return chosen_.back().plan;
    }

private:
    struct choice {
        conv_geometry g;
        candidate plan;
        std::uint64_t epoch;  // of the registry: it may have another answer since
    };

    template <class IsRight, class Run>
    static candidate choose(const conv_geometry& g, const char* call, std::vector<named_plan> plans, IsRight& is_right,
                            Run& run) {
        const std::string key = concat(call, ' ', cuda::properties().name, " cudnn ", cudnnGetVersion(),
                                       std::is_same_v<T, float16> ? " float16 " : " bfloat16 ", g.to_string());
        std::vector<candidate> candidates{std::nullopt};
        std::vector<const char*> names{"apart"};
        for (named_plan& one : plans) candidates.emplace_back(std::move(one.plan)), names.push_back(one.name);
        std::vector<std::optional<bool>> right(candidates.size());
        right[0] = true;
        const auto may_run = [&](std::size_t i) {
            if (!right[i]) {
                try {
                    right[i] = is_right(*candidates[i]);
                } catch (const error&) {
                    right[i] = false;
                }
                if (!*right[i])
                    std::fprintf(stderr, "warning: %s: %s does not give what it should; not used\n", key.c_str(),
                                 names[i]);
            }
            return *right[i];
        };
        const std::size_t best = autotune_cache::global().get_or_measure(key, names, [&] {
            return [&](std::size_t i) {
                require(may_run(i), "its result is another");
                run(candidates[i]);
            };
        });
        return std::move(candidates[may_run(best) ? best : 0]);
    }

    std::vector<choice> chosen_;
};

}  // namespace cairn::detail
