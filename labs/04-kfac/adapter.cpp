// What the tests may call. A matrix travels as (rows, columns, elements row by row).

#include "worker.hpp"

#include "factors.hpp"
#include "kfac.hpp"
#include "precondition.hpp"
#include "ranks.hpp"

#include <map>

using namespace student;

#define MEMBERS(type, ...)                                        \
    template <>                                                   \
    struct lab::members<type> {                                   \
        static auto of(auto& s) { return std::tie(__VA_ARGS__); } \
    }
MEMBERS(matrix, s.rows, s.cols, s.values);
MEMBERS(curvature_samples, s.x, s.dy);
MEMBERS(factor_sums, s.a, s.g, s.examples);
MEMBERS(layer_sizes, s.a, s.g);
MEMBERS(layer_place, s.column, s.worker);
MEMBERS(kfac_assignment, s.ranks, s.rows, s.layers);
MEMBERS(traffic, s.factors, s.decompositions, s.directions);
MEMBERS(kfac_settings, s.lr, s.damping, s.clip, s.decay, s.factor_update_interval, s.inverse_update_interval);

namespace {

using lab::serve;
using matrices = std::vector<matrix>;
using samples = std::vector<curvature_samples>;
using sizes = std::vector<layer_sizes>;
std::map<int, running_factors> averages;
std::map<int, kfac> optimizers;

const bool served[] = {
    serve("gradient_of", [](curvature_samples rows) { return gradient_of(rows); }),
    serve("sums_of", [](curvature_samples rows) { return sums_of(rows); }),
    serve("running_factors",  // number `which`, from now on
          [](int which, double decay) {
              running_factors fresh;
              fresh.decay = decay;
              averages.insert_or_assign(which, fresh);
          }),
    serve("running_factors::take",
          [](int which, factor_sums batch) {
              running_factors& running = averages.at(which);
              running.take(batch);
              return std::pair(running.a, running.g);
          }),
    serve("precondition by eigenvectors",
          [](matrix a, matrix g, double damping, matrix gradient) {
              return precondition(eigen_of(a), eigen_of(g), damping, gradient);
          }),
    serve("pi_of", [](matrix a, matrix g) { return pi_of(a, g); }),
    serve("precondition by inverses",
          [](matrix a, matrix g, double damping, matrix gradient) {
              return precondition(damped_inverses(a, g, damping), gradient);
          }),
    serve("clip_scale", [](matrices directions, matrices gradients, double lr,
                           double clip) { return clip_scale(directions, gradients, lr, clip); }),
    serve("kfac", [](int which, kfac_settings settings) { optimizers.insert_or_assign(which, kfac(settings)); }),
    serve("kfac::step",
          [](int which, matrices weights, samples gradients, samples curvature) {
              optimizers.at(which).step(weights, gradients, curvature);
              return weights;
          }),
    serve("gradient_workers", [](int ranks, double fraction) { return gradient_workers(ranks, fraction); }),
    serve("assign_layers", [](int ranks, int workers, sizes layers) { return assign_layers(ranks, workers, layers); }),
    serve("source", [](kfac_assignment p, std::size_t layer, int rank) { return source(p, layer, rank); }),
    serve("traffic_of", [](kfac_assignment p, sizes layers) { return traffic_of(p, layers); }),
    serve("kept_by", [](kfac_assignment p, sizes layers, int rank) { return kept_by(p, layers, rank); }),
    serve("sum_over_ranks",
          [](lab::communicator& c, std::vector<factor_sums> layers) {
              sum_over_ranks(c, layers);
              return layers;
          }),
};

}  // namespace
