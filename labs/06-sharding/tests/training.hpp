#pragma once
// Shared by the tests of this lab: training on p ranks by a submission, compared with Adam on one rank in double.

#include "judge.hpp"

#include <cairn/core/range.hpp>

#include <cmath>
#include <numeric>

namespace lab {

using floats = std::vector<float>;
using sizes = std::vector<std::size_t>;

struct state {
    floats parameters, gradients, m, v;
    std::int64_t steps = 0;
};
template <>
struct members<state> {
    static auto of(auto& s) { return std::tie(s.parameters, s.gradients, s.m, s.v, s.steps); }
};

struct settings {
    double lr = 0.001, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
};
template <>
struct members<settings> {
    static auto of(auto& s) { return std::tie(s.lr, s.beta1, s.beta2, s.epsilon); }
};

/// Adam by plain loops, in double.
struct oracle {
    settings s;
    std::vector<double> theta, m, v;
    std::int64_t steps = 0;

    oracle(settings given, const floats& initial)
        : s(given), theta(initial.begin(), initial.end()), m(initial.size()), v(initial.size()) {}
    void step(const std::vector<double>& g) {
        ++steps;
        for (std::size_t i = 0; i < g.size(); ++i) {
            m[i] = s.beta1 * m[i] + (1 - s.beta1) * g[i];
            v[i] = s.beta2 * v[i] + (1 - s.beta2) * g[i] * g[i];
            const double mean = m[i] / (1 - std::pow(s.beta1, steps)), square = v[i] / (1 - std::pow(s.beta2, steps));
            theta[i] -= s.lr * mean / (std::sqrt(square) + s.epsilon);
        }
    }
    /// Error bound of each parameter: each step rounds θ, and m and v, which it moves by some lr.
    std::vector<double> bounds() const {
        std::vector<double> all;
        for (const double t : theta)
            all.push_back(64 * static_cast<double>(steps + 1) * 0x1p-23 *
                          (std::abs(t) + 10 * s.lr * static_cast<double>(steps)));
        return all;
    }
};

/// Multiples of 1/64 in [−1, 1]: sums over ranks and micro-batches are exact in float, in any order.
inline floats exact_numbers(std::size_t n, std::uint32_t stream) {
    floats all = numbers(n, stream);
    for (float& x : all) x = std::round(64 * x) / 64;
    return all;
}

inline std::size_t total(const sizes& layers) { return std::accumulate(layers.begin(), layers.end(), std::size_t{0}); }

inline std::int64_t part_of(std::size_t n, int p, int r) {
    return cairn::shard_of(static_cast<cairn::index_t>(n), p, r).count;
}

/// How many numbers rank r keeps: parameters, gradients, m and v.
inline std::vector<std::int64_t> numbers_kept(int stage, const sizes& layers, int p, int r) {
    const auto all = static_cast<std::int64_t>(total(layers));
    std::int64_t mine = part_of(total(layers), p, r);
    if (stage == 3) {
        mine = 0;
        for (const std::size_t n : layers) mine += part_of(n, p, r);
    }
    return {stage >= 3 ? mine : all, stage >= 2 ? mine : all, stage >= 1 ? mine : all, stage >= 1 ? mine : all};
}

/// One training on p ranks, whatever the stage. The judge has the states: each call gets them, and returns them.
class training {
public:
    training(int stage, int p, const sizes& layers, settings s, std::uint32_t stream)
        : stage_(stage),
          p_(p),
          layers_(layers),
          settings_(s),
          initial_(numbers(total(layers), stream)),
          oracle_(s, initial_),
          stream_(stream + 1) {
        for (int r = 0; r < p; ++r)
            states_.push_back(call<state>("zero" + std::to_string(stage) + "_start", layers, initial_, p, r));
    }

    /// k micro-batches and a step, on the ranks and on the oracle.
    void step(int k) {
        micro_batches_ = k;
        sent_ = {};
        std::vector<double> mean(initial_.size());
        for (int i = 0; i < k; ++i) {
            std::vector<floats> gradients;
            for (int r = 0; r < p_; ++r) {
                gradients.push_back(exact_numbers(initial_.size(), stream_++));
                for (std::size_t j = 0; j < mean.size(); ++j)
                    mean[j] += static_cast<double>(gradients.back()[j]) / (p_ * k);
            }
            stage_ == 3 ? by_layers(gradients) : accumulate(gradients);
        }
        take(on_ranks<state>(p_, "zero" + std::to_string(stage_) + "_step",
                             [&](int r) { return std::tuple(of(r), settings_, k); }));
        oracle_.step(mean);
    }

