#pragma once
// What the ranks of a training step send, by axis and cause, from closed forms: no network is built, no message sent.
// n gradient bytes of a rank, p ranks that share them, a activation bytes of a micro-batch, m micro-batches:
//   gradients              data       2(p−1)/p n; ZeRO-2 (p−1)/p n
//   parameters             data       (p−1)/p n, ZeRO-1 and -2
//   compressed gradients   data       messages of c bytes: added 2(p−1)/p c, gathered (p−1) c, in two phases 2(p−1)/p c
//   batch-norm statistics  data       2 (p−1) (2C + 1) 8 for each layer of C channels and micro-batch
//   kfac's …               data       factors 2(p−1)/p f; decompositions over the rows, directions over the columns of
//                                     the ranks' grid (rows · columns = p)
//   activations            pipeline   m a for each boundary that a stage hands on across; gradients of them back
//   tensor layers          tensor     2(t−1)/t a for each sum (a transformer's block has 4 of a micro-batch)
//   halos                  spatial    rows that neighbours need, forward and backward (halo_elements())
// (Rabenseifner 2004; Rajbhandari et al., SC'20; Narayanan et al., SC'21; Pauloski et al., SC'21.) Exact for each rank,
// messages where parts are shorter than a segment. The same numbers, counted: comm/counting_communicator.hpp on any
// communicator, simulated_rank::sent of simulations. Not here: agreement and norms of a step, some hundred bytes.

#include <cairn/comm/collectives/sent.hpp>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace cairn {

/// How messages of compressed gradients become their sum.
enum class message_exchange { added, gathered, two_phases };

/// What decides how much a step sends. Everything is optional.
struct step_movement {
    /// Ranks of each axis; gradients are shared by data · spatial.
    int data = 1, pipeline = 1, spatial = 1, tensor = 1;
    index_t micro_batches = 1;

    // Gradients of the parameters that a rank holds.
    std::vector<index_t> buckets;  // elements of each
    index_t element_bytes = 4;     // of gradients and parameters
    all_reduce_algorithm all_reduce = all_reduce_algorithm::ring;
    int zero_stage = 0;
    std::vector<range>
        owners;  // elements that each rank updates, over all buckets from the last to the first; empty: equal
    // Bytes of the compressor's message for n values; unset: dense. Added ones are of message_element_bytes.
    std::function<index_t(index_t n)> message_bytes;
    message_exchange exchange = message_exchange::gathered;
    index_t message_element_bytes = 2;

    std::vector<index_t> batch_norms;  // channels of each layer whose statistics the ranks share

    // K-FAC, of a step in which everything is sent; in elements.
    index_t factors = 0, decompositions = 0, directions = 0;
    double grad_worker_fraction = 1;

    /// From one stage to the next.
    struct boundary {
        int from = 0, to = 0;  // coordinates on the pipeline axis
        index_t bytes = 0;     // of the activation of all micro-batches of a step
    };
    std::vector<boundary> boundaries;

    struct tensor_sum {
        index_t elements = 0, element_bytes = 4;  // of one micro-batch
        index_t times = 1;                        // in a step, all micro-batches
    };
    std::vector<tensor_sum> tensor_sums;

    sent_messages halos;  // of this rank in a step
};

/// Coordinates of a rank. `replica`: among the data · spatial ranks that share gradients.
struct movement_place {
    int replica = 0, pipeline = 0, tensor = 0;
};

namespace detail {

/// A bucket of n elements, compressed.
inline sent_messages compressed_sends(const step_movement& s, index_t n, int p, int rank) {
    const auto equal = [p](index_t bytes) {  // a part of so many bytes on every rank
        std::vector<range> parts;
        for (int r = 0; r < p; ++r) parts.push_back({r * bytes, bytes});
        return parts;
    };
    switch (s.exchange) {
        case message_exchange::added:
            return all_reduce_sends(s.all_reduce, s.message_bytes(n) / s.message_element_bytes, s.message_element_bytes,
                                    p, rank);
        case message_exchange::gathered:
            return all_gather_sends(equal(s.message_bytes(n)), 1, rank);
        case message_exchange::two_phases:
            break;
    }
    std::vector<range> of_chunks;  // one message of each chunk to its server, then back to all
    for (int r = 0; r < p; ++r) of_chunks.push_back({0, s.message_bytes(chunk_of(n, p, r).count)});
    sent_messages sum = passed_on(of_chunks, rank, 1, true);
    return sum += all_gather_sends(of_chunks, 1, rank);
}

}  // namespace detail

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
                add("gradients", all_reduce_sends(s.all_reduce, n, s.element_bytes, p, at.replica));
            }
            end = begin;
        }
        if (s.zero_stage > 0 && held > 0) add("parameters", all_gather_sends(owners, s.element_bytes, at.replica));
        for (const index_t channels : s.batch_norms)
            add("batch-norm statistics",
                {2 * s.micro_batches * (p - 1), 2 * s.micro_batches * (p - 1) * (2 * channels + 1) * index_t{8}});
        const int rows = std::clamp(static_cast<int>(s.grad_worker_fraction * p + 0.5), 1, p), columns = p / rows;
        add("kfac's factors", all_reduce_sends(s.all_reduce, s.factors, 4, p, at.replica));
        if (s.decompositions > 0 && rows > 1)  // of its column's layers
            add("kfac's decompositions",
                all_gather_sends(shards_of(s.decompositions / columns, rows), 4, at.replica / columns));
        if (s.directions > 0 && columns > 1)
            add("kfac's directions", all_gather_sends(shards_of(s.directions, columns), 4, at.replica % columns));
    }
    for (const step_movement::boundary& b : s.boundaries) {
        if (b.from == b.to) continue;
        if (b.from == at.pipeline) add("activations", {s.micro_batches, b.bytes});
        if (b.to == at.pipeline) add("gradients of activations", {s.micro_batches, b.bytes});
    }
    for (const step_movement::tensor_sum& sum : s.tensor_sums) {
        const sent_messages once = all_reduce_sends(s.all_reduce, sum.elements, sum.element_bytes, s.tensor, at.tensor);
        add("tensor layers", {sum.times * once.messages, sum.times * once.bytes});
    }
    add("halos", s.halos);
    return all;
}

/// Bytes by axis.
inline std::map<std::string, std::int64_t, std::less<>> bytes_by_axis(const traffic& sent) {
    std::map<std::string, std::int64_t, std::less<>> all;
    for (const auto& [cause, m] : sent) all[std::string(axis_of(cause))] += m.bytes;
    return all;
}

}  // namespace cairn
