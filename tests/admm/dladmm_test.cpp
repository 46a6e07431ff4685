// dlADMM: its objective falls, its dual is what theory says, it learns, and a broken run is named.

#include "admm/chains.hpp"
#include "catch.hpp"
#include "messages.hpp"

#include <cairn/admm/dladmm.hpp>
#include <cairn/admm/pdadmm.hpp>

namespace admm_dladmm_tests {

using namespace admm_tests;
using namespace cairn::admm;

double accuracy(const tensor<double>& y, const output_loss<double>& loss) {
    const index_t classes = y.extent(1);
    index_t right = 0;
    for (index_t i = 0; i < y.extent(0); ++i)
        right += std::max_element(y.data() + i * classes, y.data() + (i + 1) * classes) - y.data() - i * classes ==
                 loss.labels[i];
    return static_cast<double>(right) / static_cast<double>(y.extent(0));
}

output_loss<double> copy_of(const output_loss<double>& l) { return {l.labels.share(), l.targets.share()}; }

TEST_CASE("dladmm: the objective falls, the dual is Y - softmax(z), and the network learns", "[admm]") {
    for (const auto solver : {block_solver::exact, block_solver::gradient}) {
        network n = small_mlp({6, 24, 16, 4});
        const tensor<double> x = normals({200, 6}, 1);
        const output_loss<double> loss = classes_of(x, 4);
        const double before = accuracy(n.output(x), loss);
        dladmm<double> algorithm(n.layers(), {.rho = 1e-2, .solver = solver}, x.clone(), copy_of(loss));
        double last = algorithm.evaluate().total();
        for (int i = 0; i < 15; ++i) {
            const objective_terms now = algorithm.iterate();
            CHECK(now.total() <= last * (1 + 1e-9));
            CHECK(now.total() == Approx(algorithm.evaluate().total()));
            last = now.total();
            // ∇CE(z) + u = 0 after the exact z and the dual step, moved by what W and b did meanwhile: none, they come
            // before z in the forward half.
            const tensor<double>&z = algorithm.output(), &u = algorithm.dual();
            for (index_t s = 0; s < 200; s += 37) {
                std::vector<double> row(z.data() + 4 * s, z.data() + 4 * s + 4), p(4);
                softmax_of(row, p);
                for (index_t k = 0; k < 4; ++k)
                    CHECK(u[4 * s + k] == Approx((loss.labels[s] == k) - p[static_cast<std::size_t>(k)]).margin(1e-8));
            }
        }
        CHECK(accuracy(n.output(x), loss) > (solver == block_solver::exact ? 0.85 : 0.6));
        CHECK(accuracy(n.output(x), loss) > before);
    }
}

TEST_CASE("dladmm: convolutions and pooling, exact and by gradient steps, and squared targets", "[admm]") {
    for (const bool pooled_first : {false, true})
        for (const auto solver : {block_solver::exact, block_solver::gradient}) {
            network n = pooled_first ? pool_before_relu() : small_conv();
            const tensor<double> x = normals(n.in.with(0, 60), 1);
            output_loss<double> loss;
            if (pooled_first)
                loss.targets = normals({60, 4}, 2);
            else
                loss = classes_of(x, 4);
            dladmm<double> algorithm(n.layers(), {.rho = 0.1, .mu = 1e-3, .solver = solver}, x.clone(),
                                     std::move(loss));
            const double first = algorithm.evaluate().total();
            double last = first;
            for (int i = 0; i < 8; ++i) {
                const double now = algorithm.iterate().total();
                CHECK(now <= last * (1 + 1e-9));
                last = now;
            }
            CHECK(last < 0.9 * first);
        }
}

TEST_CASE("admm: nodes without a label have no loss", "[admm]") {
    for (const auto solver : {block_solver::exact, block_solver::gradient}) {
        network n = small_graph();
        const tensor<double> x = normals(n.in, 1);
        output_loss<double> loss;
        loss.labels = tensor<std::int32_t>({7});
        const int labels[] = {0, -1, 2, 1, -1, 0, -1};
        std::copy(labels, labels + 7, loss.labels.data());
        CHECK(loss.counted() == 4);
        dladmm<double> serial(n.layers(), {.rho = 0.1, .mu = 1e-3, .solver = solver}, x.clone(), copy_of(loss));
        network other = small_graph();
        pdadmm<double> parallel(other.layers(), {.rho = 0.4, .nu = 0.1, .mu = 1e-3, .solver = solver}, x.clone(),
                                copy_of(loss));
        double last = serial.evaluate().total(), last_of_parallel = parallel.evaluate().total();
        for (int i = 0; i < 20; ++i) {
            const double now = serial.iterate().total(), of_parallel = parallel.iterate().total();
            CHECK(now <= last * (1 + 1e-9));
            CHECK(of_parallel <= last_of_parallel * (1 + 1e-9));
            last = now;
            last_of_parallel = of_parallel;
            for (index_t k = 0; k < 3; ++k) CHECK(serial.dual()[3 + k] == Approx(0).margin(1e-12));
        }
        for (network* trained : {&n, &other}) {
            const tensor<double> y = trained->output(x);
            for (index_t i = 0; i < 7; ++i)
                if (labels[i] >= 0)
                    CHECK(std::max_element(y.data() + 3 * i, y.data() + 3 * i + 3) - y.data() - 3 * i == labels[i]);
        }
    }
}

TEST_CASE("dladmm: the same bits twice, and from saved variables", "[admm]") {
    const tensor<double> x = normals({50, 6}, 1);
    const auto run = [&](int first, int more) {
        network n = small_mlp();
        std::vector<double> at_break;
        dladmm<double> one(n.layers(), {.rho = 0.1}, x.clone(), classes_of(x, 4));
        for (int i = 0; i < first; ++i) one.iterate();
        network again = small_mlp();
        dladmm<double> two(again.layers(), {.rho = 0.1}, x.clone(), classes_of(x, 4));
        const auto from = one.variables();
        auto to = two.variables();
        for (std::size_t v = 0; v < to.size(); ++v) {
            CHECK(to[v].name == from[v].name);
            std::ranges::copy(from[v].value.span(), to[v].value.data());
        }
        const auto numbers = one.numbers();
        for (std::size_t i = 0; i < numbers.size(); ++i) *two.numbers()[i].second = *numbers[i].second;
        const auto counters = one.counters();
        for (std::size_t i = 0; i < counters.size(); ++i) *two.counters()[i].second = *counters[i].second;
        for (int i = 0; i < more; ++i) two.iterate();
        return again.values();
    };
    CHECK(run(0, 6) == run(3, 3));
}

TEST_CASE("dladmm: rho rises or grows as asked for", "[admm]") {
    network n = small_mlp();
    const tensor<double> x = normals({30, 6}, 1);
    dladmm<double> growing(n.layers(), {.rho = 1e-3, .schedule = {rho_rule::growing, 2, 5e-3}}, x.clone(),
                           classes_of(x, 4));
    growing.iterate();
    CHECK(growing.rho() == Approx(2e-3));
    for (int i = 0; i < 4; ++i) growing.iterate();
    CHECK(growing.rho() == 5e-3);

    rho_state state{.rho = 1e-6, .last_objective = 1};
    const rho_schedule rising{rho_rule::rising, 10, 1e-5};
    double cost = 1;
    CHECK(state.after_iteration(rising, cost += 1) == 1);
    CHECK(state.after_iteration(rising, cost += 1) == 1);
    CHECK(state.after_iteration(rising, cost += 1) == Approx(10));
    CHECK(state.rho == Approx(1e-5));
    for (int i = 0; i < 6; ++i) CHECK(state.after_iteration(rising, cost += 1) == 1);  // at its most

    rho_state fresh{.rho = 1e-6};
    for (const double not_yet : {10, 11, 12}) CHECK(fresh.after_iteration(rising, not_yet) == 1);  // two rises
    CHECK(fresh.after_iteration(rising, 13) == Approx(10));
}

TEST_CASE("dladmm: labels and targets that do not fit the output are refused", "[admm]") {
    check_refuses_what_does_not_fit<dladmm<double>>("dladmm");
}

TEST_CASE("dladmm: a run that breaks names iteration and term", "[admm]") {
    network n = small_mlp();
    tensor<double> x = normals({30, 6}, 1);
    auto loss = classes_of(x, 4);
    dladmm<double> algorithm(n.layers(), {.rho = 0.1}, x.clone(), std::move(loss));
    algorithm.iterate();
    algorithm.variables()[0].value.span()[3] = std::numeric_limits<double>::infinity();
    const std::string said = test::message_of([&] { algorithm.iterate(); });
    CHECK(test::contains(said, "dladmm: iteration 2"));
    CHECK(test::contains(said, "layer fc"));
    objective_terms t;
    t.add("loss", 3);
    t.add("rho/2 |z - Wa - b|^2 of layer fc2", 1e9);
    const std::string far = test::message_of([&] { t.require_sound(1e6, 1e-6); });
    CHECK(test::contains(far, "its largest term is rho/2 |z - Wa - b|^2 of layer fc2"));
    t.add("mu/2 |W|^2 of layer fc1", std::numeric_limits<double>::quiet_NaN());
    CHECK(test::contains(test::message_of([&] { t.require_sound(1e12, 1e-6); }), "|W|^2 of layer fc1 is nan"));
}

}  // namespace admm_dladmm_tests
