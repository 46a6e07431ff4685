#pragma once
// Gradient compression by its name in a workload file.
//   [compress] kind = none | bf16 | fp16 | topk | sampled_topk | dgc | randomk | qsgd | natural | sign | onebit |
//   powersgd |
//              powersgd_alternating | error_bounded | auto
//   error_feedback (true), dense_steps (0), and of each kind its own: ratio, rank, levels, bound; of sign two_phase
//   (true): messages are compressed again on the way back, which sends 2 bits a value instead of P − 1, and loses more

#include <cairn/comm/any.hpp>
#include <cairn/compress/bf16.hpp>
#include <cairn/compress/dgc.hpp>
#include <cairn/compress/error_bounded.hpp>
#include <cairn/compress/fp16.hpp>
#include <cairn/compress/natural.hpp>
#include <cairn/compress/onebit.hpp>
#include <cairn/compress/powersgd_alternating.hpp>
#include <cairn/compress/qsgd.hpp>
#include <cairn/compress/randomk.hpp>
#include <cairn/compress/sign.hpp>
#include <cairn/compress/topk.hpp>
#include <cairn/parallel/autotuned_reduction.hpp>
#include <cairn/parallel/device_sparse_hook.hpp>
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

namespace detail {

template <class K>
any_hook messages_of(K k, index_t n, bool feedback) {
    if (feedback)
        return std::make_unique<message_hook<any_communicator, error_feedback<K>>>(error_feedback<K>(std::move(k)), n);
    return std::make_unique<message_hook<any_communicator, K>>(std::move(k), n);
}

inline any_hook make_comm_hook(const std::string& kind, const compression_settings& c, const bucket_layout& layout,
                               index_t n, int ranks, int rank) {
    using world = any_communicator;
    if (kind == "bf16") return messages_of(bf16{}, n, false);
    if (kind == "fp16") return messages_of(fp16{}, n, false);
    if (kind == "topk") return messages_of(topk({.ratio = c.ratio}), n, c.error_feedback);
    if (kind == "sampled_topk") return messages_of(sampled_topk({.ratio = c.ratio}), n, c.error_feedback);
    if (kind == "dgc") return messages_of(dgc({.ratio = c.ratio, .momentum = c.momentum, .ranks = ranks}), n, false);
    if (kind == "randomk")
        return messages_of(randomk({.ratio = c.ratio, .unbiased = !c.error_feedback}), n, c.error_feedback);
    if (kind == "qsgd") return messages_of(qsgd({.levels = c.levels}), n, false);
    if (kind == "natural") return messages_of(natural{}, n, false);
    if (kind == "sign" && !c.sign_in_two_phases()) return messages_of(sign{}, n, c.error_feedback);
    if (kind == "sign") return std::make_unique<two_phase_hook<world, sign>>(sign{}, n, ranks, rank);
    if (kind == "onebit") return std::make_unique<two_phase_hook<world, onebit>>(onebit{}, n, ranks, rank);
    if (kind == "error_bounded") return messages_of(error_bounded({.bound = c.bound}), n, c.error_feedback);
    if (kind == "powersgd")
        return std::make_unique<reducing_hook<world, powersgd>>(powersgd({.rank = c.rank}, layout, n));
    if (kind == "powersgd_alternating")
        return std::make_unique<reducing_hook<world, powersgd_alternating>>(
            powersgd_alternating({.rank = c.rank}, layout, n));
    return std::make_unique<dense_hook<world>>();
}

}  // namespace detail

/// Makes the method of a bucket whose gradients are on D.
template <Device D>
using device_hook_factory =
    std::function<std::unique_ptr<comm_hook<any_communicator, D>>(const bucket_layout&, index_t n)>;

/// What the settings ask for: nothing (dense), one method, or candidates for the governor.
struct compression {
    std::string kind = "none";
    compression_settings settings = {};
    hook_factory method = {};
    std::vector<autotune_candidate<any_communicator>> candidates = {};
};

/// The same method on a grid device; nothing where its messages are made on the host.
template <GridDevice D>
device_hook_factory<D> hook_on_device(const compression& how, int ranks, int rank) {
    using world = any_communicator;
    using any_device_hook = std::unique_ptr<comm_hook<world, D>>;
    const auto first = [steps = how.settings.dense_steps](any_device_hook m) -> any_device_hook {
        if (steps == 0) return m;
        return std::make_unique<dense_warmup<world, D>>(std::move(m), steps);
    };
    const auto messages = [=](auto k, bool feedback) -> device_hook_factory<D> {
        return [=](const bucket_layout&, index_t n) {
            return first(std::make_unique<device_message_hook<world, decltype(k), D>>(k, n, ranks, feedback));
        };
    };
    const compression_settings& c = how.settings;
    if (how.kind == "bf16") return messages(bf16{}, false);
    if (how.kind == "fp16") return messages(fp16{}, false);
    if (how.kind == "qsgd") return messages(qsgd({.levels = c.levels}), false);
    if (how.kind == "natural") return messages(natural{}, false);
    if (how.kind == "sign" && !c.sign_in_two_phases()) return messages(sign{}, c.error_feedback);
    if (how.kind == "sign")
        return [=](const bucket_layout&, index_t n) {
            return first(std::make_unique<device_two_phase_hook<world, sign, D>>(sign{}, n, ranks, rank));
        };
    if (how.kind == "topk" || how.kind == "sampled_topk" || how.kind == "dgc")
        return [=, kind = how.kind](const bucket_layout&, index_t n) {
            typename device_topk_hook<world, D>::config k{.name = kind, .ratio = c.ratio, .feedback = c.error_feedback};
            if (kind == "dgc") k.momentum = c.momentum;
            return first(std::make_unique<device_topk_hook<world, D>>(k, n, ranks));
        };
    if (how.kind == "randomk")
        return [=](const bucket_layout&, index_t n) {
            const bool unbiased = !c.error_feedback;
            return first(std::make_unique<device_randomk_hook<world, D>>(
                randomk({.ratio = c.ratio, .unbiased = unbiased}), unbiased, n, c.error_feedback));
        };
    if (how.kind.starts_with("powersgd"))
        return [=, alternating = how.kind == "powersgd_alternating"](const bucket_layout& layout, index_t n) {
            return first(std::make_unique<device_powersgd_hook<world, D>>(powersgd::config{.rank = c.rank}, layout, n,
                                                                          alternating));
        };
    return {};
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
                                          return detail::make_comm_hook(name, c, layout, n, ranks_, rank_);
                                      }});
        }
        return all;
    }
    const auto make = [=](const bucket_layout& layout, index_t n) -> any_hook {
        any_hook method = detail::make_comm_hook(kind, c, layout, n, ranks, rank);
        if (c.dense_steps == 0) return method;
        return std::make_unique<dense_warmup<any_communicator>>(std::move(method), c.dense_steps);
    };
    return {kind, c, make, {}};
}

}  // namespace cairn
