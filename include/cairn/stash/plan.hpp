#pragma once
// Which layers keep what backward needs, and which are recomputed from the input of their segment: data, made from
// shapes alone.
//   keep_plan      keep everything
//   sqrt_plan      about √L segments that leave equally much (Chen et al. 2016, "Training deep nets with sublinear
//                  memory cost"); the last one is kept, it would be recomputed at once
//   cheapest_plan  the least recomputation whose peak of activation bytes stays within a budget
//   smallest_plan  the smallest peak, and the least recomputation that reaches it
// The last two are exact over all ways to cut the chain, given what each segment keeps and needs
// (stash/memory_model.hpp):
//   peak from layer i on   g(i) = min over j of max(need(i, j), kept(i, j) + g(j)),   j: where the segment from i ends
//   and for a budget, the states (kept so far, work so far) at each cut that no other state beats in both

#include <cairn/stash/memory_model.hpp>

#include <limits>
#include <ostream>

namespace cairn {

/// What becomes of what a layer leaves for backward.
enum class stash { keep, recompute };

/// One decision for each layer of a chain.
struct stash_plan {
    struct entry {
        std::string layer;
        stash what = stash::keep;
        int segment = -1;  // layers recomputed together have the same number; -1: kept
    };
    std::vector<entry> layers;
    index_t predicted_peak = 0;   // activation bytes of a training step
    double recomputed_flops = 0;  // of one step
};

/// Prints one line a segment: "recompute 3: layer1/0 to layer1/2".
inline std::ostream& operator<<(std::ostream& out, const stash_plan& plan) {
    const auto& l = plan.layers;
    for (std::size_t i = 0; i < l.size();) {
        std::size_t end = i + 1;
        while (end < l.size() && l[end].segment == l[i].segment) ++end;
        out << (l[i].what == stash::keep ? "keep" : "recompute ");
        if (l[i].what == stash::recompute) out << l[i].segment;
        out << ": " << l[i].layer;
        if (end > i + 1) out << " to " << l[end - 1].layer;
        out << '\n';
        i = end;
    }
    return out << "predicted peak of activations " << plan.predicted_peak << " bytes, recomputed "
               << plan.recomputed_flops / 1e9 << " Gflop\n";
}

/// Makes `net` follow `plan`. Throws if the plan is for another chain.
template <class T, Device D>
void apply(sequential<T, D>& net, const stash_plan& plan) {
    require(static_cast<int>(plan.layers.size()) == net.size(), "recomputation plan for ", plan.layers.size(),
            " layers, the chain has ", net.size());
    std::vector<typename sequential<T, D>::segment> segments;
    for (int i = 0; i < net.size(); ++i) {
        const auto& [layer, what, number] = plan.layers[static_cast<std::size_t>(i)];
        require(layer == net.name(i), "recomputation plan: layer ", i, " is called ", net.name(i), ", the plan says ",
                layer);
        if (what == stash::keep) continue;
        if (i > 0 && plan.layers[static_cast<std::size_t>(i - 1)].segment == number)
            segments.back().end = i + 1;
        else
            segments.push_back({i, i + 1});
    }
    net.recompute(std::move(segments));
}

/// Makes plans for one chain and one input shape.
template <class T = float, Device D = cpu>
class stash_planner {
public:
    using segment = typename sequential<T, D>::segment;

    /// Plays each segment that is possible: time grows with the cube of the number of layers (60 layers: a second).
    stash_planner(sequential<T, D>& net, const shape& in) : net_(net), in_(in), size_(net.size()) {
        shape s = in;
        for (int i = 0; i < size_; ++i) {
            shapes_.push_back(s);
            costs_.push_back(net[i].cost(s));
            s = net[i].output_shape(s);
        }
    }

    stash_plan keep_plan() const { return plan_of({}); }

    stash_plan sqrt_plan() const {
        const int pieces = std::max(1, static_cast<int>(std::lround(std::sqrt(size_))));
        double total = 0;
        for (int i = 0; i < size_; ++i) total += left_by(i);
        std::vector<segment> segments;
        double so_far = 0;
        int begin = 0;
        for (int i = 0; i < size_ && static_cast<int>(segments.size()) + 1 < pieces; ++i) {
            so_far += left_by(i);
            if (so_far < total * static_cast<double>(segments.size() + 1) / pieces) continue;
            segments.push_back({begin, i + 1});
            begin = i + 1;
        }
        const stash_plan cut = plan_of(segments), keep = keep_plan();
        return cut.predicted_peak < keep.predicted_peak ? cut : keep;  // a chain whose peak is one layer gains nothing
    }

    stash_plan smallest_plan() {
        play_all();
        std::vector<index_t> peak_from(static_cast<std::size_t>(size_) + 1, 0);
        for (int i = size_; i-- > 0;) {
            index_t& best = peak_from[static_cast<std::size_t>(i)];
            best = std::numeric_limits<index_t>::max();
            for_each_option(i, [&](int end, bool, const range_use& use, double) {
                best = std::min(best, std::max(use.peak, use.kept + peak_from[static_cast<std::size_t>(end)]));
            });
        }
        return cheapest_plan(peak_from[0]);
    }

