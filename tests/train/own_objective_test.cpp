// The objective of course/write-your-own-objective.md: loss and gradient by a plain loop, and training by its name on
// the host and on another device.

#include "train/own_objective.hpp"
#include "catch.hpp"
#include "messages.hpp"
#include "state/temporary_folder.hpp"
#include "train/compiled_session.hpp"

namespace cairn {

namespace {

nlohmann::json trained(const std::string& loss) {
    const temporary_folder folder;
    session<> s(configuration::from_text("[data]\nformat = 'cosmology'\ncosmology.size = 8\ncosmology.volumes = 16\n"
                                         "[model]\nkind = 'mlp'\nhidden = [5]\n[optimizer]\nlr = 1e-2\n"
                                         "[train]\nbatch = 4\nepochs = 8\ntest_every = 8\n" +
                                         loss),
                {.out = folder / "run", .resume = {}, .max_steps = -1, .generated = false});
    return s.train();
}

}  // namespace

TEST_CASE("an objective of one's own: loss, gradient and figure by plain loops", "[own]") {
    const any_objective<> goal = user::quantile_regression{0.9f};
    batch b;
    b.count = 2;
    b.targets = tensor<float>({2, 2});
    tensor<float> y({2, 2});
    for (index_t i = 0; i < 4; ++i) b.targets[i] = static_cast<float>(i), y[i] = i % 2 ? 3.5f : 0.0f;
    double loss = 0;
    const auto [value, gradient] = goal.loss(y.share(), samples_on<cpu>(b));
    for (index_t i = 0; i < 4; ++i) {
        const double above = static_cast<double>(b.targets[i] - y[i]);
        loss += (above > 0 ? 0.9 * above : -0.1 * above) / 4;
        CHECK(gradient[i] == Approx(above > 0 ? -0.9 / 4 : 0.1 / 4));
    }
    CHECK(value == Approx(loss));
    evaluation e = goal.start();
    goal.add(e, y, device_batch<>(samples_of(b, range{0, 2})));
    CHECK(goal.metrics(e) == metric_list{{"covered", 0.75}});
    CHECK(!goal.counts_correct());
    CHECK_THROWS_WITH(goal.sampled_gradient(y.clone(), {1, 2, 3}), Catch::Contains("kfac.fisher = empirical"));
}

TEST_CASE("an objective of one's own trains by its name", "[own]") {
    const nlohmann::json high = trained("[loss]\nkind = 'quantile'\ntau = 0.95\n"),
                         low = trained("[loss]\nkind = 'quantile'\ntau = 0.05\n");
    CHECK(high.at("test_covered").get<double>() > 0.6);
    CHECK(low.at("test_covered").get<double>() < 0.4);
    CHECK(
        test::contains(test::message_of([] { trained("[loss]\nkind = 'quantille'\n"); }), "did you mean 'quantile'?"));
    CHECK(test::contains(test::message_of([] { trained("[loss]\nkind = 'quantile'\ntua = 0.5\n"); }), "tau"));
}

}  // namespace cairn
