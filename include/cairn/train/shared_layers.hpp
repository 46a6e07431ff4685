#pragma once
// The ranks that share the layers of a run's model, and each one's part of a micro-batch's samples and scores.
//   tensor    the layers' tensors are cut: every rank has all samples, at the end the same outputs or its part of them
//   spatial   samples are cut: behind the last layer with windows whole samples are dealt out (sample_switch.hpp)

#include <cairn/comm/any.hpp>
#include <cairn/nn/sequential.hpp>
#include <cairn/parallel/spatial/parts.hpp>
#include <cairn/parallel/tensor/channel_conv.hpp>
#include <cairn/parallel/tensor/transformer_parts.hpp>

#include <vector>

namespace cairn {

/// See the top of the file. Null where ranks do not share them so; what is pointed to outlives the layers.
struct shared_layers {
    tensor_axis<any_communicator>* tensor = nullptr;
    sequence_layout sequences = sequence_layout::whole;
    channel<any_communicator>* spatial = nullptr;
    std::vector<int> spatial_extents = {};  // ranks along each axis

    bool is_shared() const { return tensor || spatial; }
    rank_grid grid() const { return rank_grid(spatial_extents); }

    /// Extents of a sample (rows…, channels) along its spatial axes.
    shape rows_of(const shape& sample) const {
        require(sample.rank() == static_cast<int>(spatial_extents.size()) + 1, "parallel.spatial has ",
                spatial_extents.size(), " numbers, samples ", sample, " have ", sample.rank() - 1,
                " spatial axes; give one number for each");
        shape rows;
        for (int a = 0; a + 1 < sample.rank(); ++a) rows.push_back(sample[a]);
        return rows;
    }
    /// How samples are cut.
    spatial_partition rows(const shape& sample) const {
        return spatial_partition::even(grid(), rows_of(sample), "parallel.spatial: samples");
    }
    /// A batch of n samples as it is on this rank.
    shape batch_here(index_t n, const shape& sample) const {
        if (spatial) return rows(sample).tensor_shape(grid(), spatial->rank(), n, sample.back());
        shape s{n};
        for (const index_t extent : sample) s.push_back(extent);
        return s;
    }

    // Of n samples of a micro-batch, those whose outputs are on this rank, and the weight of their mean loss.
    range outputs_of(index_t n) const { return share(n).samples; }
    double weight_of_outputs(index_t n) const { return share(n).weight; }
    /// Whether this rank adds its outputs to losses and scores: others may have the same.
    bool counts(index_t n) const {
        const bool others_have_them = spatial && n < spatial->size() && spatial->rank() > 0;
        return !others_have_them && (!tensor || tensor->rank() == 0);
    }

private:
    sample_share share(index_t n) const {
        return spatial ? share_of_samples(n, spatial->size(), spatial->rank()) : sample_share{{0, n}, 1};
    }
};

/// Whether a model ends with whole samples that are dealt out over the spatial ranks, as one made of spatial_parts
/// does.
template <class T, Device D>
bool deals_out_samples(const sequential<T, D>& model, const shared_layers& over, const shape& sample) {
    const index_t n = over.spatial->size();
    const shape in = over.batch_here(n, sample);
    try {
        return model.output_shape(in).front() == over.outputs_of(n).count;
    } catch (const error&) {  // a layer that takes whole samples
        return false;
    }
}

}  // namespace cairn