    /// Throws if no plan stays within `budget` bytes, naming the smallest peak that is possible.
    stash_plan cheapest_plan(index_t budget) {
        play_all();
        struct state {
            index_t kept;
            double work;
            int from, choice;  // the state before, and its number there
            bool recomputes;
        };
        std::vector<std::vector<state>> at(static_cast<std::size_t>(size_) + 1);
        at[0].push_back({0, 0, -1, -1, false});
        for (int i = 0; i < size_; ++i) {
            auto& states = at[static_cast<std::size_t>(i)];
            // Keep the states that no other beats: with growing bytes, work must fall.
            std::sort(states.begin(), states.end(), [](const state& a, const state& b) {
                return a.kept != b.kept ? a.kept < b.kept : a.work < b.work;
            });
            double least = std::numeric_limits<double>::infinity();
            std::erase_if(states, [&](const state& s) { return s.work >= least ? true : (least = s.work, false); });
            for (int choice = 0; choice < static_cast<int>(states.size()); ++choice) {
                const state s = states[static_cast<std::size_t>(choice)];
                for_each_option(i, [&](int end, bool recompute, const range_use& use, double work) {
                    if (s.kept + use.peak <= budget)
                        at[static_cast<std::size_t>(end)].push_back(
                            {s.kept + use.kept, s.work + work, i, choice, recompute});
                });
            }
        }
        const auto& ends = at.back();
        if (ends.empty())
            fail("recomputation plan: no way to stay within ", budget, " bytes of activations for input ", in_,
                 "; the smallest peak is ", smallest_plan().predicted_peak);
        const state* s = &*std::min_element(ends.begin(), ends.end(),
                                            [](const state& a, const state& b) { return a.work < b.work; });
        std::vector<segment> segments;
        for (int end = size_; end > 0;) {
            if (s->recomputes) segments.insert(segments.begin(), segment{s->from, end});
            end = s->from;
            s = &at[static_cast<std::size_t>(end)][static_cast<std::size_t>(s->choice)];
        }
        return plan_of(segments);
    }

private:
    using range_use = typename memory_model<T, D>::range_use;

    // Bytes that layer i saves if it is kept.
    double left_by(int i) const {
        const layer_cost& c = costs_[static_cast<std::size_t>(i)];
        return static_cast<double>(c.saved_bytes +
                                   (c.saves_input ? block_bytes<T>(shapes_[static_cast<std::size_t>(i)]) : 0));
    }

    // Rough time of running layer i forward again, in operations: a byte takes as long as ten.
    double work_of(int i) const {
        const phase_cost& c = costs_[static_cast<std::size_t>(i)].forward;
        return c.flops + 10 * c.bytes;
    }

    void play_all() {
        if (!recomputed_.empty()) return;
        const std::vector<segment> before = net_.recomputed();
        net_.recompute({});
        for (int i = 0; i < size_; ++i) {
            const shape& s = shapes_[static_cast<std::size_t>(i)];
            kept_.push_back(memory_model<T, D>::play(net_, i, i + 1, s, false));
            auto& row = recomputed_.emplace_back();
            for (int end = i + 1; end <= size_; ++end) row.push_back(memory_model<T, D>::play(net_, i, end, s, true));
        }
        net_.recompute(before);
    }

    // Calls visit(end, recompute, use, work) for each segment that can start at layer i.
    template <class Visit>
    void for_each_option(int i, Visit&& visit) const {
        visit(i + 1, false, kept_[static_cast<std::size_t>(i)], 0.0);
        double work = 0;
        for (int end = i + 1; end <= size_; ++end) {
            work += work_of(end - 1);
            visit(end, true, recomputed_[static_cast<std::size_t>(i)][static_cast<std::size_t>(end - i - 1)], work);
        }
    }

    stash_plan plan_of(const std::vector<segment>& segments) const {
        stash_plan plan;
        for (int i = 0; i < size_; ++i) plan.layers.push_back({net_.name(i), stash::keep, -1});
        for (std::size_t number = 0; number < segments.size(); ++number)
            for (int i = segments[number].begin; i < segments[number].end; ++i) {
                plan.layers[static_cast<std::size_t>(i)].what = stash::recompute;
                plan.layers[static_cast<std::size_t>(i)].segment = static_cast<int>(number);
                plan.recomputed_flops += costs_[static_cast<std::size_t>(i)].forward.flops;
            }
        const std::vector<segment> before = net_.recomputed();
        net_.recompute(segments);
        plan.predicted_peak = predicted_peak(net_, in_);
        net_.recompute(before);
        return plan;
    }

    sequential<T, D>& net_;
    shape in_;
    int size_;
    std::vector<shape> shapes_;
    std::vector<layer_cost> costs_;
    std::vector<range_use> kept_;
    std::vector<std::vector<range_use>> recomputed_;
};

/// Everything is kept.
template <class T, Device D>
stash_plan keep_plan(sequential<T, D>& net, const shape& in) {
    return stash_planner<T, D>(net, in).keep_plan();
}

/// About √L segments of equal size.
template <class T, Device D>
stash_plan sqrt_plan(sequential<T, D>& net, const shape& in) {
    return stash_planner<T, D>(net, in).sqrt_plan();
}

/// The smallest peak of activation bytes.
template <class T, Device D>
stash_plan smallest_plan(sequential<T, D>& net, const shape& in) {
    return stash_planner<T, D>(net, in).smallest_plan();
}

/// The least recomputation within `budget` bytes of activations. Throws if that is impossible.
template <class T, Device D>
stash_plan cheapest_plan(sequential<T, D>& net, const shape& in, index_t budget) {
    return stash_planner<T, D>(net, in).cheapest_plan(budget);
}

}  // namespace cairn
