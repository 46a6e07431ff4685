#pragma once
// The stash policy that packs activations between forward and backward (nn/saved_tensors.hpp): each place, a slot of a
// layer, by a codec of its own (codec.hpp).
//   put      the activation waits until no layer holds its block any more, as the skip of a residual block does, and
//            until its layer has left the bits of its activation function, where it has some
//   packed   once, whatever number of slots was given the block: when a later layer puts another, at the end of
//            forward, or when it is taken. So its values do not follow from when, and from what else is put
//   take     unpacked; by each slot's turn, once
// A block with another owner costs no memory while it waits; a block without one cannot be overwritten.

#include <cairn/core/clock.hpp>
#include <cairn/nn/saved_tensors.hpp>
#include <cairn/stash/codec.hpp>
#include <cairn/stash/zero_pattern.hpp>

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// See the top of the file.
template <Device D = cpu>
class activation_packer final : public stash_policy<float, D> {
public:
    using codec_pointer = std::shared_ptr<const activation_codec<D>>;

    /// Figures of a place after a forward pass.
    struct place_record {
        shape of;
        bool masked = false;       // its layer leaves bits of an activation function
        double non_zero = 1;       // share of elements that are not 0, at the last look
        saved_place same_as{};     // the first slot that was given this block; else itself
        index_t kept_bytes = 0;    // of the block
        index_t packed_bytes = 0;  // 0: it was not packed
        double seconds = 0;        // to pack and to unpack it, the last time
    };

    /// Paths as layers call them, for errors.
    explicit activation_packer(std::map<std::uint64_t, std::string> names = {}) : names_(std::move(names)) {}

    /// How activations of this place are packed; null: they are kept. `masked`: the layer leaves bits of an activation
    /// function behind it.
    void set(const saved_place& at, codec_pointer codec, bool masked = false) {
        rules_[at] = {std::move(codec), masked};
    }
    void keep_everything() { rules_.clear(); }
    void keep_all(bool on) { keep_all_ = on; }
    /// Whether a device is waited for before and after packing, so that place_record::seconds is what it took.
    void time_codecs(bool on) { timing_ = on; }
    /// Looks at activations (place_record) instead of packing them.
    void observe(bool on) {
        observing_ = on;
        seen_blocks_.clear();
        if (on) order_.clear();
    }
    /// Of the random numbers that codecs draw: those of an element follow from these, its layer's path, its slot and
    /// its number in the batch of all ranks, whatever ranks and micro-batches there are.
    void begin_step(std::uint64_t seed, std::uint32_t step) {
        seed_ = seed;
        step_ = step;
        masks_.clear();
    }

    /// Places in the order of the last forward that was looked at.
    const std::vector<saved_place>& places() const { return order_; }
    place_record record(const saved_place& at) const {
        const auto known = records_.find(at);
        return known == records_.end() ? place_record{} : known->second;
    }
    std::string name_of(std::uint64_t path) const {
        const auto at = names_.find(path);
        return at == names_.end() ? std::string("without parameters") : at->second;
    }

    std::shared_ptr<stashed_activation<float, D>> stash(const saved_place& at, tensor<float, D>& t) override {
        if (observing_) return look(at, t), nullptr;
        pack_ready();
        if (keep_all_) return nullptr;
        for (const auto& weak : waiting_)
            if (auto other = weak.lock(); other && other->holds(t)) return other;
        const auto rule = rules_.find(at);
        if (rule == rules_.end() || !rule->second.codec) return nullptr;
        auto entry = std::make_shared<waiting>(at, std::move(t), rule->second, *this);
        waiting_.push_back(entry);
        if (!rule->second.masked) pack_ready();
        return entry;
    }

    void saw_mask(const saved_place& at, const tensor<std::uint8_t, D>& bits) override {
        if (observing_) {
            for (auto& [place, record] : records_)
                if (place.path == at.path && bits.size() == simd::mask_bytes<float>(record.of.size()))
                    record.masked = true;
            return;
        }
        if (keep_all_) return;
        masks_.push_back(bits.share());
        if (masks_.size() > recent_masks) masks_.pop_front();
        for (const auto& weak : waiting_)
            if (const auto entry = weak.lock()) entry->saw_mask(at, bits);
        pack_ready();
    }

    void forward_ended() override { pack_ready(); }

private:
    static constexpr std::size_t recent_masks = 4;

    struct place_rule {
        codec_pointer codec;
        bool masked = false;
    };