    /// Empty, or which rank's parameters are not those of Adam on one rank, and how.
    std::string fault() {
        std::vector<floats> whole;
        for (const state& s : states_) whole.push_back(s.parameters);
        if (stage_ == 3) {
            for (floats& w : whole) w.clear();
            for (std::size_t l = 0; l < layers_.size(); ++l) {
                const auto got = gathered(l);
                for (std::size_t r = 0; r < whole.size(); ++r)
                    whole[r].insert(whole[r].end(), got[r].begin(), got[r].end());
            }
        }
        for (std::size_t r = 0; r < whole.size(); ++r)
            if (const std::string why = difference(std::span<const float>(whole[r]), oracle_.theta, oracle_.bounds());
                !why.empty())
                return "stage " + std::to_string(stage_) + ", " + std::to_string(micro_batches_) +
                       " micro-batches a step: parameters of rank " + std::to_string(r) + " of " + std::to_string(p_) +
                       " after step " + std::to_string(oracle_.steps) + ": " + why;
        for (std::size_t r = 0; r < states_.size(); ++r)
            if (states_[r].steps != oracle_.steps)
                return "stage " + std::to_string(stage_) + ": steps of rank " + std::to_string(r) + " is " +
                       std::to_string(states_[r].steps) + " after step " + std::to_string(oracle_.steps);
        return disagreement(whole);
    }
    /// Empty, or which rank keeps more or fewer numbers than it should.
    std::string fault_of_kept() const {
        for (int r = 0; r < p_; ++r) {
            const state& s = states_[static_cast<std::size_t>(r)];
            const auto should = numbers_kept(stage_, layers_, p_, r);
            const std::size_t have[]{s.parameters.size(), s.gradients.size(), s.m.size(), s.v.size()};
            const char* const names[]{"parameters", "gradients", "m", "v"};
            for (std::size_t i = 0; i < 4; ++i)
                if (static_cast<std::int64_t>(have[i]) != should[i])
                    return "stage " + std::to_string(stage_) + ", rank " + std::to_string(r) + " of " +
                           std::to_string(p_) + " keeps " + std::to_string(have[i]) + " numbers of " + names[i] +
                           ", expected " + std::to_string(should[i]);
        }
        return {};
    }
    /// Bytes and messages of the last step, all ranks together.
    lab::sent sent() const { return sent_; }
    /// Of the last step, by the formula.
    std::int64_t expected_bytes(int k) const {
        const auto all = static_cast<std::int64_t>(total(layers_));
        const auto last = static_cast<std::int64_t>(layers_.back());
        return 4 * (p_ - 1) * (stage_ == 1 ? 2 * all : stage_ == 2 ? (k + 1) * all : k * (3 * all - last));
    }

private:
    const state& of(int r) const { return states_[static_cast<std::size_t>(r)]; }
    template <class R>
    void count(const outcome<R>& all) {
        for (const auto& s : all.sent) sent_.messages += s.messages, sent_.bytes += s.bytes;
    }
    void take(outcome<state> all) {
        count(all);
        states_ = std::move(all.results);
    }
    void accumulate(const std::vector<floats>& gradients) {
        take(on_ranks<state>(p_, "zero" + std::to_string(stage_) + "_accumulate",
                             [&](int r) { return std::tuple(of(r), gradients[static_cast<std::size_t>(r)]); }));
    }
    std::vector<floats> gathered(std::size_t layer) {
        auto got = on_ranks<floats>(p_, "zero3_gather", [&](int r) { return std::tuple(of(r), layers_, layer); });
        count(got);
        return std::move(got.results);
    }
    void by_layers(const std::vector<floats>& gradients) {
        for (std::size_t l = 0; l < layers_.size(); ++l) gathered(l);
        std::size_t end = initial_.size();
        for (std::size_t l = layers_.size(); l-- > 0;) {
            if (l + 1 < layers_.size()) gathered(l);
            end -= layers_[l];
            take(on_ranks<state>(p_, "zero3_reduce", [&](int r) {
                const auto begin = gradients[static_cast<std::size_t>(r)].begin() + static_cast<std::ptrdiff_t>(end);
                return std::tuple(of(r), layers_, l, floats(begin, begin + static_cast<std::ptrdiff_t>(layers_[l])));
            }));
        }
    }

