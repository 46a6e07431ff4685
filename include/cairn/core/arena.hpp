#pragma once
// One contiguous block for all parameters of a model and one for all gradients; a parameter's tensors are slices of
// them. Buckets, shards, elementwise optimizers and snapshots are then spans of one buffer.
//   [ p0 | p1 | p2 | … ]   every slice starts on a multiple of 64 bytes, the gaps hold zeros
// A parameter that is tied to another one (parameter::tied_to) is a second use of that one's slices: gradients of both
// uses add up there, and the list has it once. A pipeline stage may have the use without the parameter: that use has
// memory outside the arena (parallel/pipeline/tied_weights.hpp).
// Frozen parameters (parameter::frozen) are in a block and a list of their own, which nothing that trains sees. They
// have no number, and share room for gradients that a layer makes beside those of its trained parameters.

#include <cairn/core/compiled.hpp>
#include <cairn/core/for_each.hpp>
#include <cairn/core/parameter.hpp>
#include <cairn/core/range.hpp>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>

namespace cairn {

/// Whether the parameters of an arena are a whole model's, or those of one part of it.
enum class arena_scope { whole_model, stage };

/// Owns the memory of a model's parameters and gradients. The model must outlive it or never be used after it.
template <class T, Device D = cpu>
class arena {
public:
    /// Allocates, initialises from `seed` and the paths, binds and numbers every parameter of `list`, in order.
    /// Throws on a parameter that is bound already, on two with one path, on a slice outside its whole parameter, and
    /// on a tie to a parameter that the whole model lacks or that has another slice.
    arena(parameter_list<T, D> list, std::uint64_t seed, arena_scope scope = arena_scope::whole_model) {
        for (auto& entry : list)
            (!entry.p->tied_to.empty() ? uses_ : entry.p->frozen ? frozen_ : list_).push_back(std::move(entry));
        std::set<std::string> names;
        values_ = bind(list_, names, seed);
        grads_ = tensor<T, D>::zeros(values_.shape(), memory_category::gradients);
        int id = 0;
        for (auto& [name, p] : list_) {
            p->id = id++;
            p->grad = grads_.slice(p->value.data() - values_.data(), p->shape);
        }
        if (!frozen_.empty()) bind_frozen(names, seed);
        for (auto& [name, p] : uses_) bind_use(name, *p, scope);
    }

    /// Those that are trained.
    const parameter_list<T, D>& parameters() const { return list_; }
    /// Those that stay as they are, and their values.
    const parameter_list<T, D>& frozen() const { return frozen_; }
    tensor<T, D>& frozen_values() { return frozen_values_; }
    /// Parameters that are tied to others.
    const parameter_list<T, D>& uses() const { return uses_; }
    tensor<T, D>& values() { return values_; }
    tensor<T, D>& grads() { return grads_; }

    /// Number of trained values, without the gaps.
    index_t count() const {
        index_t n = 0;
        for (const auto& [name, p] : list_) n += p->shape.size();
        return n;
    }

    /// Sets all gradients to zero. 1 write per value.
    void zero_grad() { set_to_zero(D{}, grads_); }

private:
    // The values of a list's parameters in one block, from their paths and the seed.
    static tensor<T, D> bind(parameter_list<T, D>& list, std::set<std::string>& names, std::uint64_t seed) {
        constexpr index_t step = memory_pool::alignment / static_cast<index_t>(sizeof(T));
        index_t total = 0;
        for (const auto& [name, p] : list) total += (p->shape.size() + step - 1) / step * step;
        tensor<T, D> values = tensor<T, D>::zeros({total}, memory_category::parameters);
        index_t at = 0;
        for (auto& [name, p] : list) {
            require(p->value.empty(), "arena: parameter ", name, " has memory already (is it listed twice?)");
            require(names.insert(name).second, "arena: two parameters are called ", name,
                    "; give the layers different names");
            require(p->layout.fits(p->shape), "arena: the slice ", p->shape, " of parameter ", name,
                    " does not lie within ", p->layout.global);
            p->name = name;
            p->value = values.slice(at, p->shape);
            const random_stream random = stream_of_path(seed, path_hash(name), "initial values");
            tensor<T> drawn(p->shape, memory_category::workspace);  // the same numbers on every device
            fill(drawn.span(), p->init, random, p->shape, p->layout);
            D::copy_to_device(p->value.data(), drawn.data(), drawn.bytes());
            at += (p->shape.size() + step - 1) / step * step;
        }
        return values;
    }

    void bind_frozen(std::set<std::string>& names, std::uint64_t seed) {
        frozen_values_ = bind(frozen_, names, seed);
        index_t largest = 0;
        for (const auto& [name, p] : frozen_) largest = std::max(largest, p->shape.size());
        unused_grads_ = tensor<T, D>::zeros({largest}, memory_category::gradients);
        for (auto& [name, p] : frozen_) p->grad = unused_grads_.slice(0, p->shape);
    }

    void bind_use(const std::string& name, parameter<T, D>& use, arena_scope scope) {
        require(use.value.empty(), "arena: parameter ", name, " has memory already (is it listed twice?)");
        use.name = name;
        const auto in = [&](const parameter_list<T, D>& list) {
            const auto of = std::ranges::find(list, use.tied_to, &parameter_ref<T, D>::name);
            return of == list.end() ? nullptr : of->p;
        };
        const parameter<T, D>* const of = in(list_) ? in(list_) : in(frozen_);
        if (!of) {
            require(scope == arena_scope::stage, "arena: parameter ", name, " is tied to ", use.tied_to,
                    ", which the model does not have; name a parameter by its path");
            use.value = tensor<T, D>::zeros(use.shape, memory_category::parameters);
            use.grad = tensor<T, D>::zeros(use.shape, memory_category::gradients);
            return;
        }
        const parameter<T, D>& whole = *of;
        require(use.shape == whole.shape && use.layout.global == whole.layout.global &&
                    use.layout.begin == whole.layout.begin,
                "arena: parameter ", name, ' ', use.shape, " is tied to ", use.tied_to, ' ', whole.shape,
                ", which has another shape or is another slice");
        use.id = whole.id;
        use.value = whole.value.share();
        use.grad = whole.grad.share();
    }

    parameter_list<T, D> list_, frozen_, uses_;
    tensor<T, D> values_, frozen_values_;
    tensor<T, D> grads_, unused_grads_;  // the latter of whichever frozen parameter's layer ran last
};

template <class T, Device D>
arena(parameter_list<T, D>, std::uint64_t) -> arena<T, D>;

CAIRN_COMPILED_CLASS(arena)

}  // namespace cairn
