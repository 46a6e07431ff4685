#pragma once
// Dropout with the masks that one rank would draw. An element's bits follow from its position in the whole batch
// (device/cpu/dropout.hpp):
//   spatial_dropout   of a cut tensor: each contiguous run of the rows here begins at its position in the whole tensor
//   sample_dropout    behind the switch to sample parallelism: the samples here begin at this rank's share of
//                     pass_context::random.samples
// Tested against dropout of the whole.

#include <cairn/nn/dropout.hpp>
#include <cairn/parallel/spatial/sample_switch.hpp>

#include <algorithm>

namespace cairn {

/// Of (N, own rows…, C).
template <class T = float, Device D = cpu>
class spatial_dropout : public dropout<T, D> {
public:
    spatial_dropout(double rate, rank_grid grid, spatial_partition cut, int rank)
        : dropout<T, D>(rate, [=](const shape& in, const pass_context& p, const auto& run) {
              const index_t samples = in.rank() ? in[0] : 0, channels = in.rank() ? in.back() : 0;
              const shape mine = cut.tensor_shape(grid, rank, samples, channels);
              require(in == mine, "dropout ", rate, " on rank ", rank, " of a grid ", grid.text(), " takes ", mine,
                      ", got ", in);
              const shape all = cut.tensor_shape(grid, -1, samples, channels);
              const index_t first = p.random.first_sample * (all.size() / std::max<index_t>(all[0], 1));
              for_runs(all, cut.begin(grid, rank), in,
                       [&](index_t in_whole, index_t at, index_t n) { run(first + in_whole, at, n); });
          }) {
        check(cut, grid);
    }

    shape output_shape(const shape& in) const {
        this->places_(in, {}, [](index_t, index_t, index_t) {});  // throws unless it is this rank's part
        return in;
    }
};

/// Of (share of N, …).
template <class T = float, Device D = cpu>
dropout<T, D> sample_dropout(double rate, int ranks, int rank) {
    return dropout<T, D>(rate, [=](const shape& here, const pass_context& p, const auto& run) {
        const range share = share_of_samples(p.random.samples, ranks, rank).samples;
        require(share.count == here.front(), "dropout ", rate, " behind gathered samples: ", here.front(),
                " samples on rank ", rank, " of ", ranks, ", whose share of ", p.random.samples, " is ", share.count,
                "; set random.samples of the pass to those that the micro-batch has on all ranks together");
        const index_t of_one = here.size() / std::max<index_t>(here.front(), 1);
        run((p.random.first_sample + share.begin) * of_one, 0, here.size());
    });
}

}  // namespace cairn
