#pragma once
// train.activation_memory = compress | auto, by [activations]: rule, added_variance, f, bound, codec, coder,
// audit_interval.

#include <cairn/stash/activation_memory.hpp>
#include <cairn/stash/simple_codecs.hpp>
#include <cairn/train/configuration.hpp>

#include <memory>
#include <string>

namespace cairn {

/// Null unless the settings ask for it.
template <Device D>
std::unique_ptr<compressed_activations<D>> make_compressed_activations(configuration& settings,
                                                                       arena<float, D>& weights) {
    constexpr bool on_host = std::same_as<D, cpu>;  // where entropy is coded
    const std::string memory = settings.get("train.activation_memory", std::string("keep"));
    if (memory != "compress" && memory != "auto") return nullptr;
    typename compressed_activations<D>::config c;
    c.plans = memory == "auto";
    const std::string rule =
        settings.choice("activations.rule", {"variance", "momentum", "comet", "fixed"}, "variance");
    c.bounds.rule = rule == "variance"   ? bound_rule::variance
                    : rule == "momentum" ? bound_rule::momentum
                    : rule == "comet"    ? bound_rule::comet
                                         : bound_rule::fixed;
    c.bounds.share = settings.get("activations.added_variance", c.bounds.share, above(0));
    c.bounds.f = settings.get("activations.f", c.bounds.f, above(0));
    c.bounds.fixed_bound = settings.get("activations.bound", c.bounds.fixed_bound, above(0));
    c.huffman =
        settings.choice("activations.coder", {"huffman", "planes"}, on_host ? "huffman" : "planes") == "huffman";
    require(on_host || !c.huffman, "activations.coder = huffman codes symbols on the host; on ", D::name,
            " set it to planes");
    c.interval = settings.get<std::int64_t>("activations.audit_interval", c.interval, at_least(1));
    c.first_interval = std::min(c.first_interval, c.interval);
    const std::string codec = settings.choice("activations.codec", {"bounded", "group", "bf16"}, "bounded");
    const int bits = settings.get("activations.bits", 2, from_to(1, 8));
    if (codec == "group") c.one_codec = std::make_shared<group_codec<D>>(bits);
    if (codec == "bf16") c.one_codec = std::make_shared<bf16_codec<D>>();
    return std::make_unique<compressed_activations<D>>(c, weights);
}

}  // namespace cairn
