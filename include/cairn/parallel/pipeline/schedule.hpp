#pragma once
// Schedules by name. Each is a short file of schedules/, formula on top; what they make is data (program.hpp), proved
// right by validate.hpp and timed by simulate.hpp.

#include <cairn/parallel/pipeline/program.hpp>
#include <cairn/parallel/pipeline/schedules/automatic.hpp>
#include <cairn/parallel/pipeline/schedules/dualpipe.hpp>
#include <cairn/parallel/pipeline/schedules/gpipe.hpp>
#include <cairn/parallel/pipeline/schedules/interleaved.hpp>
#include <cairn/parallel/pipeline/schedules/one_f_one_b.hpp>
#include <cairn/parallel/pipeline/schedules/v_half.hpp>
#include <cairn/parallel/pipeline/schedules/zb_h1.hpp>
#include <cairn/parallel/pipeline/schedules/zb_h2.hpp>
#include <cairn/parallel/pipeline/schedules/zb_v.hpp>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace cairn {

constexpr int two_or_more = 0, any_virtual_stages = -1;  // of virtual stages

/// A line of the table of schedules.
struct schedule_entry {
    std::string_view name;
    int virtual_stages;  // required number, or one of the two constants above
    std::function<pipeline_program(const schedule_shape&, const schedule_costs&)> make;
    std::function<closed_form(const schedule_shape&, const stage_costs&)> form;
};

namespace detail {

/// A schedule that does not depend on costs.
inline schedule_entry fixed_schedule(std::string_view name, int virtual_stages,
                                     pipeline_program (*make)(const schedule_shape&),
                                     closed_form (*form)(const schedule_shape&, const stage_costs&)) {
    return {name, virtual_stages, [make](const schedule_shape& s, const schedule_costs&) { return make(s); }, form};
}

}  // namespace detail

/// All schedules.
inline const std::vector<schedule_entry>& schedules() {
    static const std::vector<schedule_entry> all{
        detail::fixed_schedule("gpipe", 1, gpipe, gpipe_closed_form),
        detail::fixed_schedule("1f1b", 1, one_f_one_b, one_f_one_b_closed_form),
        detail::fixed_schedule("interleaved", two_or_more, interleaved, interleaved_closed_form),
        detail::fixed_schedule("interleaved_zb", two_or_more, interleaved_zb, interleaved_zb_closed_form),
        detail::fixed_schedule("zb_h1", 1, zb_h1, zb_h1_closed_form),
        detail::fixed_schedule("zb_h2", 1, zb_h2, zb_h2_closed_form),
        detail::fixed_schedule("zb_v", 2, zb_v, zb_v_closed_form),
        detail::fixed_schedule("v_half", 2, v_half, v_half_closed_form),
        detail::fixed_schedule("v_min", 2, v_min, v_min_closed_form),
        detail::fixed_schedule("dualpipe", 1, dualpipe, dualpipe_closed_form),
        detail::fixed_schedule("dualpipe_v", 2, dualpipe_v, dualpipe_v_closed_form),
        {"auto", any_virtual_stages, automatic,
         [](const schedule_shape&, const stage_costs&) { return closed_form{}; }},
    };
    return all;
}

/// The entry of this name. Throws, naming those that there are.
inline const schedule_entry& schedule_named(std::string_view name) {
    std::string names;
    for (const schedule_entry& entry : schedules()) {
        if (entry.name == name) return entry;
        names += concat(names.empty() ? "" : ", ", entry.name);
    }
    fail("no schedule \"", name, "\"; there are ", names);
}

/// The shape with the number of chunks that the schedule takes. Throws on a shape that it cannot have.
inline schedule_shape completed_shape(const schedule_entry& entry, schedule_shape shape) {
    constexpr long long most_actions = 10'000'000;
    require(shape.ranks >= 1 && shape.micro_batches >= 1 && shape.virtual_stages >= 0, "schedule ", entry.name, ": ",
            shape.ranks, " ranks, ", shape.micro_batches, " micro-batches, ", shape.virtual_stages,
            " virtual stages; ranks and micro-batches are at least 1");
    const int needed = entry.virtual_stages;
    if (shape.virtual_stages == 0) shape.virtual_stages = needed == two_or_more ? 2 : std::max(1, needed);
    require(needed != two_or_more || shape.virtual_stages >= 2, "schedule ", entry.name,
            ": virtual_stages must be at least 2; with one stage a rank take 1f1b or zb_h1");
    require(needed <= 0 || shape.virtual_stages == needed, "schedule ", entry.name, ": virtual_stages is ",
            shape.virtual_stages, ", this schedule has ", needed, needed == 1 ? "; for more take interleaved" : "");
    require(static_cast<long long>(shape.ranks) * shape.micro_batches <= most_actions / shape.virtual_stages,
            "schedule ", entry.name, ": ", shape.ranks, " ranks of ", shape.micro_batches, " micro-batches and ",
            shape.virtual_stages, " stages are more than ", most_actions, " actions");
    return shape;
}

/// The schedule of this name. Throws, saying what to change, where the shape does not fit it.
inline pipeline_program make_schedule(std::string_view name, const schedule_shape& shape,
                                      const schedule_costs& costs = {}) {
    const schedule_entry& entry = schedule_named(name);
    return entry.make(completed_shape(entry, shape), costs);
}

/// Costs known in advance; `whole`: times of all stages of a rank.
inline closed_form schedule_closed_form(std::string_view name, const schedule_shape& shape, const stage_costs& whole) {
    const schedule_entry& entry = schedule_named(name);
    return entry.form(completed_shape(entry, shape), whole);
}

}  // namespace cairn
