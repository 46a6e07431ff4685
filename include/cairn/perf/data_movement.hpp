#pragma once
// What the ranks of a training step send, by axis and cause, from closed forms: no network is built, no message sent.
// n gradient bytes of a rank, p ranks that share them, a activation bytes of a micro-batch, m micro-batches:
//   gradients              data       2(p−1)/p n; ZeRO-2 (p−1)/p n
//   parameters             data       (p−1)/p n, ZeRO-1 and -2
//   compressed gradients   data       messages of c bytes: added 2(p−1)/p c, gathered (p−1) c, in two phases 2(p−1)/p c
//   batch-norm statistics  data       2 (p−1) (2C + 1) 8 for each layer of C channels and micro-batch
//   kfac's …               data       kfac_sends(), on a grid of ranks, rows · columns = p: factors 2(p−1)/p f;
//                                     decompositions (rows−1)/rows of those of a column's layers; directions
//                                     (columns−1)/columns of all
//   activations            pipeline   m a for each boundary that a stage hands on across, in any schedule; gradients of
//                                     them back
//   tied weights           pipeline   the values to each use on another rank; the use's gradient back
//   tensor layers          tensor     2(t−1)/t a for each sum: a transformer's block has 4 of a micro-batch
//   halos                  spatial    rows that neighbours need, forward and backward (halo_elements())
//   parts of samples       spatial    where whole samples are dealt out, (p−1)/p of the tensor, forward and backward
// The last three are told by the layers (layer_cost), each by the formula on top of its file.
// (Rabenseifner 2004; Rajbhandari et al., SC'20; Narayanan et al., SC'21; Pauloski et al., SC'21.) Exact for each rank,
// messages where parts are shorter than a segment; batch norms that are recomputed send once more. The same numbers,
// counted: comm/counting_communicator.hpp on any communicator, simulated_rank::sent of simulations. Of a whole run:
// train/step_movement.hpp. Not here: agreement and norms of a step, some hundred bytes.

#include <cairn/comm/collectives/sent.hpp>
#include <cairn/core/cost.hpp>
#include <cairn/optim/precondition/kfac_assignment.hpp>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cairn {

/// How messages of compressed gradients become their sum.
enum class message_exchange { added, gathered, two_phases };

/// K-FAC's layers and their places, of a step in which everything is sent.
struct kfac_movement {
    kfac_statistics statistics = kfac_statistics::all;
    kfac_assignment place{1, {}};
    /// Numbers: of the upper triangles of A and G, of their decompositions, and of the gradient; all groups together.
    struct layer {
        index_t factor_a = 0, factor_g = 0, made_a = 0, made_g = 0, direction = 0;
    };
    std::vector<layer> layers;                 // in the order of `place`
    index_t bucket_bytes = index_t{25} << 20;  // of sums that travel together: whole layers until they are so many
};

/// What decides how much a step sends. Everything is optional.
struct step_movement {
    int data = 1, spatial = 1;  // ranks of these axes together share gradients
    index_t micro_batches = 1;

    // Gradients of the parameters that a rank holds.
    std::vector<index_t> buckets;  // elements of each
    index_t element_bytes = 4;     // of gradients and parameters
    all_reduce_algorithm all_reduce = all_reduce_algorithm::ring;
    /// The algorithm that `automatic` stands for, for so many bytes; unset: the ring.
    std::function<all_reduce_algorithm(index_t bytes)> automatic;
    int zero_stage = 0;
    std::vector<range>
        owners;  // elements that each rank updates, over all buckets from the last to the first; empty: equal
    // Bytes of the compressor's message for n values; unset: dense. Added ones are of message_element_bytes.
    std::function<index_t(index_t n)> message_bytes;
    message_exchange exchange = message_exchange::gathered;
    index_t message_element_bytes = 2;

    std::vector<index_t> batch_norms;  // channels of each layer whose statistics the ranks share
    int batch_norm_ranks = 0;          // that share them; 0: those of gradients

    std::optional<kfac_movement> kfac;

    /// From one stage to the next.
    struct boundary {
        int from = 0, to = 0;  // coordinates on the pipeline axis
        index_t bytes = 0;     // of the activation of all micro-batches of a step
    };
    std::vector<boundary> boundaries;

    sent_messages tied_weights;  // by this rank
    shared_sends layers;         // by this rank's layers, in all micro-batches of a step
};

/// Coordinates of a rank. `replica`: among the data · spatial ranks that share gradients.
struct movement_place {
    int replica = 0, pipeline = 0;
};

namespace detail {

/// Of an all-reduce of n elements over p ranks.
inline sent_messages sum_sends(const step_movement& s, all_reduce_algorithm a, index_t n, index_t element_bytes, int p,
                               int rank) {
    if (a == all_reduce_algorithm::automatic && s.automatic) a = s.automatic(n * element_bytes);
    return all_reduce_sends(a, n, element_bytes, p, rank);
}

/// Parts of these lengths, one behind the other.
inline std::vector<range> parts_of(const std::vector<index_t>& lengths) {
    std::vector<range> parts;
    for (const index_t n : lengths) parts.push_back({parts.empty() ? 0 : parts.back().end(), n});
    return parts;
}

/// A bucket of n elements, compressed.
inline sent_messages compressed_sends(const step_movement& s, index_t n, int p, int rank) {
    switch (s.exchange) {
        case message_exchange::added:
            return sum_sends(s, s.all_reduce, s.message_bytes(n) / s.message_element_bytes, s.message_element_bytes, p,
                             rank);
        case message_exchange::gathered:
            return all_gather_sends(parts_of(std::vector(static_cast<std::size_t>(p), s.message_bytes(n))), 1, rank);
        case message_exchange::two_phases:
            break;
    }
    std::vector<range> of_chunks;  // one message of each chunk to its server, then back to all
    for (int r = 0; r < p; ++r) of_chunks.push_back({0, s.message_bytes(chunk_of(n, p, r).count)});
    sent_messages sum = passed_on(of_chunks, rank, 1, true);
    return sum += all_gather_sends(of_chunks, 1, rank);
}

}  // namespace detail

