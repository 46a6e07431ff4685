#pragma once
// The seam of every objective: the loss of a network's output y, and the metrics of a test set.
//   {value, gradient} = loss(y, s)       of samples s: the mean over them, d value / d y, which may take y's block
//   start()                              an empty evaluation; its sums have their final lengths
//   add(e, y, b)                         adds a batch's contribution to the metrics; y: output in evaluation
//   metrics(e)                           metrics by name, the most important one first
// Optional:
//   correct(y, s)                        number of rows of y whose class has the largest output: training accuracy
//   sampled_gradient(y, random, first)   gradient over y for labels drawn from the model's prediction, for K-FAC. y
//                                        begins with sample `first` of the batch of all ranks; each sample draws its
//                                        own numbers. With g a sample's part times the number of samples, the mean of
//                                        g gᵀ over draws is the Hessian over y of the sample's loss
//   averages                             what of outputs is averaged over several networks (averaged_outputs)
// An objective that is a template over the device trains on every one. Workload files name them: train/objectives.hpp.

#include <cairn/core/device_scalar.hpp>
#include <cairn/core/random.hpp>
#include <cairn/data/prefetcher.hpp>
#include <cairn/nn/loss/loss.hpp>

#include <concepts>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// Figures of a test by name, the first one the most telling.
using metric_list = std::vector<std::pair<std::string, double>>;

/// Sums over the batches of one evaluation.
struct evaluation {
    index_t count = 0;  // samples
    double loss_sum = 0;
    std::map<std::string, std::vector<double>> sums;  // the objective's; "confusion": [true][predicted], for the report
    std::vector<std::vector<double>> truth, predicted;  // [value][sample], physical units, for the report

    double loss() const { return count ? loss_sum / static_cast<double>(count) : 0; }
    double mean(const std::string& sum) const { return count ? sums.at(sum)[0] / static_cast<double>(count) : 0; }
};

/// What of the outputs of several networks has a mean: the outputs, or of each row the probabilities softmax(y).
enum class averaged_outputs { none, values, class_probabilities };

/// See the top of the file.
template <class O, class D = cpu>
concept Objective = Device<D> && requires(const O& o, tensor<float, D> y, const device_batch<D>& b, evaluation& e) {
    { o.loss(std::move(y), b.there) } -> std::same_as<loss_result<float, D>>;
    { o.start() } -> std::same_as<evaluation>;
    o.add(e, y, b);
    { o.metrics(e) } -> std::same_as<metric_list>;
};

/// One with correct(). (A concept, and no constant of a class: of what a constant's requires-expression calls, nvcc
/// 13.0 compiles no kernels.)
template <class O, class D>
concept CountsCorrect = requires(const O& o, const tensor<float, D>& y, const samples<D>& s) {
    { o.correct(y, s) } -> std::convertible_to<scalar_on<D>>;
};

/// One that says what is averaged over networks.
template <class O>
concept AveragesOutputs = requires {
    { O::averages } -> std::convertible_to<averaged_outputs>;
};

/// Any objective on D, behind one type: what the trainer holds. Copies share it.
template <Device D = cpu>
class any_objective {
public:
    template <Objective<D> O>
    any_objective(O o) : self_(std::make_shared<model<O>>(std::move(o))) {}

    loss_result<float, D> loss(tensor<float, D> y, const samples<D>& s) const { return self_->loss(std::move(y), s); }
    bool counts_correct() const { return self_->counts_correct(); }
    scalar_on<D> correct(const tensor<float, D>& y, const samples<D>& s) const { return self_->correct(y, s); }
    tensor<float, D> sampled_gradient(tensor<float, D> y, const random_stream& random, index_t first = 0) const {
        return self_->sampled_gradient(std::move(y), random, first);
    }

    evaluation start() const { return self_->start(); }
    /// Adds a batch to an evaluation.
    void add(evaluation& e, const tensor<float, D>& y, const device_batch<D>& b) const {
        self_->add(e, y, b);
        e.loss_sum += static_cast<double>(loss(y.share(), b.there).value) * static_cast<double>(b.host.count);
        e.count += b.host.count;
    }
    metric_list metrics(const evaluation& e) const { return self_->metrics(e); }
    averaged_outputs averages() const { return self_->averages(); }

private:
    struct interface {
        virtual ~interface() = default;
        virtual loss_result<float, D> loss(tensor<float, D> y, const samples<D>& s) const = 0;
        virtual bool counts_correct() const = 0;
        virtual scalar_on<D> correct(const tensor<float, D>& y, const samples<D>& s) const = 0;
        virtual tensor<float, D> sampled_gradient(tensor<float, D> y, const random_stream& random,
                                                  index_t first) const = 0;
        virtual evaluation start() const = 0;
        virtual void add(evaluation& e, const tensor<float, D>& y, const device_batch<D>& b) const = 0;
        virtual metric_list metrics(const evaluation& e) const = 0;
        virtual averaged_outputs averages() const = 0;
    };
    template <class O>
    struct model final : interface {
        explicit model(O objective) : o(std::move(objective)) {}
        loss_result<float, D> loss(tensor<float, D> y, const samples<D>& s) const override {
            return o.loss(std::move(y), s);
        }
        bool counts_correct() const override { return CountsCorrect<O, D>; }
        scalar_on<D> correct(const tensor<float, D>& y, const samples<D>& s) const override {
            if constexpr (CountsCorrect<O, D>)
                return y.size() > 0 ? o.correct(y, s) : scalar_on<D>(0);
            else
                return 0;
        }
        tensor<float, D> sampled_gradient(tensor<float, D> y, const random_stream& random,
                                          index_t first) const override {
            if constexpr (requires { o.sampled_gradient(std::move(y), random, first); })
                return o.sampled_gradient(std::move(y), random, first);
            else
                fail(
                    "kfac.fisher = mc draws labels from the model, but this objective has no sampled_gradient(); "
                    "take "
                    "kfac.fisher = empirical");
        }
        evaluation start() const override { return o.start(); }
        void add(evaluation& e, const tensor<float, D>& y, const device_batch<D>& b) const override { o.add(e, y, b); }
        metric_list metrics(const evaluation& e) const override { return o.metrics(e); }
        averaged_outputs averages() const override {
            if constexpr (AveragesOutputs<O>)
                return O::averages;
            else
                return averaged_outputs::none;
        }
        O o;
    };

    std::shared_ptr<const interface> self_;
};

}  // namespace cairn
