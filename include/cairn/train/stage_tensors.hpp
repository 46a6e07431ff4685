#pragma once
// Tensors that the stages of a pipeline hold, on the first of its ranks and by the names of the whole model: so a saved
// state does not depend on how the model is cut.

#include <cairn/comm/any.hpp>
#include <cairn/comm/collectives/text.hpp>
#include <cairn/optim/optimizer.hpp>

#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// See the top of the file. Rank 0 holds copies of the others' while it lives.
class stage_tensors {
public:
    /// Collective. `c`: the ranks of the pipeline. `mine`: this rank's, by names that are unique over all.
    stage_tensors(any_communicator& c, std::vector<named_tensor<float>> mine) : c_(c), mine_(std::move(mine)) {
        std::ostringstream list;
        for (const auto& [name, t] : mine_) {
            list << name << '\t' << t.shape().rank();
            for (const index_t extent : t.shape()) list << ' ' << extent;
            list << '\n';
        }
        const std::vector<std::string> lists = all_gather_text(c, list.str());
        if (c.rank() != 0) return;
        for (const auto& [name, t] : mine_) all_.push_back({name, t.share()});
        for (int r = 1; r < c.size(); ++r) {
            std::istringstream lines(lists[static_cast<std::size_t>(r)]);
            for (std::string name, extents; std::getline(lines, name, '\t') && std::getline(lines, extents);) {
                std::istringstream in(extents);
                int rank = 0;
                in >> rank;
                shape s;
                for (index_t extent = 0; rank > 0 && in >> extent; --rank) s.push_back(extent);
                all_.push_back({name, tensor<float>(s, memory_category::communication)});
                owners_.push_back(r);
            }
        }
    }

    /// Rank 0 gets those of the others.
    void collect() {
        for_each_of_others([&](tensor<float>& t, int from) { recv(c_, t.span(), from, tag); },
                           [&](tensor<float>& t) { cairn::send(c_, t.span(), 0, tag); });
    }
    /// The others get theirs from rank 0.
    void distribute() {
        for_each_of_others([&](tensor<float>& t, int to) { cairn::send(c_, t.span(), to, tag); },
                           [&](tensor<float>& t) { recv(c_, t.span(), 0, tag); });
    }
    /// On rank 0: of all ranks.
    std::vector<named_tensor<float>> tensors() const {
        std::vector<named_tensor<float>> shared;
        for (const auto& [name, t] : all_) shared.push_back({name, t.share()});
        return shared;
    }

private:
    static constexpr int tag = max_tag - 4;

    template <class First, class Other>
    void for_each_of_others(First&& first, Other&& other) {
        if (c_.rank() != 0) {
            for (auto& [name, t] : mine_) other(t);
            return;
        }
        for (std::size_t i = 0; i < owners_.size(); ++i) first(all_[mine_.size() + i].t, owners_[i]);
    }

    any_communicator& c_;
    std::vector<named_tensor<float>> mine_, all_;
    std::vector<int> owners_;  // of those of all_ that are not this rank's
};

}  // namespace cairn