    /// An activation on its way: as it was left, packed, or unpacked for several slots.
    class waiting final : public stashed_activation<float, D> {
    public:
        waiting(const saved_place& at, tensor<float, D> t, place_rule rule, activation_packer& packer)
            : at_(at), rule_(std::move(rule)), exact_(std::move(t)), packer_(packer), record_(packer.records_[at]) {}

        bool holds(const tensor<float, D>& t) const {
            return !exact_.get().empty() && exact_.get().data() == t.data() && exact_.get().size() == t.size();
        }
        void saw_mask(const saved_place& at, const tensor<std::uint8_t, D>& bits) {
            if (rule_.masked && mask_.empty() && at.path == at_.path && bits.size() == mask_bytes())
                mask_ = bits.share();
        }
        /// Packs it, unless a layer holds its block or its mask is still to come. Whether nothing is left to be packed.
        bool pack() {
            if (packed_ || restored_) return true;
            if (!exact_.get().unique() || (rule_.masked && mask_.empty())) return false;
            try {
                pack_by(hints());
            } catch (error& e) {
                e.add_context("activation of layer " + packer_.name_of(at_.path));
                throw;
            }
            return true;
        }
        tensor<float, D> restore(bool last) override {
            pack();
            restored_ = true;
            if (packed_) {
                const stopwatch watch = started();
                exact_ = detail::saved_tensor<float, D>(packed_->unpack());
                packed_.reset();
                record_.seconds += seconds(watch);
            }
            tensor<float, D> t = exact_.get().share();
            if (last) exact_ = detail::saved_tensor<float, D>(tensor<float, D>());
            return t;
        }

    private:
        index_t mask_bytes() const { return simd::mask_bytes<float>(exact_.get().size()); }
        pack_hints<D> hints() const {
            pack_hints<D> h{.random = stream_of_path(packer_.seed_, at_.path, "stash", packer_.step_)};
            h.random.seed += static_cast<std::uint64_t>(at_.slot);
            if (at_.samples.count > 0)
                h.first_element =
                    static_cast<std::uint64_t>(at_.samples.begin * (exact_.get().size() / at_.samples.count));
            if (rule_.masked) h.gradient_mask = &mask_;
            return h;
        }
        void pack_by(pack_hints<D> hints) {
            std::vector<const tensor<std::uint8_t, D>*> zeros;
            for (const auto& bits : packer_.masks_)
                if (bits.size() == mask_bytes()) zeros.push_back(&bits);
            hints.zero_masks = zeros;
            const stopwatch watch = started();
            packed_ = rule_.codec->pack(exact_.get(), hints);
            mask_.reset();
            record_.kept_bytes = exact_.get().bytes();
            exact_ = detail::saved_tensor<float, D>(tensor<float, D>());
            record_.packed_bytes = packed_->bytes();
            record_.seconds = seconds(watch);
        }
        stopwatch started() const {
            if (packer_.timing_) D::wait();
            return {};
        }
        double seconds(const stopwatch& since) const {
            if (packer_.timing_) D::wait();
            return since.seconds();
        }

        const saved_place at_;
        const place_rule rule_;
        detail::saved_tensor<float, D> exact_;
        tensor<std::uint8_t, D> mask_;  // of its layer's activation function, where the rule has one
        std::unique_ptr<packed_activation<D>> packed_;
        bool restored_ = false;
        activation_packer& packer_;
        place_record& record_;
    };

    void look(const saved_place& at, const tensor<float, D>& t) {
        place_record& record = records_[at];
        order_.push_back(at);
        record.of = t.shape();
        record.kept_bytes = t.bytes();
        record.non_zero = double(detail::zeros_of(t, {}).non_zero) / double(std::max<index_t>(1, t.size()));
        record.same_as = seen_blocks_.try_emplace(t.data(), at).first->second;
    }

    void pack_ready() {
        std::erase_if(waiting_, [](const std::weak_ptr<waiting>& weak) {
            const auto entry = weak.lock();
            return !entry || entry->pack();
        });
    }

    std::map<std::uint64_t, std::string> names_;
    std::map<saved_place, place_rule> rules_;
    std::map<saved_place, place_record>
        records_;  // entries stay where they are: activations on their way refer to them
    std::vector<saved_place> order_;
    std::map<const float*, saved_place> seen_blocks_;  // of one observed forward
    std::vector<std::weak_ptr<waiting>> waiting_;
    std::deque<tensor<std::uint8_t, D>> masks_;  // of late
    bool observing_ = false, keep_all_ = false, timing_ = false;
    std::uint64_t seed_ = 0;
    std::uint32_t step_ = 0;
};

}  // namespace cairn
