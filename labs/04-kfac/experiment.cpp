// Steps to the loss of SGD by damping, with and without a clip, on the problem of the public test. From the root of the
// repository:
//   g++ -std=c++20 -O2 -pthread -I my-lab4 -I labs/grader/include -I include labs/04-kfac/experiment.cpp -o experiment
//   ./experiment
// A number on the command line is another seed, another problem.

#include "tests/training.hpp"

#include "kfac.hpp"

#include <cstdio>
#include <cstdlib>

namespace lab {
static std::uint64_t chosen = 1;
std::uint64_t seed() { return chosen; }
}  // namespace lab

namespace {

student::matrix yours(const lab::matrix& m) {
    student::matrix y(m.rows, m.cols);
    y.values = m.values;
    return y;
}
std::vector<student::curvature_samples> yours(const std::vector<lab::curvature_samples>& all) {
    std::vector<student::curvature_samples> y;
    for (const auto& one : all) y.push_back({yours(one.x), yours(one.dy)});
    return y;
}

}  // namespace

int main(int count, char** words) {
    if (count > 1) lab::chosen = std::strtoull(words[1], nullptr, 10);
    const int most = 300;
    const lab::problem problem;
    const lab::run sgd = problem.tuned_sgd(600);
    std::printf("SGD with momentum: loss %.5f after %d steps\n", sgd.loss, sgd.steps);
    for (const double clip : {0.02, 0.0})
        for (const double damping : {1e-8, 1e-6, 1e-4, 1e-2, 1.0, 100.0}) {
            student::kfac_settings settings;
            settings.lr = 0.2, settings.damping = damping, settings.clip = clip;
            student::kfac optimizer(settings);
            const auto step = [&](std::vector<lab::matrix>& weights, const auto& rows, const auto& sampled) {
                std::vector<student::matrix> w;
                for (const auto& one : weights) w.push_back(yours(one));
                optimizer.step(w, yours(rows), yours(sampled));
                for (std::size_t l = 0; l < w.size(); ++l) weights[l].values = w[l].values;
            };
            const lab::run kfac = problem.kfac(step, most, sgd.loss);
            std::printf("clip %-4g  damping %-6g  ", clip, damping);
            if (kfac.loss <= sgd.loss)
                std::printf("%d steps\n", kfac.steps);
            else
                std::printf("loss %.5f after %d steps\n", kfac.loss, kfac.steps);
        }
}
