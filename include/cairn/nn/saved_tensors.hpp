#pragma once
// What forward leaves for backward. `saved_tensors` is a tree, one node a layer, children for the layers of a
// container. A layer puts a tensor into a numbered slot and takes it out again in backward; it never learns what
// recomputation did with it in between.
// Every micro-batch in flight has its own.

#include <cairn/core/compiled.hpp>
#include <cairn/core/tensor.hpp>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <utility>
#include <variant>
#include <vector>

namespace cairn {

/// What forward leaves for backward: tensors of one layer for one micro-batch, in numbered slots, and those of its
/// children.
template <class T, Device D = cpu>
class saved_tensors {
public:
    using entry = std::conditional_t<
        sizeof(T) < sizeof(float),  // statistics are kept in float
        std::variant<std::monostate, tensor<T, D>, tensor<std::int32_t, D>, tensor<std::uint8_t, D>, tensor<float, D>>,
        std::variant<std::monostate, tensor<T, D>, tensor<std::int32_t, D>, tensor<std::uint8_t, D>>>;

    saved_tensors() = default;
    saved_tensors(saved_tensors&&) noexcept = default;
    saved_tensors& operator=(saved_tensors&&) noexcept = default;

    /// Leaves a tensor in slot `slot`.
    template <class U>
    void put(int slot, tensor<U, D> t) {
        if (discarding_) return;
        if (static_cast<std::size_t>(slot) >= entries_.size()) entries_.resize(static_cast<std::size_t>(slot) + 1);
        entries_[static_cast<std::size_t>(slot)] = std::move(t);
    }

    bool has(int slot) const {
        return static_cast<std::size_t>(slot) < entries_.size() &&
               entries_[static_cast<std::size_t>(slot)].index() != 0;
    }

    /// The tensor in slot `slot`. Throws if backward runs without its forward.
    template <class U = T>
    const tensor<U, D>& get(int slot) const {
        require(has(slot), "backward: no saved tensor in slot ", slot,
                " (was forward run in training mode with these saved tensors?)");
        return std::get<tensor<U, D>>(entries_[static_cast<std::size_t>(slot)]);
    }

    /// Takes the tensor out of slot `slot`.
    template <class U = T>
    tensor<U, D> take(int slot) {
        tensor<U, D> t = get<U>(slot).share();
        entries_[static_cast<std::size_t>(slot)] = std::monostate{};
        return t;
    }

    /// The saved tensors of child `i` of a container. References stay valid while more children are added.
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
    std::vector<entry> entries_;
    std::deque<saved_tensors> children_;
    bool discarding_ = false;
};

CAIRN_COMPILED_CLASS(saved_tensors)

}  // namespace cairn
