#pragma once
// Data parallelism, as PyTorch's DistributedDataParallel and ZeRO: every rank of the axis has the whole model and part
// of each batch. This is one rank's end of it; each piece has its header:
//   over        channel.hpp         communicators between the ranks
//   gradients   gradient_sync.hpp   sums of gradients
//   agree       agreement.hpp       totals of the batch; whether all take the step
//   group       replicas.hpp        batch normalisation over the batch of all ranks
//   owners      sharded.hpp         the parameters that each rank's optimizer updates; all_gather_values() after it

#include <cairn/parallel/agreement.hpp>
#include <cairn/parallel/channel.hpp>
#include <cairn/parallel/gradient_sync.hpp>
#include <cairn/parallel/replicas.hpp>
#include <cairn/parallel/sharded.hpp>

#include <optional>
#include <utility>
#include <vector>

namespace cairn {

template <Communicator C, class T = float, Device D = cpu>
struct data_axis {
    struct config {
        typename gradient_sync<C, T, D>::config gradients = {};  // except may_skip and owners, which are derived below
        typename agreement<C>::config agree = {};
        bool sync_batch_norm = false;    // statistics of the batch of all ranks
        int zero_stage = 0;              // ZeRO: 1 shards the optimizer's state (sharded.hpp), 2 the gradients too
        std::vector<range> owners = {};  // the part of the arena that each rank updates; stage 0: empty
        std::optional<C> device = {};    // carries tensors of D where `world` cannot
        C* everyone = nullptr;           // all ranks that take a step together; null: the ranks of this axis
    };

    /// Collective. The agreement's policy tells the gradients whether steps may be skipped.
    data_axis(C& world, arena<T, D>& weights, config c)
        : over(world, std::move(c.device)),
          gradients(over, weights, of_gradients(c)),
          everyone(c.everyone ? *c.everyone : over.host),
          agree(everyone, c.agree),
          owners(std::move(c.owners)) {
        if (c.sync_batch_norm) group.emplace(world.split(0, world.rank()));
    }
    data_axis(const data_axis&) = delete;
    data_axis& operator=(const data_axis&) = delete;

    int rank() const { return over.rank(); }
    int size() const { return over.size(); }

    channel<C> over;
    gradient_sync<C, T, D> gradients;
    C& everyone;  // the ranks of all axes
    agreement<C> agree;
    std::optional<group_over<C>> group;
    std::vector<range> owners;

private:
    static typename gradient_sync<C, T, D>::config of_gradients(const config& c) {
        auto gradients = c.gradients;
        gradients.may_skip = c.agree.non_finite == non_finite_policy::skip;
        gradients.owners = c.zero_stage == 2 ? c.owners : std::vector<range>{};
        return gradients;
    }
};

}  // namespace cairn
