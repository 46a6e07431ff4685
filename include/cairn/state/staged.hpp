#pragma once
// Tensors of another device in a saved state: host copies for as long as the state is saved or loaded.

#include <cairn/core/tensor.hpp>

#include <utility>
#include <vector>

namespace cairn {

/// See the top of the file. On the host there are no copies: handles to the tensors themselves.
template <Device D>
class staged_tensors {
public:
    /// What a state is to save or to fill for t.
    tensor<float> host_of(const tensor<float, D>& t) {
        tensor<float> here = host_side(t, memory_category::activations);
        if (here.data() != t.data()) pairs_.emplace_back(t.share(), here.share());
        return here;
    }

    /// What a state has filled goes to the device.
    void put_back() {
        for (auto& [there, here] : pairs_) D::copy_to_device(there.data(), here.data(), here.bytes());
    }

    void clear() { pairs_.clear(); }

private:
    std::vector<std::pair<tensor<float, D>, tensor<float>>> pairs_;
};

}  // namespace cairn
