#pragma once
// The assignment of K-FAC's work on P ranks, of layers with places; kfac_ranks.hpp adds the messages.

#include <cairn/comm/collectives/all_reduce.hpp>
#include <cairn/parallel/kfac_collectives.hpp>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

template <class T, Device D>
class distributed_kfac_base : public kfac_work_assignment<T, D> {
public:
    using blocks = std::vector<kfac_layer<T, D>>;
    using factor = kfac_factor<T, D>;

    bool observes(std::size_t i, char side) const final {
        return config_.statistics != kfac_statistics::local || worker(i, side) == rank_;
    }
    bool averages(std::size_t i, char side) const final {
        return config_.statistics == kfac_statistics::all || worker(i, side) == rank_;
    }
    bool decomposes(std::size_t i, char side) const final { return worker(i, side) == rank_; }
    bool preconditions(std::size_t i) const final { return place_->is_gradient_worker(i, rank_); }
    bool uses_decomposition(std::size_t i) const final { return preconditions(i); }

    /// By columns: what a row's ranks send each other lies together.
    std::vector<std::size_t> order_of_directions(const blocks& all) const final {
        std::vector<std::size_t> order = kfac_work_assignment<T, D>::order_of_directions(all);
        std::ranges::stable_sort(order, {}, [&](std::size_t i) { return place_->layers()[i].column; });
        return order;
    }

    std::vector<std::string> diagnostics() const final {
        return place_ ? assignment_diagnostics(*place_, estimates_) : std::vector<std::string>{};
    }

    const kfac_ranks_config& ranks_config() const { return config_; }
    /// Once the layers are known.
    bool has_place() const { return place_.has_value(); }
    const kfac_assignment& place() const { return *place_; }
    const std::vector<kfac_assignment_estimate>& estimates() const { return estimates_; }

protected:
    distributed_kfac_base(kfac_ranks_config c, int rank, int size) : config_(std::move(c)), rank_(rank), size_(size) {}

    /// Collective. `measure()` gives the link between ranks, and is asked where the fraction of gradient workers has to
    /// be chosen.
    template <Communicator C, class Measure>
    void put_in_place(C& world, const blocks& all, const kfac_config& k, Measure&& measure) {
        require_equal_layers(world, all);
        std::vector<factor_sizes> sizes;
        for (const kfac_layer<T, D>& b : all) sizes.push_back(b.sizes());
        kfac_assignment_config place = config_.place;
        if (place.grad_worker_fraction == 0)
            place.grad_worker_fraction = choose_assignment(world, measure(), config_, k, all, estimates_);
        place_.emplace(size_, sizes, place);
    }

    /// Collective. The rows that went into each layer's statistics, of all ranks.
    template <Communicator C>
    static void add_rows(C& world, blocks& all) {
        std::vector<double> rows;
        for (const kfac_layer<T, D>& b : all) rows.push_back(static_cast<double>(b.rows));
        all_reduce(world, std::span<double>(rows), {.label = "rows of kfac's layers"});
        for (std::size_t i = 0; i < all.size(); ++i) all[i].rows = static_cast<index_t>(rows[i]);
    }

    int worker(std::size_t i, char side) const { return place_->worker(i, side); }

    /// f(block, its running_factor) for those of blocks [first, last) that `owner` decomposes.
    template <class F>
    void each_sum(blocks& all, std::size_t first, std::size_t last, int owner, F&& f) const {
        for (std::size_t i = first; i < last; ++i)
            all[i].each_factor([&](factor& one, char side) {
                if (worker(i, side) == owner) f(all[i], one.statistics);
            });
    }

    /// Factors with fresh decompositions that the ranks of my column need, by the row of the rank that made them.
    std::vector<std::vector<factor*>> made_in_my_column(blocks& all, const std::vector<bool>& fresh) const {
        std::vector<std::vector<factor*>> made(static_cast<std::size_t>(place_->rows()));
        std::size_t at = 0;
        for (std::size_t i = 0; i < all.size(); ++i)
            all[i].each_factor([&](factor& f, char side) {
                if (fresh[at++] && preconditions(i))
                    made[static_cast<std::size_t>(place_->row_of(worker(i, side)))].push_back(&f);
            });
        return made;
    }

    kfac_ranks_config config_;
    int rank_, size_;
    std::optional<kfac_assignment> place_;
    std::vector<kfac_assignment_estimate> estimates_;
};

}  // namespace cairn
