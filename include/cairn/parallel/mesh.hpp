#pragma once
// Ranks on a grid with named axes: data × pipeline × tensor × … Ranks that differ in one axis alone are a line; each
// rank has a channel to its line of every axis. All communication of training goes along these lines.
//   mesh<C> all(world, {{"pipeline", 2}, {"data", 2}, {"tensor", 2}});
//   all["data"]                  channel between the ranks that hold the same part of the model
//   rank of the world = ((pipeline) · 2 + data) · 2 + tensor: the last axis varies fastest
// Neighbouring ranks share a host, so the axis that sends most comes last. mesh_order is Megatron's (Narayanan et al.,
// SC'21): tensor parallelism sends in every layer, forward and backward; halos of spatial parallelism in every
// convolution; the data axis sends gradients once a step, during backward; a pipeline sends one activation of one layer
// for each micro-batch, the least of all, and comes first.

#include <cairn/comm/collectives/text.hpp>
#include <cairn/comm/require_equal.hpp>
#include <cairn/core/allowed_cores.hpp>
#include <cairn/parallel/channel.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// Axes of a training run, from the one that varies slowest.
inline const std::vector<std::string> mesh_order{"pipeline", "data", "spatial", "tensor"};

struct mesh_axis {
    std::string name;
    int size = 1;
    bool operator==(const mesh_axis&) const = default;
};

namespace detail {

/// "pipeline 2 x data 2"
inline std::string text_of(const std::vector<mesh_axis>& axes) {
    std::string text;
    for (const mesh_axis& axis : axes) text += concat(text.empty() ? "" : " x ", axis.name, ' ', axis.size);
    return text.empty() ? "no axes" : text;
}

/// "host a, cores 0-3"
inline std::string place_of_this_process() {
    std::array<char, 256> host{};
    ::gethostname(host.data(), host.size() - 1);
    const std::string cores = read_allowed_cores().text;
    return concat("host ", host.data(), cores.empty() ? "" : ", cores ", cores);
}

}  // namespace detail

/// See the top of the file. A rank keeps it where it was made: channels are referred to.
template <Communicator C>
class mesh {
public:
    /// Collective. `of_device`: the same ranks, by a communicator that carries tensors of the network's device, where
    /// `world` cannot. Throws on every rank unless all give the same axes and there is one rank for each place.
    mesh(C& world, std::vector<mesh_axis> axes, std::optional<C> of_device = {})
        : axes_(std::move(axes)), rank_(world.rank()), ranks_(world.size()), of_device_(std::move(of_device)) {
        long long places = 1;
        for (std::size_t a = 0; a < axes_.size(); ++a) {
            require(axes_[a].size >= 1, "mesh: axis ", axes_[a].name, " has size ", axes_[a].size,
                    "; it must be at least 1");
            for (std::size_t b = 0; b < a; ++b)
                require(axes_[a].name != axes_[b].name, "mesh: two axes are called ", axes_[a].name);
            places = std::min<long long>(places * axes_[a].size, 1LL << 31);
        }
        require_equal(world, detail::text_of(axes_), "the mesh");
        require(places == world.size(), "mesh: ", detail::text_of(axes_), " is a grid of ", places,
                " ranks, but there are ", world.size(), "; the product of the axes must be the number of ranks");
        for (const mesh_axis& axis : axes_) channels_.push_back(across(world, {axis.name}));
        everyone_.emplace(channel<C>(world, of_device_ ? std::optional<C>(of_device_->split(0, rank_)) : std::nullopt));
    }
    mesh(const mesh&) = delete;
    mesh& operator=(const mesh&) = delete;

    /// To the ranks that differ from this one in this axis alone. Throws on a name that is no axis.
    channel<C>& operator[](const std::string& name) { return channels_[position_of(name)]; }
    /// To all ranks.
    channel<C>& everyone() { return *everyone_; }

    /// Collective: to the ranks that differ from this one in these axes alone; names that are no axes have size 1.
    channel<C> across(C& world, const std::vector<std::string>& names) {
        int colour = 0;  // equal for ranks that agree in all other axes
        for (const mesh_axis& axis : axes_)
            if (std::ranges::find(names, axis.name) == names.end()) colour = colour * axis.size + coordinate(axis.name);
        C line = world.split(colour, rank_);
        return channel<C>(line, of_device_ ? std::optional<C>(of_device_->split(colour, rank_)) : std::nullopt);
    }

    int rank() const { return rank_; }
    int size() const { return ranks_; }
    /// Of an axis; 1 for one that the mesh does not have.
    int size(const std::string& name) const {
        const auto axis = std::ranges::find(axes_, name, &mesh_axis::name);
        return axis == axes_.end() ? 1 : axis->size;
    }
    const std::vector<mesh_axis>& axes() const { return axes_; }

    /// Coordinate of a rank on an axis; 0 on one that the mesh does not have.
    int coordinate(const std::string& name, int rank) const {
        int stride = 1;
        for (std::size_t a = axes_.size(); a-- > 0; stride *= axes_[a].size)
            if (axes_[a].name == name) return rank / stride % axes_[a].size;
        return 0;
    }
    int coordinate(const std::string& name) const { return coordinate(name, rank_); }

    /// Collective: axes in their order, and a line for each rank: its coordinates, host and cores.
    std::string describe() {
        const std::vector<std::string> places = all_gather_text(everyone_->host, detail::place_of_this_process());
        std::string text =
            concat("mesh of ", ranks_, " ranks: ", detail::text_of(axes_), ", the last varies fastest\n");
        for (int r = 0; r < ranks_; ++r) {
            text += concat("  rank ", r, ':');
            for (const mesh_axis& axis : axes_) text += concat(' ', axis.name, ' ', coordinate(axis.name, r));
            text += concat("  ", places[static_cast<std::size_t>(r)], '\n');
        }
        return text;
    }

private:
    std::size_t position_of(const std::string& name) const {
        const auto axis = std::ranges::find(axes_, name, &mesh_axis::name);
        require(axis != axes_.end(), "mesh: no axis \"", name, "\" in ", detail::text_of(axes_));
        return static_cast<std::size_t>(axis - axes_.begin());
    }

    std::vector<mesh_axis> axes_;
    int rank_, ranks_;
    std::optional<C> of_device_;
    std::vector<channel<C>> channels_;  // by axis
    std::optional<channel<C>> everyone_;
};

}  // namespace cairn
