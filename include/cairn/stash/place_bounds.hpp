#pragma once
// The bounds of all places where a model leaves activations, as audits of its gradients set them (activation_bounds.hpp
// has the rules, activation_memory.hpp the passes of an audit):
//   a place whose layer has a weight      eb by the rule for that weight; corrected by measured / predicted variance
//   without one (attention, gelu)         a share of the root mean square, adjusted until the variance of the weight
//                                         before, where its error ends up, is what the rule allows
//   the input of a recomputed segment     the bound of the first place in it, adjusted by the worst weight inside

#include <cairn/core/arena.hpp>
#include <cairn/stash/activation_bounds.hpp>
#include <cairn/stash/activation_packer.hpp>

#include <cmath>
#include <map>
#include <string>
#include <vector>

namespace cairn {

/// One place and its statistics.
struct bounded_place {
    saved_place at;
    std::string layer;               // whose slot it is, as far as it has a name
    std::uint64_t weight_path = 0;   // of the layer's weight, hashed; 0: it has none
    std::uint64_t charged_path = 0;  // of the weight whose gradient shows the error: its own, or the one before
    int segment = -1;                // of a segment's input: the segment's first layer, else −1
    bool normalised = false;         // a normalisation's input: bounds are in deviations
    bool masked = false;             // its layer leaves bits of an activation function
    bool first_of_block = true;      // no earlier place holds the same block
    double non_zero = 1, bound = 0, correction = 1, scale = 1;
};

/// See the top of the file.
template <Device D = cpu>
class place_bounds {
public:
    place_bounds(bound_config c, arena<float, D>& weights) : config_(c), weights_(weights) {
        for (const auto& [name, p] : weights.parameters()) {
            const std::size_t end = name.rfind('/');
            if (end == std::string::npos || name.substr(end + 1) != "weight") continue;
            path_of_weight_[p->id] = path_hash(name.substr(0, end));
            weight_of_path_[path_hash(name.substr(0, end))] = p->id;
        }
    }

    std::vector<bounded_place>& places() { return places_; }
    const std::vector<bounded_place>& places() const { return places_; }
    const gradient_noise* noise_of(const bounded_place& p) const {
        const auto found = noise_.find(p.weight_path);
        return found == noise_.end() ? nullptr : &found->second;
    }

    /// The places that a forward pass went by, with `heard` of its backward. What is known of them stays.
    void learn(const activation_packer<D>& packer, const output_gradients<D>& heard) {
        std::map<saved_place, bounded_place> before;
        std::vector<bounded_place> inputs;  // of segments
        for (const bounded_place& p : places_)
            if (p.segment < 0)
                before[p.at] = p;
            else
                inputs.push_back(p);
        places_.clear();
        std::uint64_t last = 0;
        for (const saved_place& at : packer.places()) {
            bounded_place p;
            if (const auto known = before.find(at); known != before.end()) p = known->second;
            const auto record = packer.record(at);
            p.at = at;
            p.layer = packer.name_of(at.path);
            p.masked = record.masked;
            p.non_zero = record.non_zero;
            p.first_of_block = record.same_as == at;
            const auto weight = weight_of_path_.find(at.path);
            if (weight != weight_of_path_.end() && heard.of_weight.contains(weight->second)) {
                p.weight_path = p.charged_path = last = at.path;
                p.normalised = heard.of_weight.at(weight->second).kind == rows_kind::norm_output;
            } else {
                p.weight_path = 0;
                p.charged_path = last;
                p.normalised = true;
            }
            places_.push_back(p);
        }
        places_.insert(places_.end(), inputs.begin(), inputs.end());
    }

    /// SGD's own noise, from the gradients of two batches of one size. Of few samples: smoothed over audits.
    void measure_own(const std::vector<float>& a, const std::vector<float>& b) {
        std::erase_if(noise_, [&](const auto& known) { return !weight_of_path_.contains(known.first); });  // of others
        for (const auto& [weight, path] : path_of_weight_) {
            gradient_noise& n = noise_[path];
            const double now = over(weight, [&](std::size_t i) {
                const double d = double(a[i]) - double(b[i]);
                return d * d / 2;
            });
            n.own = n.own > 0 ? std::sqrt(n.own * std::max(now, 1e-300)) : now;
            n.mean_magnitude = over(weight, [&](std::size_t i) { return std::abs(double(a[i]) + double(b[i])) / 2; }) /
                               elements(weight);
        }
    }

    /// Error that packing added, from exact and packed gradients of the same samples.
    void measure_added(const std::vector<float>& exact, const std::vector<float>& packed) {
        for (const auto& [weight, path] : path_of_weight_)
            noise_[path].added = over(weight, [&](std::size_t i) {
                const double d = double(packed[i]) - double(exact[i]);
                return d * d;
            });
    }

    /// Variance of a weight's gradient that the formula expects of its place.
    double predicted(const bounded_place& p, const output_gradients<D>& heard) const {
        return predicted_variance(heard.of_weight.at(weight_of_path_.at(p.weight_path)), p.bound,
                                  p.normalised ? 1 : p.non_zero);
    }
    double elements(const bounded_place& p) const { return elements(weight_of_path_.at(p.weight_path)); }

