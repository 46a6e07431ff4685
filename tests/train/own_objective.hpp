#pragma once
// A user's objective in one header: quantile regression (Koenker and Bassett 1978). y is to be above a share τ of the
// targets.
//   l(y, t) = τ (t − y) where t > y, else (1 − τ) (y − t)        figure: the share of targets that are not above y

#include <cairn/train/objectives.hpp>

namespace user {

// --8<-- [start:rule]
struct pinball {
    float tau;
    CAIRN_HD float operator()(float y, float t, float scale, float& gradient) const {
        gradient = scale * (t > y ? -tau : 1 - tau);
        return t > y ? tau * (t - y) : (1 - tau) * (y - t);
    }
};

struct is_covered {
    CAIRN_HD void operator()(double& covered, const float& y, const float& t) const { covered = t > y ? 0 : 1; }
};
// --8<-- [end:rule]

// --8<-- [start:objective]
struct quantile_regression {
    float tau = 0.5f;

    template <cairn::Device D>
    cairn::loss_result<float, D> loss(cairn::tensor<float, D> y, const cairn::samples<D>& s) const {
        return cairn::elementwise_loss("quantile regression", std::move(y), s.targets, {}, pinball{tau});
    }
    cairn::evaluation start() const { return {.sums = {{"covered", {0}}}}; }
    template <cairn::Device D>
    void add(cairn::evaluation& e, const cairn::tensor<float, D>& y, const cairn::device_batch<D>& b) const {
        cairn::tensor<double, D> covered(y.shape());
        cairn::for_each(D{}, y.size(), is_covered{}, covered.data(), y.data(), b.there.targets.data());
        e.sums["covered"][0] += cairn::sum(D{}, y.size(), covered.data()) / static_cast<double>(y.extent(1));
    }
    cairn::metric_list metrics(const cairn::evaluation& e) const { return {{"covered", e.mean("covered")}}; }
};
// --8<-- [end:objective]

// --8<-- [start:entry]
struct quantile_entry {
    static constexpr const char* name = "quantile";
    static cairn::shape outputs(const cairn::objective_ends& ends) {
        ends.need(name, cairn::target_kind::values);
        return ends.rows();
    }
    template <cairn::Device D>
    static quantile_regression make(cairn::configuration& settings, const cairn::objective_ends&) {
        return {settings.get("loss.tau", 0.5f, cairn::from_to(0, 1))};
    }
};
static const cairn::register_objective<quantile_entry, CAIRN_TARGETS> quantile_is_known;
// --8<-- [end:entry]

}  // namespace user
