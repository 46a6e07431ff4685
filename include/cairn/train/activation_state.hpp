#pragma once
// The state of packed activations (stash/activation_memory.hpp) as JSON, for checkpoints and between ranks.

#include <cairn/stash/activation_memory.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <span>
#include <string>

namespace cairn {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(saved_place, path, slot, layer)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(gradient_noise, own, added, mean_magnitude)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(bounded_place, at, weight_path, charged_path, segment, normalised, masked,
                                   first_of_block, non_zero, bound, correction, scale)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(stash_plan::entry, layer, what, segment, codec)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(stash_plan, layers, predicted_peak, added_work)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(activation_state, first, next, wait, noise, places, plan)

template <Device D>
std::string text_of(const compressed_activations<D>& activations) {
    return nlohmann::json(activations.state()).dump();
}

/// The state of one rank, or of several: of what two know, the first one's counts. Throws where a text is damaged.
template <Device D>
void restore(compressed_activations<D>& activations, std::span<const std::string> texts) {
    activation_state all;
    for (std::size_t rank = 0; rank < texts.size(); ++rank) try {
            auto next = nlohmann::json::parse(texts[rank]).get<activation_state>();
            if (rank == 0) {
                all = std::move(next);
                continue;
            }
            all.noise.merge(next.noise);
            for (const bounded_place& p : next.places)
                if (std::ranges::none_of(all.places, [&](const bounded_place& known) { return known.at == p.at; }))
                    all.places.push_back(p);
        } catch (const nlohmann::json::exception& e) {
            fail("the saved state of packed activations is damaged: ", e.what());
        }
    activations.restore(std::move(all));
}

}  // namespace cairn
