#pragma once
// Greedy list scheduling under a cap of saved micro-batches, for stages of any times.
//   State: the clock of each rank, the ends of actions. Candidates of a rank: the next F of each of its stages, if its
//   input is made and fewer than `cap` are saved; the next I of each, if its input is made; the oldest W.
//   Earliest start = max(clock, inputs). The rank with the smallest one (of equal ones the lower) runs, of its
//   candidates that can start then, the first by `order`; with `alternate` an I right after an I comes behind F.

#include <cairn/parallel/pipeline/program.hpp>

#include <deque>
#include <limits>
#include <string>
#include <vector>

namespace cairn {

/// See the top of the file.
struct greedy_rule {
    std::string order = "IFW";  // best first
    bool alternate = false;
    int cap = 1;  // saved chunks of a rank
};

/// Fills the lists of a program that has its shape and placement. False where the cap leaves no action that can run.
inline bool schedule_greedily(pipeline_program& program, const std::vector<stage_costs>& costs,
                              const greedy_rule& rule) {
    constexpr double never = std::numeric_limits<double>::infinity();
    const auto m = static_cast<std::size_t>(program.micro_batches), stages = static_cast<std::size_t>(program.stages());
    struct stage_state {
        std::vector<double> forward, input;  // ends by micro-batch
        std::size_t next_forward = 0, next_input = 0;
    };
    struct rank_state {
        std::vector<std::size_t> stages;
        std::deque<action> weights;
        double clock = 0;
        int saved = 0;
        char last = 'F';
    };
    struct candidate {
        action what;
        double start;
    };
    std::vector<stage_state> of_stage(stages, {std::vector<double>(m, never), std::vector<double>(m, never)});
    std::vector<rank_state> ranks(static_cast<std::size_t>(program.ranks));
    for (std::size_t s = 0; s < stages; ++s)
        ranks[static_cast<std::size_t>(program.rank_of_stage[s])].stages.push_back(s);
    program.actions.assign(ranks.size(), {});

    const auto candidates = [&](const rank_state& rank) {
        std::vector<candidate> all;
        const auto offer = [&](action_kind kind, std::size_t s, std::size_t i, double ready) {
            if (ready < never)
                all.push_back({{kind, static_cast<int>(s), static_cast<int>(i)}, std::max(rank.clock, ready)});
        };
        for (const std::size_t s : rank.stages) {
            const stage_state& here = of_stage[s];
            const std::size_t f = here.next_forward, i = here.next_input;
            if (f < m && rank.saved < rule.cap)
                offer(action_kind::forward, s, f, s == 0 ? 0.0 : of_stage[s - 1].forward[f]);
            if (i < m)
                offer(action_kind::backward_input, s, i,
                      std::max(here.forward[i], s + 1 == stages ? 0.0 : of_stage[s + 1].input[i]));
        }
        if (!rank.weights.empty()) all.push_back({rank.weights.front(), rank.clock});
        return all;
    };

    for (std::size_t left = 3 * m * stages; left > 0; --left) {
        std::size_t who = 0;
        double start = never;
        for (std::size_t r = 0; r < ranks.size(); ++r)
            for (const candidate& c : candidates(ranks[r]))
                if (c.start < start) {
                    start = c.start;
                    who = r;
                }
        if (start == never) return false;
        rank_state& rank = ranks[who];
        const auto value = [&](const action& a) {
            std::size_t at = 2 * rule.order.find(static_cast<char>(a.kind));
            if (rule.alternate && rank.last == 'I' && a.kind == action_kind::backward_input)
                at = std::max(at, 2 * rule.order.find('F') + 1);
            return at;
        };
        const candidate* best = nullptr;
        const auto all = candidates(rank);
        for (const candidate& c : all)
            if (c.start <= start && (!best || value(c.what) < value(best->what))) best = &c;

        const action a = best->what;
        stage_state& here = of_stage[static_cast<std::size_t>(a.stage)];
        rank.clock = start + costs[static_cast<std::size_t>(a.stage)].of(a.kind);
        program.actions[who].push_back(a);
        if (a.kind != action_kind::backward_weight) rank.last = static_cast<char>(a.kind);
        if (a.kind == action_kind::forward) {
            here.forward[here.next_forward++] = rank.clock;
            ++rank.saved;
        } else if (a.kind == action_kind::backward_input) {
            here.input[here.next_input++] = rank.clock;
            rank.weights.push_back({action_kind::backward_weight, a.stage, a.micro_batch});
        } else {
            rank.weights.pop_front();
            --rank.saved;
        }
    }
    return true;
}

}  // namespace cairn
