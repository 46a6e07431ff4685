#pragma once
// Gradient compression by its name in a workload file.
//   [compress] kind = none | bf16 | fp16 | topk | sampled_topk | dgc | randomk | qsgd | natural | sign | onebit |
//              powersgd | powersgd_alternating | error_bounded, what a header enters (register_compressor), or auto
//   error_feedback (true), dense_steps (0), and of each kind its own: ratio, rank, levels, bound; of sign two_phase
//   (true): messages are compressed again on the way back, which sends 2 bits a value instead of P − 1, and loses more
// Gradients whose compressor has no kernels on the device travel by way of the host.

#include <cairn/comm/any.hpp>
#include <cairn/compress/bf16.hpp>
#include <cairn/compress/dgc.hpp>
#include <cairn/compress/error_bounded.hpp>
#include <cairn/compress/feedback.hpp>
#include <cairn/compress/fp16.hpp>
#include <cairn/compress/natural.hpp>
#include <cairn/compress/onebit.hpp>
#include <cairn/compress/powersgd_alternating.hpp>
#include <cairn/compress/qsgd.hpp>
#include <cairn/compress/randomk.hpp>
#include <cairn/compress/sign.hpp>
#include <cairn/compress/topk.hpp>
#include <cairn/device/grid/codecs.hpp>
#include <cairn/device/grid/low_rank.hpp>
#include <cairn/device/grid/select.hpp>
#include <cairn/parallel/autotuned_reduction.hpp>
#include <cairn/train/configuration.hpp>
#include <cairn/train/registry.hpp>

#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

