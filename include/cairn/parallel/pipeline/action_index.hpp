#pragma once
// The place of each action of a program. Building it checks the program's bookkeeping: every forward once, every
// backward once, as B or as I and W, all on the ranks that hold their stages.

#include <cairn/parallel/pipeline/program.hpp>

#include <array>
#include <vector>

namespace cairn {

/// A place in a program's lists.
struct action_place {
    int rank = -1, position = -1;
    bool operator==(const action_place&) const = default;
};

/// "rank 1, action 5, 1F3"
inline std::string place_text(const pipeline_program& program, const action_place& at) {
    const action& a = program.actions[static_cast<std::size_t>(at.rank)][static_cast<std::size_t>(at.position)];
    return concat("rank ", at.rank, ", action ", at.position, ", ", a);
}

/// See the top of the file. Throws, naming rank, action and reason. The program must outlive it.
class action_index {
public:
    explicit action_index(const pipeline_program& program) : program_(program) {
        check_shape();
        places_.resize(static_cast<std::size_t>(program.stages()) * static_cast<std::size_t>(program.micro_batches));
        for (int rank = 0; rank < program.ranks; ++rank)
            for (int i = 0; i < static_cast<int>(program.actions[static_cast<std::size_t>(rank)].size()); ++i)
                enter({rank, i});
        for (int s = 0; s < program.stages(); ++s)
            for (int m = 0; m < program.micro_batches; ++m) check_complete(s, m);
    }

    action_place forward(int stage, int micro_batch) const { return of(stage, micro_batch)[0]; }
    /// The I or B.
    action_place backward(int stage, int micro_batch) const { return of(stage, micro_batch)[1]; }

    /// Calls f(place) for each action that must be done before `a`.
    template <class F>
    void for_each_need(const action& a, F&& f) const {
        if (a.kind == action_kind::forward) {
            if (a.stage > 0) f(forward(a.stage - 1, a.micro_batch));
        } else if (a.kind == action_kind::backward_weight) {
            f(backward(a.stage, a.micro_batch));
        } else {
            f(forward(a.stage, a.micro_batch));
            if (a.stage + 1 < program_.stages()) f(backward(a.stage + 1, a.micro_batch));
        }
    }

private:
    using places = std::array<action_place, 3>;  // of F; of I or B; of W or B

    const places& of(int stage, int micro_batch) const {
        return places_[static_cast<std::size_t>(stage) * static_cast<std::size_t>(program_.micro_batches) +
                       static_cast<std::size_t>(micro_batch)];
    }

    void check_shape() const {
        require(program_.ranks >= 1 && program_.micro_batches >= 1 && program_.stages() >= 1, "schedule ",
                program_.name, ": ", program_.ranks, " ranks, ", program_.micro_batches, " micro-batches and ",
                program_.stages(), " stages; one of each is the least");
        require(program_.actions.size() == static_cast<std::size_t>(program_.ranks), "schedule ", program_.name, ": ",
                program_.actions.size(), " lists of actions for ", program_.ranks, " ranks");
        for (int s = 0; s < program_.stages(); ++s) {
            const int rank = program_.rank_of_stage[static_cast<std::size_t>(s)];
            require(rank >= 0 && rank < program_.ranks, "schedule ", program_.name, ": stage ", s,
                    " is placed on rank ", rank, " of ", program_.ranks);
        }
    }

    void enter(const action_place& at) {
        const action& a = program_.actions[static_cast<std::size_t>(at.rank)][static_cast<std::size_t>(at.position)];
        const auto refuse = [&](const auto&... reason) { fail(place_text(program_, at), ": ", reason...); };
        if (a.stage < 0 || a.stage >= program_.stages()) refuse("there are stages 0 to ", program_.stages() - 1);
        if (a.micro_batch < 0 || a.micro_batch >= program_.micro_batches)
            refuse("there are micro-batches 0 to ", program_.micro_batches - 1);
        if (const int owner = program_.rank_of(a.stage, a.micro_batch); owner != at.rank)
            refuse("rank ", owner, " holds stage ", a.stage,
                   program_.mirrored ? concat(" of micro-batch ", a.micro_batch) : "");
        places& entry = places_[static_cast<std::size_t>(a.stage) * static_cast<std::size_t>(program_.micro_batches) +
                                static_cast<std::size_t>(a.micro_batch)];
        const bool forward = a.kind == action_kind::forward;
        const bool input = a.kind == action_kind::backward || a.kind == action_kind::backward_input;
        const std::array<bool, 3> does{forward, input, a.adds_gradients()};
        for (std::size_t k = 0; k < 3; ++k) {
            if (!does[k]) continue;
            if (entry[k].rank >= 0)
                refuse("this ", forward ? "forward" : "backward", " is done already, by ",
                       place_text(program_, entry[k]));
            entry[k] = at;
        }
    }

    void check_complete(int stage, int micro_batch) const {
        constexpr std::array<const char*, 3> what{"F", "B or I", "B or W"};
        for (std::size_t k = 0; k < 3; ++k)
            if (of(stage, micro_batch)[k].rank < 0)
                fail("rank ", program_.rank_of(stage, micro_batch), ": no ", what[k], " of stage ", stage,
                     ", micro-batch ", micro_batch, " in its list");
    }

    const pipeline_program& program_;
    std::vector<places> places_;
};

}  // namespace cairn
