#pragma once
// What the tuner may choose of a run (perf/tune.hpp), so that its accuracy is kept:
//   the global batch stays, and what file and command line set stays as they set it;
//   free are strategies that only change where sums are made, and in which order: mesh, micro-batches, schedule,
//   buckets, all-reduce, ZeRO stage, placement of K-FAC, recomputation, p-state. Where batch norm is, its statistics
//   are of at least as many samples as in plain data parallelism over all ranks;
//   gradients are compressed only as a record shows that it does no harm (tuning_records.hpp), or the user allows.

#include <cairn/perf/tune.hpp>
#include <cairn/train/configuration.hpp>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// What the space depends on.
struct tuned_run {
    int ranks = 1;
    index_t batch = 1;                           // samples a step, over all ranks
    double parameters = 0;                       // trained values
    bool batch_norm = false;                     // some layer has running statistics
    std::size_t p_states = 1;                    // of the machine
    bool own_processors = false;                 // of the ranks, which can choose their frequency
    std::vector<std::string> compressions = {};  // settings that change gradients and are allowed, joined by spaces
};

/// How a configuration shares model and batch out.
struct rank_layout {
    int data = 1, pipeline = 1, tensor = 1;
    std::vector<int> spatial = {};
    index_t micro_batches = 1;
    std::string schedule = "1f1b";
    int zero_stage = 0;
    bool compresses = false, recomputes = false;
    std::size_t p_state = 0;
    bool on_slack = false;  // each action of a pipeline in the p-state that its slack bears

    int spatial_ranks() const {
        int product = 1;
        for (const int n : spatial) product *= n;
        return product;
    }
};

/// See the top of the file.
class run_space {
public:
    run_space(tuned_run run, configuration settings) : run_(std::move(run)), settings_(std::move(settings)) {
        add_meshes();
        add_micro_batches();
        add(
            "schedule", "parallel.schedule", {"1f1b", "gpipe", "interleaved", "zb_h1", "zb_v", "auto"},
            [](const rank_layout& at) { return at.pipeline > 1; },
            [](rank_layout& at, const std::string& value) { return at.schedule = value, true; });
        add_compressions();
        if (!preconditions())
            add("zero stage", "parallel.zero_stage", {"0", "1", "2"}, shares_batch,
                [](rank_layout& at, const std::string& value) {
                    at.zero_stage = value[0] - '0';
                    return at.zero_stage < 2 || !at.compresses;
                });
        add("bucket", "parallel.bucket_mib", buckets(), shares_batch);
        add("all-reduce", "parallel.all_reduce", {"auto", "ring", "recursive_doubling", "halving_doubling", "tree"},
            [](const rank_layout& at) { return shares_batch(at) && !at.compresses; });
        if (text("optimizer.kind", "sgd") == "kfac") add_fractions();
        add(
            "activation memory", "train.activation_memory", {"keep", "recompute", "recompute_smallest"},
            [](const rank_layout&) { return true; },
            [](rank_layout& at, const std::string& value) { return at.recomputes = value != "keep", true; });
        add_p_states();
    }

    run_space(const run_space&) = delete;
    run_space& operator=(const run_space&) = delete;

    /// Refers to this.
    tuning_space space() const {
        tuning_space all;
        for (const part& p : parts_) all.dimensions.push_back(p.dimension);
        all.settings = [this](const tuning_choice& c) {
            rank_layout at;
            tuning_settings settings;
            return apply(c, at, settings) ? std::optional(settings) : std::nullopt;
        };
        return all;
    }
    rank_layout layout(const tuning_choice& c) const {
        rank_layout at;
        tuning_settings settings;
        require(apply(c, at, settings), "tuning: a choice whose alternatives do not go together has no layout");
        return at;
    }
    const tuned_run& run() const { return run_; }

    /// Dimensions other than these keep their plain alternative. Throws on a name that there is not.
    void vary_only(const std::vector<std::string>& names) {
        std::string known;
        for (const part& p : parts_) known += (known.empty() ? "" : ", ") + p.dimension.name;
        for (const std::string& name : names)
            require(std::ranges::any_of(parts_, [&](const part& p) { return p.dimension.name == name; }), "no '", name,
                    "' is to be chosen for this run and machine; there are ", known);
        for (part& p : parts_)
            if (std::ranges::find(names, p.dimension.name) == names.end()) p.dimension.alternatives.resize(1);
    }