/// What a rank sends of K-FAC (Pauloski et al., SC'21; the placement: kfac_assignment.hpp):
///   factors           Σ over ranks of the upper triangles, bucket by bucket: all-reduce, or reduce-scatter to the
///                     ranks that decompose them
///   decompositions    of a layer, from the ranks that made them to its gradient workers: all-gather in a column
///   directions        of a layer, from its gradient worker in each row to all others of it: all-gather in a row
inline traffic kfac_sends(const step_movement& s, int rank) {
    const kfac_movement& k = *s.kfac;
    const kfac_assignment& grid = k.place;
    const int p = grid.ranks();
    constexpr index_t width = sizeof(float);
    traffic all;
    const auto zeros = [](int n) { return std::vector<index_t>(static_cast<std::size_t>(n)); };
    const auto at = [](std::vector<index_t>& v, int i) -> index_t& { return v[static_cast<std::size_t>(i)]; };
    for (std::size_t i = 0; i < k.layers.size() && k.statistics != kfac_statistics::local;) {
        std::vector<index_t> of_rank = zeros(p);  // that decomposes them
        index_t n = 0;
        for (; i < k.layers.size() && n * width < k.bucket_bytes; ++i) {
            at(of_rank, grid.worker(i, 'a')) += k.layers[i].factor_a;
            at(of_rank, grid.worker(i, 'g')) += k.layers[i].factor_g;
            n += k.layers[i].factor_a + k.layers[i].factor_g;
        }
        count(all, "kfac's factors",
              k.statistics == kfac_statistics::all
                  ? detail::sum_sends(s, all_reduce_algorithm::automatic, n, width, p, rank)
                  : reduce_scatter_sends(detail::parts_of(of_rank), width, rank));
    }
    std::vector<index_t> made = zeros(grid.rows()), directions = zeros(grid.columns());
    for (std::size_t i = 0; i < k.layers.size(); ++i) {
        at(directions, grid.layers()[i].column) += k.layers[i].direction;
        if (!grid.is_gradient_worker(i, rank)) continue;
        at(made, grid.row_of(grid.worker(i, 'a'))) += k.layers[i].made_a;
        at(made, grid.row_of(grid.worker(i, 'g'))) += k.layers[i].made_g;
    }
    if (std::ranges::any_of(made, [](index_t n) { return n > 0; }))
        count(all, "kfac's decompositions", all_gather_sends(detail::parts_of(made), width, grid.row_of(rank)));
    count(all, "kfac's directions", all_gather_sends(detail::parts_of(directions), width, grid.column_of(rank)));
    return all;
}

/// What the rank at this place sends in a step, by cause.
inline traffic sent_in_step(const step_movement& s, const movement_place& at = {}) {
    traffic all;
    const auto add = [&](std::string_view cause, const sent_messages& more) {
        if (more.messages > 0) count(all, cause, more);
    };
    const int p = s.data * s.spatial;
    if (p > 1) {
        index_t held = 0;
        for (const index_t n : s.buckets) held += n;
        const std::vector<range> owners = s.owners.empty() ? shards_of(held, p) : s.owners;
        index_t end = held;
        for (const index_t n : s.buckets) {  // the first holds the last elements
            const index_t begin = end - n;
            if (s.message_bytes) {
                add("compressed gradients", detail::compressed_sends(s, n, p, at.replica));
            } else if (s.zero_stage == 2) {
                std::vector<range> parts;
                for (const range& o : owners) {
                    const index_t from = std::clamp(o.begin, begin, end);
                    parts.push_back({from - begin, std::clamp(o.end(), begin, end) - from});
                }
                add("gradients", reduce_scatter_sends(parts, s.element_bytes, at.replica));
            } else {
                add("gradients", detail::sum_sends(s, s.all_reduce, n, s.element_bytes, p, at.replica));
            }
            end = begin;
        }
        if (s.zero_stage > 0 && held > 0) add("parameters", all_gather_sends(owners, s.element_bytes, at.replica));
        if (s.kfac)
            for (const auto& [cause, sent] : kfac_sends(s, at.replica)) add(cause, sent);
    }
    const int others = (s.batch_norm_ranks ? s.batch_norm_ranks : p) - 1;
    for (const index_t channels : s.batch_norms)
        add("batch-norm statistics",
            {2 * s.micro_batches * others, 2 * s.micro_batches * others * (2 * channels + 1) * index_t{8}});
    for (const step_movement::boundary& b : s.boundaries) {
        if (b.from == b.to) continue;
        if (b.from == at.pipeline) add("activations", {s.micro_batches, b.bytes});
        if (b.to == at.pipeline) add("gradients of activations", {s.micro_batches, b.bytes});
    }
    add("tied weights", s.tied_weights);
    add("tensor layers", s.layers.tensor);
    add("halos", s.layers.halos);
    add("parts of samples", s.layers.samples);
    return all;
}

/// Bytes by axis.
inline std::map<std::string, std::int64_t, std::less<>> bytes_by_axis(const traffic& sent) {
    std::map<std::string, std::int64_t, std::less<>> all;
    for (const auto& [cause, m] : sent) all[std::string(axis_of(cause))] += m.bytes;
    return all;
}

}  // namespace cairn
