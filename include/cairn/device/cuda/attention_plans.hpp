#pragma once
// Attention of bfloat16 and float16 on the GPU by whatever is faster: the kernels of attention.hpp ("own") or cuDNN's
// (cudnn_attention.hpp, "cudnn0", …), found by measurement for each shape and phase and entered into the record of
// choices (device/autotune.hpp), so that a resumed run takes the same. The logarithms that forward leaves mean the same
// for both, so that the phases choose by themselves. Plans that do not give the same bits every time are left out, and
// so is cuDNN where it is not made for the case: heads of a size that is no multiple of 8 or above 128, lengths,
// dropout (whose mask is ours), addresses that are no multiples of 16 bytes. Verified without a GPU: graphs on an
// interpreter (tests/cudnn), and that cuDNN 9.19 takes them for a described H100.
// Include it in what is compiled for GPUs; layers find these functions by the device.

#include <cairn/device/autotune.hpp>
#include <cairn/device/cuda/cudnn_attention.hpp>
#include <cairn/device/grid/attention.hpp>

#include <array>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

namespace cairn {

namespace detail {

/// The chosen plans of the calling thread. D: where "own" is launched.
template <class T, GridDevice D>
class attention_plans {
    static_assert(sizeof(T) == 2, "cuDNN's fused attention is of bfloat16 and float16");

public:
    static attention_plans& mine() {
        thread_local attention_plans all;
        return all;
    }

    /// The arrays of a call; without dy it is one of forward.
    struct call {
        attention_geometry g;
        const T *q, *k, *v;
        T* y;
        float* lse;
        const T* dy = nullptr;
        T *dq = nullptr, *dk = nullptr, *dv = nullptr;
        bool is_forward() const { return dy == nullptr; }
    };

    /// Workspace that a plan may want: 1 GiB and what backward's deterministic engines keep, dS in float. That it is
    /// there is asked when plans are measured; which plans there are depends on the problem alone, so that a name
    /// means the same plan in a resumed run.
    static index_t most_workspace(const attention_geometry& g) {
        const index_t rows = (g.length + 127) / 128 * 128;
        return (index_t{1} << 30) + g.batch * g.heads * rows * rows * index_t{sizeof(float)};
    }

    /// As attention_forward() and attention_backward(); something is there to do.
    void run(const call& c) {
        const std::string key = key_of(c);
        const std::uint64_t epoch = autotune_cache::global().epoch();
        auto found = chosen_.find(key);
        if (found == chosen_.end() || found->second.epoch != epoch)
            found = chosen_.insert_or_assign(key, choice{choose(key, c), epoch}).first;
        execute(found->second.plan, c);
    }

private:
    struct choice {
        std::optional<cudnn::plan> plan;  // none: own
        std::uint64_t epoch;              // of the registry: it may have another answer since
    };
    static constexpr std::array<const char*, 5> names{"own", "cudnn0", "cudnn1", "cudnn2", "cudnn3"};
    // What cuDNN cannot, after its own front end, which refuses this; and what goes wrong in it.
    static constexpr std::size_t works_since = 91002;       // versions before have "known bugs" in bfloat16 and float16
    static constexpr std::size_t any_length_since = 91501;  // before, backward is of multiples of 128
    static constexpr std::size_t half_tiles_since = 92600;  // before, backward of 128 n + 64 may make NaN on H100

    static std::string key_of(const call& c) {
        const attention_geometry& g = c.g;
        return concat("attention_gpu/", c.is_forward() ? "forward " : "backward ", cuda::properties().name, " cudnn ",
                      cudnnGetVersion(), std::is_same_v<T, float16> ? " float16" : " bfloat16", " b", g.batch, " l",
                      g.length, " h", g.heads, 'x', g.head_dim, " step ", g.position(), g.causal ? " causal" : "",
                      c.lse ? " logs" : "", suits_cudnn(c) ? "" : " own");
    }

    static bool suits_cudnn(const call& c) {
        const attention_geometry& g = c.g;
        if (g.lengths || g.dropout > 0 || g.head_dim % 8 != 0 || g.head_dim > 128 || g.position() % 8 != 0)
            return false;
        if (!(g.factor() > 0)) return false;  // a mask of −∞ before a negative factor counts for everything
        if (!cudnn::aligned(c.q, c.k, c.v, c.y, c.lse, c.dy, c.dq, c.dk, c.dv)) return false;
        const std::size_t version = cudnnGetVersion();
        if (version < works_since) return false;
        if (c.is_forward()) return true;
        if (g.length == 1 || (g.length % 128 == 64 && version < half_tiles_since)) return false;
        return g.length % 128 == 0 || version >= any_length_since;
    }