    int stage_, p_, micro_batches_ = 0;
    sizes layers_;
    settings settings_;
    floats initial_;
    oracle oracle_;
    std::uint32_t stream_;
    std::vector<state> states_;
    lab::sent sent_;
};

/// Empty, or what goes wrong in two trainings whose steps take turns: nothing but the states may be kept. ε is large,
/// for without it Adam takes the same step whether gradients are summed or averaged.
inline std::string fault_of_training(int stage, int p, const sizes& layers, int steps, int k, std::uint32_t stream,
                                     bool count = true, settings s = {.lr = 0.01, .epsilon = 0.1}) {
    doing("stage " + std::to_string(stage) + " on " + text(p, "rank") + ", " + text(total(layers), "parameter"));
    training one(stage, p, layers, s, stream), other(stage, p, layers, s, stream + 1000);
    for (int t = 0; t < steps; ++t)
        for (training* now : {&one, &other}) {
            now->step(k);
            if (count) {
                if (std::string why = now->fault_of_kept(); !why.empty()) return why;
                if (const auto bytes = now->sent().bytes; bytes != now->expected_bytes(k))
                    return "stage " + std::to_string(stage) + ", " + text(p, "rank") + ", " + std::to_string(k) +
                           " micro-batches: all ranks together sent " + std::to_string(bytes) +
                           " bytes in a step, expected " + std::to_string(now->expected_bytes(k));
            }
            if (std::string why = now->fault(); !why.empty()) return why;
        }
    return {};
}

/// Empty, or where a rank of p keeps a layer elsewhere in its arrays than it should, before the first step.
inline std::string fault_of_storage(const sizes& layers, int p, std::uint32_t stream) {
    using place = std::pair<std::int64_t, std::int64_t>;  // begin, count
    const floats initial = numbers(total(layers), stream);
    for (int r = 0; r < p; ++r) {
        const std::string rank = "rank " + std::to_string(r) + " of " + std::to_string(p);
        std::vector<std::size_t> order(layers.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::vector<place> places(layers.size() + 1);
        floats parameters;
        for (const std::size_t l : order) {
            const auto part = cairn::shard_of(static_cast<cairn::index_t>(layers[l]), p, r);
            places[l] = {static_cast<std::int64_t>(parameters.size()), part.count};
            const auto before = std::accumulate(layers.begin(), layers.begin() + static_cast<std::ptrdiff_t>(l), 0);
            const auto begin = initial.begin() + before + part.begin;
            parameters.insert(parameters.end(), begin, begin + part.count);
        }
        places.back() = {static_cast<std::int64_t>(parameters.size()), 0};
        for (std::size_t l = 0; l < places.size(); ++l)
            if (const auto got = call<place>("place_of", layers, l, p, r); got != places[l])
                return "place_of: layer " + std::to_string(l) + " of " + rank + ": begin " + std::to_string(got.first) +
                       ", count " + std::to_string(got.second) + ", expected " + std::to_string(places[l].first) +
                       " and " + std::to_string(places[l].second);
        if (call<state>("zero3_start", layers, initial, p, r).parameters != parameters)
            return "zero3_start: " + rank + " does not keep the initial parameters of its parts in the order of layers";
    }
    return {};
}

/// Empty, or which property a plan of so many layers lacks.
inline std::string fault_of_plan(int layers) {
    using event = std::pair<std::string, int>;
    const auto plan = call<std::vector<event>>("zero3_plan", layers);
    std::string all = "\nthe plan:";
    for (const auto& [what, l] : plan) all += " " + what + " " + std::to_string(l) + ",";
    std::vector<bool> gathered(static_cast<std::size_t>(layers)), overlapped(gathered);
    std::vector<int> gathers(static_cast<std::size_t>(layers));
    int held = 0, computed = 0;
    const auto stands = [&](std::size_t i, const std::string& what, int l) {
        return i < plan.size() && plan[i] == event{what, l};
    };
    for (std::size_t i = 0; i < plan.size(); ++i) {
        const auto& [what, l] = plan[i];
        const std::string name = "event " + std::to_string(i) + ", " + what + " " + std::to_string(l) + ": ";
        if (l < 0 || l >= layers) return name + "there is no such layer" + all;
        const auto at = static_cast<std::size_t>(l);
        if (what == "gather") {
            if (gathered[at]) return name + "the layer is gathered already" + all;
            gathered[at] = true, overlapped[at] = i == 0, ++gathers[at];
            if (++held > 2) return name + "three layers are gathered" + all;
        } else if (what == "release") {
            if (!gathered[at]) return name + "the layer is not gathered" + all;
            gathered[at] = false, --held;
        } else if (what == "reduce") {
            if (!stands(i - 1, "backward", l)) return name + "not right after its backward" + all;
        } else {
            const int should = computed < layers ? computed : 2 * layers - 1 - computed;
            const bool forward = computed < layers;
            if (computed == 2 * layers || l != should || (what == "forward") != forward)
                return name + "expected " +
                       (computed == 2 * layers ? "nothing more to compute"
                                               : (forward ? "forward " : "backward ") + std::to_string(should)) +
                       all;
            if (!gathered[at]) return name + "the layer is not gathered" + all;
            if (!overlapped[at]) return name + "nothing is computed between its gather and this" + all;
            if (!forward && !stands(i + 1, "reduce", l)) return name + "its reduce does not come next" + all;
            ++computed;
            overlapped.assign(overlapped.size(), true);
        }
    }
    if (computed != 2 * layers)
        return "computations: " + std::to_string(computed) + ", expected " + std::to_string(2 * layers) + all;
    if (held) return "a layer is still gathered in the end" + all;
    for (int l = 0; l < layers; ++l)
        if (const int n = gathers[static_cast<std::size_t>(l)]; n != (l + 1 == layers ? 1 : 2))
            return "layer " + std::to_string(l) + " is gathered " + std::to_string(n) + " times" + all;
    return {};
}

}  // namespace lab
