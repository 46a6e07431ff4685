#pragma once
// Activations packed while a model trains: the packer's codecs, from bounds that follow the gradients. What a trainer
// calls:
//   due(step)                 whether this step begins with an audit
//   begin(…), end_pass(…)     the audit's passes, see audit() in train/audit_activations.hpp
// An audit is forward and backward of a few samples, three times, at the weights of now, parameters untouched:
//   A, B   nothing is packed: gradients g_A and g_B of two parts of the batch, statistics of output gradients (of A)
//   P      of A's samples, packed as in training: added(W) = ‖g_P − g_A‖²
// Then each bound is set anew. The first audit has no P before it has bounds: it takes A and B, sets bounds, and runs
// P to check them.

#include <cairn/core/arena.hpp>
#include <cairn/stash/activation_bounds.hpp>
#include <cairn/stash/activation_packer.hpp>
#include <cairn/stash/bounded_codec.hpp>

#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

namespace cairn {

/// What an audit found.
struct audit_report {
    struct entry {
        std::string layer;
        double bound = 0;                    // of its input
        double predicted = 0, measured = 0;  // σ of a weight's gradient, root mean square
        double added_share = 0;              // added / SGD's own variance
        double ratio = 0;                    // bytes kept / packed
    };
    std::vector<entry> layers;
    double added_share = 0;  // of all weights
    double kept_bytes = 0, packed_bytes = 0;
    int loose = 0;  // weights whose bound was found too loose by more than half
};

/// See the top of the file.
class compressed_activations {
public:
    struct config {
        bound_config bounds;
        bool huffman = true;
        std::int64_t first_interval = 20, interval = 200;  // steps between audits: doubles from the first to the second
        /// In place of error bounds: the codec of all activations.
        std::shared_ptr<const activation_codec> one_codec;
    };

    compressed_activations(config c, arena<float>& weights) : config_(c), weights_(weights), packer_(names(weights)) {
        for (const auto& [name, p] : weights.parameters()) {
            const std::size_t end = name.rfind('/');
            if (end != std::string::npos && name.substr(end + 1) == "weight")
                weight_of_path_[path_hash(name.substr(0, end))] = p->id;
        }
    }

    activation_packer& packer() { return packer_; }
    bool due(std::int64_t step) const { return step >= next_; }
    const audit_report& last() const { return report_; }

    /// The passes of an audit; `run(part, listener)` runs part 0 or 1 forward and backward into the arena's gradients,
    /// which are zero before and left as they are.
    template <class Run>
    const audit_report& audit(std::int64_t step, Run&& run) {
        output_gradients heard;
        packer_.observe(true);
        const std::vector<float> a = gradients_of([&] { run(0, &heard); });
        packer_.observe(false);
        packer_.keep_all(true);
        const std::vector<float> b = gradients_of([&] { run(1, nullptr); });
        packer_.keep_all(false);
        if (places_.empty()) learn_places(heard);
        measure_own(a, b);
        if (first_) set_bounds(heard);
        const std::vector<float> packed = gradients_of([&] { run(0, nullptr); });
        measure_added(a, packed);
        write_report(heard);
        correct(heard);
        set_bounds(heard);
        wait_ = first_              ? config_.first_interval
                : report_.loose > 0 ? std::max(config_.first_interval, wait_ / 2)
                                    : std::min(2 * wait_, config_.interval);
        first_ = false;
        next_ = step + wait_;
        return report_;
    }

    /// For experiments: makes each bound `factor` times as large until the next audit.
    void loosen(double factor) {
        for (place_state& p : places_) p.bound *= factor;
        give_codecs();
    }

private:
    struct place_state {
        saved_place at;
        int weight = -1;   // of the layer; −1: it has none
        int charged = -1;  // without a weight: the one before it, in whose gradient its error ends up
        rows_kind kind = rows_kind::linear;
        double non_zero = 1, bound = 0, correction = 1;
        double scale = 1;  // without a weight: of the bound, as audits have corrected it
    };

    static std::map<std::uint64_t, std::string> names(const arena<float>& weights) {
        std::map<std::uint64_t, std::string> all;
        for (const auto& [name, p] : weights.parameters())
            if (const std::size_t end = name.rfind('/'); end != std::string::npos)
                all[path_hash(name.substr(0, end))] = name.substr(0, end);
        return all;
    }

    template <class Pass>
    std::vector<float> gradients_of(Pass&& pass) {
        weights_.zero_grad();
        pass();
        const auto g = weights_.grads().span();
        std::vector<float> copy(g.begin(), g.end());
        weights_.zero_grad();
        return copy;
    }

    const parameter<float>& parameter_of(int weight) const {
        return *weights_.parameters()[static_cast<std::size_t>(weight)].p;
    }
    double elements(int weight) const { return double(parameter_of(weight).shape.size()); }

    /// Sum over a weight's elements of f(index in the arena).
    template <class F>
    double over(int weight, F&& f) const {
        const parameter<float>& p = parameter_of(weight);
        const index_t first = p.grad.data() - weights_.grads().data();
        double sum = 0;
        for (index_t i = first; i < first + p.shape.size(); ++i) sum += f(static_cast<std::size_t>(i));
        return sum;
    }