    static std::optional<cudnn::plan> choose(const std::string& key, const call& c) {
        const std::vector<cudnn::plan> plans = suits_cudnn(c) ? plans_of(c) : std::vector<cudnn::plan>{};
        const index_t left = cuda::memory().limit() - cuda::memory().total().live;
        std::vector<const char*> candidates{names[0]};
        std::vector<std::optional<cudnn::plan>> of{std::nullopt};
        for (std::size_t i = 0; i < plans.size(); ++i)
            if (plans[i].workspace < left) candidates.push_back(names[i + 1]), of.emplace_back(plans[i]);
        const auto candidate = [&](std::size_t i) { return of[i]; };
        // All overwrite the same results with nearly the same numbers; the chosen one runs last.
        return candidate(autotune_cache::global().get_or_measure(key, candidates, [&] {
            return [&](std::size_t i) {
                execute(candidate(i), c);
                cuda::wait();
            };
        }));
    }

    // None where cuDNN refuses the graph as a whole.
    static std::vector<cudnn::plan> plans_of(const call& c) {
        try {
            cudnn::attention_graph<T> graph(c.g);
            return cudnn::plans_for(c.is_forward() ? graph.forward(c.lse != nullptr) : graph.backward(), false, true,
                                    names.size() - 1, most_workspace(c.g));
        } catch (const error&) {
            return {};
        }
    }

    static void execute(const std::optional<cudnn::plan>& p, const call& c) {
        if (p)
            execute_plan(*p, c);
        else if (c.is_forward())
            grid::attention_forward(D{}, c.g, c.q, c.k, c.v, c.y, c.lse);
        else
            grid::attention_backward(D{}, c.g, c.q, c.k, c.v, static_cast<const T*>(c.y),
                                     static_cast<const float*>(c.lse), c.dy, c.dq, c.dk, c.dv);
    }

    static void execute_plan(const cudnn::plan& p, const call& c) {
        const auto scale = static_cast<float>(c.g.factor()), masked = -std::numeric_limits<float>::infinity(),
                   one = 1.0f;
        std::vector<std::int64_t> ids;
        std::vector<const void*> at;
        const auto give = [&](cudnn::attention_tensor id, const void* where) {
            ids.push_back(id);
            at.push_back(where);
        };
        give(cudnn::id_query, c.q), give(cudnn::id_key, c.k), give(cudnn::id_value, c.v), give(cudnn::id_result, c.y);
        give(cudnn::id_scale, &scale);
        if (c.lse) give(cudnn::id_logs, c.lse);
        if (c.g.causal) give(cudnn::id_masked, &masked);
        tensor<float, cuda> products;
        if (!c.is_forward()) {
            products = tensor<float, cuda>({c.g.batch * c.g.heads * c.g.length}, memory_category::workspace);
            give(cudnn::id_products, products.data()), give(cudnn::id_one, &one);
            give(cudnn::id_result_gradient, c.dy), give(cudnn::id_query_gradient, c.dq);
            give(cudnn::id_key_gradient, c.dk), give(cudnn::id_value_gradient, c.dv);
        }
        gpu_workspace scratch(static_cast<std::size_t>(p.workspace));
        p.run(ids, at, scratch.data(), "running an attention");
    }

    std::map<std::string, choice> chosen_;
};

/// attention_forward() and attention_backward() of the GPU and of devices that have its libraries.
template <GridDevice D, class T>
void attention_forward_by_choice(const attention_geometry& g, const T* q, const T* k, const T* v, T* y,
                                 grid::sum_type<T>* lse) {
    if (!begin_attention<T>(g, true)) return;
    if constexpr (sizeof(T) == 2)
        attention_plans<T, D>::mine().run({g, q, k, v, y, lse});
    else
        grid::attention_forward(D{}, g, q, k, v, y, lse);
}
template <GridDevice D, class T>
void attention_backward_by_choice(const attention_geometry& g, const T* q, const T* k, const T* v, const T* y,
                                  const grid::sum_type<T>* lse, const T* dy, T* dq, T* dk, T* dv) {
    if (!begin_attention<T>(g, false)) return;
    if constexpr (sizeof(T) == 2)  // y and lse are read alone
        attention_plans<T, D>::mine().run({g, q, k, v, const_cast<T*>(y), const_cast<float*>(lse), dy, dq, dk, dv});
    else
        grid::attention_backward(D{}, g, q, k, v, y, lse, dy, dq, dk, dv);
}

}  // namespace detail

/// As of any grid device (attention.hpp).
template <class T>
void attention_forward(cuda, const attention_geometry& g, const T* q, const T* k, const T* v, T* y,
                       std::type_identity_t<grid::sum_type<T>>* lse) {
    detail::attention_forward_by_choice<cuda>(g, q, k, v, y, lse);
}
template <class T>
void attention_backward(cuda, const attention_geometry& g, const T* q, const T* k, const T* v, const T* y,
                        const std::type_identity_t<grid::sum_type<T>>* lse, const T* dy, T* dq, T* dk, T* dv) {
    detail::attention_backward_by_choice<cuda>(g, q, k, v, y, lse, dy, dq, dk, dv);
}

}  // namespace cairn