    /// How a p-state is written among settings: it is one of the machine, not of the run.
    static constexpr const char* p_state = "p-state=";

private:
    /// A dimension; what alternative number `a` adds to the settings, given those before it. False: it cannot be.
    struct part {
        tuning_dimension dimension;
        std::function<bool(std::size_t a, rank_layout& at, tuning_settings& settings)> apply;
    };

    static bool shares_batch(const rank_layout& at) { return at.data > 1; }

    bool apply(const tuning_choice& c, rank_layout& at, tuning_settings& settings) const {
        for (std::size_t d = 0; d < parts_.size(); ++d)
            if (!parts_[d].apply(c[d], at, settings)) return false;
        return true;
    }
    std::string text(const std::string& path, const char* fallback) {
        return settings_.is_text(path) ? settings_.get(path, fallback) : fallback;
    }
    bool preconditions() {
        const std::string kind = text("optimizer.kind", "sgd");
        return kind == "kfac" || kind == "shampoo" || kind == "soap" || kind == "muon";
    }

    /// One setting. Where it does not matter it is left out, and configurations that differ in it alone are one.
    void add(
        const char* name, const std::string& path, std::vector<std::string> values,
        std::function<bool(const rank_layout&)> matters,
        std::function<bool(rank_layout&, const std::string&)> note = [](auto&, auto&) { return true; }) {
        if (settings_.has(path)) values.resize(1);  // it stays as it is set
        parts_.push_back({{name, values}, [=](std::size_t a, rank_layout& at, tuning_settings& settings) {
                              if (a == 0 || !matters(at)) return true;
                              settings.push_back(path + '=' + values[a]);
                              return note(at, values[a]);
                          }});
    }

    /// Ranks of each axis. Those that file or command line set stay; data takes what the others leave.
    void add_meshes() {
        const std::string model = text("model.kind", "");
        const bool cuts_tensors =
            (model == "transformer" || model == "resnet" || model == "resnet-cifar" || model == "cosmoflow") &&
            !preconditions();
        std::vector<rank_layout> meshes;
        const auto may_be = [&](const char* path, int n, bool possible) {
            if (settings_.has(path)) return settings_.get(path, 1, at_least(0)) == n;
            return n == 1 || possible;
        };
        std::vector<std::vector<int>> boxes{{}};
        if (settings_.has("parallel.spatial"))
            boxes = {settings_.get("parallel.spatial", std::vector<int>{}, at_least(1))};
        else if (model == "cosmoflow" && !preconditions())
            for (const std::vector<int>& box : {std::vector{2, 1, 1}, {2, 2, 1}, {2, 2, 2}, {4, 2, 2}})
                boxes.push_back(box);
        for (int pipeline = 1; pipeline <= run_.ranks; ++pipeline)
            for (int tensor = 1; pipeline * tensor <= run_.ranks; ++tensor)
                for (const std::vector<int>& box : boxes) {
                    rank_layout at{.pipeline = pipeline, .tensor = tensor, .spatial = box};
                    const int others = pipeline * tensor * at.spatial_ranks();
                    if (others > run_.ranks || run_.ranks % others != 0) continue;
                    at.data = run_.ranks / others;
                    if (may_be("parallel.pipeline", pipeline, true) &&
                        may_be("parallel.tensor", tensor, cuts_tensors) && at.data <= run_.batch)
                        meshes.push_back(at);
                }
        require(!meshes.empty(), "tuning: no mesh of ", run_.ranks, " ranks suits a batch of ", run_.batch,
                " and what parallel.pipeline, parallel.tensor and parallel.spatial set");
        tuning_dimension names{"mesh", {}};
        for (const rank_layout& m : meshes) {
            std::string name = concat("data ", m.data);
            if (m.pipeline > 1) name += concat(" x pipeline ", m.pipeline);
            if (m.tensor > 1) name += concat(" x tensor ", m.tensor);
            if (m.spatial_ranks() > 1) name += concat(" x spatial ", m.spatial_ranks());
            names.alternatives.push_back(name);
        }
        parts_.push_back({names, [this, meshes](std::size_t a, rank_layout& at, tuning_settings& settings) {
                              at = meshes[a];
                              const auto set = [&](const char* path, const auto& value, bool is_one) {
                                  if (!is_one && !settings_.has(path)) settings.push_back(concat(path, '=', value));
                              };
                              set("parallel.pipeline", at.pipeline, at.pipeline == 1);
                              set("parallel.tensor", at.tensor, at.tensor == 1);
                              std::string box;
                              for (const int n : at.spatial) box += (box.empty() ? "[" : ", ") + std::to_string(n);
                              set("parallel.spatial", box + ']', at.spatial.empty());
                              return true;
                          }});
    }