    void learn_places(const output_gradients& heard) {
        int before = -1;
        for (const saved_place& at : packer_.places()) {
            place_state p{.at = at};
            const auto weight = weight_of_path_.find(at.path);
            if (weight != weight_of_path_.end() && heard.of_weight.contains(weight->second)) {
                p.weight = before = weight->second;
                p.kind = heard.of_weight.at(p.weight).kind;
            } else {
                p.charged = before;
            }
            places_.push_back(p);
        }
    }

    void measure_own(const std::vector<float>& a, const std::vector<float>& b) {
        for (const place_state& p : places_) {
            if (p.weight < 0) continue;
            gradient_noise& n = noise_[p.weight];
            const double now = over(p.weight, [&](std::size_t i) {
                const double d = double(a[i]) - double(b[i]);
                return d * d / 2;
            });
            n.own = n.own > 0 ? std::sqrt(n.own * std::max(now, 1e-300)) : now;  // few samples: smoothed
            n.mean_magnitude =
                over(p.weight, [&](std::size_t i) { return std::abs(double(a[i]) + double(b[i])) / 2; }) /
                elements(p.weight);
        }
    }

    void measure_added(const std::vector<float>& exact, const std::vector<float>& packed) {
        for (auto& [weight, n] : noise_)
            n.added = over(weight, [&](std::size_t i) {
                const double d = double(packed[i]) - double(exact[i]);
                return d * d;
            });
    }

    double predicted(const place_state& p, const output_gradients& heard) const {
        return predicted_variance(heard.of_weight.at(p.weight), p.bound,
                                  p.kind == rows_kind::norm_output ? 1 : p.non_zero);
    }

    void correct(const output_gradients& heard) {
        for (place_state& p : places_) {
            if (p.weight >= 0) {
                const double expected = predicted(p, heard), found = noise_[p.weight].added;
                if (expected > 0 && found > 0)
                    p.correction = std::clamp(std::sqrt(p.correction * found / expected), 0.5, 100.0);
            } else if (p.charged >= 0 && p.bound > 0) {
                const gradient_noise& n = noise_[p.charged];
                const double budget = config_.bounds.share * n.own;
                p.scale *= std::clamp(std::sqrt(budget / std::max(n.added, 1e-300)), 0.5, 1.5);
            }
        }
    }

    void set_bounds(const output_gradients& heard) {
        for (place_state& p : places_) {
            p.non_zero = packer_.record(p.at).non_zero;
            if (p.weight < 0) {
                p.bound = config_.bounds.pointwise * p.scale;
                continue;
            }
            const double bound = bound_of(config_.bounds, heard.of_weight.at(p.weight), noise_[p.weight],
                                          p.kind == rows_kind::norm_output ? 1 : p.non_zero, p.correction);
            p.bound = std::isfinite(bound) ? bound : 0;
            if (p.kind == rows_kind::norm_output) p.bound = std::min(p.bound, 1.0);
        }
        for (place_state& p : places_)  // a block that two slots hold has the smaller of their bounds
            for (place_state& q : places_)
                if (packer_.record(p.at).same_as == q.at && p.bound > 0) q.bound = p.bound = std::min(p.bound, q.bound);
        give_codecs();
    }

    void give_codecs() {
        for (const place_state& p : places_) {
            std::shared_ptr<const activation_codec> codec = config_.one_codec;
            const bool of_norm = p.kind == rows_kind::norm_output && p.weight >= 0;
            if (!codec && p.bound > 0)
                codec = std::make_shared<bounded_codec>(bounded_codec::config{
                    .bound = static_cast<float>(p.bound),
                    .masked_bound = of_norm && packer_.record(p.at).masked
                                        ? static_cast<float>(std::max(p.bound, config_.bounds.masked_bound))
                                        : 0.0f,
                    .normalise = of_norm || p.weight < 0,
                    .huffman = config_.huffman});
            packer_.set(p.at, codec);
        }
    }

    void write_report(const output_gradients& heard) {
        report_ = {};
        double added = 0, own = 0;
        for (const place_state& p : places_) {
            const auto& record = packer_.record(p.at);
            if (record.same_as == p.at) {
                report_.kept_bytes += double(record.kept_bytes);
                report_.packed_bytes += double(record.packed_bytes ? record.packed_bytes : record.kept_bytes);
            }
            const double ratio = record.packed_bytes ? double(record.kept_bytes) / double(record.packed_bytes) : 1;
            audit_report::entry e{.layer = packer_.name_of(p.at.path), .bound = p.bound, .ratio = ratio};
            if (p.weight >= 0) {
                const gradient_noise& n = noise_[p.weight];
                e.predicted = std::sqrt(predicted(p, heard) / elements(p.weight));
                e.measured = std::sqrt(n.added / elements(p.weight));
                e.added_share = n.own > 0 ? n.added / n.own : 0;
                added += n.added;
                own += n.own;
                report_.loose +=
                    config_.bounds.rule == bound_rule::variance && n.added > 1.5 * 1.5 * config_.bounds.share * n.own;
            }
            report_.layers.push_back(e);
        }
        report_.added_share = own > 0 ? added / own : 0;
    }

    config config_;
    arena<float>& weights_;
    activation_packer packer_;
    std::map<std::uint64_t, int> weight_of_path_;
    std::vector<place_state> places_;
    std::map<int, gradient_noise> noise_;
    audit_report report_;
    bool first_ = true;
    std::int64_t next_ = 0, wait_ = 0;
};

}  // namespace cairn
