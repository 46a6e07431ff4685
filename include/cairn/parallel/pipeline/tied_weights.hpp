#pragma once
// Weights that several layers use (parameter::tied_to), as a transformer's last map uses its embedding's table (Press
// and Wolf 2017). On one rank they have one memory. On a pipeline the layers may lie on several ranks; then the rank of
// the parameter owns it, with its optimizer state, and the others have a copy:
//   before forward     the owner's values → each copy                    share_values()
//   in backward        each use adds to a gradient of its own            begin() zeroes them
//   after backward     gradient of the parameter += that of each use     sum(), before the ranks of a data axis add up
// Uses have gradients of their own on one rank too: a sum over all micro-batches of one use, then of the next. So the
// bits do not depend on where the layers lie. Norms, clipping and saved states count the parameter once.
// Bytes that travel in a step: values and gradients of each use that is elsewhere (Megatron-LM all-reduces them).

#include <cairn/comm/collectives/text.hpp>
#include <cairn/core/arena.hpp>
#include <cairn/core/sent_messages.hpp>
#include <cairn/core/trace.hpp>
#include <cairn/nn/pass_context.hpp>
#include <cairn/parallel/channel.hpp>

#include <algorithm>
#include <array>
#include <span>
#include <sstream>
#include <string>
#include <vector>

namespace cairn {

/// See the top of the file. T: of the weights.
template <class T, Device D, Communicator C>
class tied_weights {
public:
    /// Of one rank that has the whole model.
    explicit tied_weights(arena<T, D>& weights) {
        for (const auto& [name, use] : weights.uses()) {
            ties_.push_back({name, owner_of(weights, use->tied_to), use, 0, 0});
            require(ties_.back().owner, "parameter ", name, " is tied to ", use->tied_to,
                    ", which is not on this rank");
        }
        separate_gradients();
    }

    /// Collective. Of stages of a pipeline, which `over` leads along; it must outlive this. Throws on all ranks where a
    /// parameter is tied to one that no rank has.
    tied_weights(arena<T, D>& weights, channel<C>& over) : over_(&over) {
        std::ostringstream mine;
        for (const auto* list : {&weights.parameters(), &weights.frozen()})
            for (const auto& [name, p] : *list) mine << "parameter\t" << name << "\t\n";
        for (const auto& [name, use] : weights.uses()) mine << "use\t" << name << '\t' << use->tied_to << '\n';
        const std::vector<std::string> lists = all_gather_text(over.host, mine.str());
        const auto each_line = [&](auto&& f) {
            for (int r = 0; r < over.size(); ++r) {
                std::istringstream lines(lists[static_cast<std::size_t>(r)]);
                for (std::string kind, name, to;
                     std::getline(lines, kind, '\t') && std::getline(lines, name, '\t') && std::getline(lines, to);)
                    f(r, kind, name, to);
            }
        };
        each_line([&](int r, const std::string& kind, const std::string& name, const std::string& to) {
            if (kind != "use") return;
            int owner = -1;
            each_line([&](int other, const std::string& its_kind, const std::string& path, const std::string&) {
                if (its_kind == "parameter" && path == to) owner = other;
            });
            require(owner >= 0, "parameter ", name, " is tied to ", to, ", which no rank of the pipeline has");
            const bool here = r == over.rank();
            ties_.push_back({name, owner == over.rank() ? owner_of(weights, to) : nullptr,
                             here ? named(weights.uses(), name) : nullptr, owner, r});
        });
        std::ranges::sort(ties_, {}, &tie::name);
        separate_gradients();
    }

    /// A new step: no use has a gradient.
    void begin() {
        for (tie& t : ties_)
            if (t.use && !t.use->frozen) set_to_zero(D{}, t.use->grad);
    }

    /// After all backwards of a step. `listener`, which may be null, is told of each sum.
    void sum(gradient_listener* listener) {
        if (ties_.empty()) return;
        const trace_scope scope("tied gradients", "", "communication");
        for (tie& t : ties_) {
            if ((t.owner && t.owner->frozen) || (t.use && t.use->frozen)) continue;
            if (!t.owner && t.use) give(t.use->grad, t.owner_rank);
            if (!t.owner) continue;
            if (t.use) {
                for_each(functors::add{}, t.owner->grad, t.use->grad);
            } else {
                tensor<T, D> theirs(t.owner->shape, memory_category::communication);
                recv(over_->device, theirs.span(), t.use_rank, tag);
                for_each(functors::add{}, t.owner->grad, theirs);
            }
            if (listener) listener->added(std::array<int, 1>{t.owner->id});
        }
    }

    /// Copies on other ranks get the values that they are copies of.
    void share_values() {
        if (ties_.empty()) return;
        for (tie& t : ties_) {
            if (t.owner && !t.use) give(t.owner->value, t.use_rank);
            if (t.use && !t.owner) recv(over_->device, t.use->value.span(), t.owner_rank, tag);
        }
    }

    /// That this rank sends in a step.
    sent_messages sends() const {
        sent_messages sum;
        for (const tie& t : ties_) {
            if (t.owner && !t.use) sum += {1, t.owner->value.bytes()};
            if (t.use && !t.owner && !t.use->frozen) sum += {1, t.use->grad.bytes()};
        }
        return sum;
    }

private:
    static constexpr int tag = max_tag - 2;

    /// In the same order on every rank.
    struct tie {
        std::string name;             // of the use
        parameter<T, D>*owner, *use;  // null: on another rank
        int owner_rank, use_rank;
    };

    static parameter<T, D>* named(const parameter_list<T, D>& list, const std::string& name) {
        const auto at = std::ranges::find(list, name, &parameter_ref<T, D>::name);
        return at == list.end() ? nullptr : at->p;
    }
    static parameter<T, D>* owner_of(arena<T, D>& weights, const std::string& path) {
        parameter<T, D>* const trained = named(weights.parameters(), path);
        return trained ? trained : named(weights.frozen(), path);
    }

    // To another rank: a rank that has the whole model has no channel.
    void give(const tensor<T, D>& t, int to) {
        [[maybe_unused]] const auto why = because(over_->device, "tied weights");
        send(over_->device, t.span(), to, tag);
    }

    void separate_gradients() {
        for (tie& t : ties_)
            if (t.use && !t.use->frozen) t.use->grad = tensor<T, D>::zeros(t.use->shape, memory_category::gradients);
    }

    channel<C>* over_ = nullptr;
    std::vector<tie> ties_;  // those of other ranks alone, too
};

}  // namespace cairn