    /// Of a pipeline, 4, 2 or 1 for each of its ranks, as far as there are samples; else 1, 2 or 4.
    void add_micro_batches() {
        const char* const path = "train.micro_batches";
        const bool stays = settings_.has(path);
        const index_t set = settings_.get<index_t>(path, 1, at_least(1));
        std::vector<std::string> names{"usual"};
        if (!stays) names = {"usual", "other", "third"};
        parts_.push_back({{"micro-batches", names},
                          [this, path, stays, set](std::size_t a, rank_layout& at, tuning_settings& settings) {
                              const index_t usual = index_t{at.pipeline} * (index_t{4} >> a),
                                            here = run_.batch / at.data;
                              index_t m = stays ? set : at.pipeline > 1 ? std::min(usual, here) : index_t{1} << a;
                              if (a > 0 && at.pipeline > 1 && m == here) return false;  // as the usual
                              if (m > here) return false;
                              at.micro_batches = m;
                              if (!stays && m > 1) settings.push_back(concat(path, '=', m));
                              return stays || !run_.batch_norm || m * at.data <= run_.ranks;
                          }});
    }

    void add_compressions() {
        if (settings_.has("compress.kind") || run_.compressions.empty()) return;
        tuning_dimension names{"compression", {"none"}};
        names.alternatives.insert(names.alternatives.end(), run_.compressions.begin(), run_.compressions.end());
        parts_.push_back({names, [all = run_.compressions](std::size_t a, rank_layout& at, tuning_settings& settings) {
                              if (a == 0 || !shares_batch(at)) return true;
                              at.compresses = true;
                              std::istringstream words(all[a - 1]);
                              for (std::string one; words >> one;) settings.push_back(one);
                              return true;
                          }});
    }

    /// Sizes below the model's, since larger ones are one bucket.
    std::vector<std::string> buckets() const {
        std::vector<std::string> sizes{"25"};
        for (const int mib : {1, 4, 100})
            if (sizeof(float) * run_.parameters > mib * double(1 << 20)) sizes.push_back(std::to_string(mib));
        return sizes;
    }

    /// Gradient workers of a layer over data ranks: 1, 1/2, 1/4 … 1/data.
    void add_fractions() {
        std::vector<std::string> values{"1"};
        for (int n = 2; n <= run_.ranks; n *= 2) values.push_back(text_of(1.0 / n));
        add("K-FAC fraction", "kfac.grad_worker_fraction", values, shares_batch,
            [](rank_layout& at, const std::string& value) { return std::stod(value) * at.data >= 1; });
    }

    void add_p_states() {
        tuning_dimension names{"p-state", {}};
        for (std::size_t k = 0; k < std::max<std::size_t>(1, run_.p_states); ++k)
            names.alternatives.push_back(std::to_string(k));
        if (run_.p_states > 1 && run_.own_processors) names.alternatives.push_back("slack");
        parts_.push_back({names, [names](std::size_t a, rank_layout& at, tuning_settings& settings) {
                              at.on_slack = names.alternatives[a] == "slack";
                              at.p_state = at.on_slack ? 0 : a;
                              if (a > 0) settings.push_back(p_state + names.alternatives[a]);
                              // train/build_model.hpp refuses it where the slack is not known before a step
                              return !at.on_slack || (at.pipeline > 1 && at.tensor == 1 && at.spatial_ranks() == 1);
                          }});
    }

    tuned_run run_;
    configuration settings_;
    std::vector<part> parts_;
};

}  // namespace cairn
