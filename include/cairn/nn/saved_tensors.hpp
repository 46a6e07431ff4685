#pragma once
// What forward leaves for backward. `saved_tensors` is a tree, one node a layer, children for the layers of a
// container. A layer puts a tensor into a numbered slot and takes it out again in backward; it never learns what became
// of it in between: it was kept, made again by recomputation, or a stash policy had it packed (stash/).
// Every micro-batch in flight has its own.

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

/// A tensor that waits for backward: while it does, its memory counts as memory_category::saved.
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

/// An activation between forward and backward, in whatever form. Slots that were given one block share one.
template <class T, Device D = cpu>
struct stashed_activation {
    virtual ~stashed_activation() = default;
    /// The activation, as it was or nearly. `last`: no other slot will ask.
    virtual tensor<T, D> restore(bool last) = 0;
};

/// Where a layer leaves a tensor: the layer's path in the whole model (core/random.hpp), the number of the slot, and which
/// layer of the outermost chain it is part of; −1: it is the chain's own, the input of a segment that is recomputed. And
/// which samples of the batch of all ranks the micro-batch has, by which places are not told apart; none: not known.
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

/// Decides what becomes of activations between forward and backward. Called by saved_tensors alone.
template <class T, Device D = cpu>
struct stash_policy {
    virtual ~stash_policy() = default;
    /// An activation is put there: takes it, and returns what stands for it, or returns null and leaves it.
    virtual std::shared_ptr<stashed_activation<T, D>> stash(const saved_place& at, tensor<T, D>& t) = 0;
    /// Bits of an activation function's sign were put there, which are kept.
    virtual void saw_mask(const saved_place& at, const tensor<std::uint8_t, D>& bits) = 0;
};

/// What forward leaves for backward: tensors of one layer for one micro-batch, in numbered slots, and those of its
/// children.
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

    /// Asks `policy` from now on, here and below; null: everything is kept. `at`: this node's layer and the samples.
    void follow(stash_policy<T, D>* policy, const saved_place& at = {}) {
        policy_ = policy;
        here_ = at;
    }
    /// What layers leave here and below from now on is taken out soon and kept; or asks the policy again, which this
    /// call returned.
    stash_policy<T, D>* follow_for_now(stash_policy<T, D>* policy) { return std::exchange(policy_, policy); }

    /// Leaves a tensor in slot `slot`. An activation of T may come back with small errors, as the policy has it.
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

    /// The same for what must come back as it is: statistics, gradients.
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

    /// The saved tensors of child `i` of a container, which parameters' paths call `name`; empty: they do not name it.
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

    /// From now on put() drops what it is given, here and below (or keeps it again): for a forward pass whose results
    /// are recomputed.
    /// Returns what held before.
    bool discard(bool on) { return std::exchange(discarding_, on); }

    /// Whether nothing is left here and below.
    bool empty() const {
        return std::all_of(entries_.begin(), entries_.end(), [](const entry& e) { return e.index() == 0; }) &&
               std::all_of(children_.begin(), children_.end(), [](const saved_tensors& c) { return c.empty(); });
    }

    /// Drops everything that was left here.
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