namespace cairn {

/// A bucket of n gradients on rank `rank` of `ranks`.
struct bucket_place {
    const bucket_layout& layout;
    index_t n;
    int ranks, rank;
};

template <Device D>
using any_hook = std::unique_ptr<comm_hook<any_communicator, D>>;

/// How the gradients of buckets on D are added over the ranks.
template <Device D>
struct reduction_method {
    exchange kind;  // for the compression autotuner
    std::function<any_hook<D>(const bucket_place&)> hook_of;
};

/// Makes a method from the settings, among them those of its own.
template <Device D>
using compressors = registry<reduction_method<D> (*)(configuration&)>;

/// Whether what a message leaves out is added to the next gradient.
inline bool wants_error_feedback(configuration& settings) { return settings.get("compress.error_feedback", true); }

/// Messages of the compressor that make(place) gives, added where they can be, else gathered.
template <class Make>
auto as_messages(Make make, bool feedback) {
    using K = decltype(make(std::declval<const bucket_place&>()));
    using D = typename K::device;
    const bucket_layout none{};
    const bool summed = make(bucket_place{none, 1, 1, 0}).contract(1).summable != summand::none;
    return reduction_method<D>{
        summed ? exchange::all_reduce : exchange::all_gather, [=](const bucket_place& at) -> any_hook<D> {
            K k = make(at);
            if (!feedback) return std::make_unique<message_hook<any_communicator, K>>(std::move(k), at.n, at.ranks);
            using with = error_feedback<K>;
            return std::make_unique<message_hook<any_communicator, with>>(with(std::move(k)), at.n, at.ranks);
        }};
}

/// Messages that are compressed again on the way back, with error feedback at both ends.
template <class K>
auto in_two_phases(K k) {
    using D = typename K::device;
    return reduction_method<D>{exchange::two_phase, [=](const bucket_place& at) -> any_hook<D> {
                                   return std::make_unique<two_phase_hook<any_communicator, K>>(k, at.n, at.ranks,
                                                                                                at.rank);
                               }};
}

/// All-reduces of less than the bucket, by the compressor that make(place) gives.
template <class Make>
auto as_sums(Make make) {
    using K = decltype(make(std::declval<const bucket_place&>()));
    using D = typename K::device;
    return reduction_method<D>{exchange::all_reduce, [=](const bucket_place& at) -> any_hook<D> {
                                   return std::make_unique<reducing_hook<any_communicator, K>>(make(at));
                               }};
}

/// Enters a compressor for the host and for the devices of these targets. Entry: `name`; make<D>(configuration&), a
/// reduction_method<D> (as_messages, in_two_phases or as_sums), for each device that has its kernels.
template <class Entry, class... Targets>
struct register_compressor {
    register_compressor() {
        enter<cpu>();
        (enter<typename Targets::device>(), ...);
    }

private:
    template <Device D>
    static void enter() {
        if constexpr (requires(configuration & c) { Entry::template make<D>(c); })
            compressors<D>::global().add(Entry::name, typeid(Entry), &Entry::template make<D>);
    }
};
template <class Entry>
struct register_compressor<Entry, entered_elsewhere> {};

namespace detail {

template <bool Half>
struct cast_entry {
    static constexpr const char* name = Half ? "fp16" : "bf16";
    template <Device D>
    static reduction_method<D> make(configuration&) {
        using K = std::conditional_t<Half, fp16<D>, bf16<D>>;
        return as_messages([](const bucket_place&) { return K{}; }, false);
    }
};

template <bool Sampled>
struct topk_entry {
    static constexpr const char* name = Sampled ? "sampled_topk" : "topk";
    template <Device D>
    static reduction_method<D> make(configuration& settings) {
        using K = std::conditional_t<Sampled, sampled_topk<D>, topk<D>>;
        const double ratio = settings.get("compress.ratio", 0.01, above_to(0, 1));
        return as_messages([=](const bucket_place&) { return K({.ratio = ratio}); }, wants_error_feedback(settings));
    }
};

/// Has the momentum of sgd, which then has none.
struct dgc_entry {
    static constexpr const char* name = "dgc";
    template <Device D>
    static reduction_method<D> make(configuration& settings) {
        const double ratio = settings.get("compress.ratio", 0.001, above_to(0, 1)),
                     momentum = settings.get("optimizer.momentum", 0.9, from_below(0, 1));
        return as_messages(
            [=](const bucket_place& at) { return dgc<D>({.ratio = ratio, .momentum = momentum, .ranks = at.ranks}); },
            false);
    }
};

struct randomk_entry {
    static constexpr const char* name = "randomk";
    template <Device D>
    static reduction_method<D> make(configuration& settings) {
        const double ratio = settings.get("compress.ratio", 0.01, above_to(0, 1));
        const bool feedback = wants_error_feedback(settings);
        return as_messages([=](const bucket_place&) { return randomk<D>({.ratio = ratio, .unbiased = !feedback}); },
                           feedback);
    }
};

struct qsgd_entry {
    static constexpr const char* name = "qsgd";
    template <Device D>
    static reduction_method<D> make(configuration& settings) {
        const int levels = settings.get("compress.levels", 7, from_to(1, 255));
        return as_messages([=](const bucket_place&) { return qsgd<D>({.levels = levels}); }, false);
    }
};

struct natural_entry {
    static constexpr const char* name = "natural";
    template <Device D>
    static reduction_method<D> make(configuration&) {
        return as_messages([](const bucket_place&) { return natural<D>{}; }, false);
    }
};

struct sign_entry {
    static constexpr const char* name = "sign";
    template <Device D>
    static reduction_method<D> make(configuration& settings) {
        const bool feedback = wants_error_feedback(settings), twice = settings.get("compress.two_phase", true);
        if (feedback && twice) return in_two_phases(sign<D>{});
        return as_messages([](const bucket_place&) { return sign<D>{}; }, feedback);
    }
};

struct onebit_entry {
    static constexpr const char* name = "onebit";
    template <std::same_as<cpu> D>
    static reduction_method<D> make(configuration&) {
        return in_two_phases(onebit{});
    }
};

template <bool Alternating>
struct powersgd_entry {
    static constexpr const char* name = Alternating ? "powersgd_alternating" : "powersgd";
    template <Device D>
    static reduction_method<D> make(configuration& settings) {
        using K = std::conditional_t<Alternating, powersgd_alternating<D>, powersgd<D>>;
        const int rank = settings.get("compress.rank", 2, from_to(1, 1024));
        return as_sums([=](const bucket_place& at) { return K({.rank = rank}, at.layout, at.n); });
    }
};

struct error_bounded_entry {
    static constexpr const char* name = "error_bounded";
    template <std::same_as<cpu> D>
    static reduction_method<D> make(configuration& settings) {
        const double bound = settings.get("compress.bound", 1e-3, above_to(0, 1));
        return as_messages([=](const bucket_place&) { return error_bounded({.bound = bound}); },
                           wants_error_feedback(settings));
    }
};

static const register_compressor<cast_entry<false>, CAIRN_TARGETS> bf16_is_known;
static const register_compressor<cast_entry<true>, CAIRN_TARGETS> fp16_is_known;
static const register_compressor<topk_entry<false>, CAIRN_TARGETS> topk_is_known;
static const register_compressor<topk_entry<true>, CAIRN_TARGETS> sampled_topk_is_known;
static const register_compressor<dgc_entry, CAIRN_TARGETS> dgc_is_known;
static const register_compressor<randomk_entry, CAIRN_TARGETS> randomk_is_known;
static const register_compressor<qsgd_entry, CAIRN_TARGETS> qsgd_is_known;
static const register_compressor<natural_entry, CAIRN_TARGETS> natural_is_known;
static const register_compressor<sign_entry, CAIRN_TARGETS> sign_is_known;
static const register_compressor<onebit_entry, CAIRN_TARGETS> onebit_is_known;
static const register_compressor<powersgd_entry<false>, CAIRN_TARGETS> powersgd_is_known;
static const register_compressor<powersgd_entry<true>, CAIRN_TARGETS> powersgd_alternating_is_known;
static const register_compressor<error_bounded_entry, CAIRN_TARGETS> error_bounded_is_known;

}  // namespace detail

/// Makes the hook of a bucket of n gradients.
template <Device D>
using hook_factory = std::function<any_hook<D>(const bucket_layout&, index_t n)>;

/// Compression by the settings: none (dense), one method, or candidates for the compression autotuner.
struct compression {
    std::string kind = "none";
    hook_factory<cpu> method = {};
    std::vector<autotune_candidate<any_communicator>> candidates = {};
};

/// The method that compress.kind names for gradients on D, after the settings' dense steps; nothing where D has no
/// kernels for it, or where nothing is compressed.
template <Device D>
hook_factory<D> make_method(configuration& settings, int ranks, int rank) {
    const std::string kind = settings.get("compress.kind", "none");
    const auto& known = compressors<D>::global();
    if (!known.contains(kind)) return {};
    const auto dense_steps = settings.get<std::int64_t>("compress.dense_steps", 0, at_least(0));
    return
        [=, method = known.at("compress.kind", kind)(settings)](const bucket_layout& layout, index_t n) -> any_hook<D> {
            any_hook<D> hook = method.hook_of({layout, n, ranks, rank});
            if (dense_steps == 0) return hook;
            return std::make_unique<dense_warmup<any_communicator, D>>(std::move(hook), dense_steps);
        };
}

namespace detail {

inline std::vector<autotune_candidate<any_communicator>> make_candidates(configuration& settings) {
    std::vector<autotune_candidate<any_communicator>> all;
    for (const std::string& name :
         settings.get("compress.candidates", std::vector<std::string>{"bf16", "sampled_topk", "powersgd", "sign"})) {
        require(compressors<cpu>::global().contains(name), "compress.candidates: there is no compressor ", name);
        require(name != dgc_entry::name,
                "compress.candidates: dgc brings momentum of its own and cannot come and go; use compress.kind = dgc");
        const auto method = compressors<cpu>::global().at("compress.candidates", name)(settings);
        all.push_back({name, method.kind, [=](const bucket_layout& layout, index_t n, int ranks, int rank) {
                           return method.hook_of({layout, n, ranks, rank});
                       }});
    }
    return all;
}

}  // namespace detail

/// The settings' compression for rank `rank` of `ranks`.
inline compression make_compression(configuration& settings, int ranks, int rank) {
    std::vector<std::string> kinds = compressors<cpu>::global().names();
    kinds.insert(kinds.begin(), "none");
    kinds.emplace_back("auto");
    const std::string kind = settings.choice("compress.kind", kinds, "none");
    wants_error_feedback(settings);
    const auto dense_steps = settings.get<std::int64_t>("compress.dense_steps", 0, at_least(0));
    if (kind == "none") return {};
    if (kind != "auto") return {kind, make_method<cpu>(settings, ranks, rank), {}};
    require(dense_steps == 0, "compress.dense_steps = ", dense_steps,
            ": auto decides itself when to compress; leave it out");
    return {kind, {}, detail::make_candidates(settings)};
}

}  // namespace cairn
