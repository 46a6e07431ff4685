#pragma once
// Where the seconds of simulated training steps go, as their record has them. Of a rank's step:
//   compute     kernels, and starting messages, on its processor
//   exposed     waiting for messages, their copying, and for helpers; between stages of a pipeline not counted
//   bubble      waiting for what another stage hands on
//   data        the batch        checkpoint    saving the state behind the step
// They add up to the step. Nothing is recorded on a real rank, whose waiting is spread over the library.

#include <cairn/core/clock.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <vector>

namespace cairn {

/// Seconds of one step; joules of all ranks and links, where the machine has watts.
struct step_terms {
    double seconds = 0, compute = 0, exposed = 0, bubble = 0, data = 0, checkpoint = 0, joules = 0;
};

/// See the top of the file.
class step_terms_log {
public:
    /// `root`: this rank tells the joules of all.
    explicit step_terms_log(bool root) : root_(root) {}

    /// A step begins, with its batch.
    void begin() {
        if (!on_phantom_rank()) return;
        joules_ = root_ ? phantom_here->joules() : 0;
        begin_ = now();
    }
    /// The batch is there.
    void computes() {
        if (!on_phantom_rank()) return;
        data_ = now() - begin_;
        before_ = phantom_here->spent();
    }
    /// It ends.
    void end() {
        if (!on_phantom_rank()) return;
        const phantom_seconds all = phantom_here->spent();
        steps_.push_back({now() - begin_, all.computing - before_.computing, all.waiting - before_.waiting,
                          all.stages - before_.stages, data_, 0, root_ ? phantom_here->joules() - joules_ : 0});
    }
    /// The last step's state was saved.
    void saved(double seconds) {
        if (steps_.empty() || !on_phantom_rank()) return;
        steps_.back().seconds += seconds;
        steps_.back().checkpoint += seconds;
    }

    /// Of the median step, for the first one reduces its gradients behind backward. 0 where they are not known.
    double joules() const {
        std::vector<double> all;
        for (const step_terms& s : steps_) all.push_back(s.joules);
        std::sort(all.begin(), all.end());
        return all.empty() ? 0 : all[all.size() / 2];
    }
    nlohmann::json to_json() const {
        nlohmann::json all = nlohmann::json::array();
        for (const step_terms& s : steps_)
            all.push_back({{"seconds", s.seconds},
                           {"compute", s.compute},
                           {"exposed_communication", s.exposed},
                           {"bubble", s.bubble},
                           {"data", s.data},
                           {"checkpoint", s.checkpoint},
                           {"joules", s.joules}});
        return all;
    }

private:
    bool root_;
    double begin_ = 0, data_ = 0, joules_ = 0;
    phantom_seconds before_;
    std::vector<step_terms> steps_;
};

}  // namespace cairn
