#pragma once
// Dropout with the masks that one rank would draw. An element's bits follow from its position in the whole batch
// (device/cpu/dropout.hpp):
//   spatial_dropout   of a cut tensor: each contiguous run of the rows here begins at its position in the whole tensor
//   sample_dropout    behind the switch to sample parallelism: the samples here begin at this rank's share of
//                     pass_context::random.samples
// Saved: nothing. Tested against cairn::dropout of the whole.

#include <cairn/device/cpu/dropout.hpp>
#include <cairn/nn/dropout.hpp>
#include <cairn/parallel/spatial/sample_switch.hpp>

#include <string>
#include <utility>

namespace cairn {

/// Of (N, own rows…, C).
template <class T = float, Device D = cpu>
class spatial_dropout : public layer_without_parameters<T, D> {
public:
    spatial_dropout(double rate, rank_grid grid, spatial_partition cut, int rank)
        : whole_(rate), rate_(rate), grid_(std::move(grid)), cut_(std::move(cut)), rank_(rank) {
        check(cut_, grid_);
    }

    tensor<T, D> forward(tensor<T, D> x, saved_tensors<T, D>&, const pass_context& p) {
        output_shape(x.shape());
        return p.training() ? apply(std::move(x), p) : std::move(x);
    }
    tensor<T, D> backward_input(tensor<T, D> dy, saved_tensors<T, D>&, const pass_context& p) {
        output_shape(dy.shape());
        return p.input_gradient ? apply(std::move(dy), p) : tensor<T, D>{};
    }

    shape output_shape(const shape& in) const {
        const shape mine = cut_.tensor_shape(grid_, rank_, in.rank() ? in[0] : 0, in.rank() ? in.back() : 0);
        require(in == mine, describe(), " on rank ", rank_, " of a grid ", grid_.text(), " takes ", mine, ", got ", in);
        return in;
    }
    layer_cost cost(const shape& in) const { return whole_.cost(in); }
    std::string describe() const { return whole_.describe(); }

private:
    tensor<T, D> apply(tensor<T, D> x, const pass_context& p) const {
        const shape all = cut_.tensor_shape(grid_, -1, x.extent(0), x.extent(-1)), here = x.shape();
        const index_t first = p.random.first_sample * (all.size() / std::max<index_t>(all[0], 1));
        const T* const in = x.data();
        tensor<T, D> y = x.unique() ? std::move(x) : tensor<T, D>(here);
        for_runs(all, cut_.begin(grid_, rank_), here, [&](index_t in_whole, index_t at, index_t n) {
            dropout_apply(D{}, n, rate_, p.random.stream(), in + at, y.data() + at, first + in_whole, p.random.step_at);
        });
        return y;
    }

    dropout<T, D> whole_;
    double rate_;
    rank_grid grid_;
    spatial_partition cut_;
    int rank_;
};

/// Of (share of N, …).
template <class T = float, Device D = cpu>
class sample_dropout : public layer_without_parameters<T, D> {
public:
    sample_dropout(double rate, int ranks, int rank) : whole_(rate), ranks_(ranks), rank_(rank) {}

    tensor<T, D> forward(tensor<T, D> x, saved_tensors<T, D>& saved, const pass_context& p) {
        if (!p.training()) return x;
        const pass_context mine = of_share(p, x.extent(0));
        return whole_.forward(std::move(x), saved, mine);
    }
    tensor<T, D> backward_input(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        const pass_context mine = of_share(p, dy.extent(0));
        return whole_.backward_input(std::move(dy), saved, mine);
    }
    shape output_shape(const shape& in) const { return in; }
    layer_cost cost(const shape& in) const { return whole_.cost(in); }
    std::string describe() const { return whole_.describe(); }

private:
    pass_context of_share(pass_context p, index_t here) const {
        const range share = share_of_samples(p.random.samples, ranks_, rank_).samples;
        require(share.count == here, describe(), " behind gathered samples: ", here, " samples on rank ", rank_, " of ",
                ranks_, ", whose share of ", p.random.samples, " is ", share.count,
                "; set random.samples of the pass to those that the micro-batch has on all ranks together");
        p.random.first_sample += share.begin;
        return p;
    }

    dropout<T, D> whole_;
    int ranks_, rank_;
};

}  // namespace cairn
