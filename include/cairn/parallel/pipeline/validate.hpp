#pragma once
// Proves a schedule right before it runs: complete (action_index.hpp), free of deadlock (dependency_order.hpp), within
// bounds of memory (saved_memory.hpp), and, where asked for, with sums in the order of a serial run.

#include <cairn/parallel/pipeline/dependency_order.hpp>
#include <cairn/parallel/pipeline/saved_memory.hpp>

#include <limits>
#include <map>
#include <vector>

namespace cairn {

/// Bounds of a program, besides that it can run.
struct program_bound {
    /// Of a rank, at once; a chunk counts 1/v.
    double saved_micro_batches = std::numeric_limits<double>::infinity();
    /// What a micro-batch keeps on each stage, and how much of it each rank may keep at once; empty: not checked.
    std::vector<saved_bytes> bytes_of_stage = {};
    std::vector<double> bytes_of_rank = {};
    /// On each stage F and W (or B) by ascending micro-batch: sums of gradients and running statistics are then bit for
    /// bit those of a serial run.
    bool serial_order = false;
};

namespace detail {

inline void require_serial_order(const pipeline_program& program) {
    for (int rank = 0; rank < program.ranks; ++rank) {
        std::map<std::pair<int, bool>, int> last;  // micro-batch, by stage and whether it is a backward
        int position = 0;
        for (const action& a : program.actions[static_cast<std::size_t>(rank)]) {
            const action_place at{rank, position++};
            if (a.kind == action_kind::backward_input) continue;
            const auto [before, first] = last.try_emplace({a.stage, a.adds_gradients()}, a.micro_batch);
            if (!first && before->second >= a.micro_batch)
                fail(place_text(program, at), ": comes after micro-batch ", before->second,
                     "; in this order sums differ from those of a run without pipeline");
            before->second = a.micro_batch;
        }
    }
}

inline void require_saved_within(const pipeline_program& program, const program_bound& bound) {
    const std::vector<saved_bytes> chunks(static_cast<std::size_t>(program.stages()), {1, 1});
    const bool bytes = !bound.bytes_of_stage.empty();
    require(!bytes || (bound.bytes_of_stage.size() == chunks.size() &&
                       bound.bytes_of_rank.size() == static_cast<std::size_t>(program.ranks)),
            "bound of schedule ", program.name, ": ", bound.bytes_of_stage.size(), " stages and ",
            bound.bytes_of_rank.size(), " ranks, not ", program.stages(), " and ", program.ranks);
    for (int rank = 0; rank < program.ranks; ++rank) {
        for_each_saved(program, rank, chunks, [&](int position, double now) {
            if (now > bound.saved_micro_batches * program.virtual_stages)
                fail(place_text(program, {rank, position}), ": ", now / program.virtual_stages,
                     " micro-batches are saved, the bound is ", bound.saved_micro_batches);
        });
        if (!bytes) continue;
        const double limit = bound.bytes_of_rank[static_cast<std::size_t>(rank)];
        for_each_saved(program, rank, bound.bytes_of_stage, [&](int position, double now) {
            if (now > limit)
                fail(place_text(program, {rank, position}), ": ", now, " bytes are saved, the bound is ", limit,
                     "; take a schedule that saves less, more and smaller micro-batches, or recomputation");
        });
    }
}

}  // namespace detail

/// See the top of the file. Throws, naming rank, action and reason.
inline void validate(const pipeline_program& program, const program_bound& bound = {}) {
    with_context(concat("schedule ", program.name), [&] {
        const action_index index(program);
        for_each_in_dependency_order(program, index, [](const action_place&, const action&) {});
        detail::require_saved_within(program, bound);
        if (bound.serial_order) detail::require_serial_order(program);
    });
}

}  // namespace cairn