    /// From the last measurement; `in_use`: whether a place was packed in it.
    template <class InUse>
    void correct(const output_gradients<D>& heard, InUse&& in_use) {
        for (bounded_place& p : places_) {
            if (!in_use(p) || p.bound <= 0) continue;
            if (p.segment < 0 && p.weight_path) {
                const double expected = predicted(p, heard), found = noise_[p.weight_path].added;
                if (expected > 0 && found > 0)
                    p.correction = std::clamp(std::sqrt(p.correction * found / expected), 0.5, 100.0);
            } else if (const double worst = worst_share(p); worst > 0) {
                p.scale *= std::clamp(std::sqrt(config_.share / worst), 0.1, 2.0);
            }
        }
    }

    /// Sets every bound by the rule.
    void set(const output_gradients<D>& heard) {
        for (bounded_place& p : places_) {
            if (p.segment >= 0) continue;
            if (p.weight_path) {
                const double bound = bound_of(config_, heard.of_weight.at(weight_of_path_.at(p.weight_path)),
                                              noise_[p.weight_path], p.normalised ? 1 : p.non_zero, p.correction);
                p.bound = std::isfinite(bound) ? bound : 0;
                if (p.normalised) p.bound = std::min(p.bound, 1.0);
            } else {
                p.bound = config_.pointwise * p.scale;
            }
        }
        // A block that two slots hold has the smaller of their bounds.
        for (std::size_t i = 0, first = 0; i < places_.size(); ++i) {
            bounded_place &p = places_[i], &q = places_[first];
            if (p.segment >= 0) continue;
            if (p.first_of_block)
                first = i;
            else if (p.bound > 0 && p.normalised == q.normalised)
                q.bound = p.bound = std::min(p.bound, q.bound);
        }
        for (bounded_place& p : places_)
            if (p.segment >= 0) {
                const bounded_place* const first = first_in_layer(p.segment);
                p.normalised = !first || first->normalised;
                p.bound = (first && first->bound > 0 ? first->bound : config_.pointwise) * p.scale;
            }
    }

    /// The inputs of segments that begin at these layers of the outermost chain, ends behind them, are places too.
    void set_segments(const std::vector<std::pair<int, int>>& segments) {
        std::map<int, bounded_place> before;
        std::erase_if(places_, [&](const bounded_place& p) {
            if (p.segment >= 0) before[p.segment] = p;
            return p.segment >= 0;
        });
        segment_end_.clear();
        for (const auto& [begin, end] : segments) {
            bounded_place p;
            if (const auto known = before.find(begin); known != before.end()) p = known->second;
            p.at = {root_path, begin, -1};
            p.segment = begin;
            p.layer = concat("input of segment ", begin, " to ", end - 1);
            segment_end_[begin] = end;
            if (const bounded_place* const first = first_in_layer(begin); first && p.bound == 0) {
                p.normalised = first->normalised;
                p.bound = first->bound;
            }
            places_.push_back(p);
        }
    }

    /// Of all weights: variance added / SGD's own.
    double added_share() const {
        double added = 0, own = 0;
        for (const auto& [path, n] : noise_) added += n.added, own += n.own;
        return own > 0 ? added / own : 0;
    }
    /// Weights that packing adds more than half as much again to as the rule allows.
    int loose() const {
        int n = 0;
        if (config_.rule == bound_rule::variance)
            for (const auto& [path, noise] : noise_) n += noise.added > 1.5 * 1.5 * config_.share * noise.own;
        return n;
    }

    /// By the path of a weight. With the places, what the next audit and the codecs go on from.
    const std::map<std::uint64_t, gradient_noise>& noise() const { return noise_; }
    void restore(std::map<std::uint64_t, gradient_noise> noise, std::vector<bounded_place> places) {
        noise_ = std::move(noise);
        places_ = std::move(places);
    }

private:
    double elements(int weight) const { return double(parameter_of(weight).shape.size()); }
    const parameter<float, D>& parameter_of(int weight) const {
        return *weights_.parameters()[static_cast<std::size_t>(weight)].p;
    }

    /// Sum over a weight's elements of f(index in the arena).
    template <class F>
    double over(int weight, F&& f) const {
        const parameter<float, D>& p = parameter_of(weight);
        const index_t first = p.grad.data() - weights_.grads().data();
        double sum = 0;
        for (index_t i = first; i < first + p.shape.size(); ++i) sum += f(static_cast<std::size_t>(i));
        return sum;
    }

    const bounded_place* first_in_layer(int layer) const {
        for (const bounded_place& p : places_)
            if (p.segment < 0 && p.at.layer == layer) return &p;
        return nullptr;
    }

    // Of the weights that show the error of p: added / SGD's own, the largest.
    double worst_share(const bounded_place& p) const {
        double worst = 0;
        const auto look = [&](std::uint64_t path) {
            const auto n = noise_.find(path);
            if (n != noise_.end() && n->second.own > 0) worst = std::max(worst, n->second.added / n->second.own);
        };
        if (p.segment < 0) look(p.charged_path);
        for (const bounded_place& q : places_)
            if (p.segment >= 0 && q.weight_path && q.at.layer >= p.segment && q.at.layer < segment_end_.at(p.segment))
                look(q.weight_path);
        return worst;
    }

    bound_config config_;
    arena<float, D>& weights_;
    std::map<int, std::uint64_t> path_of_weight_;
    std::map<std::uint64_t, int> weight_of_path_;
    std::vector<bounded_place> places_;
    std::map<std::uint64_t, gradient_noise> noise_;  // by the weight's path
    std::map<int, int> segment_end_;
};

}  // namespace cairn
