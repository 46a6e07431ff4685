#pragma once
// Tensors that forward saves for backward. `saved_tensors` is a tree: one node per layer, with children for the layers
// of a container. A layer puts a tensor into a numbered slot and takes it out in backward. In between the tensor is
// kept, recomputed, or packed by a stash policy (stash/); no layer can tell. Every micro-batch in flight has a tree.

#include <cairn/core/compiled.hpp>
#include <cairn/core/random.hpp>
#include <cairn/core/range.hpp>
#include <cairn/core/tensor.hpp>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace cairn {

namespace detail {

/// A tensor saved for backward: until it is taken, its memory counts as memory_category::saved.
template <class T, Device D>
class saved_tensor {
public:
    explicit saved_tensor(tensor<T, D> t) : t_(std::move(t)) { t_.hold(); }
    saved_tensor(saved_tensor&&) noexcept = default;
    saved_tensor& operator=(saved_tensor&& other) noexcept {
        t_.let_go();
        t_ = std::move(other.t_);
        return *this;
    }
    ~saved_tensor() { t_.let_go(); }
    const tensor<T, D>& get() const { return t_; }

private:
    tensor<T, D> t_;
};

}  // namespace detail

/// An activation between forward and backward, in any form. Slots with the same block share one.
template <class T, Device D = cpu>
struct stashed_activation {
    virtual ~stashed_activation() = default;
    /// The activation, exactly or approximately. `last`: no other slot will take it.
    virtual tensor<T, D> restore(bool last) = 0;
};

/// Place of a saved tensor: the layer's path in the whole model (core/random.hpp), the slot, and the index of the layer
/// in the outermost chain; −1: the chain's own, the input of a recomputed segment. `samples`: of the micro-batch within
/// the batch of all ranks; not part of the comparison; empty: not known.
struct saved_place {
    std::uint64_t path = root_path;
    int slot = 0;
    int layer = -1;
    range samples{};
    friend bool operator<(const saved_place& a, const saved_place& b) {
        return std::pair(a.path, a.slot) < std::pair(b.path, b.slot);
    }
    friend bool operator==(const saved_place& a, const saved_place& b) { return a.path == b.path && a.slot == b.slot; }
};

/// Policy for activations between forward and backward. Called by saved_tensors alone.
template <class T, Device D = cpu>
struct stash_policy {
    virtual ~stash_policy() = default;
    /// Takes an activation and returns its stand-in; or leaves it and returns null.
    virtual std::shared_ptr<stashed_activation<T, D>> stash(const saved_place& at, tensor<T, D>& t) = 0;
    /// Notifies of saved sign bits of an activation function, which stay as they are.
    virtual void saw_mask(const saved_place& at, const tensor<std::uint8_t, D>& bits) = 0;
    /// Notifies that a forward pass has ended: its layers hold no activation any more.
    virtual void forward_ended() {}
};

/// Saved tensors of one layer and one micro-batch, in numbered slots, and those of its children.
template <class T, Device D = cpu>
class saved_tensors {
public:
    template <class U>
    using kept = detail::saved_tensor<U, D>;
    using stashed = std::shared_ptr<stashed_activation<T, D>>;
    using entry = std::conditional_t<
        sizeof(T) < sizeof(float),  // statistics are kept in float
        std::variant<std::monostate, kept<T>, kept<std::int32_t>, kept<std::uint8_t>, stashed, kept<float>>,
        std::variant<std::monostate, kept<T>, kept<std::int32_t>, kept<std::uint8_t>, stashed>>;

    saved_tensors() = default;
    saved_tensors(saved_tensors&&) noexcept = default;
    saved_tensors& operator=(saved_tensors&&) noexcept = default;

    /// From now on `policy` decides, here and below; null: everything is kept. `at`: this node's layer and the samples.
    void follow(stash_policy<T, D>* policy, const saved_place& at = {}) {
        policy_ = policy;
        here_ = at;
    }
    /// Suspends the policy here and below, for tensors that are taken out soon, and returns it; or restores it.
    stash_policy<T, D>* follow_for_now(stash_policy<T, D>* policy) { return std::exchange(policy_, policy); }

