#pragma once
// Which layers keep what backward needs, which are recomputed from the input of their segment, and which have it
// packed: data, made from shapes, and for packing from what codecs were measured to do.
//   keep_plan      keep everything
//   sqrt_plan      about √L segments that leave equally much (Chen et al. 2016, "Training deep nets with sublinear
//                  memory cost"); the last one is kept, it would be recomputed at once
//   cheapest_plan  the least time, of recomputing and of packing, whose peak of activation bytes stays within a budget
//   smallest_plan  the smallest peak, and the least time that reaches it
// The last two are exact over all ways to cut the chain, given what each segment keeps and needs
// (stash/memory_model.hpp):
//   peak from layer i on   g(i) = min over j of max(need(i, j), kept(i, j) + g(j)),   j: where the segment from i ends
//   and for a budget, the states (kept so far, work so far) at each cut that no other state beats in both

#include <cairn/stash/memory_model.hpp>

#include <limits>
#include <ostream>
#include <span>

namespace cairn {

/// Treatment of the tensors that a layer leaves for backward.
enum class stash { keep, recompute, pack };

/// One decision for each layer of a chain.
struct stash_plan {
    struct entry {
        std::string layer;
        stash what = stash::keep;
        int segment = -1;  // layers recomputed together have the same number; -1: kept
        int codec = -1;    // of what a layer leaves, or of the segment's input, by its number; -1: as it is
    };
    std::vector<entry> layers;
    index_t predicted_peak = 0;   // activation bytes of a training step
    double recomputed_flops = 0;  // of one step
    double added_work = 0;        // time of recomputing and packing, in the planner's units
};

/// Bytes and seconds of one codec on one layer's saved tensors, in a step.
struct packing_cost {
    double kept = 0, packed = 0;  // bytes
    double work = 0;              // time to pack and unpack, in the planner's units: of an operation
    double share() const { return kept > 0 ? packed / kept : 1; }
};

/// By layer of the chain, then by codec.
using packing_costs = std::vector<std::vector<packing_cost>>;

/// Prints one line a segment: "recompute 3: layer1/0 to layer1/2".
inline std::ostream& operator<<(std::ostream& out, const stash_plan& plan) {
    const auto& l = plan.layers;
    for (std::size_t i = 0; i < l.size();) {
        std::size_t end = i + 1;
        while (end < l.size() && l[end].segment == l[i].segment && l[end].what == l[i].what &&
               l[end].codec == l[i].codec)
            ++end;
        out << (l[i].what == stash::keep ? "keep" : l[i].what == stash::pack ? "pack" : "recompute ");
        if (l[i].what == stash::recompute) out << l[i].segment;
        if (l[i].codec >= 0) out << " by codec " << l[i].codec;
        out << ": " << l[i].layer;
        if (end > i + 1) out << " to " << l[end - 1].layer;
        out << '\n';
        i = end;
    }
    return out << "predicted peak of activations " << plan.predicted_peak << " bytes, recomputed "
               << plan.recomputed_flops / 1e9 << " Gflop\n";
}

/// The layers [begin, end) of each segment that is recomputed, in order.
inline std::vector<std::pair<int, int>> segments_of(const stash_plan& plan) {
    std::vector<std::pair<int, int>> segments;
    int number = -1;
    for (int i = 0; i < static_cast<int>(plan.layers.size()); ++i) {
        const stash_plan::entry& e = plan.layers[static_cast<std::size_t>(i)];
        if (e.what != stash::recompute) continue;
        if (!segments.empty() && segments.back().second == i && e.segment == number)
            segments.back().second = i + 1;
        else
            segments.emplace_back(i, i + 1);
        number = e.segment;
    }
    return segments;
}

/// Makes `net` follow `plan`. Throws if the plan is for another chain.
template <class T, Device D>
void apply(sequential<T, D>& net, const stash_plan& plan) {
    require(static_cast<int>(plan.layers.size()) == net.size(), "recomputation plan for ", plan.layers.size(),
            " layers, the chain has ", net.size());
    for (int i = 0; i < net.size(); ++i) {
        const std::string& layer = plan.layers[static_cast<std::size_t>(i)].layer;
        require(layer == net.name(i), "recomputation plan: layer ", i, " is called ", net.name(i), ", the plan says ",
                layer);
    }
    std::vector<typename sequential<T, D>::segment> segments;
    for (const auto& [begin, end] : segments_of(plan)) segments.push_back({begin, end});
    net.recompute(std::move(segments));
}

/// Makes plans for one chain and one input shape.
template <class T = float, Device D = cpu>
class stash_planner {
public:
    using segment = typename sequential<T, D>::segment;

