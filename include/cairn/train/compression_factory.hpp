#pragma once
// Gradient compression by its name in a workload file.
//   [compress] kind = none | bf16 | fp16 | topk | sampled_topk | dgc | randomk | qsgd | natural | sign | onebit |
//              powersgd | powersgd_alternating | error_bounded | auto
//   error_feedback (true), dense_steps (0), and of each kind its own: ratio, rank, levels, bound; of sign two_phase
//   (true): messages are compressed again on the way back, which sends 2 bits a value instead of P − 1, and loses more

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
#include <cairn/device/cuda/codecs.hpp>
#include <cairn/device/cuda/low_rank.hpp>
#include <cairn/device/cuda/select.hpp>
#include <cairn/parallel/autotuned_reduction.hpp>
#include <cairn/train/configuration.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace cairn {

using any_hook = std::unique_ptr<comm_hook<any_communicator>>;
/// Makes the method of a bucket.
using hook_factory = std::function<any_hook(const bucket_layout&, index_t n)>;

inline const std::vector<std::string> compressor_names{
    "none",    "bf16", "fp16",   "topk",     "sampled_topk",         "dgc",           "randomk", "qsgd",
    "natural", "sign", "onebit", "powersgd", "powersgd_alternating", "error_bounded", "auto"};

/// What compressors are made with.
struct compression_settings {
    bool error_feedback = true;
    bool two_phase = true;
    bool sign_in_two_phases() const { return error_feedback && two_phase; }
    double ratio = 0.01;
    int rank = 2;
    int levels = 7;
    double bound = 1e-3;
    double momentum = 0.9;
    std::int64_t dense_steps = 0;
};

/// Makes the method of a bucket whose gradients are on D.
template <Device D>
using method_maker_on = std::function<std::unique_ptr<comm_hook<any_communicator, D>>(const bucket_layout&, index_t n)>;

/// What the settings ask for: nothing (dense), one method, or candidates for the autotuner.
struct compression {
    std::string kind = "none";
    compression_settings settings = {};
    hook_factory method = {};
    std::vector<autotune_candidate<any_communicator>> candidates = {};
};

namespace detail {

/// What D has no kernels for travels by way of the host.
inline bool is_for_host(const std::string& kind) { return kind == "onebit" || kind == "error_bounded"; }

/// The method of one bucket on D, as one of `ranks` ranks.
template <Device D>
std::unique_ptr<comm_hook<any_communicator, D>> make_comm_hook(const std::string& kind, const compression_settings& c,
                                                               const bucket_layout& layout, index_t n, int ranks,
                                                               int rank) {
    using world = any_communicator;
    using any = std::unique_ptr<comm_hook<world, D>>;
    const auto messages = [&]<class K>(K k, bool feedback) -> any {
        if (!feedback) return std::make_unique<message_hook<world, K>>(std::move(k), n, ranks);
        using with = error_feedback<K>;
        return std::make_unique<message_hook<world, with>>(with(std::move(k)), n, ranks);
    };
    const auto two_phases = [&]<class K>(const K& k) -> any {
        return std::make_unique<two_phase_hook<world, K>>(k, n, ranks, rank);
    };
    const auto reducing = [&]<class K>(K k) -> any { return std::make_unique<reducing_hook<world, K>>(std::move(k)); };
    if (kind == "bf16") return messages(bf16<D>{}, false);
    if (kind == "fp16") return messages(fp16<D>{}, false);
    if (kind == "topk") return messages(topk<D>({.ratio = c.ratio}), c.error_feedback);
    if (kind == "sampled_topk") return messages(sampled_topk<D>({.ratio = c.ratio}), c.error_feedback);
    if (kind == "dgc") return messages(dgc<D>({.ratio = c.ratio, .momentum = c.momentum, .ranks = ranks}), false);
    if (kind == "randomk")
        return messages(randomk<D>({.ratio = c.ratio, .unbiased = !c.error_feedback}), c.error_feedback);
    if (kind == "qsgd") return messages(qsgd<D>({.levels = c.levels}), false);
    if (kind == "natural") return messages(natural<D>{}, false);
    if (kind == "sign") return c.sign_in_two_phases() ? two_phases(sign<D>{}) : messages(sign<D>{}, c.error_feedback);
    if (kind == "powersgd") return reducing(powersgd<D>({.rank = c.rank}, layout, n));
    if (kind == "powersgd_alternating") return reducing(powersgd_alternating<D>({.rank = c.rank}, layout, n));
    if constexpr (std::same_as<D, cpu>) {
        if (kind == "onebit") return two_phases(onebit{});
        if (kind == "error_bounded") return messages(error_bounded({.bound = c.bound}), c.error_feedback);
    }
    return std::make_unique<dense_hook<world, D>>();
}

/// The same after the settings' dense steps.
template <Device D>
method_maker_on<D> method_maker_of(const std::string& kind, const compression_settings& c, int ranks, int rank) {
    return [=](const bucket_layout& layout, index_t n) -> std::unique_ptr<comm_hook<any_communicator, D>> {
        auto method = make_comm_hook<D>(kind, c, layout, n, ranks, rank);
        if (c.dense_steps == 0) return method;
        return std::make_unique<dense_warmup<any_communicator, D>>(std::move(method), c.dense_steps);
    };
}

}  // namespace detail

