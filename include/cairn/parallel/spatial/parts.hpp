#pragma once
// The parts of a model whose spatial axes are cut over ranks: a builder of models/ requests its layers from them, in
// the order of the network.
//   spatial_parts parts(channel, rank_grid({2, 1, 1}), shape{128, 128, 128});
//   auto net = cosmoflow<float, cpu>(config, parts);          the same paths, initial values and masks as on one rank
//   conv, pool          between cut tensors; each result is cut evenly, to one row
//   norm                batch normalisation, whose pass needs a batch_group over the ranks (group_over, replicas.hpp)
//   flatten, average    whole samples: from here on the layers are those of sample parallelism
// Between the first and flatten, elementwise layers are those of nn/.

#include <cairn/nn/batch_norm.hpp>
#include <cairn/nn/flatten.hpp>
#include <cairn/nn/sequential.hpp>
#include <cairn/parallel/spatial/dropout.hpp>
#include <cairn/parallel/spatial/sample_switch.hpp>
#include <cairn/parallel/spatial/windowed.hpp>

#include <string>
#include <utility>

namespace cairn {

template <class T, Device D>
struct make_whole_conv {
    conv<T, D> operator()(const typename conv<T, D>::config& c) const { return conv<T, D>(c); }
};

/// Makes one network on one rank. The channel must outlive the network. `Conv` makes a convolution of its settings:
/// conv, or a layer that shares its filters with further ranks (parallel/tensor/channel_conv.hpp).
template <Communicator C, class T = float, Device D = cpu, class Conv = make_whole_conv<T, D>>
class spatial_parts {
public:
    /// `extents`: rows of the whole input along each axis of the grid.
    spatial_parts(channel<C>& over, rank_grid grid, const shape& extents, Conv conv = {})
        : make_{&over, grid},
          cut_(spatial_partition::even(grid, extents, "the network's input")),
          conv_(std::move(conv)) {
        require_ranks(over, grid);
    }

    /// How the tensor between the layers made so far and the next is cut.
    const spatial_partition& cut() const { return cut_; }
    const rank_grid& grid() const { return make_.grid; }

    any_layer<T, D> conv(const typename cairn::conv<T, D>::config& c) {
        const spatial_partition in = next(c, "the result of a conv");
        return make_.convolution(c, in, cut_, conv_);
    }
    any_layer<T, D> norm(typename batch_norm<T, D>::config c) const {
        if (!gathered_) c.parts = make_.grid.size();
        return batch_norm<T, D>(c);
    }
    any_layer<T, D> pool(const typename max_pool<T, D>::config& c) {
        const spatial_partition in = next(c, "the result of a max_pool");
        return make_.maximum(c, in, cut_);
    }
    any_layer<T, D> average_pool(const typename cairn::average_pool<T, D>::config& c) {
        const spatial_partition in = next(c, "the result of an average_pool");
        return make_.average(c, in, cut_);
    }
    any_layer<T, D> flatten() {
        gathered_ = true;
        sequential<T, D> both;
        both.add("gather", gather_samples<C, T, D>(*make_.over, make_.grid, cut_));
        both.add("flatten", cairn::flatten<T, D>());
        return any_layer<T, D>(std::move(both));  // nvcc would copy
    }
    any_layer<T, D> global_average_pool() {
        gathered_ = true;
        return spatial_global_average<C, T, D>(*make_.over, make_.grid, cut_);
    }
    any_layer<T, D> dropout(double rate) {
        if (gathered_) return sample_dropout<T, D>(rate, make_.over->size(), make_.over->rank());
        return spatial_dropout<T, D>(rate, make_.grid, cut_, make_.over->rank());
    }

private:
    // Steps to the partition behind a layer; returns the one in front.
    template <class Config>
    spatial_partition next(const Config& c, const std::string& result) {
        require(!gathered_, "spatial parts: no layer with windows behind gathered samples");
        return std::exchange(cut_, make_.after(c, cut_, result));
    }

    spatial_layers<C, T, D> make_;
    spatial_partition cut_;
    Conv conv_;
    bool gathered_ = false;
};

}  // namespace cairn