    /// Plays each segment that is possible: time grows with the cube of the number of layers (60 layers: a second).
    /// `packing`: of each layer, or empty; an input of a segment is packed as what its first layer leaves.
    stash_planner(sequential<T, D>& net, const shape& in, packing_costs packing = {})
        : net_(net), in_(in), size_(net.size()), packing_(std::move(packing)) {
        shape s = in;
        for (int i = 0; i < size_; ++i) {
            shapes_.push_back(s);
            costs_.push_back(net[i].cost(s));
            s = net[i].output_shape(s);
        }
    }

    stash_plan keep_plan() const { return plan_of({}); }

    stash_plan sqrt_plan() const {
        const int parts = std::max(1, static_cast<int>(std::lround(std::sqrt(size_))));
        double total = 0;
        for (int i = 0; i < size_; ++i) total += left_by(i);
        std::vector<piece> pieces;
        double so_far = 0;
        int begin = 0;
        for (int i = 0; i < size_ && static_cast<int>(pieces.size()) + 1 < parts; ++i) {
            so_far += left_by(i);
            if (so_far < total * static_cast<double>(pieces.size() + 1) / parts) continue;
            pieces.push_back({begin, i + 1, {stash::recompute, -1}});
            begin = i + 1;
        }
        const stash_plan cut = plan_of(pieces), keep = keep_plan();
        return cut.predicted_peak < keep.predicted_peak ? cut : keep;  // a chain whose peak is one layer gains nothing
    }

    stash_plan smallest_plan() { return cheapest_plan(smallest_peak()); }

    /// Of all plans, the smallest peak of activation bytes.
    index_t smallest_peak() {
        play_all();
        std::vector<index_t> peak_from(static_cast<std::size_t>(size_) + 1, 0);
        for (int i = size_; i-- > 0;) {
            index_t& best = peak_from[static_cast<std::size_t>(i)];
            best = std::numeric_limits<index_t>::max();
            for_each_option(i, [&](int end, option, const range_use& use, double) {
                best = std::min(best, std::max(use.peak, use.kept + peak_from[static_cast<std::size_t>(end)]));
            });
        }
        return peak_from[0];
    }

    /// Throws if no plan stays within `budget` bytes, naming the smallest peak that is possible.
    stash_plan cheapest_plan(index_t budget) {
        play_all();
        struct state {
            index_t kept, peak;
            double work;
            int from, before;  // the state before, and its number there
            option how;
        };
        std::vector<std::vector<state>> at(static_cast<std::size_t>(size_) + 1);
        at[0].push_back({0, 0, 0, -1, -1, {}});
        for (int i = 0; i < size_; ++i) {
            auto& states = at[static_cast<std::size_t>(i)];
            // Keep the states that no other beats: with growing bytes, work must fall.
            std::sort(states.begin(), states.end(), [](const state& a, const state& b) {
                return a.kept != b.kept ? a.kept < b.kept : a.work < b.work;
            });
            double least = std::numeric_limits<double>::infinity();
            std::erase_if(states, [&](const state& s) { return s.work >= least ? true : (least = s.work, false); });
            thin_out(states);
            for (int number = 0; number < static_cast<int>(states.size()); ++number) {
                const state s = states[static_cast<std::size_t>(number)];
                for_each_option(i, [&](int end, option how, const range_use& use, double work) {
                    if (s.kept + use.peak <= budget)
                        at[static_cast<std::size_t>(end)].push_back(
                            {s.kept + use.kept, std::max(s.peak, s.kept + use.peak), s.work + work, i, number, how});
                });
            }
        }
        const auto& ends = at.back();
        if (ends.empty())
            fail("recomputation plan: no way to stay within ", budget, " bytes of activations for input ", in_,
                 "; the smallest peak is ", smallest_plan().predicted_peak);
        const state* s = &*std::min_element(ends.begin(), ends.end(),
                                            [](const state& a, const state& b) { return a.work < b.work; });
        std::vector<piece> pieces;
        const state& whole = *s;
        for (int end = size_; end > 0;) {
            pieces.insert(pieces.begin(), {s->from, end, s->how});
            end = s->from;
            s = &at[static_cast<std::size_t>(end)][static_cast<std::size_t>(s->before)];
        }
        stash_plan plan = plan_of(pieces);
        plan.added_work = whole.work;
        if (!packing_.empty()) plan.predicted_peak = whole.peak;
        return plan;
    }

    /// Rough time of one forward and backward of the chain, in operations.
    double work_of_step() const {
        double all = 0;
        for (const layer_cost& c : costs_) all += work(c.forward) + work(c.backward_input) + work(c.backward_weight);
        return all;
    }

private:
    using range_use = typename memory_model<T, D>::range_use;

    struct option {
        stash what = stash::keep;
        int codec = -1;
    };
    struct piece {
        int begin, end;
        option how;
    };

    // Of very many states, which packing makes, those with the least bytes of groups of like work.
    template <class State>
    static void thin_out(std::vector<State>& states) {
        constexpr std::size_t most = 2000;
        if (states.size() <= most) return;
        for (std::size_t i = 0; i < most; ++i) states[i] = states[i * (states.size() - 1) / (most - 1)];
        states.resize(most);
    }

