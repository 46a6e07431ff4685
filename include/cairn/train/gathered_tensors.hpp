#pragma once
// Gathers the ranks' tensors on the first rank, by name: those of a pipeline's stages by the names of the whole model,
// so that a saved state does not depend on the cuts; those of compressors by rank, "rank2/bucket0/residual".
// slice_tensors: whole tensors, on the first rank of a tensor axis, from the slices of its ranks.

#include <cairn/comm/any.hpp>
#include <cairn/comm/collectives/broadcast.hpp>
#include <cairn/comm/collectives/text.hpp>
#include <cairn/core/arena.hpp>
#include <cairn/optim/optimizer.hpp>
#include <cairn/parallel/global_parameter.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// See the top of the file. Rank 0 holds copies of the others' while it lives.
class gathered_tensors {
public:
    enum class names { unique, by_rank };  // over all ranks; "rank2/" goes in front

    /// Collective over `c`, which must outlive this. `mine`: this rank's, in float on the host.
    gathered_tensors(any_communicator& c, std::vector<named_tensor<float>> mine, names how = names::unique)
        : c_(c), mine_(std::move(mine)) {
        std::ostringstream list;
        for (const auto& [name, t] : mine_) {
            list << name << '\t' << t.shape().rank();
            for (const index_t extent : t.shape()) list << ' ' << extent;
            list << '\n';
        }
        const std::vector<std::string> lists = all_gather_text(c, list.str());
        if (c.rank() != 0) return;
        const auto full_name = [how](int r, const std::string& name) {
            return how == names::by_rank ? concat("rank", r, '/', name) : name;
        };
        for (const auto& [name, t] : mine_) all_.push_back({full_name(0, name), t.share()});
        for (int r = 1; r < c.size(); ++r) {
            std::istringstream lines(lists[static_cast<std::size_t>(r)]);
            for (std::string name, extents; std::getline(lines, name, '\t') && std::getline(lines, extents);) {
                std::istringstream in(extents);
                int rank = 0;
                in >> rank;
                shape s;
                for (index_t extent = 0; rank > 0 && in >> extent; --rank) s.push_back(extent);
                all_.push_back({full_name(r, name), tensor<float>(s, memory_category::communication)});
                owners_.push_back(r);
            }
        }
    }

    /// Collective: rank 0 gets those of the others.
    void collect() {
        for_each_of_others([&](tensor<float>& t, int from) { recv(c_, t.span(), from, tag); },
                           [&](tensor<float>& t) { cairn::send(c_, t.span(), 0, tag); });
    }
    /// Collective: the others get theirs from rank 0.
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

/// The same of whole numbers, by names that ranks may share: of those the largest is saved. All ranks have all of them.
class gathered_numbers {
public:
    /// `c` and the targets of `mine` must outlive this.
    gathered_numbers(any_communicator& c, std::vector<std::pair<std::string, std::int64_t*>> mine)
        : c_(c), mine_(std::move(mine)) {
        collect();
    }

    /// Collective: those of all ranks.
    void collect() {
        std::ostringstream list;
        for (const auto& [name, number] : mine_) list << name << '\t' << *number << '\n';
        for (const std::string& of_rank : all_gather_text(c_, list.str())) {
            std::istringstream lines(of_rank);
            for (std::string name, text; std::getline(lines, name, '\t') && std::getline(lines, text);) {
                const std::int64_t number = std::stoll(text);
                const auto [at, is_new] = all_.try_emplace(name, number);
                if (!is_new) at->second = std::max(at->second, number);
            }
        }
    }
    /// Collective: each rank's become those that rank 0 has now.
    void distribute() {
        std::vector<std::int64_t> values;  // in the order of names, on every rank
        for (const auto& [name, number] : all_) values.push_back(number);
        broadcast(c_, std::span<std::int64_t>(values), 0);
        std::size_t at = 0;
        for (auto& [name, number] : all_) number = values[at++];
        for (const auto& [name, number] : mine_) *number = all_.at(name);
    }
    std::map<std::string, std::int64_t>& numbers() { return all_; }

private:
    any_communicator& c_;
    std::vector<std::pair<std::string, std::int64_t*>> mine_;
    std::map<std::string, std::int64_t> all_;
};

/// See the top of the file. Rank 0 holds the whole ones while it lives.
class slice_tensors {
public:
    /// `c`: the ranks of the axis. `mine`: this rank's, the same names on each. A tensor called ".../PATH", of the
    /// shape of the parameter with that path, is cut as the parameter is; others are the same on each rank.
    template <Device D>
    slice_tensors(any_communicator& c, std::vector<named_tensor<float>> mine, const arena<float, D>& weights)
        : c_(c), mine_(std::move(mine)) {
        for (const auto& [name, t] : mine_) {
            const parameter_layout* layout = nullptr;
            for (const auto& [path, p] : weights.parameters())
                if (name.ends_with('/' + path) && p->shape == t.shape() && !p->layout.is_whole()) layout = &p->layout;
            layouts_.push_back(layout);
            all_.push_back({name, !layout          ? t.share()
                                  : c_.rank() == 0 ? tensor<float>(layout->global, memory_category::communication)
                                                   : tensor<float>()});
        }
    }

    /// Collective: rank 0 gets the whole tensors.
    void collect() {
        for (std::size_t i = 0; i < mine_.size(); ++i) {
            if (!layouts_[i]) continue;
            const tensor<float> whole = gather_global(c_, mine_[i].t, *layouts_[i], 0, mine_[i].name);
            if (c_.rank() == 0) cpu::copy_within(all_[i].t.data(), whole.data(), whole.bytes());
        }
    }
    /// Collective: every rank gets its slices of rank 0's tensors, and the tensors that are the same on each.
    void distribute() {
        for (std::size_t i = 0; i < mine_.size(); ++i)
            if (layouts_[i])
                scatter_global(c_, all_[i].t, mine_[i].t, *layouts_[i], 0, mine_[i].name);
            else
                broadcast(c_, mine_[i].t.span(), 0);
    }
    /// On rank 0: the whole ones. Elsewhere those that are cut are empty.
    std::vector<named_tensor<float>> tensors() const {
        std::vector<named_tensor<float>> shared;
        for (const auto& [name, t] : all_) shared.push_back({name, t.share()});
        return shared;
    }

private:
    any_communicator& c_;
    std::vector<named_tensor<float>> mine_, all_;
    std::vector<const parameter_layout*> layouts_;  // of mine_; null: the same on each rank
};

}  // namespace cairn
