#pragma once
// The state of a sharded optimizer in one piece, so that a snapshot does not depend on the number of ranks:
// "velocity/conv1/weight", …, as an optimizer without shards names it. Holds one copy of the whole state on every rank
// while it lives.

#include <cairn/comm/collectives/all_gather.hpp>
#include <cairn/parallel/sharded.hpp>

#include <vector>

namespace cairn {

/// Whole tensors of every field of an optimizer's state.
template <class T = float, Device D = cpu>
class whole_state {
public:
    /// Zeros; `o` is anything with flat_state() and owned().
    template <class O>
    whole_state(O& o, arena<T, D>& weights) : owned_(o.owned()), parts_(o.flat_state()) {
        for (const auto& part : parts_)
            fields_.push_back({part.name, tensor<T, D>::zeros(weights.values().shape(), memory_category::optimizer)});
        for (const auto& [name, p] : weights.parameters())
            slices_.push_back({name, p->shape, p->value.data() - weights.values().data()});
    }

    /// Collective: fills it from the ranks' parts, by a communicator that carries tensors of D.
    template <Communicator C>
    void collect(C& c, const std::vector<range>& owners) {
        for (std::size_t k = 0; k < parts_.size(); ++k) {
            copy(parts_[k].t.data(), fields_[k].t.data() + owned_.begin);
            all_gather(c, fields_[k].t.span(), owners);
        }
    }

    /// Gives this rank's part back to its optimizer, after what tensors() shows was overwritten.
    void distribute() {
        for (std::size_t k = 0; k < parts_.size(); ++k) copy(fields_[k].t.data() + owned_.begin, parts_[k].t.data());
    }

    /// Handles to the state of every parameter.
    std::vector<named_tensor<T, D>> tensors() const {
        std::vector<named_tensor<T, D>> all;
        for (const auto& field : fields_)
            for (const auto& s : slices_) all.push_back({field.name + '/' + s.name, field.t.slice(s.begin, s.extent)});
        return all;
    }

private:
    struct slice {
        std::string name;
        shape extent;
        index_t begin;
    };
    // This rank's part.
    void copy(const T* from, T* to) const { D::copy_within(to, from, owned_.count * static_cast<index_t>(sizeof(T))); }

    range owned_;
    std::vector<named_tensor<T, D>> parts_, fields_;
    std::vector<slice> slices_;
};

}  // namespace cairn
