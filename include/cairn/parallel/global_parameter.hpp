#pragma once
// Whole parameters (or tensors of an optimizer of that shape) from the slices of all ranks (parameter_layout), on one
// rank, and back. So a saved state does not depend on the mesh: any mesh reads it.
//   gather_global    each rank announces its slice; rank `root` requests those that it lacks
//   scatter_global   each rank announces the slice that it needs, and gets it
// Slices have any shape and any overlap; ranks without a slice take part with an empty tensor.
// Bytes: each different slice once, and 8 bytes × 21 from each rank.

#include <cairn/comm/communicator.hpp>
#include <cairn/core/parameter.hpp>

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace cairn {

inline constexpr int global_parameter_tag = user_tags + 12;

namespace detail {

/// Position of a rank's slice, as it is sent.
struct sent_layout {
    std::array<std::int64_t, shape::max_rank> here{}, global{}, begin{};
    std::int64_t rank = -1, parts = 1, holds = 0;

    sent_layout() = default;
    sent_layout(const shape& slice, const parameter_layout& layout, bool any) : rank(slice.rank()), holds(any) {
        const shape& whole = layout.is_whole() ? slice : layout.global;
        parts = layout.is_whole() ? 1 : layout.parts;
        for (int a = 0; any && a < slice.rank(); ++a) {
            const auto at = static_cast<std::size_t>(a);
            here[at] = slice[a];
            global[at] = whole[a];
            begin[at] = layout.is_whole() ? 0 : layout.begin[at];
        }
    }
    bool operator==(const sent_layout&) const = default;

    shape slice() const { return of(here); }
    shape whole() const { return of(global); }
    parameter_layout layout() const {
        parameter_layout l;
        l.global = whole();
        for (std::size_t a = 0; a < begin.size(); ++a) l.begin[a] = begin[a];
        l.parts = parts;
        return l;
    }

private:
    shape of(const std::array<std::int64_t, shape::max_rank>& extents) const {
        shape s;
        for (int a = 0; a < rank; ++a) s.push_back(extents[static_cast<std::size_t>(a)]);
        return s;
    }
};

/// Collective: on the root those of all ranks, in order; elsewhere nothing. Throws where they are not of one whole.
template <Communicator C>
std::vector<sent_layout> layouts_on_root(C& c, const sent_layout& mine, int root, std::string_view name) {
    require(root >= 0 && root < c.size(), "parameter ", name, ": root ", root, " of ", c.size(), " ranks");
    if (c.rank() != root) {
        send(c, std::span<const sent_layout>(&mine, 1), root, global_parameter_tag);
        return {};
    }
    std::vector<sent_layout> all(static_cast<std::size_t>(c.size()));
    for (int r = 0; r < c.size(); ++r) {
        sent_layout& of = all[static_cast<std::size_t>(r)];
        if (r == root)
            of = mine;
        else
            recv(c, std::span<sent_layout>(&of, 1), r, global_parameter_tag);
    }
    return all;
}

inline const sent_layout& first_holder(const std::vector<sent_layout>& all, std::string_view name) {
    const sent_layout* first = nullptr;
    for (std::size_t r = 0; r < all.size(); ++r) {
        if (!all[r].holds) continue;
        if (!first) first = &all[r];
        require(all[r].whole() == first->whole(), "parameter ", name, ": rank ", r, " has a slice of ", all[r].whole(),
                ", another rank one of ", first->whole(), "; they are not of one model");
        require(all[r].layout().fits(all[r].slice()), "parameter ", name, ": the slice ", all[r].slice(), " of rank ",
                r, " does not lie within ", all[r].whole());
    }
    require(first, "parameter ", name, ": no rank holds any of it");
    return *first;
}

}  // namespace detail

/// Collective: the whole of which each rank has `slice` (empty: nothing of it), on rank `root`; an empty tensor
/// elsewhere. Throws, on the root, where a part of the whole is on no rank.
template <Communicator C, class T, Device D>
tensor<T> gather_global(C& c, const tensor<T, D>& slice, const parameter_layout& layout, int root,
                        std::string_view name) {
    const detail::sent_layout mine(slice.shape(), layout, !slice.empty());
    const auto all = detail::layouts_on_root(c, mine, root, name);
    if (c.rank() != root) {
        if (slice.empty()) return {};
        std::uint8_t wanted = 0;
        recv(c, std::span<std::uint8_t>(&wanted, 1), root, global_parameter_tag);
        if (wanted) {
            const tensor<T> here = slice.on_host(memory_category::communication);
            send(c, here.span(), root, global_parameter_tag);
        }
        return {};
    }
    tensor<T> whole(detail::first_holder(all, name).whole(), memory_category::communication);
    std::vector<bool> known(on_phantom_rank() ? 0 : static_cast<std::size_t>(whole.size()), false);
    std::vector<detail::sent_layout> seen;
    const auto take = [&](int r) {
        const detail::sent_layout& of = all[static_cast<std::size_t>(r)];
        if (!of.holds) return;
        const std::uint8_t wanted = std::ranges::find(seen, of) == seen.end();
        if (r != root) send(c, std::span<const std::uint8_t>(&wanted, 1), r, global_parameter_tag);
        if (!wanted) return;
        tensor<T> part;
        if (r == root) {
            part = slice.on_host(memory_category::communication);
        } else {
            part = tensor<T>(of.slice(), memory_category::communication);
            recv(c, part.span(), r, global_parameter_tag);
        }
        const parameter_layout at = of.layout();
        for (index_t i = 0; i < part.size() && !on_phantom_rank(); ++i) {
            const index_t g = at.global_index(of.slice(), i);
            whole[g] = part[i];
            known[static_cast<std::size_t>(g)] = true;
        }
        seen.push_back(of);
    };
    take(root);
    for (int r = 0; r < c.size(); ++r)
        if (r != root) take(r);
    const auto missing = std::ranges::find(known, false);
    require(missing == known.end(), "parameter ", name, ": element ", missing - known.begin(), " of ", whole.shape(),
            " is on none of the ", c.size(), " ranks");
    return whole;
}

/// Collective: each rank's `slice` (empty: it wants nothing) gets its numbers of `whole`, which rank `root` has. Throws
/// where the whole has another shape.
template <Communicator C, class T, Device D>
void scatter_global(C& c, const tensor<T>& whole, tensor<T, D>& slice, const parameter_layout& layout, int root,
                    std::string_view name) {
    const detail::sent_layout mine(slice.shape(), layout, !slice.empty());
    const auto all = detail::layouts_on_root(c, mine, root, name);
    const auto put = [&](const tensor<T>& part) { D::copy_to_device(slice.data(), part.data(), part.bytes()); };
    if (c.rank() != root) {
        if (slice.empty()) return;
        tensor<T> part(slice.shape(), memory_category::communication);
        recv(c, part.span(), root, global_parameter_tag);
        return put(part);
    }
    const shape expected = detail::first_holder(all, name).whole();
    require(whole.shape() == expected, "parameter ", name, " has shape ", whole.shape(),
            ", but the ranks hold slices of ", expected);
    for (int r = 0; r < c.size(); ++r) {
        const detail::sent_layout& of = all[static_cast<std::size_t>(r)];
        if (!of.holds) continue;
        tensor<T> part(of.slice(), memory_category::communication);
        const parameter_layout at = of.layout();
        for (index_t i = 0; i < part.size(); ++i) part[i] = whole[at.global_index(of.slice(), i)];
        if (r == root)
            put(part);
        else
            send(c, part.span(), r, global_parameter_tag);
    }
}

}  // namespace cairn
