#pragma once
// State that ranks with the same parameters share, besides gradients (gradient_sync.hpp).

#include <cairn/comm/collectives/all_gather.hpp>
#include <cairn/comm/collectives/all_reduce.hpp>
#include <cairn/comm/collectives/broadcast.hpp>
#include <cairn/core/arena.hpp>
#include <cairn/core/for_each.hpp>
#include <cairn/nn/layer.hpp>
#include <cairn/parallel/channel.hpp>

#include <algorithm>
#include <span>
#include <utility>

namespace cairn {

namespace detail {

/// Buffers as one block, so that they travel as one message: collective(block) in between.
template <class T, Device D, class Collective>
void in_one_block(const buffer_list<T, D>& buffers, Collective&& collective) {
    index_t total = 0;
    for (const auto& [name, t] : buffers) total += t->size();
    if (total == 0) return;
    tensor<T, D> all({total}, memory_category::communication);
    const auto each = [&](auto&& copy) {
        index_t at = 0;
        for (const auto& [name, t] : buffers) copy(all.data() + std::exchange(at, at + t->size()), *t);
    };
    each([](T* part, tensor<T, D>& t) { D::copy_within(part, t.data(), t.bytes()); });
    collective(all);
    each([](T* part, tensor<T, D>& t) { D::copy_within(t.data(), part, t.bytes()); });
}

}  // namespace detail

/// Collective: parameters and buffers of rank 0 on all ranks.
template <Communicator C, class T, Device D>
void broadcast_values(channel<C>& over, arena<T, D>& weights, const buffer_list<T, D>& buffers) {
    [[maybe_unused]] const auto why = because(over.device, "values of rank 0");
    broadcast(over.device, weights.values().span(), 0);
    if (!weights.frozen().empty()) broadcast(over.device, weights.frozen_values().span(), 0);
    detail::in_one_block(buffers, [&](tensor<T, D>& all) { broadcast(over.device, all.span(), 0); });
}

/// Collective: running statistics of batch normalisation become the mean over the ranks.
template <Communicator C, class T, Device D>
void average_buffers(channel<C>& over, const buffer_list<T, D>& buffers) {
    if (over.size() == 1) return;
    detail::in_one_block(buffers, [&](tensor<T, D>& all) {
        all_reduce(over.device, all.span(), {.label = "running statistics"});
        for_each(functors::times<T>{T(1) / static_cast<T>(over.size())}, all);
    });
}

/// Batch normalisation over all ranks of a communicator (nn's batch_group).
template <Communicator C>
class group_over final : public batch_group {
public:
    explicit group_over(C c) : c_(std::move(c)) {}
    int size() const override { return c_.size(); }
    void gather(std::span<const double> mine, std::span<double> all) override {
        std::copy(mine.begin(), mine.end(), all.begin() + static_cast<std::ptrdiff_t>(mine.size()) * c_.rank());
        all_gather(c_, all, shards_of(static_cast<index_t>(all.size()), c_.size()), "batch-norm statistics");
    }

private:
    C c_;
};

}  // namespace cairn
