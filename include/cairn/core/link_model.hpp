#pragma once
// What a message between two ranks takes, as measured points with straight lines between: no machine has one α and one
// β (eager messages, caches, copies by the kernel). The one model of a link: collectives are chosen by it
// (comm/collectives/cost_model.hpp), machine files hold it (perf/machine_description.hpp), simulations run on it.

#include <algorithm>
#include <vector>

namespace cairn {

/// Seconds for a message of `bytes`.
struct link_point {
    double bytes = 0;
    double exchange = 0;  // to send and receive one
    double reduce = 0;    // more, to add what came
};

/// Measured cost of a message between ranks of one communicator.
class link_model {
public:
    /// start + bytes · each
    struct line {
        double start = 0, each = 0;  // seconds, and seconds a byte
    };

    link_model() = default;
    explicit link_model(std::vector<link_point> points) : points_(std::move(points)) {
        std::ranges::sort(points_, {}, &link_point::bytes);
    }
    /// One α (seconds), β (seconds a byte) and γ (seconds a byte added) for all sizes.
    link_model(double alpha, double beta, double gamma)
        : points_{{0, alpha, 0}, {1e6, alpha + 1e6 * beta, 1e6 * gamma}} {}

    bool empty() const { return points_.empty(); }
    const std::vector<link_point>& points() const { return points_; }
    double exchange(double bytes) const { return at(bytes, &link_point::exchange); }
    double reduce(double bytes) const { return at(bytes, &link_point::reduce); }

    /// The straight line that exchange(bytes) lies on: below the first point what that one costs, above the last the
    /// last line goes on.
    line line_at(double bytes) const { return line_at(bytes, &link_point::exchange); }

private:
    line line_at(double bytes, double link_point::*of) const {
        if (points_.empty()) return {};
        if (points_.size() == 1 || bytes <= points_.front().bytes) return {points_.front().*of, 0};
        std::size_t i = 1;
        while (i + 1 < points_.size() && points_[i].bytes < bytes) ++i;
        const link_point &a = points_[i - 1], &b = points_[i];
        const double each = (b.*of - a.*of) / (b.bytes - a.bytes);
        return {a.*of - a.bytes * each, each};
    }
    double at(double bytes, double link_point::*of) const {
        const line l = line_at(bytes, of);
        return std::max(0.0, l.start + bytes * l.each);
    }

    std::vector<link_point> points_;
};

}  // namespace cairn
