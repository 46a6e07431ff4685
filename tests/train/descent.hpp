#pragma once
// A user's optimizer in one header: the rule, and its name in workload files.

#include <cairn/train/optimizers.hpp>

#include <array>

namespace user {

template <class T>
struct descent_rule {
    T lr;
    void operator()(T& theta, T g) const { theta -= lr * g; }
};

/// θ ← θ − lr·g
struct descent {
    static constexpr const char* name = "descent";
    struct config {
        double slowness = 1;  // divides the rate
    } c;
    template <class T, cairn::Device D>
    struct state {
        static constexpr std::array<const char*, 0> names{};
    };
    template <class T>
    descent_rule<T> rule(const cairn::update_context& at) const {
        return {T(at.lr / c.slowness)};
    }
    void check() const { cairn::require(c.slowness > 0, "descent: slowness ", c.slowness); }
};

struct descent_entry {
    static constexpr const char* name = "descent";
    static descent make(cairn::configuration& settings) {
        return {{.slowness = settings.get("optimizer.slowness", 1.0, cairn::above(0))}};
    }
};
static const cairn::register_optimizer<descent_entry, CAIRN_TARGETS> descent_is_known;

}  // namespace user
