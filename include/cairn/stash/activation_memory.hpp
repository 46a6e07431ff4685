#pragma once
// Activations packed while a model trains: the packer's codecs, from bounds that follow the gradients. An audit is
// forward and backward of a few samples, three times, at the weights of now, parameters untouched:
//   A, B   nothing is packed: gradients g_A and g_B of two parts of the batch, statistics of output gradients (of A)
//   P      of A's samples, packed as in training: added(W) = ‖g_P − g_A‖²
// Then each bound is set anew (place_bounds.hpp). The first audit has no P before it has bounds: it takes A and B, sets
// bounds, and runs P to check them. A plan (plan.hpp) says which layers are packed; without one all are.

#include <cairn/core/arena.hpp>
#include <cairn/stash/activation_packer.hpp>
#include <cairn/stash/bounded_codec.hpp>
#include <cairn/stash/place_bounds.hpp>
#include <cairn/stash/plan.hpp>
#include <cairn/stash/simple_codecs.hpp>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace cairn {

/// Whether activations of T are packed: the codecs take float.
template <class T>
inline constexpr bool packs_activations = std::same_as<T, float>;

/// Result of an audit.
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

/// State from which a resumed run goes on with the same bounds and plan.
struct activation_state {
    bool first = true;                              // before the first audit
    std::int64_t next = 0, wait = 0;                // audits: at which step, and how many steps after the last one
    std::map<std::uint64_t, gradient_noise> noise;  // by the path of a weight
    std::vector<bounded_place> places;
    stash_plan plan;  // without layers: none
};

/// See the top of the file.
template <Device D = cpu>
class compressed_activations {
public:
    struct config {
        bound_config bounds;
        bool huffman = true;
        std::int64_t first_interval = 20, interval = 200;  // steps between audits: doubles from the first to the second
        /// In place of error bounds: the codec of all activations.
        std::shared_ptr<const activation_codec<D>> one_codec;
        bool plans = false;  // whether a plan chooses for each layer (train/plan_activations.hpp)
    };

    /// The codecs of a plan, by number.
    enum codec_number { bounded, bf16, codec_numbers };

    compressed_activations(config c, arena<float, D>& weights)
        : config_(std::move(c)), weights_(weights), packer_(names(weights)), bounds_(config_.bounds, weights) {}

    activation_packer<D>& packer() { return packer_; }
    bool plans() const { return config_.plans; }
    bool due(std::int64_t step) const { return step >= next_; }
    const audit_report& last() const { return report_; }
    const std::optional<stash_plan>& plan() const { return plan_; }

    /// The passes of an audit; `run(part, listener)` runs part 0 or 1 forward and backward into the arena's gradients,
    /// which are zero before and left as they are. `recompute(on)`: whether the plan's segments are recomputed.
    template <class Run>
    const audit_report& audit(
        Run&& run, const std::function<void(bool)>& recompute = [](bool) {}) {
        output_gradients<D> heard;
        recompute(false);
        packer_.observe(true);
        const std::vector<float> a = gradients_of([&] { run(0, &heard); });
        packer_.observe(false);
        packer_.keep_all(true);
        const std::vector<float> b = gradients_of([&] { run(1, nullptr); });
        packer_.keep_all(false);
        recompute(true);
        bounds_.learn(packer_, heard);
        bounds_.measure_own(a, b);
        if (first_) set_bounds(heard);
        const std::vector<float> packed = gradients_of([&] { run(0, nullptr); });
        bounds_.measure_added(a, packed);
        write_report(heard);
        bounds_.correct(heard, [&](const bounded_place& p) { return codec_of(p) == bounded; });
        set_bounds(heard);
        first_ = false;
        return report_;
    }

    /// The next audit: sooner where the last one found bounds too loose, on whichever rank.
    void schedule_after(std::int64_t step) {
        wait_ = wait_ == 0            ? config_.first_interval
                : bounds_.loose() > 0 ? std::max(config_.first_interval, wait_ / 2)
                                      : std::min(2 * wait_, config_.interval);
        next_ = step + wait_;
    }

    /// What the last pass was found to do by its one codec, for each of the chain's layers, in bytes and seconds.
    std::vector<packing_cost> costs_of_last_pass(int layers) {
        std::vector<packing_cost> all(static_cast<std::size_t>(layers));
        for (const bounded_place& p : bounds_.places()) {
            if (p.segment >= 0 || !p.first_of_block || p.at.layer < 0) continue;
            const auto record = packer_.record(p.at);
            if (record.packed_bytes == 0) continue;
            packing_cost& c = all[static_cast<std::size_t>(p.at.layer)];
            c.kept += double(record.kept_bytes);
            c.packed += double(record.packed_bytes);
            c.work += record.seconds;
        }
        return all;
    }

    /// Every layer by this codec until the next plan.
    void pack_all_by(codec_number codec) {
        plan_.reset();
        everything_by_ = codec;
        give_codecs();
    }

    /// The chain's layers are packed as the plan says. Recomputing is the chain's own business: apply(chain, plan).
    void follow(stash_plan plan) {
        plan_ = std::move(plan);
        set_segments();
        give_codecs();
    }

