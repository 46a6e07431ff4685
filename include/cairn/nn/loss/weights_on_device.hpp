#pragma once
// The weights of a loss in the memory of a device: uploaded at first use, and again after a change. A step in between
// uploads nothing and waits for nothing, so it can be captured (core/captured_graph.hpp).

#include <cairn/core/tensor.hpp>

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace cairn {

/// Device copies of a loss's weights. A copy of the loss uploads its own; both are destroyed on a thread that may free
/// memory of the device.
class weights_on_device {
public:
    weights_on_device() = default;
    weights_on_device(const weights_on_device&) {}
    weights_on_device& operator=(const weights_on_device&) { return *this; }

    /// `values` as T in memory of D; empty where there are none.
    template <class T, Device D>
    tensor<T, D> of(const std::vector<double>& values) const {
        if (values.empty()) return {};
        const std::scoped_lock lock(mutex_);
        if (values != values_) kept_.clear();
        for (const entry& e : kept_)
            if (e.type == &type_of<T, D> && e.pool == &D::memory())
                return static_cast<const tensor<T, D>*>(e.held.get())->share();
        tensor<T> host({static_cast<index_t>(values.size())}, memory_category::workspace);
        if (!phantom_range::holds(host.data()))
            std::transform(values.begin(), values.end(), host.data(), [](double w) { return static_cast<T>(w); });
        auto held = std::make_shared<tensor<T, D>>(host.shape(), memory_category::data,
                                                   D::memory());  // not in a recorded step's block
        D::copy_to_device(held->data(), host.data(), host.bytes());
        tensor<T, D> result = held->share();
        values_ = values;
        kept_.push_back({&type_of<T, D>, &D::memory(), std::move(held)});
        return result;
    }

private:
    template <class T, class D>
    static inline char type_of = 0;  // its address says which T and D

    struct entry {
        const void *type, *pool;
        std::shared_ptr<void> held;
    };

    mutable std::mutex mutex_;
    mutable std::vector<double> values_;
    mutable std::vector<entry> kept_;  // one a GPU and type
};

}  // namespace cairn
