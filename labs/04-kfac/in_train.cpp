// Your K-FAC as optimizer.kind = "student" of the program train. README.md has the commands.

#include <cairn/train/optimizers.hpp>

#include "factors.hpp"
#include "precondition.hpp"
#include "ranks.hpp"

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace {

using cairn::index_t;

/// What the library asks of a preconditioner (cairn/optim/precondition/preconditioner.hpp): layers announce the rows of
/// their inputs and output gradients, then it replaces the gradients by directions. optimizer.base takes the step.
/// Layers that are not linear keep their gradients. Factors are yours, so a run's saved state has none of them.
class student_kfac final : public cairn::preconditioner<float>, public cairn::curvature_listener {
public:
    struct config {
        double damping, decay, clip;
        std::int64_t inverse_update_interval;
    };

    student_kfac(cairn::arena<float>& weights, const config& c, cairn::any_communicator& world)
        : config_(c), world_(world.split(0, world.rank())) {
        for (const auto& [name, p] : weights.parameters()) parameters_[p->id] = p;
    }

    cairn::curvature_listener* begin_step() override {
        for (auto& [weight, layer] : layers_) layer.rows = {};
        return this;
    }
    cairn::curvature_listener* discover() override { return begin_step(); }
    void skip_step() override { begin_step(); }
    bool wants(int, cairn::rows_kind kind) const override { return kind == cairn::rows_kind::linear; }

    void take(const cairn::curvature_samples<float>& samples) override {
        cairn::require(samples.bias >= 0 && samples.positions == 1,
                       "your K-FAC is for layers with a bias, one row an example");
        layer& l = layers_[samples.weight];
        l.bias = samples.bias;
        if (samples.in_backward)
            append(l.rows.dy, samples.dy, samples.examples, samples.out);
        else
            append(l.rows.x, samples.x, samples.examples, samples.in);
    }

    void precondition(double examples, double lr) override {
        std::vector<student::factor_sums> sums;
        for (auto& [weight, l] : layers_) {  // dy is of the mean over all ranks' examples, sums_of wants its own rows'
            for (double& g : l.rows.dy.values) g *= examples / static_cast<double>(l.rows.dy.rows);
            sums.push_back(student::sums_of(l.rows));
        }
        student::sum_over_ranks(world_, sums);
        std::vector<student::matrix> gradients, directions;
        for (std::size_t i = 0; auto& [weight, l] : layers_) {
            l.factors.decay = config_.decay;
            l.factors.take(sums[i++]);
            if (steps_ % config_.inverse_update_interval == 0)
                l.damped = student::damped_inverses(l.factors.a, l.factors.g, config_.damping);
            gradients.push_back(gradient_of(weight, l.bias));
            directions.push_back(student::precondition(l.damped, gradients.back()));
        }
        const double scale =
            config_.clip > 0 && lr > 0 ? student::clip_scale(directions, gradients, lr, config_.clip) : 1;
        for (std::size_t i = 0; auto& [weight, l] : layers_) put(scale, directions[i++], weight, l.bias);
        ++steps_;
    }

    std::vector<cairn::named_tensor<float>> tensors() override { return {}; }
    std::vector<std::pair<std::string, std::int64_t*>> counters() override { return {}; }

private:
    struct layer {
        int bias = -1;
        student::curvature_samples rows;  // of this step
        student::running_factors factors;
        student::inverses damped;
    };

    static void append(student::matrix& to, const float* rows, index_t count, index_t width) {
        to.cols = static_cast<std::size_t>(width);
        to.rows += static_cast<std::size_t>(count);
        to.values.insert(to.values.end(), rows, rows + count * width);
    }

    /// Visits element (o, i) of (out, in + 1), whose last column is the bias's, and the library's gradient there.
    template <class Visit>
    void each(int weight, int bias, Visit&& visit) {
        auto &w = parameters_.at(weight)->grad, &b = parameters_.at(bias)->grad;
        const auto out = static_cast<std::size_t>(w.extent(0)), in = static_cast<std::size_t>(w.extent(1));
        for (std::size_t o = 0; o < out; ++o) {
            for (std::size_t i = 0; i < in; ++i) visit(o, i, w.data()[o * in + i]);
            visit(o, in, b.data()[o]);
        }
    }
    student::matrix gradient_of(int weight, int bias) {
        const auto& w = parameters_.at(weight)->grad;
        student::matrix m(static_cast<std::size_t>(w.extent(0)), static_cast<std::size_t>(w.extent(1)) + 1);
        each(weight, bias, [&](std::size_t o, std::size_t i, float& g) { m(o, i) = static_cast<double>(g); });
        return m;
    }
    void put(double scale, const student::matrix& v, int weight, int bias) {
        each(weight, bias, [&](std::size_t o, std::size_t i, float& g) { g = static_cast<float>(scale * v(o, i)); });
    }

    config config_;
    cairn::any_communicator world_;
    std::map<int, cairn::parameter<float>*> parameters_;  // by id
    std::map<int, layer> layers_;                         // by the id of the weight
    std::int64_t steps_ = 0;
};

struct entry {
    static constexpr const char* name = "student";
    static std::unique_ptr<cairn::preconditioner<float>> make(cairn::configuration& settings,
                                                              cairn::arena<float>& weights,
                                                              cairn::any_communicator& world) {
        const student_kfac::config c{
            settings.get("student.damping", 1e-2, cairn::above(0)),
            settings.get("student.factor_decay", 0.95, cairn::from_below(0, 1)),
            settings.get("student.clip", 0.0, cairn::at_least(0)),
            settings.get<std::int64_t>("student.inverse_update_interval", 10, cairn::at_least(1))};
        return std::make_unique<student_kfac>(weights, c, world);
    }
};

const cairn::register_preconditioner<entry> is_known;

}  // namespace