    /// In a line; empty without a plan.
    std::string describe_plan() const {
        if (!plan_) return {};
        std::map<std::string, int> layers;
        for (const stash_plan::entry& e : plan_->layers) {
            const std::string by = e.codec == bounded ? " by error bounds" : e.codec == bf16 ? " to bfloat16" : "";
            ++layers[e.what == stash::keep   ? "kept"
                     : e.what == stash::pack ? "packed" + by
                     : e.codec < 0           ? "recomputed"
                                             : "recomputed from inputs packed" + by];
        }
        std::string text;
        for (const auto& [what, n] : layers)
            text += concat(text.empty() ? "" : ", ", n, n == 1 ? " layer " : " layers ", what);
        return concat(text, "; predicted peak of memory ", plan_->predicted_peak / (1 << 20), " MiB");
    }

    /// For experiments: makes each bound `factor` times as large until the next audit.
    void loosen(double factor) {
        for (bounded_place& p : bounds_.places()) p.bound *= factor;
        give_codecs();
    }

    activation_state state() const {
        return {first_, next_, wait_, bounds_.noise(), bounds_.places(), plan_.value_or(stash_plan{})};
    }
    void restore(activation_state s) {
        first_ = s.first;
        next_ = s.next;
        wait_ = s.wait;
        bounds_.restore(std::move(s.noise), std::move(s.places));
        if (!s.plan.layers.empty()) plan_ = std::move(s.plan);
        set_segments();
        give_codecs();
    }

private:
    static std::map<std::uint64_t, std::string> names(const arena<float, D>& weights) {
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
        std::vector<float> copy(static_cast<std::size_t>(weights_.grads().size()));
        D::copy_to_host(copy.data(), weights_.grads().data(), weights_.grads().bytes());
        weights_.zero_grad();
        return copy;
    }

    void set_bounds(const output_gradients<D>& heard) {
        bounds_.set(heard);
        give_codecs();
    }

    void set_segments() { bounds_.set_segments(segments_of(plan_.value_or(stash_plan{}))); }

    // The plan's decision for a place: packed or kept, or recomputed with its layer.
    stash_plan::entry rule_of(const bounded_place& p) const {
        if (!plan_) return {.what = stash::pack, .codec = everything_by_};
        const auto layer = static_cast<std::size_t>(p.segment >= 0 ? p.segment : p.at.layer);
        if (layer >= plan_->layers.size()) return {};
        stash_plan::entry e = plan_->layers[layer];
        if (p.segment >= 0) e.what = e.codec >= 0 ? stash::pack : stash::keep;
        return e;
    }
    int codec_of(const bounded_place& p) const {
        const stash_plan::entry e = rule_of(p);
        return e.what == stash::pack ? e.codec : -1;
    }

    void give_codecs() {
        packer_.keep_everything();
        for (const bounded_place& p : bounds_.places()) {
            const int number = codec_of(p);
            if (number < 0) continue;
            std::shared_ptr<const activation_codec<D>> codec = config_.one_codec;
            if (!codec && number == bf16) codec = std::make_shared<bf16_codec<D>>();
            if (!codec && p.bound > 0)
                codec = std::make_shared<bounded_codec<D>>(bounded_codec_config{
                    .bound = static_cast<float>(p.bound),
                    .masked_bound = p.normalised && p.weight_path && p.masked
                                        ? static_cast<float>(std::max(p.bound, config_.bounds.masked_bound))
                                        : 0.0f,
                    .normalise = p.normalised,
                    .huffman = config_.huffman});
            if (codec) packer_.set(p.at, std::move(codec), p.masked);
        }
    }

    void write_report(const output_gradients<D>& heard) {
        report_ = audit_report();
        report_.added_share = bounds_.added_share();
        report_.loose = bounds_.loose();
        for (const bounded_place& p : bounds_.places()) {
            const auto record = packer_.record(p.at);
            const stash what = rule_of(p).what;
            const bool packed = what == stash::pack && record.packed_bytes > 0;
            const double kept = double(record.kept_bytes), left = packed ? double(record.packed_bytes) : kept;
            if (p.first_of_block && p.segment < 0) report_.kept_bytes += kept;
            if (p.first_of_block && what != stash::recompute) report_.packed_bytes += left;
            audit_report::entry e{.layer = p.layer, .bound = p.bound, .ratio = left > 0 ? kept / left : 1};
            if (const gradient_noise* const n = bounds_.noise_of(p)) {
                e.predicted = std::sqrt(bounds_.predicted(p, heard) / bounds_.elements(p));
                e.measured = std::sqrt(n->added / bounds_.elements(p));
                e.added_share = n->own > 0 ? n->added / n->own : 0;
            }
            report_.layers.push_back(e);
        }
    }

    config config_;
    arena<float, D>& weights_;
    activation_packer<D> packer_;
    place_bounds<D> bounds_;
    std::optional<stash_plan> plan_;
    int everything_by_ = bounded;  // without a plan
    audit_report report_;
    bool first_ = true;
    std::int64_t next_ = 0, wait_ = 0;
};

}  // namespace cairn