    // Bytes that layer i saves if it is kept.
    double left_by(int i) const {
        const layer_cost& c = costs_[static_cast<std::size_t>(i)];
        return static_cast<double>(c.saved_bytes +
                                   (c.saves_input ? block_bytes<T>(shapes_[static_cast<std::size_t>(i)]) : 0));
    }

    // Rough time, in operations: a byte takes as long as ten.
    static double work(const phase_cost& c) { return c.flops + 10 * c.bytes; }

    void play_all() {
        if (!recomputed_.empty()) return;
        const std::vector<segment> before = net_.recomputed();
        net_.recompute({});
        for (int i = 0; i < size_; ++i) {
            const shape& s = shapes_[static_cast<std::size_t>(i)];
            kept_.push_back(memory_model<T, D>::play(net_, i, i + 1, s, false));
            auto& packed = packed_.emplace_back();
            for (const packing_cost& c : packing_of(i)) packed.push_back(play_packed(i, c));
            auto& row = recomputed_.emplace_back();
            for (int end = i + 1; end <= size_; ++end) row.push_back(memory_model<T, D>::play(net_, i, end, s, true));
        }
        net_.recompute(before);
    }

    std::span<const packing_cost> packing_of(int i) const {
        if (packing_.empty()) return {};
        return packing_[static_cast<std::size_t>(i)];
    }

    // The model knows which blocks are inputs and outputs of layers, the measurement what else can be packed.
    range_use play_packed(int i, const packing_cost& c) const {
        const range_use& kept = kept_[static_cast<std::size_t>(i)];
        range_use use =
            memory_model<T, D>::play(net_, i, i + 1, shapes_[static_cast<std::size_t>(i)], false, c.share());
        const index_t left = std::max<index_t>(0, kept.kept - static_cast<index_t>(c.kept - c.packed));
        use.peak += std::max<index_t>(0, left - use.kept);
        use.kept = left;
        return use;
    }

    // Calls visit(end, how, use, work) for each way to go on from layer i: it alone, or a segment that starts with it.
    template <class Visit>
    void for_each_option(int i, Visit&& visit) const {
        const auto at = static_cast<std::size_t>(i);
        const auto packing = packing_of(i);
        visit(i + 1, option{}, kept_[at], 0.0);
        for (std::size_t c = 0; c < packing.size(); ++c)
            if (packing[c].kept > 0)
                visit(i + 1, option{stash::pack, static_cast<int>(c)}, packed_[at][c], packing[c].work);
        double again = 0;
        for (int end = i + 1; end <= size_; ++end) {
            again += work(costs_[static_cast<std::size_t>(end - 1)].forward);
            const range_use& use = recomputed_[at][static_cast<std::size_t>(end - i - 1)];
            visit(end, option{stash::recompute, -1}, use, again);
            for (std::size_t c = 0; c < packing.size() && i > 0; ++c) {  // not the batch
                if (packing[c].kept <= 0) continue;
                const auto in = static_cast<double>(block_bytes<T>(shapes_[at]));
                const auto left = static_cast<index_t>(in * packing[c].share());
                visit(end, option{stash::recompute, static_cast<int>(c)},
                      range_use{use.kept - std::min(use.kept, static_cast<index_t>(in)) + left, use.peak + left},
                      again + packing[c].work * in / packing[c].kept);
            }
        }
    }

    stash_plan plan_of(const std::vector<piece>& pieces) const {
        stash_plan plan;
        for (int i = 0; i < size_; ++i) plan.layers.push_back({net_.name(i), stash::keep, -1, -1});
        int number = 0;
        std::vector<segment> segments;
        for (const piece& p : pieces) {
            if (p.how.what == stash::recompute) segments.push_back({p.begin, p.end});
            for (int i = p.begin; i < p.end; ++i) {
                auto& entry = plan.layers[static_cast<std::size_t>(i)];
                entry.what = p.how.what;
                entry.codec = p.how.codec;
                if (p.how.what != stash::recompute) continue;
                entry.segment = number;
                plan.recomputed_flops += costs_[static_cast<std::size_t>(i)].forward.flops;
            }
            number += p.how.what == stash::recompute;
        }
        const std::vector<segment> before = net_.recomputed();
        net_.recompute(std::move(segments));
        plan.predicted_peak = predicted_peak(net_, in_);
        net_.recompute(before);
        return plan;
    }

    sequential<T, D>& net_;
    shape in_;
    int size_;
    std::vector<shape> shapes_;
    std::vector<layer_cost> costs_;
    packing_costs packing_;
    std::vector<range_use> kept_;
    std::vector<std::vector<range_use>> packed_, recomputed_;  // by codec; by the segment's length
};

}  // namespace cairn
