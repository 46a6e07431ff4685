#pragma once
// Schedules as files of comma-separated values, as PyTorch's pipelining reads and writes them (format "compute_only"):
// a line a rank, cells <stage><kind><micro-batch>, an empty cell is an idle slot. A pair that PyTorch overlaps,
// (0F3;7B0)OVERLAP_F_B, is read as its two actions. Shape and placement follow from the cells' positions.

#include <cairn/core/comma_separated.hpp>
#include <cairn/parallel/pipeline/schedule.hpp>
#include <cairn/parallel/pipeline/validate.hpp>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace cairn {

inline std::string schedule_csv(const pipeline_program& program) {
    std::string text;
    for (const action_list& list : program.actions) {
        const char* separator = "";
        for (const action& a : list) {
            text += concat(separator, a);
            separator = ",";
        }
        text += '\n';
    }
    return text;
}

namespace detail {

/// The actions of one line.
inline action_list parse_cells(const std::vector<std::string>& cells) {
    constexpr std::string_view overlapped = ")OVERLAP_F_B";
    action_list all;
    for (std::size_t column = 0; column < cells.size(); ++column)
        with_context(concat("column ", column + 1), [&] {
            std::string cell = cells[column];
            if (cell.starts_with('(') && cell.ends_with(overlapped)) {
                cell = cell.substr(1, cell.size() - 1 - overlapped.size());
                std::replace(cell.begin(), cell.end(), ';', ' ');
            }
            for (const action& a : parse_actions(cell)) all.push_back(a);
        });
    return all;
}

/// Ranks, micro-batches and the placement of stages.
inline void infer_placement(pipeline_program& program) {
    int last_stage = 0, last_micro_batch = 0;
    for (const action_list& list : program.actions)
        for (const action& a : list) {
            last_stage = std::max(last_stage, a.stage);
            last_micro_batch = std::max(last_micro_batch, a.micro_batch);
        }
    std::size_t actions = 0;
    for (const action_list& list : program.actions) actions += list.size();
    // A slip of a digit must not ask for much memory.
    const double needed = 2 * (last_stage + 1.0) * (last_micro_batch + 1.0);
    require(needed <= static_cast<double>(actions), actions, " actions, but stages 0 to ", last_stage,
            " and micro-batches 0 to ", last_micro_batch, " need ", needed, " at least");
    program.micro_batches = last_micro_batch + 1;
    program.ranks = static_cast<int>(program.actions.size());
    program.rank_of_stage.assign(static_cast<std::size_t>(last_stage) + 1, -1);
    for (int rank = 0; rank < program.ranks; ++rank) {
        const action_list& list = program.actions[static_cast<std::size_t>(rank)];
        require(!list.empty(), "rank ", rank, " has no action");
        int held = 0;
        for (std::size_t i = 0; i < list.size(); ++i) {
            int& owner = program.rank_of_stage[static_cast<std::size_t>(list[i].stage)];
            if (owner < 0) ++held, owner = rank;
            if (owner != rank)
                fail(place_text(program, {rank, static_cast<int>(i)}), ": stage ", list[i].stage, " is on rank ", owner,
                     " already; a stage runs on one rank");
        }
        program.virtual_stages = std::max(program.virtual_stages, held);
    }
}

}  // namespace detail

/// The validated program that the text holds. `name` stands in messages.
inline pipeline_program parse_schedule_csv(const std::string& text, const std::string& name) {
    pipeline_program program;
    program.name = name;
    with_context(concat("schedule ", name), [&] {
        for_comma_separated(text, [&](index_t line, const std::vector<std::string>& cells) {
            program.actions.push_back(with_context(concat("line ", line), [&] { return detail::parse_cells(cells); }));
        });
        while (!program.actions.empty() && program.actions.back().empty()) program.actions.pop_back();
        require(!program.actions.empty(), "no actions; a line a rank, such as 0F0,0F1,0B0,0B1");
        detail::infer_placement(program);
    });
    validate(program);
    return program;
}

inline pipeline_program read_schedule_csv(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    std::ostringstream text;
    require(in && !std::filesystem::is_directory(path) && bool{text << in.rdbuf()}, "schedule ", path.string(),
            ": cannot be read");
    return parse_schedule_csv(text.str(), path.string());
}

/// A schedule by name, or the file NAME.csv, which must have the ranks and micro-batches of `shape`.
inline pipeline_program schedule_from(const std::string& name, const schedule_shape& shape,
                                      const schedule_costs& costs = {}) {
    if (!name.ends_with(".csv")) return make_schedule(name, shape, costs);
    pipeline_program program = read_schedule_csv(name);
    require(program.ranks == shape.ranks && program.micro_batches == shape.micro_batches, "schedule ", name,
            ": is for ", program.ranks, " ranks and ", program.micro_batches, " micro-batches, the run has ",
            shape.ranks, " and ", shape.micro_batches);
    require(shape.virtual_stages == 0 || program.virtual_stages == shape.virtual_stages, "schedule ", name, ": has ",
            program.virtual_stages, " stages a rank, virtual_stages is ", shape.virtual_stages);
    return program;
}

}  // namespace cairn
