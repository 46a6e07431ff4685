#pragma once
// Tasks in shares over the steps until their use (device/deferred_tasks.hpp).

#include <cairn/device/deferred_tasks.hpp>
#include <cairn/device/grid/grid.hpp>

#include <functional>
#include <numeric>
#include <utility>
#include <vector>

namespace cairn {

template <GridDevice D>
class deferred_tasks<D> {
public:
    void begin(std::vector<double> costs, std::function<void(index_t)> make) {
        costs_ = std::move(costs);
        make_ = std::move(make);
        made_ = 0;
        done_ = 0;
    }
    void make_now() { finish(); }
    void make_later() {}
    void make_share(double share) {
        const double wanted = share * std::accumulate(costs_.begin(), costs_.end(), 0.0);
        while (made_ < costs_.size() && done_ < wanted) make_next();
    }
    void finish() {
        while (made_ < costs_.size()) make_next();
    }
    void close() {
        finish();
        costs_.clear();
    }
    void resume() {}

private:
    void make_next() {
        make_(static_cast<index_t>(made_));
        done_ += costs_[made_++];
    }

    std::vector<double> costs_;
    std::function<void(index_t)> make_;
    std::size_t made_ = 0;
    double done_ = 0;  // costs of those made
};

}  // namespace cairn