/// The same method on a grid device; nothing where its messages are made on the host, or where nothing is compressed.
template <GridDevice D>
method_maker_on<D> hook_on_device(const compression& how, int ranks, int rank) {
    if (!how.method || detail::is_for_host(how.kind)) return {};
    return detail::method_maker_of<D>(how.kind, how.settings, ranks, rank);
}

/// The settings' compression for rank `rank` of `ranks`.
inline compression make_compression(configuration& settings, int ranks, int rank) {
    const std::string kind = settings.choice("compress.kind", compressor_names, "none");
    compression_settings c;
    c.error_feedback = settings.get("compress.error_feedback", c.error_feedback);
    c.dense_steps = settings.get("compress.dense_steps", c.dense_steps);
    if (kind == "topk" || kind == "sampled_topk" || kind == "dgc" || kind == "randomk")
        c.ratio = settings.get("compress.ratio", kind == "dgc" ? 0.001 : c.ratio);
    if (kind.starts_with("powersgd")) c.rank = static_cast<int>(settings.get<index_t>("compress.rank", c.rank));
    if (kind == "sign") c.two_phase = settings.get("compress.two_phase", c.two_phase);
    if (kind == "qsgd") c.levels = static_cast<int>(settings.get<index_t>("compress.levels", c.levels));
    if (kind == "error_bounded") c.bound = settings.get("compress.bound", c.bound);
    if (kind == "dgc") c.momentum = settings.get("optimizer.momentum", 0.9);
    if (kind == "none") return {};
    if (kind == "auto") {
        compression all;
        require(c.dense_steps == 0, "compress.dense_steps = ", c.dense_steps,
                ": auto decides itself when to compress; leave it out");
        for (const std::string& name : settings.get(
                 "compress.candidates", std::vector<std::string>{"bf16", "sampled_topk", "powersgd", "sign"})) {
            require(name != "auto" && name != "none" &&
                        std::find(compressor_names.begin(), compressor_names.end(), name) != compressor_names.end(),
                    "compress.candidates: there is no compressor ", name);
            require(name != "dgc", "compress.candidates: dgc brings momentum of its own and cannot come and go; use ",
                    "compress.kind = dgc");
            const bool added = name == "bf16" || name == "fp16" || name.starts_with("powersgd") || name == "randomk";
            const bool two = name == "onebit" || (name == "sign" && c.sign_in_two_phases());
            all.candidates.push_back({name,
                                      added ? exchange::all_reduce
                                      : two ? exchange::two_phase
                                            : exchange::all_gather,
                                      [name, c](const bucket_layout& layout, index_t n, int ranks_, int rank_) {
                                          return detail::make_comm_hook<cpu>(name, c, layout, n, ranks_, rank_);
                                      }});
        }
        return all;
    }
    return {kind, c, detail::method_maker_of<cpu>(kind, c, ranks, rank), {}};
}

}  // namespace cairn