    /// Saves a tensor in slot `slot`. Under a policy an activation of T may come back with small errors.
    template <class U>
    void put(int slot, tensor<U, D> t) {
        if (discarding_) return;
        if constexpr (std::same_as<U, T>) {
            if (policy_ && !t.empty())
                if (stashed s = policy_->stash(place(slot), t)) return void(at(slot) = std::move(s));
        }
        const tensor<U, D>& left = std::get<kept<U>>(at(slot) = kept<U>(std::move(t))).get();
        if constexpr (std::same_as<U, std::uint8_t>)
            if (policy_) policy_->saw_mask(place(slot), left);
    }

    /// The same, exactly: for statistics and gradients.
    template <class U>
    void put_exact(int slot, tensor<U, D> t) {
        if (!discarding_) at(slot) = kept<U>(std::move(t));
    }

    bool has(int slot) const {
        return static_cast<std::size_t>(slot) < entries_.size() &&
               entries_[static_cast<std::size_t>(slot)].index() != 0;
    }

    /// The tensor in slot `slot`. Throws if backward runs without its forward.
    template <class U = T>
    const tensor<U, D>& get(int slot) {
        require(has(slot), "backward: no saved tensor in slot ", slot,
                " (was forward run in training mode with these saved tensors?)");
        entry& e = at(slot);
        if constexpr (std::same_as<U, T>)
            if (stashed* s = std::get_if<stashed>(&e)) e = kept<T>((*s)->restore(s->use_count() == 1));
        return std::get<kept<U>>(e).get();
    }

    /// Takes the tensor out of slot `slot`.
    template <class U = T>
    tensor<U, D> take(int slot) {
        tensor<U, D> t = get<U>(slot).share();
        entries_[static_cast<std::size_t>(slot)] = std::monostate{};
        return t;
    }

    /// The saved tensors of child `i` of a container. `name`: its name in parameters' paths; empty: it has none there.
    /// References stay valid while more children are added.
    saved_tensors& child(int i, std::string_view name) {
        saved_tensors& c = child(i);
        saved_place there = here_;
        if (there.layer < 0 && there.path == root_path) there.layer = i;
        if (!name.empty()) there.path = child_path(there.path, name);
        c.follow(policy_, there);
        return c;
    }
    saved_tensors& child(int i) {
        while (children_.size() <= static_cast<std::size_t>(i)) children_.emplace_back();
        saved_tensors& c = children_[static_cast<std::size_t>(i)];
        c.discarding_ = discarding_;
        return c;
    }

    /// From now on put() drops its tensors, here and below, or keeps them again: for a forward pass that is recomputed.
    /// Returns the previous state.
    bool discard(bool on) { return std::exchange(discarding_, on); }

    /// Whether nothing is saved here and below.
    bool empty() const {
        return std::all_of(entries_.begin(), entries_.end(), [](const entry& e) { return e.index() == 0; }) &&
               std::all_of(children_.begin(), children_.end(), [](const saved_tensors& c) { return c.empty(); });
    }

    /// Drops everything that is saved here.
    void clear() {
        entries_.clear();
        for (saved_tensors& c : children_) c.clear();
    }

private:
    saved_place place(int slot) const {
        saved_place p = here_;
        p.slot = slot;
        return p;
    }
    entry& at(int slot) {
        if (static_cast<std::size_t>(slot) >= entries_.size()) entries_.resize(static_cast<std::size_t>(slot) + 1);
        return entries_[static_cast<std::size_t>(slot)];
    }

    std::vector<entry> entries_;
    std::deque<saved_tensors> children_;
    bool discarding_ = false;
    stash_policy<T, D>* policy_ = nullptr;
    saved_place here_;  // of slot 0
};

CAIRN_COMPILED_CLASS(saved_tensors)

}  // namespace cairn
